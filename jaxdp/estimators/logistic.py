"""Differentially private logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.random_key import children
from jaxdp._core.types import Key
from jaxdp.estimators.base import SEEDED, composed, estimator
from jaxdp.estimators.linear import LinearModel
from jaxdp.guarantee.drawn import left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers import lattice, scaling
from jaxdp.solvers.coordinate_descent.defaults import MOST_PASSES
from jaxdp.solvers.measured import Bounded
from jaxdp.solvers.penalties import L1, L2

_base = checks.extra("sklearn.base", "learn")
_multiclass = checks.extra("sklearn.utils.multiclass", "learn")

# Factor of mu, so that the rounded parts do not exceed the whole. chosen: above the error of
# inversions
_ROUNDED_DOWN = 1.0 - 1e-9

# Samples of a column's scales at most. derived: two statistics, and histograms
_SCALING_DRAWS = 2 + scaling.ROUNDS * scaling.BINS
# What `DPLogisticRegression` takes; see there.
PENALTIES = ("l2", "l1")


@estimator
class DPLogisticRegression(_base.ClassifierMixin, LinearModel):
    """min (1/n) sum log(1 + exp(-y_i (x_i w + b))) + alpha penalty(w), each class against the rest.

    penalty: "l2" (alpha / 2 ||w||^2) or "l1" (alpha ||w||_1), with w in released deviations of the
        columns, so that their units do not matter.
    classes: the labels, public; any other label in y raises `ValueError`. Without it they are taken
    from y, and you declare the set of labels public. Two classes take one fit. More classes take
    one each, against the rest, which compose exactly: with Gaussian noise each gets a k-th of the
    budget's mu^2, with other noise epsilon / k and delta / k; `guarantee_` has their composition.
    solver_: coordinate descent; greedy descent for two classes and at least 100 features if n mu /
        p is below 4, see `DPLinearRegression`. M_j is the released deviation squared, over 4;
        |d loss_i / d w_j| is at most |x_ij - center_j|. All else as in `DPLasso`.
    Fitted also: classes_, where the larger of two classes is positive; with more classes
    `estimators_`, one fit per class, instead of plan_.
    """

    alpha: Any = 1e-4
    penalty: Any = "l2"
    classes: Any = None

    def fit(self, X: Any, y: Any) -> DPLogisticRegression:  # noqa: N803
        """Spend the budget on (n, p) features and n labels."""
        features, labels = self._records(X, y)
        _multiclass.check_classification_targets(labels)
        checks.one_of("penalty", self.penalty, PENALTIES)
        checks.nonnegative("alpha", self.alpha)
        self.classes_ = self._classes(labels)
        given = Bounded(features, labels[:, None], self._bounds(features))
        if len(self.classes_) > 2:
            return self._fit_each(given)
        return self._fit_two(given, self._key())

    def _fit_two(self, given: Bounded, key: Key, solver: str = "auto") -> DPLogisticRegression:
        """The larger of two classes against the other one."""
        strength = checks.nonnegative("alpha", self.alpha)
        penalty = L2(strength) if self.penalty == "l2" else L1(strength)
        self._fit(given, "logistic", penalty, key, classes=self.classes_, solver=solver)
        self.coef_, self.intercept_ = self.coef_[None, :], np.array([self.intercept_])
        return self

    def _fit_each(self, given: Bounded) -> DPLogisticRegression:
        """Fit each class against the rest, with a part of the budget and noise of its own."""
        features, labels = given.features, given.targets
        if not np.isin(labels, self.classes_).all():
            raise ValueError(f"y must hold labels of classes, {self.classes_} only")
        epsilon, delta = self._part(len(self.classes_), features.shape[1])
        self.estimators_ = []
        # A key each: equal keys would be equal noise.
        keys = children(self._key(), len(self.classes_))
        for label, key in zip(self.classes_, keys, strict=True):
            own = {"epsilon": epsilon, "delta": delta, "classes": [False, True]}
            own |= {"random_state": None}
            model = type(self)(**self.get_params() | own)
            model.n_features_in_, model.classes_ = self.n_features_in_, np.array([False, True])
            one = given._replace(targets=labels == label)
            # Parts of the budget add up as Gaussian ones, which greedy descent is not.
            self.estimators_.append(model._fit_two(one, key, "coordinate_descent"))
            if self._is_private() and self._is_seeded():
                model.privacy_text_ += SEEDED
        self.coef_ = np.concatenate([model.coef_ for model in self.estimators_])
        self.intercept_ = np.concatenate([model.intercept_ for model in self.estimators_])
        self.n_iter_ = max(model.n_iter_ for model in self.estimators_)
        self._finish(composed(model.guarantee_ for model in self.estimators_))
        return self

    def _part(self, fits: int, coordinates: int) -> tuple[float, float]:
        """epsilon and delta of one of several fits, the sampling error of all subtracted."""
        budget = self._budget()
        if not self._is_private():
            return np.inf, self.delta
        passes = MOST_PASSES if self.passes is None else self.passes
        draws = fits * (passes * (coordinates + 1) + _SCALING_DRAWS * coordinates)
        budget = left_for_exact(budget, lattice.sampling_error(draws, self.release))
        if not self._is_gaussian():
            return float(budget.epsilon) / fits, float(budget.delta) / fits
        part = GDP(largest_gdp(budget).mu * _ROUNDED_DOWN / np.sqrt(fits))
        epsilon = float(part.epsilon(budget.delta))
        if epsilon > 0:
            return epsilon, float(budget.delta)
        return float(budget.epsilon), float(part.delta(budget.epsilon))

    def _classes(self, labels: np.ndarray) -> np.ndarray:
        if self.classes is not None:
            return np.unique(np.asarray(self.classes))
        labels_found = np.unique(labels)
        if len(labels_found) < 2:
            raise ValueError("y must hold two classes, got one class: name both in `classes`")
        return labels_found

    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b, X clipped as in `fit`: (n,), positive for classes_[1]; of more (n, classes)."""
        self._require_fitted()
        models = [self] if len(self.classes_) == 2 else self.estimators_
        scores = np.hstack([model._score(X) for model in models])
        return scores[:, 0] if len(models) == 1 else scores

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities, (n, classes): of more than two each against the rest, made to add to 1."""
        score = self.decision_function(X)
        if score.ndim == 1:
            return np.exp(-np.logaddexp(0.0, np.stack([score, -score], axis=1)))
        log_odds = -np.logaddexp(0.0, -score)
        shares = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The likeliest class of each row."""
        score = self.decision_function(X)
        return self.classes_[(score > 0).astype(int) if score.ndim == 1 else score.argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags
