"""Sensitivity of matrix mechanisms: how far one record moves C x, taking part several times."""

from __future__ import annotations

import math

import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike

# Relative rounding of a sum of products. chosen: far above that of matrices of 10,000 rows
_ROUNDING = 1e-11


def matrix_sensitivity(strategy: ArrayLike, min_sep: int = 1, participations: int = 1) -> float:
    """Largest norm of C g for unit rows g of a record that takes part several times.

    Args:
        strategy: the matrix C, (queries, steps); concrete.
        min_sep: least number of steps between two participations.
        participations: largest number of participations of one record.

    If the rows g_i have norm 1 at the steps i of a pattern, |C g|^2 <= sum over i, j of |X_ij|, X =
    C^T C. Dynamic programming bounds the maximum over patterns by maxima over j, then over i. Exact
    where X has no entry min_sep or more off its diagonal (banded), and for one
    participation: the largest norm of a column. Rounded up.
    Source: Choquette-Choo et al., arXiv:2306.08153, section 4 and appendix.
    """
    matrix = np.asarray(checks.real("strategy", strategy))
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"strategy must be a matrix, got shape {matrix.shape}")
    min_sep = checks.positive_integer("min_sep", min_sep)
    participations = checks.positive_integer("participations", participations)
    gram = np.abs(matrix.T @ matrix)
    sums = _largest_sum(gram, min_sep, participations)
    size = math.sqrt(float(_largest_sum(sums, min_sep, participations)))
    return size * (1.0 + _ROUNDING)


def _largest_sum(weights: np.ndarray, min_sep: int, participations: int) -> np.ndarray:
    """Largest sum along the last axis of `participations` weights >= 0 at most, min_sep apart."""
    steps = weights.shape[-1]
    sums = np.zeros((steps + min_sep, *weights.shape[:-1]))
    for _ in range(min(participations, -(-steps // min_sep))):
        following = np.zeros_like(sums)
        for step in range(steps - 1, -1, -1):
            with_step = weights[..., step] + sums[step + min_sep]
            following[step] = np.maximum(following[step + 1], with_step)
        sums = following
    return np.asarray(sums[0])


def tree_sensitivity(steps: int) -> float:
    """sqrt(ceil(log2 steps) + 1): nodes of a binary tree above one of its leaves, rounded up."""
    steps = checks.positive_integer("steps", steps)
    return math.sqrt((steps - 1).bit_length() + 1.0) * (1.0 + 2.0**-52)
