"""Bounds for a composition: a batch of any shape, in the worse direction."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import updated, xp
from jaxdp._core.types import ArrayLike, Lanes, Reals
from jaxdp._numeric.double_double import dot_up, rounded_up
from jaxdp.accountant import engines
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms, reversed_where, with_one_gaussian
from jaxdp.accountant.inverse import Reading, falling, least_epsilon
from jaxdp.accountant.primitive import answered
from jaxdp.accountant.runner import StopWhen, once
from jaxdp.accountant.steps import (
    Engine,
    LogBounds,
    Query,
    Question,
    Row,
    Step,
    Width,
    epsilon_width,
    of_numpy,
    width,
)
from jaxdp.guarantee.tradeoff import tradeoff_by_lines

# Error of delta for a trade-off. chosen: below the rates that are looked at
_DELTA_CLOSE = 1e-11
# Width of a bracket on epsilon that is searched. measured: a search lowers few narrower ones
_WIDE = 1e-3
# Least and largest epsilon of a search. chosen: beyond, the bracket stays as it is
_LEAST = 1e-9
_LARGEST = 1e9
_WIDTHS: dict[Question, Width] = {"log delta": width, "epsilon": epsilon_width}


@functools.lru_cache(64)
def _query(question: Question, both: bool, points: int = 0) -> Query:
    """The query of a question, by all engines or by a grid of `points` points."""
    if points:
        return Query(partial(engines.grid_steps, question, points), _WIDTHS[question], both)
    on_host, on_gpu = (partial(x, question) for x in (engines.steps_of, engines.steps_on_gpu))
    narrowed = partial(_searched, both) if question == "epsilon" else None
    return Query(on_host, _WIDTHS[question], both, on_gpu, narrowed)


def log_delta(
    terms: Terms, epsilon: Reals, both: bool, stop_when: StopWhen | None = None
) -> LogBounds:
    """Bounds on log delta at every real epsilon, in the worse direction if `both` is true.

    `stop_when` maps bounds to True where they need not be tighter. It serves concrete values at
    epsilons >= 0. The lower bound is -inf where Renyi divergences of a bounded range gave the upper
    one.
    """
    return _log_delta(terms, epsilon, _query("log delta", both), stop_when)


def log_bounds(terms: Terms, epsilon: Reals, both: bool, points: int) -> LogBounds:
    """Bounds on log delta from a grid with `points` points; a single release uses its profile."""
    return _log_delta(terms, epsilon, _query("log delta", both, points), None)


@once
def _log_delta(terms: Terms, epsilon: Reals, query: Query, stop_when: StopWhen | None) -> LogBounds:
    """Bounds at every real epsilon; the exchanged pair gives negative epsilons."""
    terms = with_one_gaussian(terms)
    shape = xp.broadcast_shapes(epsilon.shape, *(term.shape for term in terms))
    negative, size = (xp.broadcast_to(x, shape) for x in (epsilon < 0, xp.abs(epsilon)))
    forward = terms
    # NumPy, since JAX would trace a comparison of concrete values inside a trace.
    if not checks.is_concrete(epsilon) or np.any(np.asarray(epsilon) < 0):
        forward = reversed_where(tuple(term.broadcast(shape) for term in terms), negative)
    bounds = answered(query, forward, size, stop_when).mirrored(negative, size)
    return _falling(bounds, terms, epsilon)


@once
def epsilon(terms: Terms, delta: Reals, both: bool) -> LogBounds:
    """Bounds on the least epsilon >= 0 that satisfies delta; the upper one satisfies it."""
    terms = with_one_gaussian(terms)
    return _falling(answered(_query("epsilon", both), terms, delta), terms, delta)


def _searched(both: bool, lanes: tuple[Terms, Any], found: LogBounds) -> LogBounds:
    """Wide brackets on epsilon, lowered to where the bound on log delta meets its target."""
    terms, delta = lanes
    is_wide = (epsilon_width(found) > _WIDE) & (delta > 0) & (delta < 1) & ~np.isnan(found.upper)
    # An infinite loss, or a range whose lower bound is unknown, leaves nothing to search.
    at = np.flatnonzero(is_wide & (found.lower >= 0))
    if at.size == 0:
        return found
    wide, goal = jax.tree.map(lambda x: x[at], terms), np.log(delta[at])
    low, high = (xp.clip(x[at], _LEAST, _LARGEST) for x in found)

    def read(x: Reals) -> Reading:
        return Reading(*log_delta(wide, x, both), xp.full_like(x, xp.nan))

    least = least_epsilon(read, goal, 0.5 * (low + high), high)
    return LogBounds(found.lower, updated(found.upper, at, np.fmin(found.upper[at], least)))


@once
def grid_epsilon(terms: Terms, delta: Reals, points: int) -> Reals:
    """An upper bound on epsilon at delta from a grid of `points` points; releases as they are."""
    return answered(_query("epsilon", False, points), with_one_gaussian(terms), delta).upper


def _falling(bounds: LogBounds, terms: Terms, values: Reals) -> LogBounds:
    """The bounds, with upper ones that do not rise along axes where only `values` change."""
    size = bounds.upper.ndim
    shapes = [(1,) * (size - len(term.shape)) + term.shape for term in terms]
    free = tuple(i for i in range(size) if all(shape[i] == 1 for shape in shapes))
    if checks.all_concrete(bounds, terms, values):
        return _lowered(free, bounds, values)
    # Eager derivatives compile each operation: most need none here.
    return _lowered_in_traces(free, bounds, values) if free else bounds


def _lowered(free: tuple[int, ...], bounds: LogBounds, values: Reals) -> LogBounds:
    upper = xp.asarray(falling(bounds.upper, values, free))
    upper = xp.where(xp.isnan(values), xp.nan, upper)
    return LogBounds(xp.minimum(bounds.lower, upper), upper)


# Eager derivatives and maps compile one program.
_lowered_in_traces = jax.jit(_lowered, static_argnums=0)


@once
def renyi(terms: Terms, order: Reals, both: bool) -> LogBounds:
    """Renyi divergence of an order >= 1 in the worse direction: an upper bound, as both ends."""
    return answered(Query(_of_renyi, width, both), terms, order)


def _of_renyi(_: Terms) -> tuple[Step, ...]:
    return (Step(_RENYI, Row("renyi")),)


def _renyi(terms: Terms, order: Lanes, _: LogBounds) -> LogBounds:
    each = [xp.broadcast_arrays(term.count, term.pair.renyi(order[..., None])) for term in terms]
    counts, values = (xp.concatenate(x, axis=-1) for x in zip(*each, strict=True))
    # Of infinite order a sum of largest losses, not below the exact one.
    total = rounded_up(dot_up(counts, values))
    return LogBounds(total, total)


# Divergences of samples rise by many orders of magnitude between two orders; their error is 1e-13.
_RENYI = engines.by_terms(_renyi)._replace(step=1e-5)


@once
def tradeoff(terms: Terms, fpr: Reals, both: bool) -> Reals:
    """A lower bound on the false-negative rate at every false-positive rate."""
    return answered(_tradeoff_query(both), terms, fpr).lower


@functools.lru_cache(2)
def _tradeoff_query(both: bool) -> Query:
    def stop_when(bounds: LogBounds) -> Any:
        return np.exp(bounds.upper) - np.exp(bounds.lower) < _DELTA_CLOSE

    def solve(batch: Batch, known: LogBounds, level: Any) -> LogBounds:
        losses = batch.losses
        most = max(x.lanes.size for x in losses)
        rates = np.stack([np.resize(batch.values[x.lanes], most) for x in losses])
        first = np.array([x.lanes[0] for x in losses])
        terms = jax.tree.map(lambda x: x[first][:, None], batch.terms)

        def rough(epsilon: ArrayLike) -> Reals:
            """Upper bound on log delta at concrete epsilons >= 0, close enough for a trade-off."""
            return log_delta(terms, xp.asarray(epsilon), both, stop_when).upper

        found = np.asarray(tradeoff_by_lines(rough, rates, (len(losses), 1)))
        fnr = np.empty(batch.values.shape)
        for loss, of_loss in zip(losses, found, strict=True):
            fnr[loss.lanes] = of_loss[: loss.lanes.size]
        return of_numpy(fnr, fnr)

    steps = (Step(Engine(solve), Row("trade-off")),)
    return Query(lambda _: steps, width, both=False)
