"""State of the current call: inside a trace, or outside of any."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from jax.extend.core import find_top_trace, set_current_trace

# The trace of eager evaluation. A new thread is outside of any transformation, also where a
# traced function has imported this module.
with ThreadPoolExecutor(1) as _new_thread:
    _EAGER = _new_thread.submit(find_top_trace, ()).result()

# Whose functions run once, in Python, for all calls and entries: as error messages name them.
TRANSFORMATIONS = "jit, vmap, grad, scan and other transformations of JAX"

_lifted = threading.local()


def is_tracing() -> bool:
    """True if the current computation may be traced."""
    return find_top_trace(()) is not _EAGER


def is_inside_trace() -> bool:
    """True inside of any transformation, also where `outside_traces` has lifted it."""
    return getattr(_lifted, "depth", 0) > 0 or is_tracing()


@contextlib.contextmanager
def outside_traces() -> Iterator[None]:
    """Context that computes concrete values instead of tracing them into the outer trace."""
    if not is_tracing():
        yield
        return
    _lifted.depth = getattr(_lifted, "depth", 0) + 1
    try:
        with set_current_trace(_EAGER):
            yield
    finally:
        _lifted.depth -= 1


_apart = threading.local()


def numbers_are_apart() -> bool:
    """True where one number of a record is moved alone, so that shares do not add up to 1."""
    return getattr(_apart, "running", False)


@contextlib.contextmanager
def moving_apart() -> Iterator[None]:
    """Context of a difference in one number of a record, for its slope."""
    before, _apart.running = numbers_are_apart(), True
    try:
        yield
    finally:
        _apart.running = before
