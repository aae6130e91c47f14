"""The part of linear regression that releases second moments once, and what follows from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import shift_factor
from jaxdp._core.types import Key
from jaxdp.estimators.base import estimator
from jaxdp.estimators.linear import DPLinearEstimator
from jaxdp.estimators.scales import Measured
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers import covariance, lattice, moments
from jaxdp.solvers.blocks import Columns
from jaxdp.solvers.covariance.release import noisy, shortened
from jaxdp.solvers.moments import Bounds, Moments
from jaxdp.solvers.penalties import L1, L2, ElasticNet, Penalty

# Of intervals. chosen: as tables of regressions have it
_CONFIDENCE = 0.95
# Factor of the noise's mu. chosen: above the rounding of roots and sums
_ROUNDED_DOWN = 1.0 - 1e-12


class Units(NamedTuple):
    """Released or public centres and deviations, in which a model was fitted."""

    center: np.ndarray
    scale: np.ndarray
    target_center: float
    target_scale: float


@estimator
class DPMomentsEstimator(DPLinearEstimator):
    """Parameters and results of a regression that may release moments; see `DPLinearRegression`."""

    target_bounds: Any = None
    solver_: str = dataclasses.field(init=False)
    moments_: Any = dataclasses.field(init=False)  # `Moments`, or None
    coef_covariance_: np.ndarray | None = dataclasses.field(init=False)
    coef_interval_: np.ndarray | None = dataclasses.field(init=False)
    _units: Units = dataclasses.field(init=False)

    def _release_moments(self, records: Measured, budget: Budget, key: Key) -> Drawn:
        """Sets `plan_` and `moments_`; the cost, that of scales included."""
        intercept, count = bool(self.fit_intercept), len(records.targets)
        spent, dimension = records.spent, len(records.scale) + intercept + 1
        error = lattice.sampling_error(dimension * (dimension + 1) / 2, self.release)
        before = 0.0 if spent is None else spent.sampling_error
        mu = float(largest_gdp(left_for_exact(budget, error + before)).mu)
        rest = mu**2 - (0.0 if spent is None else float(spent.exact.mu) ** 2)
        if not rest > 0:
            raise ValueError(
                f"budget must be one that Gaussian noise can meet, got epsilon {budget.epsilon}, "
                f"delta {budget.delta}"
            )
        mu = float(np.sqrt(rest)) * _ROUNDED_DOWN
        signal = moments.rate(count, mu * 2.0 / shift_factor(self.relation), dimension)
        bounds = moments.bounds_of(signal, dimension, self._longest(records, intercept))
        if not self._is_private():
            bounds = self._largest(records)
        self.plan_ = covariance.plan(
            GDP(mu),
            dimension=dimension,
            records=count,
            relation=self.relation,
            row_bound=bounds.row,
            release=self.release,
        )
        moment: Any = np.zeros((dimension, dimension))
        for columns, targets in self._scaled(records):
            rows: Any = moments.rows_of(columns, targets, bounds)
            rows = shortened(rows, self.plan_.row_bound)
            moment += rows.T @ rows
        released = np.asarray(noisy(moment / count, self.plan_, key))
        scale = float(self.plan_.scales[1]) if self._is_private() else 0.0
        self.moments_ = moments.moments_of(released, scale, count, intercept)
        self.n_iter_ = 1
        return self.plan_.guarantee if spent is None else self.plan_.guarantee + spent

    def _scaled(self, records: Measured) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Blocks of (x, 1), without the 1 if there is no intercept, and of targets, in units."""
        for rows, part in Columns(records.features).blocks():
            part = records.ranges.of(part) / records.scale
            ones = [np.ones(len(part))] * bool(self.fit_intercept)
            yield np.column_stack([part, *ones]), records.targets[rows] / records.target_scale

    def _largest(self, records: Measured) -> Bounds:
        """The largest norm of (x, 1) and |y| of all records: NOT PRIVATE."""
        pairs = self._scaled(records)
        ends = [(np.linalg.norm(x, axis=1).max(), np.abs(y).max()) for x, y in pairs]
        return Bounds(*np.maximum(np.max(ends, axis=0), 1e-300).tolist())

    def _longest(self, records: Measured, intercept: bool) -> Bounds:
        """Bounds that no row exceeds; infinite for targets without bounds."""
        features = float(np.sqrt((records.reach**2).sum() + intercept))
        if self.target_bounds is None:
            return Bounds(features, np.inf)
        ends = np.asarray(self.target_bounds, dtype=np.float64)
        center = records.target_center if self.fit_intercept else 0.0
        return Bounds(features, float(np.abs(ends - center).max()) / records.target_scale)

    def _solved(self, of: Moments, penalty: Penalty, units: Units) -> tuple[np.ndarray, float]:
        """Coefficients and intercept of a penalty, from released moments alone."""
        strength = float(penalty.strength)
        curvature = float(penalty.curvature)
        slope, size = strength - curvature, units.target_scale
        lasso, ridge = slope / (units.scale * size), curvature / units.scale**2
        free = np.zeros(int(of.intercept))
        theta = moments.coefficients(of, np.append(lasso, free), np.append(ridge, free))
        if not np.isfinite(theta).all():
            raise ValueError(f"{self._scaled_by()}: the coefficients are not finite")
        weights = theta[: len(units.scale)] * size / units.scale
        constant = theta[-1] * size if of.intercept else 0.0
        return weights, float(constant + units.target_center - weights @ units.center)

    def _set_intervals(self) -> None:
        assert self.moments_ is not None
        theta, covariances = moments.unbiased(self.moments_)
        ratio = self._units.target_scale / self._units.scale
        size = len(ratio)
        self.coef_covariance_ = np.outer(ratio, ratio) * covariances[:size, :size]
        deviations = np.sqrt(np.diagonal(self.coef_covariance_))
        width = NormalDist().inv_cdf(0.5 * (1.0 + _CONFIDENCE)) * deviations
        middle = theta[:size] * ratio
        self.coef_interval_ = np.stack([middle - width, middle + width], axis=1)

    def _path(self, alphas: Any, l1_ratio: Any, features: Any) -> tuple[np.ndarray, np.ndarray]:
        self._require_fitted()
        if self.moments_ is None:
            raise ValueError(
                f"solver must be 'moments' for a path, got {self.solver_!r}: fit with it, or fit "
                "each alpha with a part of the budget"
            )
        kept = np.arange(len(self._units.scale))
        if features is not None:
            kept = kept[np.asarray(features, dtype=np.int64)]
        units = self._units._replace(center=self._units.center[kept], scale=self._units.scale[kept])
        of, found = self.moments_.of(kept), []
        for alpha in np.ravel(np.asarray(alphas, dtype=np.float64)):
            found.append(self._solved(of, penalty_of(float(alpha), l1_ratio), units))
        return np.stack([weights for weights, _ in found]), np.array([b for _, b in found])


def penalty_of(alpha: Any, l1_ratio: Any) -> Penalty:
    """The penalty of an elastic net, `L1` or `L2` at its ends."""
    strength = checks.nonnegative("alpha", alpha)
    ratio = checks.real("l1_ratio", l1_ratio, 0.0, 1.0)
    if jnp.ndim(strength) or jnp.ndim(ratio):
        raise ValueError("alpha and l1_ratio must be numbers")
    if ratio == 1:
        return L1(strength)
    return L2(strength) if ratio == 0 else ElasticNet(strength, ratio)
