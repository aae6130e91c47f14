"""The platform of a call, and the refusal of programs for a TPU.

A TPU has no float64: XLA makes one of two float32 there, with 48 bits and the range of float32
(1e-300 is 0, log Q(13) is -inf). No bound that includes its rounding holds there. Results that are
traced pass through an identity that has no lowering for a TPU.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Device: TypeAlias = Any  # JAX has no public type of one

# Platforms whose float64 is a pair of float32. derived: XLA's rewriting of 64-bit types for TPUs
WITHOUT_FLOAT64 = ("tpu",)

_ON_TPU = (
    "privacy cannot be computed on a TPU: its float64 is a pair of float32 (48 bits, 1e-300 is 0), "
    "so no number would be a bound. Compute it outside of the function that is compiled for the "
    "TPU, where the host's CPU computes it, and pass the number in; or call the jitted function "
    "within `jax.default_device(jax.devices('cpu')[0])`"
)


def default_platform() -> str:
    """The platform that computes with uncommitted arrays: "cpu", "gpu" or "tpu"."""
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    device = _first_device() if device is None else device
    return device if isinstance(device, str) else _platform_of(device)


def with_float64() -> contextlib.AbstractContextManager[Any]:
    """Context whose programs run on the host's CPU where the default device is a TPU."""
    if default_platform() in WITHOUT_FLOAT64:
        return jax.default_device(_host())
    return contextlib.nullcontext()


def refused_on_tpu(x: Any) -> Any:
    """The value itself; where it is traced, no program for a TPU can hold it."""
    if isinstance(x, Tracer) and jnp.issubdtype(x.dtype, jnp.inexact):
        return _ieee.bind(x)
    return x


def _platform_of(device: Device) -> str:
    return device.platform


@functools.cache
def _first_device() -> Device:
    return jax.local_devices()[0]


def _host() -> Device:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ValueError(
            "privacy is computed on the host's CPU where JAX runs on a TPU, and JAX_PLATFORMS "
            "excludes it: add it, as in JAX_PLATFORMS=tpu,cpu"
        ) from error


def _refuse(*_: Any) -> Any:
    raise ValueError(_ON_TPU)


def _evaluated(x: Any) -> Any:
    """The operand outside of `jit`, in `vmap` or `grad`; refused if it lies on a TPU."""
    places = x.devices() if isinstance(x, jax.Array) else ()  # a literal is on none
    if any(_platform_of(device) in WITHOUT_FLOAT64 for device in places):
        _refuse()
    return x


_ieee = Primitive("ieee_float64")
_ieee.def_impl(_evaluated)
_ieee.def_abstract_eval(lambda x: x)
ad.deflinear2(_ieee, lambda cotangent, _: [cotangent])
batching.defvectorized(_ieee)
mlir.register_lowering(_ieee, lambda _, x: [x])
for _each in WITHOUT_FLOAT64:
    mlir.register_lowering(_ieee, _refuse, platform=_each)
