"""Profile of a Laplace that is cut off at a bound.

The mass of (0, t) is proportional to 1 - e^(-t / scale). Where the bound is shorter than the
scale it is measured in units of t / bound, so that an infinite scale, the uniform law, is right.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxdp._core.namespace import custom_jvp, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import LOG_2, ULP, horner, log1m, product_gap

# Taylor coefficients of (1 - e^-t) / t.
_MEAN_SERIES = tuple((-1.0) ** k / math.factorial(k + 1) for k in range(9))
# Below it (1 - e^-t) / t is a series, for the sake of its derivatives.
_NEAR = 0.02
# Least exponent. derived: four least normal numbers, never flushed to 0
_TINY = 4.0 * float(xp.finfo(xp.float64).tiny)
# The least finite double.
_LOWEST = float(xp.finfo(xp.float64).min)
# Shifts below it are multiplied by _LIFT, or the last digits of a product would underflow.
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
def log_delta(support: Support, shift: Reals, epsilon: Reals) -> Reals:
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


@log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """Derivatives of log delta: the derivatives of delta, over delta.

    With g the density at the threshold u and G its survival function: d delta / d shift = g(u),
    d delta / d epsilon = -e^epsilon G(u + shift), d delta / d bound =
    -(brink / scale + delta 2 g(bound)), and delta depends on ratios of lengths only.
    """
    support, shift, epsilon = primals
    by_support, by_shift, by_epsilon = tangents
    scale, bound, _ = support
    out = log_delta(support, shift, epsilon)
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
