"""Linear models from one private second moment of the rows (x, 1, y), and their intervals.

`covariance.release` adds noise of the Gaussian orthogonal ensemble, of deviation s on the diagonal.
The release answers every penalty, submodel and interval without further cost. With A and b its
blocks of (x, 1) with itself and with y, theta = A^-1 b without a penalty. Eigenvalues of A within
half of the noise's spectrum, whose end is s sqrt(2 d), say nothing, and are raised to it.

Intervals are projections of a confidence set, which is valid where A is nearly singular. At the
true theta, b - A theta is the mean of x r, with r the residuals, plus noise (e - E theta). It has
mean 0 and covariance sigma^2 A / n + s^2 / 2 ((1 + |theta|^2) I + theta theta^T). A long (x, 1) is
shortened together with y, which weights its equation and keeps it.
Source: Wang, Revisiting differentially private linear regression, UAI 2018; the confidence set
follows Fieller, JRSS B 1954, and Anderson & Rubin, Ann. Math. Stat. 1949.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.neighbours import shift_factor
from jaxdp._core.types import Key
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers import covariance, lattice, scaling
from jaxdp.solvers.blocks import Columns, Units
from jaxdp.solvers.covariance import noisy, shortened
from jaxdp.solvers.measured import Measured
from jaxdp.solvers.penalties import Penalty

# Part of the noise's spectrum that eigenvalues are raised to. measured: California, epsilon .1: R^2
# .598, .599 with 1, .53 with 1/4
_FLOOR = 0.5
# Variances of coefficients in deviations that are tried. chosen: none to far beyond any
_VARIANCES = np.logspace(-6, 2, 81)
# Squared bound of (x, 1) over its dimension: root of n mu / d^1.5, over this, and at least.
# measured: California, epsilon .1 to 10: R^2 within .002 of the best
_ROOT, _LEAST = 8.0, 0.4
# Bound of targets in deviations, with the root of that. chosen: .003 of normal targets are cut
_TARGET = 3.0
# Passes at most, and the relative change of theta that ends them. chosen: they cost no privacy
_PASSES, _TOLERANCE = 10_000, 1e-10
# Least weight of the mean row. chosen: noise may make the released one negative
_LEAST_WEIGHT = 0.1
# Deviations that features are clipped to in a fit. chosen: beyond what released deviations are off
# by; long rows are shortened, which moves no coefficient
DEVIATIONS = 20.0
# Deviations that features of predictions are clipped to, unless the records are fitted better by
# those of the fit. chosen: where a model saturates, values beyond say little
NEAR = 3.0
# Share of mu^2 that releases the share of cut records and what wider predictions gain, by a record
# at most 1 squared deviation of the targets. measured: California, epsilon 1: the better of both in
# 9 of 10 fits
_CHECK_SHARE, _MOST_GAIN = 0.08, 1.0
# Of intervals. chosen: as tables of regressions have it
_CONFIDENCE = 0.95
# Part of |theta| that is lost, over the share of cut records. measured: 1 for a normal target, 4
# for an exponential one
_LOST = 4.0
# Largest lost part with an interval. chosen: below, the interval is wide but useful
_MOST_LOST = 0.04
# Factor of the noise's mu. chosen: above the rounding of roots and sums
_ROUNDED_DOWN = 1.0 - 1e-12


class Moments(NamedTuple):
    """A released second moment of rows (x, 1, y), without the 1 if there is no intercept.

    It is private, as are all numbers computed from it. scale: deviation of the diagonal's noise.
    targets: the numbers of y. Coefficients are of one of them: take `of` first.
    """

    matrix: np.ndarray
    scale: float
    records: float  # times the mean weight of a row
    intercept: bool
    targets: int = 1

    def of(self, target: int, features: np.ndarray | None = None) -> Moments:
        """The release of one target, and of a submodel with these features alone, by numbers."""
        first = len(self.matrix) - self.targets
        width = first - self.intercept
        kept = np.arange(width) if features is None else features
        kept = np.concatenate([kept, np.arange(width, first), [first + target]])
        return self._replace(matrix=self.matrix[np.ix_(kept, kept)], targets=1)

    @property
    def floored(self) -> np.ndarray:
        """A, with eigenvalues that the noise does not hide."""
        values, vectors = np.linalg.eigh(self.matrix[:-1, :-1])
        floor = _FLOOR * self.scale * np.sqrt(2.0 * len(self.matrix))
        # Without noise, of columns that depend on each other.
        floor = max(floor, 1e-13 * max(values[-1], 1e-300))
        return (vectors * np.maximum(values, floor)) @ vectors.T

    @property
    def regular(self) -> np.ndarray:
        """`floored`, plus a ridge in each eigendirection that its noise calls for.

        Coefficients are taken for normal ones of a common variance, which the release tells: the
        likeliest of `_VARIANCES`. Each direction then has the posterior mean for its coefficient,
        and theta tends to 0 where b is as noise alone would have it.
        """
        if not self.scale:
            return self.floored
        values, vectors = np.linalg.eigh(self.floored)
        squares = (vectors.T @ self.matrix[:-1, -1]) ** 2
        noise = 0.5 * self.scale**2 * (1.0 + len(values) * _VARIANCES)
        total = np.multiply.outer(_VARIANCES, values**2) + noise[:, None]
        best = int(np.argmin((np.log(total) + squares / total).sum(axis=1)))
        return (vectors * (values + noise[best] / (_VARIANCES[best] * values))) @ vectors.T


def rate(records: int, mu: float, dimension: int) -> float:
    """n mu / d^1.5: the size of a solution over the error that noise on the moment makes."""
    return records * mu / dimension**1.5


class Bounds(NamedTuple):
    """Bounds on the norm of (x, 1) and on each |y|, (k,), in deviations, and of a row's norm."""

    features: float
    target: np.ndarray

    @property
    def row(self) -> float:
        """Bound on the norm of a row (x, 1, y)."""
        return float(np.hypot(self.features, np.linalg.norm(self.target)))


