"""Plan of a table: counts, sums and means, each with its own noise, that share one budget.

Neighbours differ by one record that is added or removed (or, with ids, by all records of a person:
`tables.people`). It is in one cell at most, so that a table
by cells costs no more than one number: the noise of each cell has the sensitivity of a single one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.files import sha256_of
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.calibrate import calibrate
from jaxdp.design.expected_error import ExpectedError
from jaxdp.design.families import ALLOCATED
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.mechanism import Mechanism
from jaxdp.released import size_error
from jaxdp.tables.cells import CELL_KEYS, MOST_CELLS, Cells, cells_of
from jaxdp.tables.fields import LARGEST_LEVEL, flag_of, number_of, one_of, require_known, text_of
from jaxdp.tables.labels import DROP, normal
from jaxdp.tables.quantiles import probabilities_of
from jaxdp.tables.query import (
    LATTICE_STEP,
    Query,
    error_of,
    in_units,
    mechanism_of,
    name_of,
    shown,
    with_moves,
)
from jaxdp.tables.unknown import threshold_of

# Least probability that one of many bars misses. chosen: far above the rounding of levels near 1
_LEAST_MISS = 1e-11
_KEYS = (
    *("epsilon", "delta", "rho", "noise", "level", "jointly", "ledger", "columns"),
    *("missing", "name", "person", "rows", "max_cells", "release"),
)
# Distance of two bounds. chosen: one over the largest number of a plan
_LEAST = 1e-100
# Largest ratio of weights. chosen: far beyond all that are used
_LARGEST_RATIO = 1e12
# Columns of a table. chosen: their margins are 2^6 - 1 tables
_MOST_COLUMNS = 6
# Records of a person. chosen: sensitivities remain whole numbers that doubles hold
_MOST_ROWS = 10**6
# Least `unknown_delta`. chosen: far above the least double
_LEAST_DELTA = 1e-300


def _normal_text(place: str, table: Mapping[str, Any], key: str) -> str | None:
    text = text_of(place, table, key)
    return None if text is None else normal(text)


def _noise(place: str, table: Mapping[str, Any], key: str) -> str:
    return one_of(place, table, key, ALLOCATED)


def _ratio(place: str, table: Mapping[str, Any], key: str) -> float:
    return number_of(place, table, key, lower=1.0 / _LARGEST_RATIO, upper=_LARGEST_RATIO)


def _unit(place: str, table: Mapping[str, Any], key: str) -> Fraction | None:
    """The unit that sums are rounded to, as it is written: 0.01 is a hundredth."""
    if table[key] is None:
        return None
    return Fraction(repr(number_of(place, table, key, lower=_LEAST)))


def _unknown_delta(place: str, table: Mapping[str, Any], key: str) -> float | None:
    """The delta of labels that one person alone has; None without `unknown_delta`."""
    if table[key] is None:
        return None
    return number_of(place, table, key, lower=_LEAST_DELTA, upper=LARGEST_LEVEL)


class Rule(NamedTuple):
    """A key: the statistics that have it, its default, its reader, its value elsewhere."""

    statistics: tuple[str, ...]
    default: Any = None
    read: Callable[[str, Mapping[str, Any], str], Any] | None = None
    elsewhere: Any = None


STATISTICS = ("count", "sum", "mean", "quantile")
_OF_VALUES, _NOISY = STATISTICS[1:], STATISTICS[:3]
RULES = {
    "name": Rule(STATISTICS, None, text_of),
    "statistic": Rule(STATISTICS),
    "column": Rule(STATISTICS, None, _normal_text),
    "by": Rule(STATISTICS, ()),
    "margins": Rule(_NOISY, False, flag_of, False),
    "unit": Rule(_OF_VALUES, None, _unit),
    "lower": Rule(_OF_VALUES, None, number_of, 0.0),
    "upper": Rule(_OF_VALUES, None, number_of, 1.0),
    "missing": Rule(STATISTICS),
    "noise": Rule(_NOISY, None, _noise, "exponential_mechanism"),
    "weight": Rule(STATISTICS, 1.0, _ratio),
    "probabilities": Rule(("quantile",), [0.5], probabilities_of, ()),
    "unknown_delta": Rule(("count",), None, _unknown_delta),
}


def queries_of(plan: Mapping[str, Any]) -> tuple[Query, ...]:
    """The statistics of a plan in whole units, for neighbours that differ by one record."""
    tables = plan.get("release")
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise ValueError("plan: release must be a list of tables, one per statistic: [[release]]")
    usual = {"noise": one_of("plan", {"noise": "gaussian", **plan}, "noise", ALLOCATED)}
    of_values = {**usual, "missing": plan.get("missing")}
    columns = _columns(plan)
    queries = []
    for index, table in enumerate(tables):
        place = f"plan: release {index + 1}"
        require_known(place, table, (*RULES,))
        statistic = one_of(place, table, "statistic", STATISTICS)
        values = dict[str, Any]()
        for key, rule in RULES.items():
            has_key = statistic in rule.statistics
            if not has_key and key in table:
                raise ValueError(f"{place}: a {statistic} must have no {key}")
            given = {key: rule.default, **(usual if statistic == "count" else of_values), **table}
            values[key] = given[key] if has_key else rule.elsewhere
            if has_key and rule.read is not None:
                values[key] = rule.read(place, given, key)
        queries.append(in_units(_query(place, values, columns)))
    names = [query.name for query in queries]
    for query in queries:
        if names.count(query.name) > 1:
            raise ValueError(f"{query.where}: name must be given, {query.name!r} is there twice")
        if query.statistic == "mean" and not any(map(query.is_number_in, queries)):
            raise ValueError(
                f"{query.where}: a mean is a sum over a noisy count: {_missing_count(query)}"
            )
    return tuple(queries)


def _query(place: str, values: dict[str, Any], columns: Mapping[str, Cells]) -> Query:
    """The statistic of the values of all keys, before its units."""
    lower, upper = values["lower"], values["upper"]
    if not upper - lower >= _LEAST:
        raise ValueError(f"{place}: lower must lie below upper, got {lower} and {upper}")
    statistic, column = values["statistic"], values["column"]
    cells, missing = _groups(place, values["by"], columns), values["missing"]
    if isinstance(missing, str) and missing != DROP:
        raise ValueError(f'{place}: missing must be "drop" or a number, got {missing!r}')
    if missing not in (None, DROP):
        missing = number_of(place, values, "missing", lower=lower, upper=upper)
    is_count, has_unknown = statistic == "count", values["unknown_delta"] is not None
    if column is None and (not is_count or missing is not None or has_unknown):
        raise ValueError(f"{place}: column must be given")
    if is_count and column is not None and (missing == DROP) is has_unknown:
        raise ValueError(
            f"{place}: a count of a column must have unknown_delta, or count its values: "
            f'missing = "drop"; by groups records by the cells of [columns.{column}]'
        )
    if has_unknown and cells:
        raise ValueError(f"{place}: unknown_delta must stand without by")
    if values["margins"] and not cells:
        raise ValueError(f"{place}: margins must be false without by")
    as_read = ("statistic", "margins", "noise", "weight", "probabilities", "unknown_delta")
    return Query(
        where=place,
        name=values["name"] or name_of(statistic, column, cells),
        column=column,
        cells=cells,
        bounds=(lower, upper),
        missing=missing,
        given_unit=values["unit"],
        **{key: values[key] for key in as_read},
    )


def _missing_count(query: Query) -> str:
    by = ", ".join(f'"{cells.column}"' for cells in query.cells)
    how = f"by = [{by}]" if by else "no column"
    if query.missing == DROP:
        how = f'column = "{query.column}" and missing = "drop"' + (
            f" and by = [{by}]" if by else ""
        )
    return f'add a [[release]] with statistic = "count" and {how}'


def _columns(plan: Mapping[str, Any]) -> dict[str, Cells]:
    """The cells of the columns that tables are grouped by, which the plan defines once."""
    columns, found = plan.get("columns", {}), dict[str, Cells]()
    if not isinstance(columns, Mapping):
        raise ValueError("plan: columns must be tables of keys, as [columns.region]")
    for name, table in columns.items():
        place, column = f"plan: columns.{name}", normal(name)
        require_known(place, table, CELL_KEYS)
        if column in found:
            raise ValueError(f"{place}: columns must differ")
        found[column] = cells_of(place, column, table)
    return found


def _groups(place: str, by: Any, columns: Mapping[str, Cells]) -> tuple[Cells, ...]:
    """The cells of the columns that a statistic is grouped by."""
    names = [by] if isinstance(by, str) else by
    if not isinstance(names, Sequence) or not all(isinstance(x, str) and x for x in names):
        raise ValueError(f"{place}: by must be a list of columns, got {by!r}")
    names = [normal(name) for name in names]
    for name in names:
        if name not in columns:
            raise ValueError(
                f"{place}: by must name columns whose cells the plan has, got {name!r}: add "
                f"[columns.{name}] with categories, bins or a unit"
            )
    if len({*names}) < len(names) or len(names) > _MOST_COLUMNS:
        raise ValueError(f"{place}: by must name {_MOST_COLUMNS} columns at most, each once")
    groups = tuple(columns[name] for name in names)
    size = math.prod(len(cells.names) for cells in groups)
    if size > MOST_CELLS:
        raise ValueError(f"{place}: by must make at most {MOST_CELLS:,} cells, got {size:,}")
    return groups


def _person(plan: Mapping[str, Any]) -> tuple[str | None, int, int | None]:
    """The column of ids, None without one, and the bounds `rows` and `max_cells` of a person."""
    person = _normal_text("plan", plan, "person")
    if person is None:
        for key in ("rows", "max_cells"):
            if key in plan:
                raise ValueError(f"plan: {key} must be given beside person, the column of ids")
        return None, 1, None
    rows = _whole(plan, "rows")
    cells = None if plan.get("max_cells") is None else _whole(plan, "max_cells")
    if rows * (cells or 1) > _MOST_ROWS:
        raise ValueError(f"plan: rows times max_cells must be at most {_MOST_ROWS:,}")
    return person, rows, cells


def _whole(plan: Mapping[str, Any], key: str) -> int:
    number = number_of("plan", plan, key, lower=1, upper=_MOST_ROWS)
    if number != round(number):
        raise ValueError(f"plan: {key} must be whole, got {number}")
    return round(number)


class TablePlan(NamedTuple):
    """Plan of a table, calibrated: the statistics, their mechanisms in units, and the guarantee.

    guarantee: of all releases, an `ApproxDP`, or of a plan with rho the `ZCDP` of an exact sampler
    with the sampling error; level: of the half widths, of all rows together if `jointly`; loss: the
    composition of exact draws. sha256: of the keys and values as sorted JSON, or of the file that
    the command line read. person: the column of ids, None if a record is a person. rows, max_cells:
    the bounds of its records and cells.

    Keys of a statistic: `statistic`, "count", "sum", "mean" or "quantile" (of a `column` clipped to
    the public `lower` and `upper`); `by`, the columns of its cells; `margins` = true for sums over
    cells; `unit`, which a sum is rounded to, or the step of the grid of a quantile; `probabilities`
    of quantiles, [0.5] if left out; `missing`, "drop" or a number within the bounds that stands for
    missing values; `name`; `noise`; `weight`, 1 if left out. A count of a `column` has `missing` =
    "drop" to count the present values, or `unknown_delta` to publish the labels of the records from
    a noisy threshold on. Noise scales are multiplier * sensitivity / weight. A quantile has about
    the rho of a Gaussian count of its weight, three times.
    """

    queries: tuple[Query, ...]
    guarantee: ApproxDP | Drawn
    level: float
    jointly: bool
    ledger: str | None
    loss: PrivacyLoss
    name: str
    sha256: str
    person: str | None
    rows: int
    max_cells: int | None

    @property
    def mechanisms(self) -> tuple[Mechanism | ExponentialMechanism, ...]:
        """The mechanism of each statistic, in units."""
        return tuple(query.mechanism for query in self.queries)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a release reads, with the column of ids."""
        of_queries = (name for query in self.queries for name in query.columns)
        ids = () if self.person is None else (self.person,)
        return tuple(dict.fromkeys((*of_queries, *ids)))

    @property
    def miss(self) -> float:
        """The probability that the bar of one row misses: by the union bound if jointly."""
        rows = sum(
            math.prod(len(c.names) for c in cells) * (len(self.queries[i].probabilities) or 1)
            for i, cells in shown(self.queries)
        )
        return (1.0 - self.level) / (rows if self.jointly else 1)

    def expected_errors(self) -> dict[str, ExpectedError]:
        """`expected_error` of each statistic by name, in its column's unit; of a mean, its sum's.

        No record is read. The error of a mean is about the error of its sum over the number of
        records. Of quantiles they are bounds on the errors of ranks, in records.
        """
        return {query.name: error_of(query, 1.0 - self.miss) for query in self.queries}

    def thresholds(self) -> dict[int, int]:
        """Least published counts, by index of the statistics whose categories are unknown."""
        return {
            i: threshold_of(query.mechanism, (query.rows, query.moved), query.unknown_delta)
            for i, query in enumerate(self.queries)
            if query.unknown_delta is not None
        }


