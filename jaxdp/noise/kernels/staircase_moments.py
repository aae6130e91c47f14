"""Absolute moments E|T|^p of the staircase.

(1 - b)^2 / ((p + 1) (split + b (1 - split))) sensitivity^p times the sum over k >= 0 of
b^k (k + split)^(p + 1), b = exp(-epsilon). Arrays of one shape.
"""

from __future__ import annotations

from jaxdp._core.functions import special
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp.noise.kernels.staircase_loss import normaliser

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
