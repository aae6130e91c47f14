"""The least xi with Renyi divergence of every order a > 1 at most xi + a rho."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import lifted, round_up

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
