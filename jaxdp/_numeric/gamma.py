"""Upper incomplete gamma functions of order s = 1 - beta in (0, 1], and their differences.

Gamma(s, x) = int_x^inf e^-z z^-beta dz. At beta = 0 it is e^-x. Every quantity that vanishes with
beta is computed as a difference from there, which keeps its relative accuracy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import horner, log1m, log1p
from jaxdp._numeric.quadrature import accumulate, exponential_decay

# 1 / Gamma(1 + x) = 1 + sum c_k x^(k + 1), entire. derived: the next term is < 1e-19 on [-1, 1]
_RECIPROCAL_GAMMA = (
    0.5772156649015329,
    -0.6558780715202539,
    -0.04200263503409524,
    0.1665386113822915,
    -0.04219773455554434,
    -0.009621971527876973,
    0.0072189432466631,
    -0.001165167591859065,
    -0.000215241674114951,
    0.0001280502823881162,
    -2.013485478078824e-05,
    -1.2504934821426707e-06,
    1.133027231981696e-06,
    -2.0563384169776071e-07,
    6.116095104481416e-09,
    5.002007644469223e-09,
    -1.18127457048702e-09,
    1.043426711691101e-10,
    7.782263439905071e-12,
    -3.696805618642206e-12,
    5.100370287454476e-13,
    -2.0583260535665068e-14,
    -5.3481225394230177e-15,
    1.2267786282382608e-15,
    -1.1812593016974588e-16,
    1.1866922547516003e-18,
    1.4123806553180318e-18,
)
# Smaller argument up to which the series serves. chosen
_EDGE = 1.0
# Larger argument up to which the series serves. chosen
_REACH = 1.5
# (-1)^k / k! and k, from the last term of the exponential series to the first. derived
_BACKWARD = np.array([((-1.0) ** k / math.factorial(k), k) for k in range(23, -1, -1)]).T
# Nodes of the integral for larger arguments, whose integrand decays like e^-t. chosen
_RULE = exponential_decay(0.25)


def gamma_excess(beta: Reals) -> Reals:
    """Gamma(1 - beta) - 1 for beta in [0, 1). Relative error: 1e-15."""
    near = beta < 0.5
    order = 1.0 - beta
    x = xp.where(near, -beta, order)
    slope = horner(_RECIPROCAL_GAMMA, x)
    rise = xp.where(near, -x * slope, 0.0)  # 1 - 1 / Gamma(1 - beta)
    return xp.where(near, rise / (1.0 - rise), 1.0 / (order * (1.0 + order * slope)) - 1.0)


class GammaPair(NamedTuple):
    """Incomplete gammas at A and B = A + gap; if A >= 1, times exp(A) except `lower`."""

    scaled: Reals  # A where the values are multiplied by exp(A), else 0
    lower: Reals  # gamma(s, A), where A < 1
    upper: Reals  # Gamma(s, A)
    far: Reals  # e^gap Gamma(s, B)
    difference: Reals  # upper - far >= 0
    error: Reals  # error of the difference, in ulp


def gamma_pair(beta: Reals, a: Reals, log_a: Reals, gap: Reals, growth: Reals) -> GammaPair:
    """Gamma(s, A) and e^gap Gamma(s, A + gap), s = 1 - beta, and their difference.

    `log_a` = log A and `growth` = log(B / A) are separate arguments, so the difference keeps its
    relative accuracy as gap / A -> 0 and as A underflows. Relative error: 1e-14.
    """
    small = a < _EDGE
    both_small = small & (a + gap < _REACH)
    # The series, from Gamma(s, x) = e^-x - W(x) + Gamma(s) - 1.
    low_a = xp.where(small, a, 0.5)
    low_gap = xp.where(both_small, gap, 0.25)
    low_b = low_a + low_gap
    low_growth = xp.where(both_small, growth, 0.5)
    low_log = xp.where(small, log_a, -0.5)
    order = 1.0 - beta
    first, first_b, first_slope, second, second_b, second_slope = _sums(order, low_a, low_b)
    power = xp.exp(order * low_log)  # A^s
    drop = -power * xp.expm1(beta * low_log)  # A^s - A
    w = drop * first + beta * low_a * second
    change = _change(beta, low_a, low_gap, low_log, low_growth, power, drop)
    rise = change * first_b + drop * low_gap * first_slope
    rise = rise + beta * low_gap * (second_b + low_a * second_slope)
    excess = gamma_excess(beta)
    missing = excess - w  # Gamma(s, A) - e^-A
    series = xp.exp(low_gap) * rise - xp.expm1(low_gap) * missing
    # The integral from 1 or A upward.
    base = xp.where(small, 1.0, a)
    width = xp.where(small, xp.where(both_small, 0.5, a + gap - 1.0), gap)

    def term(node: Reals, weight: Reals) -> tuple[Reals, Reals, Reals]:
        log_z = xp.log(base + node)
        log_ratio = xp.log1p(width / (base + node))
        value, ratio = weight * xp.exp(-beta * log_z), xp.expm1(-beta * log_ratio)
        return (
            -value * ratio,
            value + value * ratio,
            weight * xp.expm1(-beta * (log_z + log_ratio)),
        )

    zero = xp.zeros_like(base)
    # U(A) - U(B), U(B) and U(B) - 1, U(x) = e^x Gamma(s, x).
    integral, far, far_excess = accumulate(_RULE, term, (zero, zero, zero))
    decay = xp.exp(-low_a)
    mixed = missing - decay * far_excess
    difference = xp.where(small, xp.where(both_small, series, mixed), integral)
    upper = xp.where(small, missing + decay, far + integral)
    far = xp.where(small, xp.where(both_small, upper - series, decay * far), far)
    terms = xp.abs(change) * first_b + xp.expm1(low_gap) * (excess + xp.abs(w))
    terms = xp.where(both_small, terms, excess + xp.abs(w))
    error = xp.where(small, 4.0 * terms, 2.0 * integral)
    return GammaPair(xp.where(small, 0.0, a), power * first, upper, far, difference, error)


def _change(
    beta: Reals, a: Reals, gap: Reals, log_a: Reals, growth: Reals, power: Reals, drop: Reals
) -> Reals:
    """(B^s - B) - (A^s - A), given A^s and A^s - A.

    Near and apart, as derivatives of log A are large as A -> 0, each for beta and for s near 0.
    """
    apart = (1.0 - beta) * growth > 0.5
    log_b = xp.where(apart, xp.log(xp.where(apart, a + gap, 1.0)), log_a + growth)
    close = xp.where(apart, 0.5, growth)
    fall = xp.expm1(-beta * log_b)
    tall = xp.where(apart, a * fall - drop, power * xp.expm1(-beta * close))
    by_powers = xp.where(
        apart, xp.exp((1.0 - beta) * log_b) - power, power * xp.expm1((1.0 - beta) * close)
    )
    return xp.where(beta < 0.5, gap * fall + tall, by_powers - gap)


def _sums(order: Reals, a: Reals, b: Reals) -> tuple[Reals, ...]:
    """S(a), S(b) and their divided difference; the same for T.

    S(x) = sum (-x)^k / (k! (s + k)), T(x) = sum (-x)^k / (k! (s + k) (k + 1)).
    """

    def step(state: tuple[Reals, ...], point: tuple[Reals, Reals]):
        sign, k = point
        first = sign / (order + k)
        second = first / (k + 1.0)
        p, p_b, p_slope, q, q_b, q_slope = state
        left = (p * a + first, p_b * b + first, p_slope * a + p_b)
        return (*left, q * a + second, q_b * b + second, q_slope * a + q_b), None

    return lax.scan(step, (xp.zeros_like(a),) * 6, tuple(_BACKWARD))[0]


def gamma_fractions(beta: Reals, x: Reals, log_x: Reals) -> tuple[Reals, Reals]:
    """gamma(s, x) / Gamma(s) where x < 1 (else 0), and log of Gamma(s, x) / Gamma(s).

    Relative error: 1e-15 / s. The first vanishes with x as x^s, even where x underflows.
    """
    small = x < _EDGE
    low, order = xp.where(small, x, 0.5), 1.0 - beta
    log_low = xp.where(small, log_x, -0.5)

    def step(value: Reals, point: tuple[Reals, Reals]) -> tuple[Reals, None]:
        return value * low + point[0] / (order + point[1]), None

    series = lax.scan(step, xp.zeros_like(low), tuple(_BACKWARD))[0]
    excess = gamma_excess(beta)
    lower = xp.where(small, xp.exp(order * log_low) * series / (1.0 + excess), 0.0)
    base = xp.where(small, 1.0, x)

    def term(node: Reals, weight: Reals) -> Reals:
        return weight * xp.exp(-beta * xp.log(base + node))

    tail = xp.log(accumulate(_RULE, term, xp.zeros_like(base)))
    return lower, xp.where(small, log1m(lower), tail - base - log1p(excess))
