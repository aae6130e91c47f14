"""Release of a planned table: exact sums, noise from a lattice, error bars and one guarantee."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.compilation import require_outside_traces
from jaxdp._core.float64 import in_float64
from jaxdp._core.random_key import ONE_KEY, is_secure, key_or_new
from jaxdp._core.types import Key
from jaxdp.adaptive.currency import Currency, in_currency
from jaxdp.adaptive.ledger_file import Ledger
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.mechanism import Mechanism
from jaxdp.mechanism import release as released_by
from jaxdp.tables.keys import counts_all
from jaxdp.tables.labels import counted, normal, number_in
from jaxdp.tables.plan import LARGEST, Query, TablePlan, error_of, step_of


class TableRow(NamedTuple):
    """Number of a released table: `value` +- `half_width` holds the exact one at the level.

    category: of a count by categories, else None.
    """

    name: str
    category: str | None
    value: float
    half_width: float


class ReleasedTable(NamedTuple):
    """Numbers that may be published, and the guarantee of all of them together.

    guarantee: the plan's, for neighbours that differ by one record added or removed. is_secure_key:
    True if the bits came from ChaCha20.
    """

    rows: tuple[TableRow, ...]
    guarantee: ApproxDP | Drawn
    level: float
    is_secure_key: bool


@in_float64
def release(
    columns: Mapping[str, Iterable[Any]],
    plan: TablePlan,
    key: Key | None = None,
    *,
    ledger: Ledger | None = None,
) -> ReleasedTable:
    """Noisy counts, sums and means of records, as planned, which may be published.

    Args:
        columns: by name, one value a record: numbers, or texts of them, and labels. All of one
            length. A category that is a text takes the same text, without spaces around it; a
            number, a boolean or a date takes what has its value, also as a text (1, "1.0" and "1e0"
            are equal).
        plan: what `dp.tables.plan` returned.
        key: of `jax.random`. None draws one of ChaCha20 from the operating system, as is right.
        ledger: a `Ledger` that is charged before anything is drawn, and refuses when full; if None,
            the ledger that the plan names, if any.

    Returns:
        A `ReleasedTable`. Noisy counts are whole numbers, and may be negative. A mean is clipped to
        its bounds; its half width follows from half widths of sum and count, each at half of the
        level's complement, and is at most the distance of the bounds.

    Values are clipped to the bounds; records in no category, with missing labels too, are left out
    unless the plan has a cell for them. Missing columns, other lengths, types that no category has
    and values that are not numbers raise `ValueError` before anything is charged; the message shows
    no value. So does a call inside of `jit`, `vmap` and the like. Half widths are about sums and
    means of clipped values; they include the rounding of the sum to its unit.

    >>> import jax
    >>> import jaxdp as dp
    >>> count = {"statistic": "count", "column": "town", "categories": ["A", "B"]}
    >>> plan = dp.tables.plan({"epsilon": 1.0, "delta": 1e-6, "release": [count]})
    >>> table = dp.tables.release({"town": ["A"] * 70 + ["B", "C"]}, plan, jax.random.key(0))
    >>> [(row.category, f"{row.half_width:.1f}") for row in table.rows]
    [('A', '9.3'), ('B', '9.3')]
    """
    require_outside_traces("tables.release", ONE_KEY)
    key = key_or_new(key)
    columns_by_name = {
        normal(name): list(np.asarray(values) if isinstance(values, jax.Array) else values)
        for name, values in columns.items()
    }
    if len(columns_by_name) < len(columns):
        raise ValueError("columns must have names that differ, without spaces around them")
    size = _number_of_records(columns_by_name)
    sums = [_exact(query, columns_by_name, size) for query in plan.queries]
    if ledger is None and plan.ledger is not None:
        ledger = Ledger(plan.ledger)
    if ledger is not None:
        ledger.charge(_cost(plan, ledger.budget), name="table")
    keys = jax.random.split(key, len(sums))
    parts = zip(plan.queries, plan.mechanisms, sums, keys, strict=True)
    noisy = [_noisy(query, mechanism, value, k) for query, mechanism, value, k in parts]
    rows = tuple(itertools.chain.from_iterable(_rows(plan, i, noisy) for i in range(len(noisy))))
    return ReleasedTable(rows, plan.guarantee, plan.level, is_secure(key))


def _number_of_records(columns: Mapping[str, list[Any]]) -> int:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"columns must be of one length, got {sorted(lengths)}")
    return lengths.pop()


def _exact(query: Query, columns: Mapping[str, list[Any]], size: int) -> list[int]:
    """The sums of a statistic in units, one a category, exact."""
    entry = query.entry
    if entry.column is None:
        return [size]
    if entry.column not in columns:
        # Of a file without a header the names are a record.
        raise ValueError(f"columns must hold {entry.column!r}, got {len(columns)} without it")
    values = columns[entry.column]
    if entry.categories is not None:
        counts = counted(values, entry.labels, entry.column, entry.zone)
        is_all = len(counts) == len(entry.categories)
        return counts if is_all else [*counts, size - sum(counts)]
    numbers = np.array([_number(value, entry.column, i) for i, value in enumerate(values)])
    clipped = np.clip(numbers, query.lower, query.upper)
    total = (_exact_sum(clipped) - size * Fraction(query.middle)) / query.unit
    # Half up: unlike half to even it commutes with whole numbers.
    return [max(-LARGEST, min(math.floor(total + Fraction(1, 2)), LARGEST))]


def _exact_sum(values: np.ndarray) -> Fraction:
    """The sum of doubles without rounding: whole numbers of 53 bits, by exponent."""
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    total = Fraction(0)
    for exponent in np.unique(exponents):
        part = whole[exponents == exponent]
        # Halves, which add up below 2^63 for as many as 2^36.
        sums = int(np.sum(part >> 27)) * 2**27 + int(np.sum(part & (2**27 - 1)))
        total += sums * Fraction(2) ** (int(exponent) - 53)
    return total


def _number(value: Any, column: str, index: int) -> float:
    if isinstance(value, str):
        value = number_in(value)
    try:
        number = float(value)
    except OverflowError:  # a whole number, to be clipped
        number = math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"column {column!r} must be of numbers, and record {index + 1} has none")
    return number


def _noisy(query: Query, mechanism: Mechanism, sums: list[int], key: Key) -> list[float]:
    """The sums of a statistic with noise, in units."""
    cell = Mechanism(mechanism.noise, float(query.sensitivity))
    values, step = np.array(sums, np.int64), step_of(query, mechanism)
    released = released_by(cell, values, key, step, disjoint=True)
    # The planned sensitivity is at least the lattice's.
    assert bool(released.mechanism.sensitivity <= mechanism.sensitivity)
    return np.asarray(released.value, np.float64).tolist()


def _rows(plan: TablePlan, index: int, noisy: list[list[float]]) -> list[TableRow]:
    query = plan.queries[index]
    entry, values = query.entry, noisy[index]
    if entry.statistic == "mean":
        return [_mean(plan, index, noisy)]
    width = float(error_of(query, plan.mechanisms[index], plan.level).half_width)
    categories = entry.categories or (None,)
    pairs = zip(categories, values, strict=True)
    return [TableRow(entry.name, c, _in_units(query, x), width) for c, x in pairs]


def _in_units(query: Query, value: float) -> float:
    """A noisy number of units in the column's unit."""
    return float(Fraction(value) * query.unit)


def _mean(plan: TablePlan, index: int, noisy: list[list[float]]) -> TableRow:
    """The mean from the noisy sum less the middle, and the noisy count of all records."""
    query = plan.queries[index]
    counted = next(i for i, q in enumerate(plan.queries) if counts_all(q.entry))
    total, count = _in_units(query, noisy[index][0]), noisy[counted][0]
    middle, lower, upper = query.middle, query.entry.lower, query.entry.upper
    level = 0.5 + 0.5 * plan.level
    of_sum, of_count = (
        float(error_of(plan.queries[i], plan.mechanisms[i], level).half_width)
        for i in (index, counted)
    )
    ratio = total / max(count, 1.0)
    ends = [
        (total + side * of_sum) / max(count + other * of_count, 1.0)
        for side in (-1, 1)
        for other in (-1, 1)
    ]
    width = min(max(abs(end - ratio) for end in ends), upper - lower)
    return TableRow(query.entry.name, None, min(max(middle + ratio, lower), upper), width)


def _cost(plan: TablePlan, budget: Currency) -> Currency:
    """Cost of all statistics together, so that the ledger takes all of them or none."""
    costs = [in_currency(mechanism, budget) for mechanism in plan.mechanisms]
    return sum(costs[1:], costs[0])
