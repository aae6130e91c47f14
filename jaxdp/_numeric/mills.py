"""The Mills ratio of the normal law and its differences, to full relative accuracy.

R(t) = Q(t) / phi(t) = sqrt(pi/2) exp(t^2/2) erfc(t / sqrt 2), Q the upper tail, phi the density. On
[0, inf] it is one polynomial: (t + 5) R(t) = H(y), y = (t - 5) / (t + 5) in [-1, 1]. The mapping
follows Shepherd & Laframboise, Math. Comp. 36, 1981. The coefficients are our Chebyshev
interpolation at 80 digits, degree 24, remainder 7e-18 of values in [1, 6.3]. One polynomial has
exact divided differences, so R(a) - R(b) never subtracts two close numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, horner, log1m

# Shift in t / (t + shift), which maps [0, inf] to a bounded interval. chosen: degree 24 suffices
_SHIFT = 5.0
# Coefficients of H, the lowest power first. derived: interpolation at 80 digits
_H = (
    1.9280810471531578,
    -1.66786659518896,
    1.2415470615738664,
    -0.7859110755465453,
    0.4136447157326838,
    -0.17325473408715042,
    0.0521255024122788,
    -0.007503282820678759,
    -0.001999961974984366,
    0.0013658591609424361,
    -0.00014883305232339802,
    -0.00012473565818721082,
    4.181458586632463e-05,
    9.974780085542733e-06,
    -6.945033138491628e-06,
    -8.360675980181407e-07,
    1.0936633523593942e-06,
    9.668428357216325e-08,
    -1.7641239689771904e-07,
    -1.7398124277679196e-08,
    2.8172011975443032e-08,
    3.1868668438665133e-09,
    -3.84418406496492e-09,
    -3.336850487923168e-10,
    3.1256054471604125e-10,
)


class MillsPair(NamedTuple):
    """R at both ends of [lower, lower + width], and R(lower) - R(lower + width)."""

    lower: Reals
    upper: Reals
    difference: Reals


def _value_and_slope(u_lower: Reals, u_upper: Reals) -> tuple[Reals, Reals]:
    """H at the upper of two places y = 1 - 10 u, and its divided difference over both."""
    y_lower, y_upper = (1.0 - 2.0 * _SHIFT * u for u in (u_lower, u_upper))
    value, slope = xp.full_like(y_upper, _H[-1]), xp.zeros_like(y_upper)
    for coefficient in _H[-2::-1]:
        slope = slope * y_lower + value
        value = value * y_upper + coefficient
    return value, slope


def mills_pair(lower: Reals, width: Reals) -> MillsPair:
    """The Mills ratio at `lower` >= 0 and `lower + width`, and the (non-negative) difference.

    `width` >= 0 is a separate argument, so the difference keeps full relative accuracy as width ->
    0. Relative error of all three: 8e-15 measured, for lower, width in [1e-12, 1e6].
    """
    u_lower = 1.0 / (lower + _SHIFT)
    u_upper = 1.0 / (lower + width + _SHIFT)
    value, slope = _value_and_slope(u_lower, u_upper)
    upper = u_upper * value
    difference = width * u_lower * u_upper * (value - 2.0 * _SHIFT * u_lower * slope)
    return MillsPair(upper + difference, upper, difference)


def mills(t: Reals) -> Reals:
    """R(t) for t >= 0. Relative error: 4e-15 measured."""
    u = 1.0 / (t + _SHIFT)
    return u * horner(_H, 1.0 - 2.0 * _SHIFT * u)


def mills_slope(t: Reals) -> tuple[Reals, Reals]:
    """R(t) and S(t) = 1 - t R(t) = -R'(t) for t >= 0. Relative error of both: 8e-15 measured."""
    u = 1.0 / (t + _SHIFT)
    value, slope = _value_and_slope(u, u)
    return u * value, u * u * (value - 2.0 * _SHIFT * u * slope)


def log_normal_survival(x: Reals) -> Reals:
    """log Q(x), accurate in both tails. Relative error: 4e-15 + x^2 ulp."""
    p = xp.abs(x)
    log_density = -0.5 * p * p - LOG_SQRT_2PI
    ratio = mills(p)
    return xp.where(x > 0, log_density + xp.log(ratio), log1m(xp.exp(log_density) * ratio))
