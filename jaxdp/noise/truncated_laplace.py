"""The truncated Laplace: bounded noise, with a delta that no epsilon removes."""

from __future__ import annotations

from typing import final

import jax

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import special, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import (
    LOG_2,
    ULP,
    log1m,
    log_mean_exp,
    round_up,
)
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.negative_epsilon import with_limits
from jaxdp.noise.kernels.truncated_laplace import Support, log_delta
from jaxdp.noise.kernels.whole_laws import WholeLaw
from jaxdp.noise.laplace import divergence_of_ratio, zcdp_of_ratio
from jaxdp.noise.structure import Kinks, atom_pair

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

    With r = shift / scale and x = bound / scale, for 0 <= epsilon <= min(shift, 2 bound - shift) /
    scale delta is [2 (1 - e^((epsilon - r) / 2)) + e^-x (e^epsilon - 1)] / (2 (1 - e^-x)), and for
    a larger epsilon the value at the end of that range, P[T > bound - shift]: never 0. `log_delta`
    is above the truth by at most 5e-15 |log delta| where delta <= 1/2,
    2e-15 |log delta| (2 - log(1 - delta)) above. Relative errors of others:
    (16 + |x| / scale) ulp of log survival, in both tails, 16 ulp of a quantile, 1e-13 of moments
    of a power up to 10.
    Source: Geng, Ding, Guo & Kumar, AISTATS 2020; the profile at every epsilon is ours.
    """

    scale: Reals
    bound: Reals

    def __init__(self, scale: ArrayLike, bound: ArrayLike):
        assign(self, scale=checks.positive("scale", scale), bound=checks.positive("bound", bound))

    shapes = (1e-3, 300.0)
    whole_kind = "exponential"

    @classmethod
    def _of_shape(cls, shape: Reals, scale: Reals) -> TruncatedLaplace:
        return TruncatedLaplace(scale, shape * scale)

    def _in_range(self) -> Bools:
        return (self.scale > 0) & (self.bound > 0)

    def _support(self) -> Support:
        return Support(self.scale, self.bound, self.bound < self.scale)

    def _log_density(self, x: Reals) -> Reals:
        """-|x| / scale - log(2 scale (1 - exp(-bound / scale))); -inf beyond the bound."""
        support = self._support()
        log_peak = -xp.log(support.length()) - xp.log(support.whole()) - LOG_2
        value = -xp.abs(x) / self.scale + log_peak
        return xp.where(xp.abs(x) > self.bound, -xp.inf, value)

    def _log_density_slope(self, x: Reals) -> Reals:
        """-sign(x) / scale."""
        return -xp.sign(x) / self.scale

    def _log_survival(self, x: Reals) -> Reals:
        support = self._support()
        outside = xp.abs(x) >= self.bound
        t = xp.where(outside, 0.0, xp.abs(x))
        rest = self.bound - t
        half = support.share(support.exponent(rest), support.ratio(rest)) / support.whole()
        value = xp.log(half) - LOG_2 - t / self.scale
        below = log1m(0.5 * half * xp.exp(-t / self.scale))
        inside = xp.where(x > 0, value, below)
        return xp.where(outside, xp.where(x > 0, -xp.inf, 0.0 * half), inside)

    def _quantile(self, u: Reals) -> Reals:
        """-scale log(e + 2 u (1 - e)), e = exp(-bound / scale), for u <= 1/2; odd around 1/2."""
        support = self._support()
        tail = xp.minimum(u, 1.0 - u)
        x = support.exponent(self.bound)
        beyond = xp.exp(-x) - 2.0 * tail * xp.expm1(-x)
        far = beyond < 0.5
        log_beyond = xp.log(xp.where(far, beyond, 0.5))
        outer = xp.minimum(-self.scale * log_beyond, self.bound)
        inner = _radius(support, xp.where(far, 0.0, 1.0 - 2.0 * tail))
        radius = xp.where(tail == 0, self.bound, xp.where(far, outer, inner))
        return xp.where(u < 0.5, -radius, radius)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        """The quantile function of uniform draws."""
        w = jax.random.uniform(key, shape, minval=-1.0 + ULP, maxval=1.0, dtype=xp.float64)
        return _draw(self._support(), w)

    def _draw_whole(self, key: Key, shape: Shape, fine: Reals) -> Reals:
        """See `released` for the bound."""
        scale, bound = xp.broadcast_arrays(self.scale / fine, xp.ceil(self.bound / fine))
        return whole_draws.draw(key, WholeLaw(self.whole_kind, scale, bound=bound), shape)

    def _absolute_moment(self, power: Reals) -> Reals:
        """scale^p gamma(p + 1, bound / scale) / (1 - exp(-bound / scale)).

        gamma is the lower incomplete gamma function.
        """
        support = self._support()
        x = support.exponent(self.bound)
        # gamma(p + 1, x) = x^(p + 1) e^-x sum_k x^k / ((p + 1) ... (p + 1 + k)), all positive.
        near = xp.where(support.short, x, 0.5)
        series = xp.ones_like(near)
        for k in range(_SERIES_TERMS, 0, -1):
            series = 1.0 + series * near / (power + (k + 1.0))
        mean = near / xp.where(near == 0, 1.0, -xp.expm1(-near))
        mean = xp.where(near == 0, 1.0, mean)
        low = self.bound**power * series * xp.exp(-near) * mean / (power + 1.0)
        far = xp.where(support.short, 1.0, x)
        log_whole = special.gammaln(power + 1.0) + xp.log(special.gammainc(power + 1.0, far))
        high = self.scale**power * xp.exp(log_whole) / -xp.expm1(-far)
        return xp.where(support.short, low, high)

    def _fisher_information(self) -> Reals:
        """Infinite: the density jumps at the bound. 1 / scale^2 for an infinite bound."""
        return xp.where(self.bound < xp.inf, xp.inf, 1.0 / self.scale**2)

    def _sub_gaussian_proxy(self) -> Reals:
        """bound^2 / 3, the uniform law's: |T| is stochastically below a uniform |U|."""
        return round_up(self.bound * self.bound / 3.0, 2)

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        scale, bound, shift = _away_from_underflow(self.scale, self.bound, shift)
        width = xp.minimum(scale, bound)
        usual = (shift > 0) & (shift < xp.inf) & (width < xp.inf)
        support = Support(scale, bound, bound < scale)
        value = log_delta(support, xp.where(usual, shift, 1.0), epsilon)
        return with_limits(value, width, shift, epsilon)

    def _infinite_loss(self, shift: Reals) -> Bools:
        """True if the loss may be infinite."""
        return (self.bound < xp.inf) & (shift > 0)

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Infinite; with an infinite bound as `Laplace`."""
        value = divergence_of_ratio(ratio_of(shift, self.scale), excess)
        return xp.where(self._infinite_loss(shift), xp.inf, value)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        """Infinite, unless the shift is 0 or the bound infinite."""
        value = round_up(ratio_of(shift, self.scale), 1)
        return xp.where(self._infinite_loss(shift), xp.inf, value)

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, inf): every Renyi divergence is infinite; with an infinite bound as `Laplace`."""
        xi, rho = zcdp_of_ratio(ratio_of(shift, self.scale))
        return xi, xp.where(self._infinite_loss(shift), xp.inf, rho)

    def _singularities(self, shift: Reals) -> Kinks:
        """One atom is at infinity; at no shift, or with an infinite bound, as `Laplace`."""
        atom = ratio_of(shift, self.scale)
        return atom_pair(xp.where(self._infinite_loss(shift), xp.nan, atom))

    def _finite_loss(self, shift: Reals) -> tuple[Reals, Reals]:
        """log(1 - P[T > bound - shift]), and min(shift, 2 bound - shift) / scale, rounded up.

        Infinite losses are where the other input has nothing.
        """
        endless = xp.isinf(self.bound) & ~xp.isnan(shift)
        beyond = self._log_survival(xp.where(endless, self.bound, self.bound - shift))
        thin = _log_thin(self.scale, self.bound, shift)
        beyond = xp.where(shift < _THIN * self.bound, thin, beyond)
        shorter = xp.clip(2.0 * self.bound - shift, 0.0, shift)
        length = xp.where(xp.isinf(self.bound), shift, shorter)
        log_finite = xp.maximum(log1m(xp.exp(beyond)), LEAST_FINITE)
        return log_finite, round_up(ratio_of(length, self.scale), 4)

    def kinks(self) -> tuple[Reals, ...]:
        """0 and the ends of the support."""
        return -self.bound, xp.zeros(()), self.bound


