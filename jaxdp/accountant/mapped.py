"""Bounds of lanes inside a user's traces, under `vmap` and differentiation.

A mapped batch becomes more lanes. Derivatives are products with slopes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
from jax.custom_derivatives import SymbolicZero

from jaxdp._core.namespace import custom_jvp, xp
from jaxdp._core.types import Reals
from jaxdp.accountant.bounds import LogBounds

# Maps lanes, a tree of arrays (directions * lanes, ...), and a flag for slopes to bounds, and to
# the upper bound's slopes: a tree like the lanes, or None.
Answer: TypeAlias = Callable[[Any, bool], tuple[LogBounds, Any]]


def in_traces(answer: Answer, directions: int, lanes: Any) -> LogBounds:
    """Bounds of all lanes, ordered by direction; `directions` is their number.

    Slopes are computed only for derivatives. Second derivatives raise an error.
    """

    @custom_jvp
    def bounds_of(lanes: Any) -> LogBounds:
        return _mapped(lambda lanes: answer(lanes, False), directions)(lanes)[0]

    def along(primals, tangents):
        bounds, slopes = _mapped(lambda lanes: answer(lanes, True), directions)(*primals)
        parts = jax.tree.leaves(jax.tree.map(_product, slopes, *tangents))
        total = sum(parts, start=xp.zeros_like(bounds.upper))
        return bounds, LogBounds(total, total)

    bounds_of.defjvp(along, symbolic_zeros=True)
    return bounds_of(lanes)


def _product(slope: Reals, tangent: Any) -> Reals:
    """Product of slope and tangent, summed over all axes but the lanes; 0 without a tangent."""
    if isinstance(tangent, SymbolicZero) or tangent.dtype == jax.dtypes.float0:
        return xp.zeros(slope.shape[:1])
    return xp.sum(slope * tangent, axis=tuple(range(1, slope.ndim)))


def _mapped(answer: Callable[[Any], Any], directions: int) -> Callable[[Any], Any]:
    """`answer` with a batching rule that turns a mapped batch into more lanes."""
    mapped = jax.custom_batching.custom_vmap(answer)

    @mapped.def_vmap
    def rule(size: int, in_batched: Any, lanes: Any):
        def merged(x: Reals, is_mapped: bool) -> Reals:
            expanded = x if is_mapped else xp.broadcast_to(x, (size, *x.shape))
            by_direction = expanded.reshape(size, directions, -1, *expanded.shape[2:])
            return xp.moveaxis(by_direction, 1, 0).reshape(-1, *expanded.shape[2:])

        answers = _mapped(answer, directions)(jax.tree.map(merged, lanes, in_batched[0]))

        def parted(x: Reals) -> Reals:
            by_direction = x.reshape(directions, size, -1, *x.shape[1:])
            return xp.moveaxis(by_direction, 0, 1).reshape(size, -1, *x.shape[1:])

        parts = jax.tree.map(parted, answers)
        return parts, jax.tree.map(lambda _: True, parts)

    return mapped
