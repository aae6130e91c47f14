"""Noise with a piecewise-constant density on a uniform grid, as linear programming designs it.

Sums go over pieces: half cells left of 0, an atom at 0, half cells right of it, so that 0 is
between two cells whether their number is odd or even.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import lax, updated, xp
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Bools, Index, Key, Reals, Shape
from jaxdp._numeric.elementary import ULP, log1m, log1p, round_up
from jaxdp.noise.base import Noise, mirrored_log_delta, ratio_of
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.structure import Kinks, atom_pair

# Least normal number: smaller masses are 0, and counted as lost.
_TINY = float(np.finfo(np.float64).tiny)


class Certificate(NamedTuple):
    """Proven properties of a designed noise, at the sensitivity that it was made for.

    No noise that satisfies the budgets has an expected loss below `loss_lower`; this noise has at
    most `loss_upper`. `deltas` are upper bounds on its delta at each of `epsilons`, from rational
    arithmetic. `complete` is False where the solver was stopped early.
    """

    loss_lower: float
    loss_upper: float
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    sensitivity: float
    complete: bool


class Weighted(Noise):
    """A noise by whole weights, whose loss is infinite where a shift leaves the support."""

    weights: tuple[int, ...]
    atom_weight: int = 0

    # The number of shifts that are looked at depends on values, and weights compile as arrays.
    _is_compiled = False

    @property
    def total(self) -> int:
        """The sum of all weights, the atom's included."""
        return sum(self.weights) + self.atom_weight

    @property
    def even(self) -> bool:
        """True if the noise and its negative have the same law."""
        return self.weights == self.weights[::-1]

    def _cells(self) -> Cells:
        return Cells(*map(xp.asarray, _cells_of(self.weights, self.atom_weight)))

    def _steps(self, shift: Reals, width: Reals) -> int:
        """Shifts to look at: as few as a known ratio allows."""
        most = len(self.weights)
        if not checks.all_concrete(shift, width):
            return most
        largest = np.fmax.reduce(np.ravel(shift / width), initial=0.0)
        return int(min(np.ceil(largest) + 1.0, most))

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Infinite."""
        return xp.full_like(excess, xp.inf)

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, inf): every Renyi divergence is infinite, unless the shift is 0."""
        return xp.zeros_like(shift), self._pure_epsilon(shift)

    def _singularities(self, shift: Reals) -> Kinks:
        """Atoms of many kinds, one at infinity; at no shift the loss is 0."""
        return atom_pair(xp.where(self._pure_epsilon(shift) == 0, 0.0, xp.nan))


