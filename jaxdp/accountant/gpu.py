"""Bounds of traced lanes in a program for a GPU: one engine on the device, the host for the rest.

The engine is the profile of one noise, or the long sum of sampled Gaussians. Lanes whose
brackets stay wide go to the host in packs of a fixed size, in a loop that ends at once where there
are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Lanes
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.divergences import is_bad
from jaxdp.accountant.steps import (
    LogBounds,
    Query,
    Step,
    directed,
    goes_on,
    tighter,
    unknown,
    worse,
)

# Lanes evaluated side by side by the device. chosen: as many long sums fill 2 GiB
_PACK = 1024
# Lanes that the host answers in one call. chosen: as many take its cores some 100 ms
_ON_HOST = 64
# Widest bracket that the host need not narrow. chosen: the width above which its next engines run
_CLOSE = 1e-6

# Maps leaves of lanes to bounds, and to slopes in the leaves that move.
Host: TypeAlias = Callable[[list[Any]], list[Any]]


class _Result(NamedTuple):
    """Bounds (lanes,), and slopes of the upper ones in all numbers of the lanes, or None."""

    bounds: LogBounds
    slopes: Any


def answered(
    query: Query,
    host: Host,
    is_helped: bool,
    moving: tuple[bool, ...],
    lanes: tuple[Terms, Lanes],
) -> list[Any]:
    """Bounds of every lane, and slopes of the upper ones in the leaves that move.

    If not `is_helped`, the host does not narrow wide brackets; their ends are bounds all the same.
    """
    steps = query.on_gpu(lanes[0]) if query.on_gpu else ()
    leaves, structure = jax.tree.flatten(lanes)
    # A profile answers the lanes of one release alone, and plain Gaussians are one.
    is_exact = all(map(is_gaussian, lanes[0]))
    if not steps or not (is_helped or is_exact or steps[0].row.engine == "mixtures"):
        return host(leaves)
    (step,) = steps
    lines = directed(*lanes, query.both)
    slopes = jax.tree.map(xp.zeros_like, lines) if any(moving) else None
    result = _Result(unknown(lines[1]), slopes)
    if step.row.engine == "profile":
        result = _evaluated(step, step.row.levels[0], lines, result)
    else:
        result = _in_packs(query, step, lines, result)
    bounds = worse(result.bounds, query.directions)
    # An engine may read a part of the parameters alone.
    upper = xp.where(is_bad(lanes[0]) | xp.isnan(lanes[1]), xp.nan, bounds.upper)
    answer: list[Any] = [xp.minimum(bounds.lower, upper), upper]
    if any(moving):
        by_leaf = _undirected(query, result, leaves, structure)
        answer = [*answer, *(x for x, moves in zip(by_leaf, moving, strict=True) if moves)]
    if is_exact or not is_helped:
        return answer
    return _by_host(host, query.width(bounds) > _CLOSE, leaves, answer)


def _undirected(query: Query, result: _Result, leaves: list[Any], structure: Any) -> list[Any]:
    """Slopes of the worse direction in the leaves."""
    by_direction = result.bounds.upper.reshape(query.directions, -1)
    worst = xp.argmax(by_direction, axis=0)[None] == xp.arange(query.directions)[:, None]
    slopes = jax.tree.map(lambda s: _where(worst.ravel(), s, 0.0), result.slopes)
    _, back = jax.vjp(
        lambda x: directed(*jax.tree.unflatten(structure, x), both=query.both), leaves
    )
    return back(slopes)[0]


def _by_host(host: Host, is_wide: Bools, leaves: list[Any], answer: list[Any]) -> list[Any]:
    """The answer, in wide lanes the host's."""
    size = is_wide.shape[0]
    pack = min(_ON_HOST, size)

    def go_on(state: tuple[list[Any], Bools]) -> tuple[list[Any], Bools]:
        answer, left = state
        at = xp.nonzero(left, size=pack, fill_value=size)[0]
        picked = [x[xp.minimum(at, size - 1)] for x in leaves]
        picked[-1] = xp.where(at < size, picked[-1], xp.nan)  # no lane: the host skips NaN
        found = host(picked)
        merged = [x.at[at].set(y, mode="drop") for x, y in zip(answer, found, strict=True)]
        return merged, left.at[at].set(False, mode="drop")

    return lax.while_loop(lambda state: xp.any(state[1]), go_on, (answer, is_wide))[0]


def _in_packs(query: Query, step: Step, lines: Any, result: _Result) -> _Result:
    """The step's bounds for lanes that are wide, one pack and level of effort at a time."""
    size, levels = lines[1].shape[0], xp.asarray(step.row.levels)
    pack = min(_PACK, size)

    def candidates(state: tuple[_Result, Any]) -> Bools:
        """Wide lanes with a level left, in the worse direction first."""
        result, following = state
        masks = goes_on(step, query.width, result.bounds, query.directions)
        first, others = (x & (following < len(step.row.levels)) for x in masks)
        has_first = xp.any(first.reshape(query.directions, -1), axis=0)
        return xp.where(xp.tile(has_first, query.directions), first, others)

    def go_on(state: tuple[_Result, Any]) -> tuple[_Result, Any]:
        result, following = state
        is_wide = candidates(state)
        least = xp.min(xp.where(is_wide, following, len(step.row.levels)))
        at = xp.nonzero(is_wide & (following == least), size=pack, fill_value=size)[0]
        lanes = xp.minimum(at, size - 1)
        picked, before = jax.tree.map(lambda x: x[lanes], (lines, result))
        better = _evaluated(step, levels[least], picked, before)
        result = jax.tree.map(lambda x, y: x.at[at].set(y, mode="drop"), result, better)
        return result, following.at[at].add(1, mode="drop")

    start = result, xp.zeros(size, xp.int32)
    return lax.while_loop(lambda state: xp.any(candidates(state)), go_on, start)[0]


def _evaluated(step: Step, level: Any, lines: Any, result: _Result) -> _Result:
    """The tighter of the bounds before and the step's bounds; lanes are independent."""
    tangents, before = step.engine.tangents, result.bounds
    assert tangents is not None
    found, of_arrays = tangents.solve(tangents.arrays(Batch(*lines), before), level)
    bounds = tighter(before, found)
    if result.slopes is None:
        return _Result(bounds, None)

    def upper(lines: Any) -> Any:
        return xp.sum(tangents.moved(tangents.arrays(Batch(*lines), before), of_arrays))

    is_new = bounds.upper != before.upper
    slopes = jax.grad(upper)(lines)
    return _Result(bounds, jax.tree.map(lambda x, y: _where(is_new, y, x), result.slopes, slopes))


def _where(chosen: Bools, x: Any, y: Any) -> Any:
    return xp.where(chosen.reshape(-1, *[1] * (x.ndim - 1)), x, y)
