"""Missing values of a column: how they are recognised, and the rules of a plan for them.

A record whose value is missing is left out ("drop"), or counts as a public number inside of the
bounds. The contribution of a record depends on the record alone, and is at most the bound: the
sensitivities of complete columns hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxdp.tables.fields import number_of
from jaxdp.tables.labels import MISSING, ColumnError, label_of, normal, number_in

DROP = "drop"
# What a plan does: leave out, put a number, or None: raise.
Missing = str | float | None


def missing_of(place: str, table: Mapping[str, Any], lower: float, upper: float) -> Missing:
    """The rule in a table of keys: "drop", or a number in [lower, upper]; None if it has none."""
    rule = table.get("missing")
    if rule is None or rule == DROP:
        return rule
    if isinstance(rule, str):
        raise ValueError(f'{place}: missing must be "drop" or a number, got {rule!r}')
    return number_of(place, table, "missing", lower=lower, upper=upper)


def is_missing(value: Any) -> bool:
    """True for None, NaN, NaT, NA, empty texts and the texts that pandas reads as missing."""
    if isinstance(value, str):
        return normal(value) in MISSING
    label = label_of(value)
    return label is None or (label.is_text and label.texts[0] in MISSING)


def present(values: Sequence[Any]) -> np.ndarray:
    """True for each value that is not missing."""
    return ~np.fromiter(map(is_missing, values), bool, len(values))


def numbers_of(values: Sequence[Any], column: str, before: int) -> tuple[np.ndarray, np.ndarray]:
    """The values as doubles, NaN where they are missing, and where they are present.

    `ColumnError` for a value that is neither; `before`: the records that were read earlier.
    """
    numbers = np.fromiter(map(as_double, values), np.float64, len(values))
    absent = np.isnan(numbers)
    for i in np.flatnonzero(absent).tolist():
        if not is_missing(values[i]):
            record = before + i + 1
            raise ColumnError(
                f"column {column!r} must be of numbers, and record {record} has none: write a "
                "number without a unit and without marks of thousands",
                record,
            )
    return numbers, ~absent


def require_present(mask: np.ndarray, column: str, before: int) -> None:
    """`ColumnError` if a value is missing."""
    if not mask.all():
        record = before + int(np.argmin(mask)) + 1
        raise ColumnError(
            f"column {column!r} must be of numbers, and record {record} has none: its value is "
            'missing, for which the plan can have missing = "drop", or a number',
            record,
        )


def as_double(value: Any) -> float:
    """The number that a value is or is written as, NaN if it is none."""
    if isinstance(value, str):
        return number_in(value)
    try:
        return float(value)
    except OverflowError:  # a whole number, to be clipped
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan
