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
    """Symmetric Gaussian matrices: those of the Gaussian orthogonal ensemble.

    Args:
        key: of the draw; use it once and keep it secret.
        dimension: d.
        scale: above 0; broadcasts against `shape`.
        shape: of the batch.

    Returns:
        The matrices, (*shape, d, d), of deviation `scale` on the diagonal, scale / sqrt(2) off it.

    The coordinates of svec(A), off-diagonal entries times sqrt(2), are i.i.d. N(0, scale^2), so a
    symmetric matrix that moves by at most L in Frobenius norm is released with GDP(L / scale),
    exactly.

    >>> import jax
    >>> import jaxdp as dp
    >>> noise = dp.solvers.covariance.goe_noise(jax.random.key(0), 2, 1.0)
    >>> bool((noise == noise.T).all())
    True
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
    """The noise on a private second moment that meets a budget, decided before a row is read.

    Args:
        budget: of the whole matrix, a `Budget` or (epsilon, delta), epsilon in nats; for Gaussian
            noise also a `GDP`, a share of a larger budget.
        dimension, records: d and n of the rows, public.
        relation: "replace_one", or "add_remove" with `records` fixed in the mean.
        row_bound: of the norm of a row; longer ones are shortened.
        method: "goe" (Gaussian only), see the module. "iid": equal noise on all entries of the
            upper triangle, at its joint sensitivity. "inid": the closed forms of `allocate` there,
            where every entry is taken to reach its own bound at once.
        family: "gaussian" or "laplace".
        entry_bounds: of "inid", (off, diagonal), to which each row's products are clipped; the
            bounds that hold anyway if None, row_bound^2 (1/2, 1).

    Returns:
        A `Plan`.

    Joint sensitivities: l2 row_bound^2, l1 row_bound^2 (d + 1) / 2. A replacement moves sums of
    squares by sqrt(2) of an addition, an l1 norm by 2, one product by 2 and one square (which is
    not negative) by 1. Choices that do not go together: `ValueError`.
    Source: Dwork et al., Analyze Gauss, STOC 2014; Muthukrishnan & Kalyani, section VI-B.

    >>> from jaxdp.solvers import covariance
    >>> plan = covariance.plan((1.0, 1e-5), dimension=3, records=100, relation="replace_one")
    >>> print(plan.scales.round(4))
    [0.0373 0.0528]
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
    """The private second moment of rows, symmetric; it may have negative eigenvalues.

    Args:
        features: rows, (n, d). Longer ones are shortened to `row_bound`, products clipped if the
            plan says so.
        plan: made by `covariance.plan` for n and d.
        key: of the noise: use it once and keep it secret.

    Returns:
        The matrix, (d, d).

    Other shapes than the plan's and values that are not finite raise `ValueError` (traced, they
    give NaN). Float64 noise, see `Noise.sample`.

    >>> import jax
    >>> from jaxdp.solvers import covariance
    >>> plan = covariance.plan((1.0, 1e-5), dimension=2, records=2, relation="replace_one")
    >>> moment = covariance.release([[1.0, 0.0], [0.0, 1.0]], plan, jax.random.key(0))
    >>> moment.shape
    (2, 2)
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
    """The second moment that `release` adds noise to. NOT PRIVATE.

    Args:
        features: rows, (n, d).
        plan: made by `covariance.plan`.

    Returns:
        The matrix, (d, d), of rows shortened to `row_bound`, and products clipped if the plan says
        so.

    >>> import jax.numpy as jnp
    >>> from jaxdp.solvers import covariance
    >>> plan = covariance.plan((1.0, 1e-5), dimension=2, records=2, relation="replace_one")
    >>> print(covariance.second_moment(jnp.eye(2), plan))
    [[0.5 0. ]
     [0.  0.5]]
    """
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
    """The leading eigenvalues of a symmetric matrix, falling, and their eigenvectors.

    Args:
        matrix: (..., d, d).
        rank: how many, in [1, d].

    Returns:
        Values, (..., rank), and vectors, (..., d, rank). Of a private matrix they cost nothing
        more.

    Another rank: `ValueError`.

    >>> import jax.numpy as jnp
    >>> from jaxdp.solvers import covariance
    >>> values, vectors = covariance.principal_subspace(jnp.diag(jnp.array([1.0, 3.0])), 1)
    >>> print(values, abs(vectors[:, 0]))
    [3.] [0. 1.]
    """
    dimension = matrix.shape[-1]
    if not 1 <= checks.positive_integer("rank", rank) <= dimension:
        raise ValueError(f"rank must lie in [1, {dimension}], got {rank}")
    values, vectors = jnp.linalg.eigh(matrix)
    return values[..., ::-1][..., :rank], vectors[..., ::-1][..., :rank]


def subspace_recovery_error(basis: Reals, estimate: Reals) -> Reals:
    """The share of a subspace that an estimate of it misses: |U - V V^T U|_F / |U|_F.

    Args:
        basis: U, orthonormal, (..., d, r).
        estimate: V, orthonormal, (..., d, r).

    Returns:
        The error, (...), in [0, 1].

    >>> import jax.numpy as jnp
    >>> from jaxdp.solvers import covariance
    >>> error = covariance.subspace_recovery_error(jnp.eye(3)[:, :2], jnp.eye(3)[:, 1:])
    >>> print(f"{error:.4f}")
    0.7071
    """
    missed = basis - estimate @ (jnp.swapaxes(estimate, -1, -2) @ basis)
    return jnp.linalg.norm(missed, axis=(-2, -1)) / jnp.linalg.norm(basis, axis=(-2, -1))
