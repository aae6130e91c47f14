"""Runs engines in turn on traced lanes, under `jit`, `vmap` and differentiation.

Wide lanes go in packs of a fixed size, in loops that end when no lane is wide. A mapped batch
becomes more lanes. Derivatives are products with the slopes of the upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.custom_derivatives import SymbolicZero

from jaxdp._core.namespace import custom_jvp, lax, xp
from jaxdp._core.types import Bools, Index, Lanes, Reals
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.bounds import LogBounds, tighter
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.steps import ALWAYS, Step, Width, goes_on, unknown

# Terms and values of traced lanes, arrays (directions * lanes, n) and (directions * lanes,).
Lines: TypeAlias = tuple[Terms, Lanes]
# Maps lanes, a tree of arrays (directions * lanes, ...), and a flag for slopes to bounds, and to
# the upper bound's slopes: a tree like the lanes, or None.
Answer: TypeAlias = Callable[[Any, bool], tuple[LogBounds, Any]]


class _Result(NamedTuple):
    """Bounds (lanes,), and if requested the slopes of the upper ones in the lanes."""

    bounds: LogBounds
    slopes: Any


def answered(steps: tuple[Step, ...], width: Width, directions: int, batch: Batch) -> LogBounds:
    """Bounds of every traced lane of every direction."""
    if len(steps) == 1:
        step = steps[0]
        return step.engine.traced(batch, unknown(batch.values), step.row.levels[0])

    def answer(lines: Lines, with_slopes: bool) -> tuple[LogBounds, Any]:
        slopes = jax.tree.map(xp.zeros_like, lines) if with_slopes else None
        result = _Result(unknown(lines[1]), slopes)
        for index, step in enumerate(steps):
            levels = step.row.levels
            is_for_all = step.row.above == ALWAYS or (index == 0 and len(levels) == 1)
            if step.engine.is_joint:
                result = _one_by_one(step, lines, result, width, directions)
            elif is_for_all:
                result = _evaluated(step, levels[0], lines, result)
            else:
                result = _in_packs(step, lines, result, width, directions)
        return result.bounds, result.slopes

    return in_traces(answer, directions, (batch.terms, batch.values))


def _in_packs(step: Step, lines: Lines, result: _Result, width: Width, directions: int) -> _Result:
    """The step's bounds for lanes that are wide, one pack at a time."""
    size = lines[1].shape[0]
    pack = min(step.engine.pack(), size)

    def at_level(index: Index | int, result: _Result) -> _Result:
        level = xp.asarray(step.row.levels)[index]

        def candidates(state: tuple[_Result, Bools]) -> Bools:
            result, tried = state
            masks = goes_on(step, width, result.bounds, directions)
            first, others = (x & ~tried for x in masks)
            has_first = xp.any(first.reshape(directions, -1), axis=0)
            return xp.where(xp.tile(has_first, directions), first, others)

        def go_on(state: tuple[_Result, Bools]) -> tuple[_Result, Bools]:
            at = xp.nonzero(candidates(state), size=pack, fill_value=size)[0]
            lanes = xp.minimum(at, size - 1)
            picked, before = jax.tree.map(lambda x: x[lanes], (lines, state[0]))
            better = _evaluated(step, level, picked, before)
            merged = jax.tree.map(lambda x, y: x.at[at].set(y, mode="drop"), state[0], better)
            return merged, state[1].at[at].set(True, mode="drop")

        start = result, xp.zeros(size, bool)
        return lax.while_loop(lambda state: xp.any(candidates(state)), go_on, start)[0]

    return lax.fori_loop(0, len(step.row.levels), at_level, result)


def _merged(step: Step, before: LogBounds, found: LogBounds) -> LogBounds:
    return found if step.engine.replaces else tighter(before, found)


def _one_by_one(
    step: Step, lines: Lines, result: _Result, width: Width, directions: int
) -> _Result:
    """The bounds of a joint step for wide lanes, one at a time, on all of its directions."""
    lanes = result.bounds.upper.size // directions

    def go_on(state: tuple[LogBounds, Bools]) -> tuple[LogBounds, Bools]:
        bounds, open_lanes = state
        lane = xp.argmax(open_lanes)
        at = lane + lanes * xp.arange(directions)
        picked, before = jax.tree.map(lambda x: x[at], (lines, bounds))
        better = step.engine.traced(Batch(*picked), before, directions)
        bounds = jax.tree.map(lambda x, y: x.at[at].set(y), bounds, better)
        return bounds, open_lanes.at[lane].set(False)

    is_wide = goes_on(step, width, result.bounds, directions)[1]
    is_wide = is_wide.reshape(directions, -1).any(axis=0)
    state = result.bounds, is_wide
    bounds = lax.while_loop(lambda state: xp.any(state[1]), go_on, state)[0]
    return result._replace(bounds=bounds)


def _evaluated(step: Step, level: Any, lines: Lines, result: _Result) -> _Result:
    """The tighter of the bounds before and the step's bounds; lanes are independent."""
    if result.slopes is None:
        found = step.engine.traced(Batch(*lines), result.bounds, level)
        return _Result(_merged(step, result.bounds, found), None)
    leaves, tree = jax.tree.flatten(lines)
    moves = [xp.issubdtype(x.dtype, xp.floating) for x in leaves]

    def with_rest(moving: list[Reals], constants: list[Any]) -> Any:
        parts = {True: iter(moving), False: iter(constants)}
        return tree.unflatten([next(parts[m]) for m in moves])

    moving, constants = (
        [x for x, m in zip(leaves, moves, strict=True) if m == k] for k in (True, False)
    )

    def total(moving: list[Reals]) -> tuple[Reals, LogBounds]:
        terms, values = with_rest(moving, constants)
        bounds = step.engine.traced(Batch(terms, values), result.bounds, level)
        return xp.sum(bounds.upper), bounds

    slopes, found = jax.grad(total, has_aux=True)(moving)
    slopes = with_rest(slopes, [xp.zeros(x.shape) for x in constants])
    bounds = _merged(step, result.bounds, found)
    is_new = bounds.upper != result.bounds.upper

    def slope(old: Reals, new: Reals) -> Reals:
        return xp.where(is_new.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return _Result(bounds, jax.tree.map(slope, result.slopes, slopes))


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
