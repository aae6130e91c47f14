"""Noise for the tables and sums of a private naive Bayes, before a record is read."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals, Vector
from jaxdp.composition.privacy_loss import privacy_loss
from jaxdp.design.allocate import allocate
from jaxdp.design.families import ALLOCATED as FAMILIES
from jaxdp.design.families import CONTINUOUS, MEMBERS, norm_of, scaled
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.noise.histogram import Weighted
from jaxdp.released import require_drawable
from jaxdp.solvers.lattice import whole_noise_error

# Ratio of the levels of squares and values, with Gaussian noise: a record's two sums of a column
# move by sqrt(z^2 + (.8 (2 z^2 - 1))^2) together. chosen: no two records differ by more than 2, as
# for the values alone; a smaller ratio is 2 % worse on wine, iris and breast cancer
_SQUARES = 0.8


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
        return _square_levels(self.levels, _by_length(self.sum_noise))

    @property
    def sampling_error(self) -> Reals:
        """Total variation that draws are off by, those of `spent` included."""
        before = 0.0 if self.spent is None else self.spent.sampling_error
        return before + _sampling_error(
            (self.count_noise, self.sum_noise), self.classes, self.categories
        )

    @property
    def guarantee(self) -> Drawn:
        """Guarantee of all tables and sums, a GDP for Gaussian noise, sampling error included."""
        together = _by_length(self.sum_noise)
        parts = _releases(self.categories, self.levels, self.relation, together)
        noises = (self.count_noise, self.sum_noise)
        releases = [(noise, *part) for noise, part in zip(noises, parts, strict=True) if noise]
        losses: list[Any]
        if all(_by_length(noise) for noise, _, _ in releases):
            losses = [count * GDP(shift / noise.scale) for noise, shift, count in releases]  # pyright: ignore[reportAttributeAccessIssue]
        else:
            losses = [count * privacy_loss(Mechanism(n, shift)) for n, shift, count in releases]
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
    noise: str | Mapping[str, Noise] = "gaussian",
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
            L. "replace_one": two cells by 1, one sum by 2 L (or two by L, which is less, for
            log-concave noise: others are refused). With Gaussian noise both sums of a column count
            together, by the length that a record moves them.
        noise: "gaussian" is accounted exactly (GDP), "laplace" by the sum of all shifts;
            "discrete_gaussian" and "discrete_laplace" by the composed privacy loss, which takes a
            minute to compile the first time (not at delta = 0). Or a mapping of "counts" and "sums"
            to noises of your own, as of `dp.optimal.integer_noise`, that keep the budget together.
        levels: L, of the sums.
        spent: a GDP with its sampling error, on bounds; a part of the budget of Gaussian noise.

    Returns:
        A `Plan`, with the least total variance of counts and of sums over L ("inid").

    Noises that do not keep the budget and a Gaussian one at delta = 0: `ValueError`.

    >>> from jaxdp.solvers import naive_bayes
    >>> plan = naive_bayes.plan((1.0, 1e-5), classes=2, categories=[3], relation="add_remove")
    >>> print(f"{plan.count_noise.scale:.4f}")
    5.2759
    """
    budget = as_budget(budget)
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    classes = checks.positive_integer("classes", classes)
    levels = checks.positive_integer("levels", levels)
    values = _categories(categories)
    continuous = values.count(0)
    lower, upper = _bounds(feature_bounds, continuous)
    if isinstance(noise, str):
        checks.one_of("noise", noise, FAMILIES)
        if norm_of(noise) == 2 and bool(budget.delta == 0):
            raise ValueError(f"noise {noise!r} needs delta > 0: take a Laplace")
        error = _sampling_error((scaled(noise, 1.0),) * 2, classes, values)
        scales = _calibrated(_left(budget, error, spent), noise, values, levels, relation)
    else:
        scales = _from_noise(noise, continuous)
    if relation == "replace_one" and isinstance(scales[1], Weighted):
        raise ValueError("noise['sums'] must be log-concave under relation 'replace_one'")
    calibrated = Plan(*scales, lower, upper, spent, classes, values, levels, relation)
    if not isinstance(noise, str):
        _require_kept(calibrated, budget)
    return calibrated


def _categories(categories: Sequence[int]) -> tuple[int, ...]:
    values = tuple(int(v) for v in categories)
    if not values or min(values) < 0:
        raise ValueError(
            f"categories must be integers of at least 0, one per column, got {categories}"
        )
    return values


