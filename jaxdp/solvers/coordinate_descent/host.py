"""Coordinate descent on known records by NumPy: rows dense or sparse, and nothing is compiled.

The sums are those of the programs of `run`, of the same whole numbers. A row is read in parts that
a cache holds. A row of a sparse design has the records whose feature is not zero: the derivatives
of the others are zero.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.precision import is_tracing
from jaxdp._core.types import Vector
from jaxdp.solvers.blocks import SparseDesign
from jaxdp.solvers.lattice import Added
from jaxdp.solvers.problems import Problem

# Units to a threshold. derived: sums of 64 such are exact in float32, of 2^23 in float64
GRID = {"float32": 2.0**17, "float64": 2.0**30}
# Records of a part of a row. chosen: a few arrays of them stay in a processor's cache
_PART = 2**14


def takes(*trees: Any) -> bool:
    """True if all is known, and on a processor: an accelerator is left its compiled programs."""
    return checks.all_concrete(*trees) and not is_tracing() and jax.default_backend() == "cpu"


class Records:
    """A problem's design and its state design^T theta + offset, which updates change."""

    def __init__(self, problem: Problem, theta: np.ndarray, precision: Any = None):
        self.problem, design = problem, problem.design
        self.design = design if isinstance(design, SparseDesign) else np.asarray(design)
        self.offset: Any = np.asarray(problem.offset).astype(precision or self.design.dtype)
        self.begin(theta)

    def begin(self, theta: np.ndarray) -> None:
        """The state of a theta."""
        self.state: Any = self.offset.copy()
        for coordinate in np.flatnonzero(theta).tolist():
            self.move(coordinate, theta[coordinate])

    def row(self, coordinate: int) -> tuple[Any, np.ndarray]:
        """Places of a coordinate's features, and these."""
        if isinstance(self.design, SparseDesign):
            return self.design.row(coordinate)
        return slice(None), self.design[coordinate]

    def move(self, coordinate: int, change: float) -> None:
        """Add a change of theta_j to the state."""
        places, features = self.row(coordinate)
        change = self.state.dtype.type(change)
        if isinstance(places, np.ndarray):
            self.state[places] += change * features
            return
        for start in range(0, len(features), _PART):
            part = slice(start, start + _PART)
            self.state[part] += change * features[part]

    def derivative(self, coordinate: int, grid: float | None, clip: float) -> float:
        """Sum of the partial derivatives; with a grid, clipped and in units of clip / grid."""
        places, features = self.row(coordinate)
        state: Any = self.state if isinstance(places, slice) else self.state[places]
        total = 0.0
        for start in range(0, len(features), _PART):
            part = slice(start, start + _PART)
            partials = features[part] * self.problem.slope(state[part])
            total += (
                float(np.sum(partials, dtype=np.float64))
                if grid is None
                else whole_sum(partials, grid, clip)
            )
        return total

    def whole_sums(self, grid: float, clip: np.ndarray) -> np.ndarray:
        """`derivative` of every coordinate, clipped, in float64 whatever the design's type is."""
        slope = self.problem.slope(self.state)
        if isinstance(self.design, SparseDesign):
            owners = np.repeat(np.arange(len(clip)), np.diff(self.design.starts))
            units = _whole(self.design.values * slope[self.design.places], grid, clip[owners])
            return np.bincount(owners, weights=units, minlength=len(clip))
        found = np.empty(len(clip))
        for j, features in enumerate(self.design):
            found[j] = whole_sum(features * slope, grid, clip[j])
        return found


def whole_sum(partials: np.ndarray, grid: float, clip: float) -> float:
    """Sum of derivatives clipped to +-clip, in units of clip / grid, whole ones. NOT PRIVATE."""
    return float(np.sum(_whole(partials, grid, clip), dtype=np.float64))


def _whole(partials: np.ndarray, grid: float, clip: Any) -> np.ndarray:
    """Derivatives in whole units; the array is used for them."""
    partials *= np.asarray(grid / clip, partials.dtype)
    # Not `clip`: NaN, as from an overflow, must not pass either.
    np.fmax(partials, -grid, out=partials)
    np.fmin(partials, grid, out=partials)
    return np.rint(partials, out=partials)


def descend(
    problem: Problem,
    plan: Any,
    row: Any,
    noise: Added,
    start: Vector,
    trace: bool,
) -> tuple[Any, Any]:
    """theta, and F after each pass if `trace`; row, noise: the updates of a `Plan`, unpadded."""
    theta: Any = np.array(start, dtype=np.float64)
    strength: Any = np.broadcast_to(problem.penalty.strength, theta.shape)
    clip: Any
    steps, clip = np.asarray(plan.steps), np.asarray(plan.clip)
    each = plan.sequence.shape[-1]
    known: Any = jax.tree.map(np.asarray, noise)
    with np.errstate(over="ignore", invalid="ignore"):
        records = Records(problem, theta)
        grid = None if plan.records is None else GRID[str(records.design.dtype)]
        count, total, objectives = len(records.offset), np.zeros_like(theta), []
        for place, j in enumerate(row.sequence.tolist()):
            step = row.pace[place] * steps[j]
            unit = 1.0 / count if grid is None else clip[j] / (count * grid)
            gradient = records.derivative(j, grid, clip[j]) * unit
            gradient = known.at(place).to(np.float64(gradient))
            value: Any = problem.penalty.proximal(strength[j], theta[j] - step * gradient, step)
            records.move(j, value - theta[j])
            theta[j] = value
            total += theta
            if (place + 1) % each:
                continue
            if plan.iterate == "average":
                theta, total = total / each, np.zeros_like(theta)
                records.begin(theta)
            if trace:
                objectives.append(float(problem.objective_at(records.state, theta)))
    return theta, np.array(objectives) if trace else None
