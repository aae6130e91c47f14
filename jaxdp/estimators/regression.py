"""Differentially private linear regression and LASSO, by the solver that fits the budget."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import shift_factor
from jaxdp.estimators.base import composed, estimator
from jaxdp.estimators.linear import LinearRegressor, in_deviations, in_raw_units
from jaxdp.estimators.scales import Given, Measured, split, warn_of_few
from jaxdp.estimators.second_moments import DPMomentsEstimator, Units, penalty_of
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers import coordinate_descent, moments
from jaxdp.solvers.coordinate_descent.defaults import DEVIATIONS, greedy_defaults
from jaxdp.solvers.penalties import L1, L2

# What `DPLinearRegression` takes; see there.
SOLVERS = ("auto", "moments", "coordinate_descent", "greedy")
# n mu / d^1.5 from which moments are released. measured: on California housing and nine sets of
# normal and log-normal features, the two solvers' R^2 cross between 30 and 130
_MOMENTS_FROM = 60.0
# Deviations that features of moments are clipped to. chosen: beyond what released deviations are
# off by; long rows are shortened, which moves no coefficient
_MOMENTS_DEVIATIONS = 20.0
# n mu / p from which coordinate descent clips features farther out, with its root, and by how much
# at most. measured: heavy tails, sparse columns
_WIDER_FROM, _MOST_WIDER = 30.0, 2.0
# n mu / p below which coordinate descent is greedy. measured: signs, n 2,000, p 100; with 10 true
# coefficients greedy has the higher R^2 up to 8, with 50 up to about 3
_GREEDY_BELOW = 4.0


class EpsilonPath(NamedTuple):
    """Coefficients (epsilons, seeds, p), intercepts (epsilons, seeds), and the cost of all fits."""

    coef: np.ndarray
    intercept: np.ndarray
    guarantee: Drawn


@estimator
class PenalisedRegressor(DPMomentsEstimator, LinearRegressor):
    """Parameters of `DPLinearRegression` and `DPLasso`; see there."""

    solver: Any = "auto"

    def _learn(self, X: Any, y: Any, alpha: Any, l1_ratio: Any) -> None:  # noqa: N803
        """Fit by the chosen solver; `guarantee_` is its cost and that of scales."""
        features, targets = self._records(X, y, y_numeric=True)
        penalty = penalty_of(alpha, l1_ratio)
        checks.one_of("solver", self.solver, SOLVERS)
        budget = self._budget()
        scaling_key, order_key, noise_key = split(self._key(), 3)
        solver, reason = self._chosen(budget, *features.shape)
        self._warn_of_outside(features)
        given = Given(features, targets, "squared", self.target_bounds, solver == "greedy")
        deviations = self._deviations(solver, budget, *features.shape)
        records = self._measured(given, budget, scaling_key, deviations)
        self._units = Units(records.ranges.center, *records[3:6])
        self.moments_ = self.coef_covariance_ = None
        self.coef_interval_ = self.intercept_interval_ = None
        if solver == "moments":
            guarantee = self._release_moments(records, budget, noise_key)
            self.coef_, self.intercept_ = self._solved(self.moments_, penalty, self._units)
        else:
            if isinstance(penalty, L1 | L2):
                penalty = in_deviations(penalty, records.scale)
            else:
                records = in_raw_units(records, "squared")
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
        if self.solver != "auto":
            if self.solver != "coordinate_descent" and not self._is_gaussian():
                raise ValueError(f"solver {self.solver!r} takes Gaussian noise, got {self.noise!r}")
            return self.solver, "as requested"
        if own or not self._is_gaussian():
            return "coordinate_descent", f"{own[0] if own else 'noise'} is given"
        mu = float(largest_gdp(budget).mu) * 2.0 / shift_factor(self.relation)
        dimension = features + bool(self.fit_intercept) + 1
        signal, rate = moments.rate(records, mu, dimension), records * mu / features
        # Without public bounds, moments of targets that are not centred lose what is clipped.
        if signal >= _MOMENTS_FROM and self.target_bounds is not None:
            return "moments", f"n mu / d^1.5 is {signal:.3g}, at least {_MOMENTS_FROM:g}"
        if rate < _GREEDY_BELOW:
            return "greedy", f"n mu / p is {rate:.3g}, below {_GREEDY_BELOW:g}"
        too_small = f"n mu / d^1.5 is {signal:.3g}, below {_MOMENTS_FROM:g}"
        why = "target_bounds are not given" if signal >= _MOMENTS_FROM else too_small
        at_least = f"and n mu / p {rate:.3g}, at least {_GREEDY_BELOW:g}"
        return "coordinate_descent", f"{why}, {at_least}"

    def _deviations(self, solver: str, budget: Budget, records: int, features: int) -> float:
        """Deviations that features are clipped to, from public numbers: more where noise is low."""
        if solver != "coordinate_descent" or not self._is_gaussian():
            return _MOMENTS_DEVIATIONS if solver == "moments" else DEVIATIONS
        mu = float(largest_gdp(budget).mu) * 2.0 / shift_factor(self.relation)
        wider = float(np.sqrt(records * mu / features / _WIDER_FROM))
        return DEVIATIONS * min(max(wider, 1.0), _MOST_WIDER)

    def _greedy_plan(self, records: Measured, budget: Budget) -> Any:
        """Thresholds and updates as given, or as `greedy_defaults` has them."""
        count, smoothness = len(records.targets), records.smoothness
        chosen = greedy_defaults(
            budget, smoothness.values, count, self.relation, target_scale=records.target_scale
        )
        warn_of_few(chosen.updates, chosen.rate)
        size = len(smoothness.values)
        return coordinate_descent.plan(
            budget,
            smoothness=smoothness,
            clip=chosen.clip if self.clip is None else self._own_clip(records),
            records=count,
            passes=1,
            updates=chosen.updates if self.passes is None else self.passes * size,
            relation=self.relation,
            step=1.0 if self.step is None else self.step,
            order="greedy",
            spent=records.spent,
            release=self.release,
        )

    def epsilon_path(self, X: Any, y: Any, *, epsilons: Any, seeds: Any = 1) -> EpsilonPath:  # noqa: N803
        """Fits for many epsilons, each with noise of its own, to study accuracy before a release.

        epsilons: k numbers. seeds: fits of each epsilon. Other parameters are the estimator's, but
        for `random_state`. The cost is the sum of all fits: on records that are
        private, look at `guarantee`, or take public ones. It compiles nothing after the first fit.
        """
        epsilons, parts = np.ravel(np.asarray(epsilons, dtype=np.float64)), []
        count = checks.positive_integer("seeds", seeds)
        for epsilon in epsilons.tolist():
            own = self.get_params() | {"epsilon": epsilon, "random_state": None}
            parts += [type(self)(**own).fit(X, y) for _ in range(count)]
        if not parts:
            raise ValueError("epsilons must hold at least one number, got none")
        shape = len(epsilons), count
        weights = np.stack([part.coef_ for part in parts]).reshape(*shape, -1)
        constants = np.array([part.intercept_ for part in parts]).reshape(shape)
        return EpsilonPath(weights, constants, composed(part.guarantee_ for part in parts))

    def statement(self) -> str:
        """Guarantee, neighbours, solver and conditions of the last `fit`, a sentence a line."""
        self._require_fitted()
        text, _, solver = self.privacy_text_.rpartition("; solver ")
        neighbours = {
            "replace_one": "one record replaced by another; how many there are is public",
            "add_remove": "one record added or removed; how many there are is taken as public",
        }[self._fitted_relation or "replace_one"]
        return (
            f"Guarantee: {text}.\nNeighbours: {neighbours}.\nSolver: {solver}.\nConditions: bounds "
            "and parameters are public, and were not chosen by results on the records."
        )


@estimator
class DPLinearRegression(PenalisedRegressor):
    """Least squares, ridge, LASSO and elastic net with differential privacy, by one budget.

    min 1/(2n) ||y - X w - b||^2 + alpha (l1_ratio ||w||_1 + (1 - l1_ratio) ||w||^2 / 2).

    epsilon, delta: what `fit` may spend: one record replaced (`relation="replace_one"`), or one
        added or removed with n public and fixed in the mean ("add_remove"). inf: see `base`.
    feature_bounds, target_bounds: public (lower, upper), numbers or one a feature. Features are
        clipped to them and to a few released deviations (`feature_range_`: 20 by moments, else
        three), in `fit` and in predictions. Without target_bounds, y should be about centred with a
        deviation of about 1.
    alpha, l1_ratio: of the penalty. 0: least squares; l1_ratio 0: ridge, 1: LASSO.
    solver: "moments" releases the second moments of (x, 1, y) once, with noise of the Gaussian
        orthogonal ensemble. "coordinate_descent" is `solvers.coordinate_descent`, "greedy" the same
        with coordinates that are selected privately, for many features. "auto" takes moments where
        target_bounds are given and n mu / d^1.5 is large, d being the length of (x, 1, y) and mu
        the budget as Gaussian DP, greedy descent where n mu / p is small, and coordinate descent
        otherwise or where clip, passes, step or other noise is given. These numbers are public;
        `statement()` has them.
    clip, passes, step, allocation, noise, smoothness, scaling_share, release, random_state: see
        `DPLasso`.

    Fitted: coef_, intercept_, solver_, plan_, n_iter_, feature_range_, guarantee_, privacy_text_.
    By moments also moments_ (see `solvers.moments`), coef_interval_ (p, 2) and intercept_interval_
    (2,), 95 % confidence intervals without a penalty that count the privacy noise, and
    coef_covariance_; None otherwise. They hold for a linear model with equal variances. They are
    infinite where the noise hides a direction of the features, and NaN where bounds clip about 1 %
    of the records or more; an `IntervalWarning` gives the reason. 4 % of mu^2 releases that share.
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


