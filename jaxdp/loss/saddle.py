"""The tilt where a bound from a cumulant is least: the saddle of an integrand."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Index, Reals

# Of the longer side of the bracket, for a step that a parabola does not aim.
_SHARE = 0.381966011250105
# Of the bracket: a parabola's step away from its ends and its middle.
_CLEAR = 0.02
# Every third step is a golden section, which never stalls.
_GOLDEN_EVERY = 3
_MOST_STEPS = 64


class Saddle(NamedTuple):
    """What was found: of shape (*lanes,), `first` of the grid's."""

    theta: Reals
    least: Reals
    bend: Reals  # the second derivative of the values in log |tilt|, to a few percent
    first: Reals  # the first result at every tilt of the grid


class _Triple(NamedTuple):
    """Logarithms of |tilt| left of, at and right of the least value so far; the values there."""

    low: Reals
    middle: Reals
    high: Reals
    at_low: Reals
    at_middle: Reals
    at_high: Reals

    def spread(self) -> Reals:
        return jnp.maximum(self.at_low, self.at_high) - self.at_middle

    def bend(self) -> Reals:
        """Of the parabola through all three; 1 where there is none."""
        left, right = self.middle - self.low, self.high - self.middle
        rise = right * (self.at_low - self.at_middle) + left * (self.at_high - self.at_middle)
        found = 2.0 * rise / (left * right * (left + right))
        return jnp.where((found > 0) & (found < jnp.inf), found, 1.0)

    def aim(self, golden: Bools) -> Reals:
        """The vertex of the parabola through all three; or within the longer side."""
        left, right = self.middle - self.low, self.high - self.middle
        longer = jnp.where(right > left, _SHARE * right, -_SHARE * left)
        rise = right * (self.at_low - self.at_middle), left * (self.at_high - self.at_middle)
        bend = rise[0] + rise[1]
        move = 0.5 * (right * rise[0] - left * rise[1]) / jnp.where(bend > 0, bend, 1.0)
        clear = _CLEAR * (right + left)
        inside = (move > clear - left) & (move < right - clear) & (jnp.abs(move) > clear)
        return self.middle + jnp.where(inside & (bend < jnp.inf) & ~golden, move, longer)

    def with_point(self, x: Reals, value: Reals) -> "_Triple":
        value = jnp.where(jnp.isnan(value), jnp.inf, value)
        better, right = value <= self.at_middle, x > self.middle
        raises, lowers = jnp.where(better, right, ~right), jnp.where(better, ~right, right)
        ends = jnp.where(better, self.middle, x), jnp.where(better, self.at_middle, value)
        return _Triple(
            jnp.where(raises, ends[0], self.low),
            jnp.where(better, x, self.middle),
            jnp.where(lowers, ends[0], self.high),
            jnp.where(raises, ends[1], self.at_low),
            jnp.where(better, value, self.at_middle),
            jnp.where(lowers, ends[1], self.at_high),
        )


def saddle_of(
    function: Callable[[Reals], tuple[Reals, Reals]], grid: Reals, flat: float, each: bool = False
) -> Saddle:
    """Where the second of function's results, unimodal in log |tilt|, is least.

    From tilts (*lanes, n) of one sign, increasing in size, on to where the values on both sides of
    the least one are no more than `flat` (times its tilt, with `each`) above it: 64 steps at most.
    """
    first, values = function(grid)
    values = jnp.where(jnp.isnan(values), jnp.inf, values)
    index = jnp.argmin(values, axis=-1)[..., None]
    sizes, last = jnp.log(jnp.abs(grid)), grid.shape[-1] - 1
    near = [jnp.clip(index + offset, 0, last) for offset in (-1, 0, 1)]
    start = _Triple(*(jnp.take_along_axis(x, i, -1)[..., 0] for x in (sizes, values) for i in near))
    sign = jnp.sign(grid[..., 0])

    def is_flat(triple: _Triple) -> Bools:
        return triple.spread() * (jnp.exp(triple.middle) if each else 1.0) < flat

    def loose(state: tuple[Index, _Triple]) -> Bools:
        return (state[0] < _MOST_STEPS) & ~jnp.all(is_flat(state[1]))

    def narrow(state: tuple[Index, _Triple]) -> tuple[Index, _Triple]:
        steps, triple = state
        x = triple.aim(steps % _GOLDEN_EVERY == _GOLDEN_EVERY - 1)
        value = function((sign * jnp.exp(x))[..., None])[1][..., 0]
        # Of a bracket that is too narrow the second difference is rounding.
        done = is_flat(triple)
        moved = triple.with_point(x, value)
        return steps + 1, jax.tree.map(lambda a, b: jnp.where(done, a, b), triple, moved)

    end = lax.while_loop(loose, narrow, (jnp.zeros((), int), start))[1]
    return Saddle(sign * jnp.exp(end.middle), end.at_middle, end.bend(), first)