@in_float64
def plan(plan: Mapping[str, Any]) -> TablePlan:
    """Plan of a table of counts, sums, means and quantiles that meet one budget together.

    Args:
        plan: the content of a TOML file with these keys. `epsilon` and `delta`, or `rho` of
            zero-concentrated privacy: the budget, of neighbours that differ by one record added or
            removed. `noise` of statistics that name none: "gaussian", the default, "laplace",
            "discrete_gaussian" or "discrete_laplace". `level` of the half widths, 0.95, of all rows
            together with
            `jointly` = true. `ledger`: the file of a `Ledger`, which keeps the plan's `name` with
            the charge. `person`, a column of ids, and `rows`: neighbours differ by all records of
            one person, and `rows` of them are kept at random; with `max_cells`, `rows` in each of
            so many cells. `columns.NAME`: the public cells of a column to group by: `categories`;
            increasing `bins`; or `unit` ("day", "week", "month", "quarter" or "year") from the date
            `first` to `last`; `other` = true adds a cell of all others. `missing`: for all
            statistics of values. `release`: a list of statistics; `TablePlan` lists their keys.

    Returns:
        A `TablePlan` with the least multiplier that the budget allows under exact composition
        (`calibrate`; with `rho` the rhos add). Sums are rounded once to multiples of `unit`; the
        default is 1 for discrete noise, else at most 2^-26 of the largest value. The sensitivity is
        a whole number of units: a `unit` that makes it a quarter larger raises `ValueError`.

    A mean is the sum of values less the middle of their bounds over the noisy count, which the plan
    must hold, for each cell. Margins are sums of the cells of their table. Keys that are unknown,
    missing or out of range raise `ValueError` with their name, and so does a budget that nothing
    meets. Noise is sampled within 2^-64 of its law in total variation: delta must be at least about
    1e-17, and with `rho` the guarantee states this error beside it.

    >>> import jaxdp as dp
    >>> count = {"statistic": "count", "noise": "discrete_laplace"}
    >>> ages = {"statistic": "mean", "column": "age", "lower": 0, "upper": 100, "weight": 2}
    >>> plan = dp.tables.plan({"epsilon": 1.0, "delta": 1e-6, "release": [count, ages]})
    >>> for name, error in plan.expected_errors().items():
    ...     print(name, f"{error.standard_deviation:.2f}")
    count 12.88
    mean of age 227.88
    """
    require_known("plan", plan, _KEYS)
    level = number_of("plan", {"level": 0.95, **plan}, "level", lower=0.0, upper=LARGEST_LEVEL)
    person = _person(plan)
    queries, guarantee, loss = _calibrated(plan, with_moves(queries_of(plan), *person[1:]))
    made = TablePlan(
        queries,
        guarantee,
        level,
        flag_of("plan", plan, "jointly"),
        text_of("plan", plan, "ledger"),
        loss,
        text_of("plan", plan, "name") or "table",
        sha256_of(json.dumps(plan, sort_keys=True, default=str).encode()),
        *person,
    )
    if any(q.unknown_delta is not None for q in queries) and made.jointly:
        raise ValueError(
            "plan: unknown_delta must stand without jointly, as the number of rows is not known"
        )
    if not made.miss >= _LEAST_MISS:
        raise ValueError(f"plan: level must be lower for so many rows jointly, got {level}")
    return made


