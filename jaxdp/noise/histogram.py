"""Noise with a piecewise-constant density on a uniform grid, as linear programming designs it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp._numeric.elementary import LOG_2, round_up
from jaxdp.noise.base import Noise, epsilon_at, guarded
from jaxdp.noise.kernels import histogram

# Float weights become whole multiples of 2^-40 of their sum.
UNIT = 2**40
# The largest sum of counts. derived: sums of them stay exact in doubles
_MOST = 2**52


class Certificate(NamedTuple):
    """Proven properties of a designed noise, at the sensitivity that it was made for.

    No noise that keeps the budgets has an expected loss below `loss_lower`; that of this noise
    is at most `loss_upper`. `deltas` are upper bounds on its delta at each of `epsilons`, from
    rational arithmetic. `complete` is False where the solver was stopped early.
    """

    loss_lower: float
    loss_upper: float
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    sensitivity: float
    complete: bool


@final
@pytree
class Histogram(Noise):
    """The density weights[i] / (total width) on cells of `width` centred at 0, and an atom there.

    n cells cover [-n width / 2, n width / 2): an odd n has a cell around 0. weights: (n,), whole
    numbers of total at most 2^52, or floats, which are rounded to whole multiples of 2^-40 of their
    sum. `atom`: the probability of the exact answer, in [0, 1), rounded in the same way. Weights
    are part of the program, not arrays: they cannot be traced, and `width` is the one parameter.
    They need not be symmetric: delta is the worst over shifts of both signs.

    The loss is infinite with positive probability: there is no Renyi bound. Units, bad input:
    `Noise`. Source: Selvi, Liu & Wiesemann, Differential privacy via distributionally robust
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

    @property
    def total(self) -> int:
        """The sum of all weights, the atom's included."""
        return sum(self.weights) + self.atom_weight

    @property
    def even(self) -> bool:
        """True if the noise and its negative have the same law."""
        return self.weights == self.weights[::-1]

    def _cells(self) -> histogram.Cells:
        return histogram.Cells(
            jnp.asarray(self.weights, dtype=jnp.float64), jnp.asarray(float(self.atom_weight))
        )

    def log_density(self, x: ArrayLike) -> Reals:
        """log of weights[i] / (total width), of the part that has a density; -inf beyond."""
        return histogram.log_density(guarded(self.width), self._cells(), checks.real("x", x))

    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x]. Relative error of the smaller tail: (4 + |x| / width) ulp."""
        return histogram.log_survival(guarded(self.width), self._cells(), checks.real("x", x))

    def quantile(self, u: ArrayLike) -> Reals:
        """The least x with P[T <= x] >= u; absolute error (4 + |x| / width) ulp of a cell."""
        return histogram.quantile(guarded(self.width), self._cells(), checks.probability("u", u))

    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """A whole number below `total` picks the cell, exactly; a uniform place in it."""
        shape = jnp.broadcast_shapes(shape, jnp.shape(self.width))
        cell_key, place_key = jax.random.split(checked_key(key))
        ends = jnp.cumsum(jnp.asarray((self.atom_weight, *self.weights), dtype=jnp.int64))
        pick = jax.random.randint(cell_key, shape, 0, self.total, dtype=jnp.int64)
        cell = jnp.searchsorted(ends, pick, side="right") - 1
        u = jax.random.uniform(place_key, shape, dtype=jnp.float64)
        place = cell + u - 0.5 * len(self.weights)
        width = jnp.broadcast_to(guarded(self.width), shape)
        return jnp.where(cell < 0, 0.0, place) * width

    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^p by cells, a sum of positive terms. Relative error: 1e-13 for p <= 10."""
        power = checks.real("power", power, -1.0, open_lower=True)
        return histogram.absolute_moment(guarded(self.width), self._cells(), power)

    def fisher_information(self) -> Reals:
        """Infinite: the density jumps."""
        return jnp.where(guarded(self.width) > 0, jnp.inf, jnp.nan)

    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log of delta = atom + max over k of H_k, H_k = sum_i (p_i - e^epsilon p_(i - k))_+.

        Every whole k with |k| width <= shift, and shift itself, where H is (1 - t) H_k + t H_(k+1)
        for shift = (k + t) width: between whole shifts it is affine. Without a shift there is no
        atom to see. An upper bound: delta is above the truth by at most (n + 16) ulp delta + 8 ulp.
        Cost: n shift / width.
        """
        shift, epsilon = checks.nonnegative("shift", shift), checks.real("epsilon", epsilon)
        width = guarded(self.width)
        return _log_delta(width, self._cells(), shift, epsilon, self._steps(shift), self.even)

    def _steps(self, shift: Reals) -> int:
        """Shifts to look at: as few as a known ratio allows, in powers of 2."""
        most = len(self.weights)
        if not (checks.is_concrete(shift) and checks.is_concrete(self.width)):
            return most
        largest = float(np.max(np.asarray(shift), initial=0.0))
        least = float(np.min(np.asarray(self.width), initial=np.inf))
        if not (least < np.inf and largest < least * most / 2):
            return most
        largest /= least
        return min(most, 1 << int(np.ceil(largest) + 1).bit_length())

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Infinite."""
        return jnp.full_like(excess + shift, jnp.inf)

    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(0, inf): every Renyi divergence is infinite, unless the shift is 0."""
        infinite = self.pure_epsilon(shift)
        return jnp.zeros_like(infinite), infinite

    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """Infinite, unless the shift is 0."""
        ratio = checks.nonnegative("shift", shift) / guarded(self.width)
        shift = jnp.broadcast_to(checks.nonnegative("shift", shift), ratio.shape)
        spread = jnp.isinf(self.width) & (shift < jnp.inf)
        moved = jnp.where((shift > 0) & ~spread, jnp.inf, 0.0)
        return jnp.where(jnp.isnan(ratio), jnp.nan, moved)

    def sub_gaussian_proxy(self) -> Reals:
        """The square of half the support's length (Hoeffding); infinite for an uneven law."""
        if not self.even:
            return jnp.where(guarded(self.width) > 0, jnp.inf, jnp.nan)
        return round_up((0.5 * len(self.weights) * guarded(self.width)) ** 2, 4)

    def loss_atom(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """NaN: atoms of many kinds, one at infinity. At no shift the loss is 0."""
        r = self.pure_epsilon(shift)
        return r, jnp.where(r == 0, -LOG_2, jnp.nan)


def whole_weights_of(weights: ArrayLike, atom: float) -> tuple[tuple[int, ...], int]:
    """Whole weights and that of the atom, as `Histogram` says."""
    if not (checks.is_concrete(weights) and checks.is_concrete(atom)):
        raise ValueError("weights and atom must be known before tracing: they shape the program")
    array = np.asarray(weights)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iuf":
        raise ValueError(f"weights must be a vector of numbers, got {array.dtype}{array.shape}")
    if not (np.all(np.isfinite(array)) and np.all(array >= 0) and array.sum() > 0):
        raise ValueError("weights must be finite, zero or more, and not all zero")
    if not 0 <= atom < 1:
        raise ValueError(f"atom must lie in [0, 1), got {atom}")
    if array.dtype.kind != "f" and atom == 0:
        counts = tuple(int(w) for w in array)
        if sum(counts) > _MOST:
            raise ValueError(f"weights must add up to 2^52 at most, got {sum(counts)}")
        return counts, 0
    shares = np.append(array / array.sum() * (1.0 - atom), atom) * UNIT
    whole = np.floor(shares).astype(np.int64)
    # The units that are left go to the largest remainders, in mirrored pairs while there are any.
    left = UNIT - int(whole.sum())
    order = np.argsort(-(shares - whole), kind="stable")
    whole[order[:left]] += 1
    return tuple(int(w) for w in whole[:-1]), int(whole[-1])


def from_whole(
    width: ArrayLike, weights: Sequence[int], atom_weight: int, certificate: Certificate | None
) -> Histogram:
    """A histogram of given whole weights and atom weight, exactly."""
    noise = Histogram(width, np.asarray(weights, dtype=np.int64))
    assign(noise, atom_weight=atom_weight, certificate=certificate)
    return noise


@functools.partial(jax.jit, static_argnums=(4, 5))
def _log_delta(
    width: Reals,
    cells: histogram.Cells,
    shift: Reals,
    epsilon: Reals,
    steps: int,
    symmetric: bool,
) -> Reals:
    epsilon = epsilon_at(shift, epsilon)
    return histogram.log_delta(width, cells, shift, epsilon, steps, symmetric)
