"""One block of a sweep: the function called on it, and what fails set aside."""

from __future__ import annotations

import contextlib
import math
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import jax
import numpy as np

from jaxdp._core import threads
from jaxdp._core.precision import for_users
from jaxdp.sweep.grid import DONE, FAILED, STATUS, Grid

# Name of a result that is not a mapping.
ALONE = "value"
# Reported failures of a block, at most. chosen: the others are NaN
_MOST_REASONS = 100
# Points tried before a function is taken to fail everywhere. chosen: a moment of work
_MOST_TRIES = 64

Columns = dict[str, np.ndarray]
Reasons = list[tuple[int, str]]


def evaluate(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    size: int,
    device: Any,
    names: Callable[[], tuple[str, ...]],
) -> tuple[Columns, Reasons]:
    """function(**points) and the points' status as flat columns, with (place, reason) of failures.

    Points that fail are NaN. Smaller blocks are filled up to `size` with their last point, so that
    all blocks have one shape. `names` returns the names of the results and is called if a block
    fails.
    """
    count = len(next(iter(points.values())))
    status = np.repeat(np.int8(DONE), count)
    columns, reasons = _columns_or_error(function, points, count, size, device), []
    if isinstance(columns, Exception):
        result_names = names()
        columns, reasons = _halves(function, points, count, device)
        columns = columns or {name: np.full(count, np.nan) for name in result_names}
        status[[place for place, _ in reasons]] = FAILED
    return {**columns, STATUS: status}, reasons[:_MOST_REASONS]


def names_of(function: Callable[..., Any], grid: Grid, device: Any) -> tuple[str, ...]:
    """The results' names, from the first of some points all over the grid that does not fail.

    One point and not a block: a block would be worked out twice. The function's own error where
    all of these points fail.
    """
    first: Exception | None = None
    total = math.prod(grid.shape)
    for number in sorted({total * i // _MOST_TRIES for i in range(_MOST_TRIES)}):
        columns = _columns_or_error(function, grid.point(number), 1, 1, device)
        if not isinstance(columns, Exception):
            return tuple(columns)
        first = first or columns
    assert first is not None
    raise first


def reasons_as_text(grid: Grid, failures: Mapping[int, Reasons]) -> str:
    """The coordinates of every point that failed, and the reason; a line each."""
    lines = []
    for number in sorted(failures):
        points = grid.points(number) if failures[number] else {}
        for place, reason in failures[number]:
            coordinates = ", ".join(f"{name}={x[place]:g}" for name, x in points.items())
            lines.append(f"{coordinates}: {' '.join(reason.split())}")
    return "\n".join(lines)


class _ShapeError(ValueError):
    """The function's results do not fit its arguments, at any point."""


def _columns_or_error(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    count: int,
    size: int,
    device: Any,
) -> Columns | Exception:
    """The columns of `_columns`, or the exception of the function."""
    try:
        return _columns(function, points, count, size, device)
    except (MemoryError, _ShapeError):
        raise
    except Exception as error:  # of a user's function, which may raise any: told with its point
        return error


def _columns(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    count: int,
    size: int,
    device: Any,
) -> Columns:
    # Not through `jnp.asarray`, which compiles a program of its own in every process.
    with for_users():
        arrays = {
            name: jax.device_put(np.pad(x, (0, size - count), mode="edge"), device)
            for name, x in points.items()
        }
        result = function(**arrays)
    columns = dict(result) if isinstance(result, Mapping) else {ALONE: result}
    flat_columns: Columns = {}
    for name, column in columns.items():
        array = np.asarray(column)
        if name in points or name == STATUS:
            raise _ShapeError(
                f"function must not return a result named as an axis or {STATUS}, got {name}"
            )
        if array.shape != (size,):
            raise _ShapeError(
                f"function must return arrays of its arguments' shape {(size,)}, got "
                f"{array.shape} for {name}"
            )
        flat_columns[name] = array[:count].astype(np.float64)
    return flat_columns


def _halves(
    function: Callable[..., Any],
    points: Mapping[str, np.ndarray],
    count: int,
    device: Any,
) -> tuple[Columns | None, Reasons]:
    """Results of both halves on their own, down to single points; None if every point fails."""
    parts: list[tuple[Columns | None, int]] = []
    reasons: Reasons = []
    for start, end in ((0, count // 2), (count // 2, count)):
        half, size = {name: x[start:end] for name, x in points.items()}, end - start
        columns, failures = _columns_or_error(function, half, size, size, device), []
        if isinstance(columns, Exception) and size == 1:
            columns, failures = None, [(0, f"{type(columns).__name__}: {columns}")]
        elif isinstance(columns, Exception):
            columns, failures = _halves(function, half, size, device)
        parts.append((columns, size))
        reasons += [(start + place, reason) for place, reason in failures]
    names = next((tuple(columns) for columns, _ in parts if columns is not None), None)
    if names is None:
        return None, reasons
    joined = {
        name: np.concatenate(
            [np.full(size, np.nan) if part is None else part[name] for part, size in parts]
        )
        for name in names
    }
    return joined, reasons


Answer = TypeVar("Answer")
# Blocks a device that are begun or wait to be written. chosen: none waits for the disk
_AHEAD = 2


def side_by_side(
    call: Callable[[int, Any], Answer], numbers: Sequence[int], devices: Sequence[Any] | None
) -> Iterator[tuple[int, Answer]]:
    """(number, call(number, device)) as they are finished, each device at one call at a time.

    Arrays without a device are placed on the call's device too: compositions come from the host.
    All local devices if None. With one device, or if this thread has JAX settings that others would
    not see, one call follows the other.
    """
    chosen_devices = jax.local_devices() if devices is None else devices
    if len(chosen_devices) == 1 or not threads.settings_are_shared():
        device = None if devices is None else devices[0]
        for number in numbers:
            yield number, _on_device(device, call, number)
        return
    free_devices: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for device in chosen_devices:
        free_devices.put(device)

    def on_a_free_device(number: int) -> tuple[int, Answer]:
        device = free_devices.get()
        try:
            return number, _on_device(device, call, number)
        finally:
            free_devices.put(device)

    pending: set[Future[tuple[int, Answer]]] = set()
    with ThreadPoolExecutor(len(chosen_devices), thread_name_prefix="jaxdp_sweep") as pool:
        try:
            for number in numbers:
                pending.add(pool.submit(on_a_free_device, number))
                if len(pending) == _AHEAD * len(chosen_devices):
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        finally:
            for future in pending:
                future.cancel()


def _on_device(device: Any, call: Callable[[int, Any], Answer], number: int) -> Answer:
    """call(number, device), on the device; None: the default one, which is the user's choice."""
    context = contextlib.nullcontext() if device is None else jax.default_device(device)
    with context:
        return call(number, device)
