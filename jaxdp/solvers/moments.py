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

from typing import NamedTuple

import numpy as np

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


class Moments(NamedTuple):
    """A released second moment of rows (x, 1, y), without the 1 if there is no intercept.

    It is private, as are all numbers computed from it. scale: deviation of the diagonal's noise.
    """

    matrix: np.ndarray
    scale: float
    records: float  # times the mean weight of a row
    intercept: bool

    def of(self, features: np.ndarray) -> Moments:
        """The release of a submodel with these features alone, by their numbers."""
        last = len(self.matrix) - 1 - self.intercept
        kept = np.append(features, np.arange(last, len(self.matrix)))
        return self._replace(matrix=self.matrix[np.ix_(kept, kept)])

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
    """Bounds on the norm of (x, 1) and on |y|, in deviations, and on the norm of a row."""

    features: float
    target: float

    @property
    def row(self) -> float:
        """Bound on the norm of a row (x, 1, y)."""
        return float(np.hypot(self.features, self.target))


def bounds_of(signal: float, dimension: int, longest: Bounds) -> Bounds:
    """Bounds for a `rate` and rows of a length: those of the longest row at most."""
    share = max(np.sqrt(signal) / _ROOT, _LEAST)
    wide = _TARGET * np.sqrt(max(share, 1.0))
    return Bounds(
        float(min(np.sqrt(share * (dimension - 1)), longest.features)),
        float(min(wide, longest.target)),
    )


def rows_of(features: np.ndarray, targets: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Rows (x, 1, y) within the bounds; `features` has the 1.

    A longer (x, 1) is shortened together with its target, which is clipped then. Weights that
    depend on features alone keep coefficients unbiased.
    """
    norms = np.linalg.norm(features, axis=1)
    weights = np.minimum(1.0, bounds.features / np.maximum(norms, 1e-300))
    rows = np.column_stack([features, targets]) * weights[:, None]
    rows[:, -1] = np.clip(rows[:, -1], -bounds.target, bounds.target)
    return rows


def is_cut(features: np.ndarray, targets: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Whether `rows_of` clips the target of a record: NOT PRIVATE."""
    norms = np.maximum(np.linalg.norm(features, axis=1), bounds.features)
    return np.abs(targets) * bounds.features > bounds.target * norms


def moments_of(released: np.ndarray, scale: float, records: int, intercept: bool) -> Moments:
    """Moments in units of the mean weight of a row, which the intercept measures."""
    weight = max(float(released[-2, -2]), _LEAST_WEIGHT) if intercept else 1.0
    return Moments(released / weight, scale / weight, records * weight, intercept)


def coefficients(moments: Moments, lasso: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """argmin theta^T A theta / 2 - b^T theta + sum lasso |theta| + sum ridge theta^2 / 2.

    lasso, ridge: a number of each coordinate, 0 for the intercept, the last one.
    """
    matrix = moments.regular + np.diag(ridge)
    vector = moments.matrix[:-1, -1]
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
