"""Subspaces that are read off a second moment, and how far off they are."""

from __future__ import annotations

import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.types import Reals


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
    residual = basis - estimate @ (jnp.swapaxes(estimate, -1, -2) @ basis)
    return jnp.linalg.norm(residual, axis=(-2, -1)) / jnp.linalg.norm(basis, axis=(-2, -1))
