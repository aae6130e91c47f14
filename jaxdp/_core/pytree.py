"""Immutable records that JAX can batch, jit and differentiate."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np
from jax.core import Tracer

# Largest number of entries that a representation lists. chosen: one line
_MOST_SHOWN = 4

T = TypeVar("T")
# Types that `pytree` has made.
_RECORDS: set[type] = set()


def is_record(value: object) -> bool:
    """True for an instance of a class that `pytree` has made."""
    return type(value) in _RECORDS


def numbers_of(record: Any) -> list[Any]:
    """The leaves of a record without `data`, whose precision is the user's."""
    fields = (f for f in dataclasses.fields(record) if not f.metadata)
    return jax.tree.leaves([getattr(record, f.name) for f in fields])


def with_data(record: T, function: Callable[[Any], Any]) -> T:
    """The record with function(leaf) for each leaf of its fields made by `data`."""
    fields: Any = dataclasses.fields(record)  # pyright: ignore[reportArgumentType]
    names = [f.name for f in fields if "data" in f.metadata]
    if names:
        record = copy.copy(record)
        assign(record, **{n: jax.tree.map(function, getattr(record, n)) for n in names})
    return record


def data(**kwargs: Any) -> Any:
    """A field with records in the precision that the user chose."""
    return dataclasses.field(metadata={"data": True}, **kwargs)


def static(**kwargs: Any) -> Any:
    """A field that is part of the tree's structure (a name, a flag): changing it recompiles."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def assign(record: object, **values: Any) -> None:
    """Set the fields of a frozen record, in its `__init__`."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass_transform(frozen_default=True, field_specifiers=(static, data, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Frozen dataclass from a class, registered with JAX: it goes through jit, vmap and grad.

    Args:
        cls: the class, with annotated fields; those made by `static` are not leaves.

    Returns:
        The dataclass.

    Use it for your own noise or pair. Rebuilding from leaves skips `__init__`, because JAX passes
    placeholders through trees: methods guard traced values themselves.

    >>> import jax
    >>> import jaxdp as dp
    >>> @dp.own.pytree
    ... class Point:
    ...     x: float
    ...     y: float
    >>> jax.tree.leaves(Point(1.0, 2.0))
    [1.0, 2.0]
    """
    cls = dataclasses.dataclass(frozen=True, repr=False)(cls)
    if "__repr__" not in vars(cls):
        setattr(cls, "__repr__", _shown_record)  # noqa: B010
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    statics = tuple(f.name for f in fields if f.metadata.get("static"))

    names = leaves + statics

    def flatten_with_keys(tree: T):
        keyed = tuple((jax.tree_util.GetAttrKey(n), getattr(tree, n)) for n in leaves)
        return keyed, tuple(getattr(tree, n) for n in statics)

    def flatten(tree: T):
        # Every question flattens: `map` takes no call of Python's for each field.
        get = functools.partial(getattr, tree)
        return tuple(map(get, leaves)), tuple(map(get, statics))

    def unflatten(values: tuple[Any, ...], children: Iterable[Any]) -> T:
        tree = object.__new__(cls)
        vars(tree).update(zip(names, (*children, *values), strict=True))
        return tree

    _RECORDS.add(cls)
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _shown_record(record: Any) -> str:
    """`Name(field=value, ...)` with 4 digits, without fields that are None or the default."""
    shown = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        is_told = isinstance(value, jax.Array | np.ndarray) or value not in (None, field.default)
        if field.repr and is_told:
            shown.append(f"{field.name}={_shown(value)}")
    return f"{type(record).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, Tracer):
        return f"traced {value.aval}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})" if len(value) <= _MOST_SHOWN else "(...)"
    is_array = isinstance(value, jax.Array | np.ndarray) and value.dtype.kind in "fi"
    if not is_array and not isinstance(value, float | np.number):
        return repr(value)
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{float(array):.4g}" if array.dtype.kind == "f" else f"{array}"
    if array.size > _MOST_SHOWN:
        return f"{array.dtype}{list(array.shape)}"
    return np.array2string(array, precision=4, separator=", ").replace("\n", "")
