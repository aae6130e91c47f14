"""Public bounds of features and targets, their checks, and values clipped to them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxdp.estimators.base import BoundsWarning, label, listed
from jaxdp.solvers.blocks import Columns

# Largest bound, and least half width. chosen: squares of both, and noise for them, are finite
_LARGEST, _NARROWEST = 1e50, 1e-50


def public_bounds(
    given: Any,
    columns: Sequence[Any],
    name: str = "feature_bounds",
    *,
    warn: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), each of shape (p,), from a pair of numbers or of vectors, or pairs by column.

    columns: their names or numbers, for messages. warn: of bounds that fit as a pair a column too.
    """
    if given is None:
        raise ValueError(
            f"{name} must be a pair (lower, upper), public: bounds that are computed from "
            "the records leak them"
        )
    if isinstance(given, Mapping):
        given = _by_name(given, columns, name)
        warn = False
    try:
        lower, upper = (np.asarray(b, dtype=np.float64) for b in given)
        ends = [np.array(np.broadcast_to(b, (len(columns),))) for b in (lower, upper)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a pair (lower, upper) of numbers or of vectors of length "
            f"{len(columns)}, got {given!r}{_advice(given, columns)}"
        ) from error
    bad = ~(np.isfinite(ends).all(axis=0) & (ends[0] < ends[1]))
    if bad.any():
        constant = bool((ends[0] == ends[1])[bad][0])
        raise ValueError(
            f"{name} must be finite, lower below upper, got {_first(bad, ends, columns, name)}"
            f"{': drop a column that is constant' * constant}{_advice(given, columns)}"
        )
    with np.errstate(over="ignore"):
        bad = (np.abs(ends).max(axis=0) > _LARGEST) | (ends[1] / 2 - ends[0] / 2 < _NARROWEST)
    if bad.any():
        raise ValueError(
            f"{name} must lie in [{-_LARGEST:g}, {_LARGEST:g}], at least {2 * _NARROWEST:g} apart, "
            f"got {_first(bad, ends, columns, name)}: take another unit"
        )
    if warn and _fits_by_column(given, columns) and not _is_two_arrays(given):
        _warn_of_two_readings(name, ends, columns)
    return ends[0], ends[1]


def _by_name(given: Mapping[Any, Any], columns: Sequence[Any], name: str) -> Any:
    """Lower and upper bounds of the columns, from a pair for each of them."""
    missing = [column for column in columns if column not in given]
    unknown = [column for column in given if column not in columns]
    if missing or unknown:
        raise ValueError(
            f"{name} must have a pair (lower, upper) for each column of X, missing: "
            f"{listed(missing) or 'none'}, unknown: {listed(unknown) or 'none'}"
        )
    pairs = [given[column] for column in columns]
    for column, pair in zip(columns, pairs, strict=True):
        if np.shape(pair) != (2,):
            raise ValueError(
                f"{name} must be pairs (lower, upper), got {pair!r} for {label(column)}"
            )
    return tuple(zip(*pairs, strict=True))


def clip_to_bounds(
    values: np.ndarray, lower: Any, upper: Any, name: str, columns: Sequence[Any]
) -> np.ndarray:
    """`values` within the bounds; a `BoundsWarning` counts those that were not."""
    if name == "X":
        warn_of_bounds(values, lower, upper, columns)
    else:
        _warn_of_clipped(((values < lower) | (values > upper)).sum(axis=0), values, name, "")
    return np.clip(values, lower, upper)


def warn_of_bounds(values: Any, lower: Any, upper: Any, columns: Sequence[Any]) -> None:
    """Warn of values of X beyond the bounds, and of bounds that are the extremes of the records.

    Columns with no value between their bounds, such as indicators, say nothing about the latter.
    """
    counts, inside = np.zeros((2, len(columns)), dtype=np.int64)
    ends = np.stack([np.full(len(columns), np.inf), np.full(len(columns), -np.inf)])
    for _, part in Columns(values).blocks():
        low, high = part.min(axis=0), part.max(axis=0)
        ends = np.stack([np.minimum(ends[0], low), np.maximum(ends[1], high)])
        if (low < lower).any() or (high > upper).any():
            counts += ((part < lower) | (part > upper)).sum(axis=0)
        if not inside.all():
            inside += ((part > lower) & (part < upper)).any(axis=0)
    found = [columns[index] for index in np.flatnonzero(counts).tolist()]
    place = f" in {len(found)} of {len(columns)} columns ({listed(found)})"
    _warn_of_clipped(counts, values, "X", place)
    if values.shape[0] > 2 and inside.any() and (ends == np.stack([lower, upper])).all():
        warnings.warn(
            "feature_bounds are the least and the largest value of every column of X: bounds that "
            "were computed from the records leak them, and the guarantee does not cover this. Give "
            "bounds that are known without the records",
            BoundsWarning,
            stacklevel=5,
        )


def _warn_of_clipped(counts: np.ndarray, values: Any, name: str, place: str) -> None:
    if counts.any():
        warnings.warn(
            f"{int(counts.sum())} of {math.prod(values.shape)} values of {name}{place} lie outside "
            "their public bounds and were clipped; this count is not private",
            BoundsWarning,
            stacklevel=5,
        )


def _first(bad: np.ndarray, ends: list[np.ndarray], columns: Sequence[Any], name: str) -> str:
    """The first bad bounds and their column."""
    index = int(np.flatnonzero(bad)[0])
    pair = f"({ends[0][index]:g}, {ends[1][index]:g})"
    return f"{pair} for column {label(columns[index])}" if name == "feature_bounds" else pair


def _fits_by_column(given: Any, columns: Sequence[Any]) -> bool:
    """True if the bounds would do as one pair (lower, upper) for each column."""
    try:
        pairs = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    shaped = pairs.shape == (len(columns), 2)
    return shaped and bool(np.isfinite(pairs).all() and (pairs[:, 0] < pairs[:, 1]).all())


def _is_two_arrays(given: Any) -> bool:
    """True for (lower, upper) as two arrays, which no one means as a pair a column."""
    return isinstance(given, tuple) and all(isinstance(end, np.ndarray) for end in given)


def _advice(given: Any, columns: Sequence[Any]) -> str:
    if not _fits_by_column(given, columns):
        return ""
    return "; if these are pairs, one a column, give tuple(np.transpose(pairs))"


def _warn_of_two_readings(name: str, ends: list[np.ndarray], columns: Sequence[Any]) -> None:
    read = ", ".join(
        f"{label(column)} in [{low:g}, {high:g}]"
        for column, low, high in zip(columns, *ends, strict=True)
    )
    warnings.warn(
        f"{name} is read as (lower, upper), column {read}; one pair a column would fit as well. "
        "Give two arrays, (np.array(lower), np.array(upper)), or tuple(np.transpose(pairs))",
        BoundsWarning,
        stacklevel=5,
    )