def bounds_of(signal: float, width: int, longest: Bounds) -> Bounds:
    """Bounds for a `rate` and `width` numbers (x, 1): those of the longest row at most."""
    share = max(np.sqrt(signal) / _ROOT, _LEAST)
    wide = _TARGET * np.sqrt(max(share, 1.0))
    return Bounds(
        float(min(np.sqrt(share * width), longest.features)), np.minimum(wide, longest.target)
    )


def rows_of(features: np.ndarray, targets: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Rows (x, 1, y) within the bounds; `features` has the 1.

    A longer (x, 1) is shortened together with its target, which is clipped then. Weights that
    depend on features alone keep coefficients unbiased.
    """
    norms = np.linalg.norm(features, axis=1)
    weights = np.minimum(1.0, bounds.features / np.maximum(norms, 1e-300))
    rows = np.column_stack([features, targets]) * weights[:, None]
    ends = rows[:, features.shape[1] :]
    np.clip(ends, -bounds.target, bounds.target, out=ends)
    return rows


def is_cut(features: np.ndarray, targets: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Whether `rows_of` clips a target of a record: NOT PRIVATE."""
    norms = np.maximum(np.linalg.norm(features, axis=1), bounds.features)
    over = np.abs(targets) * bounds.features > np.multiply.outer(norms, bounds.target)
    return np.any(over, axis=1)


def moments_of(
    released: np.ndarray, scale: float, records: int, intercept: bool, targets: int = 1
) -> Moments:
    """Moments in units of the mean weight of a row, which the intercept measures."""
    place = -1 - targets
    weight = max(float(released[place, place]), _LEAST_WEIGHT) if intercept else 1.0
    return Moments(released / weight, scale / weight, records * weight, intercept, targets)


class Release(NamedTuple):
    """Moments of records, the bounds of their rows, and the costs; `checking` is inside of all."""

    moments: Moments
    bounds: Bounds
    plan: covariance.Plan
    checking: GDP
    guarantee: Drawn


def release(
    records: Measured, budget: Budget, key: Key, *, intercept: bool, relation: str, noise: str
) -> Release:
    """The moments of all targets of records, within a budget that their scales are a part of.

    noise: how it is drawn, as `release` of an estimator; "" adds none, which is NOT PRIVATE.
    """
    count, kinds = records.targets.shape
    width = len(records.units.scale) + intercept
    dimension, spent, drawn = width + kinds, records.spent, noise or "lattice"
    error = lattice.sampling_error(dimension * (dimension + 1) / 2 + 2, drawn)
    before = 0.0 if spent is None else spent.sampling_error
    mu = float(largest_gdp(left_for_exact(budget, error + before)).mu)
    rest = mu**2 - (0.0 if spent is None else float(spent.exact.mu) ** 2)
    if not rest > 0:
        raise ValueError(
            f"budget must be one that Gaussian noise can meet, got epsilon {budget.epsilon}, "
            f"delta {budget.delta}"
        )
    checking = GDP(float(np.sqrt(rest * _CHECK_SHARE)) * _ROUNDED_DOWN)
    mu = float(np.sqrt(rest * (1.0 - _CHECK_SHARE))) * _ROUNDED_DOWN
    longest = Bounds(float(np.sqrt((records.reach**2).sum() + intercept)), records.target_reach)
    if noise:
        signal = rate(count, mu * 2.0 / shift_factor(relation), dimension)
        bounds = bounds_of(signal, width, longest)
    else:
        pairs = [
            (np.linalg.norm(x, axis=1).max(), np.abs(y).max(axis=0))
            for _, x, y in _rows(records, intercept)
        ]
        bounds = Bounds(max(x for x, _ in pairs), np.max([y for _, y in pairs], axis=0) + 1e-300)
    known = {"dimension": dimension, "records": count, "relation": relation, "release": drawn}
    plan = covariance.plan(GDP(mu), row_bound=bounds.row, **known)
    moment: Any = np.zeros((dimension, dimension))
    for _, columns, targets in _rows(records, intercept):
        rows: Any = rows_of(columns, targets, bounds)
        rows = shortened(rows, plan.row_bound)
        moment += rows.T @ rows
    released = np.asarray(noisy(moment / count, plan, key))
    scale = float(plan.scales[1]) if noise else 0.0
    total = plan.guarantee + Drawn(checking, lattice.sampling_error(2, drawn))
    total = total if spent is None else total + spent
    made = moments_of(released, scale, count, intercept, kinds)
    return Release(made, bounds, plan, checking, total)


def _rows(records: Measured, intercept: bool) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Rows, and blocks of (x, 1) and of targets, in units; without intercept there is no 1."""
    for rows, part in Columns(records.features).blocks():
        part = records.units.of(part)
        ones = [np.ones(len(part))] * intercept
        yield (
            rows,
            np.column_stack([part, *ones]),
            records.targets[rows] / records.units.target_scale,
        )


def checked(
    records: Measured, made: Release, thetas: np.ndarray, key: Key, relation: str
) -> tuple[np.ndarray, np.ndarray]:
    """(share of cut records, what far predictions gain) with noise, and its deviations.

    A record is cut if a value or a target of it was clipped. thetas: (k, d), of rows (x, 1) in
    units. The gain is the mean over records of the squared error with features within `NEAR`
    deviations, less that with features within their ends, within +-`_MOST_GAIN`.
    """
    sums, intercept = np.zeros(2), made.moments.intercept
    lower, upper = records.units[:2]
    for rows, x, y in _rows(records, intercept):
        raw = Columns(records.features[rows]).blocks()
        cut = records.outside[rows] | is_cut(x, y, made.bounds)
        cut |= np.concatenate([((part < lower) | (part > upper)).any(axis=1) for _, part in raw])
        near = x.copy()
        np.clip(near[:, : len(lower)], -NEAR, NEAR, out=near[:, : len(lower)])
        errors = [((y - z @ thetas.T) ** 2).mean(axis=1) for z in (near, x)]
        gain = np.clip(errors[0] - errors[1], -_MOST_GAIN, _MOST_GAIN)
        # Not a number, as from an overflow, must not pass either.
        sums += cut.sum(), np.nan_to_num(gain).sum()
    moved = np.array([1.0, shift_factor(relation) * _MOST_GAIN])
    return scaling.means(
        sums / len(records.targets), moved, len(records.targets), made.checking, key
    )


def solved(moments: Moments, penalty: Penalty, units: Units, target: int) -> np.ndarray:
    """theta in units, of a penalty on coefficients of raw columns; the intercept has none.

    argmin theta^T A theta / 2 - b^T theta + sum lasso |theta| + sum ridge theta^2 / 2.
    """
    strength, curvature = float(penalty.strength), float(penalty.curvature)
    free = np.zeros(int(moments.intercept))
    lasso = (strength - curvature) / (units.scale * units.target_scale[target])
    lasso, ridge = np.append(lasso, free), np.append(curvature / units.scale**2, free)
    matrix, vector = moments.regular + np.diag(ridge), moments.matrix[:-1, -1]
    theta = np.linalg.solve(matrix, vector)
    if not lasso.any():
        return theta
    diagonal = np.diagonal(matrix).copy()
    for _ in range(_PASSES):
        before = theta.copy()
        for j, step in enumerate(diagonal):
            point = vector[j] - matrix[j] @ theta + step * theta[j]
            theta[j] = np.sign(point) * max(abs(point) - lasso[j], 0.0) / step
        if np.abs(theta - before).max() <= _TOLERANCE * np.abs(theta).max():
            break
    return theta


def confidence_set(moments: Moments, quantile: float) -> tuple[np.ndarray, np.ndarray]:
    """Middle of the confidence set of theta, and a covariance with the same projections.

    The set holds each theta whose b - A theta is within `quantile` deviations of 0, with the
    covariance at the estimate, times (1 + |theta|^2) / (1 + |estimate|^2). It is an ellipsoid with
    half widths quantile sqrt(c^T covariance c) along c, or unbounded where the noise hides a
    direction: every coefficient may then be anything, and the covariance is infinite. Far away the
    covariance is up to twice as large; this decides whether the set is bounded.
    """
    matrix, vector = moments.matrix[:-1, :-1], moments.matrix[:-1, -1]
    size, floored = len(vector), moments.floored
    theta = np.linalg.solve(floored, vector)
    spread = 1.0 + float(theta @ theta)
    contrast = np.append(-theta, 1.0)
    free = max(moments.records - size, 1.0)
    variance = max(float(contrast @ moments.matrix @ contrast), 0.0) / free
    noise = 0.5 * moments.scale**2 * (spread * np.eye(size) + np.outer(theta, theta))
    root = np.linalg.cholesky(variance * floored + noise + 1e-300 * np.eye(size))
    left, right = np.linalg.solve(root, matrix), np.linalg.solve(root, vector)
    # Without noise the covariance is the same at every theta.
    constant = quantile**2 / spread if moments.scale else quantile**2
    slope = constant if moments.scale else 0.0
    values, vectors = np.linalg.eigh(left.T @ left)
    if not values[0] > 2.0 * slope:
        return theta, np.full((size, size), np.inf)
    inverse, linear = (vectors / (values - slope)) @ vectors.T, left.T @ right
    middle = inverse @ linear
    inside = max(float(constant - right @ right + linear @ middle), 0.0)
    return middle, inside / quantile**2 * inverse


def intervals(
    moments: Moments, units: Units, target: int, cut: float, noise: float
) -> tuple[np.ndarray, np.ndarray, str]:
    """Covariance and 95 % intervals of (w, b) of raw columns, and why they are no numbers, or "".

    moments: of one target. cut, noise: the share of cut records as released, and its deviation.
    """
    quantile = NormalDist().inv_cdf(0.5 * (1.0 + _CONFIDENCE))
    middle, covariance = confidence_set(moments, quantile)
    # Coefficients and intercept of the raw columns, as sums of theta.
    size, center = float(units.target_scale[target]), float(units.target_center[target])
    sums, reason = np.diag(size / units.scale), ""
    if moments.intercept:
        sums = np.block([[sums, np.zeros((len(sums), 1))], [-units.center @ sums, size]])
    lost = _LOST * max(cut, 0.0)
    with np.errstate(invalid="ignore"):
        covariance = sums @ covariance @ sums.T
    if not np.isfinite(covariance).all():
        covariance = np.full_like(covariance, np.inf)
        reason = (
            "infinite: in some direction the features vary too little for the noise. Take a larger "
            "epsilon, or fewer or less correlated features"
        )
    if lost > _MOST_LOST + 3.0 * _LOST * noise:
        covariance = np.full_like(covariance, np.nan)
        reason = (
            f"NaN: about {100.0 * cut:.2g} % of the records (released, +- {100.0 * noise:.2g}) "
            "were clipped by feature_bounds, target_bounds or the bound on targets, which moves "
            "coefficients. Widen the bounds, or transform skewed columns"
        )
    doubt = (lost + noise) * np.linalg.norm(middle) * np.linalg.norm(sums, axis=1)
    width = quantile * np.sqrt(np.diagonal(covariance)) + doubt
    middle = sums @ middle
    if moments.intercept:
        middle[-1] += center
    return covariance, np.stack([middle - width, middle + width], axis=1), reason