@final
@pytree
class Histogram(Weighted):
    """The density weights[i] / (total width) on cells of `width` centred at 0, and an atom there.

    n cells cover [-n width / 2, n width / 2): an odd n has a cell around 0. weights: (n,), whole
    numbers of any size, fractions or floats, taken exactly: `weights` has the least whole numbers
    in their ratios. `atom`: the probability of the exact answer, in [0, 1), exact too. Weights are
    part of the program, not arrays: they cannot be traced, and `width` is the one parameter. They
    need not be symmetric: delta is the worst over shifts of both signs.

    The loss is infinite with positive probability, and so are all Renyi divergences. Units, bad
    input: `Noise`.

    `delta` is above the truth by at most (n + 16) ulp delta + 8 ulp; its cost grows as
    n shift / width. Errors of others: (4 + |x| / width) ulp of the smaller tail, relatively;
    (4 + |x| / width) ulp of a cell, of a quantile; 1e-13 of moments of a power up to 10,
    relatively. Probabilities below 2e-308 are 0, and 2e-308 each in delta.
    Source: Selvi, Liu & Wiesemann, Differential privacy via distributionally robust
    optimization; the atom and the profile at every shift are ours.
    """

    width: Reals
    weights: tuple[int, ...] = static()
    atom_weight: int = static()
    certificate: Certificate | None = static(default=None)

    def __init__(
        self,
        width: ArrayLike,
        weights: ArrayLike,
        atom: float = 0.0,
        certificate: Certificate | None = None,
    ):
        counts, atom_weight = whole_weights_of(weights, atom)
        assign(
            self,
            width=checks.positive("width", width),
            weights=counts,
            atom_weight=atom_weight,
            certificate=certificate,
        )

    @property
    def atom(self) -> float:
        """The probability of 0."""
        return self.atom_weight / self.total

    def _in_range(self) -> Bools:
        return self.width > 0

    def _log_density(self, x: Reals) -> Reals:
        """log of weights[i] / (total width), of the part that has a density; -inf beyond."""
        return log_density_of(self.width, self._cells(), x)

    def _log_density_slope(self, x: Reals) -> Reals:
        """0: the density is flat between its steps."""
        return xp.zeros_like(x)

    def _log_survival(self, x: Reals) -> Reals:
        return _log_survival(self.width, self._cells(), x)

    def _quantile(self, u: Reals) -> Reals:
        return _quantile(self.width, self._cells(), u)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        """A cell by its weight, and a uniform place in it."""
        cell_key, place_key = jax.random.split(key)
        cell = whole_draws.by_weight(cell_key, (self.atom_weight, *self.weights), shape) - 1.0
        u = jax.random.uniform(place_key, shape, dtype=xp.float64)
        place = cell + u - 0.5 * len(self.weights)
        return xp.where(cell < 0, 0.0, place) * self.width

    def _lattice_unit(self) -> Reals:
        return self.width

    def _draw_whole(self, key: Key, shape: Shape, fine: Reals) -> Reals:
        """A cell and a whole place in it; the width is rounded up to an even number."""
        cell_key, place_key = jax.random.split(key)
        width = 2.0 * xp.ceil(0.5 * self.width / fine)
        cell = whole_draws.by_weight(cell_key, (self.atom_weight, *self.weights), shape) - 1.0
        place = whole_draws.uniform_below(place_key, width, shape)
        drawn = cell * width + place - 0.5 * len(self.weights) * width
        return xp.where(cell < 0, 0.0, drawn)

    def _absolute_moment(self, power: Reals) -> Reals:
        """E|T|^p by cells, a sum of positive terms."""
        return _absolute_moment(self.width, self._cells(), power)

    def _sub_gaussian_proxy(self) -> Reals:
        """The square of half the support's length (Hoeffding); infinite for an uneven law."""
        if not self.even:
            return xp.where(self.width > 0, xp.inf, xp.nan)
        return round_up((0.5 * len(self.weights) * self.width) ** 2, 4)

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        """log of atom + max over k of H_k, H_k = sum_i (p_i - e^epsilon p_(i - k))_+.

        k runs over the integers with |k| width <= shift, and shift / width: H is affine between
        integers.
        """
        steps = self._steps(shift, self.width)
        return log_delta_of(self.width, self._cells(), shift, epsilon, steps, self.even)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        """Infinite, unless the shift is 0."""
        ratio = shift / self.width
        spread = xp.isinf(self.width) & (shift < xp.inf)
        moved = xp.where((shift > 0) & ~spread, xp.inf, 0.0)
        return xp.where(xp.isnan(ratio), xp.nan, moved)


def whole_weights_of(weights: ArrayLike, atom: float) -> tuple[tuple[int, ...], int]:
    """The least whole weights of the cells and of the atom in the ratios of those given."""
    if not (checks.is_concrete(weights) and checks.is_concrete(atom)):
        raise ValueError("weights and atom must be known before tracing: they shape the program")
    # NumPy would round whole numbers beyond 64 bits.
    values: Any = weights if isinstance(weights, list | tuple) else np.asarray(weights).tolist()
    if not isinstance(values, list | tuple) or not values or not all(map(_is_number, values)):
        raise ValueError(f"weights must be a vector of numbers, got {weights!r:.60}")
    if not (all(0 <= x < math.inf for x in values) and any(values)):
        raise ValueError("weights must be finite, zero or more, and not all zero")
    if not 0 <= atom < 1:
        raise ValueError(f"atom must lie in [0, 1), got {atom}")
    share = Fraction(float(atom))
    shares = [share * sum(map(Fraction, values)), *(Fraction(x) * (1 - share) for x in values)]
    unit = math.lcm(*(x.denominator for x in shares))
    whole = [int(x * unit) for x in shares]
    divisor = math.gcd(*whole)
    return tuple(x // divisor for x in whole[1:]), whole[0] // divisor


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Fraction | np.number) and not isinstance(value, bool)


