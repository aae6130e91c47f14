"""The offset-symmetric Gaussian: two Gaussian tails, moved together.

log delta has two regimes, in which every term is positive. In units of the scale, h = offset /
scale, D = shift / scale, E = |epsilon|: the density is g(t) = exp(-|t| (|t| + 2 h) / 2) / (2 R(h)),
H(t) = R(h + t), R the Mills ratio; the loss exceeds E beyond u, see `gaussian_tails`. With
n = D^2 / 2 + h D - E, which carries 32 digits, u = -n / D where n <= 0 and u = -n / (D + 2 h) where
n > 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import custom_jvp, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric import double_double as dd
from jaxdp._numeric.elementary import ULP, log1m, log1m_near
from jaxdp._numeric.mills import mills, mills_pair
from jaxdp.noise.base import ratio_of
from jaxdp.noise.gaussian_tails import (
    LARGEST,
    TINY,
    Crossing,
    GaussianTails,
    Point,
    log_delta_at,
    slopes_at,
)
from jaxdp.noise.kernels.divergence import divergence
from jaxdp.noise.structure import Kinks, atom_pair

# log of sqrt(2 pi) / 2.
_LOG_HALF_SQRT_2PI = 0.5 * math.log(math.pi / 2.0)
# Steps for a quantile. chosen: its start is near
_NEWTON_STEPS = 5
# t = exp(x - exp(-x)), in units of the mode: doubly exponential decay at both ends.
_POINTS = np.linspace(-4.3, 4.2, 341)
# Their distance.
_STEP = float(_POINTS[1] - _POINTS[0])


@final
@pytree
class OffsetGaussian(GaussianTails):
    """The density phi((|x| + offset) / scale) / (2 scale Q(h)), h = offset / scale.

    Offset-symmetric Gaussian tails: `offset` = 0 is the Gaussian; offset, scale -> inf at a fixed
    scale^2 / offset is the Laplace. `offset` is finite; an infinite `scale` is legal and private.
    Units, bad input: `Noise`.

    The loss has two regimes: met between the two peaks, or past one, for
    epsilon >= shift (shift + 2 offset) / (2 scale^2), where delta is the Gaussian's over 2 Q(h).
    `log_delta` is above the truth by at most 5e-15 of |log delta|; where delta > 1/2 by
    5e-15 + 1e-15 |log(1 - delta)| of it. Parameters count exactly as given. NaN for
    offset / scale > 1e150. zcdp: rho = shift^2 / (2 scale^2), the least possible, and its least xi
    to 1e-3, never above offset shift / scale^2. Relative errors of others: 1e-14, plus
    t (t + 2 h) ulp, of log survival, t = |x| / scale; 1e-13 of a quantile for u >= 1e-300 and of
    moments of a power up to 100. Draws: by inversion of 53 uniform bits and a sign.
    The forms of log delta are ours.
    Source: Sadeghi & Korki, IEEE Trans. Inf. Forensics Secur. 17, 2022.
    """

    offset: Reals
    scale: Reals

    def __init__(self, offset: ArrayLike, scale: ArrayLike):
        offset = checks.zero_or_positive("offset", offset, LARGEST)
        assign(self, offset=offset, scale=checks.positive("scale", scale))

    shapes = (1e-3, 3000.0)
    whole_kind = "offset"

    def _log_density(self, x: Reals) -> Reals:
        """-t (t + 2 h) / 2 - log(2 scale R(h)), t = |x| / scale, R the Mills ratio."""
        h, t = ratio_of(self.offset, self.scale), xp.abs(x) / self.scale
        return -0.5 * t * (t + 2.0 * h) - xp.log(2.0 * mills(h)) - xp.log(self.scale)

    def _log_density_slope(self, x: Reals) -> Reals:
        """-sign(x) (|x| + offset) / scale^2."""
        return -xp.sign(x) * ((xp.abs(x) + self.offset) / self.scale) / self.scale

    def _log_survival(self, x: Reals) -> Reals:
        h, t = ratio_of(self.offset, self.scale), xp.abs(x) / self.scale
        upper = xp.log(mills(h + t) / (2.0 * mills(h))) - 0.5 * t * (t + 2.0 * h)
        return xp.where(x > 0, upper, log1m(xp.minimum(xp.exp(upper), 0.5)))

    def _upper_quantile(self, p: Reals, q: Reals) -> Reals:
        """Newton's method on log P[T > x], convex."""
        return _upper_quantile(self.offset, self.scale, p, q)

    def _absolute_moment(self, power: Reals) -> Reals:
        """scale^p int_0^inf t^p exp(-t (t + 2 h) / 2) dt / R(h), by quadrature."""
        h, n = ratio_of(self.offset, self.scale), power + 1.0
        # By parts, for a power above 0: int t^n (t + h) exp(-t (t + 2 h) / 2) dt / n.
        mode = 2.0 * (n + 1.0) / (h + xp.sqrt(h * h + 4.0 * (n + 1.0)))
        logs = xp.stack([xp.full_like(h, v) for v in _POINTS - np.exp(-_POINTS)])
        slopes = xp.stack([xp.full_like(h, v) for v in _STEP * (1.0 + np.exp(-_POINTS))])
        t = mode[None] * xp.exp(logs)
        powers = (n + 1.0)[None] * logs - 0.5 * t * (t + 2.0 * h[None])
        total = xp.sum(slopes * (t + h[None]) * xp.exp(powers), axis=0)
        return self.scale**power * mode ** (n + 1.0) * total / (n * mills(h))

    def _fisher_information(self) -> Reals:
        """(1 + h / R(h)) / scale^2."""
        h = ratio_of(self.offset, self.scale)
        return (1.0 + h / mills(h)) / self.scale**2

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        return _log_delta(self._point(shift, epsilon))

    def _unit_divergence(self, a: Reals, d: Reals, excess: Reals) -> Reals:
        return divergence(_law, a, d, excess)

    def _offsets(self, a: Reals, d: Reals) -> tuple[Reals, Callable[..., tuple[Reals, ...]]]:
        """xi = offset shift / scale^2. Beyond the grid K(s) - s (s + 1) rho <= -log(2 Q(h))."""

        def search(h: Reals, d: Reals) -> tuple[Reals, Reals]:
            limit = 0.5 * h * h + _LOG_HALF_SQRT_2PI - xp.log(mills(h))
            limit = limit + 8.0 * ULP * (1.0 + h * h)
            last = 8.0 * (1.0 + h) / d
            return last, limit / last

        return a * d, search

    def _singularities(self, shift: Reals) -> Kinks:
        """Kinks without an atom, but for the loss of 0 at a shift of 0."""
        return atom_pair(xp.where(shift == 0, 0.0, xp.nan))


