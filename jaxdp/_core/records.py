"""Checks of arrays that hold one entry a record: as many in each, and no index beyond the shortest.

JAX reads an index that is out of range as the last entry, without a word: one record would stand
in for many, and move an answer by more than a guarantee covers. Shapes are known in a trace too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def first_axis(name: str, array: Any) -> int:
    """The length of an array's first axis; `ValueError` for a number, which has none."""
    shape = np.shape(array)
    if not shape:
        raise ValueError(
            f"{name} must be an array with the records along its first axis, got one number"
        )
    return shape[0]


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
    named = {name + jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    return number_of_records({key: first_axis(key, leaf) for key, leaf in named.items()})
