"""The first-order method behind `optimal_noise_table`, a lane a budget.

    min over laws x, max over lambda >= 0 of  c x + sum_k [<lambda_k, A_k x> - delta max lambda_k]

with A_k x = x - e^epsilon (x moved by k), and what comes from beyond the grid as one entry, has no
variables but these: the saddle point of the program of `program`. Steps: x onto the simplex,
lambda_k cut at the level above which lies sigma delta of it. Halpern's iteration of the reflected
step, restarted when the residual has fallen fivefold (Lu & Yang, restarted Halpern PDHG). What
stops it is a bracket: the multipliers' dual bound, and the law mixed with one that has delta to
spare. Both are taken again on the host, in rationals, before anything is reported.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Reals

_CHECK_EVERY = 64
_LEVEL_STEPS = 12


class Lane(NamedTuple):
    law: Reals  # (cells + 1,), the last beyond the grid
    dual: Reals  # (shifts, cells + 1), the last of what has no partner


class State(NamedTuple):
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


class Budgets(NamedTuple):
    growth: Reals
    delta: Reals
    safe: Reals  # (cells,)
    spare: Reals
    norm: Reals


class Costs(NamedTuple):
    nodes: Reals  # (cells + 1,)
    cells: Reals


def forward(x: Reals, growth: Reals, steps: int) -> Reals:
    n = x.size - 1
    place = jnp.arange(n)[None, :] - jnp.arange(1, steps + 1)[:, None]
    paired = place >= 0
    inner = x[None, :n] - growth * x[jnp.where(paired, place, 0)]
    outer = jnp.cumsum(x[:n])[jnp.minimum(jnp.arange(steps), n - 1)]
    outer = outer - 0.5 * (growth - 1.0) * x[n]
    return jnp.concatenate([jnp.where(paired, inner, 0.0), outer[:, None]], axis=1)


def backward(dual: Reals, growth: Reals) -> Reals:
    steps, n = dual.shape[0], dual.shape[1] - 1
    shifts = jnp.arange(1, steps + 1)[:, None]
    place = jnp.arange(n)[None, :] + shifts
    inner = jnp.where(jnp.arange(n)[None, :] >= shifts, dual[:, :n], 0.0)
    there = jnp.take_along_axis(inner, jnp.minimum(place, n - 1), axis=1)
    own = jnp.sum(inner - growth * jnp.where(place < n, there, 0.0), axis=0)
    outer = jnp.sum(jnp.where(jnp.arange(n)[None, :] < shifts, dual[:, n:], 0.0), axis=0)
    return jnp.append(own + outer, -0.5 * (growth - 1.0) * jnp.sum(dual[:, n]))


def _even(x: Reals) -> Reals:
    return jnp.append(0.5 * (x[:-1] + x[:-1][::-1]), x[-1])


@functools.partial(jax.jit, static_argnums=(1, 2))
def norms(growth: Reals, cells: int, steps: int) -> Reals:
    """An estimate of the operator's norm: a step that is too long shows in the bracket."""

    def one(g: Reals) -> Reals:
        def body(x: Reals, _: None) -> tuple[Reals, Reals]:
            y = _even(backward(forward(x, g, steps), g))
            size = jnp.linalg.norm(y)
            return y / size, size

        start = _even(jnp.cos(3.0 * jnp.arange(cells + 1.0)) + 0.1)
        return jnp.sqrt(lax.scan(body, start / jnp.linalg.norm(start), None, 60)[1][-1])

    return 1.05 * jax.vmap(one)(growth)


def onto_simplex(v: Reals) -> Reals:
    down = jnp.sort(v)[::-1]
    levels = (jnp.cumsum(down) - 1.0) / jnp.arange(1.0, v.size + 1.0)
    last = jnp.sum(down > levels) - 1
    return jnp.maximum(v - levels[last], 0.0)


def cut(y: Reals, amount: Reals) -> Reals:
    """Each row of y_+ cut at the level above which lies `amount`; 0 where there is less."""
    y = jnp.maximum(y, 0.0)

    def body(level: Reals, _: None) -> tuple[Reals, None]:
        above = y > level[:, None]
        held = jnp.sum(jnp.where(above, y, 0.0), axis=1) - amount
        return jnp.maximum(held / jnp.maximum(jnp.sum(above, axis=1), 1), 0.0), None

    level, _ = lax.scan(body, jnp.zeros(y.shape[0]), None, _LEVEL_STEPS)
    return jnp.minimum(y, level[:, None])


