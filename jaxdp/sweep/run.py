"""A function over a grid of named axes: `sweep`."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.progress import shown
from jaxdp._core.types import ArrayLike
from jaxdp.sweep.evaluate import Columns, Reasons, evaluate, names_of, reasons_as_text, side_by_side
from jaxdp.sweep.grid import NOT_DONE, STATUS, Grid, grid_of
from jaxdp.sweep.provenance import described, digest_of, provenance
from jaxdp.sweep.store import Store, read_axes


def sweep(
    function: Callable[..., Any],
    axes: Mapping[str, ArrayLike],
    to: str | os.PathLike[str] | None = None,
    *,
    chunk: int = 2**16,
    executor: Executor | None = None,
    stripe: tuple[int, int] = (0, 1),
    devices: Sequence[Any] | None = None,
    progress: bool = True,
) -> Any:
    """Evaluate a function at every point of a grid, in memory or streamed to disk.

    Args:
        function: called as function(name=array, ...) with flat arrays of equal shape, a block of
            points at a time; returns an array of that shape or a mapping of names to such arrays.
            It is called as it is: wrap it in `jax.jit` where that pays.
        axes: the values of every argument, finite numbers, by name.
        to: a Zarr store to stream to. The same call resumes after a kill and computes damaged
            blocks again; a folder with other content is refused. None: in memory.
        chunk: the most points of a block, which is a Zarr chunk of every variable.
        executor: runs the blocks in other processes, which write to `to` themselves; it must not
            fork. For a Dask client, pass `client.get_executor()`.
        stripe: (i, n) works off every nth block from i on, for n jobs on one store.
        devices: work off blocks side by side, one a device, so that `function` is called from
            several threads; all local ones if None. With an executor: the default of each process.
        progress: show a bar with the rate and the time left, without the first chunk, which
            compiles.

    Returns:
        An `xarray.Dataset` with the axes as coordinates, read lazily if it is on disk. "status" is
        1 for a finished point, 2 for a failed one, which is NaN, and 0 for one not done yet. A
        result that is not a mapping is called "value". Attributes: the function's name, what
        `functools.partial` binds to it, versions, commit, device, and in "failures" a line for each
        point where `function` raised.

    Bad arguments, and a store whose `sweep.json` is damaged, raise `ValueError`; a full disk raises
    `OSError` and keeps the finished blocks.

    >>> import jaxdp as dp
    >>> def log_delta(scale, epsilon):
    ...     return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)
    >>> found = dp.sweep(log_delta, {"scale": [1, 2], "epsilon": [0, 1, 2]}, progress=False)
    >>> found["value"].shape
    (2, 3)
    """
    grid = grid_of(axes, chunk)
    _check_shares(to, executor, stripe, devices)
    if to is None:
        return _in_memory(function, grid, devices, progress)
    store = Store(to, grid, digest_of(function, grid.digest()))
    numbers = _blocks_to_do(function, store, stripe, devices)
    if executor is None:
        finished = _in_this_process(function, store, numbers, devices)
    else:
        finished = by_executor(executor, function, store, numbers)
    for _ in shown(finished, "chunks", progress, len(numbers)):
        pass
    return _opened(store)


def _check_shares(
    to: str | os.PathLike[str] | None,
    executor: Executor | None,
    stripe: tuple[int, int],
    devices: Sequence[Any] | None,
) -> None:
    """Who works off what: each has something to do, and somewhere to write it."""
    if executor is not None and not isinstance(executor, Executor):
        has_one = callable(getattr(executor, "get_executor", None))
        kind = f"{type(executor).__name__}{': give executor.get_executor()' if has_one else ''}"
        raise ValueError(f"executor must be a concurrent.futures.Executor, got a {kind}")
    index, jobs = stripe
    if not 0 <= index < jobs:
        raise ValueError(f"stripe must be (i, n) with 0 <= i < n, got {stripe}")
    if devices is not None and not devices:
        raise ValueError("devices must name at least one device, got none")
    if to is None and (executor is not None or jobs > 1):
        raise ValueError("to must name a store where an executor or stripes write to it")


def _in_memory(
    function: Callable[..., Any], grid: Grid, devices: Sequence[Any] | None, progress: bool
) -> Any:
    values: Columns = {}
    failures: dict[int, Reasons] = {}

    def names() -> tuple[str, ...]:
        result_names = tuple(name for name in tuple(values) if name != STATUS)
        return result_names or names_of(function, grid, None if devices is None else devices[0])

    finished = _evaluated(function, grid, range(grid.blocks), devices, names)
    blocks = shown(finished, "chunks", progress, grid.blocks)
    for number, (columns, failures[number]) in blocks:
        slices = grid.slices(number)
        for name, column in columns.items():
            if name not in values:
                values[name] = np.full(
                    grid.shape, np.nan if name != STATUS else NOT_DONE, column.dtype
                )
            values[name][slices] = column.reshape(values[name][slices].shape)
    xarray = checks.extra("xarray", "sweep")
    labels = described(function, grid.names, values)
    variables = {name: (grid.names, value, labels[name]) for name, value in values.items()}
    coordinates = {
        name: (name, axis, labels[name]) for name, axis in zip(grid.names, grid.axes, strict=True)
    }
    attributes = provenance(function) | {"failures": reasons_as_text(grid, failures)}
    return xarray.Dataset(variables, coordinates, attributes)


def _blocks_to_do(
    function: Callable[..., Any],
    store: Store,
    stripe: tuple[int, int],
    devices: Sequence[Any] | None,
) -> list[int]:
    """The blocks to work off, in a store that is made if it is not there."""
    grid = store.grid
    if not store.begun():
        names = names_of(function, grid, None if devices is None else devices[0])
        store.create(described(function, grid.names, names), provenance(function))
    # A damaged block is anyone's: the sweep that is returned has it.
    return sorted(store.damaged() | (set(range(stripe[0], grid.blocks, stripe[1])) - store.done()))


def _in_this_process(
    function: Callable[..., Any],
    store: Store,
    numbers: Sequence[int],
    devices: Sequence[Any] | None,
) -> Iterator[int]:
    """The blocks in this process, written one after the other."""
    names = functools.cache(store.results)
    for number, (columns, reasons) in _evaluated(function, store.grid, numbers, devices, names):
        store.write(number, columns, reasons)
        yield number


def _evaluated(
    function: Callable[..., Any],
    grid: Grid,
    numbers: Sequence[int],
    devices: Sequence[Any] | None,
    names: Callable[[], tuple[str, ...]],
) -> Iterator[tuple[int, tuple[Columns, Reasons]]]:
    """Blocks with their columns and failures, side by side where there are devices."""

    def call(number: int, device: Any) -> tuple[Columns, Reasons]:
        return evaluate(function, grid.points(number), grid.block_size, device, names)

    return side_by_side(call, numbers, devices)


def _opened(store: Store) -> Any:
    """The store as a lazily read dataset."""
    failures = store.finish()
    xarray = checks.extra("xarray", "sweep")
    dataset = xarray.open_zarr(str(store.path), consolidated=False, chunks=None)
    return dataset.assign_attrs(failures=failures)


# Settings of JAX that every worker takes from the caller: platform, compilation cache.
_SETTINGS = (
    "jax_platforms",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
    "jax_persistent_cache_enable_xla_caches",
)


def by_executor(
    executor: Executor, function: Callable[..., Any], store: Store, numbers: Sequence[int]
) -> Iterator[int]:
    """The blocks as they are finished; `RuntimeError` where the executor breaks."""
    _refuse_forks(executor)
    code = checks.extra("cloudpickle", "sweep").dumps(function)
    place = str(store.path.resolve()), store.grid.names, store.grid.block, store.fingerprint
    settings = tuple((name, getattr(jax.config, name)) for name in _SETTINGS)
    tasks: list[Future[int]] = []
    try:
        tasks += [executor.submit(work, code, *place, number, settings) for number in numbers]
        for task in as_completed(tasks):
            yield task.result()
    except Exception as error:  # Dask's own is known by its name alone
        if not _lost_worker(error):
            raise
        n_done = len(store.done())
        raise RuntimeError(
            f"a worker was lost: {n_done} of {store.grid.blocks} chunks done; "
            "run the same call again"
        ) from error
    finally:
        for task in tasks:
            task.cancel()


def work(
    code: bytes,
    to: str,
    names: tuple[str, ...],
    block: tuple[int, ...],
    digest: str,
    number: int,
    settings: tuple[tuple[str, Any], ...],
) -> int:
    """Evaluate and write one block; function and axes are read once a process."""
    _set_up(settings)
    store, function = _store_at(to, names, block, digest), _unpacked(code)
    points = store.grid.points(number)
    store.write(number, *evaluate(function, points, store.grid.block_size, None, store.results))
    return number


@functools.cache
def _set_up(settings: tuple[tuple[str, Any], ...]) -> None:
    """Set JAX as it was where the sweep was called."""
    for name, value in settings:
        if getattr(jax.config, name) != value:
            jax.config.update(name, value)


@functools.lru_cache(maxsize=4)
def _store_at(to: str, names: tuple[str, ...], block: tuple[int, ...], digest: str) -> Store:
    """The store, its axes read from it: they may be long, and do not travel with every task."""
    return Store(to, Grid(names, read_axes(to, names), block), digest)


def _lost_worker(error: Exception) -> bool:
    """A broken pool; Dask's error for it is known by name, as Dask need not be installed."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"


@functools.lru_cache(maxsize=4)
def _unpacked(code: bytes) -> Callable[..., Any]:
    return pickle.loads(code)


def _refuse_forks(executor: Executor) -> None:
    """`ValueError` for a pool that forks: JAX has threads, which a fork leaves behind."""
    if isinstance(executor, ProcessPoolExecutor):
        context = getattr(executor, "_mp_context", None) or multiprocessing.get_context()
        if context.get_start_method() == "fork":
            raise ValueError(
                "executor must not fork, as JAX is running: give ProcessPoolExecutor "
                'mp_context=multiprocessing.get_context("spawn")'
            )