@functools.lru_cache(maxsize=64)
def _cells_of(weights: tuple[int, ...], atom_weight: int) -> tuple[np.ndarray, ...]:
    """The fields of `Cells`, by sums without rounding."""
    total, n = sum(weights) + atom_weight, len(weights)
    halves = [weight for weight in weights for _ in range(2)]
    # In half units of weight.
    sums = [*itertools.accumulate((*halves[:n], 2 * atom_weight, *halves[n:]))]
    mass = _parts(weights, total)
    lost = _TINY * sum(1 for x, w in zip(mass, weights, strict=True) if x == 0 and w > 0)
    before = _parts([0, *sums[:-1]], 2 * total)
    after = _parts([2 * total - x for x in sums], 2 * total)
    (atom,) = _parts([atom_weight], total)
    return mass, np.asarray(atom), before, after, np.asarray(lost)


def _parts(counts: Sequence[int], total: int) -> np.ndarray:
    """counts / total, rounded once; 0 where that is no normal number."""
    parts = np.array([count / total for count in counts])
    return np.where(parts < _TINY, 0.0, parts)


class Cells(NamedTuple):
    """Probabilities of cells centred at 0 and of an atom there, each rounded once."""

    mass: Reals  # (cells,)
    atom: Reals
    before: Reals  # of each piece, the probability left of it
    after: Reals
    lost: Reals  # an upper bound on the masses that underflowed


class _Pieces(NamedTuple):
    """Probability, left end and length of each piece, from the left, in half cells."""

    mass: Reals
    start: Reals
    length: Reals


def _last(row: Reals, like: Reals) -> Reals:
    """A vector as the last axis behind the axes of `like`."""
    return row[(None,) * like.ndim]


def _pieces(cells: Cells) -> _Pieces:
    """Half cells and, between the middle ones, the atom."""
    halves = xp.repeat(0.5 * cells.mass, 2)
    n = cells.mass.size
    mass = xp.concatenate([halves[:n], cells.atom[None], halves[n:]])
    length = updated(xp.ones(2 * n + 1), n, 0.0)
    start = xp.concatenate([xp.arange(-1.0 * n, 0.0), xp.zeros(1), xp.arange(1.0 * n)])
    return _Pieces(mass, start, length)


@jitted
def log_density_of(width: Reals, cells: Cells, x: Reals) -> Reals:
    """Log of the density without the atom at 0; -inf beyond the cells."""
    width, x = xp.broadcast_arrays(width, x)
    place = xp.floor(x / width + 0.5 * cells.mass.size)
    inside = (place >= 0) & (place < cells.mass.size)
    mass = cells.mass[xp.where(inside, place, 0.0).astype(int)]
    value = xp.where(inside, xp.log(mass) - xp.log(width), -xp.inf)
    return xp.where(xp.isnan(x + width), xp.nan, value)


@jitted
def _log_survival(width: Reals, cells: Cells, x: Reals) -> Reals:
    """log P[T > x], from the side on which less mass lies."""
    width, x = xp.broadcast_arrays(width, x)
    all_pieces, n = _pieces(cells), cells.mass.size
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
def _quantile(width: Reals, cells: Cells, u: Reals) -> Reals:
    """The inverse of the distribution function: 0 where u falls on the atom."""
    width, u = xp.broadcast_arrays(width, u)
    all_pieces = _pieces(cells)
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
def _absolute_moment(width: Reals, cells: Cells, power: Reals) -> Reals:
    """Absolute moment by half cells [a, b]: (b^(p + 1) - a^(p + 1)) / (p + 1), each > 0."""
    width, power = xp.broadcast_arrays(width, power)
    all_pieces, n = _pieces(cells), cells.mass.size
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
def log_delta_of(
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
