"""The programs of coordinate descent, for accelerators, batches and traces.

Epsilon and n decide the numbers of passes and records, and a program for each pair would take
seconds to compile. So updates and records are padded, and their true numbers are arguments. Padded
updates do not run and padded records enter no sum: the guarantee of the plan, with its own number
of passes, holds.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.random_key import key_for
from jaxdp._core.types import Key, Reals, Vector
from jaxdp.noise.base import Noise
from jaxdp.noise.kernels.whole_draws import padded_size
from jaxdp.solvers import lattice
from jaxdp.solvers.coordinate_descent.host import GRID
from jaxdp.solvers.coordinate_descent.plan import Plan
from jaxdp.solvers.lattice import Added
from jaxdp.solvers.padding import BLOCK
from jaxdp.solvers.problems import Problem

# Static arguments: each value compiles a program.
_WORDS = ("updates", "private", "average", "trace")


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
    missing = max(padded_size(passes * updates), lattice.PART) - passes * updates
    sequence = lib.reshape(lib.asarray(plan.sequence), (*batch, -1))
    pace = lib.repeat(lib.asarray(plan.pace), updates, axis=-1)
    if is_padded:
        widths = [*((0, 0) for _ in batch), (0, missing)]
        sequence, pace = lib.pad(sequence, widths), lib.pad(pace, widths)
    return Row(sequence, pace, plan.steps, plan.clip, plan.sensitivities, plan.scales, plan.noise)


def sizes(problem: Problem, plan: Plan) -> tuple[np.int64, np.int64]:
    """Numbers of passes and records, arguments of the compiled programs."""
    return np.int64(plan.sequence.shape[-2]), np.int64(problem.design.shape[-1])


def kind_of(plan: Plan, trace: bool = False) -> dict[str, Any]:
    """Words of a plan, and its updates a pass: a program each."""
    words = {"updates": plan.sequence.shape[-1], "private": plan.records is not None}
    return words | {"average": plan.iterate == "average", "trace": trace}


def first(array: Reals, count: int) -> Reals:
    """The first entries; of known ones on the host, as a slice would be compiled."""
    if checks.is_concrete(array):
        return jax.device_put(np.ravel(array)[:count])
    return array.ravel()[:count]


@partial(jax.jit, static_argnames=("chunk", "release", *_WORDS))
def many(
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
        return descend(problem, row, start, noise, passes, records, **kind)[0]

    return lax.map(chain, (rows, keys), batch_size=None if chunk == 1 else chunk)


def drawn(row: Row, key: Key, release: str) -> Added:
    """The noise of each update; of those that are padded too, where it is not used."""
    visited = xp.take(row.scales, row.sequence)
    ratios = xp.take(row.sensitivities, row.sequence) / visited
    shape, key = row.sequence.shape, key_for("noise", key)
    noise, step = lattice.added(row.noise, visited, ratios, key, shape, release)
    return Added(noise, xp.broadcast_to(step, shape))


@partial(jax.jit, static_argnames=_WORDS)
def descend(
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
    grid = jnp.asarray(GRID[str(dtype)], dtype)
    to_grid = (grid / clip).astype(dtype)
    from_grid = clip / (records * GRID[str(dtype)])

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
