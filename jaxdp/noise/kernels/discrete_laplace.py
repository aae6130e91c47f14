"""Profile, generating function and moments of the two-sided geometric law on the integers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from jaxdp._core.types import Reals, RealsOrComplexes
from jaxdp._numeric.elementary import ULP, expm1_minus, log1m, log1p, product_gap
from jaxdp._numeric.series import sinhc_excess

# Least exponent. derived: four least normal numbers, so that products with it are normal
_TINY = 4.0 * float(jnp.finfo(jnp.float64).tiny)
# Moments: the series itself for scales below 1, else its Poisson sum with a tail from _CUT on.
_TERMS = np.arange(1.0, 193.0)
_CUT = 12
# B_2k / (2k)!, k = 1, ..., 5, of the tail.
_EULER_MACLAURIN = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)


def log_delta(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """log of delta, rounded up, for arrays of one shape, finite scales and whole shifts >= 1."""
    backward = epsilon < 0
    size = jnp.where(backward, -epsilon, epsilon)
    r = shift / scale
    close = jnp.abs(size - r) < 0.5 * r
    exact = product_gap(*(jnp.where(close, v, 1.0) for v in (shift, size, scale)))
    loose = shift - jnp.where(size < jnp.inf, size, r) * scale
    gap = jnp.where(close, exact, jnp.where(size < jnp.inf, loose, -jnp.inf))
    inside = gap > 0
    gap = jnp.where(inside, gap, 1.0)
    step = 0.5 / scale
    before = gap - 2.0 * jnp.maximum(jnp.round(0.5 * (gap - 1.0)), 0.0)
    after = 2.0 - before
    exponent = jnp.maximum(gap / (2.0 * scale), _TINY)
    both = 1.0 + jnp.exp(-2.0 * step)
    bend = jnp.expm1(-step * before) * jnp.expm1(-step * after) / both
    fall = jnp.exp(-exponent)
    forward = -jnp.expm1(-exponent) + fall * bend
    complement = fall * (jnp.exp(-step * before) + jnp.exp(-step * after)) / both

    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    decay = jnp.exp(-size)
    mixture = -jnp.expm1(-size) + decay * jnp.where(inside, forward, 0.0)
    delta = jnp.where(backward, mixture, forward)
    near_one = delta > 0.5
    complement = jnp.where(inside, complement, 1.0) * jnp.where(backward, decay, 1.0)
    large = log1m(jnp.where(near_one, complement, 0.5))
    large *= 1.0 - ULP * (12.0 + 3.0 * jnp.where(inside, exponent, 0.0))
    small = jnp.log(jnp.where(near_one, 0.5, delta)) * (1.0 - 8.0 * ULP) + 12.0 * ULP
    value = jnp.where(near_one, large, small)
    return jnp.where(inside | backward, value, -jnp.inf)


def cgf(decay: Reals, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """K(z) for arrays of one shape; `decay` = 1 / scale > 0, whole shifts >= 1."""
    z = jnp.where(jnp.real(z) < -0.5, -1.0 - z, z)  # K(z) = K(-1 - z)
    r = shift * decay
    small = (jnp.abs(z) * r <= 1.0) & (jnp.abs(2.0 * z + 1.0) >= 0.5)
    near = _cgf_near(decay, jnp.where(small, r, decay), jnp.where(small, z, 0.5))
    return jnp.where(small, near, _cgf_far(decay, shift, jnp.where(small, 0.5, z)))


def _cgf_near(decay: Reals, r: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """log(1 + (M - 1)), the terms of first order in z and in r cancelled on paper.

    With a = decay / 2, d = z decay, t = tanh a / tanh(a + d):
    M - 1 = (1 + t) / 2 (e^(z r) - 1 - z r) + (1 - t) / 2 (e^-y - 1 + y) + r z b tanh a,
    y = (z + 1) r and b = (cosh(a + d) - (sinh(d) / d) / (sinh(a) / a)) / sinh(a + d).
    """
    a, d = 0.5 * decay, z * decay
    q, rest = jnp.exp(-decay), -jnp.expm1(-decay)
    excess = sinhc_excess(jnp.where(jnp.abs(d) <= 1.0, d, 0.0))
    sinh, cosh = d * (1.0 + excess), 0.5 * (jnp.exp(d) + jnp.exp(-d))
    sine = 0.5 * (sinh * (1.0 + q) + cosh * rest)  # e^-a sinh(a + d)
    cosine = 0.5 * (cosh * (1.0 + q) + sinh * rest)
    wide = a > 1.0
    low = jnp.where(wide, 0.5, a)
    half = 0.5 * (low + jnp.where(wide, 0.5, d))
    half *= 1.0 + sinhc_excess(half)
    low_excess = sinhc_excess(low)
    bracket = 2.0 * half * half + (low_excess - excess) / (1.0 + low_excess)
    bracket *= jnp.exp(-low)
    bracket = jnp.where(wide, cosine - (1.0 + excess) * 2.0 * a * q / rest, bracket) / sine
    lack = 2.0 * sinh * q / ((1.0 + q) * sine)  # 1 - t
    total = (1.0 - 0.5 * lack) * expm1_minus(z * r) + 0.5 * lack * expm1_minus(-(z + 1.0) * r)
    total += r * z * bracket * rest / (1.0 + q)
    return log1p(total)


def _cgf_far(decay: Reals, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """z r + log((1 + e^-2nv) / 2 + tanh(decay / 2) coth(v) (1 - e^-2nv) / 2), v = (z + 1/2) decay.

    e^-2v has the period pi i: v is brought near 0, where both differences vanish.
    """
    v = (z + 0.5) * decay
    if jnp.iscomplexobj(v):
        v = v - 1j * jnp.pi * jnp.round(jnp.imag(v) / jnp.pi)
    one = v == 0
    v = jnp.where(one, 1.0, v)
    quotient = jnp.where(one, shift, _fall(2.0 * shift * v) / _fall(2.0 * v))
    double = jnp.where(one, 1.0, jnp.exp(-2.0 * v))
    power = jnp.where(one, 1.0, jnp.exp(-2.0 * shift * v))
    slope = jnp.tanh(0.5 * decay) * (1.0 + double) * quotient
    return z * shift * decay + jnp.log(0.5 * (1.0 + power + slope))


def _fall(w: RealsOrComplexes) -> RealsOrComplexes:
    """1 - e^-w, to full relative accuracy near 0."""
    near = jnp.abs(w) < 0.5
    low, high = jnp.where(near, w, 0.0), jnp.where(near, 1.0, w)
    return jnp.where(near, low - expm1_minus(-low), 1.0 - jnp.exp(-high))


def moment(scale: Reals, power: Reals) -> Reals:
    """E|T|^p = 2 tanh(decay / 2) sum_k k^p e^(-k decay), decay = 1 / scale, p > 0.

    By Poisson's formula the sum is Gamma(p + 1) sum_n (decay + 2 pi i n)^(-p - 1) over all whole
    n, whose tail is that of Euler and Maclaurin.
    """
    short = scale < 1.0
    low = jnp.where(short, scale, 0.5)[..., None]
    p = power[..., None]
    terms = jnp.exp(p * np.log(_TERMS)[(None,) * power.ndim] - _TERMS[(None,) * power.ndim] / low)
    direct = 2.0 * jnp.tanh(0.5 / low[..., 0]) * jnp.sum(terms, axis=-1)

    high = jnp.where(short, 1.0, scale)
    decay = 1.0 / high
    order = power + 1.0
    nodes = 2.0 * jnp.pi * jnp.arange(1.0, _CUT + 1.0)[(None,) * power.ndim]

    def ray(order: Reals, node: Reals, decay: Reals, turns: float) -> Reals:
        """Re[i^turns (decay + i node)^-order]."""
        angle = order * jnp.arctan2(node, decay) - 0.5 * np.pi * turns
        return jnp.exp(-0.5 * order * jnp.log(decay * decay + node * node)) * jnp.cos(angle)

    weights = np.append(np.ones(_CUT - 1), 0.5)[(None,) * power.ndim]
    total = jnp.sum(weights * ray(order[..., None], nodes, decay[..., None], 0.0), axis=-1)
    node = jnp.full_like(decay, 2.0 * np.pi * _CUT)
    total += ray(power, node, decay, -1.0) / (2.0 * np.pi * power)
    derivative = jnp.ones_like(order)
    for k, coefficient in enumerate(_EULER_MACLAURIN):
        # The odd derivatives: (2 pi i)^m (-1)^m (p + 1) ... (p + m) (decay + i node)^(-p - 1 - m).
        m = 2 * k + 1
        for factor in range(max(m - 2, 0), m):
            derivative = derivative * (order + factor) * (2.0 * np.pi)
        total += coefficient * derivative * ray(order + m, node, decay, float(m))
    # scale^(p + 1) first, where the other terms are small beside it.
    ratio = 1.0 + 2.0 * total * jnp.exp(order * jnp.log(decay))
    slope = 2.0 * high * jnp.tanh(0.5 * decay)
    poisson = slope * high**power * jnp.exp(gammaln(order)) * ratio
    poisson = jnp.where(high == jnp.inf, jnp.inf, poisson)
    return jnp.where(short, direct, poisson)
