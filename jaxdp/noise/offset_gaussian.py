"""The offset-symmetric Gaussian: two Gaussian tails, moved together.

log delta has two regimes, in which every term is positive. In units of the scale, h = offset /
scale, D = shift / scale, E = |epsilon|: the density is g(t) = exp(-|t| (|t| + 2 h) / 2) / (2 R(h)),
H(t) = R(h + t), R the Mills ratio; the loss exceeds E beyond u, see `kernels.monotone_loss`. With
n = D^2 / 2 + h D - E, which carries 32 digits, u = -n / D where n <= 0 and u = -n / (D + 2 h) where
n > 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import custom_jvp, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric import double_double as dd
from jaxdp._numeric.elementary import ULP, log1m, log1m_near, round_up
from jaxdp._numeric.mills import mills, mills_pair
from jaxdp.noise.base import Noise, drawn_by_inversion, infinite_unless_zero, ratio_of
from jaxdp.noise.kernels.divergence import divergence
from jaxdp.noise.kernels.monotone_loss import (
    TINY,
    Crossing,
    Point,
    least_offset,
    log_delta_at,
    offset_and_rho,
    slopes_at,
)
from jaxdp.noise.structure import Kinks, atom_pair

# The largest offset: the largest double.
_LARGEST = float(np.finfo(np.float64).max)
# log of sqrt(2 pi) / 2.
_LOG_HALF_SQRT_2PI = 0.5 * math.log(math.pi / 2.0)
# Steps for a quantile. chosen: its start is near
_NEWTON_STEPS = 5
# Outside, `zcdp` gives the published bound; its search would over- or underflow.
_RATIOS = (1e-6, 1e6)
_SHIFTS = (1e-12, 1e6)
# t = exp(x - exp(-x)), in units of the mode: doubly exponential decay at both ends.
_POINTS = np.linspace(-4.3, 4.2, 341)
# Their distance.
_STEP = float(_POINTS[1] - _POINTS[0])


@final
@pytree
class OffsetGaussian(Noise):
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
        offset = checks.zero_or_positive("offset", offset, _LARGEST)
        assign(self, offset=offset, scale=checks.positive("scale", scale))

    log_concave = True

    shapes = (1e-3, 3000.0)

    @classmethod
    def _member(cls, shape: Reals, deviation: Reals) -> OffsetGaussian:
        unit = OffsetGaussian(shape * xp.ones_like(shape), xp.ones_like(shape))
        scale = deviation / xp.sqrt(unit.variance())
        return OffsetGaussian(shape * scale, scale)

    def _in_range(self) -> Bools:
        return (self.offset >= 0) & (self.offset <= _LARGEST) & (self.scale > 0)

    def _ratios(self, length: Reals) -> tuple[Reals, Reals]:
        return ratio_of(self.offset, self.scale), ratio_of(length, self.scale)

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

    def _quantile(self, u: Reals) -> Reals:
        """Newton's method on log P[T > x], convex."""
        size = _upper_quantile(self.offset, self.scale, xp.minimum(u, 1.0 - u), xp.abs(0.5 - u))
        return xp.where(u < 0.5, -size, size)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        return drawn_by_inversion(_upper_quantile, (self.offset, self.scale), key, shape)

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

    def _sub_gaussian_proxy(self) -> Reals:
        """scale^2: |T| is below a normal of that variance in the likelihood-ratio order."""
        return self.scale**2

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        point = Point(self.offset, self.scale, shift, *self._ratios(shift), epsilon)
        return _log_delta(point)

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Quadrature: see `kernels.divergence`."""
        return divergence(_law, *self._ratios(shift), excess)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        return infinite_unless_zero(ratio_of(shift, self.scale))

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """xi = sup over orders a of (D_a - a rho), to 1e-3 of itself and never below it.

        Chords of the convex K on a grid that closes in on the supremum, and past it
        K(s) - s (s + 1) rho <= -log(2 Q(h)), as |T + shift| <= |T| + shift. Never above the
        published offset shift / scale^2, returned as it is for offset / scale outside
        [1e-6, 1e6] or shift / scale outside [1e-12, 1e6].
        """
        h, d = self._ratios(shift)
        published = round_up(h * d, 4)
        usual = (h >= _RATIOS[0]) & (h <= _RATIOS[1]) & (d >= _SHIFTS[0]) & (d <= _SHIFTS[1])
        h_safe, d_safe = xp.where(usual, h, 1.0), xp.where(usual, d, 1.0)
        limit = 0.5 * h_safe * h_safe + _LOG_HALF_SQRT_2PI - xp.log(mills(h_safe))
        limit = limit + 8.0 * ULP * (1.0 + h_safe * h_safe)
        first, last = 1e-4 / (1.0 + d_safe * (h_safe + d_safe)), 8.0 * (1.0 + h_safe) / d_safe

        def cumulant(s: Reals) -> Reals:
            return s * divergence(_law, h_safe, xp.broadcast_to(d_safe[None], s.shape), s)

        found = least_offset(cumulant, 0.5 * d_safe * d_safe, first, last, limit / last)
        return offset_and_rho(xp.where(usual, xp.minimum(found, published), published), d)

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


class _Terms(NamedTuple):
    crossing: Crossing
    by_offset: Reals  # (d delta / d h) / g(u)


def _terms(at: Point) -> _Terms:
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
    return _Terms(crossing, (2.0 * centre.difference + pair.difference) / centre.lower)


@custom_jvp
def _log_delta(at: Point) -> Reals:
    """`OffsetGaussian.log_delta` for arrays of one shape."""
    return log_delta_at(_terms(at.cut()).crossing, at.epsilon, at.d == 0)


@_log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """See `slopes_at`."""
    (at,), (tangent,) = primals, tangents
    out, t = _log_delta(at), _terms(at.cut())
    by_shift, by_epsilon = slopes_at(t.crossing, at.epsilon, out)
    slopes = by_shift * (t.by_offset * tangent.a + tangent.d)
    return out, slopes + by_epsilon * tangent.epsilon
