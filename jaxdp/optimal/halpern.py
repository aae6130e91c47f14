"""The first-order method behind `optimal_noise_table`, two lanes a budget.

    min over laws x, max over lambda >= 0 of  c x + sum_k [<lambda_k, A_k x> - delta max lambda_k]

with A_k x = x - e^epsilon (x moved by k), has no variables but these: the saddle point of the
program of `program`. Two more entries of x are the mass beyond the grid, whose events are one
entry of A_k x, and the atom at 0, another. A lane bars one of the two by an infinite cost: what
lies beyond belongs to the lower bound, the atom to the upper one. Steps: x onto the simplex,
lambda_k cut at the level above which lies sigma delta of it. Halpern's iteration of the reflected
step, restarted when the residual has fallen fivefold (Lu & Yang, restarted Halpern PDHG). What
stops it is a bracket: the multipliers' dual bound, and the law mixed with one that has delta to
spare. Both are taken again on the host, in rationals, before anything is reported.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Bools, Reals
from jaxdp.optimal.saddle import (
    Budgets,
    apply_operator,
    apply_transpose,
    backward,
    forward,
    level_of,
    project_rows,
    symmetrised,
)

# Steps from one look at the brackets to the next. chosen: a look is dearer than a step
_CHECK_EVERY = 64
# Steps of the search for a level, which begins at the last one. chosen: it hardly moves
_LEVEL_STEPS = 4
# Index of the copy of a lane that looks for the lower bound of the loss.
_LOWER = 0
# Of the copy that looks for the upper bound.
_UPPER = 1
# A lane whose own bracket is this part of the gap gains nothing more. chosen: far below the gap
_CLOSED = 0.02
# Batches of so few lanes are not halved. chosen: each size is compiled anew
_SMALL = 8


class Lane(NamedTuple):
    """Law and multipliers of a lane, in units of `Budgets.unit` and of one over `row_unit`."""

    law: Reals  # (cells + 2,): the last two beyond the grid, at 0
    dual: Reals  # (shifts, cells + 2): the last two of what has no partner, of the atom
    low: Reals  # where the law was cut from below
    high: Reals  # (shifts,): where each row of the dual was cut from above


class State(NamedTuple):
    """State of the iteration: where it is, where its epoch began, and the best bounds so far."""

    now: Lane
    start: Lane
    age: Reals
    weight: Reals
    residual: Reals
    steps: Reals
    lower: Reals
    upper: Reals
    best_dual: Reals
    best_law: Reals


def _step(z: Lane, budget: Budgets, cost: Reals, weight: Reals) -> Lane:
    length = 0.99 / budget.norm
    v = z.law - length / weight * (budget.unit * cost + apply_transpose(z.dual, budget))
    low = level_of(v, budget.unit, 1.0, z.low, _LEVEL_STEPS)
    law = jnp.maximum(v - low * budget.unit, 0.0)
    v = z.dual + length * weight * apply_operator(2.0 * law - z.law, budget)
    dual, high = project_rows(
        v, budget.row_unit, length * weight * budget.delta, z.high, _LEVEL_STEPS
    )
    return Lane(law, dual, low, high)


def _bracket(z: Lane, budget: Budgets, cost: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    """(lower, upper, multipliers, law), the law mixed until it keeps the budget."""
    dual = z.dual / budget.row_unit
    reduced = symmetrised(cost + backward(dual, budget.growth))
    lower = jnp.min(reduced) - budget.delta * jnp.sum(jnp.max(dual, axis=1))
    law = (z.law * budget.unit).at[-2].set(0.0)
    law = law / jnp.sum(law)
    excess = forward(law, budget.growth, z.dual.shape[0])
    excess_delta = jnp.max(jnp.sum(jnp.maximum(excess, 0.0), axis=1)) - budget.delta
    share = jnp.maximum(excess_delta, 0.0) / (jnp.maximum(excess_delta, 0.0) + budget.spare)
    law = (1.0 - share) * law + share * jnp.pad(budget.safe, (0, 2))
    upper = jnp.sum(jnp.where(law > 0, law, 0.0) * jnp.where(jnp.isinf(cost), 0.0, cost))
    return lower, upper, dual, law


def _distance(a: Reals, b: Reals) -> Reals:
    return jnp.sqrt(jnp.sum((a - b) ** 2))


def _advance(state: State, budget: Budgets, cost: Reals) -> State:
    def inner(carry: tuple[Lane, Reals], _: None) -> tuple[tuple[Lane, Reals], None]:
        z, age = carry
        z_next = _step(z, budget, cost, state.weight)
        share = (age + 1.0) / (age + 2.0)

        def reflected(t: Reals, previous: Reals, first: Reals) -> Reals:
            return share * (2.0 * t - previous) + (1.0 - share) * first

        law = reflected(z_next.law, z.law, state.start.law)
        dual = reflected(z_next.dual, z.dual, state.start.dual)
        return (Lane(law, dual, z_next.low, z_next.high), age + 1.0), None

    (z, age), _ = lax.scan(inner, (state.now, state.age), None, _CHECK_EVERY)
    following = _step(z, budget, cost, state.weight)
    lower, upper, multipliers, law = _bracket(following, budget, cost)
    moved_law, moved_dual = _distance(following.law, z.law), _distance(following.dual, z.dual)
    residual = jnp.sqrt(state.weight * moved_law**2 + moved_dual**2 / state.weight)
    restart = (residual <= 0.2 * state.residual) | (age >= 0.36 * state.steps + 256.0)
    far_law = _distance(following.law, state.start.law)
    far_dual = _distance(following.dual, state.start.dual)
    has_moved = (far_law > 1e-12) & (far_dual > 1e-12)
    ratio = jnp.where(has_moved, far_dual, 1.0) / jnp.where(has_moved, far_law, 1.0)
    weight = jnp.where(restart & has_moved, jnp.sqrt(ratio * state.weight), state.weight)

    def restarted(a: Lane, b: Lane) -> Lane:
        return jax.tree.map(lambda x, y: jnp.where(restart, x, y), a, b)

    return State(
        restarted(following, z),
        restarted(following, state.start),
        jnp.where(restart, 0.0, age),
        weight,
        jnp.where(restart | jnp.isinf(state.residual), residual, state.residual),
        state.steps + _CHECK_EVERY,
        jnp.maximum(lower, state.lower),
        jnp.minimum(upper, state.upper),
        jnp.where(lower > state.lower, multipliers, state.best_dual),
        jnp.where(upper < state.upper, law, state.best_law),
    )


@jax.jit
def started(budgets: Budgets, costs: Reals) -> State:
    """Lanes (budgets, 2): with costs[0] the program of lower bounds, with costs[1] of upper."""

    def begin(budget: Budgets, cost: Reals) -> State:
        law = jnp.pad(jnp.ones(budget.safe.size), (0, 2))
        dual = jnp.zeros_like(budget.row_unit)
        z = Lane(law, dual, jnp.zeros(()), jnp.zeros(dual.shape[0]))
        unit = jnp.ones(())
        lower, upper, _, law = _bracket(z, budget, cost)
        # Multipliers are losses, the law is of order 1 in its units.
        return State(z, z, 0 * unit, upper, jnp.inf * unit, 0 * unit, lower, upper, z.dual, law)

    return jax.vmap(jax.vmap(begin, in_axes=(None, 0)), in_axes=(0, None))(budgets, costs)


def open_lanes(state: State, gap: Reals, max_steps: Reals) -> Bools:
    """A budget's lanes go on while its bracket is wide, and their own may be why."""
    allowed = gap * jnp.maximum(1.0, state.upper)
    is_wide = state.upper[:, _UPPER] - state.lower[:, _LOWER] > allowed[:, _UPPER]
    loose = state.upper - state.lower > _CLOSED * allowed
    return is_wide[:, None] & loose & (state.steps < max_steps)


