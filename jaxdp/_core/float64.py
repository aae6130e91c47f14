"""Privacy arithmetic on a device with IEEE float64, in JAX's standard promotion of types.

A TPU has no float64: XLA makes one of two float32 there, with 48 bits and the range of float32
(1e-300 is 0, log Q(13) is -inf). No bound that includes its rounding holds there. So concrete
values are computed on the host's CPU, and traced values cannot be compiled for a TPU.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.tree_util import tree_flatten

from jaxdp._core import checks
from jaxdp._core.tracing import in_kernel, is_tracing, outside_traces

# Numbers in the arguments of a call that NumPy always computes. chosen: some thousand lanes
FEW_NUMBERS = 2**14

F = TypeVar("F", bound=Callable[..., Any])
Device: TypeAlias = Any  # JAX has no public type of one

# Platforms whose float64 is a pair of float32. derived: XLA's rewriting of 64-bit types for TPUs
WITHOUT_FLOAT64 = ("tpu",)
# Operators that compute; other names with two underscores are Python's.
_OPERATORS = ("__add__", "__radd__", "__mul__", "__rmul__", "__truediv__", "__getitem__")
# Methods of a noise that its draws need: they compile for a TPU, where they have 48 bits.
_OF_DRAWS = ("__init__", "log_density", "log_survival", "quantile", "kinks")
# Draws stay where their key is.
_DRAWS = ("sample",)
# What is said of a class, or of shapes, computes nothing.
_KINDS = ("on_integers", "log_concave", "both", "shape")

_ON_TPU = (
    "privacy cannot be computed on a TPU: its float64 is a pair of float32 (48 bits, 1e-300 is 0), "
    "so no number would be a bound. Compute it outside of the function that is compiled for the "
    "TPU, where the host's CPU computes it, and pass the number in; or call the jitted function "
    "within `jax.default_device(jax.devices('cpu')[0])`"
)


def in_float64(function: F) -> F:
    """The function, or the public methods of the class, computed in IEEE float64.

    Concrete arguments on a TPU are moved to the host's CPU, where the result stays, uncommitted. If
    other arguments are committed to one device, so is the result. Traced arguments pass through an
    identity that cannot be compiled for a TPU: `ValueError`. Draws are not changed.
    """
    if inspect.isclass(function):
        _wrap_methods(function)
        return cast(F, function)
    return _wrapped(function)


def default_platform() -> str:
    """The platform that computes with uncommitted arrays: "cpu", "gpu" or "tpu"."""
    device = _default_device()
    return device if isinstance(device, str) else _platform_of(device)


def _wrap_methods(cls: type) -> None:
    for name, member in list(vars(cls).items()):
        public = not name.startswith("_") or name in _OPERATORS or name == "__init__"
        if not public or name in _DRAWS + _KINDS or getattr(member, "__isabstractmethod__", False):
            continue
        if isinstance(member, property) and member.fget is not None:
            # What is known of a traced record, such as its shape, is no answer.
            wrapped = property(_wrapped(member.fget, refused="result"))
        elif isinstance(member, classmethod):
            wrapped = classmethod(_wrapped(member.__func__))
        elif inspect.isfunction(member):
            wrapped = _wrapped(member, refused="nothing" if name in _OF_DRAWS else "all")
        else:
            continue
        setattr(cls, name, wrapped)


def _wrapped(function: Any, refused: Literal["all", "result", "nothing"] = "all") -> Any:
    # A record that is being made has no leaves yet.
    unmade = 1 if function.__name__ == "__init__" else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(_calls, "is_plain", False) and not is_tracing():
            return function(*args, **kwargs)  # concrete numbers within such a call
        taken = args[unmade:], kwargs
        leaves, structure = tree_flatten(taken)
        # A function may read what is traced around it.
        traced = not checks.all_concrete(leaves) or (is_tracing() and any(map(callable, leaves)))
        home = None if _is_only_cpu() else _home(leaves)
        if not traced and _is_standard() and (home is None or _is_host(home)):
            with _outermost() as is_outermost, outside_traces(), np.errstate(all="ignore"):
                if is_outermost:
                    taken, _ = to_host(taken, lambda x: numbers_in(x) <= FEW_NUMBERS)
                tail, kwargs = taken
                result = function(*args[:unmade], *tail, **kwargs)
                result = _as_jax(result) if is_outermost else result
            result = _marked(result, refused)
            return result if home is None else jax.tree.map(lambda x: _committed(x, home), result)
        moved = (_platform_of(home) if home else default_platform()) in WITHOUT_FLOAT64
        marked = traced and refused == "all"
        with _standard_promotion(), _place(home, moved, traced), np.errstate(all="ignore"):
            if moved:
                leaves = [_on_host(x) for x in leaves]
            if marked:
                leaves = [_refused_on_tpu(x) for x in leaves]
            if moved or marked:
                tail, kwargs = jax.tree.unflatten(structure, leaves)
                args = (*args[:unmade], *tail)
            result = function(*args, **kwargs)
        if home is not None and not moved:
            return jax.tree.map(lambda x: _committed(x, home), result)
        return _marked(result if traced else _as_jax(result), refused)

    return call


_calls = threading.local()


@contextlib.contextmanager
def _outermost() -> Iterator[bool]:
    """True in a call of a user's, False in what that calls."""
    depth, was_plain = getattr(_calls, "depth", 0), getattr(_calls, "is_plain", False)
    _calls.depth, _calls.is_plain = depth + 1, _is_only_cpu()
    try:
        yield depth == 0 and not in_kernel()
    finally:
        _calls.depth, _calls.is_plain = depth, was_plain


