"""Principal components of a private covariance."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import shift_factor
from jaxdp._core.precision import opened
from jaxdp._core.random_key import children
from jaxdp._core.types import Key
from jaxdp.estimators.base import DPEstimator, estimator, warn_of_little
from jaxdp.estimators.bounds import clip_to_bounds, public_bounds
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers import covariance, lattice
from jaxdp.solvers.covariance import share_of_mean, shortened

_base = checks.extra("sklearn.base", "learn")


@estimator
class DPPCA(_base.ClassNamePrefixFeaturesOutMixin, _base.TransformerMixin, DPEstimator):
    """PCA on the second moment plus noise of the Gaussian orthogonal ensemble; exact GDP.

    n_components: how many, all if None. epsilon, delta > 0: of `fit` as a whole.
    feature_bounds: (lower, upper), numbers or one each, public. Values are clipped to them and
        measured from their midpoints.
    row_bound: bound on the norm of a row so measured, public; longer rows are shortened. By default
        the norm that the feature bounds imply, which is far too wide for many features: the noise
        grows with its square.
    mean_share: of mu^2 (Gaussian DP), in [0, 1), spent on the mean; with 0 the components are about
        the midpoints.
    relation: "replace_one", or "add_remove" with n public and fixed.
    release: "lattice", or "float": noise whose last bits leak, for research.

    After `fit`: `components_` (k, p) and `explained_variance_` (k,), as scikit-learn has them,
    `explained_variance_ratio_`, `mean_`, `n_components_`, `guarantee_` (`guarantee_.exact` is a
    `GDP`). The variances are private estimates and may be negative, as may the remainder of the
    total.
    """

    n_components: Any = dataclasses.field(default=None, kw_only=False)
    feature_bounds: Any
    row_bound: Any = None
    mean_share: Any = 0.1
    relation: Any = "replace_one"
    release: Any = "lattice"

    def fit(self, X: Any, y: Any = None) -> DPPCA:  # noqa: N803
        """Learn from (n, p) records; `y` is ignored."""
        del y
        matrix = self._features(X, reset=True)
        records, dimension = matrix.shape
        budget = self._budget()
        if budget.delta == 0:
            raise ValueError("delta must lie in (0, 1) for Gaussian noise, got 0")
        rank = dimension if self.n_components is None else self.n_components
        if not 1 <= checks.positive_integer("n_components", rank) <= dimension:
            raise ValueError(f"n_components must lie in [1, {dimension}], got {rank}")
        share = float(checks.real("mean_share", self.mean_share, 0.0, 1.0))
        if share == 1:
            raise ValueError("mean_share must lie in [0, 1), got 1: nothing is left for components")
        lower, upper = public_bounds(self.feature_bounds, self._columns(), warn=True)
        middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        bound = float(np.linalg.norm(half)) if self.row_bound is None else self.row_bound
        draws = dimension * (dimension + 1) / 2 + (dimension if share > 0 else 0)
        error = lattice.sampling_error(draws, self.release)
        level = largest_gdp(left_for_exact(budget, error))
        plan = covariance.plan(
            GDP(level.mu * np.sqrt(1.0 - share)),
            dimension=dimension,
            records=records,
            relation=self.relation,
            row_bound=bound,
            release=self.release,
        )
        # The largest variance over the largest eigenvalue of the noise.
        norm = float(plan.scales[1]) * np.sqrt(2.0 * dimension)
        warn_of_little(float(plan.row_bound) ** 2 / norm if self._is_private() else np.inf)
        clipped = clip_to_bounds(matrix, lower, upper, "X", self._columns())
        rows = clipped - middle
        moment_key, mean_key = children(self._key())
        moment = covariance.release(rows, plan, moment_key)
        mean = np.zeros(dimension)
        if share > 0:
            mean = _private_mean(rows, plan, float(level.mu * np.sqrt(share)), mean_key)
        matrix: Any = np.asarray(moment) - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(matrix)
        values, components = values[::-1][:rank], vectors.T[::-1][:rank]
        # As scikit-learn turns them: the largest entry of each is positive.
        largest = np.abs(components).argmax(axis=1)
        components = components * np.sign(components[np.arange(rank), largest])[:, None]
        self.components_ = components
        self.mean_ = middle + mean
        self.explained_variance_ = values
        self.explained_variance_ratio_ = self.explained_variance_ / np.trace(matrix)
        self.n_components_ = rank
        self._finish(Drawn(level, error))
        return self

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """(X - mean_) components_^T, (n, k): record by record. NOT PRIVATE."""
        self._require_fitted()
        return (self._features(X, reset=False) - self.mean_) @ self.components_.T

    def inverse_transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """X components_ + mean_, (n, p)."""
        self._require_fitted()
        scores = checks.extra("sklearn.utils", "learn").check_array(X, dtype=np.float64)
        return scores @ self.components_ + self.mean_

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


@opened()
def _private_mean(rows: Any, plan: covariance.Plan, mu: float, key: Key) -> np.ndarray:
    """The mean of shortened rows; one moves it by row_bound / n, a replacement by twice that."""
    short = shortened(rows, plan.row_bound)
    contribution = plan.row_bound * share_of_mean(plan.records)
    shift = contribution * shift_factor(plan.relation)
    shape, ratio = (plan.dimension,), jnp.asarray(mu / np.sqrt(plan.dimension))
    noise = lattice.added(Gaussian(1.0), shift / mu, ratio, key, shape, plan.release)
    return np.asarray(noise.to(jnp.mean(short, axis=0)))