@jax.jit
def advanced(
    state: State, budgets: Budgets, costs: Reals, gap: Reals, max_steps: Reals, few: Reals
) -> tuple[State, Bools]:
    """The lanes when at most `few` budgets are open, and which are."""
    advance = jax.vmap(jax.vmap(_advance, in_axes=(0, None, 0)), in_axes=(0, 0, None))

    def unfinished(state: State) -> Bools:
        return jnp.any(open_lanes(state, gap, max_steps), axis=1)

    def body(state: State) -> State:
        advanced_state, going = advance(state, budgets, costs), open_lanes(state, gap, max_steps)

        def keep(a: Reals, b: Reals) -> Reals:
            return jnp.where(going.reshape(*going.shape, *(1,) * (a.ndim - 2)), a, b)

        return jax.tree.map(keep, advanced_state, state)

    state = lax.while_loop(lambda s: jnp.sum(unfinished(s)) > few, body, state)
    return state, unfinished(state)


class SaddlePoints(NamedTuple):
    """Results for each budget: multipliers of its first lane, law of its second, steps."""

    duals: np.ndarray
    laws: np.ndarray
    steps: np.ndarray


def solve(budgets: Budgets, costs: Reals, gap: float, max_steps: int) -> SaddlePoints:
    """All budgets; when half of them are done the others go on alone, in a smaller batch."""
    state = started(budgets, costs)
    open_budgets = np.arange(budgets.growth.size)
    results: dict[int, tuple[np.ndarray, np.ndarray, float]] = {}
    limits = jnp.asarray(gap), jnp.asarray(1.0 * max_steps)
    while open_budgets.size:
        few = open_budgets.size // 2 if open_budgets.size > _SMALL else 0
        state, going = advanced(state, budgets, costs, *limits, jnp.asarray(1.0 * few))
        open_now = np.asarray(going)
        duals, laws, steps = (np.asarray(x) for x in (state.best_dual, state.best_law, state.steps))
        for i in np.flatnonzero(~open_now):
            # A place that was filled with a copy was there before.
            results.setdefault(
                int(open_budgets[i]), (duals[i, _LOWER], laws[i, _UPPER], float(steps[i].max()))
            )
        # A batch of a few sizes, the last lane repeated: each size is compiled once.
        places = np.flatnonzero(open_now)
        if places.size:
            places = np.pad(places, (0, few - places.size), mode="edge")
        open_budgets = open_budgets[places]
        state, budgets = jax.tree.map(lambda x, k=places: x[k], (state, budgets))
    rows = [results[i] for i in range(len(results))]
    return SaddlePoints(
        np.stack([row[0] for row in rows]),
        np.stack([row[1] for row in rows]),
        np.array([row[2] for row in rows]),
    )
