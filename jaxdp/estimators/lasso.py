"""Differentially private LASSO."""

from __future__ import annotations

from typing import Any

from jaxdp._core import checks
from jaxdp.estimators.base import estimator
from jaxdp.estimators.linear import DPLinearEstimator, LinearRegressor
from jaxdp.solvers.problems import L1


@estimator
class DPLasso(DPLinearEstimator, LinearRegressor):
    """min 1/(2n) ||y - X w - b||^2 + alpha ||w||_1 by private coordinate descent.

    epsilon, delta: what `fit` may spend: one record replaced (`relation="replace_one"`), or one
        added or removed with n public and fixed in the mean ("add_remove"). inf: see `base`.
    feature_bounds: public (lower, upper), numbers or one a feature; values beyond are clipped, in
        `fit` (counted by a `BoundsWarning`) and in predictions. (-3, 3) suits standardised columns.
    target_bounds: public (lower, upper) of y, clipped to them. Unless given, y should be about
        centred with a deviation of about 1: other units cost accuracy, never privacy.
    scaling_share: share of the budget (of mu^2, or of epsilon where the noise is not Gaussian) that
        releases centres and deviations of the bounded columns (`solvers.scaling`); `guarantee_` has
        it inside. Columns are measured from there, and M_j is the deviation squared. With 0 they
        are the middle and half the width of the bounds.
    smoothness: public M_j of the uncentred features, instead of all that; `feature_bounds` then
        only clip. Values computed from the records are refused.
    clip: C in |d loss_i / d w_j| <= C sqrt(M_j / sum M), in units of y times x; public. A wrong
        one costs accuracy, never privacy.
    clip, passes, step: None chooses from public numbers, see `coordinate_descent.defaults`.
    allocation, noise: of `coordinate_descent.plan`.
    release: "lattice", or "float": noise in floating point, for research; `privacy_text_` says so.
    random_state: None for randomness of the operating system; see `estimators.base`.

    Fitted: coef_, intercept_, n_iter_ (passes), plan_, guarantee_, the guarantee spent, and
    privacy_text_. n is public, as is the number of features. Accuracy with defaults:
    benchmarks/bench_estimators.py. Source: Mangold et al., ICML 2022; defaults and scales are ours.
    """

    target_bounds: Any = None
    alpha: Any = 0.01

    def fit(self, X: Any, y: Any) -> DPLasso:  # noqa: N803
        """Spend the budget on (n, p) features and n targets, finite numbers."""
        features, targets = self._records(X, y, y_numeric=True)
        penalty = L1(checks.nonnegative("alpha", self.alpha))
        self.coef_, self.intercept_ = self._descend(
            features,
            targets,
            "squared",
            penalty,
            self._key(),
            target_bounds=self.target_bounds,
        )
        return self
