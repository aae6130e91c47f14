"""Values of a plan's keys: types and ranges, and errors that name the bad key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Numbers of a plan. chosen: beyond all that are used, and far from where doubles end
LARGEST = 1e100
# Largest level of half widths. chosen: they are finite
LARGEST_LEVEL = 1.0 - 1e-6


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
    lower: float = -LARGEST,
    upper: float = LARGEST,
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


def flag_of(place: str, table: Mapping[str, Any], key: str) -> bool:
    """True or false; false where there is none."""
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{place}: {key} must be true or false, got {value!r}")
    return value


def one_of(place: str, table: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    """One of the texts."""
    value = table.get(key)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{place}: {key} must be one of {', '.join(choices)}, got {value!r}")
    return value