def _calibrated(
    plan: Mapping[str, Any], queries: tuple[Query, ...]
) -> tuple[tuple[Query, ...], ApproxDP | Drawn, PrivacyLoss]:
    """Mechanisms with the least noise that the budget allows, its guarantee and their loss."""
    exact, guarantee = _budget(plan, queries)
    build = partial(_zcdp if isinstance(exact, ZCDP) else _loss, queries)
    multiplier = float(calibrate(build, exact))
    if not math.isfinite(multiplier):
        raise ValueError(f"plan: the budget must be one that some noise meets, got {guarantee}")
    made = tuple(
        q._replace(
            mechanism=ExponentialMechanism(q.base / multiplier)
            if q.probabilities
            else mechanism_of(q.noise, multiplier * q.base, q.sensitivity, q.rows)
        )
        for q in queries
    )
    return made, guarantee, _loss(queries, xp.asarray(multiplier))


def _batches(
    queries: tuple[Query, ...], multiplier: Reals
) -> Iterator[tuple[Mechanism | ExponentialMechanism, np.ndarray]]:
    """All statistics, one batch for each kind of noise, and in how many runs neighbours differ."""
    chosen = [query for query in queries if query.probabilities]
    if chosen:
        bases = xp.asarray([query.base for query in chosen])
        runs = np.array([float(query.runs) for query in chosen])
        yield ExponentialMechanism(bases / multiplier[..., None]), runs
    for noise in ALLOCATED:
        of_noise = [q for q in queries if q.noise == noise and not q.probabilities]
        if of_noise:
            scales = multiplier[..., None] * xp.asarray([query.base for query in of_noise])
            units, rows = [q.sensitivity for q in of_noise], [q.rows for q in of_noise]
            runs = np.array([float(query.runs) for query in of_noise])
            yield mechanism_of(noise, scales, units, rows), runs


