"""Renyi divergences of the staircase, from the atoms of `staircase_loss`."""

from __future__ import annotations

from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.series import decay_means
from jaxdp.noise.kernels.divergence import log1p_ratio_above
from jaxdp.noise.kernels.staircase_loss import atoms

# Larger exponents see the largest loss alone. chosen: a product with them is finite
_LARGEST_EXPONENT = 1e290


def _run(most: Reals, unit: Reals, s: Reals, by_series: Bools) -> Reals:
    """(1 - b) e^(-s most unit) / s times the sum over q = 0..most of b^q (e^(s j unit) - 1).

    Here j = most - 2 q and b = e^-unit.
    """
    b, drop = xp.exp(-unit), -xp.expm1(-unit)
    tau, half, v = s * unit, 0.5 * unit * (s + 1.0), xp.maximum(most, 0.0)
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
    return xp.where(most < 0, 0.0, xp.where(by_series, series, unit * closed / fall))


def divergence(unit: Reals, sensitivity: Reals, split: Reals, shift: Reals, s: Reals) -> Reals:
    """`Staircase.renyi` of the order 1 + s >= 1; `unit` is its epsilon.

    The atoms at j and -j are taken together, and the largest exponent out, so nothing cancels.
    """
    p = atoms(unit, sensitivity, split, shift)
    b, reach = p.decay, p.whole + xp.where(p.fraction > 0, 1.0, 0.0)

    def pair(j: Reals) -> Reals:
        j = xp.maximum(j, 0.0)
        grown = j * unit * decay_means(s * j * unit)[0] * -xp.expm1(-(s + 1.0) * j * unit)
        return xp.exp(s * (j - reach) * unit) * grown

    def run(most: Reals) -> Reals:
        by_series = 0.5 * (s + 1.0) * most * unit < 0.02
        return xp.exp(s * (most - reach) * unit) * _run(most, unit, s, by_series)

    ahead = xp.where(p.fraction > 0, pair(reach), 0.0)
    rate = (b * p.fraction + p.drop * p.ahead) * ahead
    rate = rate + (
        (b * p.rest + p.drop * p.level) * pair(p.whole) + p.drop * p.behind * pair(p.whole - 1.0)
    )
    rate = rate + b * (p.part * run(p.most) + p.other * run(xp.maximum(p.most - 1.0, -1.0)))
    top = s * reach * unit
    endless = ~(top < _LARGEST_EXPONENT)
    value = log1p_ratio_above(rate / p.norm, xp.where(endless, 0.0, top), s)
    value = xp.where(endless, reach * unit, value)
    return xp.where(p.infinite & (unit > 0) & (split > 0), xp.inf, value)
