"""Epsilons at deltas, from bounds on log delta at epsilons: the one inverse of all engines.

An engine is solved once and is then read at epsilons, which gives bounds on log delta and its
slope. Newton's method within a bracket goes a little beyond each root, so that both ends are read
on their safe sides: the upper bound at the upper end is at most the goal, and the lower bound at
the lower end is above it. Error: that of the readings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Lanes, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.steps import LogBounds

ROUNDS = 14  # at most. measured: 3 from a saddle, 7 by secants
SECANTS = 4  # rounds from which on secants replace the slope. chosen
NEAR = 1e-12  # distance of an end from its root, in nats of log delta. chosen: rounding
CLOSE = 2e-3  # the same, over the width of the bracket. chosen
LARGEST_LOG = 600.0  # of a slope. chosen
LOOSE = 1e-3  # width in nats in place of one that is not known. chosen
LEAST_SHARE = 1e-3  # of a bracket's end, which is halved as a logarithm above it. chosen
BEYOND = 1e-3  # share of a step by which it goes further. chosen: the next step is exact


class Reading(NamedTuple):
    """Bounds on log delta at epsilons."""

    lower: Reals
    upper: Reals
    log_fall: Reals  # log of minus delta's slope; NaN: unknown


# Maps epsilons (lanes,) to bounds on log delta.
Read: TypeAlias = Callable[[Reals], Reading]


class _Search(NamedTuple):
    at: Reals
    low: Reals  # the bound is above the goal; `high`: at most the goal
    high: Reals
    then: Reals  # where the other end is expected
    last: tuple[Reals, Reals]  # epsilon and gap before
    is_done: Bools
    rounds: Index | int


def epsilon_bounds(read: Read, goal: Reals, start: Reals, most: Reals) -> LogBounds:
    """Bounds on the least epsilons in [0, most] at which log delta is the goal, from estimates.

    The upper one is infinite, and the lower one 0, where none is found.
    """

    def end(begin: tuple[Reals, Reals], side: Reals) -> tuple[tuple[Reals, Reals], Reals]:
        found = _found(read, goal, *begin, side)
        value = xp.where(side > 0, found.high, xp.maximum(found.low, 0.0))
        return (found.then, xp.minimum(found.high, begin[1])), value

    ends = lax.scan(end, (start, most), xp.asarray([1.0, -1.0]))[1]
    return LogBounds(ends[1], ends[0])


def least_epsilon(read: Read, goal: Reals, start: Reals, most: Reals) -> Reals:
    """The upper one of `epsilon_bounds`."""
    return _found(read, goal, start, most, xp.asarray(1.0)).high


def _found(read: Read, goal: Reals, start: Reals, most: Reals, side: Reals) -> _Search:
    """The search for the end on a side: 1 for the upper one, -1 for the lower one."""

    def step(state: _Search) -> _Search:
        at, (last, gap_there) = state.at, state.last
        found = read(at)
        value = xp.where(side > 0, found.upper, found.lower)
        gap, slope = value - goal, xp.exp(xp.minimum(found.log_fall - value, LARGEST_LOG))
        is_safe = xp.where(side > 0, gap <= 0, gap > 0)  # false for NaN
        is_above = (side > 0) != is_safe
        low, high = xp.where(is_above, at, state.low), xp.where(is_above, state.high, at)
        # A bound far from delta falls in its own way.
        secant = (gap_there - gap) / (at - last)
        is_known = (slope > 0) & (slope < xp.inf)
        slope = xp.where(is_known & ((state.rounds < SECANTS) | ~(secant > 0)), slope, secant)
        slope = xp.where((slope > 0) & (slope < xp.inf), slope, xp.nan)
        width = xp.where(found.lower > -xp.inf, found.upper - found.lower, LOOSE) / slope
        move, near = gap / slope, NEAR / slope + 4.0 * ULP * at
        # log delta bends down to the largest loss, and delta does not.
        straight = -xp.expm1(-xp.maximum(gap, 0.0)) / slope
        move = xp.where((gap > 0) & (at + move >= xp.minimum(high, most)), straight, move)
        # Where there is no lower bound, back by a nat of the upper one, and further.
        back = -xp.exp2(state.rounds - 2.0) * xp.exp(
            xp.minimum(found.upper - found.log_fall, LARGEST_LOG)
        )
        move = xp.where(value == -xp.inf, back, move)
        size = xp.abs(move)
        goes_to = at + move + side * (xp.minimum(BEYOND, slope * size) * size + near)
        goes_to = xp.where((goes_to <= 0) & (low < 0), 0.0, goes_to)
        goes_to = xp.where((goes_to >= most) & (high > most), most, goes_to)
        least, greatest = xp.maximum(low, 0.0), xp.minimum(high, most)
        middle = xp.sqrt(xp.maximum(least, LEAST_SHARE * greatest) * greatest)
        inside = (goes_to >= least) & (goes_to <= greatest) & (goes_to != at)
        is_end = xp.where(is_above, at == most, at == 0)
        is_done = state.is_done | is_end | is_safe & (size <= xp.maximum(3.0 * near, CLOSE * width))
        goes_to = xp.where(is_done, at, xp.where(inside, goes_to, middle))
        then = xp.where(is_safe, at - width, state.then)
        moved = _Search(goes_to, low, high, then, (at, gap), is_done, state.rounds)
        # A lane that is done waits for the others: another reading has no secant.
        kept = jax.tree.map(lambda x, y: xp.where(state.is_done, x, y), state, moved)
        return kept._replace(rounds=state.rounds + 1)

    infinite, nothing = xp.full_like(goal, xp.inf), xp.full_like(goal, xp.nan)
    start = xp.where(xp.isnan(start), 0.5 * xp.minimum(most, 1.0), xp.clip(start, 0.0, most))
    last, is_done = (nothing, nothing), xp.zeros(goal.shape, bool)
    first = _Search(start, -infinite, infinite, start, last, is_done, 0)
    return lax.while_loop(lambda x: (x.rounds < ROUNDS) & ~xp.all(x.is_done), step, first)


def falling(upper: Lanes, value: Lanes, free: tuple[int, ...]) -> Lanes:
    """Least upper bound over all smaller values, along axes where the composition is constant.

    The truth falls as the value grows: log delta with epsilon, epsilon with delta.
    """
    if not free or upper.size == 0:
        return upper
    value = xp.broadcast_to(value, upper.shape)
    last_axes = tuple(range(-len(free), 0))
    flat = xp.moveaxis(upper, free, last_axes)
    shape = flat.shape
    flat, size = (
        xp.moveaxis(x, free, last_axes).reshape(*shape[: len(shape) - len(free)], -1)
        for x in (upper, value)
    )
    order = xp.argsort(size, axis=-1)
    ordered = xp.take_along_axis(flat, order, axis=-1)
    least_so_far = lax.cummin(ordered, axis=ordered.ndim - 1)
    unordered = xp.take_along_axis(least_so_far, xp.argsort(order, axis=-1), axis=-1)
    least = lax.stop_gradient(xp.moveaxis(unordered.reshape(shape), last_axes, free))
    # A minimum would share the slope among equal values.
    slope = xp.where(xp.isfinite(upper), upper - lax.stop_gradient(upper), 0.0)
    return xp.where(least < upper, least + slope, upper)
