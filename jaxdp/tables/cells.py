"""Public cells of a column: categories, bins of numbers, or days, months and years of dates.

A record is in one cell at most, so that adding or removing it changes one cell of a table. Cells
are public: none of them comes from the records.
"""

from __future__ import annotations

import bisect
import datetime
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxdp.tables.fields import LARGEST, flag_of, one_of
from jaxdp.tables.labels import MISSING, ColumnError, Label, label_of, normal, overlap

CELL_KEYS = ("categories", "bins", "unit", "first", "last", "other")
# Name of the cell of all records that are in no other one.
_OTHER = "other"
# Cells of a column or a table. chosen: noise for a million cells is drawn in a second
MOST_CELLS = 10**6
# Number of the period that a day is in, by unit. Day 1 of Python's calendar is a Monday.
_PERIODS: dict[str, Callable[[datetime.date], int]] = {
    "day": datetime.date.toordinal,
    "week": lambda day: (day.toordinal() - 1) // 7,
    "month": lambda day: 12 * day.year + day.month - 1,
    "quarter": lambda day: 4 * day.year + (day.month - 1) // 3,
    "year": lambda day: day.year,
}
UNITS = tuple(_PERIODS)
# Names of periods by their numbers.
_PERIOD_NAMES: dict[str, Callable[[int], str]] = {
    "day": lambda n: datetime.date.fromordinal(n).isoformat(),
    "week": lambda n: "{}-W{:02}".format(*datetime.date.fromordinal(7 * n + 1).isocalendar()[:2]),
    "month": lambda n: f"{n // 12:04}-{n % 12 + 1:02}",
    "quarter": lambda n: f"{n // 4:04}-Q{n % 4 + 1}",
    "year": lambda n: f"{n:04}",
}


class Cells(NamedTuple):
    """The cells of one column.

    names: of the cells, `other` last if `has_other`; labels, edges, unit: of categories, of bins or
    of dates, whose first period has the number `first`.
    """

    column: str
    names: tuple[str, ...]
    has_other: bool
    labels: tuple[Label, ...]
    edges: tuple[float, ...]
    unit: str | None
    first: int

    @property
    def kinds(self) -> set[str]:
        """The kinds of values that the column must hold, in the plural."""
        if self.labels:
            return {"texts" if label.is_text else label.kind for label in self.labels}
        return {"numbers" if self.edges else "dates"}


class Sorter:
    """Sorts values of a column into its cells, any number of times.

    A value that is in no cell has the index of the cell of all others, or -1 without one.
    """

    def __init__(self, cells: Cells):
        self._cells = cells
        self._by_label: dict[str | Label, int] = {
            label.texts[0] if label.is_text else label: i for i, label in enumerate(cells.labels)
        }
        self._found = set[tuple[str, bool]]()
        self._rest = len(cells.names) - 1 if cells.has_other else -1

    def index(self, values: Sequence[Any]) -> np.ndarray:
        """The cell of each value."""
        try:
            # By type as well: True is 1 in a dictionary.
            known = {
                (kind, value): self._cell(value)
                for kind, value in set(zip(map(type, values), values, strict=True))
            }
            indices = map(known.__getitem__, zip(map(type, values), values, strict=True))
        except TypeError:  # scalars of JAX
            indices = map(self._cell, values)
        return np.fromiter(indices, np.int64, len(values))

    def require_a_kind(self) -> None:
        """`ColumnError` if no value that was sorted could be in a cell, by its type."""
        cells, found = self._cells, self._found
        kinds = {label.kind for label in cells.labels} or cells.kinds
        has_texts = any(label.is_text for label in cells.labels)
        if not found or any(k in kinds or (is_text and has_texts) for k, is_text in found):
            return
        words = "categories are" if cells.labels else "bins are" if cells.edges else "unit divides"
        example = {"numbers": ": write 1234.5", "dates": ": write 2025-12-31"}
        kinds = _listed(cells.kinds)
        raise ColumnError(
            f"column {cells.column!r} must hold what its {words}, {kinds}, and "
            f"holds {_listed({kind for kind, _ in found})} alone: no record could be counted"
            + example.get(kinds, "")
        )

    def _cell(self, value: Any) -> int:
        label = label_of(value)
        if label is None:
            return self._rest
        found = self._of_label(label)
        if found is None and label.is_text and label.texts[0] in MISSING:
            return self._rest
        self._found.add((label.kind, label.is_text))
        return self._rest if found is None else found

    def _of_label(self, label: Label) -> int | None:
        """The cell of a label; None if only the cell of all others holds it."""
        cells = self._cells
        if cells.labels:
            names = (label, *label.texts)
            return next((self._by_label[name] for name in names if name in self._by_label), None)
        if cells.edges and label.kind == "numbers":
            edges = cells.edges
            if not edges[0] <= label.value <= edges[-1]:
                return None
            return min(bisect.bisect_right(edges, label.value), len(edges) - 1) - 1
        if cells.unit is not None and label.kind == "dates":
            period = _PERIODS[cells.unit](label.value) - cells.first
            return period if 0 <= period < len(cells.names) - cells.has_other else None
        return None


