"""Release of a planned table: exact sums, noise from a lattice, error bars and one guarantee."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core.float64 import in_float64
from jaxdp._core.precision import require_outside_traces
from jaxdp._core.random_key import ONE_KEY, children, is_secure, key_for, key_or_new
from jaxdp._core.types import Key
from jaxdp.adaptive.costs import Together
from jaxdp.adaptive.ledger_file import Ledger
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.mechanism import Mechanism
from jaxdp.mechanism import release as released_by
from jaxdp.tables.labels import normal
from jaxdp.tables.people import kept
from jaxdp.tables.plan import TablePlan
from jaxdp.tables.quantiles import drawn
from jaxdp.tables.query import Query, rank_errors
from jaxdp.tables.rows import TableRow, rows_of
from jaxdp.tables.sums import Tally

Columns: TypeAlias = Mapping[str, Iterable[Any]]
# Values with parts that are no column of records: one text, or parts without an order of records.
_NO_COLUMNS = (str, bytes, bytearray, Mapping, set, frozenset)


class ReleasedTable(NamedTuple):
    """Numbers that may be published, and the guarantee of all of them together.

    guarantee: the plan's, for neighbours that differ by one record, or by all records of a person
    if the plan has ids, added or removed. level: of each half width, or of all together if
    `jointly`. is_secure_key: True if the bits came from ChaCha20.
    receipt: of the ledger that was charged, None without one, for `Ledger.record_output`.
    """

    rows: tuple[TableRow, ...]
    guarantee: ApproxDP | Drawn
    level: float
    jointly: bool
    is_secure_key: bool
    receipt: str | None


def release(
    columns: Columns | Iterable[Columns],
    plan: TablePlan,
    key: Key | None = None,
    *,
    ledger: Ledger | None = None,
) -> ReleasedTable:
    """Noisy counts, sums and means of records, as planned, which may be published.

    Args:
        columns: by name, one value a record: numbers, or texts of them, and labels. All of one
            length. Or chunks of records, each such columns, held one at a time; with
            `person` in the plan they are read twice, and an iterator raises `ValueError`. A
            category that is a text takes the same text, without spaces around it; a number, a
            boolean or a date takes what has its value, also as a text (1, "1.0" and "1e0" are
            equal).
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
    >>> plan = dp.tables.plan({
    ...     "epsilon": 1.0, "delta": 1e-6, "columns": {"town": {"categories": ["A", "B"]}},
    ...     "release": [{"statistic": "count", "by": "town"}]})
    >>> table = dp.tables.release({"town": ["A"] * 70 + ["B", "C"]}, plan, jax.random.key(0))
    >>> [(row.category, f"{row.half_width:.1f}") for row in table.rows]
    [('A', '8.0'), ('B', '8.0')]
    """
    require_outside_traces("tables.release", ONE_KEY)
    key = key_or_new(key)
    secret = np.asarray(jax.random.key_data(key_for("people", key))).tobytes()
    tally = tally_of(columns, plan, secret)
    noisy, is_secure_key, receipt = _drawn(plan, tally.totals(), key, ledger)
    labels = {i: tally.labels(i) for i in plan.thresholds()}
    rows = tuple(rows_of(plan, noisy, labels))
    return ReleasedTable(rows, plan.guarantee, plan.level, plan.jointly, is_secure_key, receipt)


def tally_of(columns: Columns | Iterable[Columns], plan: TablePlan, secret: bytes = b"") -> Tally:
    """Exact counts and sums of the plan's statistics, of the records that are kept."""
    tally = Tally(plan.queries)
    # Frames of pandas are no mappings, and have items.
    chunks: Any = [columns] if hasattr(columns, "items") else columns
    if plan.person is None:
        for chunk in _chunks(chunks, plan.columns):
            tally.add(chunk)
        return tally
    if iter(chunks) is chunks:
        raise ValueError(
            "columns must be chunks that can be read twice, such as a list, and not an iterator: "
            "with person in the plan, the records of each person are counted first"
        )
    chunks = [*_chunks(chunks, plan.columns)] if isinstance(chunks, list) else chunks
    bounds, read = (plan.rows, plan.max_cells), partial(_chunks, chunks, plan.columns)
    cells_of = None if plan.max_cells is None else tally.finest_cells
    for chunk, mask in kept(read, plan.person, bounds, secret, cells_of):
        tally.add(chunk, mask)
    return tally


