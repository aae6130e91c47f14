"""The Laplace: pure differential privacy, and the closed forms that go with it."""

from __future__ import annotations

from typing import final

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import special, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import (
    LOG_2,
    ULP,
    decay_means,
    expm1_minus,
    lifted,
    log1m,
    log1mexp,
    product_gap,
    round_up,
)
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.kernels.divergence import log1p_ratio
from jaxdp.noise.structure import Kinks, atom_pair


@final
@pytree
class Laplace(Noise):
    """The density exp(-|x| / scale) / (2 scale).

    Sensitivity: l1. Units, bad input: `Noise`. An infinite `scale` is legal and private.

    With r = shift / scale, delta = 1 - exp((epsilon - r) / 2) for |epsilon| <= r, 0 above and
    1 - exp(epsilon) below. `log_delta` is above the truth by at most
    2e-15 |log delta| (1 + |epsilon - r|): near epsilon = r, where shift - epsilon scale is formed
    exactly, to the last place. zcdp has the least rho, r - 1 + e^-r, at xi = 0. Relative errors
    of others: (8 + |x| / scale) ulp of log survival, 8 ulp of a quantile, 1e-14 of moments and
    of Renyi divergences.

    Source: Balle, Barthe & Gaboardi, NeurIPS 2018. The noise: Dwork, McSherry, Nissim & Smith,
    TCC 2006.
    """

    scale: Reals

    def __init__(self, scale: ArrayLike):
        assign(self, scale=checks.positive("scale", scale))

    log_concave = True
    norm = 1
    whole_kind = "exponential"

    @classmethod
    def _member(cls, shape: Reals, deviation: Reals) -> Laplace:
        return Laplace(deviation / xp.sqrt(2.0))

    def _in_range(self) -> Bools:
        return self.scale > 0

    def _log_density(self, x: Reals) -> Reals:
        """-|x| / scale - log(2 scale)."""
        return -xp.abs(x) / self.scale - xp.log(self.scale) - LOG_2

    def _log_density_slope(self, x: Reals) -> Reals:
        """-sign(x) / scale."""
        return -xp.sign(x) / self.scale

    def _log_survival(self, x: Reals) -> Reals:
        z = ratio_of(x, self.scale)
        return xp.where(z > 0, -z - LOG_2, log1m(0.5 * xp.exp(-xp.abs(z))))

    def _quantile(self, u: Reals) -> Reals:
        """-sign(u - 1/2) scale log(2 min(u, 1 - u))."""
        sign = xp.where(u < 0.5, self.scale, -self.scale)
        return sign * xp.log(2.0 * xp.minimum(u, 1.0 - u))

    def _sample(self, key: Key, shape: Shape) -> Reals:
        return self.scale * jax.random.laplace(key, shape, dtype=xp.float64)

    def _absolute_moment(self, power: Reals) -> Reals:
        """scale^p Gamma(p + 1)."""
        return self.scale**power * xp.exp(special.gammaln(power + 1.0))

    def _fisher_information(self) -> Reals:
        return 1.0 / self.scale**2

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        scale, r = self.scale, ratio_of(shift, self.scale)
        close = xp.isfinite(scale) & (xp.abs(epsilon - r) < 0.5 * r)
        gap = product_gap(shift, epsilon, xp.where(close, scale, 1.0)) / scale
        exponent = xp.minimum(epsilon, 0.5 * xp.where(close, -gap, epsilon - r))
        # The comparison sends NaN to the branch that keeps it.
        inside = xp.where(exponent >= 0, -1.0, exponent)
        value = log1mexp(-inside)
        value = value + ULP * (8.0 + 2.0 * xp.where(value == 0, 0.0, -inside)) * xp.abs(value)
        return xp.where(exponent >= 0, -xp.inf, xp.minimum(value, 0.0))

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """log[((s + 1) e^(s r) + s e^(-(s + 1) r)) / (2 s + 1)] / s (Mironov, CSF 2017)."""
        return divergence_of_ratio(ratio_of(shift, self.scale), excess)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        return round_up(ratio_of(shift, self.scale), 1)

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, r - 1 + e^-r), r = shift / scale: the least rho with xi = 0, and below r^2 / 2.

        Proof: with s = z + 1/2 and x = s^2, exp(K + r/2) = cosh(s r) + sinh(s r) / (2 s) is an
        entire function of x of order 1/2 whose zeros are the negative Robin eigenvalues, so
        K = sum_k log(1 + x / x_k) + constant is concave in x and K / (x - 1/4), which is the
        Renyi divergence over its order, is largest at order 1: the Kullback-Leibler divergence.
        """
        return zcdp_of_ratio(ratio_of(shift, self.scale))

    def _singularities(self, shift: Reals) -> Kinks:
        """Atoms at +-shift / scale: half of the draws lie beyond the centre."""
        return atom_pair(ratio_of(shift, self.scale))


def zcdp_of_ratio(r: Reals) -> tuple[Reals, Reals]:
    """`Laplace.zcdp` at r = shift / scale."""
    return xp.zeros_like(r), lifted(round_up(expm1_minus(-r), 16), r > 0)


@jitted
def divergence_of_ratio(r: Reals, s: Reals) -> Reals:
    """`Laplace.renyi` of the order 1 + s at r = shift / scale, for arrays of one shape."""
    grows = s * r > 1.0
    low = xp.where(grows, 0.0, s)
    # (M - 1) / s, where the terms of first order in r have been cancelled on paper.
    higher = low + 1.0
    rate = low * decay_means(-(low * r))[1] + higher * decay_means(higher * r)[1]
    near = log1p_ratio(higher * r * r * rate / (low + higher), low)
    high = xp.where(grows, s, 1.0)
    width = 2.0 * high + 1.0
    far = r + xp.log((high + 1.0 + high * xp.exp(-width * r)) / width) / high
    return xp.where(grows, far, near)
