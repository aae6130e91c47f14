"""Rows of a released table: consistent numbers, margins and means, with their half widths.

All of it is computed from noisy numbers and the plan.
"""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp.design.expected_error import ExpectedError
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.tables.cells import Cells
from jaxdp.tables.error_bars import Term, half_width
from jaxdp.tables.keys import is_number_of, name_of
from jaxdp.tables.margins import Family, families_of, shown
from jaxdp.tables.plan import TablePlan
from jaxdp.tables.quantiles import DRAWS, intervals
from jaxdp.tables.query import error_of, rank_errors

# Variances that numbers are weighted by, in units. chosen: no ratio of two overflows
_LEAST_VARIANCE = 1e-100
# Digits of half widths: of means and quantiles, and of numbers that add up. chosen: rounding makes
# half widths .15 % larger, and sums of cells differ from their margins by a millionth of them
_DIGITS, _DIGITS_OF_SUMS = 4, 7
# Exact: doubles have at most 767 digits.
_EXACT = decimal.Context(prec=2000)


class TableRow(NamedTuple):
    """Number of a released table: `value` +- `half_width` holds the exact one at the level.

    Both are rounded to the digits of the half width, which includes it. A mean or a quantile whose
    interval holds all of the public bounds is not known: its `value` is NaN and its `half_width`
    the distance of the bounds. category: the cell, its names by column joined by commas; None for
    all records. cell: the names by column.
    """

    name: str
    category: str | None
    value: float
    half_width: float
    cell: dict[str, str]


def rows_of(
    plan: TablePlan, noisy: Sequence[Sequence[float]], labels: dict[int, list[str]]
) -> Iterator[TableRow]:
    """The rows of a plan from the noisy numbers of its statistics, in units.

    labels: by index of the statistics whose categories the records bring.
    """
    entries, thresholds = [query.entry for query in plan.queries], plan.thresholds()
    apart = {i for i, entry in enumerate(entries) if entry.probabilities} | thresholds.keys()
    values = [
        np.zeros(0) if i in apart else _in_column_units(plan, i, numbers)
        for i, numbers in enumerate(noisy)
    ]
    families = _families(plan, {*range(len(entries))} - apart)
    for index, cells in shown(entries):
        entry = entries[index]
        if index in thresholds:
            yield from _of_labels(plan, index, labels[index], noisy[index])
            continue
        if index in apart:
            yield from _of_quantiles(plan, index, noisy[index])
            continue
        is_own = cells == entry.cells
        name = entry.name if is_own else name_of(entry.statistic, entry.column, cells)
        if entry.statistic == "mean":
            table, widths = _means(plan, values, families, index, cells)
        else:
            table = _estimate(families[index], values, cells)
            widths = np.full(table.shape, width_of(plan, families[index], cells, plan.miss))
        for names_of_cell, value, width in zip(_names(cells), table.flat, widths.flat, strict=True):
            cell = dict(zip((c.column for c in cells), names_of_cell, strict=True))
            category = ", ".join(names_of_cell) if cells else None
            number = float(value), float(width)
            if entry.statistic == "mean":
                number = _known(*number, _place(width, _DIGITS), (entry.lower, entry.upper))
            else:
                number = _rounded(*number, _place(width, _DIGITS_OF_SUMS))
            yield TableRow(name, category, *number, cell)


def _of_labels(
    plan: TablePlan, index: int, labels: Sequence[str], noisy: Sequence[float]
) -> Iterator[TableRow]:
    """The labels whose noisy counts are the threshold or more."""
    entry, threshold = plan.queries[index].entry, plan.thresholds()[index]
    error = error_of(plan.queries[index], plan.mechanisms[index], 1.0 - plan.miss)
    for label, value in zip(labels, noisy, strict=True):
        if value >= threshold:
            cell = {str(entry.column): label}
            yield TableRow(entry.name, label, float(value), float(error.half_width), cell)


