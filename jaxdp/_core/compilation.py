"""Compilations that take seconds: on a CPU in half the time, and a sixth of the memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from jaxdp._core import checks
from jaxdp._core.float64 import default_platform

# Fusions by XLA's older emitters, up to jax 0.11.1; passes whose time the kernels do not show.
_SOONER = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
# Without any of LLVM's passes. measured: half the time, and kernels take twice as long
_SOONEST = _SOONER | {"xla_backend_optimization_level": 0}
# Whose functions run once, in Python, for all calls and entries: as error messages name them.
TRANSFORMATIONS = "jit, vmap, grad, scan and other transformations of JAX"
# Lanes up to which compilation is the cost. chosen: a lane takes .01 s, a compilation seconds
FEW_LANES = 8


def compiled(
    function: Callable[..., Any], static_argnums: int | tuple[int, ...], by_lanes: bool = False
) -> Any:
    """jax.jit, which for known values does without what XLA's CPU backend spends most of it on.

    `by_lanes`: lanes lie along the first axis of the first array; a few are compiled soonest.
    """
    traced = jax.jit(function, static_argnums=static_argnums)

    @functools.cache
    def sooner(platform: str, few: bool) -> Callable[..., Any]:
        options = {} if platform != "cpu" else _SOONEST if few else _SOONER
        known = {name: value for name, value in options.items() if _is_option(name, value)}
        return jax.jit(function, static_argnums=static_argnums, compiler_options=known or None)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not checks.all_concrete(args):
            return traced(*args)
        few = by_lanes and jax.tree.leaves(args)[0].shape[0] <= FEW_LANES
        with outside_traces():
            return sooner(default_platform(), few)(*args)

    return call


def outside_traces() -> contextlib.AbstractContextManager[None]:
    """Context in which known values are computed, not traced into the trace around it."""
    return jax.ensure_compile_time_eval() if is_tracing() else contextlib.nullcontext()


def is_tracing() -> bool:
    """True inside of a trace: what is computed of known values there is traced as well."""
    return not checks.is_concrete(_zero())


def is_inside_trace() -> bool:
    """True inside of any transformation, whether or not it traces what is computed there."""
    return get_opaque_trace_state() != _outermost()


def require_outside_traces(name: str, reason: str) -> None:
    """`ValueError` inside of any transformation, for what happens on the host: it happens once."""
    if is_inside_trace():
        raise ValueError(f"{name} must be called outside of {TRANSFORMATIONS}: {reason}")


@functools.cache
def _outermost() -> Any:
    """State of a new thread, in which nothing is traced: this one may be inside of a trace now."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(get_opaque_trace_state).result()


@jax.jit
def _zero() -> jax.Array:
    return jnp.zeros(())


@functools.cache
def _is_option(name: str, value: bool | int) -> bool:
    """False where this version of XLA has no such option."""
    try:
        jax.jit(lambda x: x, compiler_options={name: value}).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
