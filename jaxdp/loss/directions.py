"""What a composition owes in one direction, or in the worse of both; by the engine that can.

`both` is static: the inputs are exchanged in the second half of one batch. terms and values are
broadcast here, to one shape.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Reals, Shape
from jaxdp.loss import bracket, contour, guess, inverse, line
from jaxdp.loss.base import Term, Terms, add_up, by_lanes, cumulant
from jaxdp.loss.exchange import LogBounds
from jaxdp.loss.scattered import has_scattered
from jaxdp.noise.base import renyi_of_cgf

# Of log delta: no grid is nearer.
_WIDE = 1e-5


def log_delta(terms: Terms, epsilon: Reals, both: bool, alone: bool = False) -> LogBounds:
    """On both sides; of the worse of the directions, which are worked off in one batch.

    `alone`: the grid is not asked where a line is wide.
    """
    terms, epsilon = _broadcast(terms, epsilon)
    return worse(_one_way(*_exchanged(terms, epsilon, both), alone), both)


def log_delta_on_one_line(
    terms: Terms, epsilon: Reals, both: bool, hurried: bool
) -> contour.OneLine:
    """Of each direction on its own, along a first axis if there are both."""
    at = _exchanged(*_broadcast(terms, epsilon), both)
    return contour.on_one_line(*at, hurried=hurried)


def tightened(
    terms: Terms, epsilon: Reals, both: bool, known: contour.OneLine
) -> tuple[LogBounds, Bools]:
    """Of each direction, where `log_delta_on_one_line` is `known`; and where it settles."""
    at = _exchanged(*_broadcast(terms, epsilon), both)
    return contour.tightened(*at, known.bounds, known.slow, contour.FINAL[0])


def rough_log_delta(terms: Terms, epsilon: Reals, both: bool) -> tuple[Reals, Reals]:
    """log delta to a few percent of delta, no bound: where a search may begin.

    And the tilt of each direction, along a new last axis.
    """
    at = _exchanged(*_broadcast(terms, epsilon), both)
    found, tilts = guess.rough_log_delta(*at)
    return _worse(found, both), jnp.moveaxis(tilts, 0, -1) if both else tilts[..., None]


def quick_log_delta(
    terms: Terms, epsilon: Reals, tilts: Reals, both: bool
) -> tuple[Reals, Bools, Reals]:
    """See `inverse.quick_log_delta`; `tilts` as `rough_log_delta` has them, given and returned.

    Settled where the worse direction is; NaN is not.
    """
    terms, epsilon = _broadcast(terms, epsilon)
    if not _quick(terms):
        return jnp.full(epsilon.shape, jnp.nan), jnp.zeros(epsilon.shape, dtype=bool), tilts
    at = _exchanged(terms, epsilon, both)
    # No more points than leave the bound that is reported in the end enough to settle as well.
    points = min(inverse.LONG, contour.most_points(terms) // 2)
    near = jnp.moveaxis(tilts, -1, 0) if both else tilts[..., 0]
    found, settled, theta = inverse.quick_log_delta(*at, near, points, both)
    return found, settled, jnp.moveaxis(theta, 0, -1) if both else theta[..., None]


def log_bounds(terms: Terms, epsilon: Reals, both: bool, points: int) -> LogBounds:
    """Those from a grid."""
    at = _exchanged(*_broadcast(terms, epsilon), both)
    return worse(bracket.in_lanes(*at, points), both)


def guess_epsilon(terms: Terms, delta: Reals, both: bool, shared: bool) -> guess.Guess:
    """See `guess.guess_epsilon`; for `quick_epsilon`, a new last axis for the directions."""
    terms, delta, _ = _for_lines(terms, delta, both, shared)
    if not _quick(terms):
        nothing = jnp.ones(delta.shape[:-1])
        found = guess.Guess(nothing, nothing)
    else:
        found = guess.guess_epsilon(terms, delta)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1) if both else x[..., None], found)


def quick_epsilon(
    terms: Terms,
    delta: Reals,
    near: guess.Guess,
    both: bool,
    shared: bool = False,
    points: int = inverse.SHORT,
) -> tuple[Reals, Bools]:
    """See `inverse.quick_epsilon`; `shared`: by the deltas of one loss, along the last axis.

    Settled nowhere where a loss has no cumulant off the axis, or scattered atoms.
    """
    terms, delta, shape = _for_lines(terms, delta, both, shared)
    if not _quick(terms):
        return jnp.zeros(shape), jnp.zeros(shape, dtype=bool)
    near = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0) if both else x[..., 0], near)
    found, settled = inverse.quick_epsilon(terms, delta, near, points, both)
    return found.reshape(shape), settled.reshape(shape)


def _for_lines(
    terms: Terms, delta: Reals, both: bool, shared: bool
) -> tuple[Terms, Reals, tuple[int, ...]]:
    """The terms of each line; its deltas along a last axis; the shape of what is reported."""
    batch = jnp.broadcast_shapes(*(term.shape for term in terms))
    shape = jnp.broadcast_shapes(batch, delta.shape)
    delta = jnp.broadcast_to(delta, shape)
    if shared:
        terms = tuple(_drop_axis(term) for term in terms)
    else:
        delta = delta[..., None]
    terms = tuple(term.broadcast(delta.shape[:-1]) for term in terms)
    if both:
        pair = (2, *delta.shape[:-1])
        terms, delta = _pair(terms, pair), jnp.broadcast_to(delta, (2, *delta.shape))
    return terms, delta, shape


def largest_epsilon(terms: Terms, delta: Reals, both: bool) -> Reals:
    """An epsilon that meets `delta` in either direction, by Markov's inequality."""
    at = _exchanged(*_broadcast(terms, delta), both)
    return _worse(lax.stop_gradient(line.largest_epsilon(*at)), both)