def _loss(queries: tuple[Query, ...], multiplier: Reals) -> PrivacyLoss:
    """Composition of all statistics."""
    first, *others = (
        (privacy_loss(batch) * runs).sum(-1) for batch, runs in _batches(queries, multiplier)
    )
    return sum(others, first)


def _zcdp(queries: tuple[Query, ...], multiplier: Reals) -> ZCDP:
    """zCDP of all statistics, rounded up."""
    parts = [(batch.zcdp(), runs) for batch, runs in _batches(queries, multiplier)]
    pairs = ([runs * z.xi for z, runs in parts], [runs * z.rho for z, runs in parts])
    sums = (xp.sum(xp.concatenate(pair, axis=-1), axis=-1) for pair in pairs)
    return ZCDP(*(round_up(x, 4 * len(queries)) for x in sums))


def _budget(
    plan: Mapping[str, Any], queries: tuple[Query, ...]
) -> tuple[Budget | ZCDP, ApproxDP | Drawn]:
    """Budget of exact draws, and the guarantee stated, with the sampling error of all cells.

    The sampling error includes the labels of one person where categories are unknown.
    """
    hidden = [q.unknown_delta for q in queries if q.unknown_delta is not None]
    cells = sum(math.prod(query.shape) * query.draws for query in queries)
    # The sum and the product are rounded by much less than a millionth.
    error = float(size_error(cells + MOST_CELLS * len(hidden), LATTICE_STEP)) + sum(hidden)
    if "rho" in plan:
        if "epsilon" in plan or "delta" in plan:
            raise ValueError("plan: give either rho, or epsilon and delta")
        exact = ZCDP(0.0, number_of("plan", plan, "rho", lower=0.0))
        return exact, Drawn(exact, error)
    epsilon = number_of("plan", plan, "epsilon", lower=0.0)
    delta = number_of("plan", plan, "delta", lower=0.0, upper=1.0)
    lost_delta = error * (1.0 + math.exp(min(epsilon, 700.0))) * (1.0 + 1e-6)
    if not delta >= 2.0 * lost_delta:
        raise ValueError(
            f"plan: delta must be at least {2.0 * lost_delta:.1e} at this epsilon, got {delta}: "
            f"the noise is sampled within {error:.1e} of its law in total variation, so that no "
            "table has a delta of 0, although discrete Laplace noise drawn without any error would"
            + (" (unknown_delta is a part of it)" if hidden else "")
        )
    exact = Budget(epsilon, delta - lost_delta)
    return exact, ApproxDP(epsilon, delta)