def _left(budget: Budget, error: Reals, spent: Drawn | None) -> Budget | GDP:
    """The rest of a budget, for exact draws."""
    if spent is None:
        return left_for_exact(budget, error)
    mu = largest_gdp(left_for_exact(budget, error + spent.sampling_error)).mu
    # By more than roots and squares round.
    return GDP(xp.sqrt(mu**2 - spent.exact.mu**2) * (1.0 - 1e-12))


def _require_kept(calibrated: Plan, budget: Budget) -> None:
    """The noises that were given keep the budget together."""
    exact_budget = left_for_exact(budget, calibrated.sampling_error)
    delta = calibrated.guarantee.exact.delta(budget.epsilon)
    if not bool(delta <= exact_budget.delta):
        raise ValueError(
            f"noise does not keep the budget: delta({budget.epsilon}) of all statistics is "
            f"{delta}, above {budget.delta}"
        )


def _sampling_error(
    noises: tuple[Noise, Noise | None], classes: int, categories: tuple[int, ...]
) -> Reals:
    """Total variation of all draws of the counts, tables and sums: see `model.release`."""
    continuous = categories.count(0)
    counts = classes * (1 + (len(categories) - continuous) * max(categories))
    error = whole_noise_error(noises[0], counts)
    if noises[1] is None:
        return error
    return error + whole_noise_error(noises[1], 2 * classes * continuous)


def _by_length(noise: Noise | None) -> bool:
    """True for noise by which a vector's Euclidean length counts: Gaussian."""
    return noise is not None and noise.norm == 2


def _square_levels(levels: int, together: bool) -> int:
    return max(int(_SQUARES * levels), 1) if together else levels


def _releases(
    categories: tuple[int, ...], levels: int, relation: str, together: bool
) -> tuple[tuple[float, int], tuple[float, int]]:
    """(shift, how often) of the counts and of the sums, both sums of a column `together` or each.

    Together, replaced within a class: values that differ by t move by t sqrt(1 + 4 c^2 (2 - t)^2)
    at most, c = K / L, which is 2 at most for c <= .8; rounding adds sqrt(2). In two classes each
    moves by sqrt(1 + c^2) at most, which is less.
    """
    continuous = categories.count(0)
    tables = 1 + len(categories) - continuous
    replaced = relation == "replace_one"
    counts = (1.0, 2 * tables if replaced else tables)
    if not together:
        return counts, (shift_factor(relation) * levels, 2 * continuous)
    norm = math.hypot(levels, _square_levels(levels, together))
    return counts, (2.0 * levels + math.sqrt(2.0) if replaced else norm, continuous)


def _calibrated(
    budget: Budget | GDP,
    family: str,
    categories: tuple[int, ...],
    levels: int,
    relation: str,
) -> tuple[Noise, Noise | None]:
    parts = _releases(categories, levels, relation, MEMBERS[family].norm == 2)
    if parts[1][1] == 0:
        parts = parts[:1]
    shifts, counts = (np.array(x, dtype=np.float64) for x in zip(*parts, strict=True))
    weights = np.array([1.0, 1.0 / levels**2])[: len(parts)]
    scales = allocate(family, shifts, budget, weights, counts=counts)
    scales = [checks.noise_scale("scale of the noise", scale) for scale in scales]
    noises = [scaled(family, scale) for scale in scales]
    return noises[0], noises[1] if len(parts) == 2 else None


def _from_noise(noise: Mapping[str, Noise], continuous: int) -> tuple[Noise, Noise | None]:
    wanted = {"counts", "sums"} if continuous else {"counts"}
    if set(noise) != wanted:
        raise ValueError(f"noise must map {sorted(wanted)} to noises, got {sorted(noise)}")
    for name, value in noise.items():
        if not (value.on_integers or value.norm):
            names = ", ".join(MEMBERS[family].__name__ for family in CONTINUOUS)
            raise ValueError(
                f"noise[{name!r}] must be {names} (which are rounded) or a noise on the integers, "
                f"got {type(value).__name__}"
            )
        require_drawable(value)
    return noise["counts"], noise.get("sums")


def _bounds(bounds: tuple[ArrayLike, ArrayLike], continuous: int) -> tuple[Vector, Vector]:
    ends = [checks.real("feature_bounds", b, -1e150, 1e150) for b in bounds]
    if any(b.shape not in ((), (continuous,)) for b in ends) or not bool((ends[0] < ends[1]).all()):
        raise ValueError(
            f"feature_bounds must be (lower, upper), lower below upper, numbers or {continuous} "
            f"values each, got {bounds}"
        )
    lower, upper = (xp.broadcast_to(b, (continuous,)) for b in ends)
    return lower, upper
