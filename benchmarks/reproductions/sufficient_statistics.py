"""One-shot private LASSO: second moments with Gaussian-orthogonal-ensemble noise, then no noise.

The row z = (x, y) has the second moment S = (1/n) sum z z^T, which is released once; the LASSO of
S costs nothing more. No steps, no passes, no thresholds a coordinate: only the norm of a row is
clipped. Where p is small this is the line that any iterative method has to beat.
Source: Wang, Revisiting differentially private linear regression, UAI 2018 (without his ridge).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp.guarantee.base import BudgetLike
from jaxdp.guarantee.drawn import Drawn
from jaxdp.solvers import covariance

# Of coordinate descent on the released moments. chosen: it reads no record, and costs no budget
_PASSES = 3000


def lasso(
    features: ArrayLike,
    targets: ArrayLike,
    strength: ArrayLike,
    budget: BudgetLike,
    key: Key,
    *,
    row_bound: ArrayLike,
    relation: str,
    intercept: bool = False,
    release: str = "lattice",
) -> tuple[Vector, Drawn]:
    """A private LASSO from one release of the second moment of the rows, and what it cost.

    Args:
        features: x, (n, p).
        targets: y, (n,).
        strength: of the l1 penalty, one number or one a feature.
        budget: a `Budget` or (epsilon, delta), epsilon in nats.
        key: of the noise: use it once and keep it secret.
        row_bound: public, in the units of the columns, which should be alike: longer rows (x, y),
            or (x, 1, y), are shortened to it.
        relation, release: see `covariance.plan`.
        intercept: theta's last coordinate, not penalised.

    Returns:
        theta of min theta^T A theta / 2 - b^T theta + strength ||theta||_1; its plan's guarantee.

    A and b are blocks of the released second moment, A with eigenvalues within the noise's spectrum
    raised to its end, scale sqrt(2 (p + 1)); 3,000 passes of coordinate descent on A. NaN and bad
    shapes: `ValueError`.

    """
    x, y = _checked_records(features, targets)
    strength = checks.nonnegative("strength", strength)
    if strength.shape not in ((), x.shape[1:]):
        raise ValueError(f"strength must be a number or {x.shape[1:]}, got {strength.shape}")
    rows = np.column_stack([x, np.ones_like(y), y] if intercept else [x, y])
    plan = covariance.plan(
        budget,
        dimension=rows.shape[1],
        records=len(rows),
        relation=relation,
        row_bound=row_bound,
        release=release,
    )
    moment = covariance.release(rows, plan, key)
    strengths = jnp.broadcast_to(strength, x.shape[1:])
    if intercept:
        strengths = jnp.append(strengths, 0.0)
    # Where the spectrum of the noise ends: smaller eigenvalues say nothing.
    floor = plan.scales[1] * jnp.sqrt(2.0 * rows.shape[1])
    theta = lasso_of_moments(moment[:-1, :-1], moment[:-1, -1], strengths, floor)
    return theta, plan.guarantee


def _checked_records(features: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(features, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if x.ndim != 2 or y.shape != x.shape[:1] or 0 in x.shape:
        raise ValueError(f"features must be (n, p) and targets (n,), got {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("features and targets must be finite")
    return x, y


@jax.jit
def lasso_of_moments(matrix: Reals, vector: Reals, strengths: Reals, floor: Reals) -> Vector:
    """min theta^T A theta / 2 - b^T theta + sum strengths |theta|, eigenvalues at least `floor`."""
    values, vectors = jnp.linalg.eigh(matrix)
    matrix = (vectors * jnp.maximum(values, floor)[None, :]) @ vectors.T

    def update(j: jax.Array, theta: Vector) -> Vector:
        step = 1.0 / matrix[j, j]
        point = theta[j] - step * (matrix[j] @ theta - vector[j])
        moved = jnp.sign(point) * jnp.maximum(jnp.abs(point) - strengths[j] * step, 0.0)
        return theta.at[j].set(moved)

    def one_pass(_: jax.Array, theta: Vector) -> Vector:
        return lax.fori_loop(0, vector.size, update, theta)

    return lax.fori_loop(0, _PASSES, one_pass, jnp.zeros_like(vector))
