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


class _Lanes(NamedTuple):
    """Arrays (lanes, ...) of some lanes, each in its worse direction."""

    leaves: list[np.ndarray]  # of terms and values
    direction: np.ndarray
    before: LogBounds  # bounds before the engine that found the upper bound
    upper: np.ndarray

    def at(self, lanes: np.ndarray) -> _Lanes:
        """Some of the lanes."""
        return jax.tree.map(lambda x: x[lanes], self)


def answered(
    query: Query, steps: tuple[Step, ...], moving: tuple[bool, ...], lanes: tuple[Terms, Any]
) -> tuple[LogBounds, list[np.ndarray]]:
    """Bounds of lanes, and slopes (lanes, ...) of the upper ones in the leaves that move."""
    leaves, structure = jax.tree.flatten(lanes)
    moved = [x for x, moves in zip(leaves, moving, strict=True) if moves]
    has_many = sum(x[0].size for x in moved) > _FEW_COLUMNS
    batch = Batch(*directed(*lanes, query.both))
    size = batch.values.shape[0]
    engines: list[tuple[Engine, Any]] = []
    of_lane, before = np.full(size, -1), np.empty((2, size))

    def record(engine: Engine, at: np.ndarray, known: LogBounds, level: Any) -> None:
        is_used = np.ones(at.size, bool)
        if has_many and engine.tangents is None:
            is_used = of_lane[at] < 0
        of_lane[at[is_used]] = len(engines)
        before[:, at[is_used]] = np.stack(known)[:, is_used]
        engines.append((engine, level))

    found = in_turn(steps, query.width, query.directions, batch, record=record)
    upper = np.asarray(found.upper)
    direction = np.argmax(upper.reshape(query.directions, -1), axis=0)
    place = np.arange(direction.size) + direction.size * direction
    worst = _Lanes(leaves, direction, of_numpy(*before[:, place]), upper[place])
    slopes = [np.zeros(x.shape) for x in moved]
    for index, (engine, level) in enumerate(engines):
        at = np.flatnonzero(of_lane[place] == index)
        if at.size == 0:
            continue
        of = _Differences(engine, level, query.both, structure, moving)
        new = of.slopes(batch.at(place[at]), worst.at(at))
        for of_all, of_some in zip(slopes, new, strict=True):
            of_all[at] = of_some
    return worse(found, query.directions), slopes


