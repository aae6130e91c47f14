"""A function over a grid of named axes, in memory or streamed to a Zarr store that resumes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import itertools
import math
import multiprocessing
import os
import pickle
import queue
import re
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp import __version__
from jaxdp._core import checks
from jaxdp._core.precision import for_users
from jaxdp._core.progress import shown
from jaxdp._core.types import ArrayLike

STATUS = "status"  # variable with the state of every point
NOT_DONE, DONE, FAILED = 0, 1, 2  # its values, as stored
_ALONE = "value"  # name of a result that is not a mapping
_MOST_TRIES = 64  # points tried for the results' names. chosen: a moment of work
_MOST_REASONS = 100  # failures whose reason is stored. chosen: the others are NaN
_AHEAD = 64  # blocks that are begun or wait to be written. chosen: 32 MB a variable
_VERSIONS = __version__, jax.__version__, np.__version__  # which decide about the last digits
# Units of known quantities, for the labels of plots. Plain numbers have none.
_UNITS = {"epsilon": "nats", "log_delta": "nats"}
_UNITS |= dict.fromkeys(("scale", "sensitivity"), "units of the query")

Columns = dict[str, np.ndarray]
Block = tuple[Columns, list[str]]  # results and status of a block, and a line for each failure


def sweep(
    function: Callable[..., Any],
    axes: Mapping[str, ArrayLike],
    to: str | os.PathLike[str] | None = None,
    *,
    chunk: int = 2**16,
    executor: Executor | None = None,
    progress: bool = True,
) -> Any:
    """Evaluate a function at every point of a grid, in memory or streamed to disk.

    Args:
        function: called as function(name=array, ...) with flat arrays of equal shape, a block of
            points at a time; returns an array of that shape or a mapping of names to such arrays.
            With several local devices, it is called from a thread for each, where contexts of the
            caller, such as `jax.debug_nans`, do not apply.
        axes: the values of every argument, finite numbers, by name.
        to: a folder to stream to, a Zarr store. The same call resumes after a kill and computes
            damaged or missing chunks again. None: in memory.
        chunk: the most points of a block, which is a Zarr chunk of every variable.
        executor: evaluates the blocks in other processes; it must not fork. For a Dask client,
            pass `client.get_executor()`.
        progress: show a bar with the rate and the time left.

    Returns:
        An `xarray.Dataset` with the axes as coordinates, read lazily if it is on disk. "status" is
        1 for a finished point and 2 for a failed one, which is NaN. A result that is not a mapping
        is called "value". Attributes: the function's name, numbers and texts that
        `functools.partial` binds to it, and in "failures" a line for each of the first 100 points
        where `function` raised.

    Bad arguments raise `ValueError`, and so does a folder of another function or of other axes. A
    function is known by its source text, what it is bound to, and the numbers, texts and functions
    of its own module that it names. What it uses of other modules does not count.

    >>> import jaxdp as dp
    >>> def log_delta(scale, epsilon):
    ...     return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)
    >>> found = dp.sweep(log_delta, {"scale": [1, 2], "epsilon": [0, 1, 2]}, progress=False)
    >>> found["value"].shape
    (2, 3)
    """
    xarray = checks.extra("xarray", "sweep")
    _check_executor(executor)
    grid = _grid(axes, chunk)
    arrays, attributes = _prepared(function, grid, to)
    todo = [place for place in np.ndindex(*grid.counts) if not _is_intact(arrays, grid, place)]
    names = tuple(name for name in arrays if name != STATUS)
    blocks = _blocks(function, grid, todo, names, executor)
    for place, (columns, reasons) in shown(blocks, "chunks", progress, len(todo)):
        _write(arrays, attributes, grid.part(place), columns, reasons)
    if to is not None:
        return xarray.open_zarr(to, consolidated=False, chunks=None)
    dimensions = tuple(grid.values)
    variables = {name: (dimensions, x, _labels(name)) for name, x in arrays.items()}
    coordinates = {name: (name, x, _labels(name)) for name, x in grid.values.items()}
    return xarray.Dataset(variables, coordinates, attributes)


def _prepared(
    function: Callable[..., Any], grid: _Grid, to: str | os.PathLike[str] | None
) -> tuple[dict[str, Any], Any]:
    """The arrays of results and of the status, and the attributes: in memory, or in the store."""
    if to is None:
        names = _names(function, grid)
        arrays: dict[str, Any] = {name: np.full(grid.shape, np.nan) for name in names}
        arrays[STATUS] = np.full(grid.shape, NOT_DONE, np.int8)
        return arrays, _attributes(function)
    path, fingerprint = Path(to), _fingerprint(function, grid)
    if not path.exists():
        _create(path, grid, _names(function, grid), fingerprint, _attributes(function))
    return _opened(path, grid, fingerprint)


def _write(
    arrays: Mapping[str, Any],
    attributes: Any,
    part: tuple[slice, ...],
    columns: Columns,
    reasons: list[str],
) -> None:
    """The results of a block; the status last, as it says that the block is done."""
    if reasons:
        known = attributes["failures"].splitlines()
        lines = [line for line in reasons if line not in known]
        attributes["failures"] = "\n".join((known + lines)[:_MOST_REASONS])
    for name in sorted(arrays, key=STATUS.__eq__):
        arrays[name][part] = columns[name].reshape([s.stop - s.start for s in part])


class _Grid(NamedTuple):
    """The product of named axes in blocks of equal shape, the last ones along an axis cut off."""

    values: dict[str, np.ndarray]
    block: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along every axis."""
        return tuple(map(len, self.values.values()))

    @property
    def counts(self) -> tuple[int, ...]:
        """Blocks along every axis."""
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block, strict=True))

    def part(self, place: tuple[int, ...]) -> tuple[slice, ...]:
        """Slices of a block, one an axis."""
        sides = zip(place, self.block, self.shape, strict=True)
        return tuple(slice(i * b, min(i * b + b, n)) for i, b, n in sides)

    def axes_of(self, part: tuple[slice, ...]) -> dict[str, np.ndarray]:
        """The axes of a part of the grid."""
        return {name: x[s] for (name, x), s in zip(self.values.items(), part, strict=True)}


