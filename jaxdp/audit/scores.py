"""Scores of an output, with which an audit distinguishes two neighbours.

A score is one function of a single output: all that it takes besides, a `View`, comes from the
outputs that choose the test. A score that depends on which neighbour made an output, such as a
distance from the median of that neighbour's own outputs, refutes true claims.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Entries up to which their covariance is used. chosen: a few trials estimate it
_LONGEST = 50
# Score of the last bits of floating point.
LOW_BITS = "low bits"
# Scores, and the likely fault if one refutes a claim.
FAULTS = {
    "length": "the number of entries in an output",
    LOW_BITS: (
        "the last bits of floating point, not by the size of the noise: round and audit again, "
        "or leave that score out with low_bits=False"
    ),
    "repeats": "equal entries in an output",
    "projection": "the values of an output",
    "distance": "the distance of an output from the middle",
    "norm": "the Euclidean norm of an output",
}


class View(NamedTuple):
    """Direction along which outputs are projected, and the centre of distances there."""

    direction: np.ndarray
    centre: float


def view_of(first: np.ndarray, second: np.ndarray) -> View:
    """The view with the largest difference between the outputs of two neighbours."""
    direction = _direction(first, second)
    both = np.concatenate([first, second])
    return View(direction, float(np.median(_along(both, direction))))


def scores_of(outputs: np.ndarray, view: View, low_bits: bool) -> dict[str, np.ndarray]:
    """Scores of each output by name. Padding is NaN."""
    present = ~np.isnan(outputs)
    along = _along(outputs, view.direction)
    ordered = np.sort(outputs, axis=1)
    scores = {
        "length": present.sum(axis=1).astype(float),
        "repeats": (ordered[:, 1:] == ordered[:, :-1]).sum(axis=1).astype(float),
        "projection": along,
        "distance": np.abs(along - view.centre),
        "norm": np.linalg.norm(np.nan_to_num(outputs), axis=1),
    }
    return scores | ({LOW_BITS: _lowest_bits(outputs)} if low_bits else {})


def _along(outputs: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.nan_to_num(outputs) @ direction


def _direction(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Difference of means over the covariance, or over the variances of long outputs (Fisher)."""
    a, b = (np.nan_to_num(x) for x in (first, second))
    gap = a.mean(axis=0) - b.mean(axis=0)
    spread = 0.5 * (a.var(axis=0) + b.var(axis=0))
    ridge = 1e-12 * spread.mean() + 1e-300
    if 1 < gap.size <= _LONGEST:
        centred = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
        return np.linalg.lstsq(
            centred.T @ centred / len(centred) + ridge * np.eye(gap.size), gap, rcond=None
        )[0]
    return gap / (spread + ridge)


def _lowest_bits(outputs: np.ndarray) -> np.ndarray:
    """Mean exponent of the lowest bit that is set in the doubles of each output."""
    has_bits = np.isfinite(outputs) & (outputs != 0)
    mantissa, exponent = np.frexp(np.where(has_bits, outputs, 1.0))
    digits = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.log2((digits & -digits).astype(float)) - 53.0 + exponent
    return np.where(has_bits, lowest, 0.0).sum(axis=1) / np.maximum(has_bits.sum(axis=1), 1)
