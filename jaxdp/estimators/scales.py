"""Records of a linear model, about released centres and within released ranges."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import Key
from jaxdp.estimators.base import DPEstimator, estimator
from jaxdp.estimators.bounds import clip_to_bounds, public_bounds, warn_of_bounds
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers import scaling
from jaxdp.solvers.blocks import Columns, Ranges, is_sparse
from jaxdp.solvers.coordinate_descent.defaults import DEVIATIONS
from jaxdp.solvers.problems import Smoothness, bounded_smoothness

# Updates of greedy descent below which `fit` warns. chosen: sparse models have ten coefficients
_FEW = 10
# Share of the scales' mu^2 that narrows the bounds first. chosen: half
_NARROWING = 0.5
# `doubt` of windows of features, whose rare values count, and of targets, whose mean is needed.
# measured: dummies of 2 %; bounds of 100 deviations
_DOUBT, _TARGET_DOUBT = 0.25, 2.0
# Sampling error of histograms, times e^epsilon, over delta, at most. chosen: the noise is unchanged
_NARROWING_ERROR = 0.05
# `jax.random.split`, compiled once: of a secure key it would be compiled in each fit.
split = jax.jit(jax.random.split, static_argnums=1)


class LittleBudgetWarning(UserWarning):
    """The noise for the budget exceeds any signal, as the number of records foretells."""


def warn_of_little(rate: float) -> None:
    """Warn if a signal over the noise, from public numbers alone, is below 1."""
    if rate < 1.0:
        warnings.warn(
            f"nothing can be learnt: the noise for this budget is {1.0 / rate:.2g} times as large "
            "as any signal. Take more records, fewer columns or a larger epsilon",
            LittleBudgetWarning,
            stacklevel=5,
        )


def warn_of_few(updates: int, rate: float) -> None:
    """Warn, from public numbers alone, if greedy descent can find few coefficients or none."""
    warn_of_little(rate)
    if rate >= 1.0 and updates < _FEW:
        warnings.warn(
            f"at most {updates} coefficients can be found with this budget: a model of more, or of "
            "weaker ones, is not learnt. Take more records, fewer columns or a larger epsilon",
            LittleBudgetWarning,
            stacklevel=5,
        )


class Given(NamedTuple):
    """Records of a fit as they came, targets within their bounds, and what they are measured for.

    pooled: release one deviation for all features, in units of their bounds.
    """

    features: Any
    targets: np.ndarray
    loss: str
    target_bounds: Any = None
    pooled: bool = False

    @property
    def has_target_bounds(self) -> bool:
        """True if targets are a column to be measured."""
        return self.target_bounds is not None


class Measured(NamedTuple):
    """Records, how their features are clipped and centred, and what is known of them.

    Every solver sees features in units of their deviations, so that no number depends on the units
    of a column. smoothness: in these units. targets: about their centre. reach: the largest
    |x_j - center_j| of each column in deviations.
    spent: on centres and deviations. outside: records whose target was clipped: NOT PRIVATE.
    """

    features: Any
    ranges: Ranges
    targets: np.ndarray
    scale: np.ndarray
    target_center: float
    target_scale: float
    reach: np.ndarray
    smoothness: Smoothness
    spent: Drawn | None
    outside: np.ndarray


@estimator
class DPMeasuringEstimator(DPEstimator):
    """Parameters that decide in which units and ranges a linear model sees its records."""

    feature_bounds: Any = None
    scaling_share: Any = 0.1
    smoothness: Any = None
    fit_intercept: Any = True
    noise: Any = "gaussian"
    relation: Any = "replace_one"
    release: Any = "lattice"
    # (2, p): ends that features are clipped to, public or released.
    feature_range_: np.ndarray = dataclasses.field(init=False)

    def _kinds(self) -> dict[str, Any]:
        return {"dtype": [np.float64, np.float32], "accept_sparse": "csr"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _measured(
        self, given: Given, budget: Budget, key: Key, deviations: float = DEVIATIONS
    ) -> Measured:
        """Records within public bounds and released ranges, about their centres.

        Sets `feature_range_`: `deviations` about the centres, within the bounds. It is public
        or released, so clipping to it reads one record at a time and costs nothing. Sparse features
        are measured from 0, which they are mostly.
        """
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        coordinates, sparse = given.features.shape[1], is_sparse(given.features)
        bounds, outside = self._bounds(), np.zeros(len(given.targets), dtype=bool)
        if sparse and not ((bounds[0] <= 0.0) & (bounds[1] >= 0.0)).all():
            raise ValueError("feature_bounds must contain 0 for sparse features")
        if given.has_target_bounds:
            ends = np.stack(public_bounds(given.target_bounds, ["y"], "target_bounds"))
            targets = clip_to_bounds(given.targets, ends[0], ends[1], "y", ["y"])
            outside = targets != given.targets
            given, bounds = given._replace(targets=targets), np.hstack([bounds, ends])
        center, scale, spent = self._scales(given, bounds, budget, key)
        if sparse:
            scale[:coordinates] = np.hypot(center, scale)[:coordinates]
            center[:coordinates] = 0.0
        self.feature_range_ = np.clip(
            center + np.multiply.outer([-deviations, deviations], scale), *bounds
        )[:, :coordinates]
        if not self.fit_intercept:
            # All are measured from 0, or it would be another model.
            center, scale = np.zeros_like(center), np.hypot(center, scale)
        y_center, y_scale = (center[-1], scale[-1]) if given.has_target_bounds else (0.0, 1.0)
        center, scale = center[:coordinates], scale[:coordinates]
        return Measured(
            given.features,
            Ranges(self.feature_range_[0], self.feature_range_[1], center, scale),
            given.targets - y_center if given.has_target_bounds else given.targets,
            *(scale, float(y_center), float(y_scale)),
            (np.abs(self.feature_range_ - center) / scale).max(axis=0),
            Smoothness(
                bounded_smoothness(
                    given.loss, np.ones_like(scale), intercept=bool(self.fit_intercept)
                ).values,
                "public" if spent is None else "released",
            ),
            spent,
            outside,
        )

    def _score(self, features: Any, weights: np.ndarray) -> np.ndarray:
        """X w of features of a prediction, clipped as in `fit`."""
        features, (lower, upper) = self._features(features, reset=False), self.feature_range_
        found = np.empty(features.shape[0])
        for rows, part in Columns(features).blocks():
            found[rows] = np.clip(part, lower, upper) @ weights
        return found

    def _bounds(self) -> np.ndarray:
        """Public bounds of the features, (2, p), infinite without any."""
        if self.feature_bounds is None:
            return np.full((2, self.n_features_in_), [[-np.inf], [np.inf]])
        return np.stack(public_bounds(self.feature_bounds, self._columns(), warn=True))

    def _warn_of_outside(self, features: Any) -> None:
        """Count values beyond the bounds; they are clipped to `feature_range_` later."""
        if self.feature_bounds is not None:
            bounds = public_bounds(self.feature_bounds, self._columns())
            warn_of_bounds(features, *bounds, self._columns())

    def _noise(self) -> Any:
        """The requested noise; "gaussian" if the fit adds none."""
        return self.noise if self._is_private() else "gaussian"

    def _is_gaussian(self) -> bool:
        """True if the requested noise is Gaussian."""
        return self._noise() == Gaussian.name or isinstance(self._noise(), Gaussian)

    def _scales(
        self, given: Given, bounds: np.ndarray, budget: Budget, key: Key
    ) -> tuple[np.ndarray, np.ndarray, Drawn | None]:
        """Origins and units of the columns, bounded targets last, and what knowing them costs."""
        coordinates, loss = given.features.shape[1], given.loss
        columns = Columns(given.features, given.targets if given.has_target_bounds else None)
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
            exact: Any = self._scaling_cost(budget, share)
            known = {"relation": self.relation}
            error = scaling.sampling_error(columns.shape[1])
            if given.pooled:
                center, scale = scaling.release_pooled(
                    columns, bounds[0], bounds[1], coordinates, exact, key, **known
                )
            else:
                rest = exact
                first = self._narrowed(given, columns, exact, budget)
                if first is not None:
                    of, part, more = first
                    rest = GDP(exact.mu * np.sqrt(1.0 - _NARROWING))
                    exact, error = part + rest, error + more
                    key, other = split(key, 2)
                    bounds, places = bounds.copy(), slice(-of.shape[1], None)
                    lower, upper = bounds[:, places]
                    doubt = np.full(of.shape[1], _DOUBT)
                    doubt[-1:] = _TARGET_DOUBT if given.has_target_bounds else _DOUBT
                    bounds[:, places] = scaling.narrowed(
                        of, lower, upper, part, other, doubt=doubt, **known
                    )
                center, scale = scaling.release(columns, bounds[0], bounds[1], rest, key, **known)
            spent = Drawn(exact, error)
        return center, scale, spent

    def _narrowed(
        self, given: Given, columns: Columns, exact: GDP | PureDP, budget: Budget
    ) -> tuple[Columns, GDP, float] | None:
        """Columns whose bounds are narrowed, the cost and its sampling error, by public numbers.

        All columns, or the targets alone if there are too many features: without a mean of the
        targets nothing is learnt. None where no window would stand out.
        """
        if not isinstance(exact, GDP):
            return None
        part = GDP(exact.mu * np.sqrt(_NARROWING))
        for of in [columns] + [Columns(given.targets[:, None])] * given.has_target_bounds:
            turns = scaling.rounds(*of.shape, part, self.relation)
            error = float(scaling.narrowing_error(of.shape[1], turns))
            if turns and error * np.exp(float(budget.epsilon)) <= _NARROWING_ERROR * budget.delta:
                return of, part, error
        return None

    def _scaling_cost(self, budget: Budget, share: float) -> GDP | PureDP:
        """`share` of the budget, for noise of the descent's own kind."""
        if self._is_gaussian():
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
