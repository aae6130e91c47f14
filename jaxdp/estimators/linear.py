"""Shared parts of the regressions: predictions; scales, public or released; the descent."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import Key
from jaxdp.estimators.base import DPEstimator, estimator
from jaxdp.estimators.bounds import clip_to_bounds, public_bounds
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers import coordinate_descent, scaling
from jaxdp.solvers.coordinate_descent import Plan
from jaxdp.solvers.coordinate_descent.defaults import DEVIATIONS
from jaxdp.solvers.problems import Penalty, Problem, Smoothness, bounded_smoothness, glm

_base = checks.extra("sklearn.base", "learn")

# Passes of a fit without noise. chosen: columns of condition 100 converge to a thousandth
_NOISELESS_PASSES = 1000
# `jax.random.split`, compiled once: of a secure key it would be compiled in each fit.
split = jax.jit(jax.random.split, static_argnums=1)


class LinearRegressor(_base.RegressorMixin, DPEstimator):
    """Predictions of a fitted linear model."""

    coef_: np.ndarray
    intercept_: Any

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b: costs nothing more."""
        self._require_fitted()
        return self._inputs(X) @ self.coef_ + self.intercept_

    def _inputs(self, features: Any) -> np.ndarray:
        return self._features(features, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class Measured(NamedTuple):
    """Records about their centres, clipped to `feature_range_`, and what is known of them.

    reach: the largest |x_j - center_j| in deviations. spent: on centres and deviations.
    """

    features: np.ndarray
    targets: np.ndarray
    center: np.ndarray
    target_center: float
    target_scale: float
    reach: float
    smoothness: Smoothness
    spent: Drawn | None


@estimator
class DPLinearEstimator(DPEstimator):
    """Parameters of `DPLasso` and `DPLogisticRegression`; see there."""

    feature_bounds: Any = None
    scaling_share: Any = 0.1
    smoothness: Any = None
    clip: Any = None
    passes: Any = None
    step: Any = None
    fit_intercept: Any = True
    allocation: Any = "winid"
    noise: Any = "gaussian"
    relation: Any = "replace_one"
    release: Any = "lattice"
    coef_: np.ndarray = dataclasses.field(init=False)
    intercept_: Any = dataclasses.field(init=False)
    # (2, p): ends that features are clipped to, public or released.
    feature_range_: np.ndarray = dataclasses.field(init=False)
    n_iter_: int = dataclasses.field(init=False)
    plan_: Plan = dataclasses.field(init=False)

    def _descend(
        self,
        features: np.ndarray,
        targets: np.ndarray,
        loss: str,
        penalty: Penalty,
        key: Key,
        *,
        classes: np.ndarray | None = None,
        target_bounds: Any = None,
    ) -> tuple[np.ndarray, float]:
        """Coefficients and intercept by coordinate descent; sets `guarantee_` and `plan_`."""
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        budget, intercept = self._budget(), bool(self.fit_intercept)
        scaling_key, order_key, noise_key = split(key, 3)
        records = self._measured(features, targets, loss, budget, scaling_key, target_bounds)
        problem = glm(
            records.features,
            records.targets,
            loss=loss,
            penalty=penalty,
            intercept=intercept,
            classes=classes,
        )
        self.plan_ = self._plan(problem, records, budget, order_key)
        theta = np.asarray(coordinate_descent.run(problem, self.plan_, noise_key))
        if not np.isfinite(theta).all():
            chosen = self.step is not None or self.clip is not None
            raise ValueError(
                f"{'step or clip must be smaller' if chosen else self._scaled_by()}: the "
                "coefficients are not finite"
            )
        self._finish(self.plan_.guarantee if self._is_private() else Drawn(GDP(np.inf)))
        self.n_iter_ = self.plan_.sequence.shape[0]
        weights, constant = (theta[:-1], theta[-1]) if intercept else (theta, 0.0)
        return weights, float(constant + records.target_center - weights @ records.center)

    def _scaled_by(self) -> str:
        """Error message if the user chose neither step nor clip."""
        name = "feature_bounds" if self.smoothness is None else "smoothness"
        return f"{name} must be nearer to 1, in other units of the columns, or alpha smaller"

    def _bounded(
        self, features: np.ndarray, targets: np.ndarray, target_bounds: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features and targets within their bounds, and these, (2, p) or, with targets', p + 1."""
        coordinates = features.shape[1]
        bounds = np.full((2, coordinates), [[-np.inf], [np.inf]])
        if self.feature_bounds is not None:
            columns = self._columns()
            bounds = np.stack(public_bounds(self.feature_bounds, columns, warn=True))
            features = clip_to_bounds(features, bounds[0], bounds[1], "X", columns)
        if target_bounds is not None:
            ends = np.stack(public_bounds(target_bounds, ["y"], "target_bounds"))
            targets = clip_to_bounds(targets, ends[0], ends[1], "y", ["y"])
            bounds = np.hstack([bounds, ends])
        return features, targets, bounds

    def _measured(
        self,
        features: np.ndarray,
        targets: np.ndarray,
        loss: str,
        budget: Budget,
        key: Key,
        target_bounds: Any,
    ) -> Measured:
        """Records within public bounds and released ranges, about their centres.

        Sets `feature_range_`: a few deviations about the centres, within the bounds. It is public
        or released, so clipping to it reads one record at a time and costs nothing.
        """
        coordinates, bounded_targets = features.shape[1], target_bounds is not None
        features, targets, bounds = self._bounded(features, targets, target_bounds)
        columns = np.column_stack([features, targets]) if bounded_targets else features
        center, scale, spent = self._scales(columns, bounds, coordinates, loss, budget, key)
        self.feature_range_ = np.clip(
            center + np.multiply.outer([-DEVIATIONS, DEVIATIONS], scale), *bounds
        )[:, :coordinates]
        if not self.fit_intercept:
            # All are measured from 0, or it would be another model.
            center, scale = np.zeros_like(center), np.hypot(center, scale)
        y_center, y_scale = (center[-1], scale[-1]) if bounded_targets else (0.0, 1.0)
        center, scale = center[:coordinates], scale[:coordinates]
        reach = float((np.abs(self.feature_range_ - center) / scale).max())
        return Measured(
            np.clip(features, *self.feature_range_) - center,
            targets - y_center if bounded_targets else targets,
            *(center, float(y_center), float(y_scale), reach),
            Smoothness(
                bounded_smoothness(loss, scale, intercept=bool(self.fit_intercept)).values,
                "public" if spent is None else "released",
            ),
            spent,
        )

    def _inputs(self, features: Any) -> np.ndarray:
        """Features of a prediction, clipped as in `fit`."""
        return np.clip(self._features(features, reset=False), *self.feature_range_)

    def _plan(self, problem: Problem, records: Measured, budget: Budget, key: Key) -> Plan:
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
            largest=records.reach * steepest,
            passes=passes,
        )
        return coordinate_descent.plan(
            budget,
            smoothness=smoothness,
            clip=chosen.clip if self.clip is None else self.clip,
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

    def _noise(self) -> Any:
        """The requested noise; "gaussian" if the fit adds none."""
        return self.noise if self._is_private() else "gaussian"

    def _scales(
        self,
        columns: np.ndarray,
        bounds: np.ndarray,
        coordinates: int,
        loss: str,
        budget: Budget,
        key: Key,
    ) -> tuple[np.ndarray, np.ndarray, Drawn | None]:
        """Origins and units of the columns, and what knowing them costs.

        Features, and then the targets, if they have bounds.
        """
        share = float(checks.real("scaling_share", self.scaling_share, 0.0, 1.0))
        if share == 1.0:
            raise ValueError("scaling_share must lie in [0, 1), got 1: nothing is left to learn by")
        spent = None
        if self.smoothness is not None:
            smoothness = _given_smoothness(self.smoothness, coordinates)
            center, scale = bounds.mean(axis=0), np.ptp(bounds, axis=0) / 2
            center[:coordinates] = 0.0
            scale[:coordinates] = np.sqrt(smoothness / bounded_smoothness(loss, np.ones(1)).values)
        elif not np.isfinite(bounds).all():
            raise ValueError("feature_bounds or smoothness must be given, and be public")
        elif share == 0.0:
            center, scale = bounds.mean(axis=0), np.ptp(bounds, axis=0) / 2
        else:
            exact = self._scaling_cost(budget, share)
            center, scale = scaling.release(
                columns, bounds[0], bounds[1], exact, key, relation=self.relation
            )
            spent = Drawn(exact, scaling.sampling_error(columns.shape[1]))
        return center, scale, spent

    def _scaling_cost(self, budget: Budget, share: float) -> GDP | PureDP:
        """`share` of the budget, for noise of the descent's own kind."""
        if self._noise() == "gaussian" or isinstance(self._noise(), Gaussian):
            largest = largest_gdp(budget).mu
            if not bool(largest > 0):
                raise ValueError(
                    "budget must be one that Gaussian noise can meet, got epsilon "
                    f"{budget.epsilon}, delta {budget.delta}"
                )
            return GDP(largest * np.sqrt(share))
        return PureDP(budget.epsilon * share)


def _given_smoothness(smoothness: Any, coordinates: int) -> np.ndarray:
    """M_j of the features, the caller's word that they are public."""
    if isinstance(smoothness, Smoothness):
        if smoothness.origin != "public":
            raise ValueError(
                "smoothness was computed from the records and would leak them, or its cost is "
                "unknown here: give feature_bounds, and scales are released from the budget"
            )
        smoothness = smoothness.values
    values = np.asarray(checks.positive("smoothness", smoothness))
    if values.shape not in ((), (coordinates,)):
        raise ValueError(
            f"smoothness must be a number or have shape ({coordinates},), got {values.shape}"
        )
    return np.broadcast_to(values, (coordinates,))
