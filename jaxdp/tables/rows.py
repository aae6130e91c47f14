"""Rows of a released table: numbers, margins and means, with their half widths.

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

from jaxdp.tables.cells import Cells
from jaxdp.tables.error_bars import NoiseSum, half_width
from jaxdp.tables.plan import TablePlan
from jaxdp.tables.quantiles import DRAWS, intervals
from jaxdp.tables.query import Query, error_of, name_of, rank_errors, shown

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
    thresholds = plan.thresholds()
    for index, cells in shown(plan.queries):
        query = plan.queries[index]
        if query.probabilities:
            yield from _of_quantiles(query, noisy[index], plan.miss)
        elif index in thresholds:
            width = float(error_of(query, 1.0 - plan.miss).half_width)
            for label, value in zip(labels[index], noisy[index], strict=True):
                if value >= thresholds[index]:
                    cell = {str(query.column): label}
                    yield TableRow(query.name, label, float(value), width, cell)
        else:
            yield from _of_cells(plan, noisy, index, cells)


def _of_cells(
    plan: TablePlan, noisy: Sequence[Sequence[float]], index: int, cells: tuple[Cells, ...]
) -> Iterator[TableRow]:
    """The counts, sums or means of a table, or of a margin of it."""
    query = plan.queries[index]
    is_own = cells == query.cells
    name = query.name if is_own else name_of(query.statistic, query.column, cells)
    if query.statistic == "mean":
        table, widths = _means(plan, noisy, index, cells)
    else:
        table = _summed(query, noisy[index], cells)
        widths = np.full(table.shape, _width_of(query, cells, plan.miss))
    for cell, value, width in zip(_names(cells), table.flat, widths.flat, strict=True):
        number = float(value), float(width)
        if query.statistic == "mean":
            number = _known(*number, _place(width, _DIGITS), query.bounds)
        else:
            number = _rounded(*number, _place(width, _DIGITS_OF_SUMS))
        yield TableRow(name, ", ".join(cell.values()) if cells else None, *number, cell)


def _of_quantiles(query: Query, points: Sequence[float], miss: float) -> Iterator[TableRow]:
    """The quantiles of each cell, with half widths that reach both ends of their intervals."""
    levels = query.probabilities
    ranks = [float(error.half_width) for error in rank_errors(query, miss)]
    by_cell = np.array(points, np.int64).reshape(-1, len(levels), DRAWS)
    found = intervals(by_cell, (query.lower, query.upper), query.unit, ranks)
    for cell, (values, widths) in zip(_names(query.cells), found, strict=True):
        place = _place(min(widths), _DIGITS)  # one for all, so that they increase
        for level, value, width in zip(levels, values, widths, strict=True):
            name = f"{query.name}, {float(level):g}"
            number = _known(float(value), float(width), place, query.bounds)
            yield TableRow(name, ", ".join(cell.values()) or None, *number, cell)


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


def _names(cells: Sequence[Cells]) -> Iterator[dict[str, str]]:
    """The cells of a table: names by column."""
    columns = [c.column for c in cells]
    for names in itertools.product(*(c.names for c in cells)):
        yield dict(zip(columns, names, strict=True))


def _width_of(query: Query, cells: tuple[Cells, ...], miss: float) -> float:
    """The half width of every number of a table, released or a margin, in the column's unit."""
    count = _summed_cells(query, cells)
    if count == 1:
        return float(error_of(query, 1.0 - miss).half_width)
    rounding = 0.0 if query.statistic == "count" else 0.5 * count
    units = half_width(NoiseSum(query.mechanism.noise, query.is_whole, count), miss) + rounding
    return units * float(query.unit)


def _summed_cells(query: Query, cells: tuple[Cells, ...]) -> int:
    """Number of cells that a cell of the margin is the sum of."""
    return math.prod(len(c.names) for c in query.cells if c not in cells)


def _summed(query: Query, noisy: Sequence[float], cells: tuple[Cells, ...]) -> np.ndarray:
    """The table or a margin of it in the column's unit, from noisy numbers of units by cell."""
    numbers = np.array([float(Fraction(x) * query.unit) for x in noisy]).reshape(query.shape)
    kept = [c for c in query.cells if c in cells]
    sums = np.sum(numbers, axis=tuple(i for i, c in enumerate(query.cells) if c not in cells))
    return np.asarray(np.transpose(sums, [kept.index(c) for c in cells]))


def _number_of(plan: TablePlan, index: int) -> int:
    """The index of the count that a mean is divided by: the one with the least noise."""
    query = plan.queries[index]

    def variance(i: int) -> float:
        count = plan.queries[i]
        return _summed_cells(count, query.cells) * float(count.mechanism.noise.variance())

    counts = (i for i, count in enumerate(plan.queries) if query.is_number_in(count))
    return min(counts, key=variance)


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
    plan: TablePlan, noisy: Sequence[Sequence[float]], index: int, cells: tuple[Cells, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Means from the noisy sums less the middle and the noisy counts, and their half widths.

    Those of the sum and of the count hold together: each misses half as often.
    """
    query, both = plan.queries[index], (index, _number_of(plan, index))
    total, count = (_summed(plan.queries[i], noisy[i], cells) for i in both)
    of_sum, of_count = (_width_of(plan.queries[i], cells, 0.5 * plan.miss) for i in both)
    ratio, widths = _ratio(total, count, (of_sum, of_count))
    lower, upper = query.bounds
    widths = np.minimum(widths, upper - lower)
    return np.asarray(np.clip(query.middle + ratio, lower, upper)), np.asarray(widths)