class _Differences(NamedTuple):
    """Finite differences of one engine's upper bounds, in the leaves that move."""

    engine: Engine
    level: Any
    both: bool
    structure: Any
    moving: tuple[bool, ...]

    def slopes(self, batch: Batch, lanes: _Lanes) -> list[np.ndarray]:
        """Slopes of the lanes. `batch` has their terms and values."""
        tangents = self.engine.tangents
        if tangents is None:
            return self._slopes(lanes, None)
        with kernel():
            arrays = tangents.arrays(batch, lanes.before)
        found, line = in_pieces(lambda x: tangents.solve(x, self.level), arrays, tangents.most)
        slopes = self._slopes(lanes._replace(upper=np.asarray(found.upper)), line)
        jumps = [np.isnan(x.reshape(x.shape[0], -1)).any(axis=1) for x in slopes]
        at = np.flatnonzero(np.any(jumps, axis=0))
        if at.size > 0:
            for x, y in zip(slopes, self._slopes(lanes.at(at), None), strict=True):
                x[at] = y
        return slopes

    def _slopes(self, lanes: _Lanes, line: Any) -> list[np.ndarray]:
        """Differences along slopes in the engine's arrays, NaN where these jump, or of bounds."""
        size, terms = lanes.upper.size, self._tree(lanes.leaves)[0]
        releases = sum(term.count.shape[-1] for term in terms)
        most = max(_MOST_RELEASES // (_OFFSETS.size * size * releases), 1)
        columns = self._columns(lanes, line is not None)
        slopes = [np.zeros((size, x[0].size)) for x in lanes.leaves]
        for start in range(0, len(columns), most):
            part = columns[start : start + most]
            near = self._near(lanes, part, line).reshape(len(part), _OFFSETS.size, size)
            for (leaf, column, step), bounds in zip(part, near, strict=True):
                slopes[leaf][:, column] = _rise(bounds, lanes.upper, line is not None) / step
        shaped = zip(slopes, lanes.leaves, self.moving, strict=True)
        return [x.reshape(y.shape) for x, y, moves in shaped if moves]

    def _tree(self, leaves: list[np.ndarray]) -> tuple[Terms, Any]:
        """Terms and values."""
        return jax.tree.unflatten(self.structure, leaves)

    def _columns(self, lanes: _Lanes, is_by_line: bool) -> list[tuple[int, int, np.ndarray]]:
        """Each number of a lane that moves: its leaf, its column and the step of each lane."""
        terms = self._tree(lanes.leaves)[0]
        counts = set((np.cumsum([len(jax.tree.leaves(term)) for term in terms]) - 1).tolist())
        with kernel():
            are_lattices = all(isinstance(x.pair.singularities(), Lattice) for x in terms)
        smooth = _ARRAYS_STEP if is_by_line else self.engine.step
        share = _LATTICE_STEP if are_lattices else smooth
        columns = []
        for i, (leaf, moves) in enumerate(zip(lanes.leaves, self.moving, strict=True)):
            for j, x in enumerate(leaf.reshape(leaf.shape[0], -1).T if moves else ()):
                is_whole = i in counts and not is_by_line
                step = share * np.where(x == 0, 1.0, x)
                columns.append((i, j, np.full(x.shape, _COUNT_STEP) if is_whole else step))
        return columns

    def _near(self, lanes: _Lanes, columns: list[Any], line: Any) -> np.ndarray:
        """Upper bounds where one number after the other moves by all offsets."""
        size, times = lanes.upper.size, len(columns) * _OFFSETS.size
        again = np.tile(np.arange(size), times)
        leaves = [np.ascontiguousarray(x[again]) for x in lanes.leaves]  # moved in place
        for i, (leaf, column, step) in enumerate(columns):
            moved = leaves[leaf].reshape(len(columns), _OFFSETS.size, size, -1)
            moved[i, :, :, column] += _OFFSETS[:, None] * step
        lane = np.arange(again.size) + again.size * lanes.direction[again]
        both = directed(*self._tree(leaves), self.both)
        batch = Batch(*jax.tree.map(lambda x: x[lane], both))
        before = of_numpy(*(x[again] for x in lanes.before))
        tangents = self.engine.tangents
        if line is None or tangents is None:
            upper = np.full(again.size, np.nan)

            def solve(at: np.ndarray) -> list[Any]:
                some = of_numpy(*(x[at] for x in before))
                return [self.engine.solve(batch.at(at), some, self.level).upper]

            fill([upper], np.arange(again.size), solve)
            return upper
        with kernel(), moving_apart():
            arrays = tangents.arrays(batch, before)
            return np.asarray(tangents.moved(arrays, jax.tree.map(lambda x: x[again], line)))


def _rise(near: np.ndarray, upper: np.ndarray, is_by_line: bool) -> np.ndarray:
    """Rise of the upper bound a step."""
    far_below, below, above, far_above = near
    rise = _CENTRAL @ near
    bend = np.abs(below + above - 2.0 * upper)
    uneven = np.abs(far_above - far_below - 2.0 * (above - below))
    for x, weights in _ONE_SIDED:
        used = np.flatnonzero(weights)
        side = x * upper + weights[used] @ near[used]
        rise = np.where(np.isfinite(rise), rise, side)
    if is_by_line:
        least = _SMOOTH * np.abs(above - below) + _ROUNDING * (1.0 + np.abs(upper))
        rise = np.where((bend > least) | (uneven > least), np.nan, rise)
    return np.where(np.isfinite(upper), rise, 0.0)
