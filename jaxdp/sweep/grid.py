"""The points of a sweep: named axes, cut into blocks that are worked off one at a time."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jaxdp._core.types import ArrayLike

# Variable with the state of every point, and its values. chosen: as stored
STATUS = "status"
NOT_DONE = 0
DONE = 1
FAILED = 2


@dataclass(frozen=True)
class Grid:
    """The product of named axes in blocks of equal shape, the last ones along an axis cut off."""

    names: tuple[str, ...]
    axes: tuple[np.ndarray, ...]
    block: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along every axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def counts(self) -> tuple[int, ...]:
        """Blocks along every axis."""
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block, strict=True))

    @property
    def blocks(self) -> int:
        """Blocks in all."""
        return math.prod(self.counts)

    @property
    def block_size(self) -> int:
        """Points of a whole block."""
        return math.prod(self.block)

    def slices(self, number: int) -> tuple[slice, ...]:
        """Slices of a block, one an axis; blocks are numbered with the last axis fastest."""
        starts = [
            int(i) * b
            for i, b in zip(np.unravel_index(number, self.counts), self.block, strict=True)
        ]
        ends = (
            min(start + b, n) for start, b, n in zip(starts, self.block, self.shape, strict=True)
        )
        return tuple(slice(*ends) for ends in zip(starts, ends, strict=True))

    def points(self, number: int) -> dict[str, np.ndarray]:
        """The coordinates of a block's points, one flat array an axis."""
        parts = [axis[part] for axis, part in zip(self.axes, self.slices(number), strict=True)]
        spread = np.meshgrid(*parts, indexing="ij")
        return {name: x.ravel() for name, x in zip(self.names, spread, strict=True)}

    def point(self, number: int) -> dict[str, np.ndarray]:
        """The coordinates of one point of the grid, the last axis fastest."""
        places = np.unravel_index(number, self.shape)
        return {
            name: axis[i : i + 1]
            for name, axis, i in zip(self.names, self.axes, places, strict=True)
        }

    def digest(self) -> str:
        """A fingerprint of names, values and blocks."""
        fingerprint = hashlib.sha256(repr((self.names, self.block)).encode())
        for axis in self.axes:
            fingerprint.update(repr(axis.shape).encode() + axis.tobytes())
        return fingerprint.hexdigest()


def grid_of(axes: Mapping[str, ArrayLike], chunk: int) -> Grid:
    """The grid, in blocks of at most `chunk` points: whole last axes, as many as fit."""
    if not axes:
        raise ValueError("axes must name at least one axis, got none")
    if chunk < 1:
        raise ValueError(f"chunk must be a number of points from 1 on, got {chunk}")
    values = []
    for name, axis in axes.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"axes must be named as arguments are, got {name!r}")
        if name == STATUS:
            raise ValueError(
                f"axes must not be named {STATUS}: a sweep has a variable of that name"
            )
        array = np.asarray(axis, dtype=np.float64)
        if array.ndim != 1 or array.size == 0:
            raise ValueError(f"axis {name} must be one-dimensional and not empty: {array.shape}")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"axis {name} must be finite, got {array[~np.isfinite(array)][0]}")
        values.append(array)
    points_left, block = chunk, []
    for array in reversed(values):
        block.append(min(len(array), max(points_left, 1)))
        points_left //= len(array)
    return Grid(tuple(axes), tuple(values), tuple(reversed(block)))
