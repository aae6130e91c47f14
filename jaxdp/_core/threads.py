"""The lock of records that threads share, and processes that are forked.

A fork copies the one thread that calls it. A lock that another thread holds would stay held in the
child, and a file lock would be shared with it, so a fork waits until no other thread holds the lock
of this package. JAX's own threads are not copied, so a program of JAX would never return in the
child.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any


class Locked:
    """Base of records that threads share.

    A method holds `self._lock` while it reads the state, decides and changes it. Copies and pickles
    have the state between two changes.
    """

    # One for all records: what holds it waits for no other lock of this package.
    _lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return dict(self.__dict__)


# The threads of JAX: whether they ran before a fork, and whether a fork has lost them.
_of_jax = {"ran": False, "lost": False}


def require_threads_of_jax() -> None:
    """`RuntimeError` in a process that was forked after JAX had run, where JAX does not return."""
    if _of_jax["lost"]:
        raise RuntimeError(
            "JAX cannot run in a process that was forked after it had run: start the process by "
            'multiprocessing.get_context("spawn"), or fork before the first use of JAX'
        )


def _before() -> None:
    """Takes the lock, and looks for JAX's threads by their names: True where there are none."""
    Locked._lock.acquire()
    try:
        names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        _of_jax["ran"] = any("XLA" in name for name in names)
    except OSError:
        _of_jax["ran"] = True


def _after() -> None:
    _of_jax["lost"] |= _of_jax["ran"]
    Locked._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=Locked._lock.release, after_in_child=_after)