def _step(z: Lane, budget: Budgets, costs: Costs, weight: Reals) -> Lane:
    length = 0.99 / budget.norm
    slope = _even(costs.nodes + backward(z.dual, budget.growth))
    law = onto_simplex(z.law - length / weight * slope)
    ahead = forward(2.0 * law - z.law, budget.growth, z.dual.shape[0])
    dual = cut(z.dual + length * weight * ahead, length * weight * budget.delta)
    return Lane(law, dual)


def _bracket(z: Lane, budget: Budgets, costs: Costs) -> tuple[Reals, Reals, Reals]:
    """(lower, upper, law): of the multipliers; of the law, mixed until it keeps the budget."""
    reduced = _even(costs.nodes + backward(z.dual, budget.growth))
    lower = jnp.min(reduced) - budget.delta * jnp.sum(jnp.max(z.dual, axis=1))
    law = z.law[:-1] / jnp.sum(z.law[:-1])
    excess = forward(jnp.append(law, 0.0), budget.growth, z.dual.shape[0])
    over = jnp.max(jnp.sum(jnp.maximum(excess, 0.0), axis=1)) - budget.delta
    share = jnp.maximum(over, 0.0) / (jnp.maximum(over, 0.0) + budget.spare)
    law = (1.0 - share) * law + share * budget.safe
    return lower, jnp.sum(costs.cells * law), law


def _distance(a: Reals, b: Reals) -> Reals:
    return jnp.sqrt(jnp.sum((a - b) ** 2))


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def solve(budgets: Budgets, costs: Costs, steps: int, gap: float, most: int) -> State:
    cells = costs.cells.size

    def begin(budget: Budgets) -> State:
        z = Lane(jnp.append(budget.safe, 0.0), jnp.zeros((steps, cells + 1)))
        one = jnp.ones(())
        lower, upper, law = _bracket(z, budget, costs)
        return State(z, z, 0 * one, one, jnp.inf * one, 0 * one, lower, upper, z.dual, law)

    def advance(state: State, budget: Budgets) -> State:
        def inner(carry: tuple[Lane, Reals], _: None) -> tuple[tuple[Lane, Reals], None]:
            z, age = carry
            new = _step(z, budget, costs, state.weight)
            share = (age + 1.0) / (age + 2.0)
            z = jax.tree.map(
                lambda t, old, first: share * (2.0 * t - old) + (1.0 - share) * first,
                new,
                z,
                state.start,
            )
            return (z, age + 1.0), None

        (z, age), _ = lax.scan(inner, (state.now, state.age), None, _CHECK_EVERY)
        new = _step(z, budget, costs, state.weight)
        lower, upper, law = _bracket(new, budget, costs)
        moved_law, moved_dual = _distance(new.law, z.law), _distance(new.dual, z.dual)
        residual = jnp.sqrt(state.weight * moved_law**2 + moved_dual**2 / state.weight)
        again = (residual <= 0.2 * state.residual) | (age >= 0.36 * state.steps + 256.0)
        far_law, far_dual = (
            _distance(new.law, state.start.law),
            _distance(new.dual, state.start.dual),
        )
        known = (far_law > 1e-12) & (far_dual > 1e-12)
        ratio = jnp.where(known, far_dual, 1.0) / jnp.where(known, far_law, 1.0)
        weight = jnp.where(again & known, jnp.sqrt(ratio * state.weight), state.weight)
        start = jax.tree.map(lambda a, b: jnp.where(again, a, b), new, state.start)
        now = jax.tree.map(lambda a, b: jnp.where(again, a, b), new, z)
        first = jnp.isinf(state.residual)
        return State(
            now,
            start,
            jnp.where(again, 0.0, age),
            weight,
            jnp.where(again | first, residual, state.residual),
            state.steps + _CHECK_EVERY,
            jnp.maximum(lower, state.lower),
            jnp.minimum(upper, state.upper),
            jnp.where(lower > state.lower, new.dual, state.best_dual),
            jnp.where(upper < state.upper, law, state.best_law),
        )

    def open_lanes(state: State) -> Bools:
        wide = state.upper - state.lower > gap * jnp.maximum(1.0, state.upper)
        return wide & (state.steps < most)

    def body(state: State) -> State:
        new = jax.vmap(advance)(state, budgets)
        going = open_lanes(state)

        def keep(a: Reals, b: Reals) -> Reals:
            return jnp.where(going.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

        return jax.tree.map(keep, new, state)

    return lax.while_loop(lambda s: jnp.any(open_lanes(s)), body, jax.vmap(begin)(budgets))