def _grid(axes: Mapping[str, ArrayLike], chunk: int) -> _Grid:
    """The grid, in blocks of at most `chunk` points: whole last axes, as many as fit."""
    if not axes:
        raise ValueError("axes must name at least one axis, got none")
    if chunk < 1:
        raise ValueError(f"chunk must be a number of points from 1 on, got {chunk}")
    values, block = {}, []
    for name, axis in axes.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name == STATUS:
            raise ValueError(f"axes must be named as arguments, and not {STATUS}, got {name!r}")
        values[name] = array = np.asarray(axis, np.float64)
        if array.ndim != 1 or array.size == 0:
            raise ValueError(f"axis {name} must be one-dimensional and not empty: {array.shape}")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"axis {name} must be finite, got {array[~np.isfinite(array)][0]}")
    for array in reversed(values.values()):
        block.append(min(len(array), max(chunk, 1)))
        chunk //= len(array)
    return _Grid(values, tuple(reversed(block)))


class _ShapeError(ValueError):
    """The function's results do not fit its arguments, at any point."""


def _columns(function: Callable[..., Any], points: Columns, size: int, device: Any) -> Columns:
    """The results as flat columns. Points are filled up to `size`, so that one program serves."""
    count = len(next(iter(points.values())))
    # Not through `jnp.asarray`, which compiles a program of its own in every process.
    with for_users():
        arrays = {
            name: jax.device_put(np.pad(x, (0, size - count), mode="edge"), device)
            for name, x in points.items()
        }
        result = function(**arrays)
    columns = dict(result) if isinstance(result, Mapping) else {_ALONE: result}
    for name, column in columns.items():
        if name in points or name == STATUS:
            raise _ShapeError(
                f"function must not return a result named as an axis or {STATUS}, got {name}"
            )
        if np.shape(column) != (size,):
            raise _ShapeError(
                f"function must return arrays of its arguments' shape {(size,)}, got "
                f"{np.shape(column)} for {name}"
            )
    return {name: np.asarray(column)[:count].astype(np.float64) for name, column in columns.items()}


