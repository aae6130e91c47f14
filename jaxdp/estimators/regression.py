"""Differentially private linear regression, by the solver that fits the budget."""

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
from jaxdp.estimators.linear import DPLinearEstimator, LinearRegressor, split
from jaxdp.estimators.scales import Given, Measured, warn_of_little
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers import coordinate_descent, covariance, lattice, moments
from jaxdp.solvers.blocks import Columns
from jaxdp.solvers.coordinate_descent.defaults import greedy_defaults
from jaxdp.solvers.covariance.release import shortened
from jaxdp.solvers.moments import Bounds, Moments
from jaxdp.solvers.penalties import L1, L2, ElasticNet, Penalty

# What `DPLinearRegression` takes; see there.
SOLVERS = ("auto", "moments", "coordinate_descent", "greedy")
# n mu / d^1.5 from which moments are released. chosen: on California housing alone
_MOMENTS_FROM = 60.0
# n mu / p below which coordinate descent is greedy. chosen: a pass costs p steps, a few updates do
_GREEDY_BELOW = 4.0
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
class PenalisedRegressor(DPLinearEstimator, LinearRegressor):
    """Parameters of `DPLinearRegression` and `DPLasso`; see there."""

    target_bounds: Any = None
    solver: Any = "auto"
    solver_: str = dataclasses.field(init=False)
    moments_: Any = dataclasses.field(init=False)  # `Moments`, or None
    coef_covariance_: np.ndarray | None = dataclasses.field(init=False)
    coef_interval_: np.ndarray | None = dataclasses.field(init=False)
    _units: Units = dataclasses.field(init=False)

    def _learn(self, X: Any, y: Any, alpha: Any, l1_ratio: Any) -> None:  # noqa: N803
        """Fit by the chosen solver; `guarantee_` is its cost and that of scales."""
        features, targets = self._records(X, y, y_numeric=True)
        penalty = _penalty(alpha, l1_ratio)
        checks.one_of("solver", self.solver, SOLVERS)
        budget = self._budget()
        scaling_key, order_key, noise_key = split(self._key(), 3)
        solver, reason = self._chosen(budget, *features.shape)
        self._warn_of_outside(features)
        given = Given(features, targets, "squared", self.target_bounds, solver == "greedy")
        records = self._measured(given, budget, scaling_key)
        self._units = Units(records.ranges.center, *records[3:6])
        self.moments_ = self.coef_covariance_ = self.coef_interval_ = None
        if solver == "moments":
            guarantee = self._release_moments(records, budget, noise_key)
            self.coef_, self.intercept_ = self._solved(self.moments_, penalty, self._units)
            self._set_intervals()
        else:
            problem = self._problem(records, "squared", penalty, None)
            if solver == "greedy":
                plan = self._greedy_plan(records, budget)
            else:
                plan = self._plan(problem, records, budget, order_key)
            guarantee = plan.guarantee if self._is_private() else Drawn(GDP(np.inf))
            self.coef_, self.intercept_ = self._follow(problem, plan, records, noise_key)
        self.solver_ = solver
        self._finish(guarantee, f"solver {solver}: {reason}")

    def _chosen(self, budget: Budget, records: int, features: int) -> tuple[str, str]:
        """The solver and the reason for it, from public numbers alone."""
        own = [name for name in ("clip", "passes", "step") if getattr(self, name) is not None]
        is_gaussian = isinstance(self._noise(), Gaussian) or self._noise() == "gaussian"
        if self.solver != "auto":
            if self.solver != "coordinate_descent" and not is_gaussian:
                raise ValueError(f"solver {self.solver!r} takes Gaussian noise, got {self.noise!r}")
            return self.solver, "as requested"
        if own or not is_gaussian:
            return "coordinate_descent", f"{own[0] if own else 'noise'} is given"
        mu = float(largest_gdp(budget).mu) * 2.0 / shift_factor(self.relation)
        dimension = features + bool(self.fit_intercept) + 1
        signal, rate = moments.rate(records, mu, dimension), records * mu / features
        if signal >= _MOMENTS_FROM:
            return "moments", f"n mu / d^1.5 is {signal:.3g}, at least {_MOMENTS_FROM:g}"
        if rate < _GREEDY_BELOW:
            return "greedy", f"n mu / p is {rate:.3g}, below {_GREEDY_BELOW:g}"
        return (
            "coordinate_descent",
            f"n mu / d^1.5 is {signal:.3g}, below {_MOMENTS_FROM:g}, and n mu / p {rate:.3g}, at "
            f"least {_GREEDY_BELOW:g}",
        )

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
        moment = np.zeros((dimension, dimension))
        for columns, targets in self._scaled(records):
            rows = shortened(moments.rows_of(columns, targets, bounds), self.plan_.row_bound)
            moment += rows.T @ rows
        released = np.asarray(covariance.noisy(moment / count, self.plan_, key))
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

    def _greedy_plan(self, records: Measured, budget: Budget) -> Any:
        """Thresholds and updates as given, or as `greedy_defaults` has them."""
        count, smoothness = len(records.targets), records.smoothness
        chosen = greedy_defaults(
            budget, smoothness.values, count, self.relation, target_scale=records.target_scale
        )
        warn_of_little(chosen.rate)
        size = len(smoothness.values)
        return coordinate_descent.plan(
            budget,
            smoothness=smoothness,
            clip=chosen.clip if self.clip is None else self.clip,
            records=count,
            passes=1,
            updates=chosen.updates if self.passes is None else self.passes * size,
            relation=self.relation,
            step=1.0 if self.step is None else self.step,
            order="greedy",
            spent=records.spent,
            release=self.release,
        )

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
            found.append(self._solved(of, _penalty(float(alpha), l1_ratio), units))
        return np.stack([weights for weights, _ in found]), np.array([b for _, b in found])

    def statement(self) -> str:
        """Guarantee, neighbours, solver and conditions of the last `fit`, a sentence a line."""
        self._require_fitted()
        text, _, solver = self.privacy_text_.rpartition("; solver ")
        neighbours = {
            "replace_one": "one record replaced by another; how many there are is public",
            "add_remove": "one record added or removed; how many there are is taken as public",
        }[self._fit_record.relation or "replace_one"]
        return (
            f"Guarantee: {text}.\nNeighbours: {neighbours}.\nSolver: {solver}.\nConditions: bounds "
            "and parameters are public, and were not chosen by results on the records."
        )