@in_float64
def _drawn(
    plan: TablePlan, sums: list[list[int]], key: Key, ledger: Ledger | None
) -> tuple[list[list[float]], bool, str | None]:
    """The sums of all statistics with noise, which the ledger was charged for before."""
    receipt = None
    if ledger is None and plan.ledger is not None:
        ledger = Ledger(plan.ledger)
    if ledger is not None:
        receipt = ledger.charge(cost_of(plan), name=plan.name, plan_sha256=plan.sha256)
    keys = children(key, len(sums))
    noisy = [
        _noisy(query, counts, plan.miss, k)
        for query, counts, k in zip(plan.queries, sums, keys, strict=True)
    ]
    return noisy, is_secure(key), receipt


def _chunks(chunks: Iterable[Any], needed: Iterable[str]) -> Iterator[dict[str, list[Any]]]:
    """Chunks of records with the needed columns by normal name, all of one length."""
    names = None
    for chunk in chunks:
        if not hasattr(chunk, "items"):
            kind = type(chunk).__name__
            raise ValueError(
                f"columns must be a mapping of names to columns, or chunks, got a {kind}"
            )
        for name in chunk:
            if not isinstance(name, str):
                kind = type(name).__name__
                raise ValueError(f"columns must have texts as names, got a {kind}")
        by_name = {normal(name): _listed(values, name) for name, values in chunk.items()}
        if len(by_name) < len(chunk):
            raise ValueError("columns must have names that differ, without spaces around them")
        lengths = {len(values) for values in by_name.values()}
        if len(lengths) != 1:
            raise ValueError(f"columns must be of one length, got {sorted(lengths)}")
        if names not in (None, by_name.keys()):
            raise ValueError("columns must have the same names in every chunk")
        names = by_name.keys()
        for name in needed:
            if name not in by_name:
                # Of a file without a header the names are a record.
                raise ValueError(f"columns must hold {name!r}, got {len(by_name)} without it")
        yield by_name
    if names is None:
        raise ValueError("columns must be given, got no chunk of records")


def _listed(values: Any, name: str) -> list[Any]:
    """The values of a column in their order; `ValueError` for a text, which is one value."""
    is_ordered = isinstance(values, Iterable) and not isinstance(values, _NO_COLUMNS)
    if not is_ordered or len(getattr(values, "shape", (0,))) != 1:
        raise ValueError(
            f"columns must each be a list of one value a record, and {normal(name)!r} is a "
            f"{type(values).__name__}"
        )
    return list(np.asarray(values) if isinstance(values, jax.Array) else values)


def _noisy(query: Query, sums: list[int], miss: float, key: Key) -> list[float]:
    """The sums of a statistic with noise, in units; of quantiles, points of the grid."""
    if query.probabilities:
        counts = np.array(sums, np.int64).reshape(-1, query.points)
        ranks = [float(x.half_width) for x in rank_errors(query, miss)]
        drawing = float(query.mechanism.epsilon_bound), key
        points = drawn(counts, query.probabilities, ranks, query.rows, drawing)
        return points.ravel().astype(np.float64).tolist()
    if not sums:  # no label
        return []
    cell = Mechanism(query.mechanism.noise, float(query.rows * query.sensitivity))
    released = released_by(cell, np.array(sums, np.int64), key, query.step, disjoint=True)
    # The planned sensitivity is at least the lattice's.
    assert bool(released.mechanism.sensitivity <= query.mechanism.sensitivity)
    return np.asarray(released.value, np.float64).tolist()


def cost_of(plan: TablePlan) -> Together:
    """All statistics as one item, so that the ledger takes all of them or none."""
    parts = tuple((query.mechanism, query.runs) for query in plan.queries)
    return Together(() if plan.thresholds() else parts, plan.guarantee)
