"""log delta of a symmetric law whose loss grows, from where it crosses |epsilon|.

With g the density, the loss exceeds |epsilon| beyond u, v = u + shift, H(t) = P[T > t] / g(t):

    delta     = g(u) (H(u) - H(v))                       u >= 0
    delta     = P[|T| <= |u|] + g(u) (H(|u|) - H(v))     u < 0
    1 - delta = g(u) (H(|u|) + H(v))                     u < 0

because g(u) = e^|epsilon| g(v): no two close numbers are subtracted once H(|u|) - H(v) is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, log1m_near

# Measured: rounding moves log delta by up to 5 ulp, and by 2 ulp of the exponent.
_VALUE_ULPS = 10.0
_EXPONENT_ULPS = 2.5
# The least finite log delta. chosen: rounding it up does not overflow
_LEAST = -1e307
# The least normal double.
TINY = float(np.finfo(np.float64).tiny)
# Beyond, squares overflow: epsilon is cut (delta falls in it), to as many shifts in units of the
# scale too, then these, where delta is 1 by then; a parameter's ratio to the scale gives NaN.
LARGEST_EPSILON = 1e305
LARGEST_SHIFT = 1e153
LARGEST_RATIO = 1e150


class Crossing(NamedTuple):
    """Terms at the crossing of |epsilon|, in units where g(t) = exp(-rho(t)) / kappa."""

    below: Bools  # u < 0
    exponent: Reals  # rho(u)
    kappa: Reals
    inside: Reals  # kappa P[|T| <= |u|] where u < 0, to full relative accuracy if delta < 1/2
    excess: Reals  # H(|u|) - H(v) > 0
    near_ratio: Reals  # H(|u|)
    far_ratio: Reals  # H(v)


def log_delta_at(at: Crossing, epsilon: Reals, none: Bools) -> Reals:
    """An upper bound of log delta(epsilon), by at most 5e-15 of itself; `none`: no shift.

    Where delta > 1/2, by 5e-15 + 1e-15 rho(u).
    """
    below, exponent = at.below & ~none, at.exponent
    backward, size = epsilon < 0, xp.abs(epsilon)
    decay, tail = xp.exp(-size), xp.exp(-exponent)
    excess = xp.where(none, 0.0, at.excess)
    direct = (at.inside + tail * excess) / at.kappa
    direct = xp.where(none, 0.0, direct)
    complement = tail * (at.near_ratio + at.far_ratio) / at.kappa
    complement = xp.where(below, complement, 1.0 - direct)
    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    mixture = -xp.expm1(-size) + decay * direct
    near_one = (below & (complement < 0.5)) | (backward & (mixture > 0.5))
    scale = xp.where(backward | below, 0.0, -exponent - xp.log(at.kappa))
    small = scale + xp.log(xp.where(backward, mixture, xp.where(below, direct, excess)))
    # A delta below exp(-1e307) is not zero: only no shift, or epsilon = inf, gives zero.
    small = xp.where(small < _LEAST, _LEAST, small)
    large = log1m_near(xp.where(backward, decay, 1.0) * complement)
    ulps = xp.where(
        near_one, _VALUE_ULPS + _EXPONENT_ULPS * xp.where(below, exponent, 0.0), _VALUE_ULPS
    )
    value = xp.where(near_one, large, small)
    # A factor: a term added to 1e-300 may be flushed to 0.
    upper = xp.where(value > 0, 0.0, value * (1.0 - ULP * ulps))
    zero = (none & (epsilon >= 0)) | (epsilon == xp.inf)
    return xp.where(zero & ~xp.isnan(upper), -xp.inf, upper)


def slopes_at(at: Crossing, epsilon: Reals, out: Reals) -> tuple[Reals, Reals]:
    """d log delta / d shift and / d epsilon, `out` = log delta: g(u) / delta times (1, -H(v)).

    At fixed u, as delta is stationary in it. Towards epsilon < 0, where delta(-e) is as in
    `log_delta_at`, P[T > -u] / delta takes the place of g(u) H(v) / delta.
    """
    backward, size = epsilon < 0, xp.abs(epsilon)
    forward = ~backward & ~at.below
    log_density = -at.exponent - xp.log(at.kappa)
    log_share = xp.where(forward, 0.0, log_density - xp.where(backward, size, 0.0) - out)
    by_shift = xp.where(forward, 1.0 / at.excess, xp.exp(log_share))
    survival = xp.exp(log_density) * at.near_ratio
    reverse = xp.exp(xp.where(backward, -size - out, 0.0))
    reverse = reverse * xp.where(at.below, survival, 1.0 - survival)
    return by_shift, -xp.where(backward, reverse, by_shift * at.far_ratio)
