"""Runs the engines in turn on a batch, each on the lanes whose bracket is still wide.

A batch is flat, (directions * lanes,), ordered by direction; the worse direction of a lane counts.
In a wide lane the direction with the larger upper bound goes first. The other direction follows
only if its own bracket is wide and it can still be the worse one. The highest lower bound and the
lowest upper bound of all engines remain. NumPy selects concrete lanes. Traced lanes go in packs of
a fixed size, in loops that end when no lane is wide; their slopes are the slopes of the upper
bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Lanes, Reals
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.batches import of_platform
from jaxdp.accountant.bounds import LogBounds, tighter
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.mapped import in_traces

# Terms and values of traced lanes, arrays (directions * lanes, n) and (directions * lanes,).
Rows: TypeAlias = tuple[Terms, Lanes]
# Maps a batch, the bounds found before and a level of effort to bounds.
Engine: TypeAlias = Callable[[Batch, LogBounds, Any], LogBounds]
# Maps bounds to the widths of their brackets.
Width: TypeAlias = Callable[[LogBounds], Reals]
# Maps the bounds of the worse direction to an array, True where they need not be tighter.
StopWhen: TypeAlias = Callable[[LogBounds], Any]
# Last step for a traced lane: maps (bounds, terms, values) of its directions to bounds.
Finish: TypeAlias = Callable[[LogBounds, Terms, Lanes], LogBounds]

# Traced lanes evaluated side by side. chosen: on a CPU padding costs as much as lanes
PACK = {"cpu": 8, "other": 256}
# Value of `Step.above` with which a step runs for every lane. chosen: no width is negative
ALWAYS = -1.0


class Step(NamedTuple):
    """An engine, and the lanes for which it runs."""

    engine: Engine
    above: float = 0.0  # width of a bracket above which it runs
    levels: tuple[int, ...] = (1,)  # efforts, one after the other while a bracket is wide
    least: float = -np.inf  # upper bound below which it does not run
    more_than: int = 0  # it runs only for batches of more lanes
    pack: Callable[[], int] = partial(of_platform, PACK)  # traced lanes side by side
    concrete_only: bool = False  # traced lanes skip it
    if_unanswered: bool = False  # it skips concrete lanes with a lower bound from the first step
    # A concrete lane goes to the next level if the last one left at most this share of its bracket.
    most_left: float = np.inf
    most: float = np.inf  # width above which it does not


class _Result(NamedTuple):
    """Bounds (rows,), and if requested the slopes of the upper ones in the rows."""

    bounds: LogBounds
    slopes: Any


def answered(
    steps: tuple[Step, ...],
    width: Width,
    batch: Batch,
    directions: int,
    stop_when: StopWhen | None = None,
    finish: Finish | None = None,
) -> LogBounds:
    """Bounds of every lane; the lanes of a second direction come last.

    `stop_when` ends concrete lanes. Traced lanes that are wide after the last step go to `finish`.
    """
    steps = tuple(s for s in steps if s.more_than < batch.values.shape[0])
    if checks.all_concrete(batch.terms, batch.values):
        return _known(steps, width, batch, directions, stop_when)
    steps = tuple(s for s in steps if not s.concrete_only)
    return _traced(steps, width, (batch.terms, batch.values), directions, finish)


def unknown(values: Lanes) -> LogBounds:
    """Infinite bounds of every lane."""
    infinite = xp.full(values.shape, xp.inf)
    return LogBounds(-infinite, infinite)


def _goes_on(
    step: Step, width: Width, known: LogBounds, directions: int, only_worst: bool
) -> Bools:
    """True for the rows (directions * lanes,) for which the step runs."""
    if step.above == ALWAYS:
        return xp.ones(known.upper.shape, bool)
    by_direction = LogBounds(*(x.reshape(directions, -1) for x in known))
    worst = LogBounds(*(xp.max(x, axis=0) for x in by_direction))
    is_wide = (width(worst) > step.above) & ~(worst.upper < step.least)
    if only_worst:
        return (is_wide[None] & (by_direction.upper == worst.upper[None])).ravel()
    is_better = (by_direction.upper < worst.lower[None]) | (width(by_direction) <= step.above)
    return (is_wide[None] & ~is_better).ravel()


@np.errstate(all="ignore")  # of infinite bounds
def _known(
    steps: tuple[Step, ...],
    width: Width,
    batch: Batch,
    directions: int,
    stop_when: StopWhen | None,
) -> LogBounds:
    known: Any = jax.tree.map(np.array, unknown(batch.values))

    def still_wide(step: Step, only_worst: bool) -> Any:
        goes_on = np.asarray(_goes_on(step, width, known, directions, only_worst))
        if stop_when is None or step.above == ALWAYS:
            return goes_on
        worst = LogBounds(*(x.reshape(directions, -1).max(axis=0) for x in known))
        return goes_on & ~np.tile(np.asarray(stop_when(worst)), directions)

    unanswered = np.ones(batch.values.shape, bool)
    for index, step in enumerate(steps):
        if index == 1:
            unanswered = ~np.isfinite(known.lower)
        stalled = np.zeros(batch.values.shape, bool)
        skipped = step.if_unanswered & ~unanswered
        for level in step.levels:
            tried = stalled | skipped
            for only_worst in (True, False):
                at = np.flatnonzero(still_wide(step, only_worst) & ~tried)
                if at.size == 0:
                    continue
                tried[at] = True
                before = jax.tree.map(lambda x, at=at: x[at], known)
                better = tighter(before, step.engine(batch.at(at), before, level))
                left = width(better)
                stalled[at] = (left > step.most_left * width(before)) | (left > step.most)
                for bound, improved in zip(known, better, strict=True):
                    bound[at] = np.asarray(improved)
    return known


def _traced(
    steps: tuple[Step, ...], width: Width, rows: Rows, directions: int, finish: Finish | None
) -> LogBounds:
    first = steps[0]
    if len(steps) == 1 and finish is None:
        return first.engine(Batch(*rows), unknown(rows[1]), first.levels[0])

    def answer(rows: Rows, with_slopes: bool) -> tuple[LogBounds, Any]:
        slopes = jax.tree.map(xp.zeros_like, rows) if with_slopes else None
        result = _Result(unknown(rows[1]), slopes)
        for index, step in enumerate(steps):
            is_for_all = step.above == ALWAYS or (index == 0 and len(step.levels) == 1)
            go_on = (
                _for_all if is_for_all else partial(_in_packs, width=width, directions=directions)
            )
            result = go_on(step, rows, result)
        bounds = result.bounds
        if finish is not None:
            bounds = _finished(steps[-1], width, directions, finish, rows, bounds)
        return bounds, result.slopes

    return in_traces(answer, directions, rows)


def _for_all(step: Step, rows: Rows, result: _Result) -> _Result:
    return _evaluated(step, step.levels[0], rows, result)


def _in_packs(step: Step, rows: Rows, result: _Result, width: Width, directions: int) -> _Result:
    """The step's bounds for rows that are wide, one pack at a time."""
    size = rows[1].shape[0]
    pack = min(step.pack(), size)

    def at_level(index: Index | int, result: _Result) -> _Result:
        level = xp.asarray(step.levels)[index]

        def candidates(state: tuple[_Result, Bools]) -> Bools:
            result, tried = state
            first, others = (
                _goes_on(step, width, result.bounds, directions, only_worst) & ~tried
                for only_worst in (True, False)
            )
            has_first = xp.any(first.reshape(directions, -1), axis=0)
            return xp.where(xp.tile(has_first, directions), first, others)

        def go_on(state: tuple[_Result, Bools]) -> tuple[_Result, Bools]:
            at = xp.nonzero(candidates(state), size=pack, fill_value=size)[0]
            lanes = xp.minimum(at, size - 1)
            picked, before = jax.tree.map(lambda x: x[lanes], (rows, state[0]))
            better = _evaluated(step, level, picked, before)
            merged = jax.tree.map(lambda x, y: x.at[at].set(y, mode="drop"), state[0], better)
            return merged, state[1].at[at].set(True, mode="drop")

        start = result, xp.zeros(size, bool)
        return lax.while_loop(lambda state: xp.any(candidates(state)), go_on, start)[0]

    return lax.fori_loop(0, len(step.levels), at_level, result)


