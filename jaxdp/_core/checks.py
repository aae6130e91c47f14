"""Checks of arguments: concrete bad values raise `ValueError`, traced ones become NaN.

Every comparison with NaN is False, so nothing downstream can take it for a small delta.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import tree_leaves

from jaxdp._core.namespace import in_kernel, xp
from jaxdp._core.precision import is_open
from jaxdp._core.types import ArrayLike, Bools, Reals


def same_length(lengths: Mapping[str, int], what: str = "records") -> int:
    """The one length that arrays have, by name; `ValueError` names two that differ, and both."""
    (first, length), *others = lengths.items()
    for name, other in others:
        if other != length:
            raise ValueError(f"{name} must have as many {what} as {first}, {length}, got {other}")
    return length


def number_of_records(lengths: Mapping[str, int]) -> int:
    """The length that arrays of records share, at least 1."""
    records = same_length(lengths)
    if records < 1:
        raise ValueError(f"{next(iter(lengths))} must hold 1 record at least, got 0")
    return records


def records_of_tree(name: str, tree: Any) -> int:
    """The number of records of a tree of arrays, each named by its place in the tree."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if not leaves:
        raise ValueError(f"{name} must hold an array, got {tree!r}")
    lengths = {}
    for path, leaf in leaves:
        place = name + jax.tree_util.keystr(path)
        if not np.shape(leaf):
            raise ValueError(
                f"{place} must be an array with the records along its first axis, got one number"
            )
        lengths[place] = np.shape(leaf)[0]
    return number_of_records(lengths)


# Least normal double. XLA on a CPU replaces smaller positive numbers by 0.
LEAST_NORMAL = float(np.finfo(np.float64).tiny)
# Largest number of releases. An infinite number has no law.
LARGEST = float(np.finfo(np.float64).max)


def require_float64(dtype: Any = None, of: str = "") -> None:
    """`ValueError` where a traced number of privacy, or a record's, is narrower than float64."""
    if not is_open() if dtype is None else dtype != np.float64:
        where = f"the numbers of {of} are {dtype}" if of else "JAX runs in float32 here"
        raise ValueError(
            f"jaxdp computes privacy in float64, and {where}: without jax_enable_x64, jit, vmap, "
            "grad and loops round the numbers of a record that they take to float32. Pass numbers "
            "and make the record inside, or use `with jax.enable_x64(True):` around the call"
        )


# Of noise: its draws keep 53 bits above the least normal number, 2^-1022. derived
_LEAST_SCALE = 2.0**-969


def is_concrete(value: object) -> bool:
    """True if the value is a number and not traced."""
    return not isinstance(value, Tracer)


def all_concrete(*trees: object) -> bool:
    """True if every array in the trees is concrete."""
    # A list: a generator takes a call of Python's for each array.
    return not any([isinstance(x, Tracer) for x in tree_leaves(trees)])  # noqa: C419


def real(
    name: str,
    value: ArrayLike,
    lower: float = -np.inf,
    upper: float = np.inf,
    *,
    open_lower: bool = False,
    lift: bool = False,
) -> Reals:
    """`value` as float64, known to lie in [lower, upper] (or (lower, upper]) or to be NaN.

    `lift`: a positive number that is less than the least normal one becomes that one.
    """
    if type(value) is float:  # what most questions ask; a subnormal one goes on
        inside = lower < value <= upper or (lower == value and not open_lower)
        if inside and not 0 < value < LEAST_NORMAL:
            return _frozen(np.array(value))
    if isinstance(value, list | tuple):
        # NumPy: JAX overflows where a whole number is too large, and says not whose.
        value = np.asarray(value) if all_concrete(value) else jnp.asarray(value)
    if is_concrete(value):
        array = np.asarray(value)
        if array.dtype.kind not in "fiu" and array.dtype != jnp.bfloat16:
            raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}")
        if array.dtype.itemsize > 8:
            raise ValueError(f"{name} must be float64, got {array.dtype}: round to the safe side")
        # In float64: the bounds would be rounded to a smaller precision, to 0 and to infinity.
        known = np.array(array, dtype=np.float64)  # a copy: its owner may write to it
        bad = ~(known > lower if open_lower else known >= lower) | ~(known <= upper)
        if in_kernel():
            known = np.where(bad, np.nan, known)
        elif bad.any():
            first = array[bad].flat[0] if array.ndim else array
            # Of what is positive only a subnormal number is refused.
            if lower == LEAST_NORMAL and not first > 0:
                open_lower, lower = True, 0.0
            bracket = "(" if open_lower else "["
            raise ValueError(f"{name} must lie in {bracket}{lower:g}, {upper:g}], got {first}")
        lost = (array > 0) & (known < LEAST_NORMAL)
        if lift and lost.any():
            return _frozen(np.where(lost, LEAST_NORMAL, known))
        return _frozen(known)
    require_float64()
    return _inside(jnp.asarray(value), float(lower), float(upper), open_lower, lift)


