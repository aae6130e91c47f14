"""Keys of a plan in TOML: permitted values, and errors that name the bad key."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.tables.cells import CELL_KEYS, MOST_CELLS, Cells, cells_of
from jaxdp.tables.fields import flag_of, number_of, one_of, require_known, text_of
from jaxdp.tables.labels import normal
from jaxdp.tables.missing import DROP, Missing, missing_of
from jaxdp.tables.quantiles import probabilities_of
from jaxdp.tables.unknown import unknown_delta_of

# Distance of two bounds. chosen: one over the largest number of a plan
_LEAST = 1e-100
# Largest ratio of weights and relative scales. chosen: far beyond all that are used
_LARGEST_RATIO = 1e12
# Columns of a table. chosen: their margins are 2^6 - 1 tables
_MOST_COLUMNS = 6
STATISTICS = ("count", "sum", "mean", "quantile")
_KEYS = (
    *("name", "statistic", "column", "by", "margins", *CELL_KEYS, "lower", "upper", "missing"),
    *("noise", "weight", "scale", "probabilities", "unknown_delta"),
)


class Entry(NamedTuple):
    """Checked statistic of a plan; `where` names it in errors.

    column: of the values, None for counts of records. cells: by column, of the groups; none if the
    statistic is of all records. margins: sums over some or all of the columns are wanted, too.
    unit: None if the plan gives none. probabilities: of the quantiles; unknown_delta: of a count by
    categories that the records bring, else None.
    """

    where: str
    name: str
    statistic: str
    column: str | None
    cells: tuple[Cells, ...]
    margins: bool
    lower: float
    upper: float
    missing: Missing
    unit: Fraction | None
    noise: str
    weight: float
    scale: float | None
    probabilities: tuple[Fraction, ...]
    unknown_delta: float | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of cells by column."""
        return tuple(len(cells.names) for cells in self.cells)

    @property
    def unknown_columns(self) -> tuple[str, ...]:
        """The column whose labels are the cells, if the records bring them."""
        return () if self.unknown_delta is None or self.column is None else (self.column,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        own = () if self.column is None else (self.column,)
        return (*own, *(cells.column for cells in self.cells))


def entries_of(
    plan: Mapping[str, Any], noises: tuple[str, ...], zone: datetime.tzinfo
) -> tuple[Entry, ...]:
    """The statistics of a plan, whose noise is one of `noises`."""
    tables = plan.get("release")
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise ValueError("plan: release must be a list of tables, one per statistic: [[release]]")
    default = one_of("plan", {"noise": "gaussian", **plan}, "noise", noises)
    columns = _columns(plan, zone)
    entries = []
    for index, table in enumerate(tables):
        place = f"plan: release {index + 1}"
        require_known(place, table, _KEYS)
        noise = one_of(place, {"noise": default, **table}, "noise", noises)
        if table.get("statistic") != "count":
            table = {"missing": plan.get("missing"), **table}
        entries.append(_entry(place, table, noise, columns, zone))
    names = [entry.name for entry in entries]
    for entry in entries:
        if names.count(entry.name) > 1:
            raise ValueError(f"{entry.where}: name must be given, {entry.name!r} is there twice")
        if entry.statistic == "mean" and not any(is_number_of(entry, other) for other in entries):
            raise ValueError(
                f"{entry.where}: a mean is a sum over a noisy count: {_missing(entry)}"
            )
    return tuple(entries)


def is_number_of(entry: Entry, count: Entry) -> bool:
    """True if `count`, or a margin of it, is the number of values in each cell of `entry`.

    Summed over a column, its cells are all records if one of them is the cell of all others.
    """
    if count.statistic != "count":
        return False
    if count.column != (entry.column if entry.missing == DROP else None):
        return False
    more = [cells for cells in count.cells if cells not in entry.cells]
    return all(c in count.cells for c in entry.cells) and all(c.has_other for c in more)


def _missing(entry: Entry) -> str:
    by = ", ".join(f'"{cells.column}"' for cells in entry.cells)
    how = f"by = [{by}]" if by else "no column"
    if entry.missing == DROP:
        how = f'column = "{entry.column}" and missing = "drop"' + (
            f" and by = [{by}]" if by else ""
        )
    return f'add a [[release]] with statistic = "count" and {how}'


def zone_of(plan: Mapping[str, Any]) -> datetime.tzinfo:
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


def _entry(
    place: str,
    table: Mapping[str, Any],
    noise: str,
    columns: Mapping[str, Cells],
    zone: datetime.tzinfo,
) -> Entry:
    statistic = one_of(place, table, "statistic", STATISTICS)
    column = text_of(place, table, "column")
    column = None if column is None else normal(column)
    lower, upper = _bounds(place, table, statistic)
    cells, missing = _groups(place, table, columns), missing_of(place, table, lower, upper)
    if statistic == "count":
        own = cells_of(place, column or "", table, zone)
        if column is None and own is not None:
            raise ValueError(f"{place}: column must be given")
        if own is not None and cells:
            raise ValueError(
                f"{place}: a count by must have no categories, bins or unit of its own"
            )
        ways = [own is not None, missing == DROP, "unknown_delta" in table]
        if column is not None and sum(ways) != 1:
            raise ValueError(
                f"{place}: a count of a column must have categories, bins or a unit, or "
                'unknown_delta, or count its values: missing = "drop"'
            )
        if "unknown_delta" in table and (column is None or cells):
            raise ValueError(f"{place}: unknown_delta must be beside a column, without by")
        if column is None and missing is not None:
            raise ValueError(f"{place}: column must be given beside missing")
        column, cells = (column, cells) if own is None else (None, (own,))
    else:
        for key in CELL_KEYS:
            if key in table and key != "unit":
                raise ValueError(f"{place}: a {statistic} of a column must have no {key}: use by")
        if column is None:
            raise ValueError(f"{place}: column must be given")
        _require_use(place, table, statistic)
    if "weight" in table and "scale" in table:
        raise ValueError(f"{place}: give either weight or scale")
    margins = flag_of(place, table, "margins")
    if margins and not cells:
        raise ValueError(f"{place}: margins must be false without by")
    return Entry(
        place,
        text_of(place, table, "name") or name_of(statistic, column, cells),
        statistic,
        column,
        cells,
        margins,
        lower,
        upper,
        missing,
        None if statistic == "count" else _unit(place, table),
        noise,
        _positive(place, {"weight": 1.0, **table}, "weight"),
        _positive(place, table, "scale") if "scale" in table else None,
        probabilities_of(place, table) if statistic == "quantile" else (),
        unknown_delta_of(place, table),
    )


def _require_use(place: str, table: Mapping[str, Any], statistic: str) -> None:
    """`ValueError` for keys that have no effect on a statistic."""
    unused = ("probabilities",) if statistic != "quantile" else ("noise", "scale", "margins")
    for key in (*unused, "unknown_delta"):
        if key in table:
            raise ValueError(f"{place}: a {statistic} must have no {key}")


def name_of(statistic: str, column: str | None, cells: Sequence[Cells]) -> str:
    """The name of a table: "mean of age by region, sex"."""
    of = "" if column is None else f" of {column}"
    by = f" by {', '.join(c.column for c in cells)}" if cells else ""
    return f"{statistic}{of}{by}"


def _groups(
    place: str, table: Mapping[str, Any], columns: Mapping[str, Cells]
) -> tuple[Cells, ...]:
    """The cells of the columns that a statistic is grouped by."""
    by = table.get("by", [])
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


def _bounds(place: str, table: Mapping[str, Any], statistic: str) -> tuple[float, float]:
    """The public bounds of a column; (0, 1) for counts."""
    if statistic == "count":
        for key in ("lower", "upper"):
            if key in table:
                raise ValueError(f"{place}: {key} is for sums and means, a count has none")
        if "unit" in table and not isinstance(table["unit"], str):
            raise ValueError(f"{place}: unit is for sums and means, or a text for dates")
        return 0.0, 1.0
    lower, upper = (number_of(place, table, key) for key in ("lower", "upper"))
    if not upper - lower >= _LEAST:
        raise ValueError(f"{place}: lower must lie below upper, got {lower} and {upper}")
    return lower, upper


def _unit(place: str, table: Mapping[str, Any]) -> Fraction | None:
    """The unit that sums are rounded to, as it is written: 0.01 is a hundredth."""
    if "unit" not in table:
        return None
    return Fraction(repr(number_of(place, table, "unit", lower=_LEAST)))


def _positive(place: str, table: Mapping[str, Any], key: str) -> float:
    """A number that noise scales are made of."""
    return number_of(place, table, key, lower=1.0 / _LARGEST_RATIO, upper=_LARGEST_RATIO)
