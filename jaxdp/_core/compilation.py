"""Compilations that take seconds: on a CPU in half the time, and a sixth of the memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.devices import default_platform, with_float64
from jaxdp._core.float64 import host_array
from jaxdp._core.forks import require_threads_of_jax, shared_lock
from jaxdp._core.namespace import for_traces, in_kernel, kernel
from jaxdp._core.precision import opened
from jaxdp._core.tracing import (
    TRANSFORMATIONS,
    is_inside_trace,
    is_tracing,
    outside_traces,
)

# Fusions by XLA's older emitters, up to jax 0.11.1; passes whose time the kernels do not show.
_SOONER = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
# Numbers in the arguments of a call up to which NumPy computes. measured: a compilation costs as
# much
FEW_NUMBERS = 2**20


def jitted(function: Callable[..., Any], static_argnums: int | tuple[int, ...] = ()) -> Any:
    """`jax.jit`; few known numbers are computed by NumPy."""
    return _by_size(function, jax.jit(function, static_argnums=static_argnums))


def compiled(function: Callable[..., Any], static_argnums: int | tuple[int, ...] = ()) -> Any:
    """`jitted`, which for known values does without what XLA's CPU backend spends most of it on."""
    traced = jax.jit(function, static_argnums=static_argnums)

    @functools.cache
    def sooner(platform: str) -> Callable[..., Any]:
        options = _SOONER if platform == "cpu" else {}
        known = {name: value for name, value in options.items() if _is_option(name, value)}
        return jax.jit(function, static_argnums=static_argnums, compiler_options=known or None)

    one_at_a_time = _OneAtATime()

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not checks.all_concrete(args):
            return traced(*args)
        with outside_traces():
            return one_at_a_time(sooner(default_platform()), args)

    return _by_size(function, call)


class _OneAtATime:
    """Calls a program; other threads wait while one may compile it, so that none does so twice."""

    def __init__(self) -> None:
        self._compiled: set[Any] = set()
        self._lock = shared_lock()

    def __call__(self, program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        leaves, tree = jax.tree.flatten(args)
        kinds = ((getattr(x, "shape", type(x)), getattr(x, "dtype", None)) for x in leaves)
        signature = program, tree, *kinds
        if signature in self._compiled:
            return program(*args)
        with self._lock:
            result = program(*args)
            self._compiled.add(signature)
            return result


def _by_size(function: Callable[..., Any], program: Callable[..., Any]) -> Callable[..., Any]:
    """The function of few known numbers, its program of others."""

    def takes(leaves: list[Any]) -> bool:
        if in_kernel():
            return True
        if is_tracing():  # A function among the arguments may read what is traced.
            return False
        return sum([getattr(x, "size", 1) for x in leaves]) <= FEW_NUMBERS

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        if not checks.all_concrete(leaves):
            with for_traces():
                return program(*args)
        leaves = [x if type(x) is np.ndarray else host_array(x) for x in leaves]
        args = jax.tree.unflatten(structure, leaves)
        has_key = any(isinstance(x, jax.Array) for x in leaves)
        if not has_key and takes(leaves):
            with kernel():
                return function(*args)
        if is_tracing():
            with for_traces():
                return program(*args)
        require_threads_of_jax()
        with opened(), with_float64():
            return jax.tree.map(host_array, program(*args))

    setattr(call, "program", program)  # noqa: B010
    return call


def require_outside_traces(name: str, reason: str) -> None:
    """`ValueError` inside of any transformation, for what happens on the host: it happens once."""
    if is_inside_trace():
        raise ValueError(f"{name} must be called outside of {TRANSFORMATIONS}: {reason}")


@functools.cache
def _is_option(name: str, value: bool | int) -> bool:
    """False where this version of XLA has no such option."""
    try:
        jax.jit(lambda x: x, compiler_options={name: value}).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
