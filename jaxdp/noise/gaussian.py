"""The Gaussian: the noise that composes into itself."""

from __future__ import annotations

from typing import NamedTuple, final

import jax

from jaxdp._core import checks
from jaxdp._core.namespace import custom_jvp, special, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.double_double import product_up, quotient_up
from jaxdp._numeric.elementary import (
    LOG_2,
    LOG_SQRT_2PI,
    ULP,
    lifted,
    log1m_near,
    normal_integral_over_density,
)
from jaxdp._numeric.mills import log_normal_survival, mills_pair
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.structure import Smooth

# Rounding of log delta, in ulp, besides the rounding of mu.
_VALUE_ULPS = 4.0
# Half an ulp of mu itself; epsilon / mu, at most half of a + mu where a < 0; a^2.
_RATIO_ULPS = 2.5
_RATIO_ULPS_BELOW = 1.5
# Squares of anything larger overflow; delta only falls beyond.
_LARGEST = 1e150


@final
@pytree
class Gaussian(Noise):
    """The density exp(-x^2 / (2 scale^2)) / (scale sqrt(2 pi)); `scale` is its standard deviation.

    Sensitivity: l2. Units, bad input: `Noise`. An infinite `scale` is legal and private.

    With mu = shift / scale and a = epsilon / mu - mu / 2, delta = Q(a) - e^epsilon Q(a + mu) at
    every real epsilon; no regime loses digits. `log_delta` is above the truth by at most
    2e-15 (|log delta| + A) where delta <= 1/2 and 2e-15 |log delta| (1 + A) above, with
    A = (1 + |a|)(|a| + mu) the amplification of mu's own rounding. Relative errors of others:
    1e-14 + (x / scale)^2 ulp of log survival; 1e-14 of a quantile for u in [1e-300, 1/2] and of
    moments. Renyi divergences are exact to rounding; the pure epsilon is infinite.

    Source: Balle & Wang, ICML 2018, theorem 8; the form in Mills ratios is ours. The
    noise: Dwork, Kenthapadi, McSherry, Mironov & Naor, EUROCRYPT 2006.
    """

    scale: Reals

    def __init__(self, scale: ArrayLike):
        assign(self, scale=checks.positive("scale", scale))

    log_concave = True
    norm = 2
    whole_kind = "normal"

    @classmethod
    def _member(cls, shape: Reals, deviation: Reals) -> Gaussian:
        return Gaussian(deviation)

    def _in_range(self) -> Bools:
        return self.scale > 0

    def _log_density(self, x: Reals) -> Reals:
        """-x^2 / (2 scale^2) - log(scale sqrt(2 pi))."""
        return -0.5 * (x / self.scale) ** 2 - xp.log(self.scale) - LOG_SQRT_2PI

    def _log_density_slope(self, x: Reals) -> Reals:
        """-x / scale^2."""
        return -(x / self.scale) / self.scale

    def _log_survival(self, x: Reals) -> Reals:
        """log Q(x / scale)."""
        return log_normal_survival(ratio_of(x, self.scale))

    def _quantile(self, u: Reals) -> Reals:
        """scale Phi^-1(u)."""
        return self.scale * special.ndtri(u)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        return self.scale * jax.random.normal(key, shape, dtype=xp.float64)

    def _absolute_moment(self, power: Reals) -> Reals:
        """scale^p 2^(p/2) Gamma((p + 1) / 2) / sqrt(pi)."""
        log_unit = 0.5 * power * LOG_2 + special.gammaln(0.5 * (power + 1.0)) - 0.5 * xp.log(xp.pi)
        return self.scale**power * xp.exp(log_unit)

    def _fisher_information(self) -> Reals:
        return 1.0 / self.scale**2

    def _sub_gaussian_proxy(self) -> Reals:
        """scale^2, with equality."""
        return self.scale**2

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        return log_delta_of_ratio(ratio_of(shift, self.scale), epsilon)

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """(s + 1) mu^2 / 2, mu = shift / scale. Source: Mironov, CSF 2017."""
        mu = ratio_of(shift, self.scale)
        return 0.5 * mu * mu * (excess + 1.0)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        return infinite_unless_zero(ratio_of(shift, self.scale))

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, shift^2 / (2 scale^2)), rounded up; exact where no operation rounds.

        Source: Bun & Steinke, TCC 2016, proposition 6.
        """
        mu = quotient_up(shift, self.scale)
        return xp.zeros_like(mu), lifted(0.5 * product_up(mu, mu), mu > 0)

    def _singularities(self, shift: Reals) -> Smooth:
        return Smooth()


class _Terms(NamedTuple):
    """Terms at |epsilon|: delta = phi(a) excess, and, where a < 0, 1 - delta = phi(a) both."""

    size: Reals  # |epsilon|
    near: Reals  # |a|
    far: Reals  # a + mu
    below: Bools  # a < 0
    log_density: Reals  # log phi(a)
    excess: Reals
    both: Reals  # R(near) + R(far)
    ratio_near: Reals
    ratio_far: Reals


def _terms(mu: Reals, epsilon: Reals) -> _Terms:
    size = xp.abs(epsilon)
    safe = xp.where(mu == 0, 1.0, mu)
    ratio = size * (1.0 / safe)
    a = ratio - 0.5 * safe
    below = a < 0
    near = xp.minimum(xp.abs(a), _LARGEST)
    width = xp.where(below, 2.0 * ratio, safe)
    far = xp.minimum(near + width, _LARGEST)
    pair = mills_pair(near, width)
    # Q(a) - e^epsilon Q(b) = (1 - 2 Q(|a|)) + phi(a) (R(|a|) - R(b)) where a < 0.
    # The series is cut at |a| = .75, where it is not used: 1 - delta > 1/2 needs |a| < .6745.
    excess = pair.difference + xp.where(below, 2.0 * normal_integral_over_density(near), 0.0)
    excess = xp.where(mu == 0, 0.0, xp.maximum(excess, xp.finfo(xp.float64).tiny))
    log_density = -0.5 * near * near - LOG_SQRT_2PI
    both = pair.lower + pair.upper
    return _Terms(size, near, far, below, log_density, excess, both, pair.lower, pair.upper)


@custom_jvp
def log_delta_of_ratio(mu: Reals, epsilon: Reals) -> Reals:
    """`Gaussian.log_delta` in mu = shift / scale >= 0, for arrays of one shape."""
    t = _terms(mu, epsilon)
    backward = epsilon < 0
    decay = xp.exp(-t.size)
    tail = xp.exp(t.log_density)
    complement = xp.where(t.below, tail * t.both, 1.0 - tail * t.excess)
    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    mixture = -xp.expm1(-t.size) + decay * tail * t.excess
    near_one = (t.below & (complement < 0.5)) | (backward & (mixture > 0.5))
    small = xp.where(backward, 0.0, t.log_density) + xp.log(xp.where(backward, mixture, t.excess))
    large = log1m_near(xp.where(backward, decay, 1.0) * complement)
    amplification = (1.0 + t.near) * t.far * xp.where(backward & ~t.below, 3.0 * tail, 1.0)
    # Measured over the whole range: 1.7 units of |log delta| + amplification.
    small = small + ULP * (_VALUE_ULPS * xp.abs(small) + _RATIO_ULPS * amplification)
    # A factor: a term added to 1e-300 may be flushed to 0.
    large = large * (1.0 - ULP * (_VALUE_ULPS + _RATIO_ULPS_BELOW * amplification))
    upper = xp.where(near_one, large, small)
    # A delta below exp(-1.8e308) is not zero: only no shift, or epsilon = inf, gives zero.
    zero = ((mu == 0) & (epsilon >= 0)) | (epsilon == xp.inf)
    floor = xp.finfo(xp.float64).min
    upper = xp.where(xp.isnan(upper), upper, xp.clip(upper, floor, 0.0))
    return xp.where(zero & ~xp.isnan(mu + epsilon), -xp.inf, upper)


@log_delta_of_ratio.defjvp
def _log_delta_of_ratio_jvp(primals, tangents):
    """d delta / d mu = phi(a) and d delta / d epsilon = -e^epsilon Q(b), each over delta."""
    mu, epsilon = primals
    out = log_delta_of_ratio(mu, epsilon)
    t = _terms(mu, epsilon)
    backward = epsilon < 0
    decay = xp.where(backward, t.size, 0.0)
    direct = ~backward & ~(t.below & (out > -LOG_2))
    density = xp.where(direct, 1.0 / t.excess, xp.exp(t.log_density - decay - out))
    tail = xp.exp(t.log_density) * t.ratio_near
    reverse = xp.exp(-t.size - out) * xp.where(t.below, tail, 1.0 - tail)
    by_epsilon = -xp.where(backward, reverse, density * t.ratio_far)
    return out, density * tangents[0] + by_epsilon * tangents[1]


def infinite_unless_zero(ratio: Reals) -> Reals:
    """`pure_epsilon` of a noise whose loss has no largest value, by shift / scale."""
    return xp.where(ratio == 0, 0.0, xp.where(ratio > 0, xp.inf, xp.nan))
