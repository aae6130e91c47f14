"""Shared parts of the regressions: predictions; scales, public or released; the descent."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import Key
from jaxdp.estimators.base import DPEstimator, estimator
from jaxdp.estimators.scales import DPMeasuringEstimator, Given, Measured, split, warn_of_little
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.solvers import coordinate_descent
from jaxdp.solvers.coordinate_descent import GreedyPlan, Plan
from jaxdp.solvers.coordinate_descent.defaults import DEVIATIONS
from jaxdp.solvers.penalties import L1, L2, Penalty
from jaxdp.solvers.problems import Problem, Smoothness, bounded_smoothness, regression

_base = checks.extra("sklearn.base", "learn")

# Passes of a fit without noise. chosen: columns of condition 100 converge to a thousandth
_NOISELESS_PASSES = 1000


def in_deviations(penalty: L1 | L2, scale: np.ndarray) -> Penalty:
    """The penalty of raw coefficients, as one of the coefficients of columns over `scale`."""
    strength = np.asarray(penalty.strength)
    return L1(strength / scale) if isinstance(penalty, L1) else L2(strength / scale**2)


def in_raw_units(records: Measured, loss: str) -> Measured:
    """The same records in raw units: an elastic net of these has no form in deviations."""
    intercept = len(records.smoothness.values) > len(records.scale)
    values = bounded_smoothness(loss, records.scale, intercept=intercept).values
    ones = np.ones_like(records.scale)
    smoothness = Smoothness(values, records.smoothness.origin)
    ranges = records.ranges._replace(unit=ones)
    return records._replace(ranges=ranges, scale=ones, smoothness=smoothness)


class LinearRegressor(_base.RegressorMixin, DPEstimator):
    """Predictions of a fitted linear model."""

    coef_: np.ndarray
    intercept_: Any

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b: costs nothing more."""
        self._require_fitted()
        return self._score(X, self.coef_) + self.intercept_

    def _score(self, features: Any, weights: np.ndarray) -> np.ndarray:
        return self._features(features, reset=False) @ weights

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


@estimator
class DPLinearEstimator(DPMeasuringEstimator):
    """Parameters of `DPLasso` and `DPLogisticRegression`; see there."""

    clip: Any = None
    passes: Any = None
    step: Any = None
    allocation: Any = "winid"
    coef_: np.ndarray = dataclasses.field(init=False)
    intercept_: Any = dataclasses.field(init=False)
    n_iter_: int = dataclasses.field(init=False)
    plan_: Any = dataclasses.field(init=False)

    def _descend(
        self,
        features: Any,
        targets: np.ndarray,
        loss: str,
        penalty: Penalty,
        key: Key,
        *,
        classes: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float]:
        """Coefficients and intercept by coordinate descent; sets `guarantee_` and `plan_`."""
        budget = self._budget()
        scaling_key, order_key, noise_key = split(key, 3)
        records = self._measured(Given(features, targets, loss), budget, scaling_key)
        problem = self._problem(records, loss, penalty, classes)
        plan = self._plan(problem, records, budget, order_key)
        self._finish(plan.guarantee if self._is_private() else Drawn(GDP(np.inf)))
        return self._follow(problem, plan, records, noise_key)

    def _problem(
        self, records: Measured, loss: str, penalty: Penalty, classes: np.ndarray | None
    ) -> Problem:
        return regression(
            records.features,
            records.targets,
            loss=loss,
            penalty=penalty,
            intercept=bool(self.fit_intercept),
            classes=classes,
            dtype=records.features.dtype,
            ranges=records.ranges,
        )

    def _follow(
        self, problem: Problem, plan: Plan | GreedyPlan, records: Measured, key: Key
    ) -> tuple[np.ndarray, float]:
        """Coefficients and intercept that a plan of coordinate descent ends with."""
        theta = np.asarray(coordinate_descent.run(problem, plan, key))
        if not np.isfinite(theta).all():
            chosen = self.step is not None or self.clip is not None
            raise ValueError(
                f"{'step or clip must be smaller' if chosen else self._scaled_by()}: the "
                "coefficients are not finite"
            )
        self.plan_ = plan
        self.n_iter_ = 1 if isinstance(plan, GreedyPlan) else plan.sequence.shape[0]
        weights, constant = (theta[:-1], theta[-1]) if problem.intercept else (theta, 0.0)
        weights = weights / records.scale
        return weights, float(constant + records.target_center - weights @ records.ranges.center)

    def _own_clip(self, records: Measured) -> Any:
        """`clip`, which is in the units of the columns, in deviations."""
        values, unit = np.asarray(records.smoothness.values), records.scale
        unit = np.append(unit, np.ones(len(values) - len(unit)))
        if np.ndim(self.clip):
            return self.clip / unit
        return self.clip * float(np.sqrt(values.sum() / (values * unit**2).sum()))

    def _scaled_by(self) -> str:
        """Error message if the user chose neither step nor clip."""
        name = "feature_bounds" if self.smoothness is None else "smoothness"
        return f"{name} must be nearer to 1, in other units of the columns, or alpha smaller"

    def _plan(
        self, problem: Problem, records: Measured, budget: Budget, key: Key
    ) -> Plan | GreedyPlan:
        """Clip, passes and step as given, or as `coordinate_descent.defaults` has them."""
        passes = None if self.passes is None else checks.positive_integer("passes", self.passes)
        smoothness = records.smoothness
        if not self._is_private():
            count = _NOISELESS_PASSES if passes is None else passes
            return coordinate_descent.noiseless_plan(smoothness, passes=count)
        # Of the squared loss as residuals of a few deviations have it, of the logistic one sharp.
        steepest = DEVIATIONS if problem.loss == "squared" else 2.0
        chosen = coordinate_descent.defaults(
            budget,
            smoothness.values,
            problem.offset.size,
            self.relation,
            target_scale=records.target_scale,
            largest=float(records.reach.max()) * steepest,
            passes=passes,
        )
        warn_of_little(chosen.rate)
        return coordinate_descent.plan(
            budget,
            smoothness=smoothness,
            clip=chosen.clip if self.clip is None else self._own_clip(records),
            records=problem.offset.size,
            passes=chosen.passes,
            relation=self.relation,
            step=chosen.step if self.step is None else self.step,
            allocation=self.allocation,
            noise=self.noise,
            penalty=problem.penalty,
            release=self.release,
            spent=records.spent,
            key=key,
        )
