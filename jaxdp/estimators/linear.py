"""What the regressions share: predictions; smoothness, public or released, and the descent."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._types import Key, Vector
from jaxdp.estimators.base import DPEstimator, Spent, clip_to_bounds, composed, public_bounds
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.pure import PureDP
from jaxdp.problems import (
    Penalty,
    Problem,
    Smoothness,
    bounded_smoothness,
    glm,
    private_smoothness,
)
from jaxdp.solvers import coordinate_descent
from jaxdp.solvers.coordinate_descent import Plan

_base = _check.extra("sklearn.base", "learn")


class LinearRegressor(_base.RegressorMixin, DPEstimator):
    """Predictions of a fitted linear model."""

    coef_: np.ndarray
    intercept_: Any

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b: costs nothing more. X is not clipped."""
        self._require_fitted()
        return self._features(X, reset=False) @ self.coef_ + self.intercept_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class DPLinearEstimator(DPEstimator):
    """Parameters of `DPLasso` and `DPLogisticRegression`; see there."""

    feature_bounds: Any
    smoothness: Any
    private_smoothness_fraction: Any
    clip: Any
    passes: Any
    step: Any
    fit_intercept: Any
    allocation: Any
    noise: Any
    relation: Any
    coef_: np.ndarray
    intercept_: Any
    n_iter_: int
    privacy_: Spent
    plan_: Plan

    def _descend(
        self,
        features: np.ndarray,
        targets: np.ndarray,
        loss: str,
        penalty: Penalty,
        classes: np.ndarray | None = None,
    ) -> Vector:
        """theta by coordinate descent, and what it cost in `privacy_` and `plan_`."""
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        budget = self._budget()
        bounds = None
        if self.feature_bounds is not None:
            lower, upper = public_bounds(self.feature_bounds, features.shape[1])
            features = clip_to_bounds(features, lower, upper, "X")
            bounds = np.maximum(np.abs(lower), np.abs(upper))
        intercept = bool(self.fit_intercept)
        problem = glm(
            features, targets, loss=loss, penalty=penalty, intercept=intercept, classes=classes
        )
        smoothness_key, order_key, noise_key = jax.random.split(self._key(), 3)
        smoothness, spent = self._smoothness(problem, bounds, budget, smoothness_key)
        plan = coordinate_descent.plan(
            budget,
            smoothness=smoothness,
            clip=self.clip,
            records=len(features),
            passes=_check.positive_integer("passes", self.passes),
            relation=self.relation,
            step=self.step,
            allocation=self.allocation,
            noise=self.noise,
            penalty=problem.penalty,
            spent=spent,
            key=order_key,
        )
        theta = coordinate_descent.run(problem, plan, noise_key)
        assert isinstance(theta, jax.Array)
        self.plan_ = plan
        self.privacy_ = composed([plan.guarantee])
        self.n_iter_ = plan.sequence.shape[0]
        return theta

    def _smoothness(
        self, problem: Problem, bounds: np.ndarray | None, budget: Budget, key: Key
    ) -> tuple[Smoothness, PureDP | None]:
        fraction = self.private_smoothness_fraction
        derived = isinstance(self.smoothness, Smoothness) and self.smoothness.origin == "records"
        if fraction is not None:
            if not 0.0 < fraction < 1.0:
                raise ValueError(
                    f"private_smoothness_fraction must lie in (0, 1), got {fraction!r}"
                )
            if bounds is None:
                raise ValueError(
                    "feature_bounds must be given: private smoothness is clipped there"
                )
            return private_smoothness(problem, bounds, fraction * float(budget.epsilon), key)
        if derived:
            raise ValueError(
                "smoothness was computed from the records and would leak them: give "
                "private_smoothness_fraction to release it from the budget, or feature_bounds"
            )
        if self.smoothness is None:
            if bounds is None:
                raise ValueError("feature_bounds or smoothness must be given, and be public")
            return bounded_smoothness(problem.loss, bounds, intercept=problem.intercept), None
        values = self.smoothness
        values = np.asarray(values.values if isinstance(values, Smoothness) else values, float)
        coordinates = problem.design.shape[0] - problem.intercept
        if values.shape not in ((), (coordinates,)):
            raise ValueError(
                f"smoothness must be a number or have shape ({coordinates},), got {values.shape}"
            )
        values = np.broadcast_to(values, (coordinates,))
        if problem.intercept:
            one = bounded_smoothness(problem.loss, np.ones(1)).values
            values = jnp.append(values, one)
        return Smoothness(values, "public"), None

    def _keep(self, theta: Vector) -> tuple[np.ndarray, float]:
        """Coefficients and intercept."""
        values = np.asarray(theta)
        if not np.isfinite(values).all():
            raise ValueError("step or clip must be smaller: the coefficients are not finite")
        return (values[:-1], float(values[-1])) if self.fit_intercept else (values, 0.0)
