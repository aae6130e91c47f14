"""Roots and minima on a bracket, in a fixed number of steps, ending on the safe side."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from jaxdp._types import Index, Reals

_BISECTIONS = 64
_GOLDEN = 0.6180339887498949
_GOLDEN_STEPS = 60


def last_feasible(
    residual: Callable[[Reals], Reals],
    safe: Reals,
    unsafe: Reals,
    slack: Reals,
    otherwise: float = jnp.inf,
) -> Reals:
    """The x nearest to `unsafe`, from `safe`, with residual(x) <= 0, elementwise; both ends > 0.

    `residual` is monotone, falling towards `safe`; the arrays have one shape. 64 geometric
    bisections keep an end with residual <= -slack, which is returned once residual <= 0 has been
    checked anew: `slack` covers the rounding by which two compilations of `residual` differ. The
    result is `unsafe` where that is feasible and `otherwise` where `safe` is not, NaN residuals
    included. The derivative is the root's, by the implicit function theorem; 0 at a clamped end.
    """

    def solve(function: Callable[[Reals], Reals], start: Reals) -> Reals:
        def halve(_: Index, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
            good, bad = ends
            middle = jnp.sqrt(good) * jnp.sqrt(bad)
            passes = function(middle) <= -slack
            return jnp.where(passes, middle, good), jnp.where(passes, bad, middle)

        found = lax.fori_loop(0, _BISECTIONS, halve, (start, unsafe))[0]
        return jnp.where(function(found) <= 0, found, otherwise)

    def slope_solve(linear: Callable[[Reals], Reals], value: Reals) -> Reals:
        slope = linear(jnp.ones_like(value))
        return value / jnp.where(jnp.isfinite(slope) & (slope != 0), slope, jnp.inf)

    root = lax.custom_root(residual, safe, solve, slope_solve)
    return jnp.where(residual(unsafe) <= 0, unsafe, root)


def least_value(function: Callable[[Reals], Reals], lower: Reals, upper: Reals) -> Reals:
    """The least of a unimodal `function` over [lower, upper] (0 < lower), elementwise.

    Golden section in log x, 60 steps: the argument to 3e-13 log(upper / lower), the value to
    the square of that. Every value looked at is one of the function's, so the result is never
    below the true minimum.
    """

    def shrink(_: Index, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        low, high, best = state
        width = _GOLDEN * (high - low)
        left, right = function(jnp.exp(high - width)), function(jnp.exp(low + width))
        keep_left = left <= right
        best = jnp.minimum(best, jnp.minimum(left, right))
        return (
            jnp.where(keep_left, low, high - width),
            jnp.where(keep_left, low + width, high),
            best,
        )

    best = jnp.minimum(function(lower), function(upper))
    return lax.fori_loop(0, _GOLDEN_STEPS, shrink, (jnp.log(lower), jnp.log(upper), best))[2]
