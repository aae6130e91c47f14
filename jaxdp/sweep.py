"""A function over a grid of named axes, in memory or streamed to a Zarr store that resumes."""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import inspect
import itertools
import math
import os
import pickle
import re
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
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

Columns = dict[str, np.ndarray]
Part = tuple[slice, ...]  # of the grid: a block of it
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
            damaged chunks again. None: in memory.
        chunk: the most points of a block, which is a Zarr chunk of every variable.
        executor: evaluates the blocks in other processes; it must not fork. For a Dask client,
            pass `client.get_executor()`.
        progress: show a bar with the rate and the time left.

    Returns:
        An `xarray.Dataset` with the axes as coordinates, read lazily if it is on disk. "status" is
        1 for a finished point and 2 for a failed one, which is NaN. A result that is not a mapping
        is called "value". Attributes: the function's name, and in "failures" a line for each of the
        first 100 points where `function` raised.

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
    store, group, arrays = _opened(function, grid, to)
    names = tuple(name for name in arrays if name != STATUS)
    todo = [part for part in grid.parts() if not _is_done(arrays, part)]
    blocks = _blocks(function, grid, todo, names, executor)
    for part, (columns, reasons) in shown(blocks, "chunks", progress, len(todo)):
        if reasons:
            known = group.attrs["failures"].splitlines()
            lines = [line for line in reasons if line not in known]
            group.attrs["failures"] = "\n".join((known + lines)[:_MOST_REASONS])
        # The status last, as it says that the block is done.
        for name in (*names, STATUS):
            arrays[name][part] = columns[name].reshape([s.stop - s.start for s in part])
    found = xarray.open_zarr(store, consolidated=False, chunks=None)
    return found if to is not None else found.load()


def _is_done(arrays: Mapping[str, Any], part: Part) -> bool:
    """True if the chunks of a block agree with their checksums, and its points are done."""
    try:
        read = {name: array[part] for name, array in arrays.items()}
    except Exception:  # Zarr's codecs raise errors of many kinds for a damaged chunk
        return False
    return bool(np.all(read[STATUS] != NOT_DONE))


class _Grid(NamedTuple):
    """The product of named axes in blocks of equal shape, the last ones along an axis cut off."""

    values: dict[str, np.ndarray]
    block: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along every axis."""
        return tuple(map(len, self.values.values()))

    def parts(self) -> Iterator[Part]:
        """Slices of every block, one an axis."""
        sides = zip(self.shape, self.block, strict=True)
        return itertools.product(
            *([slice(i, min(i + b, n)) for i in range(0, n, b)] for n, b in sides)
        )

    def points(self, part: Part) -> Columns:
        """The points of a part of the grid, one array an axis."""
        axes = [x[s] for x, s in zip(self.values.values(), part, strict=True)]
        spread = np.meshgrid(*axes, indexing="ij")
        return {name: x.ravel() for name, x in zip(self.values, spread, strict=True)}


def _grid(axes: Mapping[str, ArrayLike], chunk: int) -> _Grid:
    """The grid, in blocks of at most `chunk` points: whole last axes, as many as fit."""
    if not axes:
        raise ValueError("axes must name at least one axis, got none")
    if chunk < 1:
        raise ValueError(f"chunk must be a number of points from 1 on, got {chunk}")
    values, block = {}, []
    for name, axis in axes.items():
        if not name.isidentifier() or name == STATUS:
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
    # Arrays without a device are placed on it too: compositions come from the host. Not through
    # `jnp.asarray`, which compiles a program of its own in every process.
    with for_users(), jax.default_device(device) if device else contextlib.nullcontext():
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
    errors = []
    total = math.prod(grid.shape)
    for number in sorted({total * i // _MOST_TRIES for i in range(_MOST_TRIES)}):
        place = np.unravel_index(number, grid.shape)
        point = grid.points(tuple(slice(int(i), int(i) + 1) for i in place))
        try:
            return tuple(_columns(function, point, 1, None))
        except (MemoryError, _ShapeError):
            raise
        except Exception as error:  # of a user's function, which may raise any
            errors.append(error)
    raise errors[0]


def _blocks(
    function: Callable[..., Any],
    grid: _Grid,
    todo: list[Part],
    names: tuple[str, ...],
    executor: Executor | None,
) -> Iterator[tuple[Part, Block]]:
    """The blocks in order, from the executor, from one thread per device, or one by one."""
    size, devices = math.prod(grid.block), jax.local_devices()
    places: list[Any] = [None]
    with contextlib.ExitStack() as stack:
        if executor is not None:
            code = checks.extra("cloudpickle", "sweep").dumps(function)
            function = functools.partial(_unpacked_call, code)
        elif len(devices) > 1:
            places = devices
            executor = stack.enter_context(ThreadPoolExecutor(len(devices)))
        else:
            for part in todo:
                yield part, _evaluated(function, grid.points(part), size, names, None)
            return
        pending: collections.deque[tuple[Part, Future[Block]]] = collections.deque()
        stack.callback(lambda: [future.cancel() for _, future in pending])
        for part, device in zip(todo, itertools.cycle(places), strict=False):
            if len(pending) == _AHEAD:
                first, future = pending.popleft()
                yield first, future.result()
            arguments = function, grid.points(part), size, names, device
            pending.append((part, executor.submit(_evaluated, *arguments)))
        while pending:
            first, future = pending.popleft()
            yield first, future.result()


@functools.lru_cache(maxsize=4)
def _unpacked(code: bytes) -> Callable[..., Any]:
    return pickle.loads(code)


def _unpacked_call(code: bytes, **points: Any) -> Any:
    """The function of `code`, as cloudpickle wrote it, in another process."""
    return _unpacked(code)(**points)


def _check_executor(executor: Executor | None) -> None:
    """`ValueError` for another kind, and for a pool that forks: JAX's threads do not survive it."""
    if executor is not None and not isinstance(executor, Executor):
        raise ValueError(
            "executor must be a concurrent.futures.Executor (of a Dask client: "
            f"client.get_executor()), got a {type(executor).__name__}"
        )
    context: Any = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "executor must not fork, as JAX is running: give ProcessPoolExecutor "
            'mp_context=multiprocessing.get_context("spawn")'
        )


