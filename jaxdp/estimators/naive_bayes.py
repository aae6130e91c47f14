"""Naive Bayes from private counts and sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import logsumexp
from jaxdp.estimators.base import DPEstimator, estimator, warn_of_little
from jaxdp.estimators.bounds import public_bounds, warn_of_bounds
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers import naive_bayes
from jaxdp.solvers.blocks import Columns
from jaxdp.solvers.measured import narrowed

_base = checks.extra("sklearn.base", "learn")
_multiclass = checks.extra("sklearn.utils.multiclass", "learn")

# Share of mu^2 that narrows the bounds, if Gaussian noise lets windows stand out. measured: bounds
# of 100 deviations, heavy tails, wine, iris
_NARROWING = 0.2


@estimator
class DPNaiveBayes(_base.ClassifierMixin, DPEstimator):
    """Naive Bayes with categorical columns and Gaussian continuous ones.

    epsilon, delta: of all statistics together (delta = 0 needs a Laplace).
    feature_bounds: (lower, upper) of the continuous columns, numbers or one each, public; values
        are clipped to them, and to narrower ones from noisy histograms where public numbers say
        that these help (a fifth of mu^2, Gaussian noise). None where all columns are categorical.
    categories: how many values each column has, coded 0, 1, ...; 0: continuous. None: all are.
    classes: the labels, public. None takes the labels of `y` and assumes that they are public.
    noise, relation: see `solvers.naive_bayes.plan`; smoothing, least_variance: `release`.

    After `fit`: `classes_`, `class_count_` (private), `model_`, `plan_`, `guarantee_`.
    """

    feature_bounds: Any
    categories: Any = None
    classes: Any = None
    noise: Any = "gaussian"
    relation: Any = "replace_one"
    smoothing: Any = 1.0
    least_variance: Any = 1e-6

    def fit(self, X: Any, y: Any) -> DPNaiveBayes:  # noqa: N803
        """Learn from (n, p) records and their labels."""
        matrix, labels = self._records(X, y)
        _multiclass.check_classification_targets(labels)
        self.classes_ = np.unique(labels if self.classes is None else self.classes)
        codes = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        if (self.classes_[codes] != labels).any():
            raise ValueError(f"y must hold labels of classes, {self.classes_} only")
        categories = self.categories
        if categories is None:
            categories = [0] * matrix.shape[1]
        elif len(categories) != matrix.shape[1]:
            raise ValueError(
                f"categories must be one per column, {matrix.shape[1]}, got {len(categories)}"
            )
        continuous = np.flatnonzero(np.asarray(categories) == 0)
        bounds = (-1.0, 1.0)
        if continuous.size:
            columns = [self._columns()[index] for index in continuous]
            bounds = public_bounds(self.feature_bounds, columns, warn=True)
            warn_of_bounds(matrix[:, continuous], *bounds, columns)
        budget, key, spent = self._budget(), self._key(), None
        part = GDP(largest_gdp(budget).mu * _NARROWING**0.5)
        is_gaussian = self._is_private() and self.noise == "gaussian"
        if continuous.size and is_gaussian and part.mu > 0:
            numbers = Columns(matrix[:, continuous])
            # A Gaussian fits most records better without their tails.
            known = part, budget, key, self.relation
            near, spent, key = narrowed(numbers, np.stack(bounds), *known, cuts_tails=True)
            bounds = near[0], near[1]
        self.plan_ = naive_bayes.plan(
            budget,
            classes=len(self.classes_),
            categories=categories,
            feature_bounds=bounds,
            relation=self.relation,
            noise=self.noise if self._is_private() else "gaussian",
            spent=spent,
        )
        if self._is_private():
            self._warn_of_noise(len(codes))
        self.model_ = naive_bayes.release(
            matrix,
            codes,
            self.plan_,
            key,
            smoothing=self.smoothing,
            least_variance=self.least_variance,
        )
        self.class_count_ = np.asarray(self.model_.class_counts)
        self._finish(self.plan_.guarantee)
        return self

    def _warn_of_noise(self, records: int) -> None:
        """Warn if noise moves the mean of a class of average size by half the bounds' width."""
        of, unit = self.plan_.sum_noise, self.plan_.levels
        if of is None:
            of, unit = self.plan_.count_noise, 1
        size = records / len(self.classes_)
        warn_of_little(size * unit / float(np.sqrt(of.variance())))

    def predict_joint_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """log P[x, class] up to a constant, (n, classes)."""
        self._require_fitted()
        matrix = self._features(X, reset=False)
        return np.asarray(naive_bayes.log_joint(matrix, self.model_, self.plan_))

    def predict_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """log P[class | x], (n, classes)."""
        joint = self.predict_joint_log_proba(X)
        return joint - logsumexp(joint, axis=1, keepdims=True)

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """P[class | x], (n, classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The likeliest class of each record."""
        likeliest = np.argmax(self.predict_joint_log_proba(X), axis=1)
        return self.classes_[likeliest]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags
