"""The gate of the package: privacy arithmetic in float64, by NumPy where everything is known.

Known arguments, arrays of JAX included, become arrays of NumPy, and so do the results: no setting
of JAX matters. Traced arguments are computed by JAX in float64, and the results cannot be compiled
for a TPU, see `precision`. Functions that draw, or compute with records, are JAX's in both cases
(`draws_in_float64`): they keep arrays on the device that has them, known results are arrays of
NumPy, and traced ones are in the caller's widest type.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import tree_flatten, tree_leaves

from jaxdp._core import checks
from jaxdp._core.namespace import for_traces, in_kernel, kernel
from jaxdp._core.precision import (
    is_inside,
    is_tracing,
    isolated,
    narrowed,
    opened,
    outside_traces,
    refused_on_tpu,
    with_float64,
)
from jaxdp._core.pytree import assign, is_record, numbers_of, with_data
from jaxdp._core.random_key import unshared

F = TypeVar("F", bound=Callable[..., Any])
# 1: rounded up, -1: down, 0: to nearest; of several results, or by the keywords of a call.
Side: TypeAlias = float | tuple[float, ...] | Callable[..., float]

# Attribute of functions that open float64 themselves, which `in_float64` leaves as they are.
_OPENING = "opens_float64"
# Names of arguments that are keys.
_KEYS = ("key", "keys")
# Operators that compute; other names with two underscores are Python's.
_OPERATORS = ("__add__", "__radd__", "__mul__", "__rmul__", "__truediv__", "__getitem__")
# Methods of a noise that its draws need: they compile for a TPU, where they have 48 bits.
_OF_DRAWS = ("__init__", "log_density", "log_survival", "quantile", "kinks", "sample")
# What is said of a class, or of shapes, computes nothing.
_KINDS = ("on_integers", "log_concave", "both", "shape")
# The side that traced results are rounded to, if not up.
_SIDES: dict[str, Side] = {
    **dict.fromkeys(("tradeoff", "remaining"), -1.0),
    **dict.fromkeys(("log_density", "log_density_slope", "log_survival", "quantile", "kinks"), 0.0),
    **dict.fromkeys(("absolute_moment", "variance", "mean_absolute", "fisher_information"), 0.0),
    **dict.fromkeys(("sample", "law", "structure", "singularities", "rate"), 0.0),
    "bounds": (-1.0, 1.0),
}


def in_float64(function: F | None = None, *, side: Side = 1.0) -> F:
    """The function, or the public methods of the class, computed in float64.

    `side`: that traced results are rounded to for a caller without float64.
    """
    if function is None:
        return cast(F, partial(in_float64, side=side))
    if inspect.isclass(function):
        _wrap_methods(function)
        return cast(F, function)
    return _wrapped(function, side)


def _wrap_methods(cls: type) -> None:
    for name, member in list(vars(cls).items()):
        public = not name.startswith("_") or name in _OPERATORS or name == "__init__"
        if not public or name in _KINDS or getattr(member, "__isabstractmethod__", False):
            continue
        side = _SIDES.get(name, 1.0)
        if isinstance(member, property) and member.fget is not None:
            wrapped = property(_wrapped(member.fget, side))
        elif isinstance(member, classmethod):
            wrapped = classmethod(_wrapped(member.__func__, side))
        elif inspect.isfunction(member) and not hasattr(member, _OPENING):
            wrapped = _wrapped(member, side, is_refused=name not in _OF_DRAWS)
        else:
            continue
        setattr(cls, name, wrapped)


def _wrapped(function: Any, side: Side, is_refused: bool = True) -> Any:
    # A record that is being made has no leaves yet.
    unmade = 1 if function.__name__ == "__init__" else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_inside():
            if not is_tracing():
                return function(*args, **kwargs)
            if is_traced((args[unmade:], kwargs)):
                with for_traces():
                    return function(*args, **kwargs)
            with outside_traces():
                return function(*args, **kwargs)
        arguments = args[unmade:], kwargs
        if is_traced(arguments):
            require_float64_of(arguments)
            to_side = side(**kwargs) if callable(side) else side
            if not unmade:
                return traced_in_float64(function, arguments, to_side, is_refused)
            made = traced_in_float64(partial(_made, function, args[0]), arguments, 0.0, False)
            return assign(args[0], **vars(made))
        with opened(), outside_traces():
            known, kwargs = _on_numpy(arguments)
            return as_numpy(function(*args[:unmade], *known, **kwargs))

    return call


def draws_in_float64(
    function: F | None = None, *, may_share: bool = False, keeps_types: bool = False
) -> F:
    """The function, computed in float64.

    `may_share`: the key may be a constant where other arguments are traced. `keeps_types`: results
    are returned as they are.
    """
    if function is None:
        options = {"may_share": may_share, "keeps_types": keeps_types}
        return cast(F, partial(draws_in_float64, **options))
    signature = inspect.signature(function)
    name = next((x for x in _KEYS if x in signature.parameters and not may_share), None)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_inside():
            return function(*args, **kwargs)
        if not is_traced((args, kwargs)):
            with opened():
                result = function(*args, **kwargs)
            return result if keeps_types else as_numpy(result)
        if name is not None:
            # Before the arguments become those of a primitive, which does not say what traces them.
            given = signature.bind(*args, **kwargs).arguments
            key = given.pop(name, None)
            if isinstance(key, jax.Array):
                unshared(key, given)
        require_float64_of((args, kwargs))
        side = None if keeps_types else 0.0
        return traced_in_float64(function, (args, kwargs), side, is_refused=False)

    setattr(call, _OPENING, True)
    return cast(F, call)


def traced_in_float64(
    function: Callable[..., Any],
    arguments: Any,
    side: float | tuple[float, ...] | None,
    is_refused: bool,
) -> Any:
    """The results of traced arguments, in the caller's types unless `side` is None."""
    leaves, structure = tree_flatten(arguments)
    traced = [isinstance(x, Tracer) for x in leaves]

    def of(*operands: Any) -> Any:
        rest = iter(operands)
        filled = [next(rest) if t else x for x, t in zip(leaves, traced, strict=True)]
        args, kwargs = _widened(jax.tree.unflatten(structure, filled))
        place = with_float64() if is_refused else contextlib.nullcontext()
        with place:
            result = function(*args, **kwargs)
            return result if side is None else _traced_result(result, side, is_refused)

    with opened():
        operands = [x for x, t in zip(leaves, traced, strict=True) if t]
        return isolated(of, *operands)


def _made(initial: Any, record: Any, *args: Any, **kwargs: Any) -> Any:
    """Another record of the same class, made from these arguments."""
    made = object.__new__(type(record))
    initial(made, *args, **kwargs)
    return made


def is_traced(arguments: Any) -> bool:
    """True if an argument is traced, or a function that may read what is traced around it."""
    leaves = tree_leaves(arguments)
    return not checks.all_concrete(leaves) or (is_tracing() and any(map(callable, leaves)))


def _widened(arguments: Any) -> Any:
    """The arguments, with doubles in records of the user's own classes, which check nothing."""

    def of_record(x: Any) -> Any:
        return jax.tree.map(_double, x) if is_record(x) and is_users(type(x)) else x

    return jax.tree.map(of_record, arguments, is_leaf=is_record)


def is_users(cls: type) -> bool:
    """True for a class of the user's own."""
    return not cls.__module__.startswith("jaxdp.")


def _double(x: Any) -> Any:
    is_real = isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.floating)
    return x.astype(np.float64) if is_real else x


def _on_numpy(arguments: Any) -> Any:
    """The arguments, with arrays of NumPy for those of JAX; keys stay as they are."""
    leaves, structure = tree_flatten(arguments)
    if not any(isinstance(x, jax.Array) for x in leaves):
        return arguments
    require_float64_of(arguments)
    return _widened(jax.tree.unflatten(structure, map(host_array, leaves)))


def as_numpy(result: Any) -> Any:
    """The result with numbers and arrays of NumPy; records keep their types."""
    if isinstance(result, np.ndarray):
        return result if result.ndim else result[()]
    if isinstance(result, jax.Array):
        return host_array(result)[()] if _is_numbers(result) else result
    if isinstance(result, tuple | list):
        return _rebuilt(result, map(as_numpy, result))
    if any(isinstance(x, jax.Array) for x in tree_leaves(result)):
        return jax.tree.map(host_array, result)
    return result


def host_array(x: Any) -> Any:
    """The array of NumPy of a known array of JAX, on whatever device; anything else as it is."""
    return np.asarray(x) if isinstance(x, jax.Array) and _is_numbers(x) else x


def _traced_result(result: Any, side: float | tuple[float, ...], is_refused: bool) -> Any:
    """The result, whose traced arrays cannot be compiled for a TPU, in the caller's types."""
    if isinstance(result, tuple | list):
        sides = side if isinstance(side, tuple) else (side,) * len(result)
        parts = zip(result, sides, strict=True)
        return _rebuilt(result, (_traced_result(x, each, is_refused) for x, each in parts))
    if checks.all_concrete(result):
        return as_numpy(result)
    assert not isinstance(side, tuple)
    marked = jax.tree.map(refused_on_tpu, result) if is_refused else result
    if is_record(marked):
        return with_data(marked, lambda x: narrowed(x, 0.0) if isinstance(x, Tracer) else x)
    return narrowed(marked, side) if isinstance(marked, Tracer) else marked


def _rebuilt(result: tuple[Any, ...] | list[Any], parts: Iterable[Any]) -> Any:
    return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)


def _is_numbers(x: Any) -> bool:
    return not isinstance(x, Tracer) and not jnp.issubdtype(x.dtype, jax.dtypes.extended)


def require_float64_of(arguments: Any) -> None:
    """`ValueError` for a record whose numbers JAX has rounded to float32 on their way here."""
    for record in tree_leaves(arguments, is_leaf=is_record):
        if is_record(record) and not (is_users(type(record)) or getattr(record, "is_data", False)):
            for leaf in numbers_of(record):
                if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating):
                    checks.require_float64(leaf.dtype, type(record).__name__)


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
