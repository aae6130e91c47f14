"""Private naive Bayes: tables of counts and bounded sums, in whole numbers, with noise on each.

One record adds 1 to one cell of the class table and of the (class, value) table of every
categorical column; a continuous column is mapped to z in [-1, 1] by its public bounds and adds
round(L z) and round(K (2 z^2 - 1)), L = `levels`, K = `square_levels`, to the two sums of its
class. So every cell of every table gets noise, seen or not, and no sensitivity depends on a private
count.

Cells are whole, and so is the noise: nothing of a record is left in the low bits of a float. Draws
are rounded, which is post-processing and costs nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.checks import number_of_records
from jaxdp._core.float64 import draws_in_float64, in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import checked_key, children
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp.composition.privacy_loss import privacy_loss
from jaxdp.design.allocate import allocate
from jaxdp.design.families import scaled
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers.lattice import whole_noise, whole_noise_error

# What `plan` takes; see there.
FAMILIES = ("gaussian", "laplace")
# Ratio of the levels of squares and values, with Gaussian noise: a record's two sums of a column
# move by sqrt(z^2 + (.8 (2 z^2 - 1))^2) together. chosen: no two records differ by more than 2, as
# for the values alone; a smaller ratio is 2 % worse on wine, iris and breast cancer
_SQUARES = 0.8
# Least variance of z to which uncertain ones shrink. chosen: a tenth of the uniform law's; wine at
# epsilon 1 has accuracy .52 without it, .62 with it
_LEAST_SHARED = 1.0 / 30.0
# Relative spread of the classes' variances. chosen: they differ by about half
_SPREAD = 0.5


@final
@in_float64
@pytree
class Plan:
    """Tables and sums of a naive Bayes, their noise and guarantee, made by `plan`."""

    count_noise: Noise  # on each cell of each table
    sum_noise: Noise | None  # on each sum; None without continuous columns
    lower: Vector  # of the continuous columns
    upper: Vector
    spent: Drawn | None  # before, on the bounds
    classes: int = static()
    categories: tuple[int, ...] = static()  # values of each column; 0: continuous
    levels: int = static()
    relation: str = static()

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the categorical and of the continuous columns."""
        values = np.asarray(self.categories)
        return np.flatnonzero(values > 0), np.flatnonzero(values == 0)

    @property
    def square_levels(self) -> int:
        """K: the second sums are of round(K (2 z^2 - 1)). Fewer than L with Gaussian noise."""
        is_gaussian = isinstance(self.sum_noise, Gaussian)
        return max(int(_SQUARES * self.levels), 1) if is_gaussian else self.levels

    @property
    def releases(self) -> list[tuple[float, int]]:
        """(shift, how often) of the counts and of the sums, if there are any.

        With Gaussian noise both sums of a column count together. Replaced within a class, values
        that differ by t move them by t sqrt(1 + 4 c^2 (2 - t)^2) at most, c = K / L, which is 2 at
        most for c <= .8; rounding adds sqrt(2). In two classes each moves by sqrt(1 + c^2) at most,
        which is less.
        """
        continuous, replaced = self.categories.count(0), self.relation == "replace_one"
        tables = 1 + len(self.categories) - continuous
        counts = (1.0, 2 * tables if replaced else tables)
        if self.sum_noise is None:
            return [counts]
        if not isinstance(self.sum_noise, Gaussian):
            return [counts, (shift_factor(self.relation) * self.levels, 2 * continuous)]
        together = 2.0 * self.levels + math.sqrt(2.0)
        if not replaced:
            together = math.hypot(self.levels, self.square_levels)
        return [counts, (together, continuous)]

    @property
    def sampling_error(self) -> Reals:
        """Total variation that draws are off by, those of `spent` included."""
        before = 0.0 if self.spent is None else self.spent.sampling_error
        continuous = self.categories.count(0)
        tables = (len(self.categories) - continuous) * max(self.categories)
        error = whole_noise_error(self.count_noise, self.classes * (1 + tables))
        if self.sum_noise is not None:
            error = error + whole_noise_error(self.sum_noise, 2 * self.classes * continuous)
        return before + error

    @property
    def guarantee(self) -> Drawn:
        """Guarantee of all tables and sums, a GDP for Gaussian noise, sampling error included."""
        noises = [self.count_noise, self.sum_noise]
        losses: list[Any] = [
            count * GDP(shift / noise.scale)
            if isinstance(noise, Gaussian)
            else count * privacy_loss(Mechanism(noise, shift))
            for noise, (shift, count) in zip(noises, self.releases, strict=False)
        ]
        before = [] if self.spent is None else [self.spent.exact]
        return Drawn(functools.reduce(operator.add, losses + before), self.sampling_error)