def to_host(tree: Any, takes: Callable[[list[Any]], bool]) -> tuple[Any, bool]:
    """The tree with known arrays of NumPy, and True, if `takes` of its leaves is.

    Else the tree as it is, and False; so it is where an array is traced, committed to an
    accelerator, or on several devices.
    """
    leaves, structure = tree_flatten(tree)
    of_jax = [x for x in leaves if isinstance(x, jax.Array)]
    is_few = all(map(_may_leave, of_jax)) and takes(leaves)
    if is_few and of_jax:
        leaves = [np.asarray(x) if isinstance(x, jax.Array) else x for x in leaves]
        tree = jax.tree.unflatten(structure, leaves)
    return tree, is_few


def numbers_in(leaves: list[Any]) -> int:
    """Number of entries of all leaves together."""
    return sum([getattr(x, "size", 1) for x in leaves])


def _may_leave(x: jax.Array) -> bool:
    """True for a known array of numbers that no device holds on to."""
    if isinstance(x, Tracer) or jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return False
    return len(x.devices()) == 1 and (not x.committed or _is_host(*x.devices()))


def _is_host(device: Device) -> bool:
    """True for the device that uncommitted arrays lie on, if it is the host's."""
    return device.platform == "cpu" and device == _default_device()


def _as_jax(result: Any) -> Any:
    """The result, with JAX arrays for arrays of NumPy; records are left as they are."""
    if isinstance(result, np.ndarray | np.generic):
        if default_platform() in WITHOUT_FLOAT64:
            with jax.default_device(_host()):
                return jax.device_put(result)
        return jax.device_put(result)
    if isinstance(result, tuple | list):
        parts = [_as_jax(x) for x in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _marked(result: Any, refused: str) -> Any:
    """The result, whose traced arrays cannot be compiled for a TPU."""
    if refused == "nothing" or checks.all_concrete(result):
        return result
    # What is known may be traced, too: into the program around it.
    return jax.tree.map(_refused_on_tpu, result)


@functools.cache
def _is_only_cpu() -> bool:
    """True if there is one device, the host's: nothing can come from elsewhere."""
    return jax.default_backend() == "cpu" and jax.local_device_count() == 1


def _home(leaves: list[Any]) -> Device | None:
    """The device that known arrays are committed to; of several None, unless one has no float64."""
    arrays = [x for x in leaves if _is_known(x) and x.committed]
    devices = {device for x in arrays for device in x.devices()}
    without = [device for device in devices if _platform_of(device) in WITHOUT_FLOAT64]
    if without:
        return without[0]
    return devices.pop() if len(devices) == 1 else None


def _platform_of(device: Device) -> str:
    return device.platform


@contextlib.contextmanager
def _place(home: Device | None, moved: bool, traced: bool) -> Iterator[None]:
    """Context of a call: the device that its arguments do not decide, and the promotion."""
    if moved:
        known = contextlib.nullcontext() if traced else outside_traces()
        with jax.default_device(_host()), known:
            yield
    elif home is not None and home != _default_device():
        with jax.default_device(home):
            yield
    else:
        yield


def _default_device() -> Any:
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return _first_device() if device is None else device


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


def _standard_promotion() -> contextlib.AbstractContextManager[None]:
    """Context with the standard promotion of types, which the kernels assume."""
    return contextlib.nullcontext() if _is_standard() else jax.numpy_dtype_promotion("standard")


def _is_standard() -> bool:
    return jax.config.jax_numpy_dtype_promotion == "standard"  # pyright: ignore[reportAttributeAccessIssue]


def _is_known(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer)


def _on_host(x: Any) -> Any:
    if not _is_known(x) or jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    return jnp.asarray(np.asarray(x))


def _committed(x: Any, home: Device) -> Any:
    known = isinstance(x, np.ndarray | np.generic) or (_is_known(x) and not x.committed)
    return jax.device_put(x, home) if known else x


def _refused_on_tpu(x: Any) -> Any:
    """The value itself; where it is traced, no program for a TPU can hold it."""
    if isinstance(x, Tracer) and jnp.issubdtype(x.dtype, jnp.inexact):
        return _ieee.bind(x)
    return x


def _refuse(*_: Any) -> Any:
    raise ValueError(_ON_TPU)


def _evaluated(x: Any) -> Any:
    """Outside of `jit`, in `vmap` or `grad`: it depends on where its operand is."""
    home = _home([x])
    if home is not None and _platform_of(home) in WITHOUT_FLOAT64:
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