@jitted
def _upper_quantile(offset: Reals, scale: Reals, p: Reals, q: Reals) -> Reals:
    """The x >= 0 with P[T > x] = p, for p = 1/2 - q in [0, 1/2]."""
    offset, scale, p, q = xp.broadcast_arrays(offset, scale, p, q)
    h = ratio_of(offset, scale)
    safe = xp.where(p == 0, 0.5, p)
    goal = xp.where(q < 0.25, -log1m_near(2.0 * xp.minimum(q, 0.25)), -xp.log(2.0 * safe))
    hazard = 1.0 / mills(h)
    # The hazard rises by less than one per unit: the start lies below the root.
    t = 2.0 * goal / (hazard + xp.sqrt(hazard * hazard + 2.0 * goal))
    for _ in range(_NEWTON_STEPS):
        pair = mills_pair(h, t)
        lost = pair.difference / pair.lower
        near = log1m_near(xp.minimum(lost, 0.5))
        ratio = xp.where(lost < 0.5, near, xp.log(pair.upper / pair.lower))
        t = t + (goal - 0.5 * t * (t + 2.0 * h) + ratio) * pair.upper
    return scale * xp.where(p == 0, xp.inf, t)


def _law(h: Reals, d: Reals, t: Reals) -> tuple[Reals, Reals]:
    """log g and the loss in units of the scale, h = offset / scale and d = shift / scale."""
    near, far, span = xp.abs(t), t + d, xp.minimum(2.0 * t + d, d)
    log_density = -0.5 * near * (near + 2.0 * h) - xp.log(2.0 * mills(h))
    return log_density, span * (h + 0.5 * (near + far))


def _terms(at: Point) -> tuple[Crossing, Reals]:
    """Terms at the crossing, and (d delta / d h) / g(u)."""
    h, d, size = at.a, at.d, at.epsilon
    step = dd.quotient(at.shift, at.gamma, d)
    half_square = dd.scaled(dd.product(step, step), 0.5)
    ratio = dd.quotient(at.alpha, at.gamma, h)
    short = dd.total_pair(half_square, dd.product(ratio, step), -size)
    below = short.high > 0
    both = dd.total_pair(step, dd.scaled(ratio, 2.0))
    slope = dd.Double(*(xp.where(below, v, w) for v, w in zip(both, step, strict=True)))
    signed, rounding = dd.divide(short, slope, d > 0)
    near = xp.abs(signed)
    inner = xp.where(below, near, 0.0)
    start = h + near
    centre = mills_pair(h, inner)
    pair = mills_pair(start, xp.where(below, 2.0 * size / both.high, d))
    exponent = 0.5 * near * (near + 2.0 * h) + xp.sign(signed) * (near + h) * rounding
    inside = -xp.expm1(-xp.where(below, exponent, 0.0)) * pair.lower
    crossing = Crossing(
        below=below,
        exponent=exponent,
        kappa=2.0 * centre.lower,
        inside=2.0 * (centre.difference + inside),
        excess=xp.maximum(pair.difference, TINY),
        near_ratio=pair.lower,
        far_ratio=pair.upper,
    )
    # From d log g / d h = E|T| - |t|: 1 / R(h) delta beyond 0, and below it the remainder of 2 /
    # R(h) (R(h) - R(h + |u|)) + ... once the terms of order one have cancelled.
    return crossing, (2.0 * centre.difference + pair.difference) / centre.lower


@custom_jvp
def _log_delta(at: Point) -> Reals:
    """`OffsetGaussian.log_delta` for arrays of one shape."""
    return log_delta_at(_terms(at.cut())[0], at.epsilon, at.d == 0)


@_log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """See `slopes_at`."""
    (at,), (tangent,) = primals, tangents
    out, (crossing, by_offset) = _log_delta(at), _terms(at.cut())
    by_shift, by_epsilon = slopes_at(crossing, at.epsilon, out)
    slopes = by_shift * (by_offset * tangent.a + tangent.d)
    return out, slopes + by_epsilon * tangent.epsilon
