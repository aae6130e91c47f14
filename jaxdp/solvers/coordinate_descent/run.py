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

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.checks import number_of_records
from jaxdp._core.float64 import draws_in_float64
from jaxdp._core.namespace import lax, updated, xp
from jaxdp._core.random_key import checked_key, key_for
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp.noise.kernels.whole_draws import padded_size
from jaxdp.solvers import lattice
from jaxdp.solvers.blocks import SparseDesign
from jaxdp.solvers.coordinate_descent import host
from jaxdp.solvers.coordinate_descent.greedy import GreedyPlan, descend
from jaxdp.solvers.coordinate_descent.plan import Plan
from jaxdp.solvers.lattice import Added
from jaxdp.solvers.penalties import Penalty
from jaxdp.solvers.problems import BLOCK, Problem, padded


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

    Batches over plans and problems by `jax.vmap` or, a few at a time, `jax.lax.map`, with a key for
    each: one key for all of them is a `ValueError`. Time is linear in passes * p * n, for a sparse
    problem in passes times its entries. On a CPU, known records are computed by NumPy and only the
    noise is compiled, once. Elsewhere records are padded with zeros, so that other numbers of
    passes and records find the programs compiled. Raises `ValueError` for a problem that does not
    fit the plan, and for a sparse one that NumPy does not compute.

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
    noise, (passes, updates) = drawn(row, key), plan.sequence.shape
    if is_known:
        row, noise, penalty, begun = jax.tree.map(np.asarray, (row, noise, problem.penalty, start))
        records = host.Records(problem, None if plan.records is None else row.clip)
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = passes, updates
            theta, objective = followed(records, penalty, row, noise, begun, sizes, trace)
    else:
        # True sizes are arguments: each of another one would be compiled.
        sizes = {"passes": np.int64(passes), "records": np.int64(problem.design.shape[-1])}
        words = {"updates": updates, "trace": trace}
        theta, objective = padded_descent(padded(problem), row, start, noise, **sizes, **words)
    if not trace:
        return theta
    return theta, NotPrivateTrace(objective[:passes])


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


def in_a_row(plan: Plan, is_padded: bool = True) -> Plan:
    """The plan with its updates in a row, padded to a power of two.

    One program serves all numbers of records: 0 stands for any, None for no privacy.
    """
    lib = np if checks.all_concrete(plan.sequence, plan.pace) else jnp
    sequence = lib.ravel(lib.asarray(plan.sequence))
    pace = lib.repeat(lib.asarray(plan.pace), plan.sequence.shape[-1])
    if is_padded:
        missing = padded_size(sequence.size) - sequence.size
        sequence, pace = lib.pad(sequence, (0, missing)), lib.pad(pace, (0, missing))
    records = None if plan.records is None else 0
    return dataclasses.replace(plan, sequence=sequence, pace=pace, records=records, spent=None)


def drawn(row: Plan, key: Key) -> Added:
    """The noise of each update in a row; of those that are padded too, where it is not used."""
    visited = xp.take(row.scales, row.sequence)
    ratios = xp.take(row.sensitivities, row.sequence) / visited
    shape, key = row.sequence.shape, key_for("noise", key)
    noise, step = lattice.added(row.noise, visited, ratios, key, shape, row.release)
    return Added(noise, xp.broadcast_to(step, shape))


def followed(
    records: host.Records | _Compiled,
    penalty: Penalty,
    row: Plan,
    noise: Added,
    start: Vector,
    sizes: tuple[Any, int],
    trace: bool,
) -> tuple[Any, Any]:
    """theta, and F after each pass if `trace`: one loop for NumPy and for a program.

    sizes: passes, and updates in each.
    """
    passes, updates = sizes
    strength = xp.broadcast_to(penalty.strength, start.shape)

    def update(place: Any, carry: tuple) -> tuple:
        theta, state = carry
        j = row.sequence[place]
        step = row.pace[place] * row.steps[j]
        gradient = noise.at(place).to(records.mean_derivative(state, j))
        value = penalty.proximal(strength[j], theta[j] - step * gradient, step)
        state = records.moved(state, j, value - theta[j])
        return updated(theta, j, value), state

    def one_pass(index: Any, carry: tuple) -> tuple:
        *begun, objectives = carry
        theta, state = lax.fori_loop(
            0, updates, lambda place, x: update(index * updates + place, x), tuple(begun)
        )
        if trace:
            objectives = updated(objectives, index, records.objective(state, theta))
        return theta, state, objectives

    room = xp.zeros(row.sequence.size // updates if trace else 0)
    carry = lax.fori_loop(0, passes, one_pass, (start, records.state(start), room))
    return carry[0], carry[2]


@partial(jax.jit, static_argnames=("updates", "trace"))
def padded_descent(
    problem: Problem,
    row: Plan,
    start: Vector,
    noise: Added,
    *,
    passes: Any,
    records: Any,
    updates: int,
    trace: bool,
) -> tuple[Vector, Reals]:
    """`followed` on a padded problem of `records` records, of a row with padded updates."""
    of = _Compiled(problem, None if row.records is None else row.clip, records)
    return followed(of, problem.penalty, row, noise, start, (passes, updates), trace)


class _Compiled(NamedTuple):
    """The records of a program, padded; see `host.Records`."""

    problem: Problem
    clip: Vector | None
    records: Any  # the number of those that count

    def state(self, theta: Vector) -> jax.Array:
        """design^T theta + offset."""
        return self.problem.state(theta)

    def moved(self, state: jax.Array, coordinate: Any, change: Any) -> jax.Array:
        """The state after a change of theta_j."""
        return state + change.astype(state.dtype) * self.problem.design[coordinate]

    def mean_derivative(self, state: jax.Array, coordinate: Any) -> Reals:
        """The mean of clipped partial derivatives, rounded so that it adds up exactly."""
        dtype = state.dtype
        partials = self.problem.design[coordinate] * self.problem.slope(state)
        if self.clip is None:
            return jnp.sum(partials, dtype=jnp.float64) / self.records
        grid, clip = jnp.asarray(host.GRID[str(dtype)], dtype), self.clip[coordinate]
        units = partials * (host.GRID[str(dtype)] / clip).astype(dtype)
        # Not `clip`: NaN, as from an overflow, must not pass either.
        units = jnp.where(units > -grid, units, -grid)
        units = jnp.rint(jnp.where(units < grid, units, grid))
        blocks = jnp.sum(units.reshape(BLOCK, -1), axis=0)
        from_grid = clip / (self.records * host.GRID[str(dtype)])
        return jnp.sum(blocks, dtype=jnp.float64) * from_grid

    def objective(self, state: jax.Array, theta: Vector) -> Reals:
        """F of the records that count. NOT PRIVATE."""
        is_record = jnp.arange(self.problem.offset.size) < self.records
        return self.problem.objective_at(state, theta, is_record)
