"""The noise on a second moment, for a budget.

Joint sensitivities: l2 row_bound^2, l1 row_bound^2 (d + 1) / 2. A replacement moves sums of
squares by sqrt(2) of an addition, an l1 norm by 2, one product by 2 and one square (which is
not negative) by 1.
"""

from __future__ import annotations

from typing import final

import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.neighbours import SOLVER_RELATIONS
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals, Vector
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.design.allocate import allocate, level_of
from jaxdp.design.families import CONTINUOUS as FAMILIES
from jaxdp.design.families import norm_of, scaled
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.mechanism import Mechanism
from jaxdp.solvers import lattice

# What `plan` takes; see there.
METHODS = ("goe", "iid", "inid")
# Largest bound, and feature. derived: its square is finite
LARGEST = 1e150


@final
@in_float64
@pytree
class Plan:
    """The noise on a second moment and its guarantee, made by `plan`."""

    scales: Vector  # (off the diagonal, on it): the noise's scale parameter, of the mean
    ratio: Reals  # of the whole release: mu of the Gaussian, sum of shift / scale of the Laplace
    row_bound: Reals
    dimension: int = static()
    records: int = static()
    family: str = static()
    relation: str = static()
    release: str = static(default="lattice")

    @property
    def sampling_error(self) -> Reals:
        """Total variation that draws are off by; 1: floating point."""
        return _sampling_error(self.dimension, self.release)

    @property
    def guarantee(self) -> Drawn:
        """A GDP, or one Laplace at the sum of all shifts, with the sampling error."""
        normal = norm_of(self.family) == 2
        exact = GDP(self.ratio) if normal else Mechanism(scaled(self.family, 1.0), self.ratio)
        return Drawn(exact, self.sampling_error)


@in_float64
def plan(
    budget: BudgetLike | GDP,
    *,
    dimension: int,
    records: int,
    relation: str,
    row_bound: ArrayLike = 1.0,
    method: str = "goe",
    family: str = "gaussian",
    release: str = "lattice",
) -> Plan:
    """The noise on a private second moment that meets a budget, decided before a row is read.

    Args:
        budget: of the whole matrix, a `Budget` or (epsilon, delta), epsilon in nats, the sampling
            error included; for Gaussian noise also a `GDP` of the exact distribution, a share of a
            larger budget.
        dimension, records: d and n of the rows, public.
        relation: "replace_one", or "add_remove" with `records` fixed in the mean.
        row_bound: of the norm of a row; longer ones are shortened.
        method: "goe" (Gaussian only), see the module. "iid": equal noise on all entries of the
            upper triangle, at its joint sensitivity. "inid": the closed forms of `allocate` there,
            where every entry is taken to reach its bound, row_bound^2 (1/2, 1), at
            once.
        family: "gaussian" or "laplace".
        release: "lattice", or "float": noise whose last bits leak, for research.

    Returns:
        A `Plan`.

    Choices that do not go together: `ValueError`.
    Source: Dwork et al., Analyze Gauss, STOC 2014; Muthukrishnan & Kalyani, section VI-B.

    >>> from jaxdp.solvers import covariance
    >>> plan = covariance.plan((1.0, 1e-5), dimension=3, records=100, relation="replace_one")
    >>> print(plan.scales.round(4))
    [0.0373 0.0528]
    """
    budget = budget if isinstance(budget, GDP) else as_budget(budget)
    _check_choices(method, family, relation)
    lattice.require(release, scaled(family, 1.0))
    dimension = checks.positive_integer("dimension", dimension)
    records = checks.positive_integer("records", records)
    if isinstance(budget, Budget):
        budget = left_for_exact(budget, _sampling_error(dimension, release))
    bound = checks.real("row_bound", row_bound, 0.0, LARGEST, open_lower=True)
    level = level_of(family, budget)
    share, is_replaced = share_of_mean(records), relation == "replace_one"
    if method == "inid":
        bounds = jnp.array([0.5, 1.0]) * (bound**2 * share)
        scales = _scales_by_entry(family, bounds, dimension, is_replaced, budget)
    else:
        shape = jnp.array([jnp.sqrt(0.5), 1.0]) if method == "goe" else jnp.ones(2)
        size = _joint_shift(family, bound**2 * share, dimension, is_replaced)
        scales = round_up(shape * size / level, 8)
    scales = checks.noise_scale("scales of the noise for this row_bound and budget", scales)
    return Plan(scales, level, bound, dimension, records, family, relation, release)


def _sampling_error(dimension: int, release: str) -> Reals:
    return lattice.sampling_error(dimension * (dimension + 1) / 2, release)


def _check_choices(method: str, family: str, relation: str) -> None:
    checks.one_of("method", method, METHODS)
    checks.one_of("family", family, FAMILIES)
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    if method == "goe" and norm_of(family) != 2:
        raise ValueError(f"method 'goe' is Gaussian, got family {family!r}")


def _scales_by_entry(
    family: str, bounds: Vector, dimension: int, is_replaced: bool, budget: Budget | GDP
) -> Vector:
    """(off, diagonal): every entry of the upper triangle is taken to reach its own bound."""
    sensitivities = bounds * jnp.array([2.0, 1.0]) if is_replaced else bounds
    counts = jnp.array([0.5 * dimension * (dimension - 1), 1.0 * dimension])
    return allocate(family, sensitivities, budget, counts=counts)


def _joint_shift(family: str, square: Reals, dimension: int, is_replaced: bool) -> Reals:
    """Change of the upper triangle by a record, in the norm of the noise's kind."""
    if norm_of(family) == 2:
        # |x x^T - y y^T|_F^2 = |x|^4 + |y|^4 - 2 (x y)^2; the upper triangle is below it.
        return (2.0**0.5 if is_replaced else 1.0) * square
    return 0.5 * (dimension + 1) * (2.0 if is_replaced else 1.0) * square


def share_of_mean(records: int) -> float:
    """Change of a float64 mean of `records` by a term that moves by 1, rounding included.

    Two sums of n terms below 1, in whatever order, round apart by n^2 ulp at most; terms that are
    products, and shortened rows, by another few n ulp.
    """
    return (1.0 + (records**2 + 8.0 * records) * ULP) / records
