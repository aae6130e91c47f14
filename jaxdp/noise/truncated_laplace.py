"""The truncated Laplace: bounded noise, with a delta that no epsilon removes.

The mass of (0, t) is proportional to 1 - e^(-t / scale). Where the bound is shorter than the scale
it is measured in units of t / bound, so that an infinite scale, the uniform law, is right.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import custom_jvp, special, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import (
    LOG_2,
    ULP,
    horner,
    log1m,
    log_mean_exp,
    product_gap,
    round_up,
)
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.negative_epsilon import with_limits
from jaxdp.noise.laplace import divergence_of_ratio, zcdp_of_ratio
from jaxdp.noise.structure import Kinks, atom_pair

# Terms of the moments' series. derived: the next one is below an ulp
_SERIES_TERMS = 26
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
        return whole_draws.draw(
            key, whole_draws.WholeLaw(self.whole_kind, scale, bound=bound), shape
        )

    def _absolute_moment(self, power: Reals) -> Reals:
        """scale^p gamma(p + 1, x) / (1 - e^-x), x = bound / scale, gamma the lower one."""
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
        value = _log_delta(support, xp.where(usual, shift, 1.0), epsilon)
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
        """log(1 - P[T > bound - shift]), and min(shift, 2 bound - shift) / scale, rounded up."""
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
    """Lengths times a power of 2 if half of one may underflow; bounds are kept below 1e300."""
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


# Taylor coefficients of (1 - e^-t) / t.
_MEAN_SERIES = tuple((-1.0) ** k / math.factorial(k + 1) for k in range(9))
# Below it (1 - e^-t) / t is a series, for the sake of its derivatives.
_NEAR = 0.02
# Least exponent. derived: four least normal numbers, never flushed to 0
_TINY = 4.0 * float(xp.finfo(xp.float64).tiny)
# The least finite double.
_LOWEST = float(xp.finfo(xp.float64).min)
# A length below it is lifted by a factor. chosen: products of two lengths are safe above
_SMALL = 1e-200
_LIFT = 2.0**400


class Support(NamedTuple):
    """Scale and bound, NaN where bad."""

    scale: Reals
    bound: Reals
    short: Bools  # bound < scale

    def exponent(self, length: Reals) -> Reals:
        """length / scale for a length that is infinite where the bound is."""
        infinite = self.bound == xp.inf
        return xp.where(infinite, xp.inf, length / xp.where(infinite, 1.0, self.scale))

    def ratio(self, length: Reals) -> Reals:
        """length / bound, where that is needed."""
        return length / xp.where(self.short, self.bound, 1.0)

    def share(self, exponent: Reals, ratio: Reals) -> Reals:
        """1 - e^-exponent, or, where the bound is short, ratio (1 - e^-exponent) / exponent."""
        fall = -xp.expm1(-exponent)
        near = exponent < _NEAR
        t = xp.where(near, exponent, 0.0)
        series = horner(_MEAN_SERIES, t)
        mean = xp.where(near, series, fall / xp.where(near, 1.0, exponent))
        return xp.where(self.short, ratio * mean, fall)

    def whole(self) -> Reals:
        """The share of the bound."""
        return self.share(self.exponent(self.bound), xp.ones_like(self.bound))

    def length(self) -> Reals:
        """The shorter of scale and bound."""
        return xp.where(self.short, self.bound, self.scale)


class _Terms(NamedTuple):
    """Terms at |epsilon|: delta = near + brink, 1 - delta = kept + brink, each over `whole`."""

    size: Reals  # |epsilon|
    inside: Bools  # epsilon changes delta
    none: Bools  # the supports are apart
    log_density: Reals  # of the threshold, but for the normalisation
    exponent: Reals
    fall: Reals  # log of brink's factor
    deep: Bools  # near = 0, and `fall` may be far below every double's logarithm
    near: Reals
    kept: Reals
    edge: Reals
    whole: Reals


def _terms(support: Support, shift: Reals, epsilon: Reals) -> _Terms:
    scale, bound, _ = support
    infinite = bound == xp.inf
    flat = scale == xp.inf
    finite = xp.where(flat, 1.0, scale)
    size = xp.where(epsilon < 0, -epsilon, epsilon)
    # An infinite bound enters by exponents only, which are infinite.
    reach = xp.where(infinite, shift, bound)
    over = shift - reach
    past = over > 0
    rest = reach - over  # 2 bound - shift
    none = past & ~(rest > 0)
    gap, lifted = _gap(shift, xp.where(size < xp.inf, size, 0.0), finite)
    inside = ~flat & (lifted > 0) & (size < support.exponent(rest))
    e = xp.where(inside, size, 0.0)
    # Beyond the range of epsilon, the values at its end.
    end = xp.where(none, reach, over)
    t = xp.where(inside, 0.5 * gap, xp.where(past, end, 0.0))
    # (rest - e scale) / 2 without a difference of rounded products.
    left = xp.where(past, _gap(rest, e, finite)[0], gap - 2.0 * over)
    room = xp.where(inside, 0.5 * left, xp.where(past, 0.0, -over))
    width = xp.where(past, xp.where(none, 0.0, rest), shift)
    width = xp.where(inside, e * finite, width)
    fall = xp.where(inside, over - gap, xp.where(past, -end, over))
    fall = xp.where(infinite, _LOWEST, xp.maximum(fall / scale, _LOWEST))
    least = xp.where(inside, _TINY, 0.0)
    exponent = xp.maximum(t / scale, least)
    whole = support.whole()
    near = support.share(exponent, xp.maximum(support.ratio(t), least)) / whole
    kept = xp.exp(-exponent) * support.share(support.exponent(room), support.ratio(room)) / whole
    edge = support.share(xp.where(inside, e, width / scale), support.ratio(width)) / whole
    log_density = xp.where(inside, -exponent, fall)
    deep = exponent == 0
    return _Terms(
        size, inside, none, log_density, exponent, fall, deep, near, kept, 0.5 * edge, whole
    )


def _forward(t: _Terms) -> Reals:
    """log delta at |epsilon|, less `fall` where that is deep."""
    return xp.log(t.near + xp.where(t.deep, 1.0, xp.exp(t.fall)) * (t.edge + _TINY))


@custom_jvp
def _log_delta(support: Support, shift: Reals, epsilon: Reals) -> Reals:
    """log of delta, rounded up, for arrays of one shape and 0 < shift < inf."""
    t = _terms(support, shift, epsilon)
    forward = _forward(t) + xp.where(t.deep, t.fall, 0.0)
    forward = xp.where(t.deep & (support.bound == xp.inf), -xp.inf, forward)
    brink = xp.exp(t.fall) * t.edge
    complement = t.kept + brink
    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    backward = epsilon < 0
    decay = xp.exp(-t.size)
    mixture = -xp.expm1(-t.size) + decay * xp.exp(forward)
    small = xp.where(backward, xp.log(mixture), forward)
    near_one = small > -LOG_2
    large = log1m(xp.where(near_one, xp.where(backward, decay, 1.0) * complement, 0.5))
    steps = 2.5 * t.exponent * t.kept + 3.0 * xp.minimum(-t.fall, 1e300) * brink
    error = 8.0 + steps / xp.maximum(complement, _TINY)
    return xp.where(near_one, large * (1.0 - ULP * error), small * (1.0 - 8.0 * ULP) + 8.0 * ULP)


@_log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """Derivatives of log delta: the derivatives of delta, over delta.

    With g the density at the threshold u and G its survival function: d delta / d shift = g(u),
    d delta / d epsilon = -e^epsilon G(u + shift), d delta / d bound =
    -(brink / scale + delta 2 g(bound)), and delta depends on ratios of lengths only.
    """
    support, shift, epsilon = primals
    by_support, by_shift, by_epsilon = tangents
    scale, bound, _ = support
    out = _log_delta(support, shift, epsilon)
    t = _terms(support, shift, epsilon)
    backward = epsilon < 0
    anchor = xp.where(t.deep & ~backward, t.fall, 0.0)
    offset = xp.where(backward, -t.size - xp.where(backward, out, 0.0), -_forward(t))
    offset = xp.where(out == -xp.inf, -xp.inf, offset)  # where delta is 0 it stays 0
    length = support.length() * t.whole
    density = xp.exp(t.log_density - anchor + offset) / (2.0 * length)
    density = xp.where(t.none, 0.0, density)
    reverse = xp.exp(_forward(t) + xp.where(t.deep, t.fall, 0.0) + offset)
    delta = xp.where(backward, reverse, 1.0)
    brink = xp.exp(t.fall - anchor + offset) * t.edge
    finite = bound < xp.inf
    last = xp.exp(-xp.where(finite, support.exponent(xp.where(finite, bound, 0.0)), xp.inf))
    narrow = brink / scale + delta * last / length
    kept = t.kept * xp.exp(offset)
    half = xp.where(t.inside, 0.5 * kept, 0.0)
    slope = xp.where(backward, kept - half + brink, half)
    widen = (xp.where(finite, bound, 0.0) / scale) * narrow - (shift / scale) * density
    change = density * by_shift - slope * by_epsilon
    return out, change + widen * by_support.scale - narrow * by_support.bound


def _gap(shift: Reals, epsilon: Reals, scale: Reals) -> tuple[Reals, Reals]:
    """shift - epsilon scale, right to the last place; and the same before it may underflow."""
    r = shift / scale
    close = xp.abs(epsilon - r) < 0.5 * r
    lift = xp.where(shift < _SMALL, _LIFT, 1.0)
    m, e, s = (xp.where(close, v, 1.0) for v in (shift * lift, epsilon * lift, scale))
    loose = shift - epsilon * scale
    lifted = xp.where(close, product_gap(m, e, s), loose)
    return xp.where(close, lifted / lift, loose), lifted
