"""Bounds for a composition: lays out a batch of any shape as lanes for the engines."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import compiled
from jaxdp._core.namespace import xp
from jaxdp._core.tracing import outside_traces
from jaxdp._core.types import Lanes, Reals
from jaxdp._numeric.double_double import dot_up, rounded_up
from jaxdp.accountant import divergences, engines, inverse, profile
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.batches import in_pieces, piece_of
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.cascade import ALWAYS, Step, StopWhen, answered
from jaxdp.accountant.composition import (
    Term,
    Terms,
    exchanged,
    is_gaussian,
    one_release,
    reversed_where,
    with_one_gaussian,
)
from jaxdp.accountant.tables import require_consistent


def _outside_traces(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run `function` outside of the surrounding trace if its arguments are concrete.

    If the result has a NaN or an infinity and a law contradicts itself, raises `ValueError`.
    """

    @functools.wraps(function)
    def call(terms: Terms, values: Reals, *options: Any) -> Any:
        if not checks.all_concrete(terms, values):
            return function(terms, values, *options)
        with outside_traces(), np.errstate(all="ignore"):
            answer = function(terms, values, *options)
            require_consistent(answer, terms)
            return answer

    return call


def log_delta(
    terms: Terms, epsilon: Reals, both: bool, stop_when: StopWhen | None = None
) -> LogBounds:
    """Bounds on log delta at every real epsilon, in the worse direction if `both` is true.

    `stop_when` maps bounds to True where they need not be tighter. It serves concrete values at
    epsilons >= 0.
    """
    if len(terms) == 1 and epsilon.ndim == 0 and terms[0].count.ndim == 1 and is_gaussian(terms[0]):
        with outside_traces() if checks.all_concrete(terms, epsilon) else nullcontext():
            return _of_gaussian(terms[0], epsilon)
    return _log_delta_by_engines(terms, epsilon, both, stop_when)


@compiled
def _of_gaussian(term: Term, epsilon: Reals) -> LogBounds:
    """Bounds on log delta of one composition of Gaussians, in one program."""
    one = jax.tree.map(lambda x: x[None], one_release(term))
    negative, size = epsilon < 0, xp.abs(epsilon)
    found = profile.log_bounds((one,), size[None])
    return LogBounds(*(x[0] for x in found)).mirrored(negative, size)


@_outside_traces
def _log_delta_by_engines(
    terms: Terms, epsilon: Reals, both: bool, stop_when: StopWhen | None
) -> LogBounds:
    terms = with_one_gaussian(terms)
    bounds = _at_epsilon(engines.steps_of("log delta", terms), terms, epsilon, both, stop_when)
    return _falling(bounds, terms, epsilon)


@_outside_traces
def log_bounds(terms: Terms, epsilon: Reals, both: bool, points: int) -> LogBounds:
    """Bounds on log delta from a grid with `points` points; a single release uses its profile."""
    terms = with_one_gaussian(terms)
    bounds = _at_epsilon(engines.brackets_of(terms, points), terms, epsilon, both)
    return _falling(bounds, terms, epsilon)


@_outside_traces
def epsilon(terms: Terms, delta: Reals, both: bool) -> LogBounds:
    """Bounds on the least epsilon >= 0 that satisfies delta; the upper one satisfies it."""
    terms = with_one_gaussian(terms)
    return _falling(_search_epsilon(terms, delta, both), terms, delta)


def _falling(bounds: LogBounds, terms: Terms, values: Reals) -> LogBounds:
    """The bounds, with upper ones that do not rise along axes where only `values` change."""
    upper = xp.asarray(inverse.falling(bounds.upper, values, _constant_axes(terms, bounds)))
    upper = xp.where(xp.isnan(values), xp.nan, upper)
    return LogBounds(xp.minimum(bounds.lower, upper), upper)


def _search_epsilon(terms: Terms, delta: Reals, both: bool) -> LogBounds:
    """Bounds on epsilon by the engines' inverses, and by a search where these are wide."""
    steps, search_steps = engines.steps_of("epsilon", terms), engines.searched_by(terms)
    shape, batch = _as_lanes(terms, delta, both)
    directions = 2 if both else 1
    if not checks.all_concrete(terms, delta):
        # The end of the losses and divergences have no plan: their own inverses are exact.
        planned = [step for step in search_steps[:-1] if step.above != ALWAYS]
        finish = partial(inverse.searched_traced, planned[-1]) if planned else None
        bounds = answered(steps, inverse.width, batch, directions, None, finish)
        return _worse_direction(bounds, shape, both)
    bounds = _worse_direction(answered(steps, inverse.width, batch, directions), (-1,), both)
    if search_steps:
        # A width that no further engine would reduce needs no search.
        tolerance = max(inverse.NEAR, steps[-1].above)
        log_delta_of = partial(answered, search_steps, _width, directions=directions)
        bounds = inverse.searched(bounds, batch, directions, log_delta_of, tolerance)
    return LogBounds(*(x.reshape(shape) for x in bounds))


def _constant_axes(terms: Terms, bounds: LogBounds) -> tuple[int, ...]:
    """Axes of the batch along which the composition is constant."""
    size = bounds.upper.ndim
    shapes = [(1,) * (size - len(term.shape)) + term.shape for term in terms]
    return tuple(i for i in range(size) if all(shape[i] == 1 for shape in shapes))


