"""Sums of the normal density over the integers, to full relative accuracy at every scale.

With s the scale, p(k) = exp(-k^2 / (2 s^2)) / Z. Tails are relative to the mass where they begin:
tau(n) = P[T >= n] / p(n), n >= 0. A narrow or steep tail is summed. The others are the integral and
the Euler-Maclaurin series, s R(x) + 1/2 + sum_j B_2j / (2j)! s^-n He_n(x), n = 2j - 1, x = n / s,
with R the Mills ratio and He the Hermite polynomials.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import (
    LOG_SQRT_2PI,
    NORMAL_REACH,
    log1p,
    normal_integral_over_density,
)
from jaxdp._numeric.mills import mills, mills_pair
from jaxdp._numeric.quadrature import BERNOULLI, Rule, accumulate

# Terms of a sum where `is_short`. derived: its relative remainder is 1e-17
TERMS = Rule(np.arange(100.0), np.ones(100))
# Scale up to which tails are summed term by term. chosen
_NARROW = 10.0
# n / scale^2 above which tails are summed at any scale. chosen
_STEEP = 0.4
# 1 / scale below which sums over the integers are replaced by their Poisson dual. chosen
WIDE = 1.25
# Largest n / s^2 of the series. derived: its terms fall like (n / (2 pi s^2))^2j, to below 1e-16
FLAT = 0.8
# Coefficients of the Euler-Maclaurin series by order of derivative, even ones 0. derived
_COEFFICIENTS = np.array(
    [b for pair in zip(BERNOULLI, (0.0,) * 10, strict=True) for b in pair][:-1]
)
# Their orders. derived
_ORDERS = np.arange(float(len(_COEFFICIENTS)))


def plus(terms: Iterable[Reals]) -> Reals:
    """The sum of a few arrays."""
    return functools.reduce(xp.add, terms)


def is_short(n: Reals, step: Reals) -> Bools:
    """True if the tail from n >= 0 is summed; step = 1 / scale."""
    return (step >= 1.0 / _NARROW) | (n * step * step >= _STEEP)


def log_normaliser(step: Reals) -> Reals:
    """log Z: the sum itself for scale <= 0.8, its Poisson dual above. Relative error: 4 ulp."""
    wide = step < WIDE
    low = xp.where(wide, 1.0, 0.5 * step * step)
    direct = 2.0 * plus(xp.exp(-k * k * low) for k in range(6, 0, -1))
    dual = 2.0 * xp.exp(-2.0 * xp.pi * xp.pi / xp.where(wide, step * step, 1.0))
    extra = LOG_SQRT_2PI - xp.log(xp.where(wide, step, 1.0))
    return log1p(xp.where(wide, dual, direct)) + xp.where(wide, extra, 0.0)


def correction(x: Reals, step: Reals) -> Reals:
    """sum_j B_2j / (2j)! step^n He_n(x), n = 2j - 1."""
    return correction_pair(x, xp.zeros_like(x), step)[0]


def correction_pair(x: Reals, width: Reals, step: Reals) -> tuple[Reals, Reals]:
    """`correction` at x + width, and its excess over `correction` at x, accurate for width -> 0."""
    near, far, square = step * x, step * (x + width), step * step

    def raise_order(state: tuple[Reals, ...], point: tuple[Reals, Reals]):
        # value: step^n He_n(x + width); slope: its divided difference, times step^-1.
        n, coefficient = point
        before, value, slope_before, slope, total, change = state
        next_slope = near * slope + value - n * square * slope_before
        next_value = far * value - n * square * before
        total = total + coefficient * next_value
        return (
            value,
            next_value,
            slope,
            next_slope,
            total,
            change + coefficient * next_slope,
        ), None

    zero = xp.zeros_like(x)
    start = (zero, xp.ones_like(x), zero, zero, zero, zero)
    state = lax.scan(raise_order, start, (xp.asarray(_ORDERS), xp.asarray(_COEFFICIENTS)))[0]
    return state[4], width * step * state[5]


def log_tail(n: Reals, step: Reals) -> Reals:
    """log P[T >= n] for whole n >= 0."""
    short = is_short(n, step)
    x = xp.minimum(n * step, 1e150)
    narrow = xp.minimum(step, 1e100)
    decay = 0.5 * narrow * narrow

    def term(node: Reals, weight: Reals) -> Reals:
        return weight * xp.exp(-decay * node * (2.0 * n + node))

    direct = accumulate(TERMS, term, xp.zeros_like(x))
    flat = xp.where(short, 0.01, step)
    x_flat = xp.where(short, 1.0, x)
    smooth = mills(x_flat) / flat + 0.5 + correction(x_flat, flat)
    return xp.log(xp.where(short, direct, smooth)) - 0.5 * x * x - log_normaliser(step)


def middle(x: Reals, step: Reals) -> Reals:
    """P[-n <= T < n] / p(n), x = n step, for 0 <= x <= 0.75 and scales above 10."""
    x = xp.minimum(x, NORMAL_REACH)
    return 2.0 * (normal_integral_over_density(x) / step - correction(x, step))


def difference(x: Reals, width: Reals, step: Reals, gain: Reals) -> tuple[Reals, Reals]:
    """tau(n) - exp(-gain) tau(m), and tau(m), by the series; x = n step, x + width = m step."""
    pair = mills_pair(x, width)
    decrease = -xp.expm1(-gain)
    total, change = correction_pair(x, width, step)
    far = pair.upper / step + 0.5 + total
    return pair.difference / step - change + decrease * far, far
