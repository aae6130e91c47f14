"""A plan followed on records: theta_j <- prox(theta_j - step_j (clipped mean gradient + noise_j)).

The mean is a sum of whole numbers. Each record's partial derivative is clipped to +-C_j and
rounded to a multiple of C_j / grid; blocks of 64 add up exactly in the data's precision, and the
blocks in float64. So the sensitivity holds as computed, in float32 too, in any order of summation.
The noise comes from a lattice to which the mean is rounded, see `solvers.lattice`.

On a CPU, NumPy follows a plan on known records, see `host`. For accelerators, batches and traces
there are programs. Epsilon and n decide the numbers of passes and records, and a program for each
pair would take seconds to compile. So updates and records are padded, and their true numbers are
arguments. Padded updates do not run and padded records enter no sum: the guarantee of the plan,
with its own number of passes, holds.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.checks import number_of_records
from jaxdp._core.float64 import draws_in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.random_key import checked_key, key_for, unshared
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp.noise.base import Noise
from jaxdp.noise.kernels.whole_draws import padded_size
from jaxdp.solvers import lattice
from jaxdp.solvers.blocks import SparseDesign
from jaxdp.solvers.coordinate_descent import host
from jaxdp.solvers.coordinate_descent.greedy import GreedyPlan, descend
from jaxdp.solvers.coordinate_descent.plan import Plan
from jaxdp.solvers.lattice import Added
from jaxdp.solvers.padding import BLOCK, padded
from jaxdp.solvers.problems import Problem

# Bytes of a batch of chains, each of about six arrays of n floats. chosen: any accelerator has them
_BATCH_BYTES = 4e9
# Static arguments: each value compiles a program.
_WORDS = ("updates", "private", "average", "trace")


class NotPrivateTrace(NamedTuple):
    """F after each pass, computed from the records without noise. NOT PRIVATE: never publish it."""

    objective: Reals


@draws_in_float64
def run(
    problem: Problem,
    plan: Plan | GreedyPlan,
    key: Key,
    *,
    start: ArrayLike | None = None,
    trace: bool = False,
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
    `ValueError`. `run_many` picks the chunk. Time is linear in passes * p * n, for a sparse problem
    in passes times its entries. On a CPU, known records are computed by NumPy and only the noise is
    compiled, once. Elsewhere records are padded with zeros, so that other numbers of passes and
    records find the programs compiled. Raises `ValueError` for a problem that does not fit the
    plan, and for a sparse one that NumPy does not compute.

    >>> import jax
    >>> import jaxdp as dp
    >>> descent = dp.solvers.coordinate_descent
    >>> ridge = {"loss": "squared", "penalty": dp.solvers.L2(0.5)}
    >>> problem = dp.solvers.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], **ridge)
    >>> plan = descent.noiseless_plan([0.5, 0.5], passes=20)
    >>> print(descent.run(problem, plan, jax.random.key(0)).round(4))
    [ 0.5 -0.5]
    """
    check(problem, plan)
    key = checked_key(key, problem, plan, start)
    if isinstance(plan, GreedyPlan):
        if trace:
            raise ValueError("trace must be False for a greedy plan")
        return descend(problem, plan, begin(plan, start), key)
    start, is_known = begin(plan, start), host.takes(problem, plan, start, key)
    row = in_a_row(plan, is_padded=not is_known)
    noise = drawn(row, key, plan.release)
    if is_known:
        theta, objective = host.descend(problem, plan, row, noise, start, trace)
    else:
        theta, objective = padded_descent(
            padded(problem),
            row,
            start,
            noise,
            *_sizes(problem, plan),
            **_kind_of(plan, trace),
        )
    if objective is None:
        return theta
    return theta, NotPrivateTrace(_first(objective, plan.sequence.shape[-2]))


