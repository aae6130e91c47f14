"""Private second moments, and the subspaces that are read off them.

Rows x_i of norm at most `row_bound` have the second moment S = (1/n) sum_i x_i x_i^T. `plan` fixes
the noise on its entries before a row is read, `release` adds it. Adding or removing a row moves
n S by at most row_bound^2 in Frobenius norm, replacing one by sqrt(2) row_bound^2.

Why "goe" is the default: let the entries carry independent Gaussian noise, s_d on the diagonal
and s_o off it. A unit row costs mu^2 = q / s_d^2 + (1 - q) / (2 s_o^2), q = sum_i x_i^4, and q runs
from 1/d to 1: both ends cost the same at s_o = s_d / sqrt(2). That is the Gaussian orthogonal
ensemble, isotropic in Frobenius norm, and exact; nothing need be clipped.

Joint sensitivities: l2 row_bound^2, l1 row_bound^2 (d + 1) / 2. A replacement moves sums of
squares by sqrt(2) of an addition, an l1 norm by 2, one product by 2 and one square (which is
not negative) by 1.
"""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64, in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import SOLVER_RELATIONS
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape, Vector
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


@draws_in_float64(may_share=True)
def goe_noise(key: Key, dimension: int, scale: ArrayLike, shape: Shape = ()) -> Reals:
    """Symmetric Gaussian matrices from the Gaussian orthogonal ensemble.

    Args:
        key: of the draw; use it once and keep it secret.
        dimension: d.
        scale: above 0; broadcasts against `shape`.
        shape: of the batch.

    Returns:
        The matrices, (*shape, d, d), of deviation `scale` on the diagonal, scale / sqrt(2) off it.

    Floating-point noise, for research: `release` draws from a lattice.
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
    return _goe(checked_key(key), dimension, scale, jnp.broadcast_shapes(shape, scale.shape))


@jax.jit(static_argnums=(1, 3))
def _goe(key: Key, dimension: int, scale: Reals, shape: Shape) -> Reals:
    normals = jax.random.normal(key, (*shape, dimension, dimension), dtype=jnp.float64)
    shares = jnp.where(jnp.eye(dimension, dtype=bool), 1.0, jnp.sqrt(0.5))
    scale = checks.guard(jnp.broadcast_to(scale, shape))[..., None, None]
    return _mirrored(scale * normals * shares[(None,) * len(shape)])


def _mirrored(matrix: Reals) -> Reals:
    """The upper triangle, and its copy below: symmetric to the last bit."""
    return xp.triu(matrix) + xp.swapaxes(xp.triu(matrix, 1), -1, -2)


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
    _require_shape(rows, plan)
    key, moment = checked_key(key, rows, plan), second_moment(rows, plan)
    return noisy(moment, plan, key)


def shortened(features: Reals, row_bound: Reals) -> Reals:
    """Rows (n, d), those of a norm above `row_bound` scaled down to it; known ones by NumPy."""
    lib: Any = np if checks.all_concrete(features, row_bound) else jnp
    features, row_bound = map(lib.asarray, (features, row_bound))
    norms = lib.linalg.norm(features, axis=1, keepdims=True)
    longer = norms > row_bound
    # By more than the rounding of the norm.
    factor = lib.where(longer, row_bound / lib.where(longer, norms, 1.0) * (1.0 - 1e-14), 1.0)
    return features * factor


@draws_in_float64
def second_moment(features: Reals, plan: Plan) -> Reals:
    """The second moment that `release` adds noise to. NOT PRIVATE.

    Args:
        features: rows, (n, d).
        plan: made by `covariance.plan`.

    Returns:
        The matrix, (d, d), of rows shortened to `row_bound`.

    Other shapes than the plan's: `ValueError`.

    >>> import jax.numpy as jnp
    >>> from jaxdp.solvers import covariance
    >>> plan = covariance.plan((1.0, 1e-5), dimension=2, records=2, relation="replace_one")
    >>> print(covariance.second_moment(jnp.eye(2), plan))
    [[0.5 0. ]
     [0.  0.5]]
    """
    _require_shape(features, plan)
    rows = shortened(features, plan.row_bound)
    return rows.T @ rows / plan.records


def _require_shape(features: Reals, plan: Plan) -> None:
    if features.shape != (plan.records, plan.dimension):
        raise ValueError(f"features must be {(plan.records, plan.dimension)}, got {features.shape}")


def noisy(moment: Reals, plan: Plan, key: Key) -> Reals:
    """The second moment with the plan's noise; of known ones by NumPy, whatever their dimension."""
    on = np.eye(plan.dimension, dtype=bool)
    scales = checks.guard(plan.scales)
    noise = scaled(plan.family, 1.0)
    if plan.release == "float":
        drawn = xp.where(on, scales[1], scales[0]) * noise.sample(key, on.shape)
        return _mirrored(moment + drawn)
    entries = plan.dimension * (plan.dimension + 1) / 2
    ratio = plan.ratio / (entries ** (1.0 / norm_of(plan.family)))
    # The upper triangle in a row.
    upper = np.triu_indices(plan.dimension)
    each = xp.where(upper[0] == upper[1], scales[1], scales[0])
    released = lattice.added(noise, each, ratio, key, upper[0].shape).to(moment[upper])
    place = np.zeros(on.shape, dtype=np.int64)
    place[upper] = np.arange(upper[0].size)
    return released[np.maximum(place, place.T)]


@draws_in_float64
def principal_subspace(matrix: Reals, rank: int) -> tuple[Reals, Reals]:
    """The leading eigenvalues of a symmetric matrix, falling, and their eigenvectors.

    Args:
        matrix: (..., d, d).
        rank: how many, in [1, d].

    Returns:
        Values, (..., rank), and vectors, (..., d, rank): post-processing of a private matrix.

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
    values, vectors = xp.linalg.eigh(matrix)
    return values[..., ::-1][..., :rank], vectors[..., ::-1][..., :rank]
