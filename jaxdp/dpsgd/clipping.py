"""Sums of clipped gradients, exact: norms in float64, entries truncated to multiples.

A gradient is measured in units of its group's threshold and multiplied by min(1, 1 / norm), less a
margin for the rounding of the norm. Its entries are truncated towards 0 to multiples of 2^-30 of
the threshold. Sums of such multiples are exact in float64, in any order.

The gradient of a matrix that multiplies one vector of activations is the outer product of this
vector and a cotangent. Its norm is the product of theirs, and it is never written to memory.
Source: Goodfellow, Efficient per-example gradient computations, 2015.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.dpsgd.adaptive_clipping import count_below
from jaxdp.dpsgd.correlated_noise import COEFFICIENT_BITS
from jaxdp.dpsgd.training_plan import Plan
from jaxdp.solvers.lattice import power_of_two

# Bits of a clipped entry below its threshold. derived: 2^22 such entries add up exactly.
BITS = 30
# Examples that a CPU adds up at a time. measured: 1 takes 4 times as long where sums leave the
# cache, 8 no less
_ROWS = 4
# Roundings of a norm and of a factor, beside the sum of squares. derived: fewer, with the products
_ROUNDINGS = 16.0


class Outer(NamedTuple):
    """The gradients of a matrix, one an example: column times row."""

    column: Reals  # (examples, rows of the matrix)
    row: Reals  # (examples, columns of the matrix)


Gradient: TypeAlias = jax.Array | Outer


@jax.jit
def clipped_sums(plan: Plan, gradients: list[Gradient], mask: Bools | None = None) -> list[Reals]:
    """The sum of the clipped gradients of each leaf, of the examples that the mask takes.

    The counts of `adaptive_clipping`, one a group, come last if the plan has a quantile.
    """
    gradients = [
        _in_thresholds(gradient, 1.0 / plan.clips[group])
        for gradient, group in zip(gradients, plan.members, strict=True)
    ]
    squares: list[Any] = [0.0] * len(plan.sizes)
    for gradient, group in zip(gradients, plan.members, strict=True):
        squares[group] += _squares(gradient)
    # Products with coefficients have as many bits as sums have without them.
    units = power_of_two(plan.clips, -BITS + (COEFFICIENT_BITS if len(plan.column) > 1 else 0))
    weights, counts = [], []
    for square, size, clip, unit in zip(squares, plan.sizes, plan.clips, units, strict=True):
        # Less by more than the rounding of a sum of `size` squares, its root and quotients.
        margin = 1.0 - (size + _ROUNDINGS) * ULP
        factor = jnp.minimum(1.0, margin / jnp.sqrt(square))
        taken = jnp.isfinite(square) if mask is None else jnp.isfinite(square) & mask
        weights.append(jnp.where(taken, factor * (clip / unit), 0.0))
        counts.append(count_below(square, taken))
    sums = [
        _sum_of_multiples(gradient, weights[group]) * units[group]
        for gradient, group in zip(gradients, plan.members, strict=True)
    ]
    return sums if plan.clip_quantile is None else [*sums, jnp.stack(counts)]


def _in_thresholds(gradient: Gradient, scale: Reals) -> Gradient:
    """The gradient in units of the threshold: no norm near it under- or overflows."""
    if not isinstance(gradient, Outer):
        return gradient.astype(jnp.float64) * scale
    column, row = gradient.column.astype(jnp.float64), gradient.row.astype(jnp.float64)
    largest = jnp.max(jnp.abs(column), axis=1, keepdims=True, initial=0.0)
    return Outer(column / jnp.where(largest == 0, 1.0, largest), row * largest * scale)


def _squares(gradient: Gradient) -> Reals:
    """Squared norms, (examples,)."""
    if isinstance(gradient, Outer):
        return jnp.sum(gradient.column**2, axis=1) * jnp.sum(gradient.row**2, axis=1)
    return jnp.sum(gradient**2, axis=tuple(range(1, gradient.ndim)))


def _sum_of_multiples(gradient: Gradient, weights: Reals) -> Reals:
    """The sum of truncated gradients times weights; those of weight 0 may be any."""
    # One program on an accelerator, which has memory for it; on a CPU sums stay in the cache.
    if jax.default_backend() != "cpu":
        return _truncated(gradient, weights).sum(axis=0)
    count = len(weights)
    if isinstance(gradient, Outer):
        shape, rows = (gradient.column.shape[1], gradient.row.shape[1]), 1
    else:
        shape, rows = gradient.shape[1:], math.gcd(count, _ROWS)
    parts = jax.tree.map(
        lambda x: x.reshape(count // rows, rows, *x.shape[1:]), (gradient, weights)
    )

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return total + _truncated(*part).sum(axis=0), None

    return lax.scan(add, jnp.zeros(shape), parts)[0]


def _truncated(gradient: Gradient, weights: Reals) -> Reals:
    """Gradients times weights, (examples, *shape of the leaf), truncated."""

    def weighted(x: Reals, w: Reals) -> Reals:
        w = by_example(w, x)
        return jnp.where(w > 0, x, 0.0) * w

    if not isinstance(gradient, Outer):
        return jnp.trunc(weighted(gradient, weights))
    column = jnp.where(by_example(weights, gradient.column) > 0, gradient.column, 0.0)
    return jnp.trunc(column[:, :, None] * weighted(gradient.row, weights)[:, None, :])


def by_example(values: jax.Array, leaf: jax.Array) -> jax.Array:
    """One value an example, broadcast over the rest of `leaf`."""
    return values.reshape(-1, *(1,) * (leaf.ndim - 1))
