"""Traced answers: engines in turn in one program; the lanes that are wide go on in packs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Lanes, Reals
from jaxdp.accountant.batches import of_platform
from jaxdp.accountant.bounds import LogBounds, tighter
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.engines import Engine, Step
from jaxdp.accountant.mapped import in_traces

# What ends a traced lane: from (bounds, terms, values) of its directions, better bounds.
Finish: TypeAlias = Callable[[LogBounds, Terms, Lanes], LogBounds]

# Lanes that go on side by side. chosen: padding costs a CPU as much as lanes do
PACK = {"cpu": 8, "other": 256}


class _Result(NamedTuple):
    """Bounds (rows,), and where asked slopes of the upper ones in what is asked."""

    bounds: LogBounds
    slopes: Any


def traced_bounds(
    steps: tuple[Step, ...],
    width: Callable[[LogBounds], Reals],
    rows: tuple[Terms, Lanes],
    ways: int,
    finish: Finish | None,
) -> LogBounds:
    """Bounds of rows, those of a second direction last, by one program."""
    if len(steps) == 1 and finish is None:
        return steps[0].engine(*rows)

    def is_wide(bounds: LogBounds, step: Step) -> Bools:
        """True of rows (ways, lanes) that go on: a better direction need not be any nearer."""
        by_way = LogBounds(*(x.reshape(ways, -1) for x in bounds))
        worst = LogBounds(*(xp.max(x, axis=0) for x in by_way))
        return (width(worst) > step.above)[None] & ~(by_way.upper < worst.lower[None])

    def answer(rows: Any, with_slopes: bool) -> tuple[LogBounds, Any]:
        result = _result_of(steps[0].engine, rows, with_slopes)
        for step in steps[1:]:
            result = _further(step, lambda x, s=step: is_wide(x, s).ravel(), rows, result)
        bounds = result.bounds
        if finish is not None:
            bounds = _finished(finish, lambda x: is_wide(x, steps[-1]).any(axis=0), rows, bounds)
        return bounds, result.slopes

    return in_traces(answer, ways, rows)


def _result_of(engine: Engine, rows: Any, with_slopes: bool) -> _Result:
    """An engine's bounds, and slopes; rows do not know of one another."""
    if not with_slopes:
        return _Result(engine(*rows), None)
    leaves, tree = jax.tree.flatten(rows)
    moves = [xp.issubdtype(x.dtype, xp.floating) for x in leaves]

    def with_rest(moving: list[Reals], constants: list[Any]) -> Any:
        parts = {True: iter(moving), False: iter(constants)}
        return tree.unflatten([next(parts[m]) for m in moves])

    moving, constants = (
        [x for x, m in zip(leaves, moves, strict=True) if m == k] for k in (True, False)
    )

    def total(moving: list[Reals]) -> tuple[Reals, LogBounds]:
        bounds = engine(*with_rest(moving, constants))
        return xp.sum(bounds.upper), bounds

    slopes, bounds_of_rows = jax.grad(total, has_aux=True)(moving)
    return _Result(bounds_of_rows, with_rest(slopes, [xp.zeros(x.shape) for x in constants]))


def _further(
    step: Step, is_wide: Callable[[LogBounds], Bools], rows: Any, result: _Result
) -> _Result:
    """The next engine's answer for rows that are wide, a pack of them at a time."""
    if step.of_whole_lanes:
        return _for_all(step, is_wide(result.bounds), rows, result)
    size = result.bounds.upper.size
    pack = min(of_platform(PACK), size) if step.side_by_side else 1

    def is_open(state: tuple[_Result, Bools]) -> Bools:
        return is_wide(state[0].bounds) & ~state[1]

    def go_on(state: tuple[_Result, Bools]) -> tuple[_Result, Bools]:
        places = xp.nonzero(is_open(state), size=pack, fill_value=size)[0]
        lanes = xp.minimum(places, size - 1)
        pack_rows, pack_result = jax.tree.map(lambda x: x[lanes], (rows, state[0]))
        answer = _result_of(step.engine, pack_rows, result.slopes is not None)
        better = _tighter(pack_result, answer)
        merged = jax.tree.map(lambda x, y: x.at[places].set(y, mode="drop"), state[0], better)
        return merged, state[1].at[places].set(True, mode="drop")

    start = result, xp.zeros(size, bool)
    return lax.while_loop(lambda state: xp.any(is_open(state)), go_on, start)[0]


def _for_all(step: Step, is_wide: Bools, rows: tuple[Terms, Lanes], result: _Result) -> _Result:
    """The next engine's answer for all rows at once; of those that are not wide it sees none."""
    terms, values = rows
    asked = tuple(Term(t.pair, xp.where(is_wide[:, None], t.count, 0.0)) for t in terms)
    better = _tighter(result, _result_of(step.engine, (asked, values), result.slopes is not None))

    def choose(x: Reals, y: Reals) -> Reals:
        return xp.where(is_wide.reshape(-1, *[1] * (y.ndim - 1)), x, y)

    return jax.tree.map(choose, better, result)


def _tighter(a: _Result, b: _Result) -> _Result:
    """The nearer bounds, and the slopes of the upper one of them."""
    bounds = tighter(a.bounds, b.bounds)
    from_b = bounds.upper != a.bounds.upper

    def slope(x: Reals, y: Reals) -> Reals:
        return xp.where(from_b.reshape(-1, *[1] * (x.ndim - 1)), y, x)

    return _Result(bounds, jax.tree.map(slope, a.slopes, b.slopes))


def _finished(
    finish: Finish, is_wide: Callable[[LogBounds], Bools], asked: Any, bounds: LogBounds
) -> LogBounds:
    """`finish` of every lane that is wide, one at a time: rows of its directions."""
    lanes = is_wide(bounds).size

    def go_on(state: tuple[LogBounds, Bools]) -> tuple[LogBounds, Bools]:
        bounds, open_lanes = state
        lane = xp.argmax(open_lanes)
        rows = lane + lanes * xp.arange(bounds.upper.size // lanes)
        terms, values = jax.tree.map(lambda x: x[rows], asked)
        better = finish(jax.tree.map(lambda x: x[rows], bounds), terms, values)
        bounds = jax.tree.map(lambda x, y: x.at[rows].set(y), bounds, better)
        return bounds, open_lanes.at[lane].set(False)

    return lax.while_loop(lambda state: xp.any(state[1]), go_on, (bounds, is_wide(bounds)))[0]
