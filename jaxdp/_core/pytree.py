"""Immutable records that JAX can batch, jit and differentiate."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A field that is part of the tree's structure (a name, a flag): changing it recompiles."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def assign(record: object, **values: Any) -> None:
    """Set the fields of a frozen record, in its `__init__`."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Frozen dataclass from a class, registered with JAX: it goes through jit, vmap and grad.

    Args:
        cls: the class, with annotated fields; those made by `static` are not leaves.

    Returns:
        The dataclass.

    For a noise or a guarantee of your own. Rebuilding from leaves skips `__init__`: JAX passes
    placeholders through trees, and checks belong where a user makes a value. Methods therefore
    guard traced values themselves.

    >>> import jax
    >>> import jaxdp as dp
    >>> @dp.pytree
    ... class Point:
    ...     x: float
    ...     y: float
    >>> jax.tree.leaves(Point(1.0, 2.0))
    [1.0, 2.0]
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    statics = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten_with_keys(tree: T):
        keyed = tuple((jax.tree_util.GetAttrKey(n), getattr(tree, n)) for n in leaves)
        return keyed, tuple(getattr(tree, n) for n in statics)

    def flatten(tree: T):
        # Every question flattens: `map` takes no call of Python's for each field.
        get = functools.partial(getattr, tree)
        return tuple(map(get, leaves)), tuple(map(get, statics))

    def unflatten(values: tuple[Any, ...], children: Iterable[Any]) -> T:
        tree = object.__new__(cls)
        assign(tree, **dict(zip(leaves + statics, (*children, *values), strict=True)))
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
