"""Sums of two doubles: 32 digits, for differences of nearly equal numbers.

Values are exact. Derivatives are the derivatives of the leading parts; the parts of order one ulp
carry none.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, lifted, product_gap, round_up, two_sum

# Least quotient whose residual has no partial products that underflow. chosen: far above 1e-308
_LEAST = 1e-280


class Double(NamedTuple):
    """high + low, |low| <= ulp(high)."""

    high: Reals
    low: Reals


def quotient(numerator: Reals, denominator: Reals, ratio: Reals) -> Double:
    """numerator / denominator, given its rounded value; |low| is 0 where it would underflow."""
    usable = (ratio > _LEAST) & (numerator > _LEAST) & xp.isfinite(numerator)
    usable = usable & ((denominator > _LEAST) & xp.isfinite(denominator))
    c, a, b = (xp.where(usable, v, 1.0) for v in (numerator, ratio, denominator))
    low = xp.where(usable, product_gap(c, a, b) / b, 0.0)
    return Double(ratio, lax.stop_gradient(low))


def product(x: Double, y: Double) -> Double:
    """x y, relative error 1e-31."""
    high = x.high * y.high
    low = x.high * y.low + x.low * y.high - product_gap(high, x.high, y.high)
    return Double(high, lax.stop_gradient(low))


def scaled(x: Double, power_of_two: float) -> Double:
    """x times a power of two, exactly."""
    return Double(x.high * power_of_two, x.low * power_of_two)


def total(*terms: Double | Reals) -> Reals:
    """The sum, rounded once: its error is an ulp of the sum plus 1e-31 of the largest term."""
    return total_pair(*terms).high


def total_pair(*terms: Double | Reals) -> Double:
    """The sum, to 1e-31 of the largest term."""
    pairs = [t if isinstance(t, Double) else Double(t, xp.zeros_like(t)) for t in terms]
    high, low = reduce(_add, pairs)
    value, rest = two_sum(high, lax.stop_gradient(low))
    return Double(value, lax.stop_gradient(xp.where(xp.isfinite(value), rest, 0.0)))


def sum_up(a: Reals, b: Reals) -> Reals:
    """a + b, rounded up; exact where it is a double."""
    return rounded_up(Double(*two_sum(a, b)))


def rounded_up(x: Double) -> Reals:
    """The least double that is not below x."""
    return xp.where(x.low > 0, round_up(x.high, 1), x.high)


def product_up(a: Reals, b: Reals) -> Reals:
    """a b >= 0, rounded up; exact where it is a double of at least 1e-280."""
    value = a * b
    usable = (value > _LEAST) & xp.isfinite(value)
    parts = (xp.where(usable, v, 1.0) for v in (value, a, b))
    exact = usable & (product_gap(*parts) >= 0) | (a == 1)
    return xp.where(exact, value, round_up(value, 1))


def quotient_up(a: Reals, b: Reals) -> Reals:
    """a / b >= 0, rounded up; exact where it is a double of at least 1e-280, and 0 only if a is."""
    value = a / b
    usable = (value > _LEAST) & (a > _LEAST) & (b > _LEAST) & xp.isfinite(a) & xp.isfinite(b)
    parts = (xp.where(usable, v, 1.0) for v in (a, value, b))
    exact = usable & (product_gap(*parts) <= 0)
    return xp.where(exact, value, lifted(round_up(value, 1), (a > 0) & xp.isfinite(b)))


def dot_up(x: Reals, y: Reals) -> Double:
    """Sum of x y >= 0 along the last axis, with 0 times infinity = 0; never below the exact sum.

    The result is exact if no product and no partial sum is rounded. Otherwise it exceeds the exact
    sum by at most 1e-31 of it.
    """
    value = xp.where(x == 0, 0.0, x * y)
    usable = (value > _LEAST) & xp.isfinite(value)
    parts = (xp.where(usable, v, 1.0) for v in (value, x, y))
    errors = [xp.where(usable, -product_gap(*parts), 0.0)]
    # Here the error of a product can underflow.
    value = xp.where(usable | (x == 1), value, round_up(value, 1))
    while value.shape[-1] > 1:
        even = value.shape[-1] // 2 * 2
        pairs, odd = value[..., :even], value[..., even:]
        added, error = two_sum(pairs[..., ::2], pairs[..., 1::2])
        value = xp.concatenate([added, odd], axis=-1)
        errors.append(error)
    error = xp.concatenate(errors, axis=-1)
    error = xp.where(xp.isfinite(value), error, 0.0)
    rounding = 2.0 * error.shape[-1] * ULP * xp.sum(xp.abs(error), axis=-1)
    return total_pair(Double(value[..., 0], lax.stop_gradient(xp.sum(error, axis=-1) + rounding)))


def gap_up(x: Double, y: Reals) -> Reals:
    """x - y, rounded up by 1e-15 of it at most, and 0 where it is 0."""
    high, low = two_sum(x.high, -y)
    low = xp.where(xp.isfinite(high), low, 0.0)
    tail = low + x.low + 4.0 * ULP * (xp.abs(low) + xp.abs(x.low))
    return lifted(round_up(high + lax.stop_gradient(tail), 2), y < x.high)


def divide(numerator: Double, denominator: Double, wanted: Bools) -> Double:
    """numerator / denominator to 1e-30, where `wanted`; there denominator.high != 0."""
    above, below = xp.where(wanted, numerator.high, 0.0), xp.where(wanted, denominator.high, 1.0)
    ratio = above / below
    usable = wanted & (xp.abs(ratio) > _LEAST) & (xp.abs(above) > _LEAST) & (below > _LEAST)
    c, a, b = (xp.where(usable, v, 1.0) for v in (above, ratio, below))
    rest = product_gap(c, a, b) + xp.where(usable, numerator.low - a * denominator.low, 0.0)
    return Double(ratio, lax.stop_gradient(xp.where(usable, rest / b, 0.0)))


def _add(x: Double, y: Double) -> Double:
    high, error = two_sum(x.high, y.high)
    return Double(high, lax.stop_gradient(error) + (x.low + y.low))
