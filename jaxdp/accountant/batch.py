"""A batch of lanes: terms, the value of each lane, and the table of its different losses.

Lanes whose terms are equal, byte by byte, are one loss. Batches that are picked from a batch share
its table. Each loss is tabulated once, when an engine first reads it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.types import Lanes
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.tables import Table, alike, require_consistent, tabled


class Loss(NamedTuple):
    """A loss, and its lanes in the batch."""

    key: Any  # its terms' kind and bytes
    lanes: np.ndarray


class Batch:
    """Terms (lanes, releases), and the epsilon or the delta of every lane."""

    def __init__(
        self, terms: Terms, values: Lanes, tables: _Tables | None = None, rows: Any = None
    ):
        self.terms, self.values = terms, values
        self._tables, self._rows = tables, rows

    @classmethod
    def of_concrete(cls, terms: Terms, values: Lanes) -> Batch:
        """A batch of concrete lanes, which tabulates each loss once."""
        return cls(terms, values, _Tables(terms))

    def at(self, lanes: Any, values: Lanes | None = None) -> Batch:
        """Some concrete lanes, with other values if given."""
        rows = lanes if self._rows is None else self._rows[lanes]
        values = np.asarray(self.values)[lanes] if values is None else values
        terms = jax.tree.map(lambda x: x[lanes], self.terms)
        return Batch(terms, values, self._tables, rows)

    @property
    def table(self) -> Table:
        """The table of all lanes."""
        return tabled(self.terms) if self._tables is None else self._tables.at(self._rows)

    @property
    def losses(self) -> list[Loss]:
        """The different losses of concrete lanes."""
        tables = self._tables
        assert tables is not None
        numbers = tables.numbers if self._rows is None else tables.numbers[self._rows]
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        parts = np.split(order, starts[1:])
        return [Loss(tables.keys[numbers[lanes[0]]], lanes) for lanes in parts if lanes.size]


class _Tables:
    """The tables of the different losses of concrete terms (lanes, releases)."""

    def __init__(self, terms: Terms):
        self._terms = terms
        self._table: Any = None
        self._is_made = np.zeros(0, bool)

    @cached_property
    def _losses(self) -> tuple[np.ndarray, dict[bytes, int]]:
        """The number of each lane's loss, and the bytes of every loss."""
        leaves = jax.tree.leaves(self._terms)
        size = leaves[0].shape[0]
        flat = [np.ascontiguousarray(x).reshape(size, -1).view(np.uint8) for x in leaves]
        found: dict[bytes, int] = {}
        rows = np.concatenate(flat, axis=1)
        return np.array([found.setdefault(x.tobytes(), len(found)) for x in rows]), found

    @property
    def numbers(self) -> np.ndarray:
        """The number of each lane's loss."""
        return self._losses[0]

    @cached_property
    def keys(self) -> list[Any]:
        """Kind and bytes of each loss."""
        leaves, tree = jax.tree.flatten(self._terms)
        kind = tree, tuple(x.shape[1:] for x in leaves)
        return [(*kind, row) for row in self._losses[1]]

    def at(self, lanes: Any) -> Table:
        """The table of some lanes, or of all if None."""
        numbers = self.numbers if lanes is None else self.numbers[lanes]
        if self._is_made.size == 0:
            self._is_made = np.zeros(len(self._losses[1]), bool)
        wanted, first = np.unique(numbers, return_index=True)
        is_new = ~self._is_made[wanted]
        if is_new.any():
            place = first[is_new] if lanes is None else lanes[first[is_new]]
            self._fill(wanted[is_new], place)
        return jax.tree.map(lambda x: x[numbers], self._table)

    def _fill(self, numbers: np.ndarray, lanes: np.ndarray) -> None:
        terms = jax.tree.map(lambda x: x[lanes], self._terms)
        new = jax.tree.map(np.asarray, tabled(terms))
        require_consistent(new.number, terms)
        if self._table is None:
            size = self._is_made.size
            self._table = jax.tree.map(lambda x: np.empty((size, *x.shape[1:]), x.dtype), new)
        else:
            self._table, new = jax.tree.map(np.asarray, alike((self._table, new)))
        for of_all, of_new in zip(jax.tree.leaves(self._table), jax.tree.leaves(new), strict=True):
            of_all[numbers] = of_new
        self._is_made[numbers] = True
