"""log delta of a symmetric law whose loss grows, from where it crosses |epsilon|.

With g the density, the loss exceeds |epsilon| beyond u, v = u + shift, H(t) = P[T > t] / g(t):

    delta     = g(u) (H(u) - H(v))                       u >= 0
    delta     = P[|T| <= |u|] + g(u) (H(|u|) - H(v))     u < 0
    1 - delta = g(u) (H(|u|) + H(v))                     u < 0

because g(u) = e^|epsilon| g(v): no two close numbers are subtracted once H(|u|) - H(v) is known.
`least_offset`: for Gaussian tails, the least xi with Renyi divergence of every order a > 1 at most
xi + a rho.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp._numeric.elementary import lifted, round_up
from jaxdp.noise.kernels.negative_epsilon import (
    Sides,
    inverse_delta,
    slope_in_epsilon,
    upper_log_delta,
)

# Measured: rounding moves log delta by up to 5 ulp, and by 2 ulp of the exponent.
_VALUE_ULPS = 12.0
_EXPONENT_ULPS = 2.5
# The least normal double.
TINY = float(np.finfo(np.float64).tiny)
# Beyond, squares overflow: epsilon is cut (delta falls in it), to as many shifts in units of the
# scale too, then these, where delta is 1 by then; a parameter's ratio to the scale gives NaN.
LARGEST_EPSILON = 1e305
LARGEST_SHIFT = 1e153
LARGEST_RATIO = 1e150
# Exponents above it have a delta above 1/2 where u < 0, which 1 - delta gives.
_TOP = 600.0


class Point(NamedTuple):
    """Parameters as given, for exact differences, and their ratios.

    -log g has the slope alpha / gamma^2 at 0 and tails of scale gamma. Derivatives are taken in the
    ratios and epsilon alone.
    """

    alpha: Reals
    gamma: Reals
    shift: Reals
    a: Reals  # alpha / gamma
    d: Reals  # shift / gamma
    epsilon: Reals

    def cut(self) -> Point:
        """The point at |epsilon|, limited to finite squares; NaN for a ratio beyond 1e150.

        No shift becomes one of gamma.
        """
        none, far = self.d == 0, self.d > LARGEST_SHIFT
        d = xp.where(none, 1.0, xp.minimum(self.d, LARGEST_SHIFT))
        largest = xp.minimum(LARGEST_EPSILON, LARGEST_SHIFT * d)
        return self._replace(
            shift=xp.where(none, self.gamma, xp.where(far, xp.inf, self.shift)),
            a=xp.where(self.a <= LARGEST_RATIO, self.a, xp.nan),
            d=d,
            epsilon=xp.minimum(xp.abs(self.epsilon), largest),
        )


class Crossing(NamedTuple):
    """Terms at the crossing of |epsilon|, in units where g(t) = exp(-rho(t)) / kappa."""

    below: Bools  # u < 0
    exponent: Reals  # rho(u)
    kappa: Reals
    inside: Reals  # kappa P[|T| <= |u|] where u < 0, to full relative accuracy if delta < 1/2
    excess: Reals  # H(|u|) - H(v) > 0
    near_ratio: Reals  # H(|u|)
    far_ratio: Reals  # H(v)

    def sides(self) -> Sides:
        """The same terms times exp(rho(u))."""
        within = self.inside * xp.exp(xp.minimum(self.exponent, _TOP))
        excess = self.excess + xp.where(self.below, within, 0.0)
        both = (self.near_ratio + self.far_ratio) / self.kappa
        # 1 - delta has the rounding of the exponent.
        small = self.below & (xp.exp(-self.exponent) * both < 0.5)
        amplification = xp.where(small, self.exponent * both, 0.0)
        near, far = self.near_ratio / self.kappa, self.far_ratio / self.kappa
        parts = excess / self.kappa, both, near, far
        return Sides(self.below, self.exponent, *parts, amplification)


def log_delta_at(at: Crossing, epsilon: Reals, none: Bools) -> Reals:
    """An upper bound of log delta(epsilon), by at most 5e-15 of itself; `none`: no shift.

    Where delta > 1/2, by 5e-15 + 1e-15 rho(u).
    """
    t = at.sides()
    sides = t._replace(below=t.below & ~none, excess=xp.where(none, 0.0, t.excess))
    upper = upper_log_delta(sides, epsilon, _VALUE_ULPS, _EXPONENT_ULPS)
    zero = (none & (epsilon >= 0)) | (epsilon == xp.inf)
    return xp.where(zero & ~xp.isnan(upper), -xp.inf, upper)


def slopes_at(at: Crossing, epsilon: Reals, out: Reals) -> tuple[Reals, Reals]:
    """d log delta / d shift and / d epsilon, `out` = log delta: g(u) / delta times (1, -H(v)).

    At fixed u, as delta is stationary in it.
    """
    sides = at.sides()
    by_shift = inverse_delta(sides, epsilon, out) / at.kappa
    return by_shift, slope_in_epsilon(sides, epsilon, out)


# Intervals of the grid of orders.
_GRID = 256
# Rounds of the grid, see `least_offset`
_ROUNDS = 4
# Relative error of the cumulants, with room.
_ROUNDING = 1e-13


def least_offset(
    cumulant: Callable[[Reals], Reals], rho: Reals, first: Reals, last: Reals, beyond: Reals
) -> Reals:
    """An upper bound of sup over s > 0 of K(s) / s - (1 + s) rho; `beyond` bounds it past `last`.

    K is convex with K(0) = 0, so between two arguments K(s) <= A s + B, its chord, with B <= 0:
    the bound A + B / s - (1 + s) rho is largest at s^2 = -B / rho. The grid, 0 and geometric on
    [first, last], is closed in on the intervals that may hold the supremum; then it is even in
    sqrt(s), where a chord's excess is: at most rho high / 256^2.
    """
    first, last, beyond, rho = first[None], last[None], beyond[None], rho[None]
    parts = xp.stack([xp.full_like(rho[0], v) for v in np.linspace(0.0, 1.0, _GRID + 1)])
    geometric = first * xp.exp((parts - 1.0 / _GRID) * (xp.log(last / first) / (1.0 - 1.0 / _GRID)))
    first_grid = xp.where(parts == 0, 0.0, geometric)

    def close_in(_: Index, state: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        s, _ = state
        k = xp.where(s > 0, cumulant(xp.where(s > 0, s, 1.0)), 0.0)
        left, right, k_left, k_right = s[:-1], s[1:], k[:-1], k[1:]
        step = xp.where(right > left, right - left, 1.0)
        slope = (k_right - k_left) / step
        level = k_left - slope * left
        best = xp.clip(xp.sqrt(xp.maximum(-level, 0.0) / rho), left, right)
        weight = (best - left) / step
        chord = (1.0 - weight) * k_left + weight * k_right
        mean = xp.where(left > 0, chord / xp.where(best > 0, best, 1.0), slope)
        rounding = _ROUNDING * (mean + (1.0 + best) * rho)
        upper = mean - (1.0 + best) * rho + rounding
        reached = k_right / right - (1.0 + right) * rho - rounding
        candidate = upper >= xp.max(reached, axis=0, keepdims=True)
        low = xp.min(xp.where(candidate, left, xp.inf), axis=0, keepdims=True)
        high = xp.max(xp.where(candidate, right, -xp.inf), axis=0, keepdims=True)
        root = xp.sqrt(low)
        return (root + (xp.sqrt(high) - root) * parts) ** 2, xp.max(upper, axis=0, keepdims=True)

    _, bound = lax.fori_loop(0, _ROUNDS, close_in, (first_grid, xp.zeros_like(rho)))
    return xp.maximum(bound, beyond)[0]


def offset_and_rho(xi: Reals, d: Reals) -> tuple[Reals, Reals]:
    """(xi, rho) for Gaussian tails at d = shift / scale: rho = d^2 / 2, rounded up.

    xi is 0 at no shift, and at an infinite one, whose rho is infinite.
    """
    xi = xp.where((d == 0) | (d == xp.inf), 0.0, xi)
    return xp.where(xp.isnan(d), xp.nan, xi), lifted(round_up(0.5 * d * d, 4), d > 0)
