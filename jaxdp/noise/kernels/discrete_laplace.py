"""Profile, divergences and moments of the two-sided geometric law on the integers."""

from __future__ import annotations

import numpy as np

from jaxdp._core.functions import special
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, expm1_minus, log1m, product_gap, sinhc_excess
from jaxdp.noise.kernels.divergence import growth_ratio, log1p_ratio

# Least exponent. derived: four least normal numbers, so that products with it are normal
_TINY = 4.0 * float(xp.finfo(xp.float64).tiny)
# Moments: the series itself for scales below 1, else its Poisson sum with a tail from _CUT on.
_TERMS = np.arange(1.0, 193.0)
_CUT = 12
# B_2k / (2k)!, k = 1, ..., 5, of the tail.
_EULER_MACLAURIN = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)


def log_delta(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """log of delta, rounded up, for arrays of one shape, finite scales and whole shifts >= 1."""
    backward = epsilon < 0
    size = xp.where(backward, -epsilon, epsilon)
    r = shift / scale
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

    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    decay = xp.exp(-size)
    mixture = -xp.expm1(-size) + decay * xp.where(inside, forward, 0.0)
    delta = xp.where(backward, mixture, forward)
    near_one = delta > 0.5
    complement = xp.where(inside, complement, 1.0) * xp.where(backward, decay, 1.0)
    large = log1m(xp.where(near_one, complement, 0.5))
    large = large * (1.0 - ULP * (12.0 + 3.0 * xp.where(inside, exponent, 0.0)))
    small = xp.log(xp.where(near_one, 0.5, delta)) * (1.0 - 8.0 * ULP) + 12.0 * ULP
    value = xp.where(near_one, large, small)
    return xp.where(inside | backward, value, -xp.inf)


def divergence(scale: Reals, shift: Reals, s: Reals) -> Reals:
    """Renyi divergence of the order 1 + s, for whole shifts >= 1."""
    decay = 1.0 / scale
    grows = s * shift * decay > 1.0
    near = _divergence_near(decay, shift * decay, xp.where(grows, 0.0, s))
    return xp.where(grows, _divergence_far(decay, shift, xp.where(grows, s, 1.0)), near)


def _divergence_near(decay: Reals, r: Reals, s: Reals) -> Reals:
    """log(1 + s (M - 1) / s) / s, the terms of first order in s and in r cancelled on paper.

    With a = decay / 2, d = s decay, t = tanh a / tanh(a + d):
    M - 1 = (1 + t) / 2 (e^(s r) - 1 - s r) + (1 - t) / 2 (e^-y - 1 + y) + r s b tanh a,
    y = (s + 1) r and b = (cosh(a + d) - (sinh(d) / d) / (sinh(a) / a)) / sinh(a + d).
    """
    a, d = 0.5 * decay, s * decay
    q, rest = xp.exp(-decay), -xp.expm1(-decay)
    excess = sinhc_excess(d)
    sinh, cosh = d * (1.0 + excess), 0.5 * (xp.exp(d) + xp.exp(-d))
    sine = 0.5 * (sinh * (1.0 + q) + cosh * rest)  # e^-a sinh(a + d)
    cosine = 0.5 * (cosh * (1.0 + q) + sinh * rest)
    wide = a > 1.0
    low = xp.where(wide, 0.5, a)
    half = 0.5 * (low + xp.where(wide, 0.5, d))
    half = half * (1.0 + sinhc_excess(half))
    low_excess = sinhc_excess(low)
    bracket = 2.0 * half * half + (low_excess - excess) / (1.0 + low_excess)
    bracket = bracket * xp.exp(-low)
    bracket = xp.where(wide, cosine - (1.0 + excess) * 2.0 * a * q / rest, bracket) / sine
    lack = 2.0 * decay * (1.0 + excess) * q / ((1.0 + q) * sine)  # (1 - t) / s
    y = (s + 1.0) * r
    rate = (1.0 - 0.5 * s * lack) * s * r * r * growth_ratio(s * r)
    rate = rate + (0.5 * lack * expm1_minus(-y) + r * bracket * rest / (1.0 + q))
    return log1p_ratio(rate, s)


def _divergence_far(decay: Reals, shift: Reals, s: Reals) -> Reals:
    """r + log((1 + e^-2nv) / 2 + tanh(a) coth(v) (1 - e^-2nv) / 2) / s, v = (s + 1/2) decay."""
    v = (2.0 * s + 1.0) * decay
    fall = xp.exp(-shift * v)
    quotient = xp.expm1(-shift * v) / xp.expm1(-v)
    slope = xp.tanh(0.5 * decay) * (1.0 + xp.exp(-v)) * quotient
    return shift * decay + xp.log(0.5 * (1.0 + fall + slope)) / s


def moment(scale: Reals, power: Reals) -> Reals:
    """E|T|^p = 2 tanh(decay / 2) sum_k k^p e^(-k decay), decay = 1 / scale, p > 0.

    By Poisson's formula the sum is Gamma(p + 1) sum_n (decay + 2 pi i n)^(-p - 1) over all whole
    n, with the tail by the Euler-Maclaurin formula.
    """
    short = scale < 1.0
    low = xp.where(short, scale, 0.5)[..., None]
    p = power[..., None]
    terms = xp.exp(p * np.log(_TERMS)[(None,) * power.ndim] - _TERMS[(None,) * power.ndim] / low)
    direct = 2.0 * xp.tanh(0.5 / low[..., 0]) * xp.sum(terms, axis=-1)

    high = xp.where(short, 1.0, scale)
    decay = 1.0 / high
    order = power + 1.0
    nodes = 2.0 * xp.pi * xp.arange(1.0, _CUT + 1.0)[(None,) * power.ndim]

    def ray(order: Reals, node: Reals, decay: Reals, turns: float) -> Reals:
        """Re[i^turns (decay + i node)^-order]."""
        angle = order * xp.arctan2(node, decay) - 0.5 * np.pi * turns
        return xp.exp(-0.5 * order * xp.log(decay * decay + node * node)) * xp.cos(angle)

    weights = np.append(np.ones(_CUT - 1), 0.5)[(None,) * power.ndim]
    total = xp.sum(weights * ray(order[..., None], nodes, decay[..., None], 0.0), axis=-1)
    node = xp.full_like(decay, 2.0 * np.pi * _CUT)
    total = total + ray(power, node, decay, -1.0) / (2.0 * np.pi * power)
    derivative = xp.ones_like(order)
    for k, coefficient in enumerate(_EULER_MACLAURIN):
        # The odd derivatives: (2 pi i)^m (-1)^m (p + 1) ... (p + m) (decay + i node)^(-p - 1 - m).
        m = 2 * k + 1
        for factor in range(max(m - 2, 0), m):
            derivative = derivative * (order + factor) * (2.0 * np.pi)
        total = total + coefficient * derivative * ray(order + m, node, decay, float(m))
    # scale^(p + 1) first, where the other terms are small beside it.
    ratio = 1.0 + 2.0 * total * xp.exp(order * xp.log(decay))
    slope = 2.0 * high * xp.tanh(0.5 * decay)
    poisson = slope * high**power * xp.exp(special.gammaln(order)) * ratio
    poisson = xp.where(high == xp.inf, xp.inf, poisson)
    return xp.where(short, direct, poisson)
