"""Roots from good guesses, by secants within a bracket whose safe end passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Bools, Reals

# Of log x, that a step goes at most until both sides are seen. chosen: far out slopes mislead
_REACH = 3.0


class _Secant(NamedTuple):
    aim: Reals  # log x of the next step
    last: Reals
    value: Reals  # at `last`
    slope: Reals
    good: Reals
    bad: Reals
    found: Reals  # the x that passes at `good`
    done: Bools
    steps: Reals


class _Ends(NamedTuple):
    safe: Reals
    unsafe: Reals
    near: Reals  # log safe
    far: Reals  # log unsafe
    close: Reals

    def place(self, state: _Secant) -> Reals:
        """The next x; the ends exactly."""
        x = xp.where(state.aim == self.far, self.unsafe, xp.exp(state.aim))
        return xp.where(state.aim == self.near, self.safe, x)

    def moved(self, state: _Secant, value: Reals) -> _Secant:
        """Next state, given the residual `value` at `place`."""
        near, far, close, x = self.near, self.far, self.close, self.place(state)
        inward = xp.sign(near - far) * close
        passes = value <= 0
        slope = (value - state.value) / (state.aim - state.last)
        slope = xp.where(xp.isfinite(slope) & (slope * state.slope > 0), slope, state.slope)
        good = xp.where(passes, state.aim, state.good)
        bad = xp.where(passes, state.bad, state.aim)
        root = state.aim - value / slope
        is_done = passes & ((xp.abs(root - state.aim) <= 3.0 * close) | (state.aim == far))
        is_done = is_done | ((xp.abs(good - bad) <= 2.0 * close) | (~passes & (state.aim == near)))
        middle = 0.5 * (good + bad)
        steady = xp.isfinite(root) & ((state.steps < 6) | (state.steps % 2 == 0))
        inside = (root - good) * (root - bad) < 0
        aim = xp.where(steady & inside, root + inward, middle)
        one_sided = (good == near) | (bad == far)
        step = xp.clip(aim - state.aim, -_REACH, _REACH)
        aim = xp.where(one_sided, state.aim + step, aim)
        aim = xp.where((aim - near) * inward >= 0, near, aim)
        # Where even the end may pass it is looked at itself.
        is_beyond = steady & passes & ((root - far) * inward <= 0) & (state.bad == far)
        is_beyond = is_beyond & (xp.abs(far - state.aim) <= _REACH)
        aim = xp.where(is_beyond, far, aim)
        keep = state.done
        return _Secant(
            xp.where(keep, state.aim, aim),
            xp.where(keep, state.last, state.aim),
            xp.where(keep, state.value, value),
            xp.where(keep, state.slope, slope),
            xp.where(keep, state.good, good),
            xp.where(keep, state.bad, bad),
            xp.where(passes & ~keep, x, state.found),
            keep | is_done,
            state.steps + 1.0,
        )


_place, _moved = jitted(_Ends.place), jitted(_Ends.moved)


@jitted
def _begin(
    safe: Reals, unsafe: Reals, guess: Reals, slope: Reals | float, close: ArrayLike
) -> tuple[_Ends, _Secant]:
    near, far = xp.log(safe), xp.log(unsafe)
    ends = _Ends(safe, unsafe, near, far, xp.asarray(close))
    aim = xp.clip(xp.log(guess), xp.minimum(near, far), xp.maximum(near, far))
    aim = xp.where(xp.isnan(aim), 0.5 * (near + far), aim)
    nothing, is_done = xp.full_like(near, xp.nan), xp.zeros(near.shape, dtype=bool)
    slope = xp.full_like(near, slope)
    start = _Secant(aim, nothing, nothing, slope, near, far, nothing, is_done, xp.zeros(()))
    return ends, start


def secants(
    residual: Callable[[Reals], Reals],
    safe: Reals,
    unsafe: Reals,
    guess: Reals,
    slope: float,
    close: float,
    max_steps: int,
) -> Reals:
    """A root of a known residual from a guess of it and of its slope in log x.

    Secants within the bracket, whose ends are looked at only when the steps lead there; after 6 of
    them every other step halves the bracket. The last step ends `close` on the safe side, where the
    residual is at most 0. NaN where nothing has passed within `max_steps` steps.
    """
    ends, state = _begin(safe, unsafe, guess, slope, close)
    while state.steps < max_steps and not np.all(state.done):
        state = _moved(ends, state, residual(_place(ends, state)))
    return state.found
