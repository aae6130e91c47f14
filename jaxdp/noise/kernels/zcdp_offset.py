"""The least xi with Renyi divergence of every order a > 1 at most xi + a rho."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import lifted, round_up

# Intervals of the grid of orders.
_GRID = 256
# Rounds in which the grid closes in on the supremum.
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
    parts = jnp.stack([jnp.full_like(rho[0], v) for v in np.linspace(0.0, 1.0, _GRID + 1)])
    geometric = first * jnp.exp(
        (parts - 1.0 / _GRID) * (jnp.log(last / first) / (1.0 - 1.0 / _GRID))
    )
    first_grid = jnp.where(parts == 0, 0.0, geometric)

    def close_in(_: Index, state: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        s, _ = state
        k = jnp.where(s > 0, cumulant(jnp.where(s > 0, s, 1.0)), 0.0)
        left, right, k_left, k_right = s[:-1], s[1:], k[:-1], k[1:]
        step = jnp.where(right > left, right - left, 1.0)
        slope = (k_right - k_left) / step
        level = k_left - slope * left
        best = jnp.clip(jnp.sqrt(jnp.maximum(-level, 0.0) / rho), left, right)
        weight = (best - left) / step
        chord = (1.0 - weight) * k_left + weight * k_right
        mean = jnp.where(left > 0, chord / jnp.where(best > 0, best, 1.0), slope)
        rounding = _ROUNDING * (mean + (1.0 + best) * rho)
        upper = mean - (1.0 + best) * rho + rounding
        reached = k_right / right - (1.0 + right) * rho - rounding
        candidate = upper >= jnp.max(reached, axis=0, keepdims=True)
        low = jnp.min(jnp.where(candidate, left, jnp.inf), axis=0, keepdims=True)
        high = jnp.max(jnp.where(candidate, right, -jnp.inf), axis=0, keepdims=True)
        root = jnp.sqrt(low)
        return (root + (jnp.sqrt(high) - root) * parts) ** 2, jnp.max(upper, axis=0, keepdims=True)

    _, bound = lax.fori_loop(0, _ROUNDS, close_in, (first_grid, jnp.zeros_like(rho)))
    return jnp.maximum(bound, beyond)[0]


def offset_and_rho(xi: Reals, d: Reals) -> tuple[Reals, Reals]:
    """(xi, rho) for Gaussian tails at d = shift / scale: rho = d^2 / 2, rounded up.

    xi is 0 at no shift, and at an infinite one, whose rho is infinite.
    """
    xi = jnp.where((d == 0) | (d == jnp.inf), 0.0, xi)
    return jnp.where(jnp.isnan(d), jnp.nan, xi), lifted(round_up(0.5 * d * d, 4), d > 0)
