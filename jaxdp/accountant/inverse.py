"""Bounds on epsilon where an engine's own inverse is wide: Chernoff's bound, and a root search.

An engine plans for the target delta, and its plan can fail at the epsilon where it ends. The upper
bound is then the least of three: the engine's answer, Chernoff's bound of the whole law, and the
end of a search for the epsilon at which the engines' upper bound on log delta meets the target. So
epsilon is bounded wherever log delta is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Lanes, Reals
from jaxdp._numeric.search import Ends
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.bounds import LogBounds, of_numpy
from jaxdp.accountant.contour import chernoff
from jaxdp.accountant.runner import in_turn
from jaxdp.accountant.steps import Engine, Step, Width, worse

CLOSE = 1e-9  # width at which a search stops, plus the two below. chosen
RELATIVE = 1e-6  # part of that width, over epsilon. chosen
SHARE = 0.02  # part of that width, over the first width. chosen: a bracket has that error anyway
RESOLVED = 0.1  # first width over epsilon above which SHARE does not count. chosen: it may be vast
PACK = 64  # lanes searched at once, at most. chosen: values of one loss share contours and grids
MOST = 1e9  # largest end tried where Chernoff's bound is infinite. chosen
GROWTH = 64.0  # factor from one such end to the next. chosen
STEPS = 24  # of a search, at most. measured: 6 to 12 converge in nearly all cases


class Search(NamedTuple):
    """Bracket of epsilons around the target, and log delta less its target at both ends."""

    low: Reals
    above: Reals  # NaN: not evaluated
    high: Reals  # satisfies delta
    below: Reals
    side: Reals  # 1 where the lower end moved last, else -1
    steps: Reals
    share: Reals  # SHARE of its first width, or 0

    @property
    def tolerance(self) -> Reals:
        """The width at which the search stops."""
        return CLOSE + RELATIVE * xp.minimum(self.high, MOST) + self.share

    @property
    def is_open(self) -> Bools:
        """True while the bracket is wider than the tolerance and steps remain."""
        are_apart = self.high - self.low > self.tolerance
        endless = (self.high == xp.inf) & (self.low >= MOST)
        return are_apart & ~endless & (self.steps < STEPS)

    @property
    def next(self) -> Reals:
        """The next epsilon to try: just below the upper end first, then mostly by regula falsi."""
        low, high = self.low, xp.where(self.high < xp.inf, self.high, 1.0)
        chord = low + xp.clip(Ends(*self[:5]).share, 1e-3, 1.0 - 1e-3) * (high - low)
        without_chord = xp.where(low > 0, xp.sqrt(low) * xp.sqrt(high), 0.125 * high)
        epsilon = xp.where(xp.isnan(chord), xp.maximum(without_chord, low), chord)
        near_end = xp.maximum(high - self.tolerance, 0.5 * (low + high))
        epsilon = xp.where(self.steps % 4 == 3, 0.5 * (low + high), epsilon)
        epsilon = xp.where(self.steps == 0, near_end, epsilon)
        return xp.where(self.high < xp.inf, epsilon, xp.maximum(GROWTH * low, 1.0))

    def moved(self, x: Reals, gap: Reals) -> Search:
        """The bracket with one end moved to x, where log delta exceeds its target by `gap`."""
        ends = Ends(*self[:5]).moved(x, gap, self.is_open)
        return Search(*ends, self.steps + 1.0, self.share)


def started(bounds: LogBounds, bound: Reals) -> Search:
    """A bracket below the engine's answer and Chernoff's bound."""
    high = xp.where(bound < bounds.upper, bound, bounds.upper)
    high = xp.where(xp.isnan(high), bound, high)
    low = xp.minimum(xp.where(bounds.lower > 0, bounds.lower, 0.0), high)
    unknown = xp.full_like(high, xp.nan)
    zero = xp.zeros_like(high)
    is_resolved = (high < xp.inf) & (high - low <= RESOLVED * high)
    share = xp.where(is_resolved, SHARE * (high - low), 0.0)
    return Search(low, unknown, high, unknown, zero, zero, share)


def engine(steps: tuple[Step, ...], width: Width) -> Engine:
    """A search for epsilon by the steps for log delta, and Chernoff's bound."""

    def log_delta(batch: Batch, directions: int) -> LogBounds:
        return in_turn(steps, width, directions, batch)

    return Engine(partial(_searched, log_delta), is_joint=True)


@np.errstate(all="ignore")  # of infinite bounds
def _searched(
    log_delta: Callable[[Batch, int], LogBounds], batch: Batch, bounds: LogBounds, directions: int
) -> LogBounds:
    """`bounds` of lanes, a direction after the other, lowered by a search.

    `log_delta` maps batches of epsilons to bounds on log delta.
    """
    worst = worse(bounds, directions)
    lanes = worst.upper.size
    target = np.asarray(batch.values)[:lanes]
    index = np.flatnonzero((target > 0) & (target < 1)).tolist()
    size = min(len(index), PACK)
    states: dict[int, Search] = {}

    def picked(lane: Any, values: Lanes) -> Batch:
        both = lane + lanes * np.arange(directions)[:, None]
        return batch.at(both.ravel(), np.tile(values, directions))

    def largest(values: Lanes) -> Any:
        return np.asarray(values).reshape(directions, -1).max(axis=0)

    def keep(lane: Any, state: Search) -> None:
        states.update((int(i), Search(*x)) for i, x in zip(lane, np.stack(state, -1), strict=True))

    for start in range(0, len(index), max(size, 1)):
        lane = np.array(index[start : start + size])
        bound = largest(chernoff.epsilon_of(picked(lane, target[lane])))
        keep(lane, started(of_numpy(*(x[lane] for x in worst)), bound))
    while open_lanes := [i for i in index if states[i].is_open][:size]:
        lane = np.array(open_lanes)
        state = Search(*np.stack([states[i] for i in lane], -1))
        x: Any = np.asarray(state.next)
        found = largest(log_delta(picked(lane, x), directions).upper)
        keep(lane, state.moved(x, found - np.log(target[lane])))
    high = np.full(lanes, np.inf)
    high[index] = [states[i].high for i in index]
    return bounds.at_most(xp.tile(xp.asarray(high), directions))


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
