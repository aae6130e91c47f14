"""Sums over the cells of a piecewise-constant density.

Pieces: half cells left of 0, an atom at 0, half cells right of it, so that 0 is between two
cells whether their number is odd or even.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import lax, updated, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import ULP, log1m, log1p, round_up
from jaxdp.noise.base import mirrored_log_delta, ratio_of


class Cells(NamedTuple):
    """Probabilities of cells centred at 0 and of an atom there, each rounded once."""

    mass: Reals  # (cells,)
    atom: Reals
    before: Reals  # of each piece, the probability left of it
    after: Reals
    lost: Reals  # an upper bound on the masses that underflowed


class Pieces(NamedTuple):
    """Probability, left end and length of each piece, from the left, in half cells."""

    mass: Reals
    start: Reals
    length: Reals


def _last(row: Reals, like: Reals) -> Reals:
    """A vector as the last axis behind the axes of `like`."""
    return row[(None,) * like.ndim]


def pieces(cells: Cells) -> Pieces:
    """Half cells and, between the middle ones, the atom."""
    halves = xp.repeat(0.5 * cells.mass, 2)
    n = cells.mass.size
    mass = xp.concatenate([halves[:n], cells.atom[None], halves[n:]])
    length = updated(xp.ones(2 * n + 1), n, 0.0)
    start = xp.concatenate([xp.arange(-1.0 * n, 0.0), xp.zeros(1), xp.arange(1.0 * n)])
    return Pieces(mass, start, length)


@jitted
def log_density(width: Reals, cells: Cells, x: Reals) -> Reals:
    """Log of the density without the atom at 0; -inf beyond the cells."""
    width, x = xp.broadcast_arrays(width, x)
    place = xp.floor(x / width + 0.5 * cells.mass.size)
    inside = (place >= 0) & (place < cells.mass.size)
    mass = cells.mass[xp.where(inside, place, 0.0).astype(int)]
    value = xp.where(inside, xp.log(mass) - xp.log(width), -xp.inf)
    return xp.where(xp.isnan(x + width), xp.nan, value)


@jitted
def log_survival(width: Reals, cells: Cells, x: Reals) -> Reals:
    """log P[T > x], from the side on which less mass lies."""
    width, x = xp.broadcast_arrays(width, x)
    all_pieces, n = pieces(cells), cells.mass.size
    place = xp.clip(2.0 * (x / width), -1.0 * n, 1.0 * n)
    left = xp.minimum(xp.floor(place), n - 1.0)
    index = (left + n + xp.where(x >= 0, 1.0, 0.0)).astype(int)
    mass, inner = all_pieces.mass[index], place - left
    below = cells.before[index] + inner * mass
    above = cells.after[index] + (1.0 - inner) * mass
    low = below < above
    value = xp.where(low, log1m(xp.where(low, below, 0.0)), xp.log(above))
    return xp.where(xp.isnan(x + width), xp.nan, value)


@jitted
def quantile(width: Reals, cells: Cells, u: Reals) -> Reals:
    """The inverse of the distribution function: 0 where u falls on the atom."""
    width, u = xp.broadcast_arrays(width, u)
    all_pieces = pieces(cells)
    low = u <= 0.5
    above = 1.0 - u
    # The first piece that ends at u or later, the last that begins at 1 - u or sooner.
    ends = xp.append(cells.before[1:], 1.0)
    first = xp.searchsorted(ends, u, side="left")
    later = xp.searchsorted(-xp.append(1.0, cells.after[:-1]), -above, side="right") - 1
    index = xp.clip(xp.where(low, first, later), 0, all_pieces.mass.size - 1)
    mass = all_pieces.mass[index]
    safe = xp.where(mass > 0, mass, 1.0)
    lower = (u - cells.before[index]) / safe
    upper = 1.0 - (above - cells.after[index]) / safe
    inner = xp.clip(xp.where(low, lower, upper), 0.0, 1.0)
    value = all_pieces.start[index] + all_pieces.length[index] * inner
    end = 1.0 * cells.mass.size
    value = xp.where(u == 0, -end, xp.where(u == 1, end, value))
    return xp.where(xp.isnan(u + width), xp.nan, 0.5 * width * value)


@jitted
def absolute_moment(width: Reals, cells: Cells, power: Reals) -> Reals:
    """Absolute moment by half cells [a, b]: (b^(p + 1) - a^(p + 1)) / (p + 1), each > 0."""
    width, power = xp.broadcast_arrays(width, power)
    all_pieces, n = pieces(cells), cells.mass.size
    both = all_pieces.mass[n + 1 :] + all_pieces.mass[:n][::-1]
    order = power[..., None] + 1.0
    a = _last(xp.arange(1.0, 1.0 * n), power)
    rest = xp.exp(order * xp.log(a)) * xp.expm1(order * log1p(1.0 / a))
    ones = xp.ones_like(order)
    each = xp.concatenate([ones, rest], axis=-1) / order
    still = xp.where(power == 0, all_pieces.mass[n], 0.0)
    still = xp.where((power < 0) & (all_pieces.mass[n] > 0), xp.inf, still)
    total = xp.sum(_last(both, power) * each, axis=-1) + still
    return (0.5 * width) ** power * total


def _overlaps(cells: Cells, k: Index, x: Reals, symmetric: bool) -> Reals:
    """sum_i (p_i - x p_(i - k))_+, for -k too unless it is the same; without the atom."""
    n, none = cells.mass.size, xp.zeros(cells.mass.size)
    mass = _last(cells.mass, x)

    def excess(padded: Reals, start: Index) -> Reals:
        other = lax.dynamic_slice(padded, (start,), (n,))
        return xp.sum(xp.maximum(mass - x[..., None] * _last(other, x), 0.0), axis=-1)

    forward = excess(xp.concatenate([none, cells.mass]), n - k)
    if symmetric:
        return forward[None]
    return xp.stack([forward, excess(xp.concatenate([cells.mass, none]), k)])


@functools.partial(jitted, static_argnums=(4, 5))
def log_delta(
    width: Reals, cells: Cells, shift: Reals, epsilon: Reals, steps: int, symmetric: bool
) -> Reals:
    """The largest excess over shifts up to `shift`, an upper bound; `steps` >= shift / width."""
    width, shift, epsilon = xp.broadcast_arrays(width, shift, epsilon)
    ratio = round_up(ratio_of(shift, width), 2)
    cell = lax.stop_gradient(xp.floor(xp.minimum(ratio, 1.0 * cells.mass.size)))
    part = xp.clip(ratio - cell, 0.0, 1.0)
    size = xp.abs(epsilon)
    # Smaller than e^epsilon by more than the rounding of it, of masses and of their product.
    x = xp.exp(xp.minimum(size, 600.0)) * (1.0 - 8.0 * ULP)

    def body(state: tuple[Reals, Reals, Reals, Reals], k: Index):
        worst, here, there, before = state
        now = _overlaps(cells, k, x, symmetric)
        most = xp.max(now, axis=0) + cells.atom
        worst = xp.where(k <= cell, xp.maximum(worst, most), worst)
        here = xp.where((k - 1 == cell)[None], before, here)
        there = xp.where((k - 1 == cell)[None], now, there)
        return (worst, here, there, now), None

    none = xp.stack([0.0 * x] * (1 if symmetric else 2))
    start = (none[0], none, xp.sum(cells.mass) + none, none)
    (worst, here, there, _), _ = lax.scan(body, start, xp.arange(1, steps + 1))
    between = xp.max((1.0 - part)[None] * here + part[None] * there, axis=0) + cells.atom
    value = xp.where(ratio > cell, xp.maximum(worst, between), worst)
    value = xp.where(cell >= cells.mass.size, 1.0, value)
    # A share of a cell that may be as small as a double can hold: not multiplied.
    small = (cell == 0) & (part > 0) & (cells.atom == 0)
    factor = xp.where(small, part, 1.0)
    amount = xp.where(small, xp.max(there, axis=0), value)
    amount = amount * (1.0 + (16.0 + cells.mass.size) * ULP) + cells.lost
    log_value = xp.minimum(round_up(xp.log(factor) + xp.log(amount), 2), 0.0)
    log_value = xp.where(epsilon < 0, mirrored_log_delta(log_value, size, 1.0), log_value)
    return xp.where(xp.isnan(ratio + epsilon), xp.nan, log_value)
