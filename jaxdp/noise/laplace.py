"""The Laplace: pure differential privacy, and the closed forms that go with it."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp._numeric.decay import decay_means
from jaxdp._numeric.elementary import (
    LOG_2,
    ULP,
    expm1_minus,
    lifted,
    log1m,
    log1mexp,
    product_gap,
    round_up,
)
from jaxdp.noise.base import Noise, epsilon_at, guarded, ratio_of
from jaxdp.noise.kernels.divergence import growth_ratio, log1p_ratio


@final
@pytree
class Laplace(Noise):
    """The density exp(-|x| / scale) / (2 scale).

    Sensitivity: l1. Units, bad input: `Noise`. An infinite `scale` is legal and private.
    Source: Dwork, McSherry, Nissim & Smith, TCC 2006.
    """

    scale: Reals

    def __init__(self, scale: ArrayLike):
        assign(self, scale=checks.positive("scale", scale))

    @property
    def log_concave(self) -> bool:
        """True."""
        return True

    def log_density(self, x: ArrayLike) -> Reals:
        """-|x| / scale - log(2 scale)."""
        return _log_density(self.scale, checks.real("x", x))

    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x]. Relative error, in both tails: (8 + |x| / scale) ulp."""
        return _log_survival(self.scale, checks.real("x", x))

    def quantile(self, u: ArrayLike) -> Reals:
        """-sign(u - 1/2) scale log(2 min(u, 1 - u)). Relative error: 8 ulp."""
        return _quantile(self.scale, checks.probability("u", u))

    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """scale times standard Laplace draws; see `Noise.sample`."""
        shape = jnp.broadcast_shapes(shape, jnp.shape(self.scale))
        unit = jax.random.laplace(checked_key(key), shape, dtype=jnp.float64)
        return jnp.broadcast_to(guarded(self.scale), shape) * unit

    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^p = scale^p Gamma(p + 1), p > -1. Relative error: 1e-14."""
        return _absolute_moment(self.scale, checks.real("power", power, -1.0, open_lower=True))

    def fisher_information(self) -> Reals:
        """1 / scale^2."""
        return 1.0 / guarded(self.scale) ** 2

    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log of delta = 1 - exp((epsilon - r) / 2) for |epsilon| <= r = shift / scale.

        Above r delta is 0 (log delta = -inf); below -r it is 1 - exp(epsilon). An upper bound,
        above the truth by at most 2e-15 |log delta| (1 + |epsilon - r|). Near epsilon = r the
        difference shift - epsilon scale is formed exactly, so it is right to the last place.
        Source: Balle, Barthe & Gaboardi, NeurIPS 2018.
        """
        shift = checks.nonnegative("shift", shift)
        return _log_delta(self.scale, shift, checks.real("epsilon", epsilon))

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """log[((s + 1) e^(s r) + s e^(-(s + 1) r)) / (2 s + 1)] / s, r = shift / scale.

        Relative error: 1e-14. Source: Mironov, CSF 2017, table II.
        """
        return divergence_of_ratio(ratio_of(shift, self.scale), excess)

    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(0, r - 1 + e^-r), r = shift / scale: the least rho with xi = 0, and below r^2 / 2.

        Proof: with s = z + 1/2 and x = s^2, exp(K + r/2) = cosh(s r) + sinh(s r) / (2 s) is an
        entire function of x of order 1/2 whose zeros are the negative Robin eigenvalues, so
        K = sum_k log(1 + x / x_k) + constant is concave in x and K / (x - 1/4), which is the
        Renyi divergence over its order, is largest at order 1: the Kullback-Leibler divergence.
        """
        r = ratio_of(checks.nonnegative("shift", shift), self.scale)
        return jnp.zeros_like(r), lifted(round_up(expm1_minus(-r), 16), r > 0)

    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """shift / scale, rounded up."""
        return round_up(ratio_of(checks.nonnegative("shift", shift), self.scale), 1)

    def sub_gaussian_proxy(self) -> Reals:
        """Infinite: the tails are exponential."""
        return jnp.where(guarded(self.scale) > 0, jnp.inf, jnp.nan)

    def loss_atom(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(shift / scale, log(1/2)): half of the draws lie beyond the centre."""
        r = ratio_of(checks.nonnegative("shift", shift), self.scale)
        return r, jnp.where(r >= 0, -LOG_2, jnp.nan)


@jax.jit
def _log_density(scale: Reals, x: Reals) -> Reals:
    scale, x = jnp.broadcast_arrays(guarded(scale), x)
    return -jnp.abs(x) / scale - jnp.log(scale) - LOG_2


@jax.jit
def _log_survival(scale: Reals, x: Reals) -> Reals:
    z = ratio_of(x, scale)
    return jnp.where(z > 0, -z - LOG_2, log1m(0.5 * jnp.exp(-jnp.abs(z))))


@jax.jit
def _quantile(scale: Reals, u: Reals) -> Reals:
    scale, u = jnp.broadcast_arrays(guarded(scale), u)
    return jnp.where(u < 0.5, scale, -scale) * jnp.log(2.0 * jnp.minimum(u, 1.0 - u))


@jax.jit
def _absolute_moment(scale: Reals, power: Reals) -> Reals:
    scale, power = jnp.broadcast_arrays(guarded(scale), power)
    return scale**power * jnp.exp(gammaln(power + 1.0))


@jax.jit
def _log_delta(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    scale, shift, epsilon, r = jnp.broadcast_arrays(
        guarded(scale), shift, epsilon_at(shift, epsilon), ratio_of(shift, scale)
    )
    close = jnp.isfinite(scale) & (jnp.abs(epsilon - r) < 0.5 * r)
    gap = product_gap(shift, epsilon, jnp.where(close, scale, 1.0)) / scale
    exponent = jnp.minimum(epsilon, 0.5 * jnp.where(close, -gap, epsilon - r))
    # The comparison sends NaN to the branch that keeps it.
    inside = jnp.where(exponent >= 0, -1.0, exponent)
    value = log1mexp(-inside)
    value += ULP * (8.0 + 2.0 * jnp.where(value == 0, 0.0, -inside)) * jnp.abs(value)
    return jnp.where(exponent >= 0, -jnp.inf, jnp.minimum(value, 0.0))


@jax.jit
def divergence_of_ratio(r: Reals, s: Reals) -> Reals:
    """`Laplace.renyi` of the order 1 + s at r = shift / scale, for arrays of one shape."""
    grows = s * r > 1.0
    low = jnp.where(grows, 0.0, s)
    # (M - 1) / s, where the terms of first order in r have been cancelled on paper.
    higher = low + 1.0
    rate = low * growth_ratio(low * r) + higher * decay_means(higher * r)[1]
    near = log1p_ratio(higher * r * r * rate / (low + higher), low)
    high = jnp.where(grows, s, 1.0)
    width = 2.0 * high + 1.0
    far = r + jnp.log((high + 1.0 + high * jnp.exp(-width * r)) / width) / high
    return jnp.where(grows, far, near)