def largest_loss(terms: Terms, both: bool) -> Reals:
    """The least epsilon with delta = 0, of the worse direction: infinite where there is none."""
    ways = [terms]
    if both:
        ways.append(tuple(t.reversed(jnp.ones(t.shape, dtype=bool)) for t in terms))
    ends = [add_up(way, Term.pure_epsilon) for way in ways]
    finite = [add_up(way, Term.log_finite) for way in ways]
    never = jnp.minimum(finite[0], finite[-1]) < 0
    return jnp.where(never, jnp.inf, jnp.maximum(ends[0], ends[-1]))


def renyi(terms: Terms, order: Reals, both: bool, sloped: bool) -> Reals:
    """K(order - 1) / (order - 1), of the worse direction; of infinite order the largest loss.

    `sloped`: whether there may be the order 1, where it is the slope of K.
    """
    batch = jnp.broadcast_shapes(*(term.shape for term in terms))
    shape = jnp.broadcast_shapes(batch, order.shape)
    s = jnp.broadcast_to(order - 1.0, shape)
    if shape and (not batch or batch[-1] == 1):
        # Many orders of one loss.
        terms = tuple(_drop_axis(t).broadcast(shape[:-1]) for t in terms)
    else:
        terms, s = tuple(t.broadcast(shape) for t in terms), s[..., None]
    ways = [terms]
    if both:
        ways.append(tuple(t.reversed(jnp.ones(t.shape, dtype=bool)) for t in terms))
    # Few at a time stay in the cache with all their nodes.
    values = [
        by_lanes(lambda t, z: renyi_of_cgf(partial(cumulant, t), z, sloped), way, s) for way in ways
    ]
    ends = [add_up(way, Term.pure_epsilon)[..., None] for way in ways]
    largest, most = jnp.maximum(values[0], values[-1]), jnp.maximum(ends[0], ends[-1])
    finite = add_up(terms, Term.log_finite)[..., None]
    value = jnp.where(finite < 0, jnp.inf, largest).reshape(shape)
    most = jnp.broadcast_to(most, s.shape).reshape(shape)
    return jnp.where(jnp.broadcast_to(order == jnp.inf, shape), most, value)