@_outside_traces
def log_delta_by_divergences(terms: Terms, epsilon: Reals, both: bool) -> Reals:
    """The upper bound on log delta from Renyi divergences alone, at every real epsilon."""
    return _worst_of(divergences.log_delta_of, terms, epsilon, both)


@_outside_traces
def epsilon_by_divergences(terms: Terms, delta: Reals, both: bool) -> Reals:
    """The upper bound on epsilon from Renyi divergences alone."""
    return _worst_of(divergences.epsilon_of, terms, delta, both)


@_outside_traces
def renyi(terms: Terms, order: Reals, both: bool) -> Reals:
    """Renyi divergence of an order >= 1 in the worse direction: a sum over the releases."""
    return _worst_of(_renyi, terms, order, both)


@compiled
def _renyi(terms: Terms, order: Reals) -> Reals:
    each = [xp.broadcast_arrays(term.count, term.pair.renyi(order[..., None])) for term in terms]
    counts, values = (xp.concatenate(x, axis=-1) for x in zip(*each, strict=True))
    # Of infinite order a sum of largest losses, not below the exact one.
    return rounded_up(dot_up(counts, values))


def _worst_of(
    function: Callable[[Terms, Lanes], Reals], terms: Terms, values: Lanes, both: bool
) -> Reals:
    """Largest function(terms, values) over the directions."""
    shape, batch = _as_lanes(terms, values, both)
    lanes = batch.terms, batch.values
    if checks.all_concrete(lanes):
        releases = sum(term.count.shape[-1] for term in terms)
        found = in_pieces(function, lanes, piece_of(batch.values.shape[0], releases))
    else:
        found = function(*lanes)
    return _worst(found, shape, both)


def _at_epsilon(
    steps: tuple[Step, ...],
    terms: Terms,
    epsilon: Reals,
    both: bool,
    stop_when: StopWhen | None = None,
) -> LogBounds:
    """Bounds on log delta at every real epsilon; the exchanged pair gives negative epsilons."""
    shape = xp.broadcast_shapes(epsilon.shape, *(term.shape for term in terms))
    negative, size = epsilon < 0, xp.abs(epsilon)
    # NumPy, since JAX would trace a comparison of concrete values inside a trace.
    if not (checks.is_concrete(epsilon) and not np.any(np.asarray(epsilon) < 0)):
        expanded = tuple(term.broadcast(shape) for term in terms)
        terms = reversed_where(expanded, xp.broadcast_to(negative, shape))
    bounds = _by_engines(steps, terms, size, both, stop_when)
    return bounds.mirrored(*(xp.broadcast_to(x, shape) for x in (negative, size)))


def _by_engines(
    steps: tuple[Step, ...], terms: Terms, values: Lanes, both: bool, stop_when: StopWhen | None
) -> LogBounds:
    """Bounds on log delta of the worse direction by the engines, in the batch's shape."""
    shape, batch = _as_lanes(terms, values, both)

    def of_lanes(bounds: LogBounds) -> Any:
        assert stop_when is not None
        by_shape = LogBounds(*(x.reshape(shape) for x in bounds))
        return np.broadcast_to(np.asarray(stop_when(by_shape)), shape).ravel()

    stop_lanes = None if stop_when is None else of_lanes
    return _worse_direction(
        answered(steps, _width, batch, 2 if both else 1, stop_lanes), shape, both
    )


def _as_lanes(terms: Terms, values: Lanes, both: bool) -> tuple[tuple[int, ...], Batch]:
    """Shape of the batch, and its lanes along one axis; the lanes of direction two come last."""
    shape = xp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    size = math.prod(shape)
    is_concrete = checks.all_concrete(terms, values)
    lib: Any = np if is_concrete else xp
    if is_concrete:
        terms, values = jax.tree.map(np.asarray, (terms, values))
    values = lib.broadcast_to(values, shape).reshape(size)

    def flat(x: Lanes) -> Lanes:
        return lib.broadcast_to(x, (*shape, x.shape[-1])).reshape(size, x.shape[-1])

    lanes = jax.tree.map(flat, terms)
    if both:
        lanes = exchanged(lanes, lib.concatenate)
        values = lib.concatenate([values, values])
    return shape, Batch(lanes, values)


def _worse_direction(bounds: LogBounds, shape: tuple[int, ...], both: bool) -> LogBounds:
    """The larger bounds of both directions, in the batch's shape."""
    lower, upper = (_worst(x, shape, both) for x in bounds)
    return LogBounds(xp.minimum(lower, upper), upper)


def _worst(lanes: Lanes, shape: tuple[int, ...], both: bool) -> Reals:
    """The larger value of both directions, in the batch's shape."""
    lanes = xp.asarray(lanes)
    return xp.max(lanes.reshape(2, *shape), axis=0) if both else lanes.reshape(shape)


def _width(bounds: LogBounds) -> Reals:
    """Widths of brackets on log delta; 0 where delta is 0, infinite where it is unknown."""
    width = xp.subtract(bounds.upper, bounds.lower)
    width = xp.where(bounds.upper == -xp.inf, 0.0, width)
    return xp.where(xp.isnan(width), xp.inf, width)
