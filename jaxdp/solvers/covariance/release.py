"""The release of a second moment by its plan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp.design.families import norm_of, scaled
from jaxdp.solvers import lattice
from jaxdp.solvers.covariance.plan import LARGEST, Plan


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
