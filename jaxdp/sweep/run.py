"""A function over a grid of named axes: `sweep`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.progress import shown
from jaxdp._core.types import ArrayLike
from jaxdp.sweep.evaluate import Columns, Reasons, evaluate, names_of, reasons_as_text, side_by_side
from jaxdp.sweep.grid import NOT_DONE, STATUS, Grid, grid_of
from jaxdp.sweep.provenance import described, digest_of, provenance
from jaxdp.sweep.store import Store
from jaxdp.sweep.worker import by_executor


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
