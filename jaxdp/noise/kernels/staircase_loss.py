"""The privacy loss of the staircase: its atoms and their hockey-stick sums.

Lengths in units of the sensitivity; b = exp(-epsilon_0). The level of t is n(t) = 0 for
|t| < split and k for k - 1 + split <= |t| < k + split; the density is a b^n(t), and the loss at
a shift m is j epsilon_0, j = n(t + m) - n(t). With m = M + f and m - 2 split = V + h (M, V whole,
f, h in [0, 1)) the mass at j >= 1 is a / b times the sum of

* b^2 / (1 - b) (1 - f) at j = M, b^2 / (1 - b) f at j = M + 1           (t right of the top step);
* b times the overlap of the top step, shifted, with the step j <= M + 1      (t in the top step);
* b^(q+2) h at j = V - 2q and b^(q+2) (1 - h) at j = V - 1 - 2q, q >= 0  (t left, t + m right);

at -j it is b^j times that at j. The sums over q are geometric, so everything is a closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.double_double import Double, quotient, total
from jaxdp._numeric.elementary import ULP, log1m_near, product_gap

# Beyond this a ratio has no fraction.
_WHOLE = 2.0**53
# The least normal double.
_TINY = float(jnp.finfo(jnp.float64).tiny)
# Ulps of log delta, and of its exponent, that it is rounded up by.
_VALUE_ULPS = 8.0
_EXPONENT_ULPS = 2.0


class Place(NamedTuple):
    """A length over the sensitivity: whole + fraction, both parts to full relative accuracy."""

    whole: Reals
    fraction: Double
    rest: Reals  # 1 - fraction
    infinite: Bools


def place(length: Reals, unit: Reals) -> Place:
    """length / unit for length >= 0; a positive ratio that underflows becomes 9e-308.

    Beyond 2^53 the ratio is rounded up to a whole number. Infinite where it overflows.
    """
    private = unit == jnp.inf
    length = jnp.where(private, jnp.where(length < jnp.inf, 0.0, jnp.nan), length)
    unit = jnp.where(private, 1.0, unit)
    ratio = length / unit
    infinite = ratio == jnp.inf
    huge = ratio >= _WHOLE
    # Partial products of numbers near the least normal one would underflow.
    lifting = jnp.where(unit < 2.0**-500, 2.0**500, 1.0)
    within, unit = jnp.where(huge, 0.0, length) * lifting, unit * lifting
    whole = jax.lax.stop_gradient(jnp.floor(jnp.where(huge, 0.0, ratio)))
    gap = product_gap(within, whole, unit)
    # The quotient may have been rounded up to the next whole number.
    over = gap < 0
    lift = jnp.where(over, unit, 0.0)
    rest = jnp.where(over, -gap, unit - gap) / unit
    high = gap + lift
    lost = gap - (high - lift)
    rounded = high / unit
    rounded = jnp.where((rounded == 0) & (high > 0), 4.0 * _TINY, rounded)
    fraction = quotient(high, unit, rounded)
    fraction = Double(fraction.high, fraction.low + jax.lax.stop_gradient(lost / unit))
    whole = jnp.where(huge, ratio * (1.0 + 2.0 * ULP), jnp.where(over, whole - 1.0, whole))
    return Place(jnp.where(infinite, 1.0, whole), fraction, rest, infinite)


class Atoms(NamedTuple):
    """The masses of the loss; times 2 (split + b (1 - split)) = `norm`."""

    whole: Reals  # M
    fraction: Reals  # f
    rest: Reals  # 1 - f
    ahead: Reals  # overlaps of the shifted top step with step M + 1,
    level: Reals  # with step M,
    behind: Reals  # with step M - 1
    most: Reals  # V, at least -1
    part: Reals  # h
    other: Reals  # 1 - h
    decay: Reals  # b
    drop: Reals  # 1 - b
    norm: Reals
    infinite: Bools


def normaliser(epsilon: Reals, split: Reals) -> Reals:
    """2 (split + b (1 - split))."""
    return 2.0 * (split + jnp.exp(-epsilon) * (1.0 - split))


def atoms(epsilon: Reals, sensitivity: Reals, split: Reals, shift: Reals) -> Atoms:
    """Parts that the law of the loss at `shift` is made of; see `Atoms`."""
    at = place(shift, sensitivity)
    f, width = at.fraction, 2.0 * split
    step = jax.lax.stop_gradient(jnp.floor(total(f, -width)))
    minus = Double(-f.high, -f.low)
    return Atoms(
        whole=at.whole,
        fraction=f.high,
        rest=at.rest,
        ahead=jnp.minimum(width, f.high),
        level=jnp.clip(total(width, minus), 0.0, 1.0),
        behind=jnp.clip(total(width, minus, -jnp.ones_like(width)), 0.0, 1.0),
        most=jnp.maximum(at.whole + step, -1.0),
        part=jnp.clip(total(f, -width, -step), 0.0, 1.0),
        other=jnp.clip(total(width, minus, step + 1.0), 0.0, 1.0),
        decay=jnp.exp(-epsilon),
        drop=-jnp.expm1(-epsilon),
        norm=normaliser(epsilon, split),
        infinite=at.infinite,
    )


def _gap(j: Reals, unit: Reals, epsilon: Reals) -> Reals:
    """j unit - epsilon, for whole j."""
    product = j * unit
    close = jnp.abs(epsilon - product) < 0.5 * product
    c, a, b = (jnp.where(close, v, 1.0) for v in (epsilon, j, unit))
    return jnp.where(close, -product_gap(c, a, b), product - epsilon)


def _run(most: Reals, unit: Reals, size: Reals) -> tuple[Reals, Reals]:
    """Sums over q = 0..most of b^q (1 - b) (1 - e^size b^j)_+ and of the minimum; j = most - 2q."""
    # The number of atoms above size: where that is close, by the exact gap.
    count = jax.lax.stop_gradient(0.5 * (most - size / unit))
    nearest = jnp.round(count)
    counted = nearest + jnp.where(_gap(most - 2.0 * nearest, unit, size) > 0, 1.0, 0.0)
    count = jnp.where(jnp.abs(count - nearest) < 0.25, counted, jnp.ceil(count))
    count = jnp.maximum(count, 0.0)
    gap = jnp.maximum(_gap(most - count + 1.0, unit, size), 0.0)
    above = -jnp.expm1(-count * unit)
    excess = above * -jnp.expm1(-gap)
    left = -jnp.exp(-count * unit) * jnp.expm1(-(most - count + 1.0) * unit)
    return excess, above * jnp.exp(-gap) + left


def log_delta(unit: Reals, sensitivity: Reals, split: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """`Staircase.log_delta`; `unit` is its epsilon."""
    p = atoms(unit, sensitivity, split, shift)
    size = jnp.abs(epsilon)
    b, f, m = p.decay, p.fraction, p.whole
    gap, gap_level = _gap(m + 1.0, unit, size), _gap(m, unit, size)
    # One atom alone may have any mass: its factor f is taken out.
    alone = ~(gap_level > 0)
    gaps = [gap, gap_level, _gap(m - 1.0, unit, size)]
    gaps = [jnp.maximum(g, 0.0) for g in gaps]
    ahead, level, behind = (-jnp.expm1(-g) for g in gaps)
    even, even_left = _run(p.most, unit, size)
    odd, odd_left = _run(jnp.maximum(p.most - 1.0, -1.0), unit, size)
    positive = jnp.where(f > 0, f, 1.0)
    share = jnp.where(alone, jnp.minimum(1.0, 2.0 * split / positive), p.ahead)
    first = (b * jnp.where(alone, 1.0, f) + p.drop * share) * ahead
    rest = p.rest * level + p.part * even + p.other * odd
    middle = p.level * level + p.behind * behind
    excess = (first + b * rest + p.drop * middle) / p.norm
    excess = jnp.maximum(excess, _TINY)
    # 1 - delta, from terms of one sign: t right, t + m left, t in the top step or t + m in it.
    ahead, level, behind = (jnp.exp(-g) for g in gaps)
    mirrored = jnp.exp(-m * unit)
    right = p.rest * level + f * ahead + mirrored * (p.rest + f * b)
    right += p.part * even_left + p.other * odd_left
    top = p.ahead * (ahead + mirrored * b)
    top += p.level * (level + jnp.where(m >= 1, mirrored, 0.0))
    mirrored = jnp.exp(-jnp.maximum(m - 1.0, 0.0) * unit)
    top += p.behind * (behind + jnp.where(m >= 2, mirrored, 0.0))
    complement = (b * right + p.drop * top) / p.norm
    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    backward = epsilon < 0
    zero = (jnp.where(f > 0, gap, gap_level) <= 0) & (split > 0)
    scale = jnp.where(alone, positive, 1.0)
    back = jnp.exp(-size)
    mixture = -jnp.expm1(-size) + jnp.where(zero, 0.0, back * scale * excess)
    mixture = jnp.where(backward, mixture, 1.0)
    small = jnp.where(backward, jnp.log(mixture), jnp.log(scale) + jnp.log(excess))
    complement = jnp.where(backward, back, 1.0) * complement
    near_one = complement < 0.5
    held = jnp.where(near_one, complement, 0.25)
    large = log1m_near(held)
    exponent = jnp.where(held > 0, -jnp.log(jnp.where(held > 0, held, 1.0)), 0.0)
    # As a factor: what is added to a value next to the least normal number would be subnormal, 0.
    part = ULP * jax.lax.stop_gradient(_VALUE_ULPS + _EXPONENT_ULPS * exponent)
    error = ULP * jax.lax.stop_gradient(_VALUE_ULPS + _EXPONENT_ULPS * jnp.abs(small))
    value = jnp.where(near_one, large * (1.0 - part), small + error)
    value = jnp.where(value > 0, 0.0, value)
    value = jnp.where(zero & ~backward, -jnp.inf, value)
    known = (split > 0) & (unit > 0) & ~jnp.isnan(epsilon)
    return jnp.where(p.infinite & known, 0.0, value)
