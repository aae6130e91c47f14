"""Deltas of what jumps at its edge: e^((l - h) / 2) below an edge h, integrated again and again.

With s = z + 1/2 the transform of (1 - e^-x)_+ is 1 / (s^2 - 1/4), times e^(-x / 2); every factor of
a density e^(l / 2) that ends at an edge adds 1 / s. With x the way from epsilon up to the edge,

    G_k(x) = (1 / 2 pi i) int e^(s x) / ((s^2 - 1/4) s^k) ds,   Re s > 1/2,   0 where x <= 0,

so G_0 = 2 sinh(x / 2), G_1 = 4 (cosh(x / 2) - 1), G_(k+2) = 4 (G_k - x^(k+1) / (k+1)!).
"""

import math

import jax.numpy as jnp

from jaxdp._types import Reals

# Below this way the series does not cancel; it takes so many terms up to there.
_SHORT, _TERMS = 4.0, 14
# e^(-x / 2) x^4 is nothing beyond.
_LONG = 1e3


def above(x: Reals, most: int) -> list[Reals]:
    """e^(-x / 2) G_k(x) for k = 0 ... most. Relative error: 1e-14."""
    inside = jnp.clip(x, 0.0, _LONG)
    short = inside < _SHORT
    low, high = jnp.where(short, inside, 0.0), jnp.where(short, _SHORT, inside)
    fade, square = jnp.exp(-0.5 * high), 0.25 * low * low
    far = [-jnp.expm1(-high), 2.0 * jnp.expm1(-0.5 * high) ** 2]
    for k in range(most - 1):
        far.append(4.0 * (far[k] - fade * high ** (k + 1) / math.factorial(k + 1)))
    near, edge = [], jnp.exp(-0.5 * low)
    for k in range(most + 1):
        edge = edge * low / (k + 1)
        total = jnp.ones_like(low)
        for j in range(_TERMS, 0, -1):
            total = 1.0 + total * square / ((2 * j + k) * (2 * j + k + 1))
        near.append(edge * total)
    return [jnp.where(short, a, b) for a, b in zip(near, far[: most + 1], strict=True)]
