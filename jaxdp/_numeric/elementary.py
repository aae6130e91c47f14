"""Logarithms and exponentials near their cancellation points.

XLA's CPU `log1p` has a measured error of 223 ulp on (-1/2, 0). The functions here have errors of a
few ulp on every backend, because they use only +, *, /, exp and log.
"""

from __future__ import annotations

import math

import numpy as np

from jaxdp._core.checks import LEAST_NORMAL
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals

# Taylor coefficients of (sinh(x) / x - 1) / x^2 in x^2. derived: the error at |x| = 2 is below an
# ulp
_SINHC = tuple(1.0 / math.factorial(2 * k + 1) for k in range(1, 16))
# Largest |x| of the normal integral's series. derived: 14 terms have an error below an ulp
NORMAL_REACH = 0.75
# Coefficients 1 / (2k + 1)!! of x^2k in it. derived
_NORMAL = tuple(1.0 / math.prod(range(1, 2 * k + 2, 2)) for k in range(14))


def horner(coefficients: tuple[float, ...], x: Reals) -> Reals:
    """Sum of coefficients[k] x^k."""
    value = xp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def sinhc_excess(x: Reals) -> Reals:
    """sinh(x) / x - 1 for |x| <= 2. Relative error: 4 ulp."""
    square = x * x
    return square * horner(_SINHC, square)


def normal_integral_over_density(x: Reals) -> Reals:
    """The integral of exp((x^2 - t^2) / 2) over t in [0, x], for |x| <= 0.75, clipped there.

    It is x sum_k x^(2k) / (2k + 1)!!, all terms positive. Relative error: 4 ulp.
    """
    x = xp.minimum(x, NORMAL_REACH)
    return x * horner(_NORMAL, x * x)


# Taylor coefficients of the second mean on [0, 1]. derived: the next one is 1 / 19!
_SERIES = tuple((-1.0) ** k / math.factorial(k + 2) for k in range(17))


def decay_means(x: Reals) -> tuple[Reals, Reals]:
    """(1 - e^-x) / x and (e^-x - 1 + x) / x^2, means of e^-xt and (1 - t) e^-xt. Error: 4 ulp."""
    near = x <= 1.0
    t = xp.where(near, x, 0.0)
    second = horner(_SERIES, t)
    far = xp.where(near, 2.0, x)
    first = xp.where(near, 1.0 - t * second, (1.0 - xp.exp(-far)) / far)
    return first, xp.where(near, second, (1.0 - first) / far)


def decay_mean(x: Reals) -> Reals:
    """(1 - e^-x) / x. Relative error: 4 ulp."""
    near = x == 0
    far = xp.where(near, 1.0, x)
    return xp.where(near, 1.0, -xp.expm1(-far) / far)


# log 2. derived
LOG_2 = float(np.log(2.0))
# log sqrt(2 pi). derived
LOG_SQRT_2PI = 0.9189385332046727417803297
# Distance of 1 from the next double. derived
ULP = float(np.finfo(np.float64).eps)

# Taylor coefficients of atanh(x) / x in x^2. derived: at |x| = 1/3 the next term is 2e-19
_ATANH_SERIES = tuple(1.0 / (2 * k + 1) for k in range(18))
# Taylor coefficients of (e^t - 1 - t) / t^2. derived: at |t| = 1 the remainder is 1e-21
_EXPM1_MINUS_SERIES = tuple(1.0 / math.factorial(k) for k in range(2, 22))


def log1m_near(y: Reals) -> Reals:
    """log(1 - y) for |y| <= 1/2: -2 atanh(y / (2 - y)) by its series. Relative error: 4 ulp."""
    # A reciprocal, not a quotient: XLA's CPU backend splits a loop at a quotient that is squared.
    s = y * (1.0 / (2.0 - y))
    return -2.0 * s * horner(_ATANH_SERIES, s * s)


def log1p(x: Reals) -> Reals:
    """log(1 + x) for x >= -1. Relative error: 2 ulp."""
    near = xp.abs(x) <= 0.5
    sum_near = xp.where(near, 1.0 + x, 1.0)
    rounding = xp.where(near, x, 0.0) - (sum_near - 1.0)
    return xp.log(1.0 + x) + rounding / sum_near


def log1m(y: Reals) -> Reals:
    """log(1 - y) for y <= 1. Relative error: 4 ulp."""
    return log1p(-y)


