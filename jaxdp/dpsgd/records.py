"""Records of a training: arrays on devices, memory maps, or a function that reads a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding

from jaxdp._core import checks
from jaxdp._core.checks import records_of_tree
from jaxdp.dpsgd.checkpoint import digest_of


class Records(NamedTuple):
    """The number of records, how to read those of some indices, and a digest of them.

    read: from indices on the host to a tree of arrays with one row an index.
    """

    number: int
    read: Callable[[np.ndarray], Any]
    digest: Callable[[], str]


def records_of(data: Any, count: int | None) -> Records:
    """The records of a tree of arrays, or `count` records that the function `data` reads.

    Memory maps are read batch by batch; other arrays are put on the device once, sharded arrays
    stay where they are.
    """
    if callable(data):
        read, number = _reader(data), checks.positive_integer("records", count)
        # Of the first record and the number.
        return Records(number, read, lambda: digest_of(read(np.zeros(1, int)), str(number)))
    found = records_of_tree("data", data)
    if count not in (None, found):
        raise ValueError(f"records must be the {found} of data, or None, got {count}")
    if any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(data)):
        return Records(
            found,
            lambda indices: jax.tree.map(lambda x: np.asarray(x[indices]), data),
            lambda: digest_of(data),
        )
    arrays = on_device(data)
    return Records(found, lambda indices: _rows(arrays, indices), lambda: digest_of(arrays))


def _reader(data: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """The function, with a check that it returns a row for each index."""

    def read(indices: np.ndarray) -> Any:
        examples = data(indices)
        rows = records_of_tree("data(indices)", examples)
        if rows != len(indices):
            raise ValueError(
                f"data must return one row for each of {len(indices)} indices, got {rows}"
            )
        return examples

    return read


@jax.jit
def _rows(data: Any, indices: jax.Array) -> Any:
    """Rows of arrays on devices."""
    return jax.tree.map(lambda x: x[indices], data)


def on_device(tree: Any) -> Any:
    """Arrays where they lie, with axes of a mesh that the compiler divides, not types."""

    def placed(leaf: Any) -> jax.Array:
        # JAX compiles `asarray` for each shape.
        array = jax.device_put(leaf)
        sharding = array.sharding
        if not isinstance(sharding, NamedSharding):
            return array
        mesh: Any = sharding.mesh
        types = (AxisType.Auto,) * len(mesh.axis_names)
        auto = Mesh(mesh.devices, mesh.axis_names, axis_types=types)
        return jax.device_put(array, NamedSharding(auto, sharding.spec))

    return jax.tree.map(placed, tree)


def placed_as(given: Any, tree: Any) -> Any:
    """The arrays on the meshes of those that were given."""

    def placed(old: Any, new: Any) -> Any:
        sharding = getattr(old, "sharding", None)
        return jax.device_put(new, sharding) if isinstance(sharding, NamedSharding) else new

    return jax.tree.map(placed, given, tree)
