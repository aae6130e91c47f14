"""Differentially private LASSO."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdp.estimators.base import estimator
from jaxdp.estimators.regression import PenalisedRegressor


@estimator
class DPLasso(PenalisedRegressor):
    """min 1/(2n) ||y - X w - b||^2 + alpha ||w||_1: `DPLinearRegression` with l1_ratio 1.

    epsilon, delta: what `fit` may spend: one record replaced (`relation="replace_one"`), or one
        added or removed with n public and fixed in the mean ("add_remove"). inf: see `base`.
    feature_bounds: public (lower, upper), numbers or one a feature; values beyond are clipped
        (counted by a `BoundsWarning`), and so are values beyond three released deviations, in `fit`
        and in predictions. (-3, 3) suits standardised columns.
    target_bounds: public (lower, upper) of y, clipped to them. Unless given, y should be about
        centred with a deviation of about 1: other units cost accuracy, never privacy.
    scaling_share: share of the budget (of mu^2, or of epsilon where the noise is not Gaussian) that
        releases centres and deviations of the bounded columns (`solvers.scaling`); `guarantee_` has
        it inside. Columns are measured from there, and M_j is the deviation squared. With 0 they
        are the middle and half the width of the bounds.
    smoothness: public M_j of the uncentred features, instead of all that; `feature_bounds` then
        only clip. Values computed from the records are refused.
    solver: see `DPLinearRegression`; the parameters below are of coordinate descent.
    clip: C in |d loss_i / d w_j| <= C sqrt(M_j / sum M), in units of y times x; public. A wrong
        one costs accuracy, never privacy.
    clip, passes, step: None chooses from public numbers, see `coordinate_descent.defaults`.
    allocation, noise: of `coordinate_descent.plan`.
    release: "lattice", or "float": noise in floating point, for research; `privacy_text_` says so.
    random_state: None for randomness of the operating system; see `estimators.base`.

    Fitted: as `DPLinearRegression`; n_iter_ counts passes. n is public, as is the number of
    features. Accuracy with defaults: benchmarks/bench_estimators.py.
    Source: Mangold et al., ICML 2022; defaults and scales are ours.
    """

    alpha: Any = 0.01

    def fit(self, X: Any, y: Any) -> DPLasso:  # noqa: N803
        """Spend the budget on (n, p) features and n targets, finite numbers."""
        self._learn(X, y, self.alpha, 1.0)
        return self

    def path(self, alphas: Any, *, features: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (k, p) and intercepts (k,) of many alphas; see `DPLinearRegression.path`."""
        return self._path(alphas, 1.0, features)
