"""Quantiles of a column by the exponential mechanism on a public grid, with an interval.

Values are clipped to public bounds and rounded to a grid of m + 1 points. For a target rank T, of n
values, a point x with L values below it and E at it has the score

    u(x) = -max(0, L - T, T - (L + E)),

without the second term at the first point and without the third at the last one. Some point has the
score 0. T = q n + t, with a public t, moves by q if a record is added, and so every score moves by
at most Delta = max(q, 1 - q), or `rows` Delta for the records of one person. Released is a point
with probability ~ exp(epsilon u / (2 rows Delta)): the range is epsilon at most. In several cells
the ranges of one person's records add up to at most epsilon.

A point with the score -t or less has a probability of exp(-epsilon t / (2 rows Delta)) at most. So
the point for T = q n - t is above the quantile, inf {x: L + E >= q n}, or the point for q n + t is
below it, with a probability of m exp(-epsilon t / (2 rows Delta)) at most. They are the ends of the
interval. No less holds for all records: if q n of them are at the first point and the others at the
last one, every other point has the score -t for the lower end.

Weights are whole: floor(2^128 exp(..)) + 2^40. The second term changes no log ratio of two weights
away from 0, where the first ones' lie within +- epsilon / 2. Roundings change log weights by 2^-39
at most, which is taken off epsilon before, `rows` times. A whole number below the sum of the
weights is drawn from 224 bits, uniform within 2^-77 in total variation.
Source: McSherry & Talwar, FOCS 2007; Smith, STOC 2011.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Key
from jaxdp.design.expected_error import ExpectedError
from jaxdp.tables.fields import number_of

# Steps of a grid without a unit. chosen: errors of a thousandth of the range
STEPS = 1000
# Largest number of steps. chosen: a second for a quantile
MOST_STEPS = 10**5
# Points for a quantile: of itself and of both ends of its interval.
DRAWS = 3
# Largest denominator of a probability. derived: scores of 2^40 records are below 2^60
_MOST_PARTS = 2**20
# Largest rank. chosen: beyond all numbers of records
MOST_RANK = 2**40
_WEIGHT_BITS, _FLOOR, _WORDS = 128, 2**40, 7
# Part of epsilon for the rounding of weights. derived: four log weights within 2^-39
_SLACK = 2.0**-37


def probabilities_of(place: str, table: Mapping[str, Any], key: str) -> tuple[Fraction, ...]:
    """The probabilities of the quantiles, as they are written: 0.1 is a tenth."""
    given = table[key]
    listed = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    numbers = (number_of(place, {key: x}, key, lower=0.0, upper=1.0) for x in listed)
    found = [Fraction(repr(number)) for number in numbers]
    if not found or any(x >= y for x, y in itertools.pairwise(found)):
        raise ValueError(f"{place}: probabilities must increase, got {given!r}")
    if not 0 < found[0] <= found[-1] < 1 or any(q.denominator > _MOST_PARTS for q in found):
        raise ValueError(f"{place}: probabilities must lie in (0, 1), as 0.25, got {given!r}")
    return tuple(found)


def steps_of(place: str, bounds: tuple[float, float], unit: Fraction | None) -> Fraction:
    """The distance of two points of the grid; `ValueError` unless it divides the range."""
    lower, upper = (Fraction(repr(x)) for x in bounds)
    steps = STEPS if unit is None else (upper - lower) / unit
    if steps != math.floor(steps) or steps > MOST_STEPS:
        raise ValueError(
            f"{place}: unit must divide upper - lower = {float(upper - lower):g} into at most "
            f"{MOST_STEPS:,} steps, got {float(unit or 0):g}"
        )
    return (upper - lower) / steps


def rank_error(epsilon: float, q: Fraction, rows: int, points: int, miss: float) -> ExpectedError:
    """Errors of the rank of a point that is chosen with epsilon, in records: upper bounds.

    The half width t holds for both ends of the interval together, and for a point of its own:
    P[u <= -t] <= (m + 1) exp(-t / scale), up to weights of 2^-88.
    """
    epsilon = epsilon - rows * _SLACK
    if not epsilon > 0:
        return ExpectedError(*(xp.asarray(math.inf) for _ in range(3)))
    scale, log = 2.0 * rows * float(max(q, 1 - q)) / epsilon, math.log(points)
    end = scale * math.log(points * (1.0 + 1e-9) / (miss - points * 2.0**-80))
    squared = log**2 + 2.0 * log + 2.0
    errors = scale * math.sqrt(squared), scale * (log + 1.0), float(math.ceil(end))
    return ExpectedError(*(xp.asarray(x) for x in errors))


def drawn(
    counts: np.ndarray,
    levels: Sequence[Fraction],
    ranks: Sequence[float],
    rows: int,
    drawing: tuple[float, Key],
) -> np.ndarray:
    """Points of the grid for each cell, quantile and draw, from counts by cell and point.

    ranks: t of each quantile's interval; drawing: epsilon of each draw, and the key.
    """
    epsilon, key = drawing
    shape = (len(counts), len(levels), DRAWS)
    bits = np.asarray(jax.random.bits(key, (*shape, _WORDS), np.uint32)).astype(object)
    uniform = np.sum(bits * np.array([2 ** (32 * i) for i in range(_WORDS)], dtype=object), axis=-1)
    points = np.zeros(shape, np.int64)
    for cell, level, draw in itertools.product(*map(range, shape)):
        shift = (0, -1, 1)[draw] * round(min(ranks[level], MOST_RANK))
        weights = _weights(
            _scores(counts[cell], levels[level], shift), levels[level], epsilon, rows
        )
        threshold = weights[-1] * uniform[cell, level, draw] >> (32 * _WORDS)
        points[cell, level, draw] = np.searchsorted(weights, threshold, side="right")
    return points


def _scores(counts: np.ndarray, q: Fraction, shift: int) -> np.ndarray:
    """-u times the denominator of q, exact: whole numbers."""
    reached = np.cumsum(counts)
    target = q.numerator * int(reached[-1]) + q.denominator * shift
    above = q.denominator * (reached - counts) - target
    below = target - q.denominator * reached
    above[0] = below[-1] = 0
    return np.maximum(0, np.maximum(above, below))


def _weights(scores: np.ndarray, q: Fraction, epsilon: float, rows: int) -> np.ndarray:
    """Sums of the weights of the points up to each, as whole numbers of Python."""
    spread = rows * max(q, 1 - q) * q.denominator
    exponents = -scores * (max(epsilon - rows * _SLACK, 0.0) / (2.0 * float(spread)))
    mantissas, powers = np.frexp(np.exp(exponents))
    whole = np.ldexp(mantissas, 53).astype(np.int64).astype(object)
    shifts = (powers + _WEIGHT_BITS - 53).tolist()
    weights = [x << s if s >= 0 else x >> -s for x, s in zip(whole, shifts, strict=True)]
    return np.array([*itertools.accumulate(w + _FLOOR for w in weights)], dtype=object)


def intervals(
    points: np.ndarray, ends: tuple[float, float], step: Fraction, ranks: Sequence[float]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Values and half widths of the quantiles of each cell, which increase.

    ends: the public bounds. If a rank is beyond all numbers of records, they are the interval.
    """
    lower, upper = ends
    is_wide = np.array(ranks) > MOST_RANK
    for cell in points:
        value, low, high = (
            np.clip(lower + cell[:, i] * float(step), lower, upper) for i in (0, 1, 2)
        )
        value = np.sort(value)
        width = np.maximum(np.abs(high - value), np.abs(value - low)) + 0.5 * float(step)
        # Points are rounded, and values before they are put on the grid.
        width = (width + 4.0 * math.ulp(max(abs(lower), abs(upper)))) * (1.0 + 1e-12)
        yield value, np.where(is_wide, upper - lower, np.minimum(width, upper - lower))
