"""What a composition reports: the engines of `engines` asked in turn, over a batch.

Concrete batches are worked off in a few sizes, so that few shapes compile, and in pieces side by
side on the cores of a CPU; traced ones in one program, lane by lane.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp import _check
from jaxdp._compile import compiled, outside_traces
from jaxdp._types import Reals
from jaxdp.accountant import grid
from jaxdp.accountant.batches import few_sizes, in_few_shapes
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import (
    Terms,
    add_up,
    exchanged,
    largest_finite,
    log_finite,
    with_one_gaussian,
)
from jaxdp.accountant.engines import Engine, Step, by_lanes, engines_of, inverses_of


def log_delta(terms: Terms, epsilon: Reals, both: bool) -> LogBounds:
    """Bounds on log delta at every real epsilon; of the worse direction where `both` are asked."""
    return _in_turn(engines_of(with_one_gaussian(terms)), _width, terms, epsilon, both)


def epsilon(terms: Terms, delta: Reals, both: bool) -> LogBounds:
    """Bounds on the least epsilon >= 0 that meets delta, feasible above."""
    found = _in_turn(inverses_of(with_one_gaussian(terms)), _epsilon_width, terms, delta, both)
    none, certain = delta == 0, delta == 1
    if _check.is_concrete(delta) and not np.any(np.asarray(none)):
        end = jnp.zeros(())
    else:
        end = largest_loss(terms, both)
    upper = jnp.where(none, end, jnp.where(certain, 0.0, found.upper))
    return LogBounds(jnp.where(none | certain, upper, found.lower), upper)


def log_bounds(terms: Terms, epsilon: Reals, both: bool, points: int) -> LogBounds:
    """Those of the grid."""
    terms = with_one_gaussian(terms)
    return in_few_shapes(_on_grid(points), terms, epsilon, both)


def renyi(terms: Terms, order: Reals, both: bool) -> Reals:
    """The Renyi divergence of an order from 1 on: the releases' add, of the worse direction."""
    return in_few_shapes(_renyi, terms, order, both)


def largest_loss(terms: Terms, both: bool) -> Reals:
    """The least epsilon with delta = 0; infinite where there is none."""
    shape = jnp.broadcast_shapes(*(term.shape for term in terms))
    return _largest(exchanged(terms, both, shape), both)


@functools.partial(compiled, static_argnums=1)
def _largest(terms: Terms, both: bool) -> Reals:
    value = jnp.where(log_finite(terms) < 0, jnp.inf, largest_finite(terms))
    return jnp.max(value, axis=0) if both else value


def _in_turn(
    steps: tuple[Step, ...],
    width: Callable[[LogBounds], Reals],
    terms: Terms,
    values: Reals,
    both: bool,
) -> LogBounds:
    """The first engine's bounds, and the next one's where they are wide."""
    terms = with_one_gaussian(terms)
    if not _check.all_concrete(terms, values):
        return _traced(steps, width, terms, values, both)
    found = in_few_shapes(_worst(steps[0].engine), terms, values, both)
    for step in steps[1:]:
        wide = np.flatnonzero(np.asarray(width(found)) > step.above)
        if wide.size > 0:
            found = _tightened(step.engine, terms, values, both, found, wide)
    return found


def _tightened(
    engine: Engine, terms: Terms, values: Reals, both: bool, found: LogBounds, lanes: np.ndarray
) -> LogBounds:
    """With the engine's bounds in some lanes of the batch."""
    shape = found.upper.shape
    index = np.resize(lanes, few_sizes(lanes.size))
    with outside_traces():
        some = tuple(
            jax.tree.map(lambda x: x.reshape(-1, x.shape[-1])[index], term.broadcast(shape))
            for term in terms
        )
        again = in_few_shapes(
            _worst(engine), some, jnp.broadcast_to(values, shape).ravel()[index], both
        )
        flat = LogBounds(*(x.ravel() for x in found))
        nearer = _nearer(LogBounds(*(x[index] for x in flat)), again)
        return LogBounds(
            *(x.at[index].set(y).reshape(shape) for x, y in zip(flat, nearer, strict=True))
        )


def _traced(
    steps: tuple[Step, ...],
    width: Callable[[LogBounds], Reals],
    terms: Terms,
    values: Reals,
    both: bool,
) -> LogBounds:
    """In one program: every lane goes on to the next engine on its own."""
    shape = jnp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    way, at = tuple(t.broadcast(shape) for t in terms), jnp.broadcast_to(values, shape)

    def lane(terms: Terms, value: Reals) -> LogBounds:
        found = _worst(steps[0].engine)(terms, value, both)
        for engine, above in steps[1:]:
            found = lax.cond(
                width(found) > above,
                lambda f, e=engine: _nearer(f, _worst(e)(terms, value, both)),
                lambda f: f,
                found,
            )
        return found

    return by_lanes(lane, way, at)


def _nearer(known: LogBounds, found: LogBounds) -> LogBounds:
    """The nearer bounds; of NaN the other."""
    upper = jnp.where(
        (found.upper < known.upper) | jnp.isnan(known.upper), found.upper, known.upper
    )
    better = (found.lower > known.lower) | jnp.isnan(known.lower) & ~jnp.isnan(found.lower)
    return LogBounds(jnp.where(better, found.lower, known.lower), upper)


def _width(found: LogBounds) -> Reals:
    """Of brackets on log delta; 0 where delta is 0, infinite where nothing is known."""
    width = jnp.where(found.upper == -jnp.inf, 0.0, found.upper - found.lower)
    return jnp.where(jnp.isnan(width), jnp.inf, width)


def _epsilon_width(found: LogBounds) -> Reals:
    """Of brackets on epsilon, relatively where it is large."""
    width = (found.upper - found.lower) / (1.0 + found.upper)
    width = jnp.where(found.lower == jnp.inf, 0.0, width)
    return jnp.where(jnp.isnan(width), jnp.inf, width)


@functools.cache
def _on_grid(points: int) -> Callable[[Terms, Reals, bool], LogBounds]:
    return _worst(functools.partial(grid.log_bounds, points=points))


@functools.cache
def _worst(engine: Engine) -> Callable[[Terms, Reals, bool], LogBounds]:
    """The engine's bounds of the worse direction, compiled."""

    def worst(terms: Terms, values: Reals, both: bool) -> LogBounds:
        shape = jnp.broadcast_shapes(values.shape, *(term.shape for term in terms))
        way = exchanged(terms, both, shape)
        at = jnp.broadcast_to(values, way[0].shape)
        found = engine(way, at)
        return LogBounds(*(jnp.max(x, axis=0) for x in found)) if both else found

    return compiled(worst, 2)


@functools.partial(compiled, static_argnums=2)
def _renyi(terms: Terms, order: Reals, both: bool) -> Reals:
    shape = jnp.broadcast_shapes(order.shape, *(term.shape for term in terms))
    way = exchanged(terms, both, shape)
    at = jnp.broadcast_to(order, way[0].shape)[..., None]
    value = add_up(way, lambda t: t.total(t.pair.renyi(at)))
    return jnp.max(value, axis=0) if both else value
