"""Labels of records, and public categories: which of them are the same, however they are written.

A category that is a text is compared as text, without the spaces around it and in Unicode's
composed form (NFC): "02139" is not "2139". A category that is a number is compared by value, with
numbers and with texts that are written as one: 1 is 1.0, "1", "1.0" and "1e0". A boolean is true,
"true" and "True". A date is every time of its day in UTC, and every text of one.

A record whose value is missing is left out ("drop"), or counts as a public number inside of the
bounds. The contribution of a record depends on the record alone, and is at most the bound: the
sensitivities of complete columns hold.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import math
import numbers
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

# Texts that mean that a value is missing, as pandas reads them.
MISSING = frozenset(
    (
        *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "#N/A N/A", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    )
)
_BOOLEANS = {"true": True, "false": False}
# Ways to write a boolean, for booleans in a column whose categories are texts.
_WRITTEN = {True: ("True", "true", "TRUE"), False: ("False", "false", "FALSE")}
# Decimal numbers in ASCII, and infinity as `repr` writes it.
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf)", re.ASCII | re.IGNORECASE)
# Dates of ISO 8601, alone or with a time; some write UTC for its offset.
_DATE = re.compile(r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:?\d\d[\d:.,+-]*)?)(?: ?(?:Z|UTC))?", re.ASCII)
# No-break spaces are spaces, and those without a width are nothing.
_SPACES = {0xA0: " ", 0x2007: " ", 0x202F: " ", 0x2060: None, 0xFEFF: None}
DROP = "drop"
# What a plan does: leave out, put a number, or None: raise.
Missing = str | float | None


class ColumnError(ValueError):
    """Values that a column cannot have; `record`: the number of the first one, None if all."""

    def __init__(self, message: str, record: int | None = None):
        super().__init__(message)
        self.record = record


@dataclasses.dataclass(frozen=True)
class Label:
    """Value of a record in the form that is compared; `kind` names its type in the plural.

    texts: the ways to write it; a category that is a text must be one of them. is_text: True if it
    was given as a text.
    """

    kind: str
    value: Any
    texts: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    is_text: bool = dataclasses.field(default=False, compare=False)


def normal(text: str) -> str:
    """The text in Unicode's composed form, with plain spaces, and none around it."""
    return unicodedata.normalize("NFC", text.translate(_SPACES)).strip()


def number_in(text: str) -> float:
    """The number that a text is, NaN if it is none."""
    try:
        return math.nan if "_" in text else float(normal(text))
    except ValueError:
        return math.nan


def label_of(value: Any) -> Label | None:
    """The label that a value is; None where it is missing: None, NaN, NA, NaT or an empty text.

    Times with an offset are dates in UTC.
    """
    if isinstance(value, str):
        return _label_of_text(normal(value))
    if isinstance(value, bool | np.bool_):
        return Label("booleans", bool(value), _WRITTEN[bool(value)])
    if value is None or _is_unlike_itself(value):
        return None
    is_duration = isinstance(value, np.timedelta64)  # which NumPy registers as a whole number
    if isinstance(value, numbers.Real | decimal.Decimal) and not is_duration:
        number = _number(value)
        return Label("numbers", number, (str(value), str(number)))
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.date):
        day = _day(value)
        return Label("dates", day, (day.isoformat(),))
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return _label_of_text(normal(text))


def overlap(labels: Sequence[Label]) -> bool:
    """True if a value could be of two of these categories."""
    texts = [label.texts[0] for label in labels if label.is_text]
    values = [label for label in labels if not label.is_text]
    written = {label for label in labels if label.is_text} & set(values)
    return len({*texts}) < len(texts) or len({*values}) < len(values) or bool(written)


def _is_unlike_itself(value: Any) -> bool:
    """True of NaN and NaT, and of pandas' NA, which does not say."""
    try:
        return bool(value != value)
    except (ArithmeticError, TypeError, ValueError):
        return True


def _number(value: Any) -> int | float:
    """The number, as a whole one if it is one: whole numbers of Python are exact."""
    if isinstance(value, np.floating) and value.itemsize < 8:
        # As it is written: the float32 nearest to 0.1 is another number in float64.
        value = float(str(value))
    try:
        whole = int(value)
    except OverflowError:  # infinite
        return float(value)
    return whole if whole == value else float(value)


def _day(value: datetime.date) -> datetime.date:
    """The date, of a time with an offset in UTC."""
    if not isinstance(value, datetime.datetime):
        return value
    if value.tzinfo is not None:
        with contextlib.suppress(OverflowError):  # the first or the last day of the calendar
            value = value.astimezone(datetime.UTC)
    return value.date()


def _label_of_text(text: str) -> Label | None:
    """The label of a text that is `normal`."""
    if not text:
        return None
    kind, value = _parsed(text)
    return Label(kind, value, (text,), is_text=True)


def _parsed(text: str) -> tuple[str, Any]:
    """The kind and the value that a text is written as."""
    if text.lower() in _BOOLEANS:
        return "booleans", _BOOLEANS[text.lower()]
    try:
        if _NUMBER.fullmatch(text):
            number = int(text) if text.lstrip("+-").isdigit() else float(text)
            if math.isfinite(number) or text[-1] in "fF":
                return "numbers", _number(number)
        elif date := _DATE.fullmatch(text):
            is_utc = date.end(1) < len(text)
            moment = datetime.datetime.fromisoformat(date[1] + "+00:00" * is_utc)
            return "dates", _day(moment)
    except ValueError:
        pass
    return "texts", text


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
