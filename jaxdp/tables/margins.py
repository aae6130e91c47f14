"""Weighted least squares that makes released tables consistent with their margins.

Tables that count or sum the same records are margins of one table of all their columns. Each is
released with its own noise, so that they disagree. The least-squares estimate x of the whole table
minimises the sum over tables T of |A_T x - y_T|^2 / variance_T, where A_T sums cells, and its sums
A_R x are the consistent tables R, released or not. This processes released numbers only.

A_T^T A_T is a product over columns: the identity for a column of T, ones everywhere for the others,
n times the projection P on constants. With Q = 1 - P the spaces of the products of P and Q, one for
each set S of columns with the factor Q, are eigenspaces of all tables at once. T has the eigenvalue
product of the n of the columns outside of T if S is a set of its columns, else 0. So

    A_R x = sum over T and S within R and T of A_R P_S A_T^T y_T / (variance_T eigenvalue_S),

where eigenvalue_S = sum over T that hold S of product(n outside of T) / variance_T. An
interaction that is in none of the tables is 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxdp.tables.cells import Cells
from jaxdp.tables.keys import Entry

Columns = frozenset[Cells]


def families_of(entries: Sequence[Entry]) -> list[tuple[int, ...]]:
    """The indices of the tables that are margins of one table, together.

    They have one statistic of one column. Summed over a column, cells are all records if one of
    them is the cell of all others. So the columns without such a cell must be in all of them.
    """
    families = dict[object, list[int]]()
    for i, entry in enumerate(entries):
        partial = frozenset(cells for cells in entry.cells if not cells.has_other)
        if entry.probabilities or entry.unknown_delta is not None:
            families[i] = [i]
            continue
        values = (entry.column, entry.lower, entry.upper, entry.missing)
        key = (entry.statistic, values, partial)
        families.setdefault(key, []).append(i)
    return [tuple(members) for members in families.values()]


def shown(entries: Sequence[Entry]) -> list[tuple[int, tuple[Cells, ...]]]:
    """The tables to show, as statistics and columns: margins that are wanted, each table once."""
    tables = [(i, entry.cells) for i, entry in enumerate(entries)]
    family = {i: members for members in families_of(entries) for i in members}
    seen = {(family[i], frozenset(cells)) for i, cells in tables}
    found = []
    for i, cells in tables:
        found.append((i, cells))
        margins = [*subsets(cells)][1:] if entries[i].margins else []
        for margin in margins:
            if (family[i], frozenset(margin)) not in seen:
                seen.add((family[i], frozenset(margin)))
                found.append((i, margin))
    return found


class Family(NamedTuple):
    """Tables that are margins of one table.

    members: their indices in the plan; tables: the columns of each, in the order of its axes;
    variances: of the noise of each, in the column's unit squared.
    """

    members: tuple[int, ...]
    tables: tuple[tuple[Cells, ...], ...]
    variances: tuple[float, ...]

    def estimate(self, released: Sequence[np.ndarray], wanted: tuple[Cells, ...]) -> np.ndarray:
        """The consistent table of the wanted columns, from the released ones."""
        total = np.zeros(_shape(wanted))
        for table, variance, values in zip(self.tables, self.variances, released, strict=True):
            common = [cells for cells in wanted if cells in table]
            apart = tuple(i for i, cells in enumerate(table) if cells not in common)
            kept = [cells for cells in table if cells in common]
            sums = np.asarray(np.sum(values.reshape(_shape(table)), axis=apart))
            sums = np.transpose(sums, [kept.index(cells) for cells in common])
            part = np.zeros(_shape(common))
            for held, factor in self._factors(wanted, table, variance):
                part = part + factor * _projected(sums, [cells in held for cells in common])
            axes = [len(cells.names) if cells in common else 1 for cells in wanted]
            total = total + part.reshape(axes)
        return np.asarray(total)

    def weights(self, wanted: tuple[Cells, ...]) -> Iterator[tuple[int, float, int]]:
        """Terms of a number of the consistent table: member, weight and number of cells.

        The entries of A_R P_S A_T^T depend on where two cells agree: in a column where they
        agree, Q has 1 - 1 / n, in the others -1 / n, and P has 1 / n everywhere.
        """
        for member, table, variance in zip(self.members, self.tables, self.variances, strict=True):
            common = [cells for cells in wanted if cells in table]
            apart = math.prod(len(cells.names) for cells in table if cells not in common)
            factors = [*self._factors(wanted, table, variance)]
            for agree in _subsets(common):
                count = math.prod(len(c.names) - 1 for c in common if c not in agree) * apart
                weight = sum(
                    factor
                    * math.prod(
                        ((c in agree) if c in held else 0.0) + (1 - 2 * (c in held)) / len(c.names)
                        for c in common
                    )
                    for held, factor in factors
                )
                if count:
                    yield member, weight, count

    def _factors(
        self, wanted: Sequence[Cells], table: Sequence[Cells], variance: float
    ) -> Iterator[tuple[Columns, float]]:
        """The sets S within both tables, and the factor of P_S in each."""
        whole = {cells for table in self.tables for cells in table}
        outside = math.prod(len(c.names) for c in whole if c not in wanted and c not in table)
        for held in _subsets([cells for cells in wanted if cells in table]):
            eigenvalue = sum(
                math.prod(len(c.names) for c in whole if c not in other) / spread
                for other, spread in zip(self.tables, self.variances, strict=True)
                if held <= {*other}
            )
            yield held, outside / (variance * eigenvalue)


def _projected(values: np.ndarray, held: Sequence[bool]) -> np.ndarray:
    """Q along the axes of `held`, P along the others."""
    for axis, is_held in enumerate(held):
        mean = np.mean(values, axis=axis, keepdims=True)
        values = values - mean if is_held else np.broadcast_to(mean, values.shape)
    return values


def subsets(columns: Sequence[Cells]) -> Iterator[tuple[Cells, ...]]:
    """All selections of columns, the largest first, in their order."""
    for size in range(len(columns), -1, -1):
        yield from itertools.combinations(columns, size)


def _subsets(columns: Sequence[Cells]) -> Iterator[Columns]:
    return map(frozenset, subsets(columns))


def _shape(table: Sequence[Cells]) -> tuple[int, ...]:
    return tuple(len(cells.names) for cells in table)
