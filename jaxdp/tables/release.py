"""Release of a planned table: exact sums, noise from a lattice, error bars and one guarantee."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
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
from jaxdp.tables.labels import counted
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
            length. Labels match categories by value, as numbers, booleans or dates (1, 1.0, " 1"
        and "01" are equal); other texts match as texts, stripped.
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
    no value. So does a call inside of `jit`, `vmap` and the like. Half widths leave out the
    rounding of values to their unit (2^-27 of a bound for each record), and of means the clipping.

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
        name: list(np.asarray(values) if isinstance(values, jax.Array) else values)
        for name, values in columns.items()
    }
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
        raise ValueError(f"columns must hold {entry.column!r}, got {', '.join(sorted(columns))}")
    values = columns[entry.column]
    if entry.categories is not None:
        counts = counted(values, entry.labels, entry.column)
        is_all = len(counts) == len(entry.categories)
        return counts if is_all else [*counts, size - sum(counts)]
    numbers = np.array([_number(value, entry.column, i) for i, value in enumerate(values)])
    # Division by a power of two is exact, and rounding monotone: bounds round to the ends.
    scaled = np.rint(np.clip(numbers, entry.lower, entry.upper) / query.unit)
    total = sum(int(x) - query.middle for x in scaled)
    return [max(-LARGEST, min(total, LARGEST))]


def _number(value: Any, column: str, index: int) -> float:
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
    return [TableRow(entry.name, category, query.unit * x, width) for category, x in pairs]


def _mean(plan: TablePlan, index: int, noisy: list[list[float]]) -> TableRow:
    """The mean from the noisy sum less the middle, and the noisy count of all records."""
    query = plan.queries[index]
    counted = next(i for i, q in enumerate(plan.queries) if counts_all(q.entry))
    total, count = query.unit * noisy[index][0], noisy[counted][0]
    middle, lower, upper = query.unit * query.middle, query.entry.lower, query.entry.upper
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
