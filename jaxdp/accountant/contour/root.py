"""Newton's method for the epsilon at which a contour's sum meets delta, and safe ends around it."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp._numeric.elementary import ULP

ROUNDS = 12  # of Newton's method, at most. measured: 3 from a saddle
CLOSE = 1e-9  # its tolerance, over epsilon + 1 / tilt. chosen: the next step is exact
STEP_BEYOND = 1e-3  # share of a step added to it, so that its end is safe. chosen


class _Search(NamedTuple):
    """State of Newton's method for an epsilon at which the sum with its errors equals the goal."""

    at: Reals
    low: Reals
    high: Reals
    is_done: Bools
    rounds: Index | int


def root_and_ends(curve: Any, goal: Reals, most: Reals) -> tuple[Reals, ...]:
    """Epsilon at which the sum equals the goal, safe ends around it, and the error there."""
    zero = xp.zeros_like(most)

    def solve(at: Reals, side: Reals) -> tuple[Reals, tuple[Reals, Bools]]:
        found = lax.while_loop(
            lambda x: (x.rounds < ROUNDS) & ~xp.all(x.is_done),
            lambda x: _stepped(curve, goal, side, x),
            _Search(at, zero, most, zero > 0, 0),
        )
        return xp.where(side == 0, found.at, at), (found.at, found.is_done)

    start = xp.minimum(curve.frozen.epsilon, most)
    _, (at, done) = lax.scan(solve, start, xp.asarray([0.0, -1.0, 1.0]))
    lower, upper = xp.where(done[1], at[1], 0.0), xp.where(done[2], at[2], xp.inf)
    return at[0], lower, upper


def _stepped(curve: Any, goal: Reals, side: Reals, state: _Search) -> _Search:
    """A step: on the logarithm within a bracket for the root, past the goal for an end."""
    at = state.at
    found = curve.at(at)
    high, low = curve.errors_at(at, found)
    value, slope = found.value, found.slope
    gap = value + xp.where(side == 0, 0.0, xp.where(side < 0, -high, low)) - goal
    # An end goes a little further, so that it is safe.
    beyond = STEP_BEYOND * xp.abs(gap / slope) + 1e-12 / curve.frozen.tilt + 4.0 * ULP * at
    end = xp.maximum(at + gap / slope + side * beyond, 0.0)
    is_low = value > goal
    low_end, high_end = xp.where(is_low, at, state.low), xp.where(is_low, state.high, at)
    valid = (value > 0) & (slope > 0)
    move = xp.log(xp.where(valid, value / goal, 1.0)) * value / xp.where(valid, slope, 1.0)
    middle = 0.5 * (low_end + high_end)
    root = xp.where(valid, at + move, middle)
    root = xp.where((root < low_end) | (root > high_end), middle, root)
    is_near = xp.abs(root - at) <= CLOSE * (at + 1.0 / curve.frozen.tilt)
    is_done = xp.where(side == 0, is_near, side * gap <= 0)
    next_ = xp.where(side == 0, root, xp.where(is_done, at, end))
    return _Search(next_, low_end, high_end, is_done, state.rounds + 1)
