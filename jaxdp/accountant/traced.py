"""Traced answers: engines in turn in one program; the lanes that are wide go on in packs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Bools, Lanes, Reals
from jaxdp.accountant.batches import of_platform
from jaxdp.accountant.bounds import LogBounds, nearer
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.engines import Engine, Step
from jaxdp.accountant.mapped import in_traces

# What ends a traced lane: from (bounds, terms, values) of its directions, better bounds.
Last: TypeAlias = Callable[[LogBounds, Terms, Lanes], LogBounds]

# Lanes that go on side by side. chosen: padding costs a CPU as much as lanes do
PACK = {"cpu": 8, "other": 256}


class _Found(NamedTuple):
    """Bounds (rows,), and where asked slopes of the upper ones in what is asked."""

    bounds: LogBounds
    slopes: Any


def traced_bounds(
    steps: tuple[Step, ...],
    width: Callable[[LogBounds], Reals],
    asked: tuple[Terms, Lanes],
    ways: int,
    last: Last | None,
) -> LogBounds:
    """Bounds of rows, those of a second direction last, by one program."""
    if len(steps) == 1 and last is None:
        return steps[0].engine(*asked)

    def wide(found: LogBounds, above: float) -> Bools:
        """True of rows (ways, lanes) that go on: a better direction need not be any nearer."""
        each = LogBounds(*(x.reshape(ways, -1) for x in found))
        worse = LogBounds(*(jnp.max(x, axis=0) for x in each))
        return (width(worse) > above)[None] & ~(each.upper < worse.lower[None])

    def answer(asked: Any, with_slopes: bool) -> tuple[LogBounds, Any]:
        found = _asked(steps[0].engine, asked, with_slopes)
        for step in steps[1:]:
            found = _further(step, lambda x, step=step: wide(x, step.above).ravel(), asked, found)
        bounds = found.bounds
        if last is not None:
            bounds = _ended(last, lambda x: wide(x, steps[-1].above).any(axis=0), asked, bounds)
        return bounds, found.slopes

    return in_traces(answer, ways, asked)


def _asked(engine: Engine, asked: Any, with_slopes: bool) -> _Found:
    """An engine's bounds, and slopes; rows do not know of one another."""
    if not with_slopes:
        return _Found(engine(*asked), None)
    leaves, tree = jax.tree.flatten(asked)
    moves = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]

    def with_rest(moving: list[Reals], rest: list[Any]) -> Any:
        parts = {True: iter(moving), False: iter(rest)}
        return tree.unflatten([next(parts[m]) for m in moves])

    moving, rest = (
        [x for x, m in zip(leaves, moves, strict=True) if m == k] for k in (True, False)
    )

    def total(moving: list[Reals]) -> tuple[Reals, LogBounds]:
        found = engine(*with_rest(moving, rest))
        return jnp.sum(found.upper), found

    slopes, found = jax.grad(total, has_aux=True)(moving)
    return _Found(found, with_rest(slopes, [jnp.zeros(x.shape) for x in rest]))


def _further(step: Step, wide: Callable[[LogBounds], Bools], asked: Any, found: _Found) -> _Found:
    """The next engine's answer for rows that are wide, a pack of them at a time."""
    if step.of_whole_lanes:
        return _for_all(step, wide(found.bounds), asked, found)
    size = found.bounds.upper.size
    pack = min(of_platform(PACK), size) if step.side_by_side else 1

    def still(state: tuple[_Found, Bools]) -> Bools:
        return wide(state[0].bounds) & ~state[1]

    def go_on(state: tuple[_Found, Bools]) -> tuple[_Found, Bools]:
        at = jnp.nonzero(still(state), size=pack, fill_value=size)[0]
        rows, known = jax.tree.map(lambda x: x[jnp.minimum(at, size - 1)], (asked, state[0]))
        new = _asked(step.engine, rows, found.slopes is not None)
        better = _nearer(known, new)
        known = jax.tree.map(lambda x, y: x.at[at].set(y, mode="drop"), state[0], better)
        return known, state[1].at[at].set(True, mode="drop")

    start = found, jnp.zeros(size, bool)
    return lax.while_loop(lambda state: jnp.any(still(state)), go_on, start)[0]


def _for_all(step: Step, wide: Bools, asked: tuple[Terms, Lanes], found: _Found) -> _Found:
    """The next engine's answer for all rows at once; of those that are not wide it sees none."""
    terms, values = asked
    rows = tuple(Term(t.pair, jnp.where(wide[:, None], t.count, 0.0)) for t in terms)
    better = _nearer(found, _asked(step.engine, (rows, values), found.slopes is not None))

    def chosen(new: Reals, old: Reals) -> Reals:
        return jnp.where(wide.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(chosen, better, found)


def _nearer(known: _Found, found: _Found) -> _Found:
    """The nearer bounds, and the slopes of the upper one of them."""
    bounds = nearer(known.bounds, found.bounds)
    less = bounds.upper != known.bounds.upper

    def slope(old: Reals, new: Reals) -> Reals:
        return jnp.where(less.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return _Found(bounds, jax.tree.map(slope, known.slopes, found.slopes))


def _ended(
    last: Last, wide: Callable[[LogBounds], Bools], asked: Any, found: LogBounds
) -> LogBounds:
    """`last` of every lane that is wide, one at a time: rows of its directions."""
    lanes = wide(found).size

    def go_on(state: tuple[LogBounds, Bools]) -> tuple[LogBounds, Bools]:
        found, still = state
        at = jnp.argmax(still)
        rows = at + lanes * jnp.arange(found.upper.size // lanes)
        terms, values = jax.tree.map(lambda x: x[rows], asked)
        better = last(jax.tree.map(lambda x: x[rows], found), terms, values)
        found = jax.tree.map(lambda x, y: x.at[rows].set(y), found, better)
        return found, still.at[at].set(False)

    return lax.while_loop(lambda state: jnp.any(state[1]), go_on, (found, wide(found)))[0]
