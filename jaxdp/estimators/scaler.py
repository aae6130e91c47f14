"""Scaling that leaks nothing: by public bounds, or by released means and variances."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.estimators.base import DPEstimator, estimator
from jaxdp.estimators.bounds import clip_to_bounds, public_bounds
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.solvers import scaling

_base = checks.extra("sklearn.base", "learn")


class _Affine(_base.OneToOneFeatureMixin, _base.TransformerMixin, DPEstimator):
    """x -> (clip(x) - center_) / scale_, the result within `output_bounds_`."""

    feature_bounds: Any
    center_: np.ndarray
    scale_: np.ndarray
    limit_: float

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """Clipped to the public bounds (counted), scaled, and clipped to [-limit_, limit_]."""
        self._require_fitted()
        features = self._features(X, reset=False)
        columns = self._columns()
        bounds = public_bounds(self.feature_bounds, columns)
        clipped = clip_to_bounds(features, *bounds, "X", columns)
        scaled = (clipped - self.center_) / self.scale_
        return np.clip(scaled, -self.limit_, self.limit_)


class PublicScaler(_Affine):
    """Public bounds (lower, upper) to [-1, 1]. It learns nothing and costs nothing.

    A private estimator behind it has the public feature_bounds (-1, 1).
    """

    costs_privacy = False

    def __init__(self, feature_bounds: Any):
        self.feature_bounds = feature_bounds

    def fit(self, X: Any, y: Any = None) -> PublicScaler:  # noqa: N803
        """Look at the number of features, nothing else."""
        self._features(X, reset=True)
        lower, upper = public_bounds(self.feature_bounds, self._columns(), warn=True)
        self.center_, self.scale_, self.limit_ = (lower + upper) / 2, (upper - lower) / 2, 1.0
        return self


@estimator
class DPStandardScaler(_Affine):
    """Means and variances released with Gaussian noise; (x - mean) / deviation, clipped to limit.

    See `solvers.scaling`: in units of half the width of the bounds, where the noise is as large as
    1/3 (means) or 1/9 (variances), half of the release is a guess: the middle of the bounds, and a
    third of half their width. `guarantee_.exact` is a GDP. The private estimator behind it has the
    public feature_bounds (-limit, limit), and `total_privacy` adds up what both cost. `DPLasso` and
    `DPLogisticRegression` scale by themselves.
    """

    feature_bounds: Any
    limit: Any = 3.0

    def fit(self, X: Any, y: Any = None) -> DPStandardScaler:  # noqa: N803
        """Spend the budget on the means and variances of (n, p) features."""
        features = self._features(X, reset=True)
        budget = self._budget()
        limit = float(checks.positive("limit", self.limit))
        if not np.isfinite(limit):
            raise ValueError(f"limit must be finite, got {self.limit!r}")
        bounds = public_bounds(self.feature_bounds, self._columns(), warn=True)
        error = scaling.sampling_error(features.shape[1])
        level = largest_gdp(left_for_exact(budget, error))
        if not bool(level.mu > 0):
            raise ValueError(f"delta must be positive for Gaussian noise, got {self.delta!r}")
        self.center_, self.scale_ = scaling.release(
            clip_to_bounds(features, *bounds, "X", self._columns()),
            *bounds,
            level,
            self._key(),
            relation="replace_one",
        )
        self.limit_ = limit
        self._finish(Drawn(level, error))
        return self