def worse(bounds: LogBounds, both: bool) -> LogBounds:
    """Of both directions, along the first axis."""
    return LogBounds(*(_worse(x, both) for x in bounds))


def _one_way(terms: Terms, epsilon: Reals, alone: bool) -> LogBounds:
    if not _all_contoured(terms):
        return _bracketed(terms, epsilon)
    found = contour.in_lanes(terms, epsilon)
    if alone or not any(term.noise.gridded for term in terms):
        return found
    return _with_grid(*lax.stop_gradient((terms, epsilon)), found)


def _with_grid(terms: Terms, epsilon: Reals, line: LogBounds) -> LogBounds:
    """The nearer bounds where those of a line are wide, with its derivatives."""

    def flat(x: Reals | Bools) -> Reals | Bools:
        return x.reshape(epsilon.size, *x.shape[epsilon.ndim :])

    def nearer(lane: tuple[Terms, Reals, LogBounds]) -> LogBounds:
        terms, epsilon, known = lane

        def grid() -> LogBounds:
            found = bracket.in_lanes(terms, epsilon)
            # NaN is left.
            upper = jnp.where(found.upper < known.upper, found.upper, known.upper)
            return LogBounds(jnp.maximum(found.lower, known.lower), upper)

        return lax.cond(is_wide(known), grid, lambda: known)

    known = lax.stop_gradient(line)
    lanes = jax.tree.map(flat, (terms, epsilon, known))
    lower, upper = (x.reshape(epsilon.shape) for x in lax.map(nearer, lanes))
    moved = jnp.where(is_wide(known), upper - known.upper, 0.0)
    return LogBounds(lower, line.upper + moved)


def is_wide(bounds: LogBounds) -> Bools:
    """Where the grid may say more."""
    near = (bounds.upper - bounds.lower <= _WIDE) | (bounds.upper == -jnp.inf)
    return ~(near | jnp.isnan(bounds.upper))


@jax.custom_jvp
def _bracketed(terms: Terms, epsilon: Reals) -> LogBounds:
    """On a grid, whose points move in jumps: no derivative."""
    return bracket.in_lanes(terms, epsilon)


@_bracketed.defjvp
def _bracketed_jvp(primals, tangents):
    # Linear in what moves, so that both modes see it.
    moves = [jnp.sum(x, axis=-1) for x in jax.tree.leaves(tangents[0])]
    unknown = jnp.nan * sum(moves, start=tangents[1])
    return _bracketed(*primals), LogBounds(unknown, unknown)


def _quick(terms: Terms) -> bool:
    """Whether a few heights tell what follows a line: else `log_delta` alone looks further."""
    return _all_contoured(terms) and not has_scattered(terms)


def _all_contoured(terms: Terms) -> bool:
    return all(term.noise.contoured for term in terms)


def _broadcast(terms: Terms, values: Reals) -> tuple[Terms, Reals]:
    shape = jnp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    at = tuple(term.broadcast(shape) for term in terms), jnp.broadcast_to(values, shape)
    return lax.optimization_barrier(at)


def _exchanged(terms: Terms, values: Reals, both: bool) -> tuple[Terms, Reals]:
    """With a new first axis for the two directions, if there are two."""
    if not both:
        return terms, values
    pair = (2, *values.shape)
    return _pair(terms, pair), jnp.broadcast_to(values, pair)


def _pair(terms: Terms, shape: Shape) -> Terms:
    second = jnp.broadcast_to(jnp.arange(2).reshape(2, *(1,) * (len(shape) - 1)) == 1, shape)
    return tuple(term.broadcast(shape).reversed(second) for term in terms)


def _worse(values: Reals, both: bool) -> Reals:
    return jnp.max(values, axis=0) if both else values


def _drop_axis(term: Term) -> Term:
    """Without the batch's last axis, which has size 1, if there is one."""
    return jax.tree.map(lambda x: x[..., 0, :] if x.ndim > 1 else x, term)