def _evaluated(step: Step, level: Any, rows: Rows, result: _Result) -> _Result:
    """The tighter of the bounds before and the step's bounds; rows are independent."""
    if result.slopes is None:
        bounds = step.engine(Batch(*rows), result.bounds, level)
        return _Result(tighter(result.bounds, bounds), None)
    leaves, tree = jax.tree.flatten(rows)
    moves = [xp.issubdtype(x.dtype, xp.floating) for x in leaves]

    def with_rest(moving: list[Reals], constants: list[Any]) -> Any:
        parts = {True: iter(moving), False: iter(constants)}
        return tree.unflatten([next(parts[m]) for m in moves])

    moving, constants = (
        [x for x, m in zip(leaves, moves, strict=True) if m == k] for k in (True, False)
    )

    def total(moving: list[Reals]) -> tuple[Reals, LogBounds]:
        terms, values = with_rest(moving, constants)
        bounds = step.engine(Batch(terms, values), result.bounds, level)
        return xp.sum(bounds.upper), bounds

    slopes, found = jax.grad(total, has_aux=True)(moving)
    slopes = with_rest(slopes, [xp.zeros(x.shape) for x in constants])
    bounds = tighter(result.bounds, found)
    is_new = bounds.upper != result.bounds.upper

    def slope(old: Reals, new: Reals) -> Reals:
        return xp.where(is_new.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return _Result(bounds, jax.tree.map(slope, result.slopes, slopes))


def _finished(
    step: Step, width: Width, directions: int, finish: Finish, rows: Rows, bounds: LogBounds
) -> LogBounds:
    """`finish` of every wide lane, one at a time, on the rows of its directions."""
    lanes = bounds.upper.size // directions

    def go_on(state: tuple[LogBounds, Bools]) -> tuple[LogBounds, Bools]:
        bounds, open_lanes = state
        lane = xp.argmax(open_lanes)
        at = lane + lanes * xp.arange(directions)
        terms, values = jax.tree.map(lambda x: x[at], rows)
        better = finish(jax.tree.map(lambda x: x[at], bounds), terms, values)
        bounds = jax.tree.map(lambda x, y: x.at[at].set(y), bounds, better)
        return bounds, open_lanes.at[lane].set(False)

    is_wide = _goes_on(step, width, bounds, directions, False).reshape(directions, -1).any(axis=0)
    return lax.while_loop(lambda state: xp.any(state[1]), go_on, (bounds, is_wide))[0]
