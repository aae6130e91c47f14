"""Calls side by side, on a CPU: XLA runs the loops of one call on one core; records they share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from jaxdp._core.devices import default_platform
from jaxdp._core.forks import shared_lock
from jaxdp._core.precision import opened

# What a user may have set for one thread alone.
_SETTINGS = (
    "jax_default_device",
    "jax_default_matmul_precision",
    "jax_numpy_rank_promotion",
    "jax_debug_nans",
    "jax_disable_jit",
)


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
    """function(*call) of every call, which must not call this again.

    One after the other where this thread has settings of its own, which the others would not see.
    """
    if len(calls) < 2 or not settings_are_shared():
        return [function(*call) for call in calls]

    def run(call: tuple[Any, ...]) -> Any:
        with opened():  # which a thread does not inherit
            return jax.block_until_ready(function(*call))

    return list(_pool().map(run, calls))


def settings_are_shared() -> bool:
    """True where another thread would compute as this one does."""
    return _settings() == _pool().submit(_settings).result()


def cores() -> int:
    """Number of CPU cores that this process may use; 1 on an accelerator."""
    if default_platform() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _settings() -> list[Any]:
    return [getattr(jax.config, name, None) for name in _SETTINGS]


if hasattr(os, "register_at_fork"):  # the threads of a pool are not copied
    os.register_at_fork(after_in_child=lambda: _pool.cache_clear())


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="jaxdp")
