"""The pieces of the saddle point that `halpern` solves: the operator of all shifts, the cuts.

A vector holds the masses of n cells, that beyond the grid and the atom at 0; a row of the
multipliers, one for each shift, holds those of the cells with a partner, of the event of all
others, and of the atom. Reshapes instead of gathers: a gather of this size costs more than the sum.
"""

import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Reals


def moved(x: Reals, steps: int) -> Reals:
    """Row k - 1 is x moved up by k places, zeros coming in; without gathers."""
    n = x.size
    row = jnp.concatenate([x, jnp.zeros(steps + 1)])
    tiled = jnp.tile(row, steps + 1)[: (steps + 1) * (n + steps)]
    return tiled.reshape(steps + 1, n + steps)[1:, :n]


def unmoved(rows: Reals) -> Reals:
    """Row k - 1 is that of `rows` moved down by k places: the transpose, row by row."""
    steps, n = rows.shape
    wide = jnp.concatenate([jnp.zeros((1, n)), rows])
    wide = jnp.pad(wide, ((0, 0), (0, steps + 1))).reshape(-1)
    wide = jnp.pad(wide, (0, steps + 1)).reshape(steps + 1, n + steps + 2)
    return wide[1:, :n]


def paired(steps: int, cells: int) -> Bools:
    return jnp.arange(cells)[None, :] >= jnp.arange(1, steps + 1)[:, None]


def forward(x: Reals, growth: Reals, steps: int) -> Reals:
    """x_i - growth x_(i - k); what has no partner less the rise of what is beyond; the atom."""
    n = x.size - 2
    cells, beyond, atom = x[:n], x[n], x[n + 1]
    inner = jnp.where(paired(steps, n), cells[None, :] - growth * moved(cells, steps), 0.0)
    ends = jnp.cumsum(cells)[jnp.minimum(jnp.arange(steps), n - 1)]
    outer = ends - 0.5 * (growth - 1.0) * beyond
    return jnp.concatenate([inner, outer[:, None], jnp.full((steps, 1), atom)], axis=1)


def backward(dual: Reals, growth: Reals) -> Reals:
    """The transpose of `forward`."""
    steps, n = dual.shape[0], dual.shape[1] - 2
    known = paired(steps, n)
    inner = jnp.where(known, dual[:, :n], 0.0)
    own = jnp.sum(jnp.where(known, inner, dual[:, n : n + 1]) - growth * unmoved(inner), axis=0)
    beyond, atom = -0.5 * (growth - 1.0) * jnp.sum(dual[:, n]), jnp.sum(dual[:, n + 1])
    return jnp.concatenate([own, beyond[None], atom[None]])


def level_of(y: Reals, unit: Reals, amount: float | Reals, level: Reals, count: int) -> Reals:
    """Along the last axis the level with sum of unit (y - level unit)_+ = `amount`, by Newton.

    From any `level`: the first step lands below the root, the others rise to it, and the end is
    exact once the entries above it are known. Entries of -inf stay out.
    """
    known = y > -jnp.inf
    square, first = jnp.where(known, unit * unit, 0.0), jnp.where(known, unit * y, 0.0)
    lowest = (jnp.sum(first, axis=-1) - amount) / jnp.sum(square, axis=-1)

    def body(level: Reals, _: None) -> tuple[Reals, None]:
        above = y > level[..., None] * unit
        number = jnp.sum(jnp.where(above, square, 0.0), axis=-1)
        held = jnp.sum(jnp.where(above, first, 0.0), axis=-1) - amount
        return jnp.where(number > 0, held / jnp.where(number > 0, number, 1.0), lowest), None

    return lax.scan(body, level, None, count)[0]


def cut(
    y: Reals, unit: Reals, amount: float | Reals, level: Reals, count: int
) -> tuple[Reals, Reals]:
    """min(y_+, level unit) row by row, with sum of unit (y_+ - level unit)_+ = `amount`, or 0."""
    y = jnp.maximum(y, 0.0)
    level = jnp.maximum(level_of(y, unit, amount, level, count), 0.0)
    return jnp.minimum(y, level[:, None] * unit), level
