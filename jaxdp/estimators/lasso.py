"""Differentially private LASSO."""

from typing import Any

from jaxdp import _check
from jaxdp.estimators.linear import DPLinearEstimator, LinearRegressor
from jaxdp.problems import L1


class DPLasso(LinearRegressor, DPLinearEstimator):
    """min 1/(2n) ||y - X w - b||^2 + alpha ||w||_1 by private coordinate descent.

    epsilon, delta: what `fit` may spend: one record replaced (`relation="replace_one"`), or one
        added or removed with n public and fixed in the mean ("add_remove").
    feature_bounds: public (lower, upper), numbers or one a feature; values beyond are clipped and
        counted (`BoundsWarning`). It gives the smoothness M_j = max(|lower_j|, |upper_j|)^2.
    smoothness: public M_j, instead of that; `feature_bounds` then only clips. Values computed from
        the records are refused; with private_smoothness_fraction=f they are released for f epsilon
        by the Laplace mechanism (needs `feature_bounds`), and the noise is calibrated to the rest.
    clip: C in |d loss_i / d w_j| <= C sqrt(M_j / sum M), in units of y times x; public. A wrong
        one costs accuracy, never privacy, so y needs no bounds.
    passes, step, allocation, noise: of `coordinate_descent.plan`.
    random_state: None for randomness of the operating system; see `estimators.base`.

    Fitted: coef_, intercept_, n_iter_ (passes), plan_, and privacy_, the guarantee spent. n is
    public, as is the number of features. Source: Mangold et al., ICML 2022.
    """

    def __init__(
        self,
        *,
        epsilon: Any,
        delta: Any,
        feature_bounds: Any = None,
        smoothness: Any = None,
        private_smoothness_fraction: Any = None,
        alpha: Any = 0.1,
        clip: Any = 1.0,
        passes: Any = 10,
        step: Any = 0.5,
        fit_intercept: Any = True,
        allocation: Any = "winid",
        noise: Any = "gaussian",
        relation: Any = "replace_one",
        random_state: Any = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.feature_bounds = feature_bounds
        self.smoothness = smoothness
        self.private_smoothness_fraction = private_smoothness_fraction
        self.alpha = alpha
        self.clip = clip
        self.passes = passes
        self.step = step
        self.fit_intercept = fit_intercept
        self.allocation = allocation
        self.noise = noise
        self.relation = relation
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "DPLasso":  # noqa: N803
        """Spend the budget on (n, p) features and n targets, finite numbers."""
        features, targets = self._records(X, y, y_numeric=True)
        penalty = L1(_check.nonnegative("alpha", self.alpha))
        theta = self._descend(features, targets, "squared", penalty)
        self.coef_, self.intercept_ = self._keep(theta)
        return self
