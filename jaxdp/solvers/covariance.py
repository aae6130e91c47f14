"""Private second moments.

Rows x_i of norm at most `row_bound` have the second moment S = (1/n) sum_i x_i x_i^T. `plan` fixes
the noise on its entries before a row is read, `release` adds it. Adding or removing a row moves
n S by at most row_bound^2 in Frobenius norm, replacing one by sqrt(2) row_bound^2.

Why the noise is a Gaussian orthogonal ensemble: let the entries carry independent Gaussian noise,
s_d on the diagonal and s_o off it. A unit row costs mu^2 = q / s_d^2 + (1 - q) / (2 s_o^2),
q = sum_i x_i^4, and q runs from 1/d to 1: both ends cost the same at s_o = s_d / sqrt(2). That is
the ensemble, isotropic in Frobenius norm, and exact; nothing need be clipped.
"""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64, in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import SOLVER_RELATIONS
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.guarantee.base import BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers import lattice

# Largest bound, and feature. derived: its square is finite
LARGEST = 1e150


@final
@in_float64
@pytree
class Plan:
    """The noise on a second moment and its guarantee, made by `plan`."""

    scales: Vector  # (off the diagonal, on it): deviations of the noise on the mean
    ratio: Reals  # mu of the whole release
    row_bound: Reals
    dimension: int = static()
    records: int = static()
    relation: str = static()
    release: str = static(default="lattice")

    @property
    def sampling_error(self) -> Reals:
        """Total variation that draws are off by; 1: floating point."""
        return _sampling_error(self.dimension, self.release)

    @property
    def guarantee(self) -> Drawn:
        """A GDP, with the sampling error."""
        return Drawn(GDP(self.ratio), self.sampling_error)


@in_float64
def plan(
    budget: BudgetLike | GDP,
    *,
    dimension: int,
    records: int,
    relation: str,
    row_bound: ArrayLike = 1.0,
    release: str = "lattice",
) -> Plan:
    """The noise on a private second moment that meets a budget, decided before a row is read.

    Args:
        budget: of the whole matrix, a `Budget` or (epsilon, delta), epsilon in nats, the sampling
            error included; or a `GDP` of the exact distribution, a share of a larger budget.
        dimension, records: d and n of the rows, public.
        relation: "replace_one", or "add_remove" with `records` fixed in the mean.
        row_bound: of the norm of a row; longer ones are shortened.
        release: "lattice", or "float": noise whose last bits leak, for research.

    Returns:
        A `Plan` with noise of the Gaussian orthogonal ensemble, see the module.

    Source: Dwork et al., Analyze Gauss, STOC 2014, whose noise off the diagonal is sqrt(2) times
    as large.

    >>> from jaxdp.solvers import covariance
    >>> plan = covariance.plan((1.0, 1e-5), dimension=3, records=100, relation="replace_one")
    >>> print(plan.scales.round(4))
    [0.0373 0.0528]
    """
    budget = budget if isinstance(budget, GDP) else as_budget(budget)
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    lattice.require(release, Gaussian(1.0))
    dimension = checks.positive_integer("dimension", dimension)
    records = checks.positive_integer("records", records)
    if not isinstance(budget, GDP):
        budget = largest_gdp(left_for_exact(budget, _sampling_error(dimension, release)))
    bound = checks.real("row_bound", row_bound, 0.0, LARGEST, open_lower=True)
    # |x x^T - y y^T|_F^2 = |x|^4 + |y|^4 - 2 (x y)^2; the upper triangle is below it.
    moved = (2.0**0.5 if relation == "replace_one" else 1.0) * (bound**2 * share_of_mean(records))
    shape = jnp.array([jnp.sqrt(0.5), 1.0])
    scales = round_up(shape * moved / budget.mu, 8)
    scales = checks.noise_scale("scales of the noise for this row_bound and budget", scales)
    return Plan(scales, budget.mu, bound, dimension, records, relation, release)


def _sampling_error(dimension: int, release: str) -> Reals:
    return lattice.sampling_error(dimension * (dimension + 1) / 2, release)


def share_of_mean(records: int) -> float:
    """Change of a float64 mean of `records` by a term that moves by 1, rounding included.

    Two sums of n terms below 1, in whatever order, round apart by n^2 ulp at most; terms that are
    products, and shortened rows, by another few n ulp.
    """
    return (1.0 + (records**2 + 8.0 * records) * ULP) / records


@draws_in_float64
def release(features: ArrayLike, plan: Plan, key: Key) -> Reals:
    """The private second moment of rows, symmetric; it may have negative eigenvalues.

    Args:
        features: rows, (n, d). Longer ones are shortened to `row_bound`.
        plan: made by `covariance.plan` for n and d.
        key: of the noise: use it once and keep it secret.

    Returns:
        The matrix, (d, d).

    Other shapes than the plan's and values that are not finite raise `ValueError` (traced, they
    give NaN). Entries are multiples of a power of two, of one on the diagonal and of one off it,
    unless the plan says `release="float"`: see `solvers.lattice`.

    >>> import jax
    >>> from jaxdp.solvers import covariance
    >>> plan = covariance.plan((1.0, 1e-5), dimension=2, records=2, relation="replace_one")
    >>> moment = covariance.release([[1.0, 0.0], [0.0, 1.0]], plan, jax.random.key(0))
    >>> moment.shape
    (2, 2)
    """
    rows = checks.of_records("features", features, LARGEST)
    key = checked_key(key, rows, plan)
    if rows.shape != (plan.records, plan.dimension):
        shape = plan.records, plan.dimension
        raise ValueError(f"features must be {shape}, got {rows.shape}")
    rows = shortened(rows, plan.row_bound)
    return noisy(rows.T @ rows / plan.records, plan, key)


def shortened(features: Reals, row_bound: Reals) -> Reals:
    """Rows (n, d), those of a norm above `row_bound` scaled down to it; known ones by NumPy."""
    lib: Any = np if checks.all_concrete(features, row_bound) else jnp
    features, row_bound = map(lib.asarray, (features, row_bound))
    norms = lib.linalg.norm(features, axis=1, keepdims=True)
    longer = norms > row_bound
    # By more than the rounding of the norm.
    factor = lib.where(longer, row_bound / lib.where(longer, norms, 1.0) * (1.0 - 1e-14), 1.0)
    return features * factor


def noisy(moment: Reals, plan: Plan, key: Key) -> Reals:
    """The second moment with the plan's noise; of known ones by NumPy, whatever their dimension."""
    on = np.eye(plan.dimension, dtype=bool)
    scales = checks.guard(plan.scales)
    noise = Gaussian(1.0)
    if plan.release == "float":
        drawn = xp.where(on, scales[1], scales[0]) * noise.sample(key, on.shape)
        entries = xp.triu(moment + drawn)
        return entries + xp.triu(entries, 1).T
    entries = plan.dimension * (plan.dimension + 1) / 2
    ratio = plan.ratio / entries**0.5
    # The upper triangle in a row.
    upper = np.triu_indices(plan.dimension)
    each = xp.where(upper[0] == upper[1], scales[1], scales[0])
    released = lattice.added(noise, each, ratio, key, upper[0].shape).to(moment[upper])
    place = np.zeros(on.shape, dtype=np.int64)
    place[upper] = np.arange(upper[0].size)
    return released[np.maximum(place, place.T)]
