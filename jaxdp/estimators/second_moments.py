"""The part of linear regression that releases second moments once, and what follows from them."""

from __future__ import annotations

import dataclasses
import warnings
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
from jaxdp.estimators.scales import Measured, split
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers import covariance, lattice, moments, scaling
from jaxdp.solvers.blocks import Columns
from jaxdp.solvers.covariance.release import noisy, shortened
from jaxdp.solvers.moments import Bounds, Moments
from jaxdp.solvers.penalties import L1, L2, ElasticNet, Penalty

# Of intervals. chosen: as tables of regressions have it
_CONFIDENCE = 0.95
# Share of mu^2 that releases the share of cut records. chosen: it costs 2 % of the noise
_CUT_SHARE = 0.04
# Part of |theta| that is lost, over the share of cut records. measured: 1 for a normal target, 4
# for an exponential one
_LOST = 4.0
# Largest lost part with an interval. chosen: below, the interval is wide but useful
_MOST_LOST = 0.04
# Factor of the noise's mu. chosen: above the rounding of roots and sums
_ROUNDED_DOWN = 1.0 - 1e-12


class IntervalWarning(UserWarning):
    """`coef_interval_` is infinite or NaN, and why."""


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
    intercept_interval_: np.ndarray | None = dataclasses.field(init=False)
    _units: Units = dataclasses.field(init=False)

    def _release_moments(self, records: Measured, budget: Budget, key: Key) -> Drawn:
        """Sets `plan_`, `moments_` and intervals; the cost, that of scales included."""
        intercept, count = bool(self.fit_intercept), len(records.targets)
        spent, dimension = records.spent, len(records.scale) + intercept + 1
        error = lattice.sampling_error(dimension * (dimension + 1) / 2 + 1, self.release)
        before = 0.0 if spent is None else spent.sampling_error
        mu = float(largest_gdp(left_for_exact(budget, error + before)).mu)
        rest = mu**2 - (0.0 if spent is None else float(spent.exact.mu) ** 2)
        if not rest > 0:
            raise ValueError(
                f"budget must be one that Gaussian noise can meet, got epsilon {budget.epsilon}, "
                f"delta {budget.delta}"
            )
        counting = GDP(float(np.sqrt(rest * _CUT_SHARE)) * _ROUNDED_DOWN)
        mu = float(np.sqrt(rest * (1.0 - _CUT_SHARE))) * _ROUNDED_DOWN
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
        cut, outside = 0, self._outside(records)
        for part, columns, targets in self._scaled(records):
            rows: Any = moments.rows_of(columns, targets, bounds)
            cut += int((outside[part] | moments.is_cut(columns, targets, bounds)).sum())
            rows = shortened(rows, self.plan_.row_bound)
            moment += rows.T @ rows
        key, counting_key = split(key, 2)
        released = np.asarray(noisy(moment / count, self.plan_, key))
        scale, lost = 0.0, (cut / count, 0.0)
        if self._is_private():
            scale = float(self.plan_.scales[1])
            lost = scaling.share(cut, count, counting, counting_key)
        self.moments_ = moments.moments_of(released, scale, count, intercept)
        self._set_intervals(*lost)
        self.n_iter_ = 1
        total = self.plan_.guarantee + Drawn(counting, lattice.sampling_error(1, self.release))
        return total if spent is None else total + spent

    def _outside(self, records: Measured) -> np.ndarray:
        """Whether a value of each record was clipped to a bound: NOT PRIVATE."""
        found, (lower, upper) = records.outside.copy(), self.feature_range_
        for rows, part in Columns(records.features).blocks():
            found[rows] |= ((part < lower) | (part > upper)).any(axis=1)
        return found

    def _scaled(self, records: Measured) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Rows, and blocks of (x, 1) and of targets, in units; without intercept there is no 1."""
        for rows, part in Columns(records.features).blocks():
            part = records.ranges.of(part)
            ones = [np.ones(len(part))] * bool(self.fit_intercept)
            yield rows, np.column_stack([part, *ones]), records.targets[rows] / records.target_scale

    def _largest(self, records: Measured) -> Bounds:
        """The largest norm of (x, 1) and |y| of all records: NOT PRIVATE."""
        pairs = self._scaled(records)
        ends = [(np.linalg.norm(x, axis=1).max(), np.abs(y).max()) for _, x, y in pairs]
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

    def _set_intervals(self, cut: float, noise: float) -> None:
        """Intervals, with the share of cut records that was released and its noise."""
        assert self.moments_ is not None
        units, has_intercept = self._units, bool(self.fit_intercept)
        quantile = NormalDist().inv_cdf(0.5 * (1.0 + _CONFIDENCE))
        middle, covariance = moments.confidence_set(self.moments_, quantile)
        # Coefficients and intercept of the raw columns, as sums of theta.
        sums = np.diag(units.target_scale / units.scale)
        if has_intercept:
            sums = np.block(
                [[sums, np.zeros((len(sums), 1))], [-units.center @ sums, units.target_scale]]
            )
        lost = _LOST * max(cut, 0.0)
        with np.errstate(invalid="ignore"):
            covariance = sums @ covariance @ sums.T
        if not np.isfinite(covariance).all():
            covariance = np.full_like(covariance, np.inf)
            self._warn_of_interval(
                "infinite: in some direction the features vary too little for the noise. Take a "
                "larger epsilon, or fewer or less correlated features"
            )
        if lost > _MOST_LOST + 3.0 * _LOST * noise:
            covariance = np.full_like(covariance, np.nan)
            self._warn_of_interval(
                f"NaN: about {100.0 * cut:.2g} % of the records (released, +- {100.0 * noise:.2g}) "
                "were clipped by feature_bounds, target_bounds or the bound on targets, which "
                "moves coefficients. Widen the bounds, or transform skewed columns"
            )
        doubt = (lost + noise) * np.linalg.norm(middle) * np.linalg.norm(sums, axis=1)
        width = quantile * np.sqrt(np.diagonal(covariance)) + doubt
        middle = sums @ middle
        middle[-1] += units.target_center * has_intercept
        found = np.stack([middle - width, middle + width], axis=1)
        size = len(units.scale)
        self.coef_covariance_, self.coef_interval_ = covariance[:size, :size], found[:size]
        self.intercept_interval_ = found[size] if has_intercept else None

    def _warn_of_interval(self, reason: str) -> None:
        warnings.warn(f"coef_interval_ is {reason}", IntervalWarning, stacklevel=6)

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