def cells_of(place: str, column: str, table: Mapping[str, Any]) -> Cells:
    """The cells of a column, from the keys of its table in the plan."""
    given = [key for key in ("categories", "bins", "unit") if key in table]
    other = flag_of(place, table, "other")
    if len(given) != 1:
        raise ValueError(f"{place}: give one of categories, bins and unit, got {given}")
    (kind,) = given
    for key in ("first", "last"):
        if kind != "unit" and key in table:
            raise ValueError(f"{place}: {key} is for a unit of dates")
    labels, edges, unit, first = (), (), None, 0
    if kind == "categories":
        names, labels = _categories(place, table["categories"])
    elif kind == "bins":
        names, edges = _bins(place, table["bins"])
    else:
        unit = one_of(place, table, "unit", UNITS)
        names, first = _periods(place, table, unit)
    if other and _OTHER in names:
        raise ValueError(f"{place}: other must be false where a category is named {_OTHER!r}")
    names = (*names, _OTHER) if other else names
    return Cells(column, names, other, labels, edges, unit, first)


def _categories(place: str, listed: object) -> tuple[tuple[str, ...], tuple[Label, ...]]:
    """Names of the cells, and the public categories as labels, each once."""
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ValueError(f"{place}: categories must be a list of labels, got {listed!r}")
    labels = tuple(label for x in listed if (label := label_of(x)) is not None)
    if len(labels) < len(listed):
        raise ValueError(f"{place}: categories must not be empty or NaN, got {listed!r}")
    for value, label in zip(listed, labels, strict=True):
        if isinstance(value, datetime.datetime) and value.date() != label.value:
            raise ValueError(f"{place}: categories must be dates in UTC, got {value}")
    if overlap(labels):
        raise ValueError(
            f"{place}: categories must differ, got {listed!r}: a record is in one at most, and a "
            "number takes every text that is written as it is"
        )
    return tuple(normal(str(label)) for label in listed), labels


def _bins(place: str, listed: Any) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Bins between edges, which include their lower edge, the last one its upper edge as well."""
    is_list = isinstance(listed, Sequence) and not isinstance(listed, str) and len(listed) > 1
    if not is_list or any(isinstance(x, bool) or not isinstance(x, int | float) for x in listed):
        raise ValueError(f"{place}: bins must be a list of numbers, two or more, got {listed!r}")
    if any(x != x for x in listed) or any(x >= y for x, y in itertools.pairwise(listed)):
        raise ValueError(f"{place}: bins must increase, got {listed!r}")
    ends: list[Any] = list(listed)
    if any(not -LARGEST <= x <= LARGEST and x not in (-math.inf, math.inf) for x in ends):
        raise ValueError(f"{place}: bins must lie in [{-LARGEST:g}, {LARGEST:g}] or be infinite")
    names = [f"[{low}, {high})" for low, high in itertools.pairwise(listed)]
    return (*names[:-1], names[-1][:-1] + "]"), tuple(map(float, listed))


def _periods(place: str, table: Mapping[str, Any], unit: str) -> tuple[tuple[str, ...], int]:
    """Names of the periods from `first` to `last`, and the number of the first one."""
    ends = []
    for key in ("first", "last"):
        label = label_of(table.get(key))
        if label is None or label.kind != "dates":
            raise ValueError(
                f"{place}: {key} must be a date such as 2024-12-31, public and beside unit, got "
                f"{table.get(key)!r}"
            )
        ends.append(_PERIODS[unit](label.value))
    first, last = ends
    if not 0 <= last - first < MOST_CELLS:
        raise ValueError(
            f"{place}: last must not lie before first, nor {MOST_CELLS:,} units behind it"
        )
    return tuple(map(_PERIOD_NAMES[unit], range(first, last + 1))), first


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))