@estimator
class DPLasso(PenalisedRegressor):
    """min 1/(2n) ||y - X w - b||^2 + alpha ||w||_1: `DPLinearRegression` with l1_ratio 1.

    epsilon, delta: what `fit` may spend: one record replaced (`relation="replace_one"`), or one
        added or removed with n public and fixed in the mean ("add_remove"). inf: see `base`.
    feature_bounds: public (lower, upper), numbers or one a feature; values beyond are clipped
        (counted by a `BoundsWarning`), and so are values beyond three released deviations, in `fit`
        and in predictions. (-3, 3) suits standardised columns.
    target_bounds: public (lower, upper) of y, clipped to them. Unless given, y should be about
        centred with a deviation of about 1: other units cost accuracy, never privacy.
    scaling_share: share of the budget (of mu^2, or of epsilon where the noise is not Gaussian) that
        releases centres and deviations of the bounded columns (`solvers.scaling`); `guarantee_` has
        it inside. Columns are measured from there, and M_j is the deviation squared. With 0 they
        are the middle and half the width of the bounds.
    smoothness: public M_j of the uncentred features, instead of all that; `feature_bounds` then
        only clip. Values computed from the records are refused.
    solver: see `DPLinearRegression`; the parameters below are of coordinate descent.
    clip: C in |d loss_i / d w_j| <= C sqrt(M_j / sum M), in units of y times x; public. A wrong
        one costs accuracy, never privacy.
    clip, passes, step: None chooses from public numbers, see `coordinate_descent.defaults`.
    allocation, noise: of `coordinate_descent.plan`.
    release: "lattice", or "float": noise in floating point, for research; `privacy_text_` says so.
    random_state: None for randomness of the operating system; see `estimators.base`.

    Fitted: as `DPLinearRegression`; n_iter_ counts passes. n is public, as is the number of
    features. Accuracy with defaults: benchmarks/bench_estimators.py.
    Source: Mangold et al., ICML 2022; defaults and scales are ours.
    """

    alpha: Any = 0.01

    def fit(self, X: Any, y: Any) -> DPLasso:  # noqa: N803
        """Spend the budget on (n, p) features and n targets, finite numbers."""
        self._learn(X, y, self.alpha, 1.0)
        return self

    def path(self, alphas: Any, *, features: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (k, p) and intercepts (k,) of many alphas; see `DPLinearRegression.path`."""
        return self._path(alphas, 1.0, features)
