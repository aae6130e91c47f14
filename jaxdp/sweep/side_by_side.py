"""Blocks of a sweep side by side in this process, one a device."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import jax

from jaxdp._core import threads

Answer = TypeVar("Answer")
# Blocks a device that are begun or wait to be written. chosen: none waits for the disk
_AHEAD = 2


def side_by_side(
    call: Callable[[int, Any], Answer], numbers: Sequence[int], devices: Sequence[Any] | None
) -> Iterator[tuple[int, Answer]]:
    """(number, call(number, device)) as they are finished, each device at one call at a time.

    Arrays without a device are placed on the call's device too: compositions come from the host.
    All local devices if None. With one device, or if this thread has JAX settings that others would
    not see, one call follows the other.
    """
    chosen_devices = jax.local_devices() if devices is None else devices
    if len(chosen_devices) == 1 or not threads.settings_are_shared():
        device = None if devices is None else devices[0]
        for number in numbers:
            yield number, _on_device(device, call, number)
        return
    free_devices: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for device in chosen_devices:
        free_devices.put(device)

    def on_a_free_device(number: int) -> tuple[int, Answer]:
        device = free_devices.get()
        try:
            return number, _on_device(device, call, number)
        finally:
            free_devices.put(device)

    pending: set[Future[tuple[int, Answer]]] = set()
    with ThreadPoolExecutor(len(chosen_devices), thread_name_prefix="jaxdp_sweep") as pool:
        try:
            for number in numbers:
                pending.add(pool.submit(on_a_free_device, number))
                if len(pending) == _AHEAD * len(chosen_devices):
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        finally:
            for future in pending:
                future.cancel()


def _on_device(device: Any, call: Callable[[int, Any], Answer], number: int) -> Answer:
    """On the default device, which is the user's choice, if None."""
    context = contextlib.nullcontext() if device is None else jax.default_device(device)
    with context:
        return call(number, device)
