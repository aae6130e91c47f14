"""The least value of a unimodal function on a bracket, elementwise, on finer and finer grids."""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.search import Function, Pair


class Zoom(NamedTuple):
    """State of a search for the least value of a unimodal function on ever finer grids."""

    low: Reals
    high: Reals
    best: Reals  # the argument with the least value so far
    least: Reals

    def grid(self, points: int) -> Reals:
        """The arguments of the next round, along a new first axis."""
        shares = xp.linspace(0.0, 1.0, points).reshape((points,) + (1,) * xp.ndim(self.low))
        return self.low[None] + shares * (self.high - self.low)[None]

    def moved(self, x: Reals, values: Reals) -> Zoom:
        """The state between the neighbours of the best of the arguments x."""
        index = xp.argmin(values, axis=0)[None]
        near = (xp.clip(index + i, 0, x.shape[0] - 1) for i in (-1, 1, 0))
        below, above, found = (xp.take_along_axis(x, i, 0)[0] for i in near)
        value = xp.take_along_axis(values, index, 0)[0]
        best = xp.where(value < self.least, found, self.best)
        return Zoom(below, above, best, xp.minimum(value, self.least))


def started_zoom(low: Reals, high: Reals) -> Zoom:
    """The search over [low, high] before its first round."""
    return Zoom(low, high, low, xp.full_like(low, xp.inf))


def zoom(function: Function, low: Reals, high: Reals, points: int, rounds: int) -> Pair:
    """(argument, value) of the least of a unimodal function over [low, high], elementwise.

    Each round evaluates a grid of `points` along a new first axis. The next grid lies between the
    neighbours of the best point.
    """

    def closer(_: Index | int, state: Zoom) -> Zoom:
        x = state.grid(points)
        return state.moved(x, function(x))

    return lax.fori_loop(0, rounds, closer, started_zoom(low, high))[2:]