@in_float64
def plan(
    budget: BudgetLike,
    *,
    classes: int,
    categories: Sequence[int],
    feature_bounds: tuple[ArrayLike, ArrayLike] = (-1.0, 1.0),
    relation: str,
    noise: str = "gaussian",
    levels: int = 1024,
    spent: Drawn | None = None,
) -> Plan:
    """The noise on the tables and sums of a private naive Bayes that keeps a budget.

    Args:
        budget: (epsilon, delta) of all releases, epsilon in nats, with the sampling error.
        classes: how many.
        categories: values of each column; 0: continuous.
        feature_bounds: (lower, upper) of the continuous columns, numbers or one each; public.
        relation: "add_remove": a record moves one cell of every table by 1 and one of every sum by
            L. "replace_one": two cells by 1, one sum by 2 L. With Gaussian noise both sums of a
            column count together, by the length that a record moves them.
        noise: "gaussian" is accounted exactly (GDP), "laplace" by the sum of all shifts.
        levels: L, of the sums.
        spent: a GDP with its sampling error, on bounds; a part of the budget of Gaussian noise.

    Returns:
        A `Plan`, with the least total variance of counts and of sums over L ("inid").

    Gaussian noise at delta = 0: `ValueError`.

    >>> from jaxdp.solvers import naive_bayes
    >>> plan = naive_bayes.plan((1.0, 1e-5), classes=2, categories=[3], relation="add_remove")
    >>> print(f"{plan.count_noise.scale:.4f}")
    5.2759
    """
    budget = as_budget(budget)
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    checks.one_of("noise", noise, FAMILIES)
    classes = checks.positive_integer("classes", classes)
    levels = checks.positive_integer("levels", levels)
    values = tuple(int(v) for v in categories)
    if not values or min(values) < 0:
        raise ValueError(
            f"categories must be integers of at least 0, one per column, got {categories}"
        )
    if noise == "gaussian" and bool(budget.delta == 0):
        raise ValueError("noise 'gaussian' needs delta > 0: take a Laplace")
    bounds, one = _bounds(feature_bounds, values.count(0)), scaled(noise, 1.0)
    noises = one, one if values.count(0) else None
    return _calibrated(Plan(*noises, *bounds, spent, classes, values, levels, relation), budget)


def _calibrated(shaped: Plan, budget: Budget) -> Plan:
    """The plan with the least noise that keeps the budget."""
    family, spent, of = shaped.count_noise.name, shaped.spent, shaped.releases
    left: Any = left_for_exact(budget, shaped.sampling_error)
    if spent is not None:
        # By more than roots and squares round.
        left = GDP(xp.sqrt(largest_gdp(left).mu ** 2 - spent.exact.mu**2) * (1.0 - 1e-12))
    shifts, counts = (np.array(x, dtype=np.float64) for x in zip(*of, strict=True))
    weights = np.array([1.0, 1.0 / shaped.levels**2])[: len(of)]
    scales = allocate(family, shifts, left, weights, counts=counts)
    scales = [checks.noise_scale("scale of the noise", scale) for scale in scales]
    count_noise, *sum_noise = [scaled(family, scale) for scale in scales]
    return dataclasses.replace(
        shaped, count_noise=count_noise, sum_noise=sum_noise[0] if sum_noise else None
    )


def _bounds(bounds: tuple[ArrayLike, ArrayLike], continuous: int) -> tuple[Vector, Vector]:
    ends = [checks.real("feature_bounds", b, -1e150, 1e150) for b in bounds]
    if any(b.shape not in ((), (continuous,)) for b in ends) or not bool((ends[0] < ends[1]).all()):
        raise ValueError(
            f"feature_bounds must be (lower, upper), lower below upper, numbers or {continuous} "
            f"values each, got {bounds}"
        )
    lower, upper = (xp.broadcast_to(b, (continuous,)) for b in ends)
    return lower, upper


class Model(NamedTuple):
    """Released statistics, made into a model. All of it is covered by the plan's guarantee."""

    class_counts: Reals  # (classes,), at least 1
    log_prior: Reals  # (classes,)
    log_likelihood: Reals  # (classes, categorical columns, most values); 0 beyond a column's values
    means: Reals  # (classes, continuous columns)
    variances: Reals  # (classes, continuous columns)


