"""The privacy loss of the staircase: its atoms, their hockey-stick sums and divergences.

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

from jaxdp._core.namespace import lax, logsumexp, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.double_double import Double, quotient, total
from jaxdp._numeric.elementary import ULP, decay_means, log_probability, product_gap
from jaxdp.noise.kernels.divergence import log1p_ratio_above
from jaxdp.noise.kernels.negative_epsilon import upper_log_delta, whole_sides

# Beyond this a ratio has no fraction.
_WHOLE = 2.0**53
# The least normal double.
_TINY = float(xp.finfo(xp.float64).tiny)
# Least factor by which 1 - delta is divided. chosen: no quotient overflows
_LEAST_FACTOR = 1e-290
# Ulps of log delta, and of its exponent, that it is rounded up by.
_VALUE_ULPS = 16.0
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
    private = unit == xp.inf
    length = xp.where(private, xp.where(length < xp.inf, 0.0, xp.nan), length)
    unit = xp.where(private, 1.0, unit)
    ratio = length / unit
    infinite = ratio == xp.inf
    huge = ratio >= _WHOLE
    # Partial products of numbers near the least normal one would underflow.
    lifting = xp.where(unit < 2.0**-500, 2.0**500, 1.0)
    within, unit = xp.where(huge, 0.0, length) * lifting, unit * lifting
    whole = lax.stop_gradient(xp.floor(xp.where(huge, 0.0, ratio)))
    gap = product_gap(within, whole, unit)
    # The quotient may have been rounded up to the next whole number.
    over = gap < 0
    lift = xp.where(over, unit, 0.0)
    rest = xp.where(over, -gap, unit - gap) / unit
    high = gap + lift
    lost = gap - (high - lift)
    rounded = high / unit
    rounded = xp.where((rounded == 0) & (high > 0), 4.0 * _TINY, rounded)
    fraction = quotient(high, unit, rounded)
    fraction = Double(fraction.high, fraction.low + lax.stop_gradient(lost / unit))
    whole = xp.where(huge, ratio * (1.0 + 2.0 * ULP), xp.where(over, whole - 1.0, whole))
    return Place(xp.where(infinite, 1.0, whole), fraction, rest, infinite)


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
    return 2.0 * (split + xp.exp(-epsilon) * (1.0 - split))


def atoms(epsilon: Reals, sensitivity: Reals, split: Reals, shift: Reals) -> Atoms:
    """Parts that the law of the loss at `shift` is made of; see `Atoms`."""
    at = place(shift, sensitivity)
    f, width = at.fraction, 2.0 * split
    step = lax.stop_gradient(xp.floor(total(f, -width)))
    minus = Double(-f.high, -f.low)
    return Atoms(
        whole=at.whole,
        fraction=f.high,
        rest=at.rest,
        ahead=xp.minimum(width, f.high),
        level=xp.clip(total(width, minus), 0.0, 1.0),
        behind=xp.clip(total(width, minus, -xp.ones_like(width)), 0.0, 1.0),
        most=xp.maximum(at.whole + step, -1.0),
        part=xp.clip(total(f, -width, -step), 0.0, 1.0),
        other=xp.clip(total(width, minus, step + 1.0), 0.0, 1.0),
        decay=xp.exp(-epsilon),
        drop=-xp.expm1(-epsilon),
        norm=normaliser(epsilon, split),
        infinite=at.infinite,
    )


def log_masses(epsilon: Reals, sensitivity: Reals, split: Reals, shift: Reals, j: Reals) -> Reals:
    """log of the mass under P at the loss j epsilon, j >= 1 along a new last axis."""
    p = Atoms(*(x[..., None] for x in atoms(epsilon, sensitivity, split, shift)))
    unit = epsilon[..., None]
    log_drop, m = log_probability(p.drop), p.whole
    q, odd = 0.5 * (p.most - j), 0.5 * (p.most - 1.0 - j)
    far, odd_far = (log_drop - (xp.maximum(x, 0.0) + 1.0) * unit for x in (q, odd))

    def at(place: Bools, log_factor: Reals, value: Reals) -> Reals:
        return xp.where(place, log_factor + log_probability(value), -xp.inf)

    parts = (
        at(j == m, -unit, p.rest),
        at(j == m + 1.0, -unit, p.fraction),
        at(j == m + 1.0, log_drop, p.ahead),
        at(j == m, log_drop, p.level),
        at(j == m - 1.0, log_drop, p.behind),
        at((q >= 0) & (q == xp.floor(q)), far, p.part),
        at((odd >= 0) & (odd == xp.floor(odd)), odd_far, p.other),
    )
    total_mass = logsumexp(xp.stack(parts), axis=0) - xp.log(p.norm)
    return xp.where(p.infinite, -xp.inf, total_mass)


def _gap(j: Reals, unit: Reals, epsilon: Reals) -> Reals:
    """j unit - epsilon, for whole j."""
    product = j * unit
    close = xp.abs(epsilon - product) < 0.5 * product
    c, a, b = (xp.where(close, v, 1.0) for v in (epsilon, j, unit))
    return xp.where(close, -product_gap(c, a, b), product - epsilon)


def _run(most: Reals, unit: Reals, size: Reals) -> tuple[Reals, Reals]:
    """Sums over q = 0..most of b^q (1 - b) (1 - e^size b^j)_+ and of the minimum; j = most - 2q."""
    # The number of atoms above size: where that is close, by the exact gap.
    count = lax.stop_gradient(0.5 * (most - size / unit))
    nearest = xp.round(count)
    counted = nearest + xp.where(_gap(most - 2.0 * nearest, unit, size) > 0, 1.0, 0.0)
    count = xp.where(xp.abs(count - nearest) < 0.25, counted, xp.ceil(count))
    count = xp.maximum(count, 0.0)
    gap = xp.maximum(_gap(most - count + 1.0, unit, size), 0.0)
    above = -xp.expm1(-count * unit)
    excess = above * -xp.expm1(-gap)
    left = -xp.exp(-count * unit) * xp.expm1(-(most - count + 1.0) * unit)
    return excess, above * xp.exp(-gap) + left


def log_delta(unit: Reals, sensitivity: Reals, split: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """`Staircase.log_delta`; `unit` is its epsilon."""
    p = atoms(unit, sensitivity, split, shift)
    size = xp.abs(epsilon)
    b, f, m = p.decay, p.fraction, p.whole
    gap, gap_level = _gap(m + 1.0, unit, size), _gap(m, unit, size)
    # One atom alone may have any mass: its factor f is taken out.
    alone = ~(gap_level > 0)
    gaps = [gap, gap_level, _gap(m - 1.0, unit, size)]
    gaps = [xp.maximum(g, 0.0) for g in gaps]
    ahead, level, behind = (-xp.expm1(-g) for g in gaps)
    even, even_left = _run(p.most, unit, size)
    odd, odd_left = _run(xp.maximum(p.most - 1.0, -1.0), unit, size)
    positive = xp.where(f > 0, f, 1.0)
    share = xp.where(alone, xp.minimum(1.0, 2.0 * split / positive), p.ahead)
    first = (b * xp.where(alone, 1.0, f) + p.drop * share) * ahead
    rest = p.rest * level + p.part * even + p.other * odd
    middle = p.level * level + p.behind * behind
    excess = (first + b * rest + p.drop * middle) / p.norm
    excess = xp.maximum(excess, _TINY)
    # 1 - delta, from terms of one sign: t right, t + m left, t in the top step or t + m in it.
    ahead, level, behind = (xp.exp(-g) for g in gaps)
    mirrored = xp.exp(-m * unit)
    right = p.rest * level + f * ahead + mirrored * (p.rest + f * b)
    right = right + (p.part * even_left + p.other * odd_left)
    top = p.ahead * (ahead + mirrored * b)
    top = top + p.level * (level + xp.where(m >= 1, mirrored, 0.0))
    mirrored = xp.exp(-xp.maximum(m - 1.0, 0.0) * unit)
    top = top + p.behind * (behind + xp.where(m >= 2, mirrored, 0.0))
    complement = (b * right + p.drop * top) / p.norm
    zero = (xp.where(f > 0, gap, gap_level) <= 0) & (split > 0)
    scale = xp.where(alone, positive, 1.0)
    loss = -xp.log(xp.where(complement > 0, complement, 1.0))
    sides = whole_sides(xp.where(zero, 0.0, excess), xp.where(zero, 1.0, complement), loss)
    sides = sides._replace(below=sides.below & (scale > _LEAST_FACTOR), decay=-xp.log(scale))
    sides = sides._replace(both=xp.where(sides.below, sides.both / scale, 1.0))
    value = upper_log_delta(sides, epsilon, _VALUE_ULPS, _EXPONENT_ULPS)
    value = xp.where(zero & (epsilon >= 0), -xp.inf, value)
    known = (split > 0) & (unit > 0) & ~xp.isnan(epsilon)
    return xp.where(p.infinite & known, 0.0, value)


# Larger exponents see the largest loss alone. chosen: a product with them is finite
_LARGEST_EXPONENT = 1e290
# Exponent over 2 of a run below which its power series serves. measured: errors are below 4e-14
_SERIES_REACH = 0.02


class Tilt(NamedTuple):
    """Sums for E[e^(s L)] - 1, over s and over e^(s reach unit), of losses j unit, j <= reach.

    The atoms at j and -j are taken together, and the largest exponent out, so nothing cancels.
    """

    unit: Reals
    s: Reals  # order - 1
    reach: Reals

    def _scaled(self, j: Reals, value: Reals) -> Reals:
        return xp.exp(self.s * (j - self.reach) * self.unit) * value

    def pair(self, j: Reals) -> Reals:
        """The part of j and -j per mass at j: (e^(s j unit) - 1) (1 - e^(-(s + 1) j unit))."""
        j = xp.maximum(j, 0.0)
        loss, s = j * self.unit, self.s
        grown = loss * decay_means(s * loss)[0] * -xp.expm1(-(s + 1.0) * loss)
        return self._scaled(j, grown)

    def run(self, most: Reals) -> Reals:
        """(1 - b) sum over q = 0..most of b^q (e^(s j unit) - 1), j = most - 2 q, b = e^-unit."""
        unit, s = self.unit, self.s
        b, drop = xp.exp(-unit), -xp.expm1(-unit)
        tau, half, v = s * unit, 0.5 * unit * (s + 1.0), xp.maximum(most, 0.0)
        by_series = half * most < _SERIES_REACH
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
        value = xp.where(by_series, series, unit * closed / fall)
        return self._scaled(most, xp.where(most < 0, 0.0, value))

    def divergence(self, total: Reals) -> Reals:
        """log(E[e^(s L)]) / s from the total of all parts."""
        top = self.s * self.reach * self.unit
        endless = ~(top < _LARGEST_EXPONENT)
        value = log1p_ratio_above(total, xp.where(endless, 0.0, top), self.s)
        return xp.where(endless, self.reach * self.unit, value)


def divergence(unit: Reals, sensitivity: Reals, split: Reals, shift: Reals, s: Reals) -> Reals:
    """`Staircase.renyi` of the order 1 + s >= 1; `unit` is its epsilon."""
    p = atoms(unit, sensitivity, split, shift)
    b, most = p.decay, xp.maximum(p.most - 1.0, -1.0)
    tilt = Tilt(unit, s, p.whole + xp.where(p.fraction > 0, 1.0, 0.0))
    ahead = xp.where(p.fraction > 0, tilt.pair(tilt.reach), 0.0)
    total = (b * p.fraction + p.drop * p.ahead) * ahead
    total = total + (b * p.rest + p.drop * p.level) * tilt.pair(p.whole)
    total = total + p.drop * p.behind * tilt.pair(p.whole - 1.0)
    total = total + b * (p.part * tilt.run(p.most) + p.other * tilt.run(most))
    value = tilt.divergence(total / p.norm)
    return xp.where(p.infinite & (unit > 0) & (split > 0), xp.inf, value)
