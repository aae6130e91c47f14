"""Noises with a kink at 0 and Gaussian tails: the flipped Huber and the offset Gaussian.

log delta of a symmetric law whose loss grows, from where it crosses |epsilon|. With g the density,
the loss exceeds |epsilon| beyond u, v = u + shift, H(t) = P[T > t] / g(t):

    delta     = g(u) (H(u) - H(v))                       u >= 0
    delta     = P[|T| <= |u|] + g(u) (H(|u|) - H(v))     u < 0
    1 - delta = g(u) (H(|u|) + H(v))                     u < 0

because g(u) = e^|epsilon| g(v): no two close numbers are subtracted once H(|u|) - H(v) is known.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Key, Reals, Shape
from jaxdp._numeric.elementary import lifted, round_up
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.gaussian import infinite_unless_zero
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.negative_epsilon import (
    Sides,
    inverse_delta,
    slope_in_epsilon,
    upper_log_delta,
)

# The largest alpha: the largest double.
LARGEST = float(np.finfo(np.float64).max)
# Outside, `zcdp` gives the published bound; its search would over- or underflow.
_RATIOS = (1e-6, 1e6)
_SHIFTS = (1e-12, 1e6)
# Least alpha / gamma of exact draws. chosen: a hundred candidates a draw
_LEAST_SHARE = 2.0**-6


class GaussianTails(Noise):
    """A noise by two lengths, alpha and gamma, its fields in this order.

    -log g has the slope alpha / gamma^2 at 0 and tails of scale gamma. |T| is below a normal law of
    variance gamma^2 in the likelihood-ratio order.
    """

    log_concave = True

    @classmethod
    def _of_shape(cls, shape: Reals, scale: Reals) -> Noise:
        return cls(shape * scale, scale)  # pyright: ignore[reportCallIssue]

    def _lengths(self) -> tuple[Reals, Reals]:
        """(alpha, gamma)."""
        alpha, gamma = vars(self).values()
        return alpha, gamma

    def _in_range(self) -> Bools:
        alpha, gamma = self._lengths()
        return (alpha >= 0) & (alpha <= LARGEST) & (gamma > 0)

    def _ratios(self, length: Reals) -> tuple[Reals, Reals]:
        alpha, gamma = self._lengths()
        return ratio_of(alpha, gamma), ratio_of(length, gamma)

    @abc.abstractmethod
    def _upper_quantile(self, p: Reals, q: Reals) -> Reals:
        """The x >= 0 with P[T > x] = p, for p = 1/2 - q in [0, 1/2]."""

    def _quantile(self, u: Reals) -> Reals:
        """See `_upper_quantile`."""
        size = self._upper_quantile(xp.minimum(u, 1.0 - u), xp.abs(0.5 - u))
        return xp.where(u < 0.5, -size, size)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        """Inversion of 53 uniform bits, and a sign."""
        sign_key, size_key = jax.random.split(key)
        uniform = jax.random.uniform(size_key, shape, dtype=xp.float64)
        size = self._upper_quantile(0.5 - 0.5 * uniform, 0.5 * uniform)
        return size * jax.random.rademacher(sign_key, shape, dtype=xp.float64)

    def _lattice_unit(self) -> Reals:
        alpha, gamma = self._lengths()
        shares = np.asarray(alpha / gamma) if checks.all_concrete(self) else 1.0
        if not np.all(shares >= _LEAST_SHARE):
            slope, tail = (field.name for field in dataclasses.fields(self))  # pyright: ignore[reportArgumentType]
            raise ValueError(
                f"{slope} must be at least {_LEAST_SHARE:g} {tail} to be sampled: below, "
                "use a Gaussian"
            )
        return xp.minimum(gamma, gamma * gamma / alpha)

    def _draw_whole(self, key: Key, shape: Shape, fine: Reals) -> Reals:
        alpha, gamma = (x / fine for x in self._lengths())
        law = whole_draws.WholeLaw(
            self.whole_kind, round_up(gamma * gamma / alpha, 4), alpha, gamma
        )
        return whole_draws.draw(key, law, shape)

    def _sub_gaussian_proxy(self) -> Reals:
        """gamma^2."""
        return self._lengths()[1] ** 2

    def _point(self, shift: Reals, epsilon: Reals) -> Point:
        return Point(*self._lengths(), shift, *self._ratios(shift), epsilon)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        return infinite_unless_zero(self._ratios(shift)[1])

    @abc.abstractmethod
    def _offsets(self, a: Reals, d: Reals) -> tuple[Reals, Callable[..., tuple[Reals, ...]]]:
        """The published xi over gamma, and a function for `last` and `beyond` of `least_offset`."""

    @abc.abstractmethod
    def _unit_divergence(self, a: Reals, d: Reals, excess: Reals) -> Reals:
        """`_divergence` in units of gamma, of arrays of one shape."""

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Quadrature: see `kernels.divergence`."""
        return self._unit_divergence(*self._ratios(shift), excess)

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """xi = sup over orders a of (D_a - a rho), to 1e-3 of itself and never below it.

        Chords of the convex K on a grid that closes in on the supremum. Never above the published
        xi, returned as it is for alpha / gamma outside [1e-6, 1e6] or shift / gamma outside
        [1e-12, 1e6].
        """
        a, d = self._ratios(shift)
        published, search = self._offsets(a, d)
        published = round_up(published, 4)
        usual = (a >= _RATIOS[0]) & (a <= _RATIOS[1]) & (d >= _SHIFTS[0]) & (d <= _SHIFTS[1])
        a, safe = xp.where(usual, a, 1.0), xp.where(usual, d, 1.0)
        first = 1e-4 / (1.0 + safe * (a + safe))

        def cumulant(s: Reals) -> Reals:
            a_wide, d_wide = (xp.broadcast_to(x[None], s.shape) for x in (a, safe))
            return s * self._unit_divergence(a_wide, d_wide, s)

        found = least_offset(cumulant, 0.5 * safe * safe, first, *search(a, safe))
        xi = xp.where(usual, xp.minimum(found, published), published)
        xi = xp.where((d == 0) | (d == xp.inf), 0.0, xi)
        rho = lifted(round_up(0.5 * d * d, 4), d > 0)
        return xp.where(xp.isnan(d), xp.nan, xi), rho


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
    """An upper bound on log delta(epsilon). `none` marks entries without a shift."""
    t = at.sides()
    sides = t._replace(below=t.below & ~none, excess=xp.where(none, 0.0, t.excess))
    upper = upper_log_delta(sides, epsilon, _VALUE_ULPS, _EXPONENT_ULPS)
    zero = (none & (epsilon >= 0)) | (epsilon == xp.inf)
    return xp.where(zero & ~xp.isnan(upper), -xp.inf, upper)


def slopes_at(at: Crossing, epsilon: Reals, out: Reals) -> tuple[Reals, Reals]:
    """Slopes of log delta, `out`, in shift and epsilon; u is fixed, as delta is stationary in u."""
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
