"""The discrete Laplace, or two-sided geometric: pure differential privacy on the integers."""

from __future__ import annotations

from typing import final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import lax, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import (
    log1m,
    log1mexp,
    log1p,
    product_gap,
    round_up,
)
from jaxdp._numeric.quadrature import power_sum
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.kernels.divergence import renyi_of
from jaxdp.noise.kernels.negative_epsilon import upper_log_delta, whole_sides, with_limits
from jaxdp.noise.kernels.staircase_loss import Tilt
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.nodes import along_last
from jaxdp.noise.structure import Lattice, LossAtoms


@final
@pytree
class DiscreteLaplace(Noise):
    """P[T = k] = (1 - q) / (1 + q) q^|k| on the integers, q = exp(-1 / scale).

    Sensitivity: l1 and whole; a shift that is not whole raises, or is NaN where traced. Units,
    bad input: `Noise`. An infinite `scale` is legal and private.

    delta = max over whole j of 1 - (q^(1 + j) + e^epsilon q^(shift - j)) / (1 + q) for
    0 <= epsilon < shift / scale, and 0 beyond. `log_delta` is above the truth by at most
    8e-15 |log delta| where delta <= 1/2, 2e-15 |log delta| (2 - log(1 - delta)) above. zcdp has
    the least rho at xi = 0. Relative errors of others: (8 + |x| / scale) ulp of log survival, in
    both tails; 1e-13 of moments of a power up to 10 and of Renyi divergences. A quantile is the
    least integer for a u that is known to 8 ulp.

    Draws are exact to 2^-76 in total variation for scales up to 2^45 (`noise.kernels.whole_draws`),
    and NaN above.
    Source: Ghosh, Roughgarden & Sundararajan, STOC 2009.
    """

    scale: Reals

    def __init__(self, scale: ArrayLike):
        assign(self, scale=checks.positive("scale", scale))

    on_integers = True
    whole_kind = "exponential"
    norm = 1
    on_reals = Laplace

    @classmethod
    def _member(cls, shape: Reals, deviation: Reals) -> DiscreteLaplace:
        return DiscreteLaplace(deviation / xp.sqrt(2.0))

    def _in_range(self) -> Bools:
        return self.scale > 0

    def _log_density(self, x: Reals) -> Reals:
        """-|x| / scale + log tanh(1 / (2 scale)); -inf where x is not whole."""
        decay = 1.0 / self.scale
        value = -xp.abs(x) * decay + log1mexp(decay) - log1p(xp.exp(-decay))
        return xp.where((x == xp.round(x)) | xp.isnan(x), value, -xp.inf)

    def _log_survival(self, x: Reals) -> Reals:
        least = xp.floor(x) + 1.0
        upper = least > 0
        both = log1p(xp.exp(-1.0 / self.scale))
        right = -xp.where(upper, least, 1.0) / self.scale - both
        left = log1m(xp.exp((xp.where(upper, 0.0, least) - 1.0) / self.scale - both))
        return xp.where(upper, right, left)

    def _quantile(self, u: Reals) -> Reals:
        scale = self.scale
        # scale log(2 / (1 + q)), which is 1/2 for a large scale.
        half = -scale * log1m(-0.5 * xp.expm1(-1.0 / scale))
        half = xp.where(scale == xp.inf, 0.5, half)
        low = u <= 0.5
        steps = half - scale * xp.log(2.0 * xp.where(low, u, 1.0 - u))
        # P[T <= -n] = q^n / (1 + q) for n >= 0; above, P[T > k] = q^(k + 1) / (1 + q).
        below = low & (steps >= 1.0)
        return xp.where(below, -xp.floor(steps), xp.maximum(xp.ceil(steps) - 1.0, 0.0))

    def _sample(self, key: Key, shape: Shape) -> Reals:
        return self._draw_whole(key, shape, xp.ones(()))

    def _absolute_moment(self, power: Reals) -> Reals:
        """2 (1 - q) / (1 + q) Li_-p(q) for p > 0; 1 at p = 0, infinite below.

        Variance 1 / (2 sinh^2(1 / (2 scale))), mean absolute value 1 / sinh(1 / scale).
        """
        flat = self.scale == xp.inf
        decay, one = 1.0 / xp.where(flat, 1.0, self.scale), xp.ones_like(power)
        log_factor = xp.log(2.0 * xp.tanh(0.5 * decay)) - decay
        value = power_sum(decay, one, xp.where(power > 0, power, 1.0), log_factor)
        value = xp.where(flat, xp.inf, value)
        value = xp.where(power == 0, 1.0 + 0.0 * self.scale, value)
        return xp.where(power < 0, self._fisher_information(), value)

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        """The maximum over j is taken on paper.

        With G = shift - epsilon scale, j is the whole number nearest to (G - 1) / 2, and
        1 - delta = e^(-G / (2 scale)) cosh((j - (G - 1) / 2) / scale) / cosh(1 / (2 scale)).
        """
        flat = self.scale == xp.inf
        usual = (shift > 0) & (shift < xp.inf) & ~flat
        scale, safe_shift = xp.where(flat, 1.0, self.scale), xp.where(usual, shift, 1.0)
        return with_limits(_log_delta(scale, safe_shift, epsilon), self.scale, shift, epsilon)

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """log[e^(-r/2) (cosh(c r) + tanh(1 / (2 scale)) coth(c / scale) sinh(c r))] / s.

        c = s + 1/2, r = shift / scale. As a sum over the losses, as for the staircase.
        """
        unit = 1.0 / self.scale
        q, tilt = xp.exp(-unit), Tilt(unit, excess, shift)
        return tilt.divergence((tilt.run(shift) + q * tilt.pair(shift)) / (1.0 + q))

    def _pure_epsilon(self, shift: Reals) -> Reals:
        return round_up(ratio_of(shift, self.scale), 1)

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, the divergence of order 1, r - (1 - e^-r) / (scale sinh(1 / scale))): the least rho.

        Proof: exp(K + r/2) is, up to a constant, U_n(c) - q U_(n-2)(c) at c = cosh(s / scale),
        n = shift, s = z + 1/2, with Chebyshev's U. As 0 < q < 1 that is the polynomial orthogonal
        with respect to the Bernstein-Szego weight sqrt(1 - c^2) / |1 - q e^(2 i t)|^2, c = cos t:
        its zeros are real and lie in (-1, 1). So in x = s^2 all zeros are negative, and the
        proof of `Laplace` holds: the Renyi divergence over its order is largest at order 1.
        """
        rho = renyi_of(self, shift, xp.ones_like(shift))
        return xp.zeros_like(rho), round_up(rho, 256)

    def _loss_atoms(self, shift: Reals) -> LossAtoms:
        """shift + 1 atoms: (shift - 2 k) / scale of mass q^k, but for a factor, at 0 <= k <= shift.

        P[T <= 0] = 1 / (1 + q) and P[T >= shift] = q^shift / (1 + q) at the ends, P[T = k] between.
        Beyond 1,500 nodes, one of them stands for several atoms, at the middle one, and in the
        second rule at the largest.
        """
        rank = xp.ndim(shift)
        shift, scale = shift[..., None], self.scale[..., None]
        nodes = _nodes_for(shift)
        width = lax.stop_gradient(xp.maximum(xp.ceil((shift - 1.0) / (nodes - 2.0)), 1.0))
        index = along_last(np.arange(1.0 * nodes), rank)
        rules = [_atoms_at(scale, shift, index, width, place) for place in (0.5, 0.0)]
        return LossAtoms(*rules[0], rules[1], xp.full_like(shift[..., 0], -xp.inf))

    def _singularities(self, shift: Reals) -> Lattice:
        """A lattice of unit 2 / scale, odd where `shift` is."""
        unit = ratio_of(2.0, self.scale)
        return Lattice(unit + 0.0 * shift, shift % 2.0 + 0.0 * unit)


# Most nodes of a law. chosen: nodes of other noises are as many
_MOST_NODES = 1500


def _nodes_for(shift: Reals) -> int:
    """Number of nodes: a power of two that holds all atoms of concrete shifts, or the most."""
    if not checks.is_concrete(shift):
        return _MOST_NODES
    known = np.asarray(shift)
    largest = np.max(known, where=np.isfinite(known), initial=1.0)
    return int(min(2.0 ** np.ceil(np.log2(largest + 2.0)), _MOST_NODES))


def _atoms_at(
    scale: Reals, shift: Reals, index: Reals, width: Reals, place: float
) -> tuple[Reals, Reals]:
    """Losses and log masses of the nodes; an inner node stands for `width` integers k."""
    decay = 1.0 / scale
    start = 1.0 + (index - 1.0) * width
    end = xp.minimum(start + width, shift)
    is_first, is_last = index == 0, index == index[..., -1:]
    inner = ~is_first & ~is_last & (end > start)
    size = xp.where(inner, end - start, 1.0)
    first = xp.where(inner, start, xp.where(is_first, 0.0, shift))
    k = first + xp.floor(place * (size - 1.0))
    block = xp.where(inner, log1mexp(size * decay), 0.0)
    log_mass = block - first * decay - log1p(xp.exp(-decay))
    log_mass = xp.where(is_first | is_last | inner, log_mass, -xp.inf)
    return (shift - 2.0 * k) * decay, log_mass


# Least exponent. derived: four least normal numbers, so that products with it are normal
_TINY = 4.0 * float(xp.finfo(xp.float64).tiny)


def _log_delta(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """log of delta, rounded up, for arrays of one shape, finite scales and whole shifts >= 1."""
    size, r = xp.abs(epsilon), shift / scale
    close = xp.abs(size - r) < 0.5 * r
    exact = product_gap(*(xp.where(close, v, 1.0) for v in (shift, size, scale)))
    loose = shift - xp.where(size < xp.inf, size, r) * scale
    gap = xp.where(close, exact, xp.where(size < xp.inf, loose, -xp.inf))
    inside = gap > 0
    gap = xp.where(inside, gap, 1.0)
    step = 0.5 / scale
    before = gap - 2.0 * xp.maximum(xp.round(0.5 * (gap - 1.0)), 0.0)
    after = 2.0 - before
    exponent = xp.maximum(gap / (2.0 * scale), _TINY)
    both = 1.0 + xp.exp(-2.0 * step)
    bend = xp.expm1(-step * before) * xp.expm1(-step * after) / both
    fall = xp.exp(-exponent)
    forward = -xp.expm1(-exponent) + fall * bend
    complement = fall * (xp.exp(-step * before) + xp.exp(-step * after)) / both
    forward, complement = xp.where(inside, forward, 0.0), xp.where(inside, complement, 1.0)
    value = upper_log_delta(whole_sides(forward, complement, exponent), epsilon, 24.0, 3.0)
    return xp.where(inside | (epsilon < 0), value, -xp.inf)
