"""exp(-e) in sums of two doubles, for comparisons that float64 cannot decide."""

from __future__ import annotations

import decimal

import jax
import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.double_double import Double, divide, scaled, total_pair
from jaxdp._numeric.elementary import two_sum

# Halvings of the argument, and terms of the series. derived: 1e-31
_HALVINGS, _TERMS = 6, 20


def exp_pair(exponent: Double) -> Double:
    """exp(-e), e >= 0, to an absolute 1e-27; 0 beyond 200."""
    far = exponent.high > 200.0
    small = scaled(Double(*(xp.where(far, 1.0, -x) for x in exponent)), 2.0**-_HALVINGS)
    count = xp.round(small.high * 4.0) * 0.25
    high, low = two_sum(small.high, -count)
    rest = Double(high, low + small.low)
    # Not a constant: XLA would take (1 + x) - 1 for x.
    zero, one = xp.zeros_like(high), xp.where(high <= 1.0, 1.0, xp.nan)

    def add_term(index: jax.Array, value: Double) -> Double:
        order = Double(one * (_TERMS - index), zero)
        term = divide(product(rest, value), order, xp.ones(high.shape, bool))
        return total_pair(one, term)

    value = lax.fori_loop(0, _TERMS, add_term, Double(one, zero))
    value = product(value, _quarters(count))
    value = lax.fori_loop(0, _HALVINGS, lambda _, x: product(x, x), value)
    return Double(*(xp.where(far, 0.0, x) for x in value))


def product(x: Double, y: Double) -> Double:
    """x y to 1e-31, from partial products of 26 bits.

    These are exact: a compiler that contracts one into a sum changes nothing, whereas in c - a b,
    c = a b, it may take the unrounded c.
    """
    a, b = (lax.reduce_precision(v, 11, 25) for v in (x.high, y.high))
    a_low, b_low = x.high - a, y.high - b
    high, first = two_sum(a * b, a * b_low)
    high, second = two_sum(high, a_low * b)
    low = (first + second) + (a_low * b_low + (x.high * y.low + x.low * y.high))
    return Double(*two_sum(high, low))


def _quarters(count: Reals) -> Double:
    """exp(count) for multiples of 1/4 in [-4, 0], to 1e-32, from a table."""
    with decimal.localcontext(decimal.Context(prec=60)):
        exact = [(decimal.Decimal(-i) / 4).exp() for i in range(17)]
        high = np.array([float(x) for x in exact])
        low = np.array([float(x - decimal.Decimal(float(x))) for x in exact])
    index = xp.clip(xp.round(-4.0 * count), 0, 16).astype(xp.int32)
    return Double(xp.take(high, index), xp.take(low, index))