def _evaluated(
    function: Callable[..., Any], points: Columns, size: int, names: tuple[str, ...], device: Any
) -> Block:
    """Columns with the status, and a line for each point that failed.

    A block that fails is evaluated in halves, down to its points.
    """
    count = len(next(iter(points.values())))
    try:
        columns = _columns(function, points, size, device)
        return {**columns, STATUS: np.full(count, DONE, np.int8)}, []
    except (MemoryError, _ShapeError):
        raise
    except Exception as error:  # of a user's function, which may raise any
        if count == 1:
            place = ", ".join(f"{name}={x[0]:g}" for name, x in points.items())
            reason = f"{place}: {type(error).__name__}: {' '.join(str(error).split())}"
            failed = {name: np.full(1, np.nan) for name in names}
            return {**failed, STATUS: np.full(1, FAILED, np.int8)}, [reason]
    halves = []
    for half in (slice(0, count // 2), slice(count // 2, count)):
        part = {name: x[half] for name, x in points.items()}
        halves.append(_evaluated(function, part, half.stop - half.start, names, device))
    (first, reasons), (second, more) = halves
    joined = {name: np.concatenate([first[name], second[name]]) for name in first}
    return joined, (reasons + more)[:_MOST_REASONS]


def _names(function: Callable[..., Any], grid: _Grid) -> tuple[str, ...]:
    """The results' names, from the first of some points that does not fail."""
    first: Exception | None = None
    total = math.prod(grid.shape)
    for number in sorted({total * i // _MOST_TRIES for i in range(_MOST_TRIES)}):
        place = np.unravel_index(number, grid.shape)
        try:
            point = grid.axes_of(tuple(slice(int(i), int(i) + 1) for i in place))
            return tuple(_columns(function, point, 1, None))
        except (MemoryError, _ShapeError):
            raise
        except Exception as error:  # of a user's function, which may raise any
            first = first or error
    assert first is not None
    raise first


def _work(
    function: Callable[..., Any] | bytes,
    axes: Columns,
    size: int,
    names: tuple[str, ...],
    devices: queue.SimpleQueue[Any] | None = None,
) -> Block:
    """One block, on a device that is free if there are several."""
    call = _unpacked(function) if isinstance(function, bytes) else function
    spread = np.meshgrid(*axes.values(), indexing="ij")
    points = {name: x.ravel() for name, x in zip(axes, spread, strict=True)}
    if devices is None:
        return _evaluated(call, points, size, names, None)
    device = devices.get()
    try:
        # Arrays without a device are placed on it too: compositions come from the host.
        with jax.default_device(device):
            return _evaluated(call, points, size, names, device)
    finally:
        devices.put(device)


@functools.lru_cache(maxsize=4)
def _unpacked(code: bytes) -> Callable[..., Any]:
    return pickle.loads(code)


def _blocks(
    function: Callable[..., Any],
    grid: _Grid,
    todo: Sequence[tuple[int, ...]],
    names: tuple[str, ...],
    executor: Executor | None,
) -> Iterator[tuple[tuple[int, ...], Block]]:
    """The blocks as they are finished: by the executor, one a device, or one after the other."""
    size, code, devices = math.prod(grid.block), function, None
    places = ((place, grid.axes_of(grid.part(place))) for place in todo)
    with contextlib.ExitStack() as stack:
        if executor is not None:
            code = checks.extra("cloudpickle", "sweep").dumps(function)
        elif len(jax.local_devices()) > 1:
            devices = queue.SimpleQueue()
            for device in jax.local_devices():
                devices.put(device)
            executor = stack.enter_context(ThreadPoolExecutor(devices.qsize()))
        if executor is None:
            yield from ((place, _work(function, axes, size, names)) for place, axes in places)
            return
        more = () if devices is None else (devices,)
        pending: dict[Future[Block], tuple[int, ...]] = {}
        try:
            while True:
                for place, axes in itertools.islice(places, _AHEAD - len(pending)):
                    pending[executor.submit(_work, code, axes, size, names, *more)] = place
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield pending.pop(future), future.result()
        finally:
            for future in pending:
                future.cancel()


def _check_executor(executor: Executor | None) -> None:
    """`ValueError` for another kind, and for a pool that forks: JAX's threads do not survive it."""
    if executor is not None and not isinstance(executor, Executor):
        raise ValueError(
            "executor must be a concurrent.futures.Executor (of a Dask client: "
            f"client.get_executor()), got a {type(executor).__name__}"
        )
    if isinstance(executor, ProcessPoolExecutor):
        context = getattr(executor, "_mp_context", None) or multiprocessing.get_context()
        if context.get_start_method() == "fork":
            raise ValueError(
                "executor must not fork, as JAX is running: give ProcessPoolExecutor "
                'mp_context=multiprocessing.get_context("spawn")'
            )


def _create(
    path: Path, grid: _Grid, names: tuple[str, ...], fingerprint: str, attributes: dict[str, Any]
) -> None:
    """A Zarr group with arrays that have no chunk yet, made beside its place and moved there."""
    zarr = checks.extra("zarr", "sweep")
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    attributes = {**attributes, "fingerprint": fingerprint}
    group = zarr.create_group(store=str(beside), attributes=attributes)
    for name in (*grid.values, *names, STATUS):
        axis = grid.values.get(name)
        dtype = np.dtype("i1" if name == STATUS else "f8")
        group.create_array(
            name,
            shape=grid.shape if axis is None else axis.shape,
            chunks=grid.block if axis is None else axis.shape,
            dimension_names=tuple(grid.values) if axis is None else (name,),
            attributes=_labels(name),
            dtype=dtype,
            fill_value=NOT_DONE if name == STATUS else np.nan,
            # In full, as the same chunks are written by later versions of Zarr.
            chunk_key_encoding={"name": "default", "separator": "/"},
            # Smaller than zstd and faster for numbers that differ in their last bytes.
            compressors=(
                zarr.codecs.BloscCodec(
                    cname="lz4", clevel=5, shuffle="shuffle", typesize=dtype.itemsize
                ),
                zarr.codecs.Crc32cCodec(),
            ),
            # A chunk that is not there was not computed.
            config={"write_empty_chunks": True},
        )
    beside.replace(path)


def _opened(path: Path, grid: _Grid, fingerprint: str) -> tuple[dict[str, Any], Any]:
    """Arrays and attributes of this sweep's store; `ValueError` for anything else."""
    zarr = checks.extra("zarr", "sweep")
    try:
        group = zarr.open_group(str(path), mode="r+", use_consolidated=False)
        names = {file.parent.name for file in path.glob("*/zarr.json")}
        arrays = {name: group[name] for name in sorted(names)}
        found = group.attrs.get("fingerprint")
    except Exception as error:  # Zarr raises errors of many kinds for damaged metadata
        raise ValueError(
            f"to must be a new folder or this sweep's; damaged, or no sweep's, is {path}: {error}"
        ) from error
    if found != fingerprint:
        raise ValueError(f"to must be a new folder or this sweep's; another sweep's is {path}")
    for name, axis in grid.values.items():
        arrays.pop(name)[:] = axis
    return arrays, group.attrs


def _is_intact(arrays: Mapping[str, Any], grid: _Grid, place: tuple[int, ...]) -> bool:
    """True if every chunk of a block is there, its checksum is right, and its points are done."""
    part = grid.part(place)
    if isinstance(arrays[STATUS], np.ndarray):
        return False
    try:
        files = [
            Path(array.store.root) / array.path / "c" / "/".join(map(str, place))
            for array in arrays.values()
        ]
        read = {name: array[part] for name, array in arrays.items()}
    except Exception:  # Zarr's codecs raise errors of many kinds for a damaged chunk
        return False
    return all(file.exists() for file in files) and bool(np.all(read[STATUS] != NOT_DONE))


def _labels(name: str) -> dict[str, Any]:
    """Long name and unit of an axis or a result, for the labels of plots."""
    if name == STATUS:
        flags = [NOT_DONE, DONE, FAILED]
        return {"flag_values": flags, "flag_meanings": "not_done done failed"}
    units = {"units": _UNITS[name]} if name in _UNITS else {}
    return {"long_name": name.replace("_", " "), **units}


def _attributes(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's name, and the numbers and texts that `functools.partial` binds to it."""
    bound: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        bound = function.keywords | bound
        function = function.func
    plain = {name: value for name, value in bound.items() if isinstance(value, int | float | str)}
    name = getattr(function, "__qualname__", type(function).__name__)
    return {**plain, "function": name, "precision": "float64", "failures": ""}


def _fingerprint(function: Callable[..., Any], grid: _Grid) -> str:
    """A digest of the function's code and what it is bound to, the grid and the versions."""
    digest = hashlib.sha256(repr((_VERSIONS, grid.block)).encode())
    for name, axis in grid.values.items():
        digest.update(repr((name, axis.shape)).encode() + axis.tobytes())
    for part in _parts(function, set()):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any, visited: set[int]) -> Iterator[bytes]:
    """Source, closure and globals of functions, whatever wraps them; other values as bytes."""
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, functools.partial):
        inner = [value.func, *value.args, *sorted(value.keywords.items())]
    elif isinstance(value, types.MethodType):
        inner = [value.__func__, value.__self__]
    elif isinstance(value, types.FunctionType):
        if id(value) in visited:  # a function may call itself
            return
        visited.add(id(value))
        try:
            source = inspect.getsource(value)
        except OSError as error:
            raise ValueError(
                f"function must be in a file or a notebook where to is given: {value.__qualname__} "
                "has no source text"
            ) from error
        yield source.encode()
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        used = [value.__globals__.get(name) for name in sorted(set(re.findall(r"\w+", source)))]
        own = [x for x in used if getattr(x, "__module__", None) == value.__module__]
        plain = [x for x in used if isinstance(x, bool | int | float | str)]
        inner = [value.__defaults__, value.__kwdefaults__, *cells, *filter(callable, own), *plain]
    elif isinstance(value, type):
        inner = [value.__qualname__]
    elif isinstance(value, tuple):
        inner = [len(value), *value]
    else:
        try:
            yield pickle.dumps(value)
        except Exception as error:  # of the value's own methods
            kind = type(value).__name__
            raise ValueError(f"function must use what can be pickled, got a {kind}") from error
        return
    for part in inner:
        yield from _parts(part, visited)
