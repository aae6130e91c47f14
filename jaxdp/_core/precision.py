"""Float64 and traces: the state of the current call. The one place that opens float64.

It is open for the current thread and the length of a call. Traced results leave in the caller's
widest type: float64 if its setting is on, else float32, rounded to the side that keeps a bound a
bound.

`isolated` is a traced call in float64 as one primitive, whose rules open float64 themselves. JAX
differentiates, batches and lowers what it has traced when the call is over, with the setting of
that moment: without float64 its rules would round to float32.

A TPU has no float64: XLA makes one of two float32 there, with 48 bits and the range of float32. No
bound that includes its rounding holds there, so traced results pass through an identity that has no
lowering for a TPU.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jax.extend.core import Primitive, find_top_trace, set_current_trace
from jax.interpreters import ad, batching, mlir

F = TypeVar("F", bound=Callable[..., Any])

# Types of the results of a caller without float64.
_NARROW = {"float64": "float32", "complex128": "complex64", "int64": "int32", "uint64": "uint32"}

_ON_TPU = (
    "privacy cannot be computed on a TPU: its float64 is a pair of float32 (48 bits, 1e-300 is 0), "
    "so no number would be a bound. Compute it outside of the function that is compiled for the "
    "TPU, where the host's CPU computes it, and pass the number in; or call the jitted function "
    "within `jax.default_device(jax.devices('cpu')[0])`"
)
# Whose functions run once, in Python, for all calls and entries: as error messages name them.
TRANSFORMATIONS = "jit, vmap, grad, scan and other transformations of JAX"

# The trace of eager evaluation. A new thread is outside of any transformation, also where a
# traced function has imported this module.
with ThreadPoolExecutor(1) as _new_thread:
    _EAGER = _new_thread.submit(find_top_trace, ()).result()


class _State(threading.local):
    """Settings and traces of a thread."""

    callers: Any = None  # settings (float64, promotion, NumPy's errors) while float64 is open
    lifted = 0  # traces that `outside_traces` has lifted
    isolated: tuple[Any, ...] = ()  # traces of `isolated` calls that are going on


_state = _State()


@contextlib.contextmanager
def opened() -> Iterator[bool]:
    """Float64, the standard promotion, no warnings of NumPy; True where a user is the caller."""
    if _state.callers is not None:
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
        callers = _state.callers
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
    return _state.callers is not None


def is_open() -> bool:
    """True where JAX computes in float64."""
    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]


def callers_are_wide() -> bool:
    """True if the caller's setting has float64."""
    callers = _state.callers
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
    if default_platform() == "tpu":
        return jax.default_device(_host())
    return contextlib.nullcontext()


def refused_on_tpu(x: Any) -> Any:
    """The value itself; where it is traced, no program for a TPU can hold it."""
    if isinstance(x, Tracer) and jnp.issubdtype(x.dtype, jnp.inexact):
        return _ieee.bind(x)
    return x


def _platform_of(device: Any) -> str:
    return device.platform


@functools.cache
def _first_device() -> Any:
    return jax.local_devices()[0]


def _host() -> Any:
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
    if any(_platform_of(device) == "tpu" for device in places):
        _refuse()
    return x


_ieee = Primitive("ieee_float64")
_ieee.def_impl(_on_ieee)
_ieee.def_abstract_eval(lambda x: x)
ad.deflinear2(_ieee, lambda cotangent, _: [cotangent])
batching.defvectorized(_ieee)
mlir.register_lowering(_ieee, lambda _, x: [x])
mlir.register_lowering(_ieee, _refuse, platform="tpu")


def is_tracing() -> bool:
    """True if the current computation may be traced."""
    return find_top_trace(()) is not _EAGER


def is_inside_trace() -> bool:
    """True inside of any transformation, also where `outside_traces` has lifted it."""
    return _state.lifted > 0 or is_tracing()


@contextlib.contextmanager
def outside_traces() -> Iterator[None]:
    """Context that computes concrete values instead of tracing them into the outer trace."""
    if not is_tracing():
        yield
        return
    _state.lifted += 1
    try:
        with set_current_trace(_EAGER):
            yield
    finally:
        _state.lifted -= 1


def is_isolated(trace: Any) -> bool:
    """True for the trace of an `isolated` call that is going on, which runs once, as the call."""
    return any(trace is x for x in _state.isolated)


def isolated(function: Callable[..., Any], *operands: Any) -> Any:
    """function(*operands) of traced arrays as one primitive; what else it returns is known.

    It may close over traced values.
    """
    kept: list[Any] = []
    outer = _state.isolated
    with opened():

        def flat(*operands: Any) -> list[Any]:
            _state.isolated = (*outer, *(getattr(x, "_trace", None) for x in operands[:1]))
            leaves, structure = jax.tree.flatten(function(*operands))
            kept[:] = structure, [None if isinstance(x, Tracer) else x for x in leaves]
            return [x for x in leaves if isinstance(x, Tracer)]

        try:
            found = iter(_bound(flat, operands))
        finally:
            _state.isolated = outer
    structure, known = kept
    leaves = [next(found) if x is None else x for x in known]
    return jax.tree.unflatten(structure, leaves)


