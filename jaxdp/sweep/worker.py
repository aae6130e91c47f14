"""Blocks of a sweep in another process: it writes them itself, and only says which."""

from __future__ import annotations

import functools
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from typing import Any

import jax

from jaxdp._core import checks
from jaxdp.sweep.evaluate import evaluate
from jaxdp.sweep.grid import Grid
from jaxdp.sweep.store import Store, read_axes

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
    """Set JAX as it was where the sweep was called; double precision in any case."""
    for name, value in (("jax_enable_x64", True), *settings):
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
