"""Differentially private LASSO from one release of second moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.reproductions import sufficient_statistics
from jaxdp._core import checks
from jaxdp.estimators.base import DPEstimator
from jaxdp.guarantee.drawn import Drawn

_base = checks.extra("sklearn.base", "learn")


class SSPLasso(_base.RegressorMixin, DPEstimator):
    """min 1/(2n) ||y - X w - b||^2 + alpha ||w||_1 by sufficient statistics, perturbed once.

    row_bound: public; rows (x, y), or (x, 1, y) with an intercept, longer than that are shortened
    (too long ones cost accuracy, never privacy). Nothing else is to be tuned: the baseline of
    `DPLasso` where there are few features. `guarantee_.exact` is a GDP. See
    `sufficient_statistics`, and `estimators.base` for what all estimators promise.
    """

    coef_: np.ndarray
    intercept_: float
    guarantee_: Drawn

    def __init__(
        self,
        *,
        epsilon: Any,
        delta: Any,
        row_bound: Any,
        alpha: Any = 0.1,
        fit_intercept: Any = True,
        relation: Any = "replace_one",
        release: Any = "lattice",
        random_state: Any = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.row_bound = row_bound
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.relation = relation
        self.release = release
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> SSPLasso:  # noqa: N803
        """Spend the budget on (n, p) features and n targets, finite numbers."""
        features, targets = self._records(X, y, y_numeric=True)
        budget, intercept = self._budget(), bool(self.fit_intercept)
        theta, spent = sufficient_statistics.lasso(
            features,
            targets.astype(np.float64),
            checks.nonnegative("alpha", self.alpha),
            budget,
            self._key(),
            row_bound=self.row_bound,
            relation=self.relation,
            intercept=intercept,
            release=self.release,
        )
        values = np.asarray(theta)
        if not np.isfinite(values).all():
            raise ValueError(f"budget must be one that Gaussian noise can meet, got {budget}")
        self._finish(spent)
        self.coef_ = values[:-1] if intercept else values
        self.intercept_ = float(values[-1]) if intercept else 0.0
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b: costs nothing more."""
        self._require_fitted()
        return self._features(X, reset=False) @ self.coef_ + self.intercept_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags
