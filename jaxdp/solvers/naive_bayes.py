"""Private naive Bayes: tables of counts and bounded sums, in whole numbers, with noise on each.

One record adds 1 to one cell of the class table and of the (class, value) table of every
categorical column; a continuous column is mapped to z in [-1, 1] by its public bounds and adds
round(L z) and round(L (2 z^2 - 1)), L = `levels`, to the two sums of its class. So every cell of
every table gets noise, seen or not, and no sensitivity depends on a private count.

Cells are whole, and so is the noise: nothing of a record is left in the low bits of a float.
Gaussian and Laplace draws are rounded, which is post-processing and costs nothing.
"""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import Key, RealLike, Reals, Vector
from jaxdp.design.allocate import allocate
from jaxdp.design.calibrate import calibrate
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.laplace import Laplace
from jaxdp.privacy_loss import PrivacyLoss, privacy_loss

RELATIONS = ("replace_one", "add_remove")
_FAMILIES = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "discrete_gaussian": DiscreteGaussian,
    "discrete_laplace": DiscreteLaplace,
}
FAMILIES = tuple(_FAMILIES)
_LATTICE = (DiscreteGaussian, DiscreteLaplace, DiscreteHistogram)


@final
@pytree
class Plan:
    """What is counted, the noise on it, and what it guarantees. Make it with `plan`."""

    count_noise: Noise  # on each cell of each table
    sum_noise: Noise | None  # on each sum; None without continuous columns
    lower: Vector  # of the continuous columns
    upper: Vector
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
    def privacy(self) -> GDP | PrivacyLoss:
        """Of all tables and sums together: GDP, exactly, where both noises are Gaussian."""
        parts = _releases(self.categories, self.levels, self.relation)
        noises = (self.count_noise, self.sum_noise)
        held = [(noise, *part) for noise, part in zip(noises, parts, strict=True) if noise]
        each: list[Any]
        if all(isinstance(noise, Gaussian) for noise, _, _ in held):
            each = [count * GDP(shift / noise.scale) for noise, shift, count in held]  # pyright: ignore[reportAttributeAccessIssue]
        else:
            each = [count * privacy_loss(Mechanism(n, shift)) for n, shift, count in held]
        return functools.reduce(operator.add, each)


class Model(NamedTuple):
    """Released statistics, made into a model. All of it is covered by the plan's guarantee."""

    class_counts: Reals  # (classes,), at least 1
    log_prior: Reals  # (classes,)
    log_likelihood: Reals  # (classes, categorical columns, most values); 0 beyond a column's values
    means: Reals  # (classes, continuous columns)
    variances: Reals  # (classes, continuous columns)


def plan(
    budget: BudgetLike,
    *,
    classes: int,
    categories: Sequence[int],
    feature_bounds: tuple[RealLike, RealLike] = (-1.0, 1.0),
    relation: str,
    noise: str | Mapping[str, Noise] = "gaussian",
    levels: int = 1024,
) -> Plan:
    """Noise for `classes` classes and columns of `categories` values each (0: continuous).

    feature_bounds: (lower, upper) of the continuous columns, numbers or one each; public.
    noise: a family, calibrated, its scales allocated to the least total variance of the counts and
        of the sums over L ("inid" of `allocate`). "gaussian" is accounted exactly (GDP), "laplace"
        by the sum of all shifts; "discrete_gaussian" and "discrete_laplace" by the composed privacy
        loss, which takes a minute to compile the first time (not at delta = 0). Or a mapping of
        "counts" and "sums" to noises of your own, as `optimal_integer_noise` designs them for
        counts: together they must keep the budget, else `ValueError`.
    relation: "add_remove": a record moves one cell of every table by 1 and one of every sum by L.
        "replace_one": two cells by 1, one sum by 2 L (or two by L, which is less, for log-concave
        noise: others are refused there).
    """
    budget = as_budget(budget)
    checks.one_of("relation", relation, RELATIONS)
    classes = checks.positive_integer("classes", classes)
    levels = checks.positive_integer("levels", levels)
    values = tuple(int(v) for v in categories)
    if not values or min(values) < 0:
        raise ValueError(f"categories must be whole, 0 or more, one a column, got {categories}")
    continuous = values.count(0)
    lower, upper = _bounds(feature_bounds, continuous)
    if isinstance(noise, str):
        checks.one_of("noise", noise, FAMILIES)
        if "gaussian" in noise and bool(budget.delta == 0):
            raise ValueError(f"noise {noise!r} needs delta > 0: take a Laplace")
        made = _calibrated(budget, noise, values, levels, relation)
    else:
        made = _given(noise, continuous)
    if relation == "replace_one" and isinstance(made[1], Histogram | DiscreteHistogram):
        raise ValueError("noise['sums'] must be log-concave under relation 'replace_one'")
    drawn = Plan(*made, lower, upper, classes, values, levels, relation)
    if not isinstance(noise, str):
        spent = drawn.privacy.delta(budget.epsilon)
        if not bool(spent <= budget.delta):
            raise ValueError(
                f"noise does not keep the budget: delta({budget.epsilon}) of all statistics is "
                f"{spent}, above {budget.delta}"
            )
    return drawn


def release(
    features: RealLike,
    labels: RealLike,
    plan: Plan,
    key: Key,
    *,
    smoothing: float = 1.0,
    least_variance: float = 1e-3,
) -> Model:
    """A model from (n, d) features and labels 0, 1, ..., classes - 1.

    Continuous values beyond the bounds are clipped. Codes and labels that are not whole or out of
    range raise `ValueError`, values that are not finite as well. smoothing: added to every count
    of a value (at least 0 before); least_variance: of a continuous column, in units of
    ((upper - lower) / 2)^2, or the standard deviation of its noise if that is larger. `key` draws
    the noise: use it once and keep it secret.
    """
    matrix, classes = np.asarray(features, dtype=np.float64), np.asarray(labels)
    if matrix.ndim != 2 or matrix.shape[1] != len(plan.categories):
        raise ValueError(f"features must be (n, {len(plan.categories)}), got {matrix.shape}")
    if classes.shape != matrix.shape[:1]:
        raise ValueError(f"labels must be {matrix.shape[:1]}, got {classes.shape}")
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
    keys = jax.random.split(key, 3)
    counts = jnp.asarray(counts) + _draw(plan.count_noise, keys[0], counts.shape)
    tables = jnp.asarray(tables) + _draw(plan.count_noise, keys[1], tables.shape)
    sums = jnp.asarray(sums)
    if plan.sum_noise is not None:
        sums = sums + _draw(plan.sum_noise, keys[2], sums.shape)
    return _model(counts, tables, sums, plan, *floors)


def log_joint(features: RealLike, model: Model, plan: Plan) -> Reals:
    """log P[class] + log P[features | class], (n, classes); unknown codes count for nothing."""
    return _log_joint(checks.of_records("features", features), model, plan)


@jax.jit
def _log_joint(matrix: Reals, model: Model, plan: Plan) -> Reals:
    categorical, continuous = plan.columns
    total = jnp.broadcast_to(model.log_prior[None], (matrix.shape[0], plan.classes))
    if categorical.size:
        codes = matrix[:, categorical]
        known = (codes == jnp.round(codes)) & (codes >= 0)
        known &= codes < jnp.asarray(plan.categories)[categorical][None]
        columns = jnp.arange(categorical.size)[None]
        picked = model.log_likelihood[:, columns, jnp.where(known, codes, 0).astype(int)]
        total = total + jnp.sum(jnp.where(known[None], picked, 0.0), axis=-1).T
    if continuous.size:
        numbers = jnp.clip(matrix[:, continuous], plan.lower[None], plan.upper[None])
        gap = numbers[:, None] - model.means[None]
        variances = model.variances[None]
        total = total - 0.5 * jnp.sum(gap**2 / variances + jnp.log(variances), axis=-1)
    return total


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
    parts = np.round(plan.levels * np.stack([z, 2.0 * z**2 - 1.0]))
    sums = np.zeros((2, plan.classes, numbers.shape[1]))
    for label in range(plan.classes):
        sums[:, label] = parts[:, classes == label].sum(axis=1)
    return counts, tables, sums


@jax.jit
def _model(
    counts: Reals,
    tables: Reals,
    sums: Reals,
    plan: Plan,
    smoothing: Reals,
    least_variance: Reals,
) -> Model:
    counts = jnp.maximum(counts, 1.0)
    categorical, _ = plan.columns
    if categorical.size:
        limits = jnp.asarray(plan.categories)[categorical]
        held = (jnp.arange(tables.shape[-1])[None] < limits[:, None])[None]
        smooth = jnp.where(held, jnp.maximum(tables, 0.0) + smoothing, 0.0)
        shares = smooth / jnp.sum(smooth, axis=-1, keepdims=True)
        tables = jnp.where(held, jnp.log(jnp.where(held, shares, 1.0)), 0.0)
    half = (0.5 * (plan.upper - plan.lower))[None]
    means = jnp.clip(sums[0] / (plan.levels * counts[:, None]), -1.0, 1.0)
    squares = jnp.clip(0.5 + 0.5 * sums[1] / (plan.levels * counts[:, None]), 0.0, 1.0)
    if plan.sum_noise is not None:
        # What is below its own noise is not known; a variance near 0 would decide every record.
        deviation = jnp.sqrt(plan.sum_noise.variance()) / (2.0 * plan.levels * counts[:, None])
        least_variance = jnp.maximum(least_variance, deviation)
    variances = jnp.maximum(squares - means**2, least_variance)
    centre = (0.5 * (plan.upper + plan.lower))[None]
    prior = jnp.log(counts / jnp.sum(counts))
    return Model(counts, prior, tables, centre + half * means, half**2 * variances)


def _draw(noise: Noise, key: Key, shape: tuple[int, ...]) -> Reals:
    return jnp.round(noise.sample(key, shape))


def _releases(
    categories: tuple[int, ...], levels: int, relation: str
) -> tuple[tuple[float, int], tuple[float, int]]:
    """(shift, how often) of the counts and of the sums."""
    continuous = categories.count(0)
    tables = 1 + len(categories) - continuous
    if relation == "replace_one":
        return (1.0, 2 * tables), (2.0 * levels, 2 * continuous)
    return (1.0, tables), (1.0 * levels, 2 * continuous)


def _calibrated(
    budget: Budget, family: str, categories: tuple[int, ...], levels: int, relation: str
) -> tuple[Noise, Noise | None]:
    parts = _releases(categories, levels, relation)
    if parts[1][1] == 0:
        parts = parts[:1]
    shifts, counts = (jnp.array(x, dtype=jnp.float64) for x in zip(*parts, strict=True))
    weights = jnp.array([1.0, 1.0 / levels**2])[: len(parts)]
    closed = "gaussian" if "gaussian" in family else "laplace"
    scales = allocate(closed, shifts, budget, weights, counts=counts)
    build = _FAMILIES[family]
    # Of pure guarantees the discrete Laplace has the continuous one's.
    if family not in FAMILIES[:2] and not (closed == "laplace" and bool(budget.delta == 0)):

        def composed(factor: Reals) -> PrivacyLoss:
            each = [
                count * privacy_loss(Mechanism(build(factor * scale), shift))
                for scale, (shift, count) in zip(scales, parts, strict=True)
            ]
            return functools.reduce(operator.add, each)

        scales = scales * calibrate(composed, budget, lower=1e-2, upper=1e2)
    noises = [build(checks.noise_scale("scale of the noise", scale)) for scale in scales]
    return noises[0], noises[1] if len(parts) == 2 else None


def _given(noise: Mapping[str, Noise], continuous: int) -> tuple[Noise, Noise | None]:
    wanted = {"counts", "sums"} if continuous else {"counts"}
    if set(noise) != wanted:
        raise ValueError(f"noise must map {sorted(wanted)} to noises, got {sorted(noise)}")
    for name, each in noise.items():
        if not isinstance(each, (Gaussian, Laplace, *_LATTICE)):
            raise ValueError(
                f"noise[{name!r}] must be Gaussian, Laplace (both are rounded) or a noise on the "
                f"integers, got {type(each).__name__}"
            )
    return noise["counts"], noise.get("sums")


def _bounds(bounds: tuple[RealLike, RealLike], continuous: int) -> tuple[Vector, Vector]:
    ends = [checks.real("feature_bounds", b, -1e150, 1e150) for b in bounds]
    if any(b.shape not in ((), (continuous,)) for b in ends) or not bool((ends[0] < ends[1]).all()):
        raise ValueError(
            f"feature_bounds must be (lower, upper), lower below upper, numbers or {continuous} "
            f"values each, got {bounds}"
        )
    lower, upper = (jnp.broadcast_to(b, (continuous,)) for b in ends)
    return lower, upper


def _require_codes(name: str, codes: np.ndarray, limits: np.ndarray) -> None:
    bad = ~((codes == np.round(codes)) & (codes >= 0) & (codes < limits[None]))
    if bad.any():
        column = int(np.flatnonzero(bad.any(axis=0))[0])
        raise ValueError(
            f"{name} must be whole codes in [0, {limits[column] - 1}], and those of categorical "
            f"column {column} are not: they are of records, and not printed"
        )
