"""The draw itself: chains of the proximal sampler on the records."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.float64 import draws_in_float64
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import Key, Reals, Vector
from jaxdp.solvers.covariance.release import shortened
from jaxdp.solvers.exponential_mechanism.plan import Plan
from jaxdp.solvers.padding import padded
from jaxdp.solvers.penalties import L2
from jaxdp.solvers.problems import Problem

# Proposals of a step at most. derived: each is accepted with probability exp(-0.35) at least, so
# that 256 fail together once in 1e135
_TRIES = 256


@draws_in_float64
def sample(problem: Problem, plan: Plan, key: Key) -> Vector:
    """The private model: the last state of the plan's chain, started at 0.

    Args:
        problem: logistic, made by `glm` with the plan's penalty; the squared loss is not Lipschitz.
            Rows longer than `row_bound` are shortened.
        plan: made by `exponential_mechanism.plan`.
        key: of everything that is drawn: use it once and keep it secret.

    Returns:
        theta, (d,). NaN where a step accepts none of 256 proposals: not once in 1e100 runs.

    Time is linear in steps * n * d. A problem that the plan was not made for: `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> solver, penalty = dp.solvers.exponential_mechanism, dp.solvers.L2(0.5)
    >>> problem = dp.solvers.glm([[0.5], [-0.5]], [1, 0], loss="logistic", penalty=penalty)
    >>> plan = solver.plan((1.0, 1e-5), dimension=1, records=2, radius=1.0, relation="replace_one",
    ...     penalty=penalty)
    >>> solver.sample(problem, plan, jax.random.key(0)).shape
    (1,)
    """
    key = checked_key(key, problem, plan)
    if problem.loss != "logistic":
        raise ValueError(f"problem must be logistic, got {problem.loss!r}: not Lipschitz")
    if problem.design.shape != (plan.dimension, plan.records):
        raise ValueError(
            f"plan is for {plan.records} records of {plan.dimension} features, problem has "
            f"{problem.design.shape[::-1]}"
        )
    strength = problem.penalty.strength
    if not (isinstance(problem.penalty, L2) and np.array_equal(strength, plan.strength)):
        raise ValueError(f"problem.penalty must be the plan's, L2({plan.strength})")
    # Their number as an argument: in the plan each would be compiled.
    records, plan = np.int64(plan.records), dataclasses.replace(plan, records=0)
    return _chain(padded(problem).design, plan, records, jax.random.split(key, 1)[0])


@jax.jit
def _chain(design: jax.Array, plan: Plan, records: jax.Array, key: Key) -> Vector:
    """The end of a chain; the first `records` of `design` count."""
    rows = shortened(design.astype(jnp.float64).T, plan.row_bound).T
    is_record = jnp.arange(rows.shape[1]) < records
    curvature = plan.strength + plan.regularisation
    precision = 1.0 / plan.step + plan.temperature * curvature

    def value(theta: Vector) -> Reals:
        return jnp.mean(jnp.logaddexp(0.0, -(theta @ rows)), where=is_record)

    def gradient(theta: Vector) -> Vector:
        return -(rows @ jax.nn.sigmoid(-(theta @ rows))) / records

    def one_step(_: jax.Array, carry: tuple) -> tuple:
        theta, key = carry
        key, forward, proposals = jax.random.split(key, 3)
        noise = jax.random.normal(forward, theta.shape, dtype=jnp.float64)
        y = theta + jnp.sqrt(plan.step) * noise

        def centre(tangent: Vector) -> Vector:
            return (y / plan.step - plan.temperature * gradient(tangent)) / precision

        z = lax.fori_loop(0, plan.refinements, lambda _, z: centre(z), y / (plan.step * precision))
        middle, slope, low = centre(z), gradient(z), value(z)

        def attempt(state: tuple) -> tuple:
            _, _, count = state
            move, accept = jax.random.split(jax.random.fold_in(proposals, count))
            step = jax.random.normal(move, theta.shape, dtype=jnp.float64)
            x = middle + step / jnp.sqrt(precision)
            gap = plan.temperature * (value(x) - low - slope @ (x - z))
            return x, -jax.random.exponential(accept, dtype=jnp.float64) < -gap, count + 1

        def rejected(state: tuple) -> jax.Array:
            return ~state[1] & (state[2] < _TRIES)

        start = theta, jnp.zeros((), dtype=bool), jnp.zeros((), dtype=jnp.int64)
        x, accepted, _ = lax.while_loop(rejected, attempt, start)
        return jnp.where(accepted, x, jnp.nan), key

    start = jnp.zeros(plan.dimension), key
    return lax.fori_loop(0, plan.steps, one_step, start)[0]