def _opened(
    function: Callable[..., Any], grid: _Grid, to: str | os.PathLike[str] | None
) -> tuple[Any, Any, dict[str, Any]]:
    """The store, its Zarr group, made if there is none, and the arrays of results and status.

    `ValueError` for another sweep's folder.
    """
    zarr = checks.extra("zarr", "sweep")
    if to is None:
        path: Any = zarr.storage.MemoryStore()
        fingerprint = None
        _create(path, function, grid, {})
    else:
        path, fingerprint = Path(to), _fingerprint(function, grid)
        if not path.exists():
            beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            _create(str(beside), function, grid, {"fingerprint": fingerprint})
            beside.replace(path)
    try:
        group = zarr.open_group(path, mode="r+", use_consolidated=False)
        if group.attrs.get("fingerprint") != fingerprint:
            raise ValueError("it is another sweep's")
        arrays = {name: group[name] for name in sorted(group.array_keys())}
        for name, axis in grid.values.items():
            arrays.pop(name)[:] = axis
    except Exception as error:  # Zarr raises errors of many kinds for damaged metadata
        raise ValueError(
            f"to must be a new folder or this sweep's, and {path} is not: {error}"
        ) from error
    return path, group, arrays


def _create(
    store: Any, function: Callable[..., Any], grid: _Grid, attributes: dict[str, Any]
) -> None:
    """A Zarr group with the axes, and with arrays of results that have no chunk yet."""
    zarr, names = checks.extra("zarr", "sweep"), _names(function, grid)
    inner = function.func if isinstance(function, functools.partial) else function
    own_name = getattr(inner, "__qualname__", type(inner).__name__)
    attributes = {**attributes, "function": own_name, "precision": "float64", "failures": ""}
    group = zarr.create_group(store=store, attributes=attributes)
    for name in (*grid.values, *names, STATUS):
        axis = grid.values.get(name)
        group.create_array(
            name,
            shape=grid.shape if axis is None else axis.shape,
            chunks=grid.block if axis is None else axis.shape,
            dimension_names=tuple(grid.values) if axis is None else (name,),
            dtype=np.dtype("i1" if name == STATUS else "f8"),
            fill_value=NOT_DONE if name == STATUS else np.nan,
            # Smaller than zstd and faster for numbers that differ in their last bytes.
            compressors=(zarr.codecs.BloscCodec(cname="lz4"), zarr.codecs.Crc32cCodec()),
        )


def _fingerprint(function: Callable[..., Any], grid: _Grid) -> str:
    """A digest of the function's code and what it is bound to, the grid and the versions."""
    digest = hashlib.sha256(repr((_VERSIONS, grid.block)).encode())
    for name, axis in grid.values.items():
        digest.update(repr((name, axis.shape)).encode() + axis.tobytes())
    try:
        for part in _parts(function, set()):
            digest.update(part)
    except Exception as error:  # of a value's own methods, or where there is no source text
        raise ValueError(
            "function must be in a file or a notebook, and use what can be pickled, where to is "
            f"given: {error}"
        ) from error
    return digest.hexdigest()


def _parts(value: Any, visited: set[int]) -> Iterator[bytes]:
    """Source, closure and globals of functions, whatever wraps them; other values as bytes."""
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, functools.partial):
        names = sorted(value.keywords)
        inner = [value.func, *value.args, *names, *(value.keywords[name] for name in names)]
    elif isinstance(value, types.MethodType):
        inner = [value.__func__, value.__self__]
    elif isinstance(value, types.FunctionType):
        if id(value) in visited:  # a function may call itself
            return
        visited.add(id(value))
        source = inspect.getsource(value)
        yield source.encode()
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        used = [value.__globals__.get(name) for name in sorted(set(re.findall(r"\w+", source)))]
        own = [x for x in used if getattr(x, "__module__", None) == value.__module__]
        plain = [x for x in used if isinstance(x, bool | int | float | str)]
        inner = [value.__defaults__, value.__kwdefaults__, *cells, *filter(callable, own), *plain]
    else:
        yield pickle.dumps(value)
        return
    for part in inner:
        yield from _parts(part, visited)
