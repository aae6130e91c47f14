"""Records of a linear model, about released centres and within released ranges.

Every solver sees features in units of their deviations, so that no number depends on the units of a
column. Bounds are narrowed first (`scaling.narrowed`) where public numbers say that this helps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.random_key import children
from jaxdp._core.types import Key, Vector
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.solvers import scaling
from jaxdp.solvers.blocks import Columns, Units, is_sparse
from jaxdp.solvers.problems import bounded_smoothness

# Share of the scales' mu^2 that narrows the bounds first. chosen: half
_NARROWING = 0.5
# `doubt` of windows of features, whose rare values count, and of targets, whose mean is needed.
# measured: dummies of 2 %; bounds of 100 deviations
_DOUBT, _TARGET_DOUBT = 0.25, 2.0
# Weight of the variances of targets' scales, over those of a feature. measured: bounds of 100
# deviations and dummies, epsilon .1 and .3: no fit of 24 far below the mean, three of 24 with 1
_TARGET_WEIGHT = 10.0
# Largest sampling error of histograms, times e^epsilon, over delta. chosen: noise grows by 1 %, and
# 20 columns are narrowed at epsilon 30
_NARROWING_ERROR = 0.2


class Bounded(NamedTuple):
    """Features (n, p), with public bounds (2, p), and targets (n, k) within theirs, (2, k) or None.

    outside: whether a target of a record was clipped: NOT PRIVATE.
    """

    features: Any
    targets: np.ndarray
    bounds: np.ndarray
    target_bounds: np.ndarray | None = None
    outside: np.ndarray | bool = False


class Measured(NamedTuple):
    """Records, how their features are clipped and centred, and what is known of them.

    targets: (n, k), about their centres. curvature: M_j of features in deviations. target_reach:
    what no |target| exceeds, in deviations. spent: on centres and deviations. outside: as given.
    """

    features: Any
    targets: np.ndarray
    units: Units
    curvature: Vector
    target_reach: np.ndarray
    spent: Drawn | None
    outside: np.ndarray

    @property
    def reach(self) -> np.ndarray:
        """The largest |x_j - center_j| of each column in deviations."""
        lower, upper, center, scale, *_ = self.units
        return np.maximum(np.abs(lower - center), np.abs(upper - center)) / scale

    def in_raw_units(self, loss: str) -> Measured:
        """The same records in raw units: an elastic net of these has no form in deviations."""
        scale, count = self.units.scale, len(self.curvature)
        return self._replace(
            units=self.units._replace(scale=np.ones_like(scale)),
            curvature=bounded_smoothness(loss, scale, intercept=count > len(scale)).values,
        )


def measure(
    given: Bounded,
    cost: GDP | PureDP | None,
    budget: Budget,
    key: Key,
    *,
    loss: str,
    deviations: float,
    intercept: bool,
    pooled: bool,
    relation: str,
) -> Measured:
    """Records within public bounds and released ranges, about their centres.

    Features are clipped to `deviations` about the centres, within the bounds. These ends are public
    or released, so clipping to them reads one record at a time and costs nothing. Sparse features
    are measured from 0, which they are mostly.

    cost: of the scales, without their sampling error; None takes the middle and half the width of
    the bounds. pooled: release one deviation for all features, in units of
    their bounds. budget: of the whole fit, whose delta covers the sampling error.
    """
    features, targets, bounds, ends, outside = given
    width = features.shape[1]
    if is_sparse(features) and not ((bounds[0] <= 0.0) & (bounds[1] >= 0.0)).all():
        raise ValueError("feature_bounds must contain 0 for sparse features")
    center, scale, spent = _scales(given, cost, budget, key, pooled, relation)
    if is_sparse(features):
        scale[:width] = np.hypot(center, scale)[:width]
        center[:width] = 0.0
    ranges = np.stack([center - deviations * scale, center + deviations * scale])
    lower, upper = np.clip(ranges[:, :width], bounds[0], bounds[1])
    if not intercept:
        # All are measured from 0, or it would be another model.
        center, scale = np.zeros_like(center), np.hypot(center, scale)
    of_targets, reach = (np.zeros(targets.shape[1]), np.ones(targets.shape[1])), np.inf
    if ends is not None:
        of_targets = center[width:], scale[width:]
        targets = targets - of_targets[0]
        reach = np.abs(ends - of_targets[0]).max(axis=0) / of_targets[1]
    curvature = bounded_smoothness(loss, np.ones(width), intercept=intercept).values
    return Measured(
        features,
        targets,
        Units(lower, upper, center[:width], scale[:width], of_targets[0], of_targets[1]),
        curvature,
        np.broadcast_to(reach, targets.shape[1:]),
        spent,
        np.broadcast_to(outside, len(targets)),
    )


def _scales(
    given: Bounded,
    cost: GDP | PureDP | None,
    budget: Budget,
    key: Key,
    pooled: bool,
    relation: str,
) -> tuple[np.ndarray, np.ndarray, Drawn | None]:
    """Centres and scales of all columns, bounded targets last, and what knowing them costs."""
    features, targets, bounds, ends, _ = given
    width, kept = features.shape[1], {"relation": relation}
    columns = Columns(features, None if ends is None else targets)
    bounds = bounds if ends is None else np.hstack([bounds, ends])
    low, high = bounds
    if cost is None:
        return 0.5 * (low + high), 0.5 * (high - low), None
    error = scaling.sampling_error(columns.shape[1])
    if pooled:
        center, scale = scaling.release_pooled(columns, low, high, width, cost, key, **kept)
        return center, scale, Drawn(cost, error)
    first, rest = None, cost
    if isinstance(cost, GDP):
        part = GDP(cost.mu * np.sqrt(_NARROWING))
        bounds, first, key = narrowed(columns, bounds, part, budget, key, relation)
        if first is not None:
            rest = GDP(cost.mu * np.sqrt(1.0 - _NARROWING))
    # Thresholds, and so all noise, are in units of the targets.
    weights = np.where(np.arange(columns.shape[1]) < width, 1.0, _TARGET_WEIGHT)
    low, high = bounds
    center, scale = scaling.release(columns, low, high, rest, key, weights=weights, **kept)
    return center, scale, Drawn(rest, error) if first is None else first + Drawn(rest, error)


def narrowed(
    columns: Columns,
    bounds: np.ndarray,
    part: GDP,
    budget: Budget,
    key: Key,
    relation: str,
    cuts_tails: bool = False,
) -> tuple[np.ndarray, Drawn | None, Key]:
    """Bounds of all columns, (2, p + k), some narrower; what they cost, if anything; another key.

    All columns are narrowed, or the targets alone if there are too many features: nothing is learnt
    without a mean of the targets. Public numbers decide whether anything is spent.
    """
    targets = columns.targets
    for of in [columns] + [Columns(targets)] * (targets is not None):
        turns = scaling.rounds(*of.shape, part, relation)
        error = float(scaling.narrowing_error(of.shape[1], turns))
        if turns and error * np.exp(float(budget.epsilon)) <= _NARROWING_ERROR * budget.delta:
            break
    else:
        return bounds, None, key
    key, other = children(key)
    near, places = bounds.copy(), slice(-of.shape[1], None)
    doubt = np.full(of.shape[1], _DOUBT)
    if targets is not None:
        doubt[-targets.shape[1] :] = _TARGET_DOUBT
    low, high = bounds[:, places]
    how: Any = {"relation": relation, "doubt": doubt, "cuts_tails": cuts_tails}
    near[:, places] = scaling.narrowed(of, low, high, part, other, **how)
    return near, Drawn(part, error), key
