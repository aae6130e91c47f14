"""The Subbotin or generalised Gaussian: from the Laplace through the Gaussian to the uniform."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp._numeric.elementary import LOG_2, lifted, round_up
from jaxdp._numeric.gamma import gamma_excess
from jaxdp.noise.base import Noise, epsilon_at, guarded, ratio_of
from jaxdp.noise.kernels import (
    subbotin_profile,
    subbotin_survival,
    subbotin_zcdp,
)
from jaxdp.noise.laplace import Laplace

# The largest power. chosen: the law is the uniform one to four digits
_LARGEST_POWER = 1e4
# Share of a divergence, by p^2, that the quadrature may lose. measured: below 1e-13 at p = 20,
# where nothing is added, 4e-11 at 100, 8e-9 at 1,000
_LOST = 3e-14


@final
@pytree
class Subbotin(Noise):
    """The density exp(-|x|^p / (p scale^p)) / (2 scale p^(1/p - 1) Gamma(1/p)), p = `power`.

    The power lies in [1, 1e4]: 1 is the Laplace, 2 the Gaussian of that scale, both exactly;
    below 1 the density is not log-concave. Sensitivity: of one coordinate. Units, bad input:
    `Noise`. An infinite `scale` is legal and private. Renyi divergences of powers above 20 are
    rounded up by 3e-14 p^2 of them.
    Source: Subbotin, Mat. Sb. 31, 1923; as a noise: Liu, IEEE TKDE 31, 2019.
    """

    scale: Reals
    power: Reals

    def __init__(self, scale: ArrayLike, power: ArrayLike):
        scale = checks.positive("scale", scale)
        assign(self, scale=scale, power=checks.real("power", power, 1.0, _LARGEST_POWER))

    @property
    def log_concave(self) -> bool:
        """True."""
        return True

    def log_density(self, x: ArrayLike) -> Reals:
        """-|x / scale|^p / p - log(2 scale p^(1/p - 1) Gamma(1/p))."""
        return _log_density(self.scale, self.power, checks.real("x", x))

    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x]: half a regularised upper incomplete gamma function of order 1/p.

        Relative error, in both tails: 1e-14 for p <= 20.
        """
        return _log_survival(self.scale, self.power, checks.real("x", x))

    def quantile(self, u: ArrayLike) -> Reals:
        """The inverse of the distribution function, by Newton's method. Relative error: 3e-14."""
        return _quantile(self.scale, self.power, checks.probability("u", u))

    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """scale (p G)^(1/p) with a random sign, G from the gamma law of order 1/p."""
        shape = jnp.broadcast_shapes(shape, jnp.shape(self.scale), jnp.shape(self.power))
        scale, power = jnp.broadcast_to(guarded(self.scale), shape), _guarded_power(self.power)
        power = jnp.broadcast_to(power, shape)
        gamma_key, sign_key = jax.random.split(checked_key(key))
        log_gamma = jax.random.loggamma(gamma_key, 1.0 / power, shape, dtype=jnp.float64)
        sign = jax.random.rademacher(sign_key, shape, dtype=jnp.float64)
        return scale * sign * jnp.exp((jnp.log(power) + log_gamma) / power)

    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^k = scale^k p^(k/p) Gamma((k + 1) / p) / Gamma(1/p), k > -1. Relative error: 1e-14.

        `power` is the k of the moment here, not the p of the density.
        """
        k = checks.real("power", power, -1.0, open_lower=True)
        return _absolute_moment(self.scale, self.power, k)

    def fisher_information(self) -> Reals:
        """p^(2 - 2/p) Gamma(2 - 1/p) / (Gamma(1/p) scale^2)."""
        return _fisher_information(self.scale, self.power)

    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log of delta, by incomplete gamma functions of order s = 1/p.

        With G(s, x) the upper one, 2 Gamma(s) delta = G(s, A) - e^epsilon G(s, A + epsilon),
        A = |u / scale|^p / p, at the u where the loss is epsilon; plus 2 gamma(s, A) where u < 0.
        An upper bound, above the truth by at most 4e-15 |log delta| + 1e-15 C for p <= 20, C the
        relative change of delta (of 1 - delta where delta > 1/2, times |log delta|) per relative
        change of shift and epsilon.
        """
        shift = checks.nonnegative("shift", shift)
        return _log_delta(self.scale, self.power, shift, checks.real("epsilon", epsilon))

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Quadrature (`kernels.divergence`), for p > 20 rounded up by 3e-14 (p^2 - 400) of it."""
        power = _guarded_power(self.power)
        r, power, excess = jnp.broadcast_arrays(ratio_of(shift, self.scale), power, excess)
        lost = _LOST * jnp.maximum(power**2 - 400.0, 0.0)
        return subbotin_zcdp.own_divergence(power, r, excess) * (1.0 + lost)

    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(0, rho): rho as for `Laplace` at p = 1, r^2 / 2 at p = 2, r = shift / scale.

        Between them a bound at most 0.4 % above the least rho (2e-6 for p < 1.9); for p > 2 the
        divergence grows faster than the order. Proof: see `kernels.subbotin_zcdp`.
        """
        return _zcdp(self.scale, self.power, checks.nonnegative("shift", shift))

    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """shift / scale at p = 1, rounded up; else infinite, unless shift / scale is 0."""
        r, power = _ratio_and_power(self.scale, self.power, shift)
        value = jnp.where((power == 1) | (r == 0), round_up(r, 1), jnp.inf)
        return jnp.where(jnp.isnan(r + power), jnp.nan, value)

    def sub_gaussian_proxy(self) -> Reals:
        """The variance for p >= 2, infinite below: the tails are heavier than Gaussian.

        Proof: (x^p)' is convex on x > 0 for p >= 2, so by the GHS inequality (Ellis, Monroe &
        Newman, Commun. Math. Phys. 46, 1976) log E exp(t T) has its largest curvature at 0.
        """
        variance = self.variance()
        heavy = jnp.where(variance >= 0, jnp.inf, jnp.nan)
        return jnp.where(self.power < 2, heavy, round_up(variance, 32))

    def loss_atom(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """p = 1: (shift / scale, log(1/2)). Else none, but for no shift: two halves at r = 0."""
        r, power = _ratio_and_power(self.scale, self.power, shift)
        log_mass = jnp.where((power == 1) | (r == 0), -LOG_2, -jnp.inf)
        log_mass = jnp.where(jnp.isnan(r + power), jnp.nan, log_mass)
        return jnp.where((power == 1) | jnp.isnan(r), r, 0.0), log_mass


def _guarded_power(power: Reals) -> Reals:
    return jnp.where((power >= 1) & (power <= _LARGEST_POWER), power, jnp.nan)


def _ratio_and_power(scale: Reals, power: Reals, shift: ArrayLike) -> tuple[Reals, Reals]:
    ratio = ratio_of(checks.nonnegative("shift", shift), scale)
    ratio, power = jnp.broadcast_arrays(ratio, _guarded_power(power))
    return ratio, power


def _log_unit(power: Reals) -> Reals:
    """log of 2 p^(1/p - 1) Gamma(1/p)."""
    beta = (power - 1.0) / power
    return LOG_2 - beta * jnp.log(power) + jnp.log1p(gamma_excess(beta))


@jax.jit
def _log_density(scale: Reals, power: Reals, x: Reals) -> Reals:
    scale, power, x = jnp.broadcast_arrays(guarded(scale), _guarded_power(power), x)
    return -(jnp.abs(x / scale) ** power) / power - jnp.log(scale) - _log_unit(power)


@jax.jit
def _log_survival(scale: Reals, power: Reals, x: Reals) -> Reals:
    t, power = jnp.broadcast_arrays(ratio_of(x, scale), _guarded_power(power))
    return subbotin_survival.log_survival(t, power)


@jax.jit
def _quantile(scale: Reals, power: Reals, u: Reals) -> Reals:
    scale, power, u = jnp.broadcast_arrays(guarded(scale), _guarded_power(power), u)
    return scale * subbotin_survival.quantile(u, power)


@jax.jit
def _absolute_moment(scale: Reals, power: Reals, k: Reals) -> Reals:
    scale, p, k = jnp.broadcast_arrays(guarded(scale), _guarded_power(power), k)
    return scale**k * p ** (k / p) * jnp.exp(gammaln((k + 1.0) / p) - gammaln(1.0 / p))


@jax.jit
def _fisher_information(scale: Reals, power: Reals) -> Reals:
    scale, p = jnp.broadcast_arrays(guarded(scale), _guarded_power(power))
    beta = (p - 1.0) / p
    ratio = jnp.exp(gammaln(1.0 + beta)) / (1.0 + gamma_excess(beta))
    return p ** (2.0 * beta) * ratio / scale**2


@jax.jit
def _log_delta(scale: Reals, power: Reals, shift: Reals, epsilon: Reals) -> Reals:
    epsilon = epsilon_at(shift, epsilon)
    scale, shift, epsilon, r, power = jnp.broadcast_arrays(
        guarded(scale), shift, epsilon, ratio_of(shift, scale), _guarded_power(power)
    )
    exact = Laplace(scale).log_delta(shift, epsilon)
    pure = power == 1
    outside = pure & (jnp.abs(epsilon) >= r)
    value = subbotin_profile.log_delta(r, jnp.where(outside, 0.5 * r, epsilon), power)
    # The closed form's value, with the derivatives (in the power as well) of the general one.
    value += jnp.where(pure & ~outside, jax.lax.stop_gradient(exact - value), 0.0)
    return jnp.where(outside, exact, value)


@jax.jit
def _zcdp(scale: Reals, power: Reals, shift: Reals) -> tuple[Reals, Reals]:
    scale, shift, r, power = jnp.broadcast_arrays(
        guarded(scale), shift, ratio_of(shift, scale), _guarded_power(power)
    )
    between = (power > 1) & (power < 2) & (r > 0) & (r < jnp.inf)
    size = jnp.where(between, jnp.maximum(r, 1e-140), 1.0)
    rho = round_up(subbotin_zcdp.least_rho(size, jnp.where(between, power, 1.5)), 256)
    rho = jnp.where(between, rho, jnp.where(r == 0, 0.0, jnp.inf))
    rho = jnp.where(power == 1, Laplace(scale).zcdp(shift)[1], rho)
    rho = lifted(jnp.where(power == 2, round_up(0.5 * r * r, 2), rho), r > 0)
    return jnp.zeros_like(rho), jnp.where(jnp.isnan(r + power), jnp.nan, rho)
