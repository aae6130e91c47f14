"""Labels of records, and public categories: which of them are the same, however they are written.

A number, a boolean, a date or a text. Texts are stripped, and those that are written as a number, a
boolean or a date are one: 1, 1.0, " 1" and "01" are the same label, True and "true" are, and a date
and its midnight.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

_BOOLEANS = {"true": True, "false": False}


class Label(NamedTuple):
    """Value of a record, in the form that is compared; `kind` names its type in the plural."""

    kind: str
    value: Any


def label_of(value: Any) -> Label | None:
    """The label that a value is; None where it is missing: None, NaN, NA, NaT or an empty text."""
    if isinstance(value, str):
        return _label_of_text(value.strip())
    if isinstance(value, bool | np.bool_):
        return Label("booleans", bool(value))
    if value is None or _is_unlike_itself(value):
        return None
    if isinstance(value, numbers.Real | decimal.Decimal):
        return Label("numbers", _number(value))
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.date):
        return Label("dates", _moment(value))
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return _label_of_text(text.strip())


def counted(values: Sequence[Any], labels: Sequence[Label], column: str) -> list[int]:
    """Number of values for each label; raises `ValueError` if no value is of a label's kind."""
    counts: collections.Counter[Label | None] = collections.Counter()
    for value, count in _alike(values):
        counts[label_of(value)] += count
    found = {label.kind for label in counts if label is not None}
    wanted = {label.kind for label in labels}
    if found and not found & wanted:
        raise ValueError(
            f"column {column!r} must hold what its categories are, {_listed(wanted)}, and holds "
            f"{_listed(found)} alone: no record could be counted"
        )
    return [counts[label] for label in labels]


def _alike(values: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Values and how often each is there: hashable ones that are equal and of one type, once."""
    try:
        # By type as well: True is 1 in a dictionary.
        alike = collections.Counter(zip(map(type, values), values, strict=True))
    except TypeError:  # scalars of JAX
        return ((value, 1) for value in values)
    return ((value, count) for (_, value), count in alike.items())


def _is_unlike_itself(value: Any) -> bool:
    """True of NaN and NaT, and of pandas' NA, which does not say."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
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


def _moment(value: datetime.date) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        return value
    return datetime.datetime.combine(value, datetime.time())


def _label_of_text(text: str) -> Label | None:
    if not text:
        return None
    if text.lower() in _BOOLEANS:
        return Label("booleans", _BOOLEANS[text.lower()])
    try:
        if text[4:5] == "-":
            return Label("dates", datetime.datetime.fromisoformat(text))
        number = _exact_number(text)
    except ValueError:
        return Label("texts", text)
    # "inf" and "nan" are texts, as "1_000" is.
    is_number = "_" not in text and math.isfinite(number)
    return Label("numbers", _number(number)) if is_number else Label("texts", text)


def _exact_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))