def _bound(function: Callable[..., Any], operands: Sequence[Any]) -> list[Any]:
    """The results of the function's primitive; traced values that it closes over are operands."""
    closed = jax.make_jaxpr(function)(*operands)
    traced = [isinstance(x, Tracer) for x in closed.consts]
    hoisted = [x for x, is_traced in zip(closed.consts, traced, strict=True) if is_traced]
    consts = [None if t else x for x, t in zip(closed.consts, traced, strict=True)]
    program = _Program(closed.jaxpr, consts, [x.aval for x in closed.jaxpr.outvars])
    return _call.bind(*hoisted, *operands, program=program)


class _Program:
    """A jaxpr, which takes the constants that are None before its operands."""

    def __init__(self, jaxpr: Any, consts: list[Any], out_types: list[Any]):
        self._jaxpr, self._consts, self.out_types = jaxpr, consts, out_types

    def __call__(self, *operands: Any) -> list[Any]:
        rest = iter(operands)
        consts = [next(rest) if x is None else x for x in self._consts]
        return eval_jaxpr(self._jaxpr, consts, *rest)


def _evaluated(*operands: Any, program: _Program) -> list[Any]:
    with opened():
        return program(*operands)


def _lowered(context: Any, *operands: Any, program: _Program) -> Any:
    with opened():
        return mlir.lower_fun(program, multiple_results=True)(context, *operands)


def _batched(operands: Any, axes: Any, *, program: _Program) -> tuple[Any, Any]:
    with opened():
        found = _bound(jax.vmap(program, tuple(axes)), operands)
    return found, [0] * len(found)


def _with_tangents(primals: Any, tangents: Any, *, program: _Program) -> tuple[Any, Any]:
    """Results, and linear programs of tangents: the program of the results is compiled once."""
    moves = [not isinstance(x, ad.Zero) for x in tangents]
    real = [jnp.issubdtype(x.dtype, jnp.inexact) for x in program.out_types]
    kept: list[Any] = []

    def linearized(*operands: Any) -> list[Any]:
        varied = [x for x, is_moving in zip(operands, moves, strict=True) if is_moving]

        def of_varied(*varied: Any) -> tuple[list[Any], list[Any]]:
            values = program(*_merged(operands, moves, varied))
            return [x for x, is_real in zip(values, real, strict=True) if is_real], values

        _, along, values = jax.linearize(of_varied, *varied, has_aux=True)
        factors, structure = jax.tree.flatten(along)
        kept[:] = [structure]
        return [*values, *factors]

    def tangents_of(*operands: Any) -> list[Any]:
        factors, moving = operands[: len(factors_found)], operands[len(factors_found) :]
        return jax.tree.unflatten(kept[0], factors)(*moving)

    with opened():
        found = _bound(linearized, primals)
        results, factors_found = found[: len(real)], found[len(real) :]
        moving = [x for x, is_moving in zip(tangents, moves, strict=True) if is_moving]
        moved = iter(_bound(tangents_of, [*factors_found, *moving]))
        zeros = [ad.Zero(x.to_tangent_aval()) for x in program.out_types]
    return results, [next(moved) if r else z for r, z in zip(real, zeros, strict=True)]


def _transposed(cotangents: Any, *operands: Any, program: _Program) -> list[Any]:
    linear = [ad.is_undefined_primal(x) for x in operands]
    known = [x for x, is_linear in zip(operands, linear, strict=True) if not is_linear]
    types = [x.aval for x, is_linear in zip(operands, linear, strict=True) if is_linear]

    def back(*values: Any) -> Any:
        given, cotangents = values[: len(known)], values[len(known) :]

        def of_linear(*tangents: Any) -> list[Any]:
            rest = iter(given)
            filled = [next(rest) if not is_linear else None for is_linear in linear]
            return program(*_merged(filled, linear, tangents))

        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in types]
        return jax.linear_transpose(of_linear, *shapes)(list(cotangents))

    with opened():
        filled = [ad.instantiate_zeros(x) for x in cotangents]
        found = iter(_bound(back, [*known, *filled]))
    return [next(found) if is_linear else None for is_linear in linear]


def _merged(values: Sequence[Any], replaced: Sequence[bool], by: Sequence[Any]) -> list[Any]:
    """The values, with others in the marked places."""
    others = iter(by)
    return [next(others) if r else x for x, r in zip(values, replaced, strict=True)]


_call = Primitive("float64_call")
_call.multiple_results = True
_call.def_impl(_evaluated)
_call.def_abstract_eval(lambda *_, program: program.out_types)
mlir.register_lowering(_call, _lowered)
batching.primitive_batchers[_call] = _batched
ad.primitive_jvps[_call] = _with_tangents
ad.primitive_transposes[_call] = _transposed


def require_outside_traces(name: str, reason: str) -> None:
    """`ValueError` inside of any transformation, for what happens on the host: it happens once."""
    if is_inside_trace():
        raise ValueError(f"{name} must be called outside of {TRANSFORMATIONS}: {reason}")
