"""Estimators to audit, each fitted to a few records of which one is replaced."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import jaxdp as dp
from benchmarks._tools.audited import Case, Cases
from benchmarks.reproductions.ssp_lasso import SSPLasso
from jaxdp.estimators import DPStandardScaler

DELTA = 1e-2
# Large, as the few fits that there is time for prove little.
EPSILON = 8.0
KNOWN = {"epsilon": EPSILON, "delta": DELTA}
TRIALS = 200


def fitted(make: Callable[..., Any], *pair: tuple[float, float], **parameters: Any) -> Case:
    """Records at 0, and one that is (feature, target) of either neighbour."""
    rest = np.zeros((5, 1)), np.array([0.0, 1.0, 0.0, 1.0, 0.0])

    def data(feature: float, target: float) -> tuple[np.ndarray, np.ndarray]:
        return np.append(rest[0], [[feature]], axis=0), np.append(rest[1], target)

    neighbours = data(*pair[0]), data(*pair[1])
    return Case(make(**KNOWN, **parameters), neighbours, EPSILON, DELTA, TRIALS)


_BOUNDS = {"feature_bounds": (-1.0, 1.0)}
_TARGETS = {**_BOUNDS, "target_bounds": (-1.0, 1.0)}
_BINARY = {**_BOUNDS, "classes": [0, 1]}
_UP, _DOWN = (1.0, 1.0), (1.0, -1.0)
ESTIMATORS: Cases = {
    "DPLasso": partial(fitted, dp.DPLasso, _UP, _DOWN, **_TARGETS),
    "DPLasso, fixed scales": partial(
        fitted, dp.DPLasso, _UP, _DOWN, **_TARGETS, scaling_share=0.0, fit_intercept=False
    ),
    "DPLinearRegression, moments": partial(
        fitted, dp.DPLinearRegression, _UP, _DOWN, **_TARGETS, solver="moments"
    ),
    "DPLinearRegression, greedy": partial(
        fitted, dp.DPLinearRegression, _UP, _DOWN, **_TARGETS, solver="greedy"
    ),
    "DPLogisticRegression": partial(
        fitted, dp.DPLogisticRegression, (1.0, 1.0), (1.0, 0.0), **_BINARY
    ),
    "DPLogisticRegression, three classes": partial(
        fitted, dp.DPLogisticRegression, (1.0, 1.0), (1.0, 0.0), **_BOUNDS, classes=[0, 1, 2]
    ),
    "DPNaiveBayes": partial(fitted, dp.DPNaiveBayes, (1.0, 1.0), (-1.0, 0.0), **_BINARY),
    "DPPCA": partial(fitted, dp.DPPCA, (1.0, 0.0), (0.0, 0.0), **_BOUNDS),
    "DPStandardScaler": partial(fitted, DPStandardScaler, (1.0, 0.0), (-1.0, 0.0), **_BOUNDS),
    "SSPLasso": partial(fitted, SSPLasso, _UP, _DOWN, row_bound=3.0**0.5),
}