@draws_in_float64
def release(
    features: ArrayLike,
    labels: ArrayLike,
    plan: Plan,
    key: Key,
    *,
    smoothing: float = 1.0,
    least_variance: float = 1e-6,
) -> Model:
    """The private naive Bayes model of records.

    Args:
        features: (n, d), codes from 0 in the categorical columns; continuous values beyond the
            bounds are clipped.
        labels: (n,), 0, 1, ..., classes - 1.
        plan: made by `naive_bayes.plan`.
        key: of the noise: use it once and keep it secret.
        smoothing: added to every count of a value (at least 0 before).
        least_variance: of a continuous column, in units of ((upper - lower) / 2)^2.

    Returns:
        A `Model`, all of it covered by the plan's guarantee.

    Codes and labels that are not whole or out of range raise `ValueError`; so do values that are
    not finite, features and labels of different lengths, and no records.

    >>> import jax
    >>> import jaxdp as dp
    >>> bayes = dp.solvers.naive_bayes
    >>> plan = bayes.plan((1.0, 1e-5), classes=2, categories=[3], relation="add_remove")
    >>> model = bayes.release([[0], [1], [2]], [0, 1, 1], plan, jax.random.key(0))
    >>> model.log_likelihood.shape
    (2, 1, 3)
    """
    matrix, classes = np.asarray(features, dtype=np.float64), np.asarray(labels)
    _require_columns(matrix.shape, plan)
    if classes.ndim != 1:
        raise ValueError(f"labels must be (n,), got {classes.shape}")
    number_of_records({"features": len(matrix), "labels": len(classes)})
    floors = (
        checks.positive("smoothing", smoothing),
        checks.positive("least_variance", least_variance),
    )
    categorical, continuous = plan.columns
    _require_codes("labels", classes[:, None], np.array([plan.classes]))
    _require_codes("features", matrix[:, categorical], np.asarray(plan.categories)[categorical])
    if not np.isfinite(matrix).all():
        raise ValueError("features must be finite: impute or drop missing values first")
    codes = matrix[:, categorical].astype(np.int64)
    numbers = matrix[:, continuous]
    counts, tables, sums = _statistics(codes, numbers, classes.astype(np.int64), plan)
    keys = children(checked_key(key, plan), 3)
    counts = counts + whole_noise(plan.count_noise, keys[0], counts.shape)
    tables = tables + whole_noise(plan.count_noise, keys[1], tables.shape)
    if plan.sum_noise is not None:
        sums = sums + whole_noise(plan.sum_noise, keys[2], sums.shape)
    is_public = plan.relation == "replace_one"
    total = float(len(matrix)) if is_public else xp.sum(counts)
    return _model(counts, total, tables, sums, plan, *floors)


@draws_in_float64
def log_joint(features: ArrayLike, model: Model, plan: Plan) -> Reals:
    """log of the joint probability of each class and a record's features, by a private model.

    Args:
        features: (n, d); unknown codes count for nothing.
        model, plan: what `release` returned, and its plan.

    Returns:
        log P[class] + log P[features | class], (n, classes).

    Another number of columns than the plan's: `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> bayes = dp.solvers.naive_bayes
    >>> plan = bayes.plan((1.0, 1e-5), classes=2, categories=[3], relation="add_remove")
    >>> model = bayes.release([[0], [1], [2]], [0, 1, 1], plan, jax.random.key(0))
    >>> bayes.log_joint([[0.0], [2.0]], model, plan).shape
    (2, 2)
    """
    matrix = checks.of_records("features", features)
    _require_columns(matrix.shape, plan)
    return _log_joint(matrix, model, plan)


@jitted
def _log_joint(matrix: Reals, model: Model, plan: Plan) -> Reals:
    categorical, continuous = plan.columns
    total = xp.broadcast_to(model.log_prior[None], (matrix.shape[0], plan.classes))
    if categorical.size:
        codes = matrix[:, categorical]
        most = xp.asarray(plan.categories)[categorical][None]
        is_category = (codes == xp.round(codes)) & (codes >= 0) & (codes < most)
        columns = xp.arange(categorical.size)[None]
        picked = model.log_likelihood[:, columns, xp.where(is_category, codes, 0).astype(int)]
        total = total + xp.sum(xp.where(is_category[None], picked, 0.0), axis=-1).T
    if continuous.size:
        numbers = xp.clip(matrix[:, continuous], plan.lower[None], plan.upper[None])
        # In half widths, as the sums are: densities then do not depend on the columns' units.
        half = 0.5 * (plan.upper - plan.lower)
        gap = (numbers[:, None] - model.means[None]) / half[None, None]
        variances = model.variances[None] / half[None, None] ** 2
        total = total - 0.5 * xp.sum(gap**2 / variances + xp.log(variances), axis=-1)
    return total


