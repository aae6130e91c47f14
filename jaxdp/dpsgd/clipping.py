"""Sums of clipped gradients, exact: norms in float64, entries truncated to multiples.

A gradient is measured in units of its group's threshold and multiplied by min(1, 1 / norm), less a
margin for the rounding of the norm. Its entries are truncated towards 0 to multiples of 2^-30 of
the threshold. They are added up as whole numbers: the sum is exact, in any order. Gradients keep
their type until then, so that nothing of their size is written in float64.

The gradient of a matrix that multiplies one vector of activations is the outer product of this
vector and a cotangent. Its norm is the product of theirs, and it is never written to memory.
Source: Goodfellow, Efficient per-example gradient computations, 2015.

The gradient of a matrix whose rows are looked up is 0 in all other rows. Cotangents of equal places
are added up first, once: what is measured is what is truncated.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Bools, Reals, Shape, Vector
from jaxdp._numeric.elementary import ULP
from jaxdp.dpsgd.adaptive_clipping import count_below
from jaxdp.dpsgd.correlated_noise import COEFFICIENT_BITS
from jaxdp.dpsgd.training_plan import Plan
from jaxdp.solvers.lattice import power_of_two

# Bits of a clipped entry below its threshold. derived: an entry is below 2^31 multiples, as a
# threshold is below twice a power of two, and 2^22 such entries add up exactly in float64
BITS = 30
# Examples that a CPU adds up at a time. measured: 1 takes twice as long where sums leave the cache,
# all of them 3 to 10 times
_ROWS = 4
# Roundings of a norm and of a factor, beside the sum of squares. derived: fewer, with the products
_ROUNDINGS = 16.0


class Outer(NamedTuple):
    """The gradients of a matrix, one an example: column times row."""

    column: Reals  # (examples, rows of the matrix)
    row: Reals  # (examples, columns of the matrix)


class Rows(NamedTuple):
    """The gradients of a matrix whose rows were looked up, one an example: values at places."""

    places: jax.Array  # (examples, look-ups), whole numbers below the matrix' number of rows
    values: Reals  # (examples, look-ups, columns of the matrix)


Gradient: TypeAlias = jax.Array | Outer | Rows


def clipped_sums(plan: Plan, gradients: list[Any], mask: Bools | None = None) -> list[Reals]:
    """The sum of the clipped gradients of each leaf, of the examples that the mask takes.

    The counts of `adaptive_clipping`, one a group, come last if the plan has a quantile. One
    program serves plans that differ in what a sum does not depend on.
    """
    # Products with coefficients have as many bits as sums have without them.
    bits = BITS - (COEFFICIENT_BITS if len(plan.column) > 1 else 0)
    layout = plan.members, plan.sizes, plan.shapes, bits, plan.clip_quantile is not None
    return _sums(plan.clips, gradients, mask, layout)


@functools.partial(jax.jit, static_argnums=3)
def _sums(
    clips: Vector, gradients: list[Gradient], mask: Bools | None, layout: tuple[Any, ...]
) -> list[Reals]:
    members, sizes, shapes, bits, has_counts = layout
    scales = [1.0 / clips[group] for group in members]
    gradients = [_in_thresholds(*pair) for pair in zip(gradients, scales, strict=True)]
    squares: list[Any] = [0.0] * len(sizes)
    for gradient, scale, group in zip(gradients, scales, members, strict=True):
        squares[group] += _squares(gradient, scale)
    units = power_of_two(clips, -bits)
    weights, counts = [], []
    for square, size, clip, unit in zip(squares, sizes, clips, units, strict=True):
        # Less by more than the rounding of a sum of `size` squares, its root and quotients.
        margin = 1.0 - (size + _ROUNDINGS) * ULP
        factor = jnp.minimum(1.0, margin / jnp.sqrt(square))
        taken = jnp.isfinite(square) if mask is None else jnp.isfinite(square) & mask
        weights.append(jnp.where(taken, factor * (clip / unit), 0.0))
        counts.append(count_below(square, taken))
    sums = [
        _sum_of_multiples(gradient, scale, weights[group], shape) * units[group]
        for gradient, scale, group, shape in zip(gradients, scales, members, shapes, strict=True)
    ]
    return [*sums, jnp.stack(counts)] if has_counts else sums


def _in_thresholds(gradient: Gradient, scale: Reals) -> Gradient:
    """Factors in units of the threshold, whose products do not under- or overflow near it.

    Other gradients are multiplied by `scale` where they are read; rows of equal places are added.
    """
    if isinstance(gradient, Rows):
        return jax.vmap(_added_up)(*gradient)
    if not isinstance(gradient, Outer):
        return gradient
    column, row = gradient.column.astype(jnp.float64), gradient.row.astype(jnp.float64)
    largest = jnp.max(jnp.abs(column), axis=1, keepdims=True, initial=0.0)
    return Outer(column / jnp.where(largest == 0, 1.0, largest), row * largest * scale)


def _added_up(places: jax.Array, values: Reals) -> Rows:
    """The rows of one example, in float64, those of equal places as one; the others are 0."""
    order = jnp.argsort(places)
    places, values = places[order], values[order].astype(jnp.float64)
    is_new = jnp.diff(places, prepend=-1) != 0
    first = lax.cummax(jnp.where(is_new, jnp.arange(places.size), 0))
    return Rows(places, jnp.zeros_like(values).at[first].add(values))


def _squares(gradient: Gradient, scale: Reals) -> Reals:
    """Squared norms in units of the threshold, (examples,)."""
    if isinstance(gradient, Rows):
        return jnp.sum((gradient.values * scale) ** 2, axis=(1, 2))
    if isinstance(gradient, Outer):
        return jnp.sum(gradient.column**2, axis=1) * jnp.sum(gradient.row**2, axis=1)

    def square(*examples: Reals) -> Reals:
        # Sums of several examples in one loop: an addition waits for the one before it.
        squares = [(x.astype(jnp.float64) * scale) ** 2 for x in examples]
        zeros = [np.float64(0.0)] * len(squares)
        return jnp.stack(lax.reduce(squares, zeros, _add, range(gradient.ndim - 1)))

    if not _is_on_cpu():
        return jax.vmap(square)(gradient).reshape(-1)
    return lax.map(lambda part: square(*part), _in_parts(gradient)).reshape(-1)


def _add(x: Any, y: Any) -> Any:
    return jax.tree.map(jnp.add, x, y)


def _is_on_cpu() -> bool:
    """True where sums must stay in the cache; an accelerator has memory for all examples."""
    return jax.default_backend() == "cpu"


def _sum_of_multiples(gradient: Gradient, scale: Reals, weights: Reals, shape: Shape) -> Reals:
    """The sum of gradients times weights, truncated, in units; those of weight 0 may be any."""
    if isinstance(gradient, Rows):
        rows = _truncated(gradient.values, scale, weights).reshape(-1, shape[1])
        total = jnp.zeros(shape, jnp.int64).at[gradient.places.reshape(-1)].add(rows)
        return total.astype(jnp.float64)
    if not _is_on_cpu():
        return _truncated(gradient, scale, weights).sum(axis=0).astype(jnp.float64)

    def add(total: Any, part: Any) -> tuple[Any, None]:
        gradient, weights = part
        return total + _truncated(gradient, scale, weights).sum(axis=0), None

    return lax.scan(add, jnp.zeros(shape, jnp.int64), _in_parts((gradient, weights)))[0].astype(
        jnp.float64
    )


def _in_parts(tree: Any) -> Any:
    """Arrays of examples with a first axis of parts of up to `_ROWS` examples."""
    count = len(jax.tree.leaves(tree)[0])
    rows = math.gcd(count, _ROWS)
    return jax.tree.map(lambda x: x.reshape(count // rows, rows, *x.shape[1:]), tree)


def _truncated(gradient: jax.Array | Outer, scale: Reals, weights: Reals) -> jax.Array:
    """Gradients times weights as whole numbers, (examples, *shape of the leaf).

    The margin of the weights keeps each entry, with its roundings, below clip / unit < 2^31.
    """

    def weighted(x: Reals) -> Reals:
        w = by_example(weights, x)
        return jnp.where(w > 0, x, 0.0) * w

    if isinstance(gradient, Outer):
        column = jnp.where(by_example(weights, gradient.column) > 0, gradient.column, 0.0)
        entries = column[:, :, None] * weighted(gradient.row)[:, None, :]
    else:
        entries = weighted(gradient.astype(jnp.float64) * scale)
    # XLA adds whole numbers as vectors on a CPU, floating-point numbers one by one.
    return entries.astype(jnp.int32).astype(jnp.int64)


def by_example(values: jax.Array, leaf: jax.Array) -> jax.Array:
    """One value an example, broadcast over the rest of `leaf`."""
    return values.reshape(-1, *(1,) * (leaf.ndim - 1))
