"""A rho with Renyi divergence of every order a > 1 at most a rho, for 1 < power < 2.

The divergence over the order is K(s) / (s (s + 1)), s = order - 1. Three facts bound it between
and beyond the points where K is known:
- K is convex in s: below its chords;
- M = exp(K) is a power series in X = s (s + 1) with non-negative terms: below its chords in X;
- for every l < 1, K(s) <= s U (1 - r)^(1 - p) - log(1 - l) / p, with U = shift^p / p and
  r = (s / (s + l))^(1 / (p - 1)): the largest exponent, after (1 - l) |t|^p / p is set aside.
  Over s (s + l) the first term falls with s.
"""

from __future__ import annotations

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_2, log1p
from jaxdp._numeric.gamma import gamma_excess
from jaxdp.noise.kernels.divergence import divergence

# rho X at the points, about.
_POINTS = np.geomspace(1e-8, 1e4, 120)
# Stands for 0 where a quotient is taken.
_LEAST = 1e-300
# The largest logarithm whose exponential is taken. chosen: no overflow
_LARGEST_LOG = 600.0
# Values of l in the bound beyond the last point, each tried.
_SET_ASIDE = (0.9, 0.99, 0.999, 0.9999)


def law(power: Reals, shift: Reals, t: Reals) -> tuple[Reals, Reals]:
    """log g and the loss at scale 1."""
    beta = (power - 1.0) / power
    log_unit = LOG_2 - beta * xp.log(power) + log1p(gamma_excess(beta))
    near, width = xp.maximum(xp.abs(t), _LEAST), xp.clip(shift + 2.0 * t, 0.0, shift)
    fall = -xp.expm1(-power * xp.log1p(width / near))
    return -(near**power) / power - log_unit, (near + width) ** power * fall / power


def own_divergence(power: Reals, shift: Reals, s: Reals) -> Reals:
    """Renyi divergence of the order 1 + s at scale 1, for arrays of one shape.

    Nodes are graded towards the mode of the tilted density, or to where the density itself falls:
    of a high power both are steep.
    """
    ratio = xp.log1p(1.0 / xp.maximum(s, _LEAST)) / (power - 1.0)
    mode = shift / xp.expm1(xp.minimum(ratio, _LARGEST_LOG))
    return divergence(law, power, shift, s, (xp.maximum(mode, power ** (1.0 / power)),))


def _order(x: Reals) -> Reals:
    """s >= 0 with s (s + 1) = x."""
    return 2.0 * x / (1.0 + xp.sqrt(1.0 + 4.0 * x))


def least_rho(shift: Reals, power: Reals) -> Reals:
    """Upper bound on the zCDP rho at scale 1, 0 < shift < inf.

    It lies 0.4 % above the least such rho near power 2, 2e-6 below 1.9.
    """
    unit = lax.stop_gradient(own_divergence(power, shift, xp.zeros_like(shift)))

    def point(y: Reals) -> tuple[Reals, Reals, Reals]:
        x = y / unit
        s = _order(x)
        return x, s, s * own_divergence(power, shift, s)

    def widen(state: tuple[Reals, ...], y: Reals) -> tuple[tuple[Reals, ...], None]:
        worst, x, s, k = state
        x_next, s_next, k_next = point(y)
        slope = (k_next - k) / (s_next - s)
        drop = xp.maximum(slope * s - k, 0.0)  # the chord is slope s - drop
        top = (drop + xp.sqrt(drop * drop + slope * drop)) / slope
        top = xp.clip(top, s, s_next)
        chord = (slope * top - drop) / (top * (top + 1.0))
        series = xp.maximum(k / x, (k + xp.expm1(k_next - k)) / x_next)
        worst = xp.maximum(worst, xp.minimum(chord, series))
        return (worst, x_next, s_next, k_next), None

    first = point(xp.asarray(_POINTS[0]))
    start = (xp.expm1(first[2]) / first[0], *first)
    worst, _, s, _ = lax.scan(widen, start, xp.asarray(_POINTS[1:]))[0]
    beyond = xp.full_like(shift, xp.inf)
    for part in _SET_ASIDE:
        gap = -xp.expm1(-xp.log1p(part / s) / (power - 1.0))
        bound = shift**power / power * gap ** (1.0 - power) / (s + part)
        beyond = xp.minimum(beyond, bound - np.log1p(-part) / (power * s * (s + 1.0)))
    return xp.maximum(worst, beyond)
