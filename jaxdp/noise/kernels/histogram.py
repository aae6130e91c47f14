"""Sums over the cells of a piecewise-constant density, all of whose masses are whole numbers.

Pieces: half cells left of 0, an atom at 0, half cells right of it, so that 0 is between two
cells whether their number is odd or even. Masses are whole and add up to 2^52 at most: every sum
of them is exact in double precision.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import ULP, log1m, log1p, round_up


class Cells(NamedTuple):
    """Masses of cells centred at 0 and of an atom there: whole numbers."""

    mass: Reals  # (cells,)
    atom: Reals


class Pieces(NamedTuple):
    """Mass, masses before and after, left end and length of each piece, from the left.

    Masses count half units; ends and lengths half cells.
    """

    mass: Reals
    before: Reals
    after: Reals
    start: Reals
    length: Reals
    total: Reals


def _last(row: Reals, like: Reals) -> Reals:
    """A vector as the last axis behind those of `like`."""
    return row[(None,) * like.ndim]


def pieces(cells: Cells) -> Pieces:
    """Half cells and, between the middle ones, the atom: masses, what lies before and after."""
    halves = jnp.repeat(cells.mass, 2)
    n = cells.mass.size
    mass = jnp.concatenate([halves[:n], 2.0 * cells.atom[None], halves[n:]])
    end, back = jnp.cumsum(mass), jnp.cumsum(mass[::-1])[::-1]
    length = jnp.ones(2 * n + 1).at[n].set(0.0)
    start = jnp.concatenate([jnp.arange(-1.0 * n, 0.0), jnp.zeros(1), jnp.arange(1.0 * n)])
    return Pieces(mass, end - mass, back - mass, start, length, end[-1])


@jax.jit
def log_density(width: Reals, cells: Cells, x: Reals) -> Reals:
    """Log of the density without the atom at 0; -inf beyond the cells."""
    width, x = jnp.broadcast_arrays(width, x)
    place = jnp.floor(x / width + 0.5 * cells.mass.size)
    inside = (place >= 0) & (place < cells.mass.size)
    mass = cells.mass[jnp.where(inside, place, 0.0).astype(int)]
    total = jnp.sum(cells.mass) + cells.atom
    value = jnp.where(inside, jnp.log(mass) - jnp.log(total) - jnp.log(width), -jnp.inf)
    return jnp.where(jnp.isnan(x + width), jnp.nan, value)


@jax.jit
def log_survival(width: Reals, cells: Cells, x: Reals) -> Reals:
    """log P[T > x], from the side on which less mass lies."""
    width, x = jnp.broadcast_arrays(width, x)
    all_pieces, n = pieces(cells), cells.mass.size
    place = jnp.clip(2.0 * (x / width), -1.0 * n, 1.0 * n)
    left = jnp.minimum(jnp.floor(place), n - 1.0)
    index = (left + n + jnp.where(x >= 0, 1.0, 0.0)).astype(int)
    mass, inner = all_pieces.mass[index], place - left
    below = all_pieces.before[index] + inner * mass
    above = all_pieces.after[index] + (1.0 - inner) * mass
    low = below < above
    complement = log1m(jnp.where(low, below, 0.0) / all_pieces.total)
    value = jnp.where(low, complement, jnp.log(above / all_pieces.total))
    return jnp.where(jnp.isnan(x + width), jnp.nan, value)


@jax.jit
def quantile(width: Reals, cells: Cells, u: Reals) -> Reals:
    """The inverse of the distribution function: 0 where u falls on the atom."""
    width, u = jnp.broadcast_arrays(width, u)
    all_pieces = pieces(cells)
    low = u <= 0.5
    below, above = u * all_pieces.total, (1.0 - u) * all_pieces.total
    # The first piece that ends at `below` or later, the last that begins at `above` or sooner.
    first = jnp.searchsorted(all_pieces.before + all_pieces.mass, below, side="left")
    later = jnp.searchsorted(-(all_pieces.after + all_pieces.mass), -above, side="right") - 1
    index = jnp.clip(jnp.where(low, first, later), 0, all_pieces.mass.size - 1)
    mass = all_pieces.mass[index]
    safe = jnp.where(mass > 0, mass, 1.0)
    lower = (below - all_pieces.before[index]) / safe
    upper = 1.0 - (above - all_pieces.after[index]) / safe
    inner = jnp.clip(jnp.where(low, lower, upper), 0.0, 1.0)
    value = all_pieces.start[index] + all_pieces.length[index] * inner
    end = 1.0 * cells.mass.size
    value = jnp.where(u == 0, -end, jnp.where(u == 1, end, value))
    return jnp.where(jnp.isnan(u + width), jnp.nan, 0.5 * width * value)


@jax.jit
def absolute_moment(width: Reals, cells: Cells, power: Reals) -> Reals:
    """Absolute moment by half cells [a, b]: (b^(p + 1) - a^(p + 1)) / (p + 1), each > 0."""
    width, power = jnp.broadcast_arrays(width, power)
    all_pieces, n = pieces(cells), cells.mass.size
    both = all_pieces.mass[n + 1 :] + all_pieces.mass[:n][::-1]
    order = power[..., None] + 1.0
    a = _last(jnp.arange(1.0, 1.0 * n), power)
    rest = jnp.exp(order * jnp.log(a)) * jnp.expm1(order * log1p(1.0 / a))
    ones = jnp.ones_like(order)
    each = jnp.concatenate([ones, rest], axis=-1) / order
    still = jnp.where(power == 0, all_pieces.mass[n], 0.0)
    still = jnp.where((power < 0) & (all_pieces.mass[n] > 0), jnp.inf, still)
    return (
        (0.5 * width) ** power
        * (jnp.sum(_last(both, power) * each, axis=-1) + still)
        / all_pieces.total
    )


def _overlaps(cells: Cells, k: Index, x: Reals, symmetric: bool) -> Reals:
    """sum_i (p_i - x p_(i - k))_+ and, unless it is the same, that of -k; without the atom."""
    n, none = cells.mass.size, jnp.zeros(cells.mass.size)
    mass = _last(cells.mass, x)

    def excess(padded: Reals, start: Index) -> Reals:
        other = lax.dynamic_slice(padded, (start,), (n,))
        return jnp.sum(jnp.maximum(mass - x[..., None] * _last(other, x), 0.0), axis=-1)

    forward = excess(jnp.concatenate([none, cells.mass]), n - k)
    if symmetric:
        return forward[None]
    return jnp.stack([forward, excess(jnp.concatenate([cells.mass, none]), k)])


def _ratio(width: Reals, shift: Reals) -> Reals:
    """shift / width, rounded up; a positive one does not underflow to 0."""
    ratio = round_up(shift / width, 2)
    lost = (ratio == 0) & (shift > 0) & jnp.isfinite(width)
    return jnp.where(lost, 4.0 * jnp.finfo(jnp.float64).tiny, ratio)


@functools.partial(jax.jit, static_argnums=(4, 5))
def log_delta(
    width: Reals, cells: Cells, shift: Reals, epsilon: Reals, steps: int, symmetric: bool
) -> Reals:
    """The largest excess over shifts up to `shift`, an upper bound; `steps` >= shift / width."""
    width, shift, epsilon = jnp.broadcast_arrays(width, shift, epsilon)
    ratio = _ratio(width, shift)
    cell = lax.stop_gradient(jnp.floor(jnp.minimum(ratio, 1.0 * cells.mass.size)))
    part = jnp.clip(ratio - cell, 0.0, 1.0)
    size = jnp.abs(epsilon)
    # Smaller than e^epsilon by more than the rounding of it and of a product with a mass.
    x = jnp.exp(jnp.minimum(size, 600.0)) * (1.0 - 8.0 * ULP)
    cells_only = jnp.sum(cells.mass)
    total = cells_only + cells.atom

    def body(state: tuple[Reals, Reals, Reals, Reals], k: Index):
        worst, here, there, before = state
        now = _overlaps(cells, k, x, symmetric)
        most = jnp.max(now, axis=0) + cells.atom
        worst = jnp.where(k <= cell, jnp.maximum(worst, most), worst)
        here = jnp.where((k - 1 == cell)[None], before, here)
        there = jnp.where((k - 1 == cell)[None], now, there)
        return (worst, here, there, now), None

    none = jnp.stack([0.0 * x] * (1 if symmetric else 2))
    start = (none[0], none, cells_only + none, none)
    (worst, here, there, _), _ = lax.scan(body, start, jnp.arange(1, steps + 1))
    between = jnp.max((1.0 - part)[None] * here + part[None] * there, axis=0) + cells.atom
    value = jnp.where(ratio > cell, jnp.maximum(worst, between), worst)
    value = jnp.where(cell >= cells.mass.size, total, value)
    # A share of a cell that may be as small as a double can hold: not multiplied.
    small = (cell == 0) & (part > 0) & (cells.atom == 0)
    factor = jnp.where(small, part, 1.0)
    amount = (
        jnp.where(small, jnp.max(there, axis=0), value)
        / total
        * (1.0 + (16.0 + cells.mass.size) * ULP)
    )
    log_value = jnp.minimum(round_up(jnp.log(factor) + jnp.log(amount), 2), 0.0)
    log_value = jnp.where(epsilon < 0, mirrored(jnp.minimum(factor * amount, 1.0), size), log_value)
    return jnp.where(jnp.isnan(ratio + epsilon), jnp.nan, log_value)


def mirrored(delta: Reals, size: Reals) -> Reals:
    """log of delta(-size) = 1 - e^-size (1 - delta(size)), rounded up."""
    low = -jnp.expm1(-size) + jnp.exp(-size) * delta
    complement = (1.0 - delta) * jnp.exp(-size) * (1.0 - 8.0 * ULP)
    near_one = low > 0.5
    high = log1m(jnp.where(near_one, complement, 0.0))
    value = jnp.where(near_one, high, jnp.log(jnp.where(near_one, 1.0, low)))
    return jnp.minimum(round_up(value, 8), 0.0)
