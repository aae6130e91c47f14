"""Blocks of a sweep in another process: it writes them itself, and only says which."""

import functools
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from typing import Any

import jax

from jaxdp import _check
from jaxdp.sweep.evaluate import evaluate
from jaxdp.sweep.grid import Grid
from jaxdp.sweep.store import Store


def by_executor(
    executor: Executor, function: Callable[..., Any], store: Store, numbers: Sequence[int]
) -> Iterator[int]:
    """The blocks as they are finished; `RuntimeError` where the executor breaks."""
    _refuse_forks(executor)
    code = _check.extra("cloudpickle", "sweep").dumps(function)
    place = str(store.path), store.grid, store.digest
    tasks: list[Future[int]] = []
    try:
        tasks += [executor.submit(work, code, *place, number) for number in numbers]
        for task in as_completed(tasks):
            yield task.result()
    except BrokenExecutor as error:
        done = len(store.done())
        raise RuntimeError(
            f"a worker was lost: {done} of {store.grid.blocks} chunks done; run the same call again"
        ) from error
    finally:
        for task in tasks:
            task.cancel()


def work(code: bytes, to: str, grid: Grid, digest: str, number: int) -> int:
    """Evaluate and write one block; the function's bytes are unpacked once a process."""
    jax.config.update("jax_enable_x64", True)
    store, function = Store(to, grid, digest), _unpacked(code)
    points = grid.points(number)
    store.write(number, *evaluate(function, points, grid.block_size, None, store.variables()))
    return number


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
