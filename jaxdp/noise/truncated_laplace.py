"""The truncated Laplace: bounded noise, with a delta that no epsilon removes."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaln

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import (
    LOG_2,
    ULP,
    expm1_minus,
    lifted,
    log1m,
    log1mexp,
    log_mean_exp,
    round_up,
)
from jaxdp.noise.base import Noise, guarded, ratio_of
from jaxdp.noise.kernels.truncated_laplace import Support, log_delta
from jaxdp.noise.laplace import divergence_of_ratio

# Terms of the moments' series. derived: the next one is below an ulp
_SERIES_TERMS = 26
_SMALL = 1e-200  # a length below it is lifted. chosen: products of two lengths are safe above
_LIFT = 2.0**400  # by this factor. chosen: the least normal number becomes 5e-188
_THIN = 1e-3  # of the bound: a shift below it is not left to a difference. chosen: 3 digits lost
# log of the probability of a finite loss where there is none. chosen: its exponential is 1e-304.
LEAST_FINITE = -700.0
_WIDEST = 1e300  # the bound where a lifted one overflows. chosen: a double


@final
@pytree
class TruncatedLaplace(Noise):
    """The density exp(-|x| / scale) / (2 scale (1 - exp(-bound / scale))) on |x| <= bound.

    Sensitivity: l1. Units, bad input: `Noise`. An infinite `scale` is the uniform law, an
    infinite `bound` the Laplace. The loss is infinite with positive probability, so there is
    neither pure nor concentrated differential privacy, nor a Fisher information.
    Source: Geng, Ding, Guo & Kumar, AISTATS 2020; the profile at every epsilon is ours.
    """

    scale: Reals
    bound: Reals

    def __init__(self, scale: ArrayLike, bound: ArrayLike):
        assign(self, scale=checks.positive("scale", scale), bound=checks.positive("bound", bound))

    def log_density(self, x: ArrayLike) -> Reals:
        """-|x| / scale - log(2 scale (1 - exp(-bound / scale))); -inf beyond the bound."""
        return _log_density(self.scale, self.bound, checks.real("x", x))

    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x]. Relative error, in both tails: (16 + |x| / scale) ulp."""
        return _log_survival(self.scale, self.bound, checks.real("x", x))

    def quantile(self, u: ArrayLike) -> Reals:
        """-scale log(e + 2 u (1 - e)), e = exp(-bound / scale), for u <= 1/2; odd around 1/2.

        Relative error: 16 ulp.
        """
        return _quantile(self.scale, self.bound, checks.probability("u", u))

    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """The quantile function of uniform draws; see `Noise.sample`."""
        parameters = jnp.broadcast_shapes(jnp.shape(self.scale), jnp.shape(self.bound))
        shape = jnp.broadcast_shapes(shape, parameters)
        w = jax.random.uniform(
            checked_key(key), shape, minval=-1.0 + ULP, maxval=1.0, dtype=jnp.float64
        )
        scale, bound = (jnp.broadcast_to(v, shape) for v in (self.scale, self.bound))
        return _draw(scale, bound, w)

    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^p = scale^p gamma(p + 1, bound / scale) / (1 - exp(-bound / scale)), p > -1.

        gamma is the lower incomplete gamma function. Relative error: 1e-13 for p <= 10.
        """
        power = checks.real("power", power, -1.0, open_lower=True)
        return _absolute_moment(self.scale, self.bound, power)

    def fisher_information(self) -> Reals:
        """Infinite: the density jumps at the bound. 1 / scale^2 for an infinite bound."""
        scale, bound = jnp.broadcast_arrays(guarded(self.scale), guarded(self.bound))
        information = jnp.where(bound < jnp.inf, jnp.inf, 1.0 / scale**2)
        return jnp.where(jnp.isnan(scale + bound), jnp.nan, information)

    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log of delta, in closed form.

        For 0 <= epsilon <= min(shift, 2 bound - shift) / scale delta is
        [2 (1 - e^((epsilon - r) / 2)) + e^-x (e^epsilon - 1)] / (2 (1 - e^-x)), with
        r = shift / scale and x = bound / scale, and for a larger epsilon the value at the end of
        that range, P[T > bound - shift]: never 0. An upper bound, above the truth by at most
        5e-15 |log delta| where delta <= 1/2, 2e-15 |log delta| (2 - log(1 - delta)) above.
        """
        shift = checks.nonnegative("shift", shift)
        return _log_delta(self.scale, self.bound, shift, checks.real("epsilon", epsilon))

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Infinite; of an infinite bound that of `Laplace`."""
        r, infinite = _loss(self.scale, self.bound, shift)
        return jnp.where(infinite, jnp.inf, divergence_of_ratio(r, excess))

    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(0, inf): every Renyi divergence is infinite. An infinite bound: see `Laplace.zcdp`."""
        r, infinite = _loss(self.scale, self.bound, checks.nonnegative("shift", shift))
        rho = lifted(round_up(expm1_minus(-r), 16), r > 0)
        return jnp.zeros_like(r), jnp.where(infinite, jnp.inf, rho)

    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """Infinite, unless the shift is 0 or the bound infinite."""
        r, infinite = _loss(self.scale, self.bound, checks.nonnegative("shift", shift))
        return jnp.where(infinite, jnp.inf, round_up(r, 1))

    def log_finite(self, shift: Reals) -> Reals:
        """log(1 - P[T > bound - shift]): infinite losses are where the other input has nothing."""
        scale, bound = guarded(self.scale), guarded(self.bound)
        beyond = self.log_survival(_room(bound, shift))
        beyond = jnp.where(shift < _THIN * bound, _log_thin(scale, bound, shift), beyond)
        return jnp.maximum(log1m(jnp.exp(beyond)), LEAST_FINITE)

    def largest_finite(self, shift: ArrayLike) -> Reals:
        """min(shift, 2 bound - shift) / scale, rounded up; at least 0."""
        shift = checks.nonnegative("shift", shift)
        scale, bound = guarded(self.scale), guarded(self.bound)
        shorter = jnp.clip(2.0 * bound - shift, 0.0, shift)
        return round_up(ratio_of(jnp.where(jnp.isinf(bound), shift, shorter), scale), 4)

    def kinks(self) -> tuple[Reals, ...]:
        """0 and the ends of the support."""
        return -self.bound, jnp.zeros(()), self.bound

    def sub_gaussian_proxy(self) -> Reals:
        """bound^2 / 3, the uniform law's: |T| is stochastically below a uniform |U|."""
        scale, bound = jnp.broadcast_arrays(guarded(self.scale), guarded(self.bound))
        return jnp.where(scale > 0, round_up(bound * bound / 3.0, 2), jnp.nan)

    def loss_atom(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """NaN: one atom is at infinity. At no shift, or with an infinite bound, as `Laplace`."""
        r, infinite = _loss(self.scale, self.bound, checks.nonnegative("shift", shift))
        return r, jnp.where(infinite | jnp.isnan(r), jnp.nan, -LOG_2)


@jax.jit
def _loss(scale: Reals, bound: Reals, shift: Reals) -> tuple[Reals, Bools]:
    """shift / scale, NaN where anything is bad; whether the loss may be infinite."""
    scale, bound, shift = jnp.broadcast_arrays(guarded(scale), guarded(bound), shift)
    r = jnp.where(bound > 0, ratio_of(shift, scale), bound)
    return r, (bound < jnp.inf) & (shift > 0)


def _away_from_underflow(scale: Reals, bound: Reals, shift: Reals) -> tuple[Reals, Reals, Reals]:
    """The same times a power of 2 where half of a length may underflow: only ratios count.

    Of what overflows then a shift is infinite, and a finite bound 1e300: neither is safer.
    """
    lift = jnp.where(jnp.minimum(scale, bound) < _SMALL, _LIFT, 1.0)
    lifted = jnp.where(jnp.isinf(bound), bound, jnp.minimum(bound * lift, _WIDEST))
    return scale * lift, jnp.where(lift > 1, lifted, bound), shift * lift


def _support(scale: Reals, bound: Reals) -> Support:
    scale, bound = guarded(scale), guarded(bound)
    return Support(scale, bound, bound < scale)


@jax.jit
def _log_density(scale: Reals, bound: Reals, x: Reals) -> Reals:
    scale, bound, x = jnp.broadcast_arrays(scale, bound, x)
    support = _support(scale, bound)
    log_peak = -jnp.log(support.length()) - jnp.log(support.whole()) - LOG_2
    value = -jnp.abs(x) / support.scale + log_peak
    return jnp.where(jnp.abs(x) > support.bound, -jnp.inf, value)


@jax.jit
def _log_survival(scale: Reals, bound: Reals, x: Reals) -> Reals:
    scale, bound, x = jnp.broadcast_arrays(scale, bound, x)
    support = _support(scale, bound)
    outside = jnp.abs(x) >= support.bound
    t = jnp.where(outside, 0.0, jnp.abs(x))
    rest = support.bound - t
    half = support.share(support.exponent(rest), support.ratio(rest)) / support.whole()
    value = jnp.log(half) - LOG_2 - t / support.scale
    below = log1m(0.5 * half * jnp.exp(-t / support.scale))
    inside = jnp.where(x > 0, value, below)
    return jnp.where(outside, jnp.where(x > 0, -jnp.inf, 0.0 * half), inside)


def _radius(support: Support, v: Reals) -> Reals:
    """The r with P[|T| <= r] = v: -scale log(1 - v (1 - e^-x)), for v not near 1."""
    fall = v * -jnp.expm1(-support.exponent(support.bound))
    low = fall < 1e-8
    safe = jnp.where(low, 0.5, fall)
    mean = jnp.where(low, 1.0 + fall * (0.5 + fall / 3.0), -log1m(safe) / safe)
    return jnp.minimum(support.length() * v * support.whole() * mean, support.bound)


@jax.jit
def _draw(scale: Reals, bound: Reals, w: Reals) -> Reals:
    return jnp.sign(w) * _radius(_support(scale, bound), jnp.abs(w))


@jax.jit
def _quantile(scale: Reals, bound: Reals, u: Reals) -> Reals:
    scale, bound, u = jnp.broadcast_arrays(scale, bound, u)
    support = _support(scale, bound)
    tail = jnp.minimum(u, 1.0 - u)
    x = support.exponent(support.bound)
    beyond = jnp.exp(-x) - 2.0 * tail * jnp.expm1(-x)
    far = beyond < 0.5
    log_beyond = jnp.log(jnp.where(far, beyond, 0.5))
    outer = jnp.minimum(-support.scale * log_beyond, support.bound)
    inner = _radius(support, jnp.where(far, 0.0, 1.0 - 2.0 * tail))
    radius = jnp.where(tail == 0, support.bound, jnp.where(far, outer, inner))
    return jnp.where(u < 0.5, -radius, radius)


@jax.jit
def _absolute_moment(scale: Reals, bound: Reals, power: Reals) -> Reals:
    scale, bound, power = jnp.broadcast_arrays(scale, bound, power)
    support = _support(scale, bound)
    x = support.exponent(support.bound)
    # gamma(p + 1, x) = x^(p + 1) e^-x sum_k x^k / ((p + 1) ... (p + 1 + k)), all terms positive.
    near = jnp.where(support.short, x, 0.5)
    series = jnp.ones_like(near)
    for k in range(_SERIES_TERMS, 0, -1):
        series = 1.0 + series * near / (power + (k + 1.0))
    mean = near / jnp.where(near == 0, 1.0, -jnp.expm1(-near))
    mean = jnp.where(near == 0, 1.0, mean)
    low = bound**power * series * jnp.exp(-near) * mean / (power + 1.0)
    far = jnp.where(support.short, 1.0, x)
    log_whole = gammaln(power + 1.0) + jnp.log(gammainc(power + 1.0, far))
    high = scale**power * jnp.exp(log_whole) / -jnp.expm1(-far)
    return jnp.where(support.short, low, high)


@jax.jit
def _log_delta(scale: Reals, bound: Reals, shift: Reals, epsilon: Reals) -> Reals:
    scale, bound, shift, epsilon = jnp.broadcast_arrays(scale, bound, shift, epsilon)
    scale, bound, shift = _away_from_underflow(scale, bound, shift)
    support = _support(scale, bound)
    spread = (scale == jnp.inf) & (bound == jnp.inf)
    none = (shift == 0) | (spread & (shift < jnp.inf))
    everything = (shift == jnp.inf) & ~spread
    value = log_delta(support, jnp.where(none | everything, 1.0, shift), epsilon)
    backward = epsilon < 0
    unshifted = log1mexp(jnp.where(backward, -epsilon, 1.0))
    value = jnp.where(none, jnp.where(backward, unshifted, -jnp.inf), value)
    value = jnp.where(everything, 0.0, jnp.minimum(value, 0.0))
    bad = jnp.isnan(support.scale + support.bound + shift) | jnp.isnan(epsilon)
    bad |= spread & (shift == jnp.inf)
    return jnp.where(bad, jnp.nan, value)


def _room(bound: Reals, shift: Reals) -> Reals:
    """bound - shift, infinite at an infinite bound whatever the shift."""
    endless = jnp.isinf(bound) & ~jnp.isnan(shift)
    return jnp.where(endless, bound, bound - shift)


def _log_thin(scale: Reals, bound: Reals, shift: Reals) -> Reals:
    """log P[T > bound - shift] for a shift that bound - shift may not show."""
    infinite = jnp.isinf(bound)
    bound = jnp.where(infinite, 1.0, bound)
    # (e^t - 1) / t for shift / scale and bound / scale.
    grown = [log_mean_exp(ratio_of(t, scale)) for t in (shift, bound)]
    share = jnp.log(shift) - jnp.log(bound) - LOG_2
    value = share + grown[0] - grown[1]
    # Upwards, by what logarithms of that size lose.
    value += 2.0 * ULP * jnp.where(value > -jnp.inf, jnp.abs(value), 0.0)
    return jnp.where(infinite, -jnp.inf, value)