# One program: eager derivatives and maps would compile each operation.
@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _inside(array: Any, lower: float, upper: float, open_lower: bool, lift: bool) -> Reals:
    """A traced value of `real`."""
    # A half's subnormal numbers are normal doubles, and are converted as such.
    if lift and jnp.issubdtype(array.dtype, jnp.floating) and array.dtype != jnp.float16:
        array = jnp.where(_subnormal(array), jnp.finfo(array.dtype).tiny, array)
    array = array.astype(jnp.float64)
    # A bound that holds anyway would be compiled wherever the value is read.
    if lower > -np.inf or open_lower:
        array = jnp.where(array > lower if open_lower else array >= lower, array, jnp.nan)
    return array if upper == np.inf else jnp.where(array <= upper, array, jnp.nan)


def _frozen(array: np.ndarray) -> Any:
    """The array, which no one can write to: records keep it."""
    array.setflags(write=False)
    return array


def _subnormal(array: Reals) -> Bools:
    """True if a traced number is positive and subnormal: by its bits, as comparisons see 0."""
    kind = jnp.finfo(array.dtype)
    bits = jax.lax.bitcast_convert_type(array, jnp.dtype(f"uint{kind.bits}"))
    # Unsigned, a negative number is a large one; a TPU has no other bits of float64.
    return (bits > 0) & (bits < 1 << kind.nmant)


def positive(name: str, value: ArrayLike) -> Reals:
    """A scale: above zero, and no subnormal number; infinite means that nothing is learnt."""
    return real(name, value, LEAST_NORMAL)


def nonnegative(name: str, value: ArrayLike) -> Reals:
    """A sensitivity or a parameter of a guarantee: zero or more. A subnormal one is lifted."""
    return real(name, value, 0.0, lift=True)


def zero_or_positive(name: str, value: ArrayLike, upper: float = np.inf) -> Reals:
    """A part of a scale, in [0, upper]: no subnormal number."""
    value = real(name, value, 0.0, upper)
    if is_concrete(value):
        known = np.asarray(value)
        real(name, np.where(known == 0, 1.0, known), LEAST_NORMAL)
        return value
    return jnp.where(_subnormal(value), jnp.nan, value)


def probability(name: str, value: ArrayLike, *, lift: bool = False) -> Reals:
    """In [0, 1] or NaN. `lift`: see `real`; not for targets, which may become 0."""
    return real(name, value, 0.0, 1.0, lift=lift)


def whole(name: str, value: ArrayLike, lower: float = 0.0, upper: float = np.inf) -> Reals:
    """A count: a whole number in [`lower`, `upper`]; NaN where a traced value is not."""
    count = real(name, value, lower, upper)
    is_whole = count == xp.round(count)
    if in_kernel() or not is_concrete(count):
        return xp.where(is_whole, count, xp.nan)
    if not np.all(is_whole):
        raise ValueError(f"{name} must be whole, got {value}")
    return count


def distance(name: str, value: ArrayLike, is_whole: bool) -> Reals:
    """A distance of two query values, whole where the query's values are."""
    return whole(name, value) if is_whole else nonnegative(name, value)


def positive_integer(name: str, value: Any) -> int:
    """A size or a number of steps that shapes a program: concrete, 1 or more."""
    try:
        is_good = not isinstance(value, bool) and 1 <= float(value) < np.inf and int(value) == value
    except (OverflowError, TypeError, ValueError):  # no number, more than one, or too large
        is_good = False
    if not is_good:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def noise_scale(name: str, value: Reals) -> Reals:
    """The scale of noise that a plan adds: at least 2^-969, so that the noise is there.

    XLA on a CPU flushes numbers below 2^-1022 to 0, so draws at a scale just above are mostly 0. A
    smaller traced scale becomes NaN; infinite is legal.
    """
    return real(name, value, _LEAST_SCALE)


def of_records(name: str, value: ArrayLike, largest: float = np.inf) -> Reals:
    """Values of records, in [-largest, largest]: no message prints one. Traced: NaN beyond."""
    if isinstance(value, list | tuple):
        value = np.asarray(value) if all_concrete(value) else jnp.asarray(value)
    numbers = is_concrete(value) and jnp.issubdtype(np.asarray(value).dtype, jnp.number)
    # A float64 bound: a Python float would be rounded to the values' own precision, to infinity.
    if numbers and not (np.abs(np.asarray(value)) <= np.float64(largest)).all():
        raise ValueError(
            f"{name} must lie in [-{largest:g}, {largest:g}], and some values do not: they are "
            "of records, and not printed"
        )
    return real(name, value, -largest, largest)


def array_of_records(name: str, value: Any) -> np.ndarray:
    """Values of records as a float64 array of the host; no message prints one."""
    try:
        array = np.asarray(value)
        if not np.iscomplexobj(array):
            return array.astype(np.float64)
    except (OverflowError, TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be an array of real numbers")


def guard(value: Reals, upper: float = np.inf) -> Reals:
    """A stored parameter as it may have come through a transformation: NaN outside [0, upper]."""
    inside = value >= 0
    return xp.where(inside if upper == np.inf else inside & (value <= upper), value, np.nan)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """A named choice."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return value


def extra(module: str, extra_name: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is needed here: pip install 'jaxdp-privacy[{extra_name}]'"
        ) from error
