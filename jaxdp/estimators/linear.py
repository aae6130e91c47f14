"""The part that the linear models share: one measurement of the records, then one solver."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import shift_factor
from jaxdp._core.random_key import children
from jaxdp._core.types import Key
from jaxdp.estimators.base import DPEstimator, estimator, warn_of_few, warn_of_little
from jaxdp.estimators.bounds import public_bounds, warn_of_bounds
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers import coordinate_descent, moments
from jaxdp.solvers.blocks import Columns, Units
from jaxdp.solvers.coordinate_descent import GreedyPlan
from jaxdp.solvers.coordinate_descent.defaults import DEVIATIONS
from jaxdp.solvers.measured import Bounded, Measured, measure
from jaxdp.solvers.penalties import L1, L2, Penalty
from jaxdp.solvers.problems import regression

# Passes of a fit without noise. chosen: columns of condition 100 converge to a thousandth
_NOISELESS_PASSES = 1000
# What `DPLinearRegression` takes; see there.
SOLVERS = ("auto", "moments", "coordinate_descent", "greedy")
# n mu / d^1.5 from which moments are released. measured: on California housing and nine sets of
# normal and log-normal features, the two solvers' R^2 cross between 30 and 130
_MOMENTS_FROM = 60.0
# n mu / p from which coordinate descent clips features farther out, with its root, and by how much
# at most. measured: heavy tails, sparse columns
_WIDER_FROM, _MOST_WIDER = 30.0, 2.0
# n mu / p below which coordinate descent is greedy. measured: signs, n 2,000, p 100; with 10 true
# coefficients greedy has the higher R^2 up to 8, with 50 up to about 3
_GREEDY_BELOW = 4.0
# Least number of features of a greedy logistic regression. measured: at epsilon .3 breast cancer
# (30 columns) has accuracy .92, greedy .89; digits (64) the same; signs (800) are better if greedy
_MANY_FEATURES = 100


class IntervalWarning(UserWarning):
    """`coef_interval_` is infinite or NaN, and why."""


@estimator
class LinearModel(DPEstimator):
    """Parameters and results of the linear models; see `DPLasso` and `DPLinearRegression`."""

    feature_bounds: Any = None
    scaling_share: Any = 0.1
    fit_intercept: Any = True
    noise: Any = "gaussian"
    relation: Any = "replace_one"
    release: Any = "lattice"
    clip: Any = None
    passes: Any = None
    step: Any = None
    # (2, p): ends that features are clipped to, public or released.
    feature_range_: np.ndarray = dataclasses.field(init=False)
    coef_: np.ndarray = dataclasses.field(init=False)
    intercept_: Any = dataclasses.field(init=False)
    n_iter_: int = dataclasses.field(init=False)
    plan_: Any = dataclasses.field(init=False)
    solver_: str = dataclasses.field(init=False)
    moments_: Any = dataclasses.field(init=False)  # `Moments`, or None
    coef_covariance_: np.ndarray | None = dataclasses.field(init=False)
    coef_interval_: np.ndarray | None = dataclasses.field(init=False)
    intercept_interval_: np.ndarray | None = dataclasses.field(init=False)
    _units: Units = dataclasses.field(init=False)
    _level: GDP | Budget = dataclasses.field(init=False)  # of the fit, for the defaults

    def _kinds(self) -> dict[str, Any]:
        return {"dtype": [np.float64, np.float32], "accept_sparse": "csr"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _score(self, features: Any) -> np.ndarray:
        """X w + b of features of a prediction, clipped as in `fit`, (n,) or (n, k)."""
        self._require_fitted()
        features, (lower, upper) = self._features(features, reset=False), self.feature_range_
        found = np.empty(features.shape[:1] + self.coef_.shape[:-1])
        for rows, part in Columns(features).blocks():
            found[rows] = np.clip(part, lower, upper) @ self.coef_.T
        return found + self.intercept_

    def _bounds(self, features: Any) -> np.ndarray:
        """Public bounds of the features, (2, p); warns of values beyond."""
        columns = self._columns()
        bounds = public_bounds(self.feature_bounds, columns, warn=True)
        warn_of_bounds(features, *bounds, columns)
        return np.stack(bounds)

    def _is_gaussian(self) -> bool:
        """True if the noise is Gaussian, or there is none."""
        return (
            not self._is_private() or isinstance(self.noise, Gaussian) or self.noise == "gaussian"
        )

    def _fit(
        self,
        given: Bounded,
        loss: str,
        penalty: Penalty,
        key: Key,
        *,
        solver: str = "auto",
        classes: np.ndarray | None = None,
    ) -> None:
        """Measure the records once, and fit them by one solver; sets the results."""
        budget, keys = self._budget(), children(key, 3)
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        count, width = given.features.shape
        mu = float(largest_gdp(budget).mu) if self._is_gaussian() else np.nan
        self._level = GDP(mu) if self._is_gaussian() else budget
        mu_n = count * mu * 2.0 / shift_factor(self.relation)
        solver, reason = self._chosen(solver, loss, mu_n, width, given)
        deviations = DEVIATIONS
        if loss == "squared":
            wider = min(max((mu_n / width / _WIDER_FROM) ** 0.5, 1.0), _MOST_WIDER)
            wide = {"moments": moments.DEVIATIONS, "coordinate_descent": DEVIATIONS * wider}
            deviations = wide.get(solver, DEVIATIONS) if self._is_gaussian() else DEVIATIONS
        records = measure(
            given,
            self._scaling_cost(budget, mu),
            budget,
            keys[0],
            loss=loss,
            deviations=deviations,
            intercept=bool(self.fit_intercept),
            pooled=solver == "greedy",
            relation=self.relation,
        )
        self._units, self.solver_ = records.units, solver
        self.feature_range_ = np.stack(records.units[:2])
        self.moments_ = self.coef_covariance_ = None
        self.coef_interval_ = self.intercept_interval_ = None
        if solver == "moments":
            guarantee = self._release_moments(records, penalty, budget, keys[2])
        else:
            guarantee = self._descend(records, loss, penalty, budget, keys[1:], classes)
        self._finish(guarantee, f"solver {solver}: {reason}" if loss == "squared" else "")

    def _chosen(
        self, solver: str, loss: str, mu_n: float, width: int, given: Bounded
    ) -> tuple[str, str]:
        """The solver and the reason for it, from public numbers alone."""
        own = [name for name in ("clip", "passes", "step") if getattr(self, name) is not None]
        kinds = given.targets.shape[1]
        if solver != "auto":
            if solver != "coordinate_descent" and not self._is_gaussian():
                raise ValueError(f"solver {solver!r} takes Gaussian noise, got {self.noise!r}")
            return solver, "as requested"
        if kinds > 1:
            return "moments", f"one release serves {kinds} targets"
        if own or not self._is_gaussian():
            return "coordinate_descent", f"{own[0] if own else 'noise'} is given"
        dimension = width + bool(self.fit_intercept) + 1
        signal, rate = moments.rate(1, mu_n, dimension), mu_n / width
        # Without public bounds, moments of targets that are not centred lose what is clipped.
        if loss == "squared" and signal >= _MOMENTS_FROM and given.target_bounds is not None:
            return "moments", f"n mu / d^1.5 is {signal:.3g}, at least {_MOMENTS_FROM:g}"
        if rate < _GREEDY_BELOW and (loss == "squared" or width >= _MANY_FEATURES):
            return "greedy", f"n mu / p is {rate:.3g}, below {_GREEDY_BELOW:g}"
        too_small = f"n mu / d^1.5 is {signal:.3g}, below {_MOMENTS_FROM:g}"
        why = "target_bounds are not given" if signal >= _MOMENTS_FROM else too_small
        at_least = f"and n mu / p {rate:.3g}, at least {_GREEDY_BELOW:g}"
        return "coordinate_descent", f"{why}, {at_least}"

    def _scaling_cost(self, budget: Budget, mu: float) -> GDP | PureDP | None:
        """`scaling_share` of the budget, for noise of the descent's own kind, or None."""
        share = float(checks.real("scaling_share", self.scaling_share, 0.0, 1.0))
        if share == 1.0:
            raise ValueError("scaling_share must lie in [0, 1), got 1: nothing is left to learn by")
        if share == 0.0:
            return None
        if self._is_gaussian() and not mu > 0:
            raise ValueError(
                "budget must be one that Gaussian noise can meet, got epsilon "
                f"{budget.epsilon}, delta {budget.delta}"
            )
        return GDP(mu * np.sqrt(share)) if self._is_gaussian() else PureDP(budget.epsilon * share)

    def _release_moments(
        self, records: Measured, penalty: Penalty, budget: Budget, key: Key
    ) -> Drawn:
        """Results of one release of moments, and its cost, the scales' included."""
        key, checking_key = children(key)
        known = {"intercept": bool(self.fit_intercept), "relation": self.relation}
        noise = self.release if self._is_private() else ""
        made, units = moments.release(records, budget, key, noise=noise, **known), self._units
        self.plan_, self.moments_, self.n_iter_ = made.plan, made.moments, 1
        parts = [made.moments.of(target) for target in range(made.moments.targets)]
        thetas = [moments.solved(part, penalty, units, i) for i, part in enumerate(parts)]
        (cut, gain), (deviation, _) = moments.checked(
            records, made, np.stack(thetas), checking_key, self.relation
        )
        if not gain > 0.0:
            self.feature_range_ = units.near(moments.NEAR)
        noise = deviation if self._is_private() else 0.0
        ends = [moments.intervals(x, units, i, cut, noise) for i, x in enumerate(parts)]
        for reason in {reason for *_, reason in ends if reason}:
            warnings.warn(f"coef_interval_ is {reason}", IntervalWarning, stacklevel=5)
        self._set_coefficients([raw(theta, units, i) for i, theta in enumerate(thetas)])
        covariance, interval = (one_or_all(x) for x in list(zip(*ends, strict=True))[:2])
        size = len(units.scale)
        self.coef_covariance_ = covariance[..., :size, :size]
        self.coef_interval_ = interval[..., :size, :]
        self.intercept_interval_ = interval[..., size, :] if self.fit_intercept else None
        return made.guarantee

    def _set_coefficients(self, found: list[tuple[np.ndarray, float]]) -> None:
        self.coef_, self.intercept_ = (one_or_all(x) for x in zip(*found, strict=True))
        if not (np.isfinite(self.coef_).all() and np.isfinite(self.intercept_).all()):
            raise ValueError(
                "step, clip or alpha must be smaller, or feature_bounds nearer to 1, in other "
                "units of the columns: the coefficients are not finite"
            )

    def _descend(
        self,
        records: Measured,
        loss: str,
        penalty: Penalty,
        budget: Budget,
        keys: Any,
        classes: np.ndarray | None,
    ) -> Drawn:
        """Results of coordinate descent, and its cost, the scales' included."""
        if records.targets.shape[1] > 1:
            raise ValueError("y must be one column for this solver; 'moments' takes several")
        if isinstance(penalty, L1 | L2):
            # Of raw coefficients, as one of those in deviations; `L2` has their squares.
            power = 1 if isinstance(penalty, L1) else 2
            scale = records.units.scale**power if loss == "squared" else 1.0
            penalty = type(penalty)(penalty.strength / scale)
        else:
            records = records.in_raw_units(loss)
        problem = regression(
            records.features,
            records.targets[:, 0],
            loss=loss,
            penalty=penalty,
            intercept=bool(self.fit_intercept),
            classes=classes,
            dtype=records.features.dtype,
            ranges=records.units,
        )
        plan = self._plan(records, loss, problem.penalty, budget, keys[0])
        theta = np.asarray(coordinate_descent.run(problem, plan, keys[1]))
        self.plan_ = plan
        self.n_iter_ = 1 if isinstance(plan, GreedyPlan) else plan.sequence.shape[0]
        self._set_coefficients([raw(theta, records.units._replace(target_scale=np.ones(1)), 0)])
        return plan.guarantee if self._is_private() else Drawn(GDP(np.inf))

    def _plan(
        self, records: Measured, loss: str, penalty: Penalty, budget: Budget, key: Key
    ) -> Any:
        """Clip, passes and step as given, or as the defaults of coordinate descent have them."""
        passes = None if self.passes is None else checks.positive_integer("passes", self.passes)
        curvature, count = records.curvature, len(records.targets)
        if not self._is_private():
            found = _NOISELESS_PASSES if passes is None else passes
            return coordinate_descent.noiseless_plan(curvature, passes=found)
        size, scale = curvature.size, float(records.units.target_scale[0])
        known = (self._level, curvature, count, self.relation)
        if self.solver_ == "greedy":
            chosen = coordinate_descent.greedy_defaults(*known, target_scale=scale)
            warn_of_few(chosen.updates, chosen.rate)
            updates = chosen.updates if passes is None else passes * size
            own, first = {"order": "greedy", "passes": 1, "updates": updates}, 1.0
        else:
            # Squared loss: as residuals of a few deviations have it. Logistic: sharp.
            largest = float(records.reach.max()) * (DEVIATIONS if loss == "squared" else 2.0)
            chosen = coordinate_descent.defaults(
                *known, target_scale=scale, largest=largest, passes=passes
            )
            warn_of_little(chosen.rate)
            own = {"passes": chosen.passes, "noise": self.noise, "penalty": penalty, "key": key}
            first = chosen.step
        return coordinate_descent.plan(
            budget,
            smoothness=curvature,
            clip=chosen.clip if self.clip is None else self._own_clip(records),
            records=count,
            relation=self.relation,
            step=first if self.step is None else self.step,
            spent=records.spent,
            release=self.release,
            **own,
        )

    def _own_clip(self, records: Measured) -> Any:
        """`clip`, which is in the units of the columns, in deviations."""
        values, unit = np.asarray(records.curvature), records.units.scale
        unit = np.append(unit, np.ones(len(values) - len(unit)))
        if np.ndim(self.clip):
            return self.clip / unit
        return self.clip * float(np.sqrt(values.sum() / (values * unit**2).sum()))


def one_or_all(found: Any) -> Any:
    """The only one of a list, or all of them as an array."""
    return found[0] if len(found) == 1 else np.stack(found)


def raw(theta: np.ndarray, units: Units, target: int) -> tuple[np.ndarray, float]:
    """Coefficients and intercept of raw columns."""
    size, width = float(units.target_scale[target]), len(units.scale)
    weights = theta[:width] * size / units.scale
    constant = theta[-1] * size if len(theta) > width else 0.0
    return weights, float(constant + units.target_center[target] - weights @ units.center)
