"""A plan followed on records: theta_j <- prox(theta_j - step_j (clipped mean gradient + noise_j)).

The mean is a sum of whole numbers. Each record's partial derivative is clipped to +-C_j and
rounded to a multiple of C_j / grid; blocks of 64 add up exactly in the data's precision, and the
blocks in float64. So the sensitivity holds as computed, in float32 too, in any order of summation.
The noise comes from a lattice to which the mean is rounded, see `solvers.lattice`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core import checks
from jaxdp._core.random_key import checked_key, key_for, require_unshared
from jaxdp._core.records import number_of_records
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp.solvers import lattice
from jaxdp.solvers.coordinate_descent.plan import Plan
from jaxdp.solvers.lattice import Added
from jaxdp.solvers.problems import Problem

# Records of a block, which adds up exactly. chosen: see the grid
_BLOCK = 64
# Units to a threshold. derived: sums of 64 such are exact in float32, of 2^23 in float64
_GRID = {"float32": 2.0**17, "float64": 2.0**30}
# Bytes of a batch of chains, each of about six arrays of n floats. chosen: any accelerator has them
_BATCH_BYTES = 4e9


class NotPrivateTrace(NamedTuple):
    """F after each pass, computed from the records without noise. NOT PRIVATE: never publish it."""

    objective: Reals


def run(
    problem: Problem, plan: Plan, key: Key, *, start: ArrayLike | None = None, trace: bool = False
) -> Vector | tuple[Vector, NotPrivateTrace]:
    """The model that a plan of coordinate descent trains on records, privately.

    Args:
        problem: made by `glm`, with the plan's numbers of records and coordinates.
        plan: made by `coordinate_descent.plan`.
        key: of the noise: use it once and keep it secret.
        start: the first theta, (p,), public or released (its cost is its own); 0 if None.
        trace: also return F after each pass, NOT PRIVATE.

    Returns:
        theta, (p,); with `trace`, also a `NotPrivateTrace`. Only theta is covered by the plan's
        guarantee.

    Batches over plans and problems by `jax.vmap`, with a key for each: one key for all of them is a
    `ValueError`. `run_many` picks the chunk. Time is linear in passes * p * n; memory 2 p n floats,
    if n is no multiple of 64. A problem that the plan was not made for: `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> descent = dp.solvers.coordinate_descent
    >>> problem = dp.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], loss="squared", penalty=dp.L2(0.5))
    >>> plan = descent.noiseless_plan([0.5, 0.5], passes=20)
    >>> print(descent.run(problem, plan, jax.random.key(0)).round(4))
    [ 0.5 -0.5]
    """
    check(problem, plan)
    noise = draw(plan, checked_key(key, problem, plan, start))
    theta, objective = advance(problem, plan, begin(plan, start), noise, trace=trace)
    return theta if objective is None else (theta, NotPrivateTrace(objective))


def run_many(problem: Problem, plans: Plan, keys: jax.Array, *, chunk: int | None = None) -> Reals:
    """The models of many chains on one problem, a few at a time.

    Args:
        problem: as in `run`.
        plans: a `Plan` with a leading axis of chains, as `jax.vmap` or `jax.tree.map` make one.
        keys: (chains,), of the noises.
        chunk: chains run at a time. If None, one on a CPU, where a chain's state stays in cache and
            batching slows it down; on an accelerator as many as 4 GB hold.

    Returns:
        theta of every chain, (chains, p).

    Plans and keys of different numbers: `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> descent = dp.solvers.coordinate_descent
    >>> problem = dp.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], loss="squared", penalty=dp.L2(0.5))
    >>> plan = descent.noiseless_plan([0.5, 0.5], passes=20)
    >>> plans = jax.tree.map(lambda x: jax.numpy.stack([x] * 3), plan)
    >>> descent.run_many(problem, plans, jax.random.split(jax.random.key(0), 3)).shape
    (3, 2)
    """
    check(problem, plans)
    require_unshared(keys, problem, plans)
    chains = keys.shape[0]
    if plans.steps.ndim != 2 or plans.steps.shape[0] != chains:
        raise ValueError(
            f"plans must have the leading axis of keys, {chains}, got steps {plans.steps.shape}"
        )
    if chunk is None:
        state = 6 * problem.offset.size * problem.offset.dtype.itemsize
        chunk = 1 if jax.default_backend() == "cpu" else max(1, int(_BATCH_BYTES / state))
    return _run_many(problem, plans, keys, min(chunk, chains))


@partial(jax.jit, static_argnums=3)
def _run_many(problem: Problem, plans: Plan, keys: jax.Array, chunk: int) -> Reals:
    def chain(pair: tuple[Plan, Key]) -> Vector:
        plan, key = pair
        return advance(problem, plan, jnp.zeros_like(plan.steps), draw(plan, key))[0]

    return lax.map(chain, (plans, keys), batch_size=None if chunk == 1 else chunk)


def check(problem: Problem, plan: Plan) -> None:
    """The plan is for these coordinates and this many records."""
    checks.require_float64()
    coordinates, records = problem.design.shape[-2:]
    number_of_records({"problem.design": records, "problem.offset": problem.offset.shape[-1]})
    if plan.steps.shape[-1] != coordinates:
        raise ValueError(f"plan has {plan.steps.shape[-1]} coordinates, problem {coordinates}")
    if plan.records not in (None, records):
        raise ValueError(
            f"plan is for {plan.records} records, problem has {records}: its noise would not fit"
        )
    if plan.records is not None and records * _GRID["float64"] > 2.0**53:
        raise ValueError(f"records must be at most 2^23, or their sum is inexact, got {records}")


def begin(plan: Plan, start: ArrayLike | None) -> Vector:
    """The first theta: `start`, or 0."""
    theta = jnp.zeros_like(plan.steps) if start is None else checks.real("start", start)
    if theta.shape != plan.steps.shape:
        raise ValueError(f"start must have shape {plan.steps.shape}, got {theta.shape}")
    return theta


@jax.jit
def draw(plan: Plan, key: Key) -> Added:
    """The noise of every update on its mean gradient, (passes, updates)."""
    visited = plan.scales[plan.sequence]
    ratios = plan.sensitivities[plan.sequence] / visited
    shape, key = plan.sequence.shape, key_for("noise", key)
    noise, step = lattice.added(plan.noise, visited, ratios, key, shape, plan.release)
    return Added(noise, jnp.broadcast_to(step, shape))


@partial(jax.jit, static_argnames="trace")
def advance(
    problem: Problem,
    plan: Plan,
    start: Vector,
    noise: Added,
    first_pass: jax.Array | int = 0,
    *,
    trace: bool = False,
) -> tuple[Vector, Reals | None]:
    """theta and perhaps F after the passes that `noise` has rows for, from `first_pass` on."""
    records = problem.design.shape[-1]
    dtype = problem.design.dtype
    padded = _padded(problem)
    strength = jnp.broadcast_to(problem.penalty.strength, plan.steps.shape)
    private = plan.records is not None
    grid = jnp.asarray(_GRID[str(dtype)], dtype)
    to_grid = (grid / plan.clip).astype(dtype)
    from_grid = plan.clip / (records * _GRID[str(dtype)])

    def mean_gradient(row: jax.Array, state: jax.Array, coordinate: jax.Array) -> Reals:
        partials = row * padded.slope(state)
        if not private:
            return jnp.sum(partials, dtype=jnp.float64) / records
        units = partials * to_grid[coordinate]
        # Not `clip`: NaN, as from an overflow, must not pass either.
        units = jnp.where(units > -grid, units, -grid)
        units = jnp.rint(jnp.where(units < grid, units, grid))
        blocks = jnp.sum(units.reshape(_BLOCK, -1), axis=0)
        return jnp.sum(blocks, dtype=jnp.float64) * from_grid[coordinate]

    def update(carry, inputs):
        theta, state, total = carry
        coordinate, added, pace = inputs
        row, step = padded.design[coordinate], pace * plan.steps[coordinate]
        gradient = added.to(mean_gradient(row, state, coordinate))
        point = theta[coordinate] - step * gradient
        value = padded.penalty.proximal(strength[coordinate], point, step)
        state = state + (value - theta[coordinate]).astype(dtype) * row
        theta = theta.at[coordinate].set(value)
        return (theta, state, total + theta), None

    def one_pass(carry, inputs):
        coordinates, added, pace = inputs
        updates = coordinates, added, jnp.full(coordinates.shape, pace)
        (theta, state, total), _ = lax.scan(update, (*carry, jnp.zeros_like(plan.steps)), updates)
        if plan.iterate == "average":
            theta = total / coordinates.size
            state = padded.state(theta)
        objective = problem.objective_at(state[:records], theta) if trace else None
        return (theta, state), objective

    passes = noise.noise.shape[0]
    inputs = (
        lax.dynamic_slice_in_dim(plan.sequence, first_pass, passes),
        noise,
        lax.dynamic_slice_in_dim(plan.pace, first_pass, passes),
    )
    (theta, _), objective = lax.scan(one_pass, (start, padded.state(start)), inputs)
    return theta, objective


def _padded(problem: Problem) -> Problem:
    """Problem padded to whole blocks with records that are zero, whose gradient is zero."""
    missing = -problem.design.shape[-1] % _BLOCK
    if missing == 0:
        return problem
    design = jnp.pad(problem.design, ((0, 0), (0, missing)))
    offset = jnp.pad(problem.offset, (0, missing))
    return Problem(design, offset, problem.penalty, problem.loss, problem.intercept)
