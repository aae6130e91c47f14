"""Slopes of the upper bounds of lanes in the lanes' own numbers, computed by NumPy.

Each slope is a difference of the engine that gave the lane's bound, in the worse direction: an
exact bound has only that slope. An engine with `Tangents`, such as a contour, is not evaluated
again: the slopes of its sum in its arrays are multiplied by differences of these arrays. Of every
other engine the difference is one of its upper bounds.

Error: h^4 of the fourth-order differences, and rounding over h. Second derivatives raise an error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.namespace import kernel
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.runner import fill, in_pieces, in_turn
from jaxdp.accountant.steps import Engine, LogBounds, Query, Step, directed, of_numpy, worse
from jaxdp.dominating_pair.public_coin import moving_apart
from jaxdp.noise.structure import Lattice

# Steps of a difference, over the number that moves.
_ARRAYS_STEP = 1e-4  # of an engine's arrays. chosen: h^4 and 1e-15 / h are below 1e-11
_LATTICE_STEP = 1e-5  # of lattices, whose delta has kinks. chosen: few kinks are so near
_COUNT_STEP = 1.0  # of numbers of releases on a grid, absolute. derived: masses compose whole times

_OFFSETS = np.array([-2.0, -1.0, 1.0, 2.0])
_CENTRAL = np.array([1.0, -8.0, 8.0, -1.0]) / 12.0
# Weights of the bound itself and of two bounds on one side, where the other side is out of range.
_ONE_SIDED = (1.5, np.array([0.5, -2.0, 0.0, 0.0])), (-1.5, np.array([0.0, 0.0, 2.0, -0.5]))
# Largest second difference, over the first, of arrays that move smoothly. derived: h times the
# curvature is 1e-2 for arrays of large curvature, and 1 where entries change their places
_SMOOTH = 0.1
# Second difference of a bound that is rounding alone, over the bound. chosen
_ROUNDING = 1e-10
# Numbers that move up to which bounds are differences. Of more, the slopes are those of the last
# engine with `Tangents` that lowered the bound. chosen: four answers for each number
_FEW_COLUMNS = 16
_MOST_RELEASES = 2**14  # of one call. chosen: their arrays take some 100 MB


class _Source(NamedTuple):
    """An engine that gave the upper bounds of some lanes."""

    engine: Engine
    lanes: np.ndarray
    before: LogBounds
    level: Any


class _Sources:
    """The engines that gave the upper bounds of lanes."""

    def __init__(self, size: int, columns: int) -> None:
        self.all: list[_Source] = []
        self.of_lane = np.full(size, -1)
        self._has_many = columns > _FEW_COLUMNS

    def __call__(self, engine: Engine, lanes: np.ndarray, before: LogBounds, level: Any) -> None:
        if self._has_many and engine.tangents is None:
            is_first = self.of_lane[lanes] < 0
            lanes, before = lanes[is_first], of_numpy(*(x[is_first] for x in before))
        self.of_lane[lanes] = len(self.all)
        self.all.append(_Source(engine, lanes, before, level))


class _Moved(NamedTuple):
    """Lanes, and which of their leaves have slopes."""

    leaves: list[np.ndarray]
    structure: Any
    moving: tuple[bool, ...]

    def at(self, lanes: np.ndarray) -> _Moved:
        """Some of the lanes."""
        return self._replace(leaves=[x[lanes] for x in self.leaves])

    @property
    def tree(self) -> tuple[Terms, Any]:
        """Terms and values."""
        return jax.tree.unflatten(self.structure, self.leaves)

    def zeros(self) -> list[np.ndarray]:
        """Slopes 0 in the leaves that move."""
        return [np.zeros(x.shape) for x, m in zip(self.leaves, self.moving, strict=True) if m]


def answered(
    query: Query, steps: tuple[Step, ...], moving: tuple[bool, ...], lanes: tuple[Terms, Any]
) -> tuple[LogBounds, list[np.ndarray]]:
    """Bounds of lanes, and slopes (lanes, ...) of the upper ones in the leaves that move."""
    leaves, structure = jax.tree.flatten(lanes)
    moved = _Moved(leaves, structure, moving)
    batch = Batch(*directed(*lanes, query.both))
    columns = sum(x[0].size for x, moves in zip(leaves, moving, strict=True) if moves)
    sources = _Sources(batch.values.shape[0], columns)
    found = in_turn(steps, query.width, query.directions, batch, record=sources)
    upper = np.asarray(found.upper).reshape(query.directions, -1)
    direction = np.argmax(upper, axis=0)
    place = np.arange(direction.size) + direction.size * direction
    slopes = moved.zeros()
    for index, source in enumerate(sources.all):
        at = np.flatnonzero(sources.of_lane[place] == index)
        if at.size == 0:
            continue
        picked = np.searchsorted(source.lanes, place[at])
        of = _Differences(
            source._replace(before=of_numpy(*(x[picked] for x in source.before))),
            np.asarray(found.upper)[place[at]],
            direction[at],
            query.both,
        )
        new = of.slopes(batch.at(place[at]), moved.at(at))
        for of_all, of_some in zip(slopes, new, strict=True):
            of_all[at] = of_some
    return worse(found, query.directions), slopes


class _Differences(NamedTuple):
    """Differences of the upper bounds that one source gave, for some of its lanes."""

    source: _Source
    upper: np.ndarray
    direction: np.ndarray
    both: bool

    def slopes(self, batch: Batch, moved: _Moved) -> list[np.ndarray]:
        """Slopes in the leaves that move."""
        tangents, level = self.source.engine.tangents, self.source.level
        if tangents is None:
            return self._slopes(moved, None)
        with kernel():
            arrays = tangents.arrays(batch, self.source.before)
        found, line = in_pieces(lambda x: tangents.solve(x, level), arrays, tangents.most)
        slopes = self._replace(upper=np.asarray(found.upper))._slopes(moved, line)
        jumps = np.zeros(self.upper.size, bool)
        for x in slopes:
            jumps |= np.isnan(x.reshape(jumps.size, -1)).any(axis=1)
        if jumps.any():
            at = np.flatnonzero(jumps)
            rest = self._at(at)._slopes(moved.at(at), None)
            for x, y in zip(slopes, rest, strict=True):
                x[at] = y
        return slopes

    def _at(self, lanes: np.ndarray) -> _Differences:
        """Some of the lanes."""
        before = of_numpy(*(x[lanes] for x in self.source.before))
        source = self.source._replace(before=before)
        return _Differences(source, self.upper[lanes], self.direction[lanes], self.both)

    def _slopes(self, moved: _Moved, line: Any) -> list[np.ndarray]:
        """Differences along slopes in the engine's arrays, NaN where these jump, or of bounds."""
        size, terms = self.upper.size, moved.tree[0]
        releases = sum(term.count.shape[-1] for term in terms)
        most = max(_MOST_RELEASES // (_OFFSETS.size * size * releases), 1)
        columns = self._columns(moved, line is not None)
        slopes = [np.zeros((size, x[0].size)) for x in moved.leaves]
        for start in range(0, len(columns), most):
            part = columns[start : start + most]
            near = self._near(moved, part, line).reshape(len(part), _OFFSETS.size, size)
            for (leaf, column, step), bounds in zip(part, near, strict=True):
                slopes[leaf][:, column] = self._rise(bounds, line is not None) / step
        shaped = zip(slopes, moved.leaves, moved.moving, strict=True)
        return [x.reshape(y.shape) for x, y, moves in shaped if moves]

    def _columns(self, moved: _Moved, is_by_line: bool) -> list[tuple[int, int, np.ndarray]]:
        """Each number of a lane that moves: its leaf, its column and the step of each lane."""
        terms = moved.tree[0]
        counts = set((np.cumsum([len(jax.tree.leaves(term)) for term in terms]) - 1).tolist())
        with kernel():
            are_lattices = all(isinstance(x.pair.singularities(), Lattice) for x in terms)
        smooth = _ARRAYS_STEP if is_by_line else self.source.engine.step
        share = _LATTICE_STEP if are_lattices else smooth
        columns = []
        for i, (leaf, moves) in enumerate(zip(moved.leaves, moved.moving, strict=True)):
            for j, x in enumerate(leaf.reshape(leaf.shape[0], -1).T if moves else ()):
                is_whole = i in counts and not is_by_line
                step = share * np.where(x == 0, 1.0, x)
                columns.append((i, j, np.full(x.shape, _COUNT_STEP) if is_whole else step))
        return columns

    def _near(self, moved: _Moved, columns: list[Any], line: Any) -> np.ndarray:
        """Upper bounds where one number after the other moves by all offsets."""
        points = []
        for leaf, column, step in columns:
            for offset in _OFFSETS:
                other = moved.leaves[leaf].reshape(step.size, -1).copy()
                other[:, column] += offset * step
                filled = [*moved.leaves[:leaf], other, *moved.leaves[leaf + 1 :]]
                shaped = zip(filled, moved.leaves, strict=True)
                points.append([x.reshape(y.shape) for x, y in shaped])
        leaves = [np.concatenate(x) for x in zip(*points, strict=True)]
        terms, values = directed(*moved._replace(leaves=leaves).tree, self.both)
        times, size = len(points), leaves[-1].shape[0]
        lane = np.arange(size) + size * np.tile(self.direction, times)
        batch = Batch(*jax.tree.map(lambda x: x[lane], (terms, values)))
        again = np.tile(np.arange(self.upper.size), times)
        before = of_numpy(*(x[again] for x in self.source.before))
        tangents = self.source.engine.tangents
        if line is None or tangents is None:
            upper, level = np.full(again.size, np.nan), self.source.level

            def solve(at: np.ndarray) -> list[Any]:
                some = of_numpy(*(x[at] for x in before))
                return [self.source.engine.solve(batch.at(at), some, level).upper]

            fill([upper], np.arange(again.size), solve)
            return upper
        with kernel(), moving_apart():
            arrays = tangents.arrays(batch, before)
            return np.asarray(tangents.moved(arrays, jax.tree.map(lambda x: x[again], line)))

    def _rise(self, near: np.ndarray, is_by_line: bool) -> np.ndarray:
        """Rise of the upper bound a step."""
        far_below, below, above, far_above = near
        rise = _CENTRAL @ near
        bend = np.abs(below + above - 2.0 * self.upper)
        uneven = np.abs(far_above - far_below - 2.0 * (above - below))
        for x, weights in _ONE_SIDED:
            used = np.flatnonzero(weights)
            side = x * self.upper + weights[used] @ near[used]
            rise = np.where(np.isfinite(rise), rise, side)
        if is_by_line:
            least = _SMOOTH * np.abs(above - below) + _ROUNDING * (1.0 + np.abs(self.upper))
            rise = np.where((bend > least) | (uneven > least), np.nan, rise)
        return np.where(np.isfinite(self.upper), rise, 0.0)
