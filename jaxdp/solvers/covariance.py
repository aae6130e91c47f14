"""Private second moments, and the subspaces that are read off them.

Rows x_i of norm at most `row_bound` have the second moment S = (1/n) sum_i x_i x_i^T. `plan` fixes
the noise on its entries before a row is read, `release` adds it. Adding or removing a row moves
n S by at most row_bound^2 in Frobenius norm, replacing one by sqrt(2) row_bound^2.

Why "goe" is the default: let the entries carry independent Gaussian noise, s_d on the diagonal
and s_o off it. A unit row costs mu^2 = q / s_d^2 + (1 - q) / (2 s_o^2), q = sum_i x_i^4, and q runs
from 1/d to 1: both ends cost the same at s_o = s_d / sqrt(2). That is the Gaussian orthogonal
ensemble, isotropic in Frobenius norm, and exact; nothing need be clipped.
"""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core import checks
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Key, Reals, Shape, Vector
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.design.allocate import allocate
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.laplace_sum import largest_laplace_ratio
from jaxdp.noise.base import exp_up
from jaxdp.noise.laplace import Laplace

METHODS = ("goe", "iid", "inid")
FAMILIES = ("gaussian", "laplace")
RELATIONS = ("replace_one", "add_remove")
_LARGEST = 1e150  # whose square is finite


def goe_noise(key: Key, dimension: int, scale: ArrayLike, shape: Shape = ()) -> Reals:
    """Symmetric Gaussian matrices, (*shape, d, d): std scale / sqrt(2), on the diagonal scale.

    The coordinates of svec(A), off-diagonal entries times sqrt(2), are i.i.d. N(0, scale^2), so a
    symmetric matrix that moves by at most L in Frobenius norm is released with GDP(L / scale),
    exactly. `scale` broadcasts against `shape`.
    """
    scale = checks.positive("scale", scale)
    dimension = checks.positive_integer("dimension", dimension)
    return _goe(key, dimension, scale, jnp.broadcast_shapes(shape, scale.shape))


@jax.jit(static_argnums=(1, 3))
def _goe(key: Key, dimension: int, scale: Reals, shape: Shape) -> Reals:
    drawn = jax.random.normal(key, (*shape, dimension, dimension), dtype=jnp.float64)
    shares = jnp.where(jnp.eye(dimension, dtype=bool), 1.0, jnp.sqrt(0.5))
    scale = checks.guard(jnp.broadcast_to(scale, shape))[..., None, None]
    return _mirrored(scale * drawn * shares[(None,) * len(shape)])


def _mirrored(matrix: Reals) -> Reals:
    """The upper triangle, and its copy below: symmetric to the last bit."""
    return jnp.triu(matrix) + jnp.swapaxes(jnp.triu(matrix, 1), -1, -2)


