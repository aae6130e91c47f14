"""A loss of finitely many values, and the worst of all shifts of a piecewise-constant noise.

A test between two laws P and Q has a false-positive rate Q(A) and a power P(A); the best ones are
the concave hull of such points (Neyman & Pearson), whose edges are atoms of the loss: an edge that
is b wide and a high has the loss log(a / b) with probability a under P. A hull that covers those
of several pairs is a pair that is harder to hide than each of them, so that compositions of it
bound every adaptive composition of them, whichever is chosen at every step (Zhu, Dong & Wang,
AISTATS 2022). Masses are whole numbers, and so is every step of the hull.
"""

import functools
import itertools
import math
from fractions import Fraction
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._numeric.elementary import LOG_2, ULP, log1m, round_up
from jaxdp._numeric.histogram import mirrored
from jaxdp._pytree import assign, pytree, static
from jaxdp._types import RealLike, Reals, RealsOrComplexes
from jaxdp.loss.infinite import LEAST_FINITE
from jaxdp.noise.base import Loss
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.histogram import Histogram

# A shift is known to this part of a cell.
_PART = 2**60


@final
@pytree
class FiniteLoss(Loss):
    """The loss takes the values losses[j], rising, with probability masses[j], else infinity.

    That of a pair that stays itself when its two laws are exchanged: losses[-1 - j] is
    -losses[j]. Static: part of the program. `shift` means nothing to it. Made by `worst_loss`.
    """

    losses: tuple[float, ...] = static()
    masses: tuple[float, ...] = static()
    infinite: float = static()

    def __init__(self, losses: tuple[float, ...], masses: tuple[float, ...], infinite: float):
        assign(self, losses=losses, masses=masses, infinite=infinite)

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """log of sum_j masses[j] (1 - e^(epsilon - losses[j]))_+ + infinite.

        Between two losses a sum of two positive terms; an upper bound, by 1e-14 of delta or less.
        """
        epsilon, shift = jnp.broadcast_arrays(_check.real("epsilon", epsilon), _any(shift))
        losses, above, slopes = (jnp.asarray(x) for x in _profile(self))
        return _log_delta(losses, above, slopes, jnp.asarray(self.infinite), epsilon) + shift

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """log of sum_j masses[j] e^(z losses[j]): of the finite part. Absolute error: 1e-13."""
        z = _check.argument("z", z)
        z, shift = jnp.broadcast_arrays(z, _any(shift))
        return _cgf(jnp.asarray(self.losses), jnp.asarray(self.masses), z) + shift

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """Infinite, unless the loss always is finite."""
        largest = self.largest_finite(shift)
        return jnp.where(self.infinite > 0, jnp.inf + largest, largest)

    def largest_finite(self, shift: RealLike) -> Reals:
        """The largest of the losses, rounded up."""
        return round_up(max(self.losses[-1], 0.0) + _any(shift), 2)

    def log_finite(self, shift: Reals) -> Reals:
        """log(1 - infinite)."""
        # What is left at infinite = 1 rounds to nothing.
        return jnp.maximum(log1m(jnp.asarray(self.infinite)), LEAST_FINITE) + _any(shift)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """NaN: atoms of many kinds. At no shift the loss is 0."""
        r = self.largest_finite(shift)
        return r, jnp.full_like(r, -LOG_2 if self.losses == (0.0,) else jnp.nan)

    @property
    def summed(self) -> int:
        """As many as there are losses."""
        return len(self.losses)


def worst_loss(noise: Histogram | DiscreteHistogram, shift: float) -> FiniteLoss:
    """The least loss that dominates those of `noise` at every shift of at most `shift`.

    Both signs, every size: its delta is that of `noise.log_delta`, and it composes, whatever shift
    each release has and even if it was chosen from the earlier ones. Host-side. Nothing is lost by
    it on `optimal_noise`: at (1, .2), (1, .01), (3, .3) and (.2, .05) the deltas of 1 to 32
    releases are those of the largest shift alone, to 1e-5.
    """
    if not 0 <= shift < math.inf:
        raise ValueError(f"shift must lie in [0, inf), got {shift}")
    if isinstance(noise, DiscreteHistogram):
        if shift != int(shift):
            raise ValueError(f"shift must be whole, got {shift}")
        noise = Histogram(1.0, noise.weights)
    if shift == 0:
        return FiniteLoss((0.0,), (1.0,), 0.0)
    ratio = Fraction(shift) / Fraction(float(noise.width))
    cell = min(math.floor(ratio), len(noise.weights))
    part = math.ceil((ratio - cell) * _PART) if cell < len(noise.weights) else 0
    points = {(0, 0), (noise.total * _PART,) * 2}
    whole = [(k, 0) for k in range(1, cell + 1)]
    for k, share in [*whole, (cell, part)] if part else whole:
        for sign in (1,) if noise.even else (1, -1):
            points |= _roc(noise, sign, k, share)
    hull = _concave(sorted(points))
    return _of_hull(hull, noise.total * _PART)


