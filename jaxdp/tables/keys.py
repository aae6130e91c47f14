"""Keys of a plan in TOML as data: statistics that have them, defaults, and how they are read."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.design.families import ALLOCATED
from jaxdp.tables.cells import CELL_KEYS, MOST_CELLS, Cells, cells_of
from jaxdp.tables.fields import flag_of, number_of, one_of, require_known, text_of
from jaxdp.tables.labels import normal
from jaxdp.tables.missing import DROP, missing_of
from jaxdp.tables.quantiles import probabilities_of
from jaxdp.tables.query import Query, in_units, name_of
from jaxdp.tables.unknown import unknown_delta_of

# Distance of two bounds. chosen: one over the largest number of a plan
_LEAST = 1e-100
# Largest ratio of weights and relative scales. chosen: far beyond all that are used
_LARGEST_RATIO = 1e12
# Columns of a table. chosen: their margins are 2^6 - 1 tables
_MOST_COLUMNS = 6


def _as_it_is(place: str, table: Mapping[str, Any], key: str) -> Any:
    del place
    return table[key]


def _normal_text(place: str, table: Mapping[str, Any], key: str) -> str | None:
    text = text_of(place, table, key)
    return None if text is None else normal(text)


def _noise(place: str, table: Mapping[str, Any], key: str) -> str:
    return one_of(place, table, key, ALLOCATED)


def _ratio(place: str, table: Mapping[str, Any], key: str) -> float | None:
    """A number that noise scales are made of."""
    if table[key] is None:
        return None
    return number_of(place, table, key, lower=1.0 / _LARGEST_RATIO, upper=_LARGEST_RATIO)


def _unit(place: str, table: Mapping[str, Any], key: str) -> Fraction | None:
    """The unit that sums are rounded to, as it is written: 0.01 is a hundredth."""
    if table[key] is None or table["statistic"] == "count":
        return None
    return Fraction(repr(number_of(place, table, key, lower=_LEAST)))


class Rule(NamedTuple):
    """Statistics that have a key, its default there, and how its value is read."""

    statistics: tuple[str, ...]
    default: Any = None
    read: Callable[[str, Mapping[str, Any], str], Any] = _as_it_is


STATISTICS = ("count", "sum", "mean", "quantile")
_OF_VALUES, _NOISY = STATISTICS[1:], STATISTICS[:3]
RULES = {
    "name": Rule(STATISTICS, None, text_of),
    "statistic": Rule(STATISTICS),
    "column": Rule(STATISTICS, None, _normal_text),
    "by": Rule(STATISTICS, ()),
    "margins": Rule(_NOISY, False, flag_of),
    **dict.fromkeys(CELL_KEYS, Rule(("count",))),
    "unit": Rule(STATISTICS, None, _unit),
    "lower": Rule(_OF_VALUES, None, number_of),
    "upper": Rule(_OF_VALUES, None, number_of),
    "missing": Rule(STATISTICS),
    "noise": Rule(_NOISY, None, _noise),
    "weight": Rule(STATISTICS, 1.0, _ratio),
    "scale": Rule(_NOISY, None, _ratio),
    "probabilities": Rule(("quantile",), [0.5], probabilities_of),
    "unknown_delta": Rule(("count",), None, unknown_delta_of),
}


def queries_of(plan: Mapping[str, Any]) -> tuple[Query, ...]:
    """The statistics of a plan in whole units, for neighbours that differ by one record."""
    tables = plan.get("release")
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise ValueError("plan: release must be a list of tables, one per statistic: [[release]]")
    noise = one_of("plan", {"noise": "gaussian", **plan}, "noise", ALLOCATED)
    zone = _zone_of(plan)
    columns = _columns(plan, zone)
    queries = []
    for index, table in enumerate(tables):
        place = f"plan: release {index + 1}"
        require_known(place, table, (*RULES,))
        statistic = one_of(place, table, "statistic", STATISTICS)
        usual: dict[str, Any] = {"noise": noise}
        if statistic != "count":
            usual["missing"] = plan.get("missing")
        values = dict[str, Any]()
        for key, rule in RULES.items():
            if statistic not in rule.statistics and key in table:
                raise ValueError(f"{place}: a {statistic} must have no {key}")
            given = {key: rule.default, **usual, **table}
            values[key] = rule.read(place, given, key) if statistic in rule.statistics else None
        if "weight" in table and "scale" in table:
            raise ValueError(f"{place}: give either weight or scale")
        queries.append(in_units(_query(place, table, values, columns, zone)))
    names = [query.name for query in queries]
    for query in queries:
        if names.count(query.name) > 1:
            raise ValueError(f"{query.where}: name must be given, {query.name!r} is there twice")
        if query.statistic == "mean" and not any(map(query.is_number_in, queries)):
            raise ValueError(
                f"{query.where}: a mean is a sum over a noisy count: {_missing_count(query)}"
            )
    return tuple(queries)


def _query(
    place: str,
    table: Mapping[str, Any],
    values: dict[str, Any],
    columns: Mapping[str, Cells],
    zone: datetime.tzinfo,
) -> Query:
    """The statistic of the values of all keys, before its units."""
    statistic, column = values["statistic"], values["column"]
    lower, upper = (0.0, 1.0) if statistic == "count" else (values["lower"], values["upper"])
    if not upper - lower >= _LEAST:
        raise ValueError(f"{place}: lower must lie below upper, got {lower} and {upper}")
    cells, missing = _groups(place, values["by"], columns), missing_of(place, values, lower, upper)
    if statistic == "count":
        column, cells = _counted(place, table, (column, missing, cells), zone)
    elif column is None:
        raise ValueError(f"{place}: column must be given")
    if values["margins"] and not cells:
        raise ValueError(f"{place}: margins must be false without by")
    return Query(
        where=place,
        name=values["name"] or name_of(statistic, column, cells),
        statistic=statistic,
        column=column,
        cells=cells,
        margins=bool(values["margins"]),
        bounds=(lower, upper),
        missing=missing,
        noise=values["noise"] or "exponential_mechanism",
        weight=values["weight"],
        scale=values["scale"],
        probabilities=values["probabilities"] or (),
        unknown_delta=values["unknown_delta"],
        given_unit=values["unit"],
    )


def _counted(
    place: str, table: Mapping[str, Any], given: tuple[Any, ...], zone: datetime.tzinfo
) -> tuple[str | None, tuple[Cells, ...]]:
    """The column whose present values are counted, and the cells of a count."""
    column, missing, cells = given
    own, is_unknown = cells_of(place, column or "", table, zone), "unknown_delta" in table
    if column is None and (own is not None or missing is not None):
        raise ValueError(f"{place}: column must be given")
    if own is not None and cells:
        raise ValueError(f"{place}: a count by must have no categories, bins or unit of its own")
    if column is not None and sum([own is not None, missing == DROP, is_unknown]) != 1:
        raise ValueError(
            f"{place}: a count of a column must have categories, bins or a unit, or "
            'unknown_delta, or count its values: missing = "drop"'
        )
    if is_unknown and (column is None or cells):
        raise ValueError(f"{place}: unknown_delta must be beside a column, without by")
    return (column, cells) if own is None else (None, (own,))


def _missing_count(query: Query) -> str:
    by = ", ".join(f'"{cells.column}"' for cells in query.cells)
    how = f"by = [{by}]" if by else "no column"
    if query.missing == DROP:
        how = f'column = "{query.column}" and missing = "drop"' + (
            f" and by = [{by}]" if by else ""
        )
    return f'add a [[release]] with statistic = "count" and {how}'


def _zone_of(plan: Mapping[str, Any]) -> datetime.tzinfo:
    """The zone of dates: UTC if the plan names none."""
    name = text_of("plan", plan, "zone")
    try:
        return datetime.UTC if name is None else zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f"plan: zone must be one such as Europe/Zurich, got {name!r}") from None


def _columns(plan: Mapping[str, Any], zone: datetime.tzinfo) -> dict[str, Cells]:
    """The cells of the columns that tables are grouped by, which the plan defines once."""
    columns, found = plan.get("columns", {}), dict[str, Cells]()
    if not isinstance(columns, Mapping):
        raise ValueError("plan: columns must be tables of keys, as [columns.region]")
    for name, table in columns.items():
        place, column = f"plan: columns.{name}", normal(name)
        require_known(place, table, CELL_KEYS)
        cells = cells_of(place, column, table, zone)
        if cells is None:
            raise ValueError(f"{place} must have categories, bins or a unit")
        if column in found:
            raise ValueError(f"{place}: columns must differ")
        found[column] = cells
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
