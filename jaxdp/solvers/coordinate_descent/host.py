"""Sums of derivatives of known records by NumPy: rows dense or sparse, and nothing is compiled.

They are those of the programs of `run`, of the same whole numbers. A row is read in parts that a
cache holds. A row of a sparse design has the records whose feature is not zero: the derivatives of
the others are zero.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.precision import is_tracing
from jaxdp.solvers.blocks import SparseDesign
from jaxdp.solvers.problems import Problem

# Units to a threshold. derived: sums of 64 such are exact in float32, of 2^23 in float64
GRID = {"float32": 2.0**17, "float64": 2.0**30}
# Records of a part of a row. chosen: a few arrays of them stay in a processor's cache
_PART = 2**14


def takes(*trees: Any) -> bool:
    """True if all is known, and on a processor: an accelerator is left its compiled programs."""
    return checks.all_concrete(*trees) and not is_tracing() and jax.default_backend() == "cpu"


class Records:
    """A problem's design, and thresholds of the derivatives: None for none."""

    def __init__(self, problem: Problem, clip: np.ndarray | None, precision: Any = None):
        self.problem, self.clip, design = problem, clip, problem.design
        self.design = design if isinstance(design, SparseDesign) else np.asarray(design)
        self.offset: Any = np.asarray(problem.offset).astype(precision or self.design.dtype)

    def state(self, theta: Any) -> Any:
        """design^T theta + offset, an array that `moved` changes."""
        state = self.offset.copy()
        for coordinate in np.flatnonzero(theta).tolist():
            self.moved(state, coordinate, theta[coordinate])
        return state

    def _row(self, coordinate: Any) -> tuple[Any, np.ndarray]:
        """Places of a coordinate's features, and these."""
        if isinstance(self.design, SparseDesign):
            return self.design.row(coordinate)
        return slice(None), self.design[coordinate]

    def moved(self, state: Any, coordinate: Any, change: float) -> Any:
        """The state after a change of theta_j, the same array."""
        places, features = self._row(coordinate)
        change = state.dtype.type(change)
        if isinstance(places, np.ndarray):
            state[places] += change * features
            return state
        for start in range(0, len(features), _PART):
            part = slice(start, start + _PART)
            state[part] += change * features[part]
        return state

    def mean_derivative(self, state: Any, coordinate: Any) -> Any:
        """The mean of the partial derivatives, clipped and in whole units if there is a clip."""
        places, features = self._row(coordinate)
        state = state if isinstance(places, slice) else state[places]
        grid, total = GRID[str(self.design.dtype)], 0.0
        for start in range(0, len(features), _PART):
            part = slice(start, start + _PART)
            partials = features[part] * self.problem.slope(state[part])
            if self.clip is not None:
                partials = _whole(partials, grid, self.clip[coordinate])
            total += float(np.sum(partials, dtype=np.float64))
        if self.clip is None:
            return np.float64(total * (1.0 / len(self.offset)))
        return total * (self.clip[coordinate] / (len(self.offset) * grid))

    def whole_sums(self, state: Any, grid: float) -> np.ndarray:
        """Sums of all coordinates' clipped derivatives in units of clip / grid, in float64."""
        slope, clip = self.problem.slope(state), np.asarray(self.clip)
        if isinstance(self.design, SparseDesign):
            owners = np.repeat(np.arange(len(clip)), np.diff(self.design.starts))
            units = _whole(self.design.values * slope[self.design.places], grid, clip[owners])
            return np.bincount(owners, weights=units, minlength=len(clip))
        rows = zip(self.design, clip, strict=True)
        return np.array([np.sum(_whole(row * slope, grid, c), dtype=np.float64) for row, c in rows])

    def objective(self, state: Any, theta: Any) -> Any:
        """F of the records. NOT PRIVATE."""
        return self.problem.objective_at(state, theta)


def _whole(partials: np.ndarray, grid: float, clip: Any) -> np.ndarray:
    """Derivatives in whole units; the array is used for them."""
    partials *= np.asarray(grid / clip, partials.dtype)
    # Not `clip`: NaN, as from an overflow, must not pass either.
    np.fmax(partials, -grid, out=partials)
    np.fmin(partials, grid, out=partials)
    return np.rint(partials, out=partials)