def _away_from_underflow(scale: Reals, bound: Reals, shift: Reals) -> tuple[Reals, Reals, Reals]:
    """Lengths times a power of 2 where half of one may underflow: only ratios count.

    Of what overflows then a shift is infinite, and a finite bound 1e300: neither is safer.
    """
    lift = xp.where(xp.minimum(scale, bound) < _SMALL, _LIFT, 1.0)
    lifted = xp.where(xp.isinf(bound), bound, xp.minimum(bound * lift, _WIDEST))
    return scale * lift, xp.where(lift > 1, lifted, bound), shift * lift


def _radius(support: Support, v: Reals) -> Reals:
    """The r with P[|T| <= r] = v: -scale log(1 - v (1 - e^-x)), for v not near 1."""
    fall = v * -xp.expm1(-support.exponent(support.bound))
    low = fall < 1e-8
    safe = xp.where(low, 0.5, fall)
    mean = xp.where(low, 1.0 + fall * (0.5 + fall / 3.0), -log1m(safe) / safe)
    return xp.minimum(support.length() * v * support.whole() * mean, support.bound)


@jitted
def _draw(support: Support, w: Reals) -> Reals:
    return xp.sign(w) * _radius(support, xp.abs(w))


def _log_thin(scale: Reals, bound: Reals, shift: Reals) -> Reals:
    """log P[T > bound - shift] for a shift that bound - shift may not show."""
    infinite = xp.isinf(bound)
    bound = xp.where(infinite, 1.0, bound)
    # (e^t - 1) / t for shift / scale and bound / scale.
    grown = [log_mean_exp(ratio_of(t, scale)) for t in (shift, bound)]
    share = xp.log(shift) - xp.log(bound) - LOG_2
    value = share + grown[0] - grown[1]
    # Upwards, by what logarithms of that size lose.
    value = value + 2.0 * ULP * xp.where(value > -xp.inf, xp.abs(value), 0.0)
    return xp.where(infinite, -xp.inf, value)