@final
@pytree
class Plan:
    """The noise on a second moment, and what it guarantees. Make it with `plan`."""

    scales: Vector  # (off the diagonal, on it): the noise's scale parameter, of the mean
    ratio: Reals  # of the whole release: mu of the Gaussian, sum of shift / scale of the Laplace
    row_bound: Reals
    entry_bounds: Vector | None  # (off, on): bounds of the entries of each x x^T, if clipped
    dimension: int = static()
    records: int = static()
    family: str = static()
    relation: str = static()

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log delta of the release: exact GDP, or of one Laplace at the sum of all shifts."""
        if self.family == "gaussian":
            return GDP(self.ratio).log_delta(epsilon)
        return Laplace(1.0).log_delta(self.ratio, epsilon)

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))


def plan(
    budget: BudgetLike | GDP,
    *,
    dimension: int,
    records: int,
    relation: str,
    row_bound: ArrayLike = 1.0,
    method: str = "goe",
    family: str = "gaussian",
    entry_bounds: ArrayLike | None = None,
) -> Plan:
    """Noise for the (d, d) second moment of `records` rows of norm at most `row_bound`.

    budget: of the whole matrix; for Gaussian noise also a `GDP`, a share of a larger budget.
    method: "goe" (Gaussian only), see above. "iid": equal noise on all entries of the upper
    triangle, at its joint sensitivity: l2 row_bound^2, l1 row_bound^2 (d + 1) / 2. "inid": the
    closed forms of `allocate` on the upper triangle, where every entry is taken to reach its own
    bound at once: `entry_bounds` = (off, diagonal), to which each row's products are clipped, or
    the bounds that hold anyway, row_bound^2 (1/2, 1).
    relation: "replace_one", or "add_remove" with `records` public and fixed in the mean; a
    replacement moves sums of squares by sqrt(2) of an addition, an l1 norm by 2, one product by 2
    and one square (which is not negative) by 1.
    Source: Dwork et al., Analyze Gauss, STOC 2014; Muthukrishnan & Kalyani, section VI-B.
    """
    budget = as_budget(budget) if isinstance(budget, tuple) else budget
    for name, value, choices in (
        ("method", method, METHODS),
        ("family", family, FAMILIES),
        ("relation", relation, RELATIONS),
    ):
        checks.one_of(name, value, choices)
    if method == "goe" and family != "gaussian":
        raise ValueError(f"method 'goe' is Gaussian, got family {family!r}")
    if entry_bounds is not None and method != "inid":
        raise ValueError(f"entry_bounds belong to method 'inid', got method {method!r}")
    dimension = checks.positive_integer("dimension", dimension)
    records = checks.positive_integer("records", records)
    bound = checks.real("row_bound", row_bound, 0.0, _LARGEST, open_lower=True)
    share = share_of_mean(records)
    square = bound**2 * share
    replaced = relation == "replace_one"
    level = _level(budget, family)
    clipped = None
    if method == "inid":
        if entry_bounds is not None:
            clipped = checks.real("entry_bounds", entry_bounds, 0.0, _LARGEST, open_lower=True)
            if clipped.shape != (2,):
                raise ValueError(f"entry_bounds must be (off, diagonal), got {entry_bounds}")
        bounds = jnp.array([0.5, 1.0]) * square if clipped is None else clipped * share
        moved = bounds * jnp.array([2.0, 1.0]) if replaced else bounds
        counts = jnp.array([0.5 * dimension * (dimension - 1), 1.0 * dimension])
        scales = allocate(family, moved, budget, counts=counts)
    else:
        if family == "gaussian":
            # |x x^T - y y^T|_F^2 = |x|^4 + |y|^4 - 2 (x y)^2; the upper triangle is below it.
            size = (2.0**0.5 if replaced else 1.0) * square
        else:
            size = 0.5 * (dimension + 1) * (2.0 if replaced else 1.0) * square
        shape = jnp.array([jnp.sqrt(0.5), 1.0]) if method == "goe" else jnp.ones(2)
        scales = round_up(shape * size / level, 8)
    scales = checks.noise_scale("scales of the noise for this row_bound and budget", scales)
    return Plan(scales, level, bound, clipped, dimension, records, family, relation)


def release(features: ArrayLike, plan: Plan, key: Key) -> Reals:
    """The private (d, d) second moment of (n, d) rows, symmetric; it may have negative eigenvalues.

    Longer rows are shortened to `row_bound`, products clipped if the plan says so. Other shapes
    than the plan's and values that are not finite raise `ValueError` (traced, they give NaN).
    `key` draws the noise: use it once and keep it secret. Float64 noise, see `Noise.sample`.
    """
    rows = checks.of_records("features", features, _LARGEST)
    if rows.shape != (plan.records, plan.dimension):
        raise ValueError(f"features must be {(plan.records, plan.dimension)}, got {rows.shape}")
    return _release(rows, plan, key)


def share_of_mean(records: int) -> float:
    """Change of a float64 mean of `records` by a term that moves by 1, rounding included.

    Two sums of n terms below 1, in whatever order, round apart by n^2 ulp at most; terms that are
    products, and shortened rows, by another few n ulp.
    """
    return (1.0 + (records**2 + 8.0 * records) * ULP) / records


def shortened(features: Reals, row_bound: Reals) -> Reals:
    """Rows (n, d) of norm at most `row_bound`: longer ones are scaled down to it."""
    norms = jnp.linalg.norm(features, axis=1, keepdims=True)
    # By more than the rounding of the norm.
    factor = jnp.where(norms > row_bound, row_bound / norms * (1.0 - 1e-14), 1.0)
    return features * factor


def second_moment(features: Reals, plan: Plan) -> Reals:
    """Second moment that `release` adds noise to. NOT PRIVATE."""
    rows = shortened(features, plan.row_bound)
    if plan.entry_bounds is None:
        return rows.T @ rows / plan.records
    off, on = plan.entry_bounds[0], plan.entry_bounds[1]

    def one_row(index: jax.Array) -> Vector:
        bound = jnp.full(plan.dimension, off).at[index].set(on)[None]
        return jnp.sum(jnp.clip(rows * rows[:, index, None], -bound, bound), axis=0)

    return lax.map(one_row, jnp.arange(plan.dimension)) / plan.records


@jax.jit
def _release(features: Reals, plan: Plan, key: Key) -> Reals:
    shape = (plan.dimension, plan.dimension)
    draw = jax.random.normal if plan.family == "gaussian" else jax.random.laplace
    unit = draw(key, shape, dtype=jnp.float64)
    scales = jnp.where(jnp.eye(plan.dimension, dtype=bool), plan.scales[1], plan.scales[0])
    return _mirrored(second_moment(features, plan) + checks.guard(scales) * unit)


def _level(budget: Budget | GDP, family: str) -> Reals:
    if isinstance(budget, Budget):
        return largest_gdp(budget).mu if family == "gaussian" else largest_laplace_ratio(budget)
    if family != "gaussian":
        raise ValueError(f"budget of a {family} must be a Budget, got {type(budget).__name__}")
    return budget.mu


def principal_subspace(matrix: Reals, rank: int) -> tuple[Reals, Reals]:
    """The `rank` leading eigenvalues, falling, and their eigenvectors (..., d, rank)."""
    dimension = matrix.shape[-1]
    if not 1 <= checks.positive_integer("rank", rank) <= dimension:
        raise ValueError(f"rank must lie in [1, {dimension}], got {rank}")
    values, vectors = jnp.linalg.eigh(matrix)
    return values[..., ::-1][..., :rank], vectors[..., ::-1][..., :rank]


def subspace_recovery_error(basis: Reals, estimate: Reals) -> Reals:
    """|U - V V^T U|_F / |U|_F in [0, 1] of an orthonormal basis U (d, r) and its estimate V."""
    missed = basis - estimate @ (jnp.swapaxes(estimate, -1, -2) @ basis)
    return jnp.linalg.norm(missed, axis=(-2, -1)) / jnp.linalg.norm(basis, axis=(-2, -1))
