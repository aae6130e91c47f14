"""The different losses of a batch of concrete lanes: lanes whose terms are equal, byte by byte."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp.accountant.composition import Terms


class Loss(NamedTuple):
    """A loss, and its lanes in the batch."""

    key: Any  # its terms' kind and bytes
    lanes: np.ndarray

    def of(self, terms: Terms) -> Terms:
        """The terms of one lane of the batch `terms`, as a batch of one."""
        first = self.lanes[0]
        return jax.tree.map(lambda x: np.asarray(x)[first : first + 1], terms)


def losses_of(terms: Terms) -> list[Loss]:
    """The different losses of terms (lanes, releases)."""
    leaves, tree = jax.tree.flatten(terms)
    size = leaves[0].shape[0]
    flat = [np.ascontiguousarray(x).reshape(size, -1).view(np.uint8) for x in leaves]
    lanes: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.concatenate(flat, axis=1)):
        lanes.setdefault(row.tobytes(), []).append(i)
    kind = tree, tuple(x.shape[1:] for x in leaves)
    return [Loss((*kind, row), np.array(at)) for row, at in lanes.items()]