def _penalty(alpha: Any, l1_ratio: Any) -> Penalty:
    strength = checks.nonnegative("alpha", alpha)
    ratio = checks.real("l1_ratio", l1_ratio, 0.0, 1.0)
    if jnp.ndim(strength) or jnp.ndim(ratio):
        raise ValueError("alpha and l1_ratio must be numbers")
    if ratio == 1:
        return L1(strength)
    return L2(strength) if ratio == 0 else ElasticNet(strength, ratio)


@estimator
class DPLinearRegression(PenalisedRegressor):
    """Least squares, ridge, LASSO and elastic net with differential privacy, by one budget.

    min 1/(2n) ||y - X w - b||^2 + alpha (l1_ratio ||w||_1 + (1 - l1_ratio) ||w||^2 / 2).

    epsilon, delta: what `fit` may spend: one record replaced (`relation="replace_one"`), or one
        added or removed with n public and fixed in the mean ("add_remove"). inf: see `base`.
    feature_bounds, target_bounds: public (lower, upper), numbers or one a feature. Features are
        clipped to them and to three released deviations (`feature_range_`), in `fit` and in
        predictions. Without target_bounds, y should be about centred with a deviation of about 1.
    alpha, l1_ratio: of the penalty. 0: least squares; l1_ratio 0: ridge, 1: LASSO.
    solver: "moments" releases the second moments of (x, 1, y) once, with noise of the Gaussian
        orthogonal ensemble. "coordinate_descent" is `solvers.coordinate_descent`, "greedy" the same
        with coordinates that are selected privately, for many features. "auto" takes moments where
        n mu / d^1.5 is large, d being the length of (x, 1, y) and mu the budget as Gaussian DP,
        greedy descent where n mu / p is small, and coordinate descent between or where clip,
        passes, step or other noise is given. These numbers are public; `statement()` has them.
    clip, passes, step, allocation, noise, smoothness, scaling_share, release, random_state: see
        `DPLasso`.

    Fitted: coef_, intercept_, solver_, plan_, n_iter_, feature_range_, guarantee_, privacy_text_.
    By moments also moments_ (see `solvers.moments`), coef_interval_ (p, 2), 95 % confidence
    intervals of the coefficients without a penalty that count the privacy noise, and
    coef_covariance_; None otherwise. They hold for a linear model with equal variances.
    Source: Wang, UAI 2018; Mangold et al., ICML 2022 and AISTATS 2023.

    >>> import jaxdp as dp
    >>> from jaxdp import datasets
    >>> data = datasets.load("diabetes")
    >>> model = dp.DPLinearRegression(epsilon=1.0, delta=1e-6, feature_bounds=(-0.2, 0.2),
    ...     target_bounds=(25, 350)).fit(data.features, data.targets)
    >>> print(model.statement().splitlines()[2])
    Solver: coordinate_descent: n mu / d^1.5 is 2.52, below 60, and n mu / p 10.5, at least 4.
    """

    alpha: Any = 0.0
    l1_ratio: Any = 0.0

    def fit(self, X: Any, y: Any) -> DPLinearRegression:  # noqa: N803
        """Spend the budget on (n, p) features and n targets, finite numbers."""
        self._learn(X, y, self.alpha, self.l1_ratio)
        return self

    def path(
        self, alphas: Any, *, l1_ratio: Any = None, features: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (k, p) and intercepts (k,) of many penalties, from the moments of `fit`.

        alphas: k numbers. l1_ratio: that of the estimator if None. features: numbers of those in a
        submodel, all if None. It costs nothing more: the moments are released. `ValueError` after a
        fit by another solver.
        """
        return self._path(alphas, self.l1_ratio if l1_ratio is None else l1_ratio, features)