def _require_columns(shape: tuple[int, ...], plan: Plan) -> None:
    if len(shape) != 2 or shape[1] != len(plan.categories):
        raise ValueError(f"features must be (n, {len(plan.categories)}), got {shape}")


def _statistics(
    codes: np.ndarray, numbers: np.ndarray, classes: np.ndarray, plan: Plan
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(classes,), (classes, categorical, values), (2, classes, continuous); whole. NOT PRIVATE.

    On the host: one pass over the records, which would compile anew for each number of them.
    """
    counts = np.bincount(classes, minlength=plan.classes).astype(np.float64)
    tables = np.zeros((plan.classes, codes.shape[1], max(plan.categories)))
    np.add.at(tables, (classes[:, None], np.arange(codes.shape[1])[None], codes), 1.0)
    lower, upper = np.asarray(plan.lower), np.asarray(plan.upper)
    z = np.clip((numbers - lower) / (0.5 * (upper - lower)) - 1.0, -1.0, 1.0)
    parts = np.round([plan.levels * z, plan.square_levels * (2.0 * z**2 - 1.0)])
    sums = np.zeros((2, plan.classes, numbers.shape[1]))
    for label in range(plan.classes):
        sums[:, label] = parts[:, classes == label].sum(axis=1)
    return counts, tables, sums


def _model(
    counts: Any,
    total: Any,
    tables: Any,
    sums: Any,
    plan: Plan,
    smoothing: Reals,
    least_variance: Reals,
) -> Model:
    counts = _counts_of(counts, total, xp.sqrt(plan.count_noise.variance()))
    categorical, _ = plan.columns
    if categorical.size:
        limits = xp.asarray(plan.categories)[categorical]
        is_category = (xp.arange(tables.shape[-1])[None] < limits[:, None])[None]
        smooth = xp.where(is_category, xp.maximum(tables, 0.0) + smoothing, 0.0)
        shares = smooth / xp.sum(smooth, axis=-1, keepdims=True)
        tables = xp.where(is_category, xp.log(xp.where(is_category, shares, 1.0)), 0.0)
    half = (0.5 * (plan.upper - plan.lower))[None]
    means, variances = _moments(sums, counts, plan, least_variance)
    centre = (0.5 * (plan.upper + plan.lower))[None]
    prior = xp.log(counts / xp.sum(counts))
    return Model(counts, prior, tables, centre + half * means, half**2 * variances)


def _counts_of(counts: Reals, total: Reals, deviation: Reals) -> Reals:
    """Counts that add up to a total, none below their noise or 1."""
    equal = xp.maximum(total / counts.size, 1.0)
    counts = counts + (total - xp.sum(counts)) / counts.size
    counts = xp.maximum(counts, xp.clip(deviation, 1.0, equal))
    return xp.maximum(counts * (counts.size * equal / xp.sum(counts)), 1.0)


def _moments(sums: Reals, counts: Reals, plan: Plan, least_variance: Reals) -> tuple[Reals, Reals]:
    """Means and variances of z, (classes, continuous columns), less sure where there is more noise.

    A variance is a mean of the class's own and of the pooled variance, weighted by the noise and by
    the assumed difference of the classes, plus the variance of the mean's noise.
    """
    noise = xp.zeros(()) if plan.sum_noise is None else xp.sqrt(plan.sum_noise.variance())
    n = counts[:, None]
    means = xp.clip(sums[0] / (plan.levels * n), -1.0, 1.0)
    variance = 0.5 + 0.5 * sums[1] / (plan.square_levels * n) - means**2
    variance_of_noise = 0.5 * noise / (plan.square_levels * n)
    share = n / xp.sum(n)
    together = xp.sum(share * variance, axis=0)
    # A variance near 0 would decide every record.
    together = xp.clip(together, xp.maximum(least_variance, _LEAST_SHARED), 1.0)[None]
    spread = (_SPREAD * together) ** 2
    weight = spread / (spread + variance_of_noise**2)
    variances = weight * xp.clip(variance, 0.0, 1.0) + (1.0 - weight) * together
    doubt_of_mean = xp.minimum((noise / (plan.levels * n)) ** 2, 1.0)
    return means, xp.maximum(variances, least_variance) + doubt_of_mean


def _require_codes(name: str, codes: np.ndarray, limits: np.ndarray) -> None:
    bad = ~((codes == np.round(codes)) & (codes >= 0) & (codes < limits[None]))
    if bad.any():
        column = int(np.flatnonzero(bad.any(axis=0))[0])
        raise ValueError(
            f"{name} must be whole codes in [0, {limits[column] - 1}] in categorical column "
            f"{column}; other codes were found, which are not printed: they belong to records"
        )