def log1mexp(y: Reals) -> Reals:
    """log(1 - exp(-y)) for y >= 0: -inf at 0, NaN below. Relative error: 8 ulp."""
    small = y < LOG_2
    near = xp.log(-xp.expm1(-xp.where(small, y, LOG_2)))
    return xp.where(small, near, log1m(xp.exp(-xp.where(small, LOG_2, y))))


def log_probability(p: Reals) -> Reals:
    """log p, -inf at 0 with a derivative of 0 there; NaN stays NaN."""
    return xp.where(p == 0, -xp.inf, xp.log(xp.where(p == 0, 1.0, p)))


def expm1_minus(x: Reals) -> Reals:
    """exp(x) - 1 - x. Relative error: 16 ulp.

    For |x| <= 1 by the Taylor series, 20 terms (remainder 1e-21); otherwise directly.
    """
    near = xp.abs(x) <= 1.0
    t = xp.where(near, x, 0.0)
    far = xp.where(near, 2.0, x)
    return xp.where(near, t * t * horner(_EXPM1_MINUS_SERIES, t), xp.exp(far) - 1.0 - far)


def round_up(value: Reals, ulps: int) -> Reals:
    """`value` increased by `ulps` units of its last place (decreased, if negative)."""
    return value * (1.0 + ulps * ULP * xp.sign(value))


def lifted(value: Reals, positive: Bools) -> Reals:
    """`value`, or the least normal number where `value` underflowed although it is `positive`."""
    return xp.where(positive & (value < LEAST_NORMAL), LEAST_NORMAL, value)


def product_gap(c: Reals, a: Reals, b: Reals) -> Reals:
    """c - a b for finite a b within a factor 2 of c. Relative error: 2 ulp; 0 only where exact.

    The product is a sum of four exact partial products of 26-bit halves (Dekker, Numer. Math. 18,
    1971), all multiples of 2^-106 c, and the two errors of summing them are added back.
    """
    a_high, b_high = (lax.reduce_precision(v, 11, 25) for v in (a, b))
    a_low, b_low = a - a_high, b - b_high
    first, first_error = two_sum(c - a_high * b_high, -a_high * b_low)
    second, second_error = two_sum(first, -a_low * b_high)
    return second + ((first_error + second_error) - a_low * b_low)


def two_sum(a: Reals, b: Reals) -> tuple[Reals, Reals]:
    """a + b and its rounding error, exactly (Dekker, Numer. Math. 18, 1971).

    The order of a and b must be unknown to the compiler: XLA simplifies (1 + x) - 1 with constants
    to x.
    """
    first_is_larger = xp.abs(a) >= xp.abs(b)
    larger, smaller = xp.where(first_is_larger, a, b), xp.where(first_is_larger, b, a)
    total = larger + smaller
    return total, smaller - (total - larger)


def log_add(a: Reals, b: Reals) -> Reals:
    """log(e^a + e^b), with finite derivatives where e^a, e^b or both are 0."""
    empty_a, empty_b = a == -xp.inf, b == -xp.inf  # False for NaN
    either = empty_a | empty_b
    both = xp.logaddexp(xp.where(either, 0.0, a), xp.where(either, 0.0, b))
    return xp.where(either, xp.where(empty_a, b, a), both)


def conversion_entropy(s: Reals) -> Reals:
    """log(1 + s) + s log(1 + 1 / s), s >= 0: minus log of the largest (1 - e^-y) e^(-s y), y >= 0.

    It bounds an expectation by a moment of order s, K(s) = log E[e^(s L)]:

        E[(1 - e^(x - L))_+] <= e^(K(s) - s x - entropy).

    Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
    """
    positive = s > 0
    safe = xp.where(positive, s, 1.0)
    return xp.where(positive, log1p(safe) + safe * log1p(1.0 / safe), 0.0 * s)


def log_mean_exp(t: Reals) -> Reals:
    """log((e^t - 1) / t), t >= 0."""
    safe = xp.where(t > 0, t, 1.0)
    large = safe > 1.0
    near = xp.log(xp.expm1(xp.where(large, 1.0, safe)) / safe)
    far = safe + log1mexp(safe) - xp.log(safe)
    return xp.where(t > 0, xp.where(large, far, near), 0.0 * t)
