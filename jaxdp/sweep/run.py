"""A function over a grid of named axes: `sweep`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike
from jaxdp.sweep.evaluate import Columns, Reasons, evaluate, names_of
from jaxdp.sweep.grid import Grid, grid_of
from jaxdp.sweep.identity import digest_of, labels, provenance
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
        to: a Zarr store to stream to. The same call resumes after a kill; a folder that holds
            something else is refused. None: in memory.
        chunk: the most points of a block, which is a Zarr chunk of every variable.
        executor: runs the blocks in other processes, which write to `to` themselves; one that
            forks is refused.
        stripe: (i, n) works off every nth block from i on, for n jobs on one store.
        devices: share every block; all local ones if None, as always with an executor.
        progress: show a bar with the rate and the time left.

    Returns:
        An `xarray.Dataset` with the axes as coordinates, read when it is asked for if it is on
        disk. Its attributes say how it was made, and "failures" at which points `function` raised
        and why: these are NaN, as is what other stripes have not done yet.

    Bad arguments raise `ValueError`; a full disk raises `OSError` and keeps what is done.

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
    if not store.begun():
        store.create(names_of(function, grid, devices), provenance(function))
    known = store.done()
    numbers = [n for n in range(stripe[0], grid.blocks, stripe[1]) if n not in known]
    if executor is None:
        finished = _here(function, grid, store, numbers, devices)
    else:
        finished = by_executor(executor, function, store, numbers)
    for _ in _shown(finished, len(numbers), progress):
        pass
    return _opened(store)


def _check_shares(
    to: str | os.PathLike[str] | None,
    executor: Executor | None,
    stripe: tuple[int, int],
    devices: Sequence[Any] | None,
) -> None:
    """Who works off what: each has something to do, and somewhere to write it."""
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
        return tuple(values) or names_of(function, grid, devices)

    for number in _shown(range(grid.blocks), grid.blocks, progress):
        columns, failures[number] = evaluate(
            function, grid.points(number), grid.block_size, devices, names
        )
        at = grid.slices(number)
        for name, column in columns.items():
            if name not in values:
                values[name] = np.full(grid.shape, np.nan)
            values[name][at] = column.reshape(values[name][at].shape)
    xarray = checks.extra("xarray", "sweep")
    variables = {name: (grid.names, value, labels(name)) for name, value in values.items()}
    coordinates = {
        name: (name, axis, labels(name)) for name, axis in zip(grid.names, grid.axes, strict=True)
    }
    attributes = {**provenance(function), "failures": _told(grid, failures)}
    return xarray.Dataset(variables, coordinates, attributes)


def _here(
    function: Callable[..., Any],
    grid: Grid,
    store: Store,
    numbers: Sequence[int],
    devices: Sequence[Any] | None,
) -> Iterator[int]:
    """The blocks one after the other, in this process."""
    names = functools.cache(store.variables)
    for number in numbers:
        points = grid.points(number)
        store.write(number, *evaluate(function, points, grid.block_size, devices, names))
        yield number


def _shown(blocks: Iterable[int], count: int, progress: bool) -> Iterable[int]:
    if not progress:
        return blocks
    return checks.extra("tqdm", "sweep").tqdm(blocks, total=count, unit="chunk")


def _opened(store: Store) -> Any:
    """The store as a dataset that reads what is asked for."""
    xarray = checks.extra("xarray", "sweep")
    found = xarray.open_zarr(str(store.path), consolidated=False, chunks=None)
    return found.assign_attrs(failures=_told(store.grid, store.reasons()))


def _told(grid: Grid, failures: Mapping[int, Reasons]) -> list[str]:
    """Every point that failed, by its coordinates, and why."""
    found = []
    for number in sorted(failures):
        points = grid.points(number) if failures[number] else {}
        for place, reason in failures[number]:
            at = ", ".join(f"{name}={x[place]:g}" for name, x in points.items())
            found.append(f"{at}: {reason}")
    return found
