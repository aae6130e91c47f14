"""Differentially private logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.estimators.linear import DPLinearEstimator
from jaxdp.solvers.problems import L1, L2

_base = checks.extra("sklearn.base", "learn")
_multiclass = checks.extra("sklearn.utils.multiclass", "learn")

# What `DPLogisticRegression` takes; see there.
PENALTIES = ("l2", "l1")


class DPLogisticRegression(_base.ClassifierMixin, DPLinearEstimator):
    """min (1/n) sum log(1 + exp(-y_i (x_i w + b))) + alpha penalty(w), two classes.

    penalty: "l2" (alpha / 2 ||w||^2) or "l1" (alpha ||w||_1).
    classes: the two labels, public; any other label in y raises `ValueError`. Without it they are
        taken from y: it is your word then that which labels occur is public.
    M_j is the released deviation squared, over 4; |d loss_i / d w_j| <= |x_ij - center_j|.
    All else as in `DPLasso`. Fitted also: classes_, the larger being the positive one.
    """

    def __init__(
        self,
        *,
        epsilon: Any,
        delta: Any,
        feature_bounds: Any = None,
        scaling_share: Any = 0.1,
        smoothness: Any = None,
        alpha: Any = 1e-4,
        penalty: Any = "l2",
        classes: Any = None,
        clip: Any = None,
        passes: Any = None,
        step: Any = None,
        fit_intercept: Any = True,
        allocation: Any = "winid",
        noise: Any = "gaussian",
        relation: Any = "replace_one",
        random_state: Any = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.feature_bounds = feature_bounds
        self.scaling_share = scaling_share
        self.smoothness = smoothness
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

    def fit(self, X: Any, y: Any) -> DPLogisticRegression:  # noqa: N803
        """Spend the budget on (n, p) features and n labels of two classes."""
        features, labels = self._records(X, y)
        _multiclass.check_classification_targets(labels)
        checks.one_of("penalty", self.penalty, PENALTIES)
        strength = checks.nonnegative("alpha", self.alpha)
        self.classes_ = self._classes(labels)
        penalty = L2(strength) if self.penalty == "l2" else L1(strength)
        weights, intercept = self._descend(
            features, labels, "logistic", penalty, classes=self.classes_
        )
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
            raise ValueError("y must hold two classes, got one class: name both in `classes`")
        return found

    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b, (n,), X clipped as in `fit`: positive for classes_[1]. Costs nothing more."""
        self._require_fitted()
        return self._inputs(X) @ self.coef_[0] + self.intercept_[0]

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