def _roc(noise: Histogram, sign: int, k: int, share: int) -> set[tuple[int, int]]:
    """(Q, P) of the best tests at a shift of k + share / 2^60 cells."""
    n = len(noise.weights)
    weights = np.array(noise.weights, dtype=object)[::sign]
    zeros = np.zeros(n + k + 1, dtype=object)

    def moved(by: int) -> np.ndarray:
        row = zeros.copy()
        row[by : by + n] = weights
        return row

    pieces = [(moved(0), moved(k), _PART - share), (moved(0), moved(k + 1), share)]
    p = np.concatenate([a * s for a, _, s in pieces if s] + [[noise.atom_weight * _PART, 0]])
    q = np.concatenate([b * s for _, b, s in pieces if s] + [[0, noise.atom_weight * _PART]])
    # The order of near ties is free: the hull takes care.
    p_float, q_float = p.astype(float), q.astype(float)
    order = np.argsort(-p_float / np.maximum(p_float + q_float, 1.0), kind="stable")
    return set(zip(np.cumsum(q[order]).tolist(), np.cumsum(p[order]).tolist(), strict=True))


def _concave(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The upper hull of points sorted by their first coordinate."""
    hull: list[tuple[int, int]] = []
    for point in points:
        while len(hull) >= 2:
            (x0, y0), (x1, y1) = hull[-2:]
            if (x1 - x0) * (point[1] - y0) < (y1 - y0) * (point[0] - x0):
                break
            hull.pop()
        hull.append(point)
    return hull


def _of_hull(hull: list[tuple[int, int]], total: int) -> FiniteLoss:
    edges = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(hull)]
    finite = [(wide, high) for wide, high in edges if wide > 0 and high > 0]
    infinite = sum(high for wide, high in edges if wide == 0)
    if not finite:
        return FiniteLoss((0.0,), (0.0,), 1.0)
    losses = [_log_ratio(high, wide) for wide, high in finite]
    return FiniteLoss(
        tuple(reversed(losses)),
        tuple(high / total for _, high in reversed(finite)),
        math.nextafter(infinite / total, 1.0) if infinite else 0.0,
    )


def _log_ratio(a: int, b: int) -> float:
    """log(a / b) to an ulp or two, for whole numbers of any size."""
    ratio = Fraction(a, b)
    near = abs(ratio - 1) < Fraction(1, 2)
    return math.log1p(float(ratio - 1)) if near else math.log(ratio.numerator / ratio.denominator)


@functools.lru_cache(maxsize=64)
def _profile(loss: FiniteLoss) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The losses, delta there (of the finite part), and the mass above times e^-loss, e^loss."""
    losses = np.array([-math.inf, *loss.losses])
    masses = np.array([*loss.masses])
    # From the top: Q of what lies above, and delta, are sums of positive terms.
    above, slopes = np.zeros(losses.size), np.zeros(losses.size)
    delta, mass = 0.0, 0.0
    for j in range(masses.size - 1, -1, -1):
        # `mass`: P of the losses from j + 1 on, each times e^(losses[j] - its own).
        if j + 1 < masses.size:
            step = loss.losses[j] - loss.losses[j + 1]
            delta += mass * -math.expm1(step)
            mass *= math.exp(step)
        mass += masses[j]
        above[j + 1], slopes[j + 1] = delta, mass
    return losses, above, slopes


@jax.jit
def _log_delta(
    losses: Reals, above: Reals, slopes: Reals, infinite: Reals, epsilon: Reals
) -> Reals:
    size = jnp.abs(epsilon)
    index = jnp.searchsorted(losses, size, side="left")
    beyond = index >= losses.size
    index = jnp.minimum(index, losses.size - 1)
    # Each loss is known to 4 ulp.
    gap = losses[index] * (1.0 + 4.0 * ULP) - size
    gap = jnp.maximum(jnp.where(beyond, 0.0, gap), 0.0)
    finite = jnp.where(beyond, 0.0, above[index] + slopes[index] * -jnp.expm1(-gap))
    delta = jnp.minimum((finite + infinite) * (1.0 + 1e-14), 1.0)
    value = jnp.minimum(round_up(jnp.log(delta), 2), 0.0)
    value = jnp.where(epsilon < 0, mirrored(delta, size), value)
    return jnp.where(jnp.isnan(epsilon), jnp.nan, value)


@jax.jit
def _cgf(losses: Reals, masses: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    row = (None,) * z.ndim
    exponent = z[..., None] * losses[row] + jnp.maximum(jnp.log(masses), LEAST_FINITE)[row]
    largest = jax.lax.stop_gradient(jnp.max(jnp.real(exponent), axis=-1))
    return largest + jnp.log(jnp.sum(jnp.exp(exponent - largest[..., None]), axis=-1))


def _any(shift: RealLike) -> Reals:
    """A shift that means nothing but its shape, and NaN."""
    return jnp.minimum(_check.nonnegative("shift", shift), 0.0)
