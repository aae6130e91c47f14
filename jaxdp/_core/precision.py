"""The one place that opens float64, for the current thread and the length of a call.

JAX keeps `jax_enable_x64` for each thread, and every program and every cache knows it. Nothing of
the caller's setting changes. Traced results leave in the caller's widest type: float64 if its
setting is on, else float32, rounded to the side that keeps a bound a bound.

A TPU has no float64: XLA makes one of two float32 there, with 48 bits and the range of float32
(1e-300 is 0, log Q(13) is -inf). No bound that includes its rounding holds there. Results that are
traced pass through an identity that has no lowering for a TPU.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

F = TypeVar("F", bound=Callable[..., Any])

# The caller's settings (float64, promotion, NumPy's errors) while float64 is open, else None.
_state = threading.local()

# Types of the results of a caller without float64.
_NARROW = {"float64": "float32", "complex128": "complex64", "int64": "int32", "uint64": "uint32"}

Device: TypeAlias = Any  # JAX has no public type of one

# Platforms whose float64 is a pair of float32. derived: XLA's rewriting of 64-bit types for TPUs
WITHOUT_FLOAT64 = ("tpu",)

_ON_TPU = (
    "privacy cannot be computed on a TPU: its float64 is a pair of float32 (48 bits, 1e-300 is 0), "
    "so no number would be a bound. Compute it outside of the function that is compiled for the "
    "TPU, where the host's CPU computes it, and pass the number in; or call the jitted function "
    "within `jax.default_device(jax.devices('cpu')[0])`"
)


@contextlib.contextmanager
def opened() -> Iterator[bool]:
    """Float64, the standard promotion, no warnings of NumPy; True where a user is the caller."""
    if getattr(_state, "callers", None) is not None:
        yield False
        return
    config: Any = jax.config
    _state.callers = config.jax_enable_x64, config.jax_numpy_dtype_promotion, np.geterr()
    try:
        with (
            jax.enable_x64(True),
            jax.numpy_dtype_promotion("standard"),
            np.errstate(all="ignore"),
        ):
            yield True
    finally:
        _state.callers = None


def in_callers_setting(function: F) -> F:
    """A user's function, such as a loss, which runs in the setting that float64 was opened in."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        callers = getattr(_state, "callers", None)
        if callers is None:
            return function(*args, **kwargs)
        _state.callers = None
        try:
            with (
                jax.enable_x64(callers[0]),
                jax.numpy_dtype_promotion(callers[1]),
                np.errstate(**callers[2]),
            ):
                return function(*args, **kwargs)
        finally:
            _state.callers = callers

    return cast(F, call)


def for_users() -> contextlib.AbstractContextManager[Any]:
    """Float64 for a user's function that this package calls on grids of doubles."""
    return jax.enable_x64(True)


def is_inside() -> bool:
    """True in what this package's functions call, where float64 is open."""
    return getattr(_state, "callers", None) is not None


def is_open() -> bool:
    """True where JAX computes in float64."""
    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]


def callers_are_wide() -> bool:
    """True if the caller's setting has float64."""
    callers = getattr(_state, "callers", None)
    return is_open() if callers is None else bool(callers[0])


def narrowed(x: Any, side: float) -> Any:
    """A traced result in the caller's widest type, rounded up (side 1), down (-1) or to nearest."""
    if callers_are_wide() or str(x.dtype) not in _NARROW:
        return x
    if x.dtype == jnp.float64 and side:
        return _rounded(x, side)
    narrow = jnp.dtype(_NARROW[str(x.dtype)])
    if jnp.issubdtype(narrow, jnp.integer):
        x = jnp.clip(x, jnp.iinfo(narrow).min, jnp.iinfo(narrow).max)
    return jax.lax.convert_element_type(x, narrow)


def narrowing(x: Any) -> Any:
    """Bound on what `narrowed` moves a number by: 0 if it is known."""
    if callers_are_wide() or not isinstance(x, Tracer):
        return 0.0
    kind = jnp.finfo(jnp.float32)
    return jnp.maximum(2.0 * float(kind.eps) * jnp.abs(x), float(kind.tiny))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _rounded(x: jax.Array, side: float) -> jax.Array:
    """float32 on one side of float64; not 0 where x is not, as subnormal numbers become 0."""
    kind = jnp.finfo(jnp.float32)
    near, end = x.astype(jnp.float32), np.float32(side * np.inf)
    beyond = side * near.astype(jnp.float64) < side * x
    near = jnp.where(beyond, jnp.nextafter(near, end), near)
    lost = (side * x > 0) & (side * x < float(kind.tiny))
    return jnp.where(lost, np.float32(side * float(kind.tiny)), near)


@_rounded.defjvp
def _(side: float, primals: Any, tangents: Any) -> tuple[Any, Any]:
    with opened():
        return _rounded(*primals, side), jax.lax.convert_element_type(tangents[0], jnp.float32)


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


def _on_ieee(x: Any) -> Any:
    """The operand outside of `jit`, in `vmap` or `grad`; refused if it lies on a TPU."""
    places = x.devices() if isinstance(x, jax.Array) else ()  # a literal is on none
    if any(_platform_of(device) in WITHOUT_FLOAT64 for device in places):
        _refuse()
    return x


_ieee = Primitive("ieee_float64")
_ieee.def_impl(_on_ieee)
_ieee.def_abstract_eval(lambda x: x)
ad.deflinear2(_ieee, lambda cotangent, _: [cotangent])
batching.defvectorized(_ieee)
mlir.register_lowering(_ieee, lambda _, x: [x])
for _each in WITHOUT_FLOAT64:
    mlir.register_lowering(_ieee, _refuse, platform=_each)
