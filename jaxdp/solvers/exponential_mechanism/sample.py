"""The draw itself: chains of the proximal sampler on the records."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.draws import draws_in_float64
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
# Chains that diagnostics compare. chosen: the released one and three more
_CHAINS = 4


class NotPrivateDiagnostics(NamedTuple):
    """Diagnostics of four chains, the released one first, over second halves. NOT PRIVATE."""

    r_hat: Vector  # (d,): of four means and variances; near 1 where the chains agree
    tries: Reals  # proposals per step; the plan expects less than 1.5
    objective: Reals  # (4,): F at the end, to compare with `Plan.excess_risk`


@draws_in_float64
def sample(
    problem: Problem, plan: Plan, key: Key, *, diagnostics: bool = False
) -> Vector | tuple[Vector, NotPrivateDiagnostics]:
    """The private model: the last state of the plan's chain, started at 0.

    Args:
        problem: logistic, made by `glm` with the plan's penalty; the squared loss is not Lipschitz.
            Rows longer than `row_bound` are shortened.
        plan: made by `exponential_mechanism.plan`.
        key: of everything that is drawn: use it once and keep it secret.
        diagnostics: run three more chains, which are not covered.

    Returns:
        theta, (d,); with `diagnostics` also `NotPrivateDiagnostics`. NaN where a step accepts none
        of 256 proposals: not once in 1e100 runs.

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
    keys = jax.random.split(key, _CHAINS if diagnostics else 1)
    # Their number as an argument: in the plan each would be compiled.
    records, plan = np.int64(plan.records), dataclasses.replace(plan, records=0)
    found = _chains(padded(problem).design, plan, records, keys)
    ends, means, variances, tries, objective = found
    if not diagnostics:
        return ends[0]
    length = (plan.steps + 1) // 2
    between, within = length * jnp.var(means, axis=0, ddof=1), jnp.mean(variances, axis=0)
    r_hat = jnp.sqrt((length - 1.0) / length + between / (length * within))
    return ends[0], NotPrivateDiagnostics(r_hat, jnp.mean(tries), objective)


@jax.jit
def _chains(
    design: jax.Array, plan: Plan, records: jax.Array, keys: jax.Array
) -> tuple[Reals, ...]:
    """Ends, means and variances of second halves, tries per step, F at the end; chains first.

    The first `records` of `design` count.
    """
    rows = shortened(design.astype(jnp.float64).T, plan.row_bound).T
    is_record = jnp.arange(rows.shape[1]) < records
    curvature = plan.strength + plan.regularisation
    precision = 1.0 / plan.step + plan.temperature * curvature

    def value(theta: Vector) -> Reals:
        return jnp.mean(jnp.logaddexp(0.0, -(theta @ rows)), where=is_record)

    def gradient(theta: Vector) -> Vector:
        return -(rows @ jax.nn.sigmoid(-(theta @ rows))) / records

    def one_step(index: jax.Array, carry: tuple) -> tuple:
        theta, key, tries, total, squares = carry
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
        x, accepted, count = lax.while_loop(rejected, attempt, start)
        theta = jnp.where(accepted, x, jnp.nan)
        late = jnp.where(index >= plan.steps // 2, theta, 0.0)
        return theta, key, tries + count, total + late, squares + late**2

    def chain(key: Key) -> tuple[Reals, ...]:
        zero = jnp.zeros(plan.dimension)
        start = zero, key, jnp.zeros((), dtype=jnp.int64), zero, zero
        theta, _, tries, total, squares = lax.fori_loop(0, plan.steps, one_step, start)
        length = plan.steps - plan.steps // 2
        mean = total / length
        variance = (squares - length * mean**2) / (length - 1.0)
        risk = value(theta) + 0.5 * plan.strength * jnp.sum(theta**2)
        return theta, mean, variance, tries / plan.steps, risk

    return jax.vmap(chain)(keys)
