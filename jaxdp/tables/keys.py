"""Keys of a plan in TOML: permitted values, and errors that name the bad key."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.tables.labels import Label, label_of, normal, overlap

# Numbers of a plan. chosen: beyond all that are used, and far from where doubles end
_LARGEST = 1e100
# Distance of two bounds. chosen: as that
_LEAST = 1e-100
# Largest ratio of weights and relative scales. chosen: as large
_LARGEST_RATIO = 1e12
# Name of the cell of all records that are in no category.
_OTHER = "other"
STATISTICS = ("count", "sum", "mean")
_KEYS = (
    *("name", "statistic", "column", "categories", "other", "lower", "upper"),
    *("unit", "noise", "weight", "scale"),
)


class Entry(NamedTuple):
    """Checked statistic of a plan; `where` names it in errors.

    categories: the names of the cells; labels: values counted in each, except in the cell of all
    others; zone: in which times are dates; unit: None if the plan gives none.
    """

    where: str
    name: str
    statistic: str
    column: str | None
    categories: tuple[str, ...] | None
    labels: tuple[Label, ...]
    zone: datetime.tzinfo
    lower: float
    upper: float
    unit: Fraction | None
    noise: str
    weight: float
    scale: float | None


def entries_of(
    plan: Mapping[str, Any], noises: tuple[str, ...], zone: datetime.tzinfo
) -> tuple[Entry, ...]:
    """The statistics of a plan, whose noise is one of `noises`."""
    tables = plan.get("release")
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise ValueError("plan: release must be a list of tables, one per statistic: [[release]]")
    default = _one_of("plan", {"noise": "gaussian", **plan}, "noise", noises)
    entries = tuple(_entries(tables, default, noises, zone))
    names = [entry.name for entry in entries]
    for entry in entries:
        if names.count(entry.name) > 1:
            raise ValueError(f"{entry.where}: name must be given, {entry.name!r} is there twice")
        if entry.statistic == "mean" and not any(map(counts_all, entries)):
            raise ValueError(
                f"{entry.where}: a mean is a sum over a noisy count: add a [[release]] with "
                'statistic = "count" and no column'
            )
    return entries


def counts_all(entry: Entry) -> bool:
    """True if it is the count of all records."""
    return entry.statistic == "count" and entry.column is None


def require_known(place: str, table: object, keys: tuple[str, ...]) -> None:
    """Raise `ValueError` for other types than a table, and for unknown keys."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{place} must be a table of keys, got {type(table).__name__}")
    for key in table:
        if key not in keys:
            raise ValueError(f"{place}: {key} is not a key: it can have {', '.join(keys)}")


def number_of(
    place: str,
    table: Mapping[str, Any],
    key: str,
    *,
    lower: float = -_LARGEST,
    upper: float = _LARGEST,
) -> float:
    """A number in [lower, upper]."""
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{place}: {key} must be a number, got {value!r}")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not lower <= value <= upper:
        raise ValueError(f"{place}: {key} must lie in [{lower:g}, {upper:g}], got {value}")
    return value


def text_of(place: str, table: Mapping[str, Any], key: str) -> str | None:
    """A text that is not empty; None where there is none."""
    value = table.get(key)
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError(f"{place}: {key} must be a text, got {value!r}")
    return value


def zone_of(plan: Mapping[str, Any]) -> datetime.tzinfo:
    """The zone in which times are dates: UTC if the plan names none."""
    name = text_of("plan", plan, "zone")
    try:
        return datetime.UTC if name is None else zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f"plan: zone must be one such as Europe/Zurich, got {name!r}") from None


def _entries(
    tables: Sequence[Any], noise: str, noises: tuple[str, ...], zone: datetime.tzinfo
) -> Iterator[Entry]:
    for index, table in enumerate(tables):
        place = f"plan: release {index + 1}"
        require_known(place, table, _KEYS)
        statistic = _one_of(place, table, "statistic", STATISTICS)
        column = text_of(place, table, "column")
        column = None if column is None else normal(column)
        categories, labels = _categories(place, table, zone)
        lower, upper = _bounds(place, table, statistic)
        if (statistic == "count") != (categories is not None) and column is not None:
            needed = "categories" if statistic == "count" else "no categories"
            raise ValueError(f"{place}: a {statistic} of a column must have {needed}")
        if column is None and (statistic != "count" or categories is not None):
            raise ValueError(f"{place}: column must be given")
        between = " by " if categories else " of "
        name = statistic if column is None else f"{statistic}{between}{column}"
        if "weight" in table and "scale" in table:
            raise ValueError(f"{place}: give either weight or scale")
        yield Entry(
            place,
            text_of(place, table, "name") or name,
            statistic,
            column,
            categories,
            labels,
            zone,
            lower,
            upper,
            _unit(place, table),
            _one_of(place, {"noise": noise, **table}, "noise", noises),
            _positive(place, {"weight": 1.0, **table}, "weight"),
            _positive(place, table, "scale") if "scale" in table else None,
        )


def _bounds(place: str, table: Mapping[str, Any], statistic: str) -> tuple[float, float]:
    """The public bounds of a column; (0, 1) for counts."""
    if statistic == "count":
        for key in ("lower", "upper", "unit"):
            if key in table:
                raise ValueError(f"{place}: {key} is for sums and means, a count has none")
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


def _categories(
    place: str, table: Mapping[str, Any], zone: datetime.tzinfo
) -> tuple[tuple[str, ...] | None, tuple[Label, ...]]:
    """Names of the cells, and the public categories as labels, each once."""
    listed, other = table.get("categories"), table.get("other", False)
    if not isinstance(other, bool) or (other and listed is None):
        raise ValueError(f"{place}: other must be true or false, beside categories, got {other!r}")
    if listed is None:
        return None, ()
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ValueError(f"{place}: categories must be a list of labels, got {listed!r}")
    labels = tuple(label for x in listed if (label := label_of(x, zone)) is not None)
    if len(labels) < len(listed):
        raise ValueError(f"{place}: categories must not be empty or NaN, got {listed!r}")
    for value, label in zip(listed, labels, strict=True):
        if isinstance(value, datetime.datetime) and value.date() != label.value:
            raise ValueError(f"{place}: categories must be dates in the plan's zone, got {value}")
    if overlap(labels):
        raise ValueError(
            f"{place}: categories must differ, got {listed!r}: a record is in one at most, and a "
            "number takes every text that is written as it is"
        )
    names = tuple(normal(str(label)) for label in listed)
    if other and _OTHER in names:
        raise ValueError(f"{place}: other must be false where a category is named {_OTHER!r}")
    return (*names, _OTHER) if other else names, labels


def _positive(place: str, table: Mapping[str, Any], key: str) -> float:
    """A number that noise scales are made of."""
    return number_of(place, table, key, lower=1.0 / _LARGEST_RATIO, upper=_LARGEST_RATIO)


def _one_of(place: str, table: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = table.get(key)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{place}: {key} must be one of {', '.join(choices)}, got {value!r}")
    return value
