"""Records that threads share, calls side by side, and processes that are forked.

A fork copies the one thread that calls it. A lock that another thread holds would stay held in the
child, and a file lock would be shared with it, so a fork waits until no other thread holds one of
this package. JAX's own threads are not copied, so a program of JAX would never return in the child.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jaxdp._core.precision import default_platform, opened

# Seconds that a fork waits for one lock while it holds others. chosen: far above a charge
_PATIENCE = 1.0

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_held: list[Any] = []
_forking = threading.RLock()  # two threads that fork at once do so one after the other


class Locked:
    """Base of records that threads share.

    A method holds `self._lock` while it reads the state, decides and changes it. The lock is not a
    part of the state: copies and pickles have their own.
    """

    def __init__(self) -> None:
        self._lock = shared_lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = shared_lock()


def in_threads(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """function(*call) of every call of NumPy, which must not call this again."""
    if len(calls) < 2:
        return [function(*call) for call in calls]

    def run(call: tuple[Any, ...]) -> Any:
        with opened():  # which a thread does not inherit
            return function(*call)

    return list(_pool().map(run, calls))


def cores() -> int:
    """Number of CPU cores that this process may use; 1 on an accelerator."""
    if default_platform() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="jaxdp")


class _Process:
    """Whether the threads of JAX run in this process."""

    had_threads = False  # before the fork
    lacks_threads = False  # as they were not copied


def shared_lock() -> Any:
    """A reentrant lock that is free in every process that is forked."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def require_threads_of_jax() -> None:
    """`RuntimeError` in a process that was forked after JAX had run, where JAX does not return."""
    if _Process.lacks_threads:
        raise RuntimeError(
            "JAX cannot run in a process that was forked after it had run: start the process by "
            'multiprocessing.get_context("spawn"), or fork before the first use of JAX'
        )


def _has_threads() -> bool:
    """True if JAX has started its threads, by their names; without these, if jaxdp is in use."""
    try:
        names = (path.read_text() for path in Path("/proc/self/task").glob("*/comm"))
        return any("XLA" in name for name in names)
    except OSError:
        return True


def _before() -> None:
    _forking.acquire()
    _Process.had_threads = _has_threads()
    while True:
        for lock in list(_locks):
            if not lock.acquire(timeout=_PATIENCE):
                break
            _held.append(lock)
        else:
            return
        _release()  # so that threads that wait for each other go on


def _release() -> None:
    while _held:
        _held.pop().release()


def _after() -> None:
    _release()
    _forking.release()


def _in_child() -> None:
    _Process.lacks_threads = _Process.had_threads or _Process.lacks_threads
    _pool.cache_clear()  # its threads are not copied
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
