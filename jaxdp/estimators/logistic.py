"""Differentially private logistic regression."""

from typing import Any

import numpy as np

from jaxdp import _check
from jaxdp.estimators.linear import DPLinearEstimator
from jaxdp.problems import L1, L2

_base = _check.extra("sklearn.base", "learn")
_multiclass = _check.extra("sklearn.utils.multiclass", "learn")

PENALTIES = ("l2", "l1")


class DPLogisticRegression(_base.ClassifierMixin, DPLinearEstimator):
    """min (1/n) sum log(1 + exp(-y_i (x_i w + b))) + alpha penalty(w), two classes.

    penalty: "l2" (alpha / 2 ||w||^2) or "l1" (alpha ||w||_1).
    classes: the two labels, public; any other label in y raises `ValueError`. Without it they are
        taken from y: it is your word then that which labels occur is public.
    M_j is max(|lower_j|, |upper_j|)^2 / 4, and |d loss_i / d w_j| <= |x_ij|, so that a `clip` of
    sqrt(sum_j b_j^2) over the bounds b (1 for an intercept) clips nothing.
    All else as in `DPLasso`. Fitted also: classes_, the larger being the positive one.
    """

    def __init__(
        self,
        *,
        epsilon: Any,
        delta: Any,
        feature_bounds: Any = None,
        smoothness: Any = None,
        private_smoothness_fraction: Any = None,
        alpha: Any = 1e-3,
        penalty: Any = "l2",
        classes: Any = None,
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
        self.penalty = penalty
        self.classes = classes
        self.clip = clip
        self.passes = passes
        self.step = step
        self.fit_intercept = fit_intercept
        self.allocation = allocation
        self.noise = noise
        self.relation = relation
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "DPLogisticRegression":  # noqa: N803
        """Spend the budget on (n, p) features and n labels of two classes."""
        features, labels = self._records(X, y)
        _multiclass.check_classification_targets(labels)
        _check.one_of("penalty", self.penalty, PENALTIES)
        strength = _check.nonnegative("alpha", self.alpha)
        self.classes_ = self._classes(labels)
        penalty = L2(strength) if self.penalty == "l2" else L1(strength)
        theta = self._descend(features, labels, "logistic", penalty, self.classes_)
        weights, intercept = self._keep(theta)
        self.coef_, self.intercept_ = weights[None, :], np.array([intercept])
        return self

    def _classes(self, labels: np.ndarray) -> np.ndarray:
        if self.classes is not None:
            return np.unique(np.asarray(self.classes))
        found = np.unique(labels)
        if len(found) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"y must hold two labels, got {len(found)}"
            )
        if len(found) < 2:
            raise ValueError(
                f"y must hold two classes, got one class, {found[0]!r}: name both in `classes`"
            )
        return found

    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b, (n,): positive for classes_[1]. Costs nothing more; X is not clipped."""
        self._require_fitted()
        return self._features(X, reset=False) @ self.coef_[0] + self.intercept_[0]

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities of the two classes, (n, 2)."""
        score = self.decision_function(X)
        return np.exp(-np.logaddexp(0.0, np.stack([score, -score], axis=1)))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The likelier class of each row."""
        score = self.decision_function(X)
        return self.classes_[(score > 0).astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.classifier_tags.multi_class = False
        return tags
