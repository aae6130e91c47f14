"""log delta of the offset-symmetric Gaussian: two regimes, every term positive.

In units of the scale, h = offset / scale, D = shift / scale, E = |epsilon|: the density is
g(t) = exp(-|t| (|t| + 2 h) / 2) / (2 R(h)), H(t) = R(h + t), R the Mills ratio; the loss exceeds E
beyond u, see `monotone_loss`. With n = D^2 / 2 + h D - E, which carries 32 digits, u = -n / D where
n <= 0 and u = -n / (D + 2 h) where n > 0.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import custom_jvp, xp
from jaxdp._core.types import Reals
from jaxdp._numeric import double_double as dd
from jaxdp._numeric.mills import mills_pair
from jaxdp.noise.kernels.monotone_loss import (
    LARGEST_EPSILON,
    LARGEST_RATIO,
    LARGEST_SHIFT,
    TINY,
    Crossing,
    log_delta_at,
    slopes_at,
)


class Point(NamedTuple):
    """Parameters as given, for exact differences, and their ratios.

    Derivatives are taken in the ratios and epsilon alone.
    """

    offset: Reals
    scale: Reals
    shift: Reals
    h: Reals  # offset / scale
    d: Reals  # shift / scale
    epsilon: Reals


class _Terms(NamedTuple):
    crossing: Crossing
    by_offset: Reals  # (d delta / d h) / g(u)


def _terms(at: Point) -> _Terms:
    none = at.d == 0
    h = xp.where(at.h <= LARGEST_RATIO, at.h, xp.nan)
    d = xp.where(none, 1.0, xp.minimum(at.d, LARGEST_SHIFT))
    size = xp.minimum(xp.abs(at.epsilon), xp.minimum(LARGEST_EPSILON, LARGEST_SHIFT * d))
    shift = xp.where(none, at.scale, xp.where(at.d > LARGEST_SHIFT, xp.inf, at.shift))
    step = dd.quotient(shift, at.scale, d)
    half_square = dd.scaled(dd.product(step, step), 0.5)
    ratio = dd.quotient(at.offset, at.scale, h)
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
def log_delta(at: Point) -> Reals:
    """`OffsetGaussian.log_delta` for arrays of one shape."""
    return log_delta_at(_terms(at).crossing, at.epsilon, at.d == 0)


@log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """See `slopes_at`."""
    (at,), (tangent,) = primals, tangents
    out, t = log_delta(at), _terms(at)
    by_shift, by_epsilon = slopes_at(t.crossing, at.epsilon, out)
    slopes = by_shift * (t.by_offset * tangent.h + tangent.d)
    return out, slopes + by_epsilon * tangent.epsilon
