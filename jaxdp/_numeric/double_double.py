"""Sums of two doubles: 32 digits, for differences of nearly equal numbers.

The parts of order one ulp carry no derivative: values are exact, derivatives those of the
leading parts.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import product_gap

# The residual of a quotient below this has partial products that underflow.
_LEAST = 1e-280


class Double(NamedTuple):
    """high + low, |low| <= ulp(high)."""

    high: Reals
    low: Reals


def quotient(numerator: Reals, denominator: Reals, ratio: Reals) -> Double:
    """numerator / denominator, given its rounded value; |low| is 0 where it would underflow."""
    usable = (ratio > _LEAST) & (numerator > _LEAST) & jnp.isfinite(numerator)
    usable &= (denominator > _LEAST) & jnp.isfinite(denominator)
    c, a, b = (jnp.where(usable, v, 1.0) for v in (numerator, ratio, denominator))
    low = jnp.where(usable, product_gap(c, a, b) / b, 0.0)
    return Double(ratio, jax.lax.stop_gradient(low))


def product(x: Double, y: Double) -> Double:
    """x y, relative error 1e-31."""
    high = x.high * y.high
    low = x.high * y.low + x.low * y.high - product_gap(high, x.high, y.high)
    return Double(high, jax.lax.stop_gradient(low))


def scaled(x: Double, power_of_two: float) -> Double:
    """x times a power of two, exactly."""
    return Double(x.high * power_of_two, x.low * power_of_two)


def total(*terms: Double | Reals) -> Reals:
    """The sum, rounded once: its error is an ulp of the sum plus 1e-31 of the largest term."""
    return total_pair(*terms).high


def total_pair(*terms: Double | Reals) -> Double:
    """The sum, to 1e-31 of the largest term."""
    pairs = [t if isinstance(t, Double) else Double(t, jnp.zeros_like(t)) for t in terms]
    high, low = reduce(_add, pairs)
    value = high + jax.lax.stop_gradient(low)
    low_part = value - high
    return Double(value, jax.lax.stop_gradient((high - (value - low_part)) + (low - low_part)))


def divide(numerator: Double, denominator: Double, wanted: Bools) -> Double:
    """numerator / denominator to 1e-30, where `wanted`; there denominator.high != 0."""
    above, below = jnp.where(wanted, numerator.high, 0.0), jnp.where(wanted, denominator.high, 1.0)
    ratio = above / below
    usable = wanted & (jnp.abs(ratio) > _LEAST) & (jnp.abs(above) > _LEAST) & (below > _LEAST)
    c, a, b = (jnp.where(usable, v, 1.0) for v in (above, ratio, below))
    rest = product_gap(c, a, b) + jnp.where(usable, numerator.low - a * denominator.low, 0.0)
    return Double(ratio, jax.lax.stop_gradient(jnp.where(usable, rest / b, 0.0)))


def _add(x: Double, y: Double) -> Double:
    high = x.high + y.high
    y_part = high - x.high
    error = (x.high - (high - y_part)) + (y.high - y_part)
    return Double(high, jax.lax.stop_gradient(error) + (x.low + y.low))
