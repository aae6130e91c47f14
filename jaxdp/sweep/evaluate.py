"""One block of a sweep: the function called on it, and what fails set aside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdp.sweep.grid import Grid

# What a function may return when it does not return a mapping.
_ALONE = "value"
# Failures of a block that are told. chosen: the rest is as many NaN
_MOST_REASONS = 100
# Points tried before a function is taken to fail everywhere. chosen: a moment of work
_MOST_TRIES = 64

Columns = dict[str, np.ndarray]
Reasons = list[tuple[int, str]]


def evaluate(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    size: int,
    devices: Sequence[Any] | None,
    names: Callable[[], tuple[str, ...]],
) -> tuple[Columns, Reasons]:
    """function(**points) as flat columns; points that fail are NaN, with (place, reason).

    Blocks that are cut off are filled up to `size` with their last point, so that all of them are
    one shape. `names` are the results', asked for where a block fails.
    """
    count = len(next(iter(points.values())))
    try:
        return _called(function, points, count, size, devices), []
    except Exception as error:
        if isinstance(error, MemoryError | _ShapeError):
            raise
        known = names()
        alone = (devices or jax.local_devices())[:1]
        found, reasons = _halves(function, points, count, alone)
        found = found or {name: np.full(count, np.nan) for name in known}
        return found, reasons[:_MOST_REASONS]


def names_of(
    function: Callable[..., Any], grid: Grid, devices: Sequence[Any] | None
) -> tuple[str, ...]:
    """The results' names, from the first of some points all over the grid that does not fail.

    One point and not a block: a block would be worked out twice. The function's own error where
    all of these points fail.
    """
    alone = (devices or jax.local_devices())[:1]
    first: Exception | None = None
    total = math.prod(grid.shape)
    for number in sorted({total * i // _MOST_TRIES for i in range(_MOST_TRIES)}):
        try:
            return tuple(_called(function, grid.point(number), 1, 1, alone))
        except Exception as error:
            if isinstance(error, MemoryError | _ShapeError):
                raise
            first = first or error
    assert first is not None
    raise first


class _ShapeError(ValueError):
    """The function's results do not fit its arguments, at any point."""


def _called(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    count: int,
    size: int,
    devices: Sequence[Any] | None,
) -> Columns:
    place: Any = None if devices is None else devices[0]
    devices = jax.local_devices() if devices is None else devices
    size = -(-size // len(devices)) * len(devices)
    if len(devices) > 1:
        mesh = Mesh(np.asarray(devices), ("points",))
        place = NamedSharding(mesh, PartitionSpec("points"))
    # Not through `jnp.asarray`, which compiles a program of its own in every process.
    arrays = {
        name: jax.device_put(np.pad(x, (0, size - count), mode="edge"), place)
        for name, x in points.items()
    }
    result = function(**arrays)
    columns = dict(result) if isinstance(result, Mapping) else {_ALONE: result}
    found: Columns = {}
    for name, column in columns.items():
        array = np.asarray(column)
        if name in points:
            raise _ShapeError(f"function must not return what is named as an axis is, got {name}")
        if array.shape != (size,):
            raise _ShapeError(
                f"function must return arrays of its arguments' shape {(size,)}, got "
                f"{array.shape} for {name}"
            )
        found[name] = array[:count].astype(np.float64)
    return found


def _halves(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    count: int,
    alone: Sequence[Any],
) -> tuple[Columns | None, Reasons]:
    """Both halves on their own, down to single points; None where every point fails."""
    parts: list[tuple[Columns | None, int]] = []
    reasons: Reasons = []
    for start, end in ((0, count // 2), (count // 2, count)):
        some = {name: x[start:end] for name, x in points.items()}
        try:
            found = _called(function, some, end - start, end - start, alone)
            told: Reasons = []
        except Exception as error:
            if isinstance(error, MemoryError | _ShapeError):
                raise
            if end - start == 1:
                found, told = None, [(0, f"{type(error).__name__}: {error}")]
            else:
                found, told = _halves(function, some, end - start, alone)
        parts.append((found, end - start))
        reasons += [(start + at, reason) for at, reason in told]
    known = next((found for found, _ in parts if found is not None), None)
    if known is None:
        return None, reasons
    columns = {
        name: np.concatenate(
            [np.full(n, np.nan) if found is None else found[name] for found, n in parts]
        )
        for name in known
    }
    return columns, reasons
