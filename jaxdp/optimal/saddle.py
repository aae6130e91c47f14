"""The pieces of the saddle point that `halpern` solves: the operator of all shifts, the cuts.

A vector holds the masses of n cells, that beyond the grid and the atom at 0; a row of the
multipliers, one for each shift, holds those of the cells with a partner, of the event of all
others, and of the atom. Reshapes instead of gathers: a gather of this size costs more than the sum.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Bools, Reals


def moved(x: Reals, steps: int) -> Reals:
    """Row k - 1 is x moved up by k places, zeros coming in; without gathers."""
    n = x.size
    row = jnp.concatenate([x, jnp.zeros(steps + 1)])
    tiled = jnp.tile(row, steps + 1)[: (steps + 1) * (n + steps)]
    return tiled.reshape(steps + 1, n + steps)[1:, :n]


def unmoved(rows: Reals) -> Reals:
    """Row k - 1 is that of `rows` moved down by k places: the transpose, row by row."""
    steps, n = rows.shape
    padded = jnp.concatenate([jnp.zeros((1, n)), rows])
    padded = jnp.pad(padded, ((0, 0), (0, steps + 1))).reshape(-1)
    padded = jnp.pad(padded, (0, steps + 1)).reshape(steps + 1, n + steps + 2)
    return padded[1:, :n]


def paired(steps: int, cells: int) -> Bools:
    """(shifts, cells): whether the cell has a partner k cells before it, k = 1..steps."""
    return jnp.arange(cells)[None, :] >= jnp.arange(1, steps + 1)[:, None]


def forward(x: Reals, growth: Reals, steps: int) -> Reals:
    """x_i - growth x_(i - k); what has no partner less the rise of what is beyond; the atom."""
    n = x.size - 2
    cells, past_ends, atom = x[:n], x[n], x[n + 1]
    inner = jnp.where(paired(steps, n), cells[None, :] - growth * moved(cells, steps), 0.0)
    ends = jnp.cumsum(cells)[jnp.minimum(jnp.arange(steps), n - 1)]
    outer = ends - 0.5 * (growth - 1.0) * past_ends
    return jnp.concatenate([inner, outer[:, None], jnp.full((steps, 1), atom)], axis=1)


def backward(dual: Reals, growth: Reals) -> Reals:
    """The transpose of `forward`."""
    steps, n = dual.shape[0], dual.shape[1] - 2
    pairs = paired(steps, n)
    inner = jnp.where(pairs, dual[:, :n], 0.0)
    terms = jnp.where(pairs, inner, dual[:, n : n + 1]) - growth * unmoved(inner)
    of_cells = jnp.sum(terms, axis=0)
    of_ends, atom = -0.5 * (growth - 1.0) * jnp.sum(dual[:, n]), jnp.sum(dual[:, n + 1])
    return jnp.concatenate([of_cells, of_ends[None], atom[None]])


class Budgets(NamedTuple):
    """Arrays that the saddle point of one budget is made of."""

    growth: Reals
    delta: Reals
    safe: Reals  # (cells,)
    spare: Reals
    unit: Reals  # (cells + 2,): how much mass is expected
    row_unit: Reals  # (shifts, cells + 2): and how much in each entry of A_k x
    norm: Reals


def symmetrised(x: Reals) -> Reals:
    """The mean of a law (cells, beyond, atom) and its mirror image."""
    return jnp.concatenate([0.5 * (x[:-2] + x[:-2][::-1]), x[-2:]])


@functools.partial(jax.jit, static_argnums=4)
def budgets_of(growth: Reals, delta: Reals, safe: Reals, spare: Reals, steps: int) -> Budgets:
    """Budgets of the lanes, with scales that follow the law that is known to be safe.

    With these scales the entries of the operator are at most 1, whatever e^epsilon is.
    """

    def one(g: Reals, delta: Reals, safe: Reals, spare: Reals) -> Budgets:
        unit = jnp.concatenate([safe, safe[:1], delta[None]])
        n = safe.size
        inner = jnp.maximum(safe[None, :], g * moved(safe, steps))
        ends = jnp.cumsum(safe)[jnp.minimum(jnp.arange(steps), n - 1)]
        outer = jnp.maximum(ends, 0.5 * (g - 1.0) * safe[0])
        row_unit = jnp.concatenate([inner, outer[:, None], jnp.full((steps, 1), delta)], axis=1)
        budget = Budgets(g, delta, safe, spare, unit, row_unit, jnp.ones(()))
        return budget._replace(norm=_norm(budget))

    return jax.vmap(one)(growth, delta, safe, spare)


def _norm(budget: Budgets) -> Reals:
    """An estimate of the operator's norm: a step that is too long shows in the bracket."""

    def body(x: Reals, _: None) -> tuple[Reals, Reals]:
        y = apply_transpose(apply_operator(x, budget), budget)
        size = jnp.linalg.norm(y)
        return y / size, size

    start = jnp.cos(3.0 * jnp.arange(1.0 * budget.unit.size)) + 1.1
    return 1.05 * jnp.sqrt(lax.scan(body, start / jnp.linalg.norm(start), None, 60)[1][-1])


def apply_operator(law: Reals, budget: Budgets) -> Reals:
    """A x in units in which all entries are about as large."""
    steps = budget.row_unit.shape[0]
    return forward(law * budget.unit, budget.growth, steps) / budget.row_unit


def apply_transpose(dual: Reals, budget: Budgets) -> Reals:
    """The transpose of `rise`, of even laws."""
    return symmetrised(budget.unit * backward(dual / budget.row_unit, budget.growth))


def level_of(y: Reals, unit: Reals, amount: float | Reals, level: Reals, count: int) -> Reals:
    """Along the last axis the level with sum of unit (y - level unit)_+ = `amount`, by Newton.

    From any `level`: the first step lands below the root, the others rise to it, and the end is
    exact once the entries above it are known. Entries of -inf stay out.
    """
    is_finite = y > -jnp.inf
    square, first = jnp.where(is_finite, unit * unit, 0.0), jnp.where(is_finite, unit * y, 0.0)
    lowest = (jnp.sum(first, axis=-1) - amount) / jnp.sum(square, axis=-1)

    def body(level: Reals, _: None) -> tuple[Reals, None]:
        above = y > level[..., None] * unit
        number = jnp.sum(jnp.where(above, square, 0.0), axis=-1)
        excess = jnp.sum(jnp.where(above, first, 0.0), axis=-1) - amount
        return jnp.where(number > 0, excess / jnp.where(number > 0, number, 1.0), lowest), None

    return lax.scan(body, level, None, count)[0]


def project_rows(
    y: Reals, unit: Reals, amount: float | Reals, level: Reals, count: int
) -> tuple[Reals, Reals]:
    """min(y_+, level unit) row by row, with sum of unit (y_+ - level unit)_+ = `amount`, or 0."""
    y = jnp.maximum(y, 0.0)
    level = jnp.maximum(level_of(y, unit, amount, level, count), 0.0)
    return jnp.minimum(y, level[:, None] * unit), level
