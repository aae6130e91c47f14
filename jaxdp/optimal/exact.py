"""Whole weights and their delta in rational arithmetic, independent of any solver."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

# Sum of whole weights, which stand for probabilities. chosen: sums of them are exact
TOTAL = 2**40
# Denominator of the bounds on e^epsilon. chosen: they are within 1e-28
_SCALE = 2**100


def exp_below(epsilon: float) -> Fraction:
    """A rational at most e^epsilon, below it by less than 1e-28 of it."""
    with decimal.localcontext() as context:
        context.prec = 60
        value = decimal.Decimal(epsilon).exp()
        return Fraction(math.floor(value * _SCALE) - 1, _SCALE)


def whole_weights(masses: np.ndarray) -> np.ndarray:
    """Masses as whole numbers of sum 2^40, each off by less than one unit: largest rests go up."""
    shares = np.maximum(masses, 0.0)
    shares = shares / shares.sum() * TOTAL
    weights = np.floor(shares)
    n_left = round(TOTAL - weights.sum())
    weights[np.argsort(weights - shares, kind="stable")[:n_left]] += 1
    return weights.astype(np.int64)


def excess(weights: Sequence[int], k: int, growth: Fraction) -> int:
    """Sum over i of (w_i - growth w_(i - k))_+, times the denominator of `growth`."""
    n = len(weights)
    numerator, denominator = growth.numerator, growth.denominator
    total = 0
    for i, w in enumerate(weights):
        partner = weights[i - k] if 0 <= i - k < n else 0
        total += max(w * denominator - numerator * partner, 0)
    return total


def excesses(masses: np.ndarray, shifts: np.ndarray, epsilon: float) -> np.ndarray:
    """Sum over i of (p_i - e^epsilon p_(i - k))_+ for every k, in floating point."""
    n, growth = masses.size, math.exp(epsilon)
    padded = np.concatenate([np.zeros(n), masses, np.zeros(n)])
    starts = n - np.clip(shifts, -n, n)
    rows = (padded[s : s + n] for s in starts)
    return np.array([np.maximum(masses - growth * row, 0.0).sum() for row in rows])


def exact_delta(weights: np.ndarray, atom: int, steps: int, epsilon: float) -> Fraction:
    """The delta at `epsilon` of whole weights, for shifts of up to `steps` whole cells.

    atom + max over 1 <= |k| <= steps of sum_i (w_i - e^epsilon w_(i - k))_+, over the total, with
    e^epsilon rounded down: never below the true one. Floating point, good to 1e-12, chooses the
    shifts that may be the worst; their sums are whole numbers.
    """
    listed = [int(w) for w in weights]
    total = sum(listed) + int(atom)
    shifts = np.arange(1, steps + 1)
    if listed != listed[::-1]:
        shifts = np.concatenate([shifts, -shifts])
    rough = excesses(np.asarray(weights, dtype=np.float64) / total, shifts, epsilon)
    growth = exp_below(epsilon)
    near = shifts[rough >= rough.max() - 1e-11 * (1.0 + rough.max())]
    worst = max(excess(listed, int(k), growth) for k in near)
    return (Fraction(worst, growth.denominator) + int(atom)) / total


def float_above(value: Fraction) -> float:
    """The least double that is not below."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
