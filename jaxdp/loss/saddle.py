"""The tilt where a bound from a cumulant is least: the saddle of an integrand."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Index, Reals

# Tilts of a round; the next has as many within the two intervals around the least value.
_POINTS = 11
# Rounds at least, and where the values next to the least one are more than so much above it.
ROUNDS, _FLAT = 4, 0.02
# Of a wall: it rises by more than so much, and so much more than on the other side.
_STEEP, _UNEVEN = 1.0, 4.0


class Saddle(NamedTuple):
    """What was found: of shape (*lanes,)."""

    theta: Reals
    least: Reals
    bend: Reals  # the second derivative of the values in the coordinate
    tilts: Reals  # all that were looked at, (*lanes, tilts), and the first results there, or inf
    first: Reals


class _Triple(NamedTuple):
    """Coordinates left of, at and right of the least value, or next to an end; the values there."""

    low: Reals
    middle: Reals
    high: Reals
    at_low: Reals
    at_middle: Reals
    at_high: Reals

    def spread(self) -> Reals:
        return jnp.maximum(self.at_low, self.at_high) - self.at_middle

    def vertex(self) -> tuple[Reals, Reals, Reals]:
        """Of the parabola through all three: where, its value and its bend.

        Next to a wall, where it is none, of the one that the other side would have.
        """
        left, right = self.at_low - self.at_middle, self.at_high - self.at_middle
        gentle, steep = jnp.minimum(left, right), jnp.maximum(left, right)
        inside, even = gentle >= 0, steep <= jnp.maximum(_STEEP, _UNEVEN * gentle)
        slope = jnp.where(inside & even, 0.5 * (right - left), 0.0)
        bend = jnp.where(even, left + right, 2.0 * gentle)
        bend = jnp.where(inside & (bend > 0) & (bend < jnp.inf), bend, 1.0)
        # Of a least value at an end only the way there is known.
        end = jnp.where(left < right, -1.0, 1.0)
        least = self.at_middle + jnp.where(inside, -0.5 * slope * slope / bend, gentle)
        step = 0.5 * (self.high - self.low)
        where = self.middle + step * jnp.where(inside, -slope / bend, end)
        return where, least, bend / (step * step)


class _State(NamedTuple):
    rounds: Index
    triple: _Triple
    tilts: Reals
    first: Reals


def saddle_of(
    function: Callable[[Reals], tuple[Reals, Reals]],
    low: Reals,
    high: Reals,
    tilt_at: Callable[[Reals], Reals] = jnp.exp,
    most: int = ROUNDS,
) -> Saddle:
    """Where the second of function's results, unimodal in the tilt, is least.

    From `low` to `high`, of shape (*lanes,), in the coordinate whose tilt is `tilt_at`: every round
    narrows it to a fifth, the last ends at the vertex of a parabola.
    """

    def loose(state: _State) -> Bools:
        flat = jnp.all(state.triple.spread() < _FLAT)
        return (state.rounds < ROUNDS) | ((state.rounds < most) & ~flat)

    def narrow(state: _State) -> _State:
        sizes = jnp.linspace(state.triple.low, state.triple.high, _POINTS, axis=-1)
        tilts = tilt_at(sizes)
        first, values = function(tilts)
        values = jnp.where(jnp.isnan(values), jnp.inf, values)
        index = jnp.clip(jnp.argmin(values, axis=-1), 1, _POINTS - 2)[..., None]
        triple = _Triple(
            *(
                jnp.take_along_axis(x, index + offset, axis=-1)[..., 0]
                for x in (sizes, values)
                for offset in (-1, 0, 1)
            )
        )
        at = (*(0,) * low.ndim, state.rounds * _POINTS)
        return _State(
            state.rounds + 1,
            triple,
            lax.dynamic_update_slice(state.tilts, tilts, at),
            lax.dynamic_update_slice(state.first, first, at),
        )

    nothing = jnp.full((*low.shape, most * _POINTS), jnp.inf)
    tilts = jnp.broadcast_to(tilt_at(low[..., None]), nothing.shape)
    infinite = jnp.full_like(low, jnp.inf)
    start = _Triple(low, low, high, infinite, 0.0 * low, infinite)
    end = lax.while_loop(loose, narrow, _State(jnp.zeros((), int), start, tilts, nothing))
    where, least, bend = end.triple.vertex()
    return Saddle(tilt_at(where[..., None])[..., 0], least, bend, end.tilts, end.first)