@draws_in_float64
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

    Plans and keys of different numbers, and plans that JAX has rounded to float32 (stack them with
    NumPy): `ValueError`.

    >>> import jax
    >>> import numpy as np
    >>> import jaxdp as dp
    >>> descent = dp.solvers.coordinate_descent
    >>> ridge = {"loss": "squared", "penalty": dp.solvers.L2(0.5)}
    >>> problem = dp.solvers.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], **ridge)
    >>> plan = descent.noiseless_plan([0.5, 0.5], passes=20)
    >>> plans = jax.tree.map(lambda x: np.stack([x] * 3), plan)
    >>> descent.run_many(problem, plans, jax.random.split(jax.random.key(0), 3)).shape
    (3, 2)
    """
    check(problem, plans)
    checks.require_float64(plans.steps.dtype, "plans")
    keys = unshared(keys, problem, plans)
    chains = keys.shape[0]
    if plans.steps.ndim != 2 or plans.steps.shape[0] != chains:
        raise ValueError(
            f"plans must have the leading axis of keys, {chains}, got steps {plans.steps.shape}"
        )
    if chunk is None:
        state = 6 * problem.offset.size * problem.offset.dtype.itemsize
        chunk = 1 if jax.default_backend() == "cpu" else max(1, int(_BATCH_BYTES / state))
    return chains_of(
        padded(problem),
        in_a_row(plans),
        keys,
        *_sizes(problem, plans),
        chunk=min(chunk, chains),
        release=plans.release,
        **_kind_of(plans),
    )


def check(problem: Problem, plan: Plan | GreedyPlan) -> None:
    """The plan is for these coordinates and this many records."""
    coordinates, records = problem.design.shape[-2:]
    number_of_records({"problem.design": records, "problem.offset": problem.offset.shape[-1]})
    if isinstance(problem.design, SparseDesign) and not host.takes(problem, plan):
        raise ValueError("problem must be dense on an accelerator, in a batch and in a trace")
    if plan.steps.shape[-1] != coordinates:
        raise ValueError(f"plan has {plan.steps.shape[-1]} coordinates, problem {coordinates}")
    if plan.records not in (None, records):
        raise ValueError(
            f"plan is for {plan.records} records, problem has {records}: its noise would not fit"
        )
    if plan.records is not None and records * host.GRID["float64"] > 2.0**53:
        raise ValueError(f"records must be at most 2^23, or their sum is inexact, got {records}")


def begin(plan: Plan | GreedyPlan, start: ArrayLike | None) -> Vector:
    """The first theta: `start`, or 0."""
    theta = xp.zeros_like(plan.steps) if start is None else checks.real("start", start)
    if theta.shape != plan.steps.shape:
        raise ValueError(f"start must have shape {plan.steps.shape}, got {theta.shape}")
    return theta


class Row(NamedTuple):
    """A plan with its updates in a row, padded to a power of two."""

    # (updates,), of the host where they are known: the coordinate of each, and its step's factor
    sequence: jax.Array | np.ndarray
    pace: Reals | np.ndarray
    steps: Vector
    clip: Vector
    sensitivities: Vector
    scales: Vector
    noise: Noise


def in_a_row(plan: Plan, is_padded: bool = True) -> Row:
    """The updates of a plan, or of each in a batch of them, in a row."""
    lib = np if checks.all_concrete(plan.sequence, plan.pace) else jnp
    *batch, passes, updates = plan.sequence.shape
    missing = padded_size(passes * updates) - passes * updates
    sequence = lib.reshape(lib.asarray(plan.sequence), (*batch, -1))
    pace = lib.repeat(lib.asarray(plan.pace), updates, axis=-1)
    if is_padded:
        widths = [*((0, 0) for _ in batch), (0, missing)]
        sequence, pace = lib.pad(sequence, widths), lib.pad(pace, widths)
    return Row(sequence, pace, plan.steps, plan.clip, plan.sensitivities, plan.scales, plan.noise)


def _sizes(problem: Problem, plan: Plan) -> tuple[np.int64, np.int64]:
    """Numbers of passes and records, arguments of the compiled programs."""
    return np.int64(plan.sequence.shape[-2]), np.int64(problem.design.shape[-1])


def _kind_of(plan: Plan, trace: bool = False) -> dict[str, Any]:
    """Words of a plan, and its updates a pass: a program each."""
    words = {"updates": plan.sequence.shape[-1], "private": plan.records is not None}
    return words | {"average": plan.iterate == "average", "trace": trace}


def _first(array: Reals, count: int) -> Reals:
    """The first entries; of known ones on the host, as a slice would be compiled."""
    if checks.is_concrete(array):
        return jax.device_put(np.ravel(array)[:count])
    return array.ravel()[:count]


@partial(jax.jit, static_argnames=("chunk", "release", *_WORDS))
def chains_of(
    problem: Problem,
    rows: Row,
    keys: jax.Array,
    passes: Any,
    records: Any,
    *,
    chunk: int,
    release: str,
    **kind: Any,
) -> Reals:
    """theta of many chains, `chunk` at a time."""

    def chain(pair: tuple[Row, Key]) -> Vector:
        row, key = pair
        start = jnp.zeros_like(row.steps)
        noise = drawn(row, key, release)
        return padded_descent(problem, row, start, noise, passes, records, **kind)[0]

    return lax.map(chain, (rows, keys), batch_size=None if chunk == 1 else chunk)


def drawn(row: Row, key: Key, release: str) -> Added:
    """The noise of each update; of those that are padded too, where it is not used."""
    visited = xp.take(row.scales, row.sequence)
    ratios = xp.take(row.sensitivities, row.sequence) / visited
    shape, key = row.sequence.shape, key_for("noise", key)
    noise, step = lattice.added(row.noise, visited, ratios, key, shape, release)
    return Added(noise, xp.broadcast_to(step, shape))


@partial(jax.jit, static_argnames=_WORDS)
def padded_descent(
    problem: Problem,
    row: Row,
    start: Vector,
    noise: Added,
    passes: Any,
    records: Any,
    *,
    updates: int,
    private: bool,
    average: bool,
    trace: bool,
) -> tuple[Vector, Reals | None]:
    """theta, and F after each of `passes` if `trace`, on a padded problem of `records` records."""
    dtype = problem.design.dtype
    strength = jnp.broadcast_to(problem.penalty.strength, row.steps.shape)
    mean_gradient = _mean_gradient(problem, row.clip, records, private)
    is_record = jnp.arange(problem.offset.size) < records

    def update(place: jax.Array, carry: tuple) -> tuple:
        theta, state, total = carry
        coordinate, added = row.sequence[place], Added(noise.noise[place], noise.step[place])
        features, step = problem.design[coordinate], row.pace[place] * row.steps[coordinate]
        gradient = added.to(mean_gradient(features, state, coordinate))
        point = theta[coordinate] - step * gradient
        value = problem.penalty.proximal(strength[coordinate], point, step)
        state = state + (value - theta[coordinate]).astype(dtype) * features
        theta = theta.at[coordinate].set(value)
        return theta, state, total + theta

    def one_pass(index: jax.Array, carry: tuple) -> tuple:
        theta, state, objectives = carry
        start = theta, state, jnp.zeros_like(row.steps)
        theta, state, total = lax.fori_loop(
            0, updates, lambda place, x: update(index * updates + place, x), start
        )
        if average:
            theta = total / updates
            state = problem.state(theta)
        if trace:
            objective = problem.objective_at(state, theta, is_record)
            objectives = objectives.at[index].set(objective)
        return theta, state, objectives

    room = jnp.zeros(row.sequence.size // updates if trace else 0)
    theta, _, objectives = lax.fori_loop(0, passes, one_pass, (start, problem.state(start), room))
    return theta, objectives if trace else None


def _mean_gradient(problem: Problem, clip: Vector, records: Any, private: bool) -> Any:
    """The mean of clipped partial derivatives, rounded so that it adds up exactly."""
    dtype = problem.design.dtype
    grid = jnp.asarray(host.GRID[str(dtype)], dtype)
    to_grid = (grid / clip).astype(dtype)
    from_grid = clip / (records * host.GRID[str(dtype)])

    def mean_gradient(features: jax.Array, state: jax.Array, coordinate: jax.Array) -> Reals:
        partials = features * problem.slope(state)
        if not private:
            return jnp.sum(partials, dtype=jnp.float64) / records
        units = partials * to_grid[coordinate]
        # Not `clip`: NaN, as from an overflow, must not pass either.
        units = jnp.where(units > -grid, units, -grid)
        units = jnp.rint(jnp.where(units < grid, units, grid))
        blocks = jnp.sum(units.reshape(BLOCK, -1), axis=0)
        return jnp.sum(blocks, dtype=jnp.float64) * from_grid[coordinate]

    return mean_gradient