def _of_quantiles(plan: TablePlan, index: int, points: Sequence[float]) -> Iterator[TableRow]:
    """The quantiles of each cell, with half widths that reach both ends of their intervals."""
    query, mechanism = plan.queries[index], plan.mechanisms[index]
    assert isinstance(mechanism, ExponentialMechanism)
    entry, levels = query.entry, query.entry.probabilities
    ranks = [float(error.half_width) for error in rank_errors(query, mechanism, plan.miss)]
    by_cell = np.array(points, np.int64).reshape(-1, len(levels), DRAWS)
    found = intervals(by_cell, (query.lower, query.upper), query.unit, ranks)
    for names, (values, widths) in zip(_names(entry.cells), found, strict=True):
        cell = dict(zip((c.column for c in entry.cells), names, strict=True))
        place = _place(min(widths), _DIGITS)  # one for all, so that they increase
        for level, value, width in zip(levels, values, widths, strict=True):
            name = f"{entry.name}, {float(level):g}"
            number = _known(float(value), float(width), place, (entry.lower, entry.upper))
            yield TableRow(name, ", ".join(names) or None, *number, cell)


def _place(width: float, digits: int) -> decimal.Decimal | None:
    """The last decimal place of a half width with so many digits; None if it is 0 or infinite."""
    if not 0.0 < width < math.inf:
        return None
    return decimal.Decimal(1).scaleb(decimal.Decimal(width).adjusted() + 1 - digits)


def _rounded(value: float, width: float, place: decimal.Decimal | None) -> tuple[float, float]:
    """The number at a decimal place, and its half width, rounded up, with the rounding."""
    if place is None:
        return value, width
    exact = decimal.Decimal(value)
    shown = exact.quantize(place, decimal.ROUND_HALF_EVEN, _EXACT)
    wide = _EXACT.add(decimal.Decimal(width), abs(_EXACT.subtract(shown, exact)))
    return float(shown), float(wide.quantize(place, decimal.ROUND_CEILING, _EXACT))


def _known(
    value: float, width: float, place: decimal.Decimal | None, bounds: tuple[float, float]
) -> tuple[float, float]:
    """As `_rounded`, within the bounds; NaN where the interval holds all of them."""
    lower, upper = bounds
    if max(value - lower, upper - value) <= width:
        return math.nan, upper - lower
    value, width = _rounded(value, width, place)
    return min(max(value, lower), upper), min(width, upper - lower)


def _names(cells: Sequence[Cells]) -> Iterator[tuple[str, ...]]:
    return itertools.product(*(c.names for c in cells))


def width_of(plan: TablePlan, family: Family, cells: tuple[Cells, ...], miss: float) -> float:
    """The half width of every number of a table, released or a margin, in the column's unit."""
    first = family.members[0]
    if len(family.members) == 1 and cells == family.tables[0]:
        return float(error_of(plan.queries[first], plan.mechanisms[first], 1.0 - miss).half_width)
    terms, rounding = [], 0.0
    for member, weight, count in family.weights(cells):
        query, size = plan.queries[member], abs(weight) * float(plan.queries[member].unit)
        # Equal weights are equal to the last bit, where they are 1.
        size = round(size / float(query.unit)) * float(query.unit) if _is_one(weight) else size
        terms.append(Term(_noise(plan, member), query.is_whole, size, count))
        rounding = rounding + (0.0 if query.entry.statistic == "count" else 0.5 * size * count)
    return half_width(terms, miss) + rounding


def _is_one(weight: float) -> bool:
    return abs(abs(weight) - 1.0) < 1e-9


def _noise(plan: TablePlan, index: int) -> Noise:
    """The noise of a count, a sum or a mean."""
    mechanism = plan.mechanisms[index]
    assert isinstance(mechanism, Mechanism)
    return mechanism.noise


def _families(plan: TablePlan, wanted: set[int]) -> dict[int, Family]:
    """The tables that the wanted ones are made consistent with, by index."""
    tables = families_of([query.entry for query in plan.queries])
    together = [members for members in tables if wanted & {*members}]
    return {i: _family(plan, members) for members in together for i in members}


