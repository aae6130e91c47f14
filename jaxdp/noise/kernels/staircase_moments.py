"""Absolute moments E|T|^p of the staircase.

(1 - b)^2 / ((p + 1) (split + b (1 - split))) sensitivity^p times the sum over k >= 0 of
b^k (k + split)^(p + 1), b = exp(-epsilon). Arrays of one shape.
"""

from __future__ import annotations

from jaxdp._core.functions import special
from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import decay_means
from jaxdp.noise.kernels.divergence import log1p_ratio_above
from jaxdp.noise.kernels.staircase_loss import atoms, normaliser

# Terms of a moment before its tail, and B_2k / (2k)! of the tail's Euler-Maclaurin sum.
_TERMS = 128
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)


def mean_absolute(epsilon: Reals, sensitivity: Reals, split: Reals) -> Reals:
    """The sum for power 1."""
    b, drop = xp.exp(-epsilon), -xp.expm1(-epsilon)
    shells = b * (1.0 + b) / drop + split * (2.0 * b + split * drop)
    return sensitivity * shells / normaliser(epsilon, split)


def variance(epsilon: Reals, sensitivity: Reals, split: Reals) -> Reals:
    """The sum for power 2."""
    b, drop = xp.exp(-epsilon), -xp.expm1(-epsilon)
    shells = b * (1.0 + b * (4.0 + b)) / drop + 3.0 * split * b * (1.0 + b)
    shells = shells / drop + split * split * (3.0 * b + split * drop)
    return sensitivity * sensitivity * shells / (1.5 * normaliser(epsilon, split))


def absolute_moment(epsilon: Reals, sensitivity: Reals, split: Reals, power: Reals) -> Reals:
    """The first terms one by one, and the Euler-Maclaurin sum of the others."""
    q, log_drop = power + 1.0, xp.log(-xp.expm1(-epsilon))
    k = xp.arange(_TERMS, dtype=xp.float64).reshape((-1,) + (1,) * q.ndim)

    def term(at: Reals) -> Reals:
        decay = 2.0 * log_drop[None] - epsilon[None] * at
        return xp.exp(decay + q[None] * xp.log(at + split[None]))

    head = xp.sum(term(k), axis=0)
    start = _TERMS + split
    reach = epsilon * start
    near = reach < 600.0
    gamma = special.gammaincc(q + 1.0, xp.where(near, reach, 600.0))
    log_gamma = xp.log(xp.where(gamma > 0, gamma, 1.0)) + special.gammaln(q + 1.0)
    log_gamma = log_gamma + (2.0 * log_drop + epsilon * split - (q + 1.0) * xp.log(epsilon))
    integral = xp.where(near & (gamma > 0), xp.exp(log_gamma), 0.0)
    # Derivatives of x^q e^(-epsilon x) over itself, by Leibniz, at the start of the tail.
    falling = [xp.ones_like(q)]
    for i in range(2 * len(_BERNOULLI) - 1):
        falling.append(falling[-1] * (q - i) / start)
    correction = 0.5 * xp.ones_like(q)
    for i, coefficient in enumerate(_BERNOULLI):
        order, derivative, binomial = 2 * i + 1, xp.zeros_like(q), 1.0
        for j in range(order + 1):
            derivative = derivative + binomial * falling[j] * (-epsilon) ** (order - j)
            binomial = binomial * ((order - j) / (j + 1))
        correction = correction - (coefficient * derivative)
    tail = integral + xp.where(near, term(xp.full_like(q[None], _TERMS))[0] * correction, 0.0)
    return sensitivity**power * (head + tail) * 2.0 / (q * normaliser(epsilon, split))


# Larger exponents see the largest loss alone. chosen: a product with them is finite
_LARGEST_EXPONENT = 1e290


def _run(most: Reals, unit: Reals, s: Reals, by_series: Bools) -> Reals:
    """(1 - b) e^(-s most unit) / s times the sum over q = 0..most of b^q (e^(s j unit) - 1).

    Here j = most - 2 q and b = e^-unit.
    """
    b, drop = xp.exp(-unit), -xp.expm1(-unit)
    tau, half, v = s * unit, 0.5 * unit * (s + 1.0), xp.maximum(most, 0.0)
    # sum_j 2 sinh(j P) sinh(j N), P = half and N = tau / 2, by power sums of j.
    squares = half * half + 0.25 * tau * tau
    sixth = squares * squares / 120.0 + (half * tau) ** 2 / 360.0
    fourth = (3.0 * v * v + 6.0 * v - 4.0) / 90.0
    power_six = (((3.0 * v + 12.0) * v * v - 24.0) * v + 16.0) / 21.0
    sums = v * (v + 1.0) * (v + 2.0) * (1.0 / 3.0 + squares * fourth + sixth * power_six)
    series = drop * xp.exp(-(0.5 * unit + tau) * v) * half * unit * sums
    last, kept = xp.exp(-(v + 1.0) * unit), -xp.expm1(-(v + 1.0) * unit)
    closed = drop * kept * v * decay_means(tau * v)[0]
    closed = closed + 2.0 * last * drop * (v + 1.0) * decay_means(2.0 * tau * (v + 1.0))[0]
    closed = closed - (2.0 * b * kept * decay_means(2.0 * tau)[0] * xp.exp(-tau * v))
    fall = -xp.expm1(xp.where(by_series, -1.0, -2.0 * tau - unit))
    return xp.where(most < 0, 0.0, xp.where(by_series, series, unit * closed / fall))


def divergence(unit: Reals, sensitivity: Reals, split: Reals, shift: Reals, s: Reals) -> Reals:
    """`Staircase.renyi` of the order 1 + s >= 1; `unit` is its epsilon.

    The atoms at j and -j are taken together, and the largest exponent out, so nothing cancels.
    """
    p = atoms(unit, sensitivity, split, shift)
    b, reach = p.decay, p.whole + xp.where(p.fraction > 0, 1.0, 0.0)

    def pair(j: Reals) -> Reals:
        j = xp.maximum(j, 0.0)
        grown = j * unit * decay_means(s * j * unit)[0] * -xp.expm1(-(s + 1.0) * j * unit)
        return xp.exp(s * (j - reach) * unit) * grown

    def run(most: Reals) -> Reals:
        by_series = 0.5 * (s + 1.0) * most * unit < 0.02
        return xp.exp(s * (most - reach) * unit) * _run(most, unit, s, by_series)

    ahead = xp.where(p.fraction > 0, pair(reach), 0.0)
    rate = (b * p.fraction + p.drop * p.ahead) * ahead
    rate = rate + (
        (b * p.rest + p.drop * p.level) * pair(p.whole) + p.drop * p.behind * pair(p.whole - 1.0)
    )
    rate = rate + b * (p.part * run(p.most) + p.other * run(xp.maximum(p.most - 1.0, -1.0)))
    top = s * reach * unit
    endless = ~(top < _LARGEST_EXPONENT)
    value = log1p_ratio_above(rate / p.norm, xp.where(endless, 0.0, top), s)
    value = xp.where(endless, reach * unit, value)
    return xp.where(p.infinite & (unit > 0) & (split > 0), xp.inf, value)
