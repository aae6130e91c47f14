"""Exact sums of records by cell, from any number of chunks of records.

Sums of doubles are kept without rounding: as whole numbers of 53 bits, by exponent and cell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from jaxdp.tables.cells import Cells, Sorter
from jaxdp.tables.labels import DROP, MISSING, numbers_of, present, require_present
from jaxdp.tables.query import LARGEST, Query
from jaxdp.tables.unknown import count_labels, text_of_label

# Records that are added at once. derived: as many halves of 27 bits add up below 2^53
_MOST_AT_ONCE = 2**25
# Bits of the smaller half of a whole number.
_HALF = 27


class Tally:
    """Exact counts and sums of a plan's statistics, from chunks of records."""

    def __init__(self, queries: Sequence[Query]):
        self._queries = queries
        self._sorters = {c: Sorter(c) for query in queries for c in query.cells}
        # Of quantiles a histogram, whose bins are the points of the grid.
        self._sums = [
            ExactSums(math.prod(q.shape) * (q.points if q.probabilities else 1)) for q in queries
        ]
        self._labels = {
            i: Counter[str]() for i, q in enumerate(queries) if q.unknown_delta is not None
        }
        self._size = 0

    def add(self, columns: Mapping[str, Sequence[Any]], mask: np.ndarray | None = None) -> None:
        """Add the records of the mask, by column. No error shows a value."""
        indices, size = self._indices(columns)
        # A column of numbers that is counted, too, has the same values present in both.
        summed = {q.column for q in self._queries if q.statistic != "count"}
        numbers = {x: numbers_of(columns[x], x, self._size) for x in summed if x is not None}
        for i, (query, sums) in enumerate(zip(self._queries, self._sums, strict=True)):
            place, column = _in_table(query.cells, indices, size), query.column
            place = place if mask is None else np.where(mask, place, -1)
            if i in self._labels and column is not None:
                count_labels(self._labels[i], column, columns[column], place)
            elif column is None:
                sums.count(place)
            elif query.statistic == "count":
                there = numbers[column][1] if column in numbers else present(columns[column])
                sums.count(np.where(there, place, -1))
            elif query.probabilities:
                cell, values = self._placed(query, place, *numbers[column])
                point = np.rint((values - query.lower) / float(query.unit)).astype(np.int64)
                point = np.clip(point, 0, query.points - 1)
                sums.count(np.where(cell >= 0, cell * query.points + point, -1))
            else:
                sums.add(*self._placed(query, place, *numbers[column]))
        self._size += size

    def finest_cells(self, columns: Mapping[str, Sequence[Any]]) -> list[Hashable]:
        """The cell of each record by all columns of cells; None if it is in no table."""
        indices, size = self._indices(columns)
        names = [name for query in self._queries for name in query.unknown_columns]
        labels = {name: [*map(text_of_label, columns[name])] for name in names}
        is_inside = np.zeros(size, bool)
        for query in self._queries:
            inside = _in_table(query.cells, indices, size) >= 0
            for name in query.unknown_columns:
                inside &= [label not in MISSING for label in labels[name]]
            is_inside |= inside
        parts = [index.tolist() for index in indices.values()] + [*labels.values()]
        keys = zip(*parts, strict=True) if parts else [()] * size
        return [key if there else None for key, there in zip(keys, is_inside, strict=True)]

    def _indices(self, columns: Mapping[str, Sequence[Any]]) -> tuple[dict[Cells, np.ndarray], int]:
        """The cell of each record by columns of cells, and the number of records."""
        (size,) = {len(values) for values in columns.values()}
        return {c: sorter.index(columns[c.column]) for c, sorter in self._sorters.items()}, size

    def _placed(
        self, query: Query, place: np.ndarray, numbers: np.ndarray, there: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cells and clipped values of a sum, by its rule for missing values."""
        if query.missing is None and query.column is not None:
            require_present(there, query.column, self._size)
        if query.missing == DROP:
            place, numbers = np.where(there, place, -1), np.where(there, numbers, 0.0)
        elif query.missing is not None:
            numbers = np.where(there, numbers, query.missing)
        return place, np.clip(numbers, query.lower, query.upper)

    def totals(self) -> list[list[int]]:
        """For each statistic its cells in units, in the order of its columns.

        A quantile has counts by cell and point of the grid, unknown categories have their counts.
        """
        for sorter in self._sorters.values():
            sorter.require_a_kind()
        totals = []
        for i, (query, sums) in enumerate(zip(self._queries, self._sums, strict=True)):
            if i in self._labels:
                totals.append([self._labels[i][label] for label in self.labels(i)])
            elif query.statistic in ("count", "quantile"):
                totals.append(sums.counts.tolist())
            else:
                totals.append(sums.in_units(query.middle, query.unit))
        return totals

    def labels(self, index: int) -> list[str]:
        """The labels of a statistic whose categories the records bring, sorted."""
        return sorted(self._labels[index])


def _in_table(cells: Sequence[Cells], indices: Mapping[Cells, np.ndarray], size: int) -> np.ndarray:
    """The cell of each record in a table of these columns, -1 for records in none."""
    place, inside = np.zeros(size, np.int64), np.ones(size, bool)
    for c in cells:
        place = place * len(c.names) + indices[c]
        inside &= indices[c] >= 0
    return np.where(inside, place, -1)


class ExactSums:
    """Sums of doubles by cell, without rounding, and the numbers of those added."""

    def __init__(self, cells: int):
        self._cells = cells
        self._parts = dict[int, tuple[np.ndarray, np.ndarray]]()
        self.counts = np.zeros(cells, np.int64)

    def count(self, place: np.ndarray) -> None:
        """Count records in their cells."""
        self.counts += np.bincount(place[place >= 0], minlength=self._cells)

    def add(self, place: np.ndarray, values: np.ndarray) -> None:
        """Add finite doubles to their cells; those in no cell, -1, are left out."""
        for start in range(0, len(values), _MOST_AT_ONCE):
            chunk = slice(start, start + _MOST_AT_ONCE)
            self.count(place[chunk])
            self._add(place[chunk], values[chunk])

    def _add(self, place: np.ndarray, values: np.ndarray) -> None:
        mantissas, exponents = np.frexp(values)
        whole = np.ldexp(mantissas, 53).astype(np.int64)
        for exponent in np.unique(exponents[place >= 0]).tolist():
            chosen = (exponents == exponent) & (place >= 0)
            where, part = place[chosen], whole[chosen]
            high, low = self._parts.setdefault(
                exponent, (np.zeros(self._cells, np.int64), np.zeros(self._cells, np.int64))
            )
            # Sums of halves below 2^53 are exact in doubles, and below 2^63 for 2^36 records.
            high += self._sums(where, part >> _HALF)
            low += self._sums(where, part & (2**_HALF - 1))

    def _sums(self, where: np.ndarray, halves: np.ndarray) -> np.ndarray:
        return np.bincount(where, halves, self._cells).astype(np.int64)

    def total(self, cell: int) -> Fraction:
        """The exact sum in a cell."""
        parts = (
            (int(high[cell]) * 2**_HALF + int(low[cell])) * Fraction(2) ** (exponent - 53)
            for exponent, (high, low) in self._parts.items()
        )
        return sum(parts, Fraction(0))

    def in_units(self, middle: float, unit: Fraction) -> list[int]:
        """The sums of values less `middle`, rounded once to whole units, and clipped."""
        rounded = []
        for cell, count in enumerate(self.counts.tolist()):
            units = (self.total(cell) - count * Fraction(middle)) / unit
            # Half up: unlike half to even it commutes with whole numbers.
            nearest = math.floor(units + Fraction(1, 2))
            rounded.append(max(-LARGEST, min(nearest, LARGEST)))
        return rounded