def _family(plan: TablePlan, members: tuple[int, ...]) -> Family:
    tables = tuple(plan.queries[i].entry.cells for i in members)
    variances = (
        float(plan.queries[i].unit) ** 2 * max(float(_noise(plan, i).variance()), _LEAST_VARIANCE)
        for i in members
    )
    return Family(members, tables, tuple(variances))


def _in_column_units(plan: TablePlan, index: int, noisy: Sequence[float]) -> np.ndarray:
    """Noisy numbers of units in the column's unit, by cell."""
    query = plan.queries[index]
    numbers = [float(Fraction(x) * query.unit) for x in noisy]
    return np.array(numbers).reshape(query.entry.shape)


def _estimate(family: Family, values: Sequence[np.ndarray], cells: tuple[Cells, ...]) -> np.ndarray:
    """The consistent table of some columns; sums of cells are exact where nothing else is known."""
    if len(family.members) == 1:
        (table,) = family.tables
        sums = values[family.members[0]]
        return np.asarray(
            np.sum(sums, axis=tuple(i for i, c in enumerate(table) if c not in cells))
        )
    return family.estimate([values[i] for i in family.members], cells)


def error_of_mean(plan: TablePlan, index: int, records: int) -> ExpectedError:
    """Error of a planned mean, if so many records are in cells of equal size.

    It is that of a mean at one of its bounds, where it is the largest. The deviations are those of
    the ratio to first order.
    """
    entries = [query.entry for query in plan.queries]
    entry, counted = entries[index], _number_of(plan, index)
    size, reach = records / math.prod(entry.shape), 0.5 * (entry.upper - entry.lower)
    families = _families(plan, {index, counted})
    widths = _widths_of_mean(plan, families, index, entry.cells)
    _, width = _ratio(np.array(size * reach), np.array(size), widths)
    total, count = (
        error_of(plan.queries[i], plan.mechanisms[i], 1.0 - plan.miss) for i in (index, counted)
    )
    summed = math.prod(entries[counted].shape) / math.prod(entry.shape)
    parts = total.standard_deviation, reach * math.sqrt(summed) * count.standard_deviation
    deviation = math.hypot(*map(float, parts)) / size
    mean = (float(total.mean_absolute) + reach * summed * float(count.mean_absolute)) / size
    return ExpectedError(*map(xp.asarray, (deviation, mean, min(float(width), 2.0 * reach))))


def _number_of(plan: TablePlan, index: int) -> int:
    """The index of the count that a mean is divided by."""
    entry = plan.queries[index].entry
    return next(i for i, query in enumerate(plan.queries) if is_number_of(entry, query.entry))


def _widths_of_mean(
    plan: TablePlan, families: dict[int, Family], index: int, cells: tuple[Cells, ...]
) -> tuple[float, float]:
    """Half widths of the sum and of the count, which hold together: each misses half as often."""
    both = (families[i] for i in (index, _number_of(plan, index)))
    of_sum, of_count = (width_of(plan, family, cells, 0.5 * plan.miss) for family in both)
    return of_sum, of_count


def _ratio(
    total: np.ndarray, count: np.ndarray, widths: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Sums over counts, of one record at least, and their half widths."""
    ratio = total / np.maximum(count, 1.0)
    ends = [
        (total + side * widths[0]) / np.maximum(count + other * widths[1], 1.0)
        for side, other in itertools.product((-1, 1), (-1, 1))
    ]
    return np.asarray(ratio), np.asarray(np.max(np.abs(np.array(ends) - ratio), axis=0))


def _means(
    plan: TablePlan,
    values: Sequence[np.ndarray],
    families: dict[int, Family],
    index: int,
    cells: tuple[Cells, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Means from the noisy sums less the middle and the noisy counts, and their half widths."""
    query, counted = plan.queries[index], _number_of(plan, index)
    total, count = (_estimate(families[i], values, cells) for i in (index, counted))
    ratio, widths = _ratio(total, count, _widths_of_mean(plan, families, index, cells))
    middle, lower, upper = query.middle, query.entry.lower, query.entry.upper
    widths = np.minimum(widths, upper - lower)
    return np.asarray(np.clip(middle + ratio, lower, upper)), np.asarray(widths)
