"""Numbers that NumPy computes where they are known, and programs of everything else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import host_array
from jaxdp._core.namespace import for_traces, in_kernel, kernel
from jaxdp._core.tracing import TRANSFORMATIONS, is_inside_trace, is_tracing


def jitted(function: Callable[..., Any], static_argnums: int | tuple[int, ...] = ()) -> Any:
    """`jax.jit`; NumPy computes known numbers. For functions without keys."""
    program = jax.jit(function, static_argnums=static_argnums)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        # A function among the arguments may read what is traced.
        if not checks.all_concrete(leaves) or (is_tracing() and not in_kernel()):
            with for_traces():
                return program(*args)
        known = jax.tree.unflatten(structure, map(host_array, leaves))
        with kernel():
            return function(*known)

    return call


def require_outside_traces(name: str, reason: str) -> None:
    """`ValueError` inside of any transformation, for what happens on the host: it happens once."""
    if is_inside_trace():
        raise ValueError(f"{name} must be called outside of {TRANSFORMATIONS}: {reason}")
