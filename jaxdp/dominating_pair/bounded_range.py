"""Renyi divergences of a bounded range: mechanisms whose losses differ by `bound` at most.

Identity: at a fixed t the worst loss in [t - bound, t] has the two values t and t - bound, since
e^(s L) is convex in e^-L, whose mean is 1. The largest of its cumulants over t is, in closed form,

    K(s) = (s + 1) l((s + 1) x) - s l(s x) - l(x), l(y) = log(sinh(y) / y), x = bound / 2.

K(s) is the integral of f''(u + v) over u in [0, s] and v in [0, 1], f(y) = y l(x y). f''(y) / y
falls, because l' is concave and l'' falls. So the divergence over its order falls as well, starting
from order 1, where it is l(x) + x coth(x) - 1 <= bound^2 / 8. These divergences compose adaptively
at every order, for any choice of t.

Sources: proofs ours; bound^2 / 8 from Cesar & Rogers, ALT 2021.
"""

from __future__ import annotations

import math

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, horner, lifted, log1mexp, log1p, round_up, sinhc_excess

# Taylor coefficients of (y cosh(y) - sinh(y)) / y^3 in y^2. derived
_SLOPE = tuple(2.0 * k / math.factorial(2 * k + 1) for k in range(1, 16))
_NEAR = 2.0  # largest |y| of the series. derived: the 16th term is below an ulp


@jitted
def cumulant_of_range(bound: Reals, s: Reals) -> Reals:
    """K(s), s >= 0, rounded up by at most 1e-14 max(s, 1 / s) of it, and 1e-7 where s < 1.

    K(s) is at most s (s + 1) `rho_of_range` and at most s bound; NaN where the bound is bad.
    """
    bound, s = xp.broadcast_arrays(checks.guard(bound), s)
    endless = xp.isinf(bound)
    x = xp.where(endless, 0.5, 0.5 * bound)
    grown = (s + 1.0) * _log_sinhc((s + 1.0) * x)
    value = grown - s * _log_sinhc(s * x) - _log_sinhc(x) + 16.0 * ULP * grown
    limit = xp.minimum(s * ((s + 1.0) * rho_of_range(bound)), s * bound)
    value = xp.minimum(xp.where(xp.isfinite(grown), value, xp.inf), round_up(limit, 4))
    return xp.where(endless, xp.where(s == 0, 0.0, xp.inf), value)


@jitted
def renyi_of_range(bound: Reals, order: Reals) -> Reals:
    """Renyi divergence of an order >= 1: `rho_of_range` at 1, and the bound at infinity."""
    bound, order = xp.broadcast_arrays(checks.guard(bound), order)
    inside = (order > 1) & (order < xp.inf)
    s = xp.where(inside, order - 1.0, 1.0)
    value = xp.where(inside, cumulant_of_range(bound, s) / s, bound)
    value = xp.where(order == 1, rho_of_range(bound), value)
    return lifted(xp.where(xp.isnan(order), xp.nan, value), bound > 0)


@jitted
def rho_of_range(bound: Reals) -> Reals:
    """l(x) + x coth(x) - 1, x = bound / 2: the least rho of zCDP with xi = 0, rounded up."""
    bound = checks.guard(bound)
    x = xp.where(xp.isinf(bound), 1.0, 0.5 * bound)
    near = x <= _NEAR
    low, high = xp.where(near, x, 0.0), xp.where(near, 1.0, x)
    square = low * low
    slope = square * horner(_SLOPE, square) / (1.0 + sinhc_excess(low))
    slope = xp.where(near, slope, high * (1.0 + 2.0 / xp.expm1(2.0 * high)) - 1.0)
    rho = lifted(round_up(_log_sinhc(x) + slope, 16), bound > 0)
    return xp.where(xp.isinf(bound), xp.inf, rho)


def _log_sinhc(y: Reals) -> Reals:
    """log(sinh(y) / y), y >= 0. Relative error: 8 ulp."""
    near = y <= _NEAR
    low, high = xp.where(near, y, 0.0), xp.where(near, _NEAR, y)
    far = high + log1mexp(2.0 * high) - xp.log(2.0 * high)
    return xp.where(near, log1p(sinhc_excess(low)), far)
