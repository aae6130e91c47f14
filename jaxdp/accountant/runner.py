"""Runs engines in turn on the lanes of a batch, each on the lanes whose bracket is still wide.

A batch of any shape becomes lanes along one axis, ordered by direction: (directions * lanes,). The
worse direction of a lane counts. In a wide lane the direction with the larger upper bound goes
first. The other direction follows only if its own bracket is wide and it can still be the worse
one. The highest lower bound and the lowest upper bound of all engines remain.

Only this module asks whether values are concrete. Concrete lanes go in pieces, on all cores:
NumPy computes few lanes, a compiled program computes many; their number alone decides. Traced
lanes go to `traces`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.threads import cores, in_threads
from jaxdp._core.tracing import kernel, outside_traces
from jaxdp._core.types import Lanes, Reals
from jaxdp.accountant import traces
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.bounds import LogBounds, tighter
from jaxdp.accountant.composition import Terms, exchanged
from jaxdp.accountant.steps import ALWAYS, Engine, Step, Width, goes_on, unknown, worse
from jaxdp.accountant.tables import require_consistent

# Maps the bounds of the worse direction to an array, True where they need not be tighter.
StopWhen: TypeAlias = Callable[[LogBounds], Any]
# Maps terms, and a flag for concrete terms and values, to the steps of their composition.
Choice: TypeAlias = Callable[[Terms, bool], tuple[Step, ...]]

# Batches of more than 2 lanes are padded to a multiple of this; larger ones to a multiple of an
# eighth to a quarter of their size. chosen: few shapes, little padding
_FEW = 8
# Fewest lanes that are worth a thread. chosen: a lane takes milliseconds
_LANES_A_THREAD = 8
# Number of lanes of no batch. derived: of no array
ANY_NUMBER = 2**62
# Releases of a piece, all its lanes together. chosen: their nodes take 250 MB
_MOST = 4096


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run function(terms, values, ...) outside of the surrounding trace if both are concrete.

    If the result has a NaN or an infinity and a law contradicts itself, raises `ValueError`.
    """

    @functools.wraps(function)
    def call(terms: Terms, values: Reals, *options: Any) -> Any:
        if not checks.all_concrete(terms, values):
            return function(terms, values, *options)
        with outside_traces(), np.errstate(all="ignore"):
            answer = function(terms, values, *options)
            require_consistent(answer, terms)
            return answer

    return call


def answered(
    choice: Choice,
    width: Width,
    terms: Terms,
    values: Reals,
    both: bool,
    stop_when: StopWhen | None = None,
) -> LogBounds:
    """Bounds at every value, in the worse direction if `both`, in the batch's shape.

    `stop_when` ends concrete lanes.
    """
    shape = xp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    is_concrete = checks.all_concrete(terms, values)
    batch = _laid_out(shape, terms, values, both, is_concrete)
    size = batch.values.shape[0]
    steps = choice(terms, is_concrete)
    steps = tuple(s for s in steps if s.row.more_than < size < s.row.fewer_than)
    directions = 2 if both else 1
    if is_concrete:
        found = concrete(steps, width, directions, batch, _on_lanes(stop_when, shape))
    else:
        found = traces.answered(steps, width, directions, batch)
    lower, upper = (x.reshape(shape) for x in worse(found, directions))
    return LogBounds(xp.minimum(lower, upper), upper)


def _laid_out(
    shape: tuple[int, ...], terms: Terms, values: Lanes, both: bool, is_concrete: bool
) -> Batch:
    """The lanes of a batch along one axis; the lanes of direction two come last."""
    size = math.prod(shape)
    if is_concrete:
        terms, values = jax.tree.map(np.asarray, (terms, values))

    def flat(x: Lanes) -> Lanes:
        return xp.broadcast_to(x, (*shape, x.shape[-1])).reshape(size, x.shape[-1])

    values = xp.broadcast_to(values, shape).reshape(size)
    lanes = jax.tree.map(flat, terms)
    if both:
        lanes, values = exchanged(lanes, xp.concatenate), xp.concatenate([values, values])
    return Batch.of_concrete(lanes, values) if is_concrete else Batch(lanes, values)


def has_negative(values: Reals) -> bool:
    """False if concrete values are all >= 0."""
    # NumPy, since JAX would trace a comparison of concrete values inside a trace.
    return not checks.is_concrete(values) or bool(np.any(np.asarray(values) < 0))


def _on_lanes(stop_when: StopWhen | None, shape: tuple[int, ...]) -> StopWhen | None:
    """`stop_when` of bounds of lanes."""
    if stop_when is None:
        return None

    def of_lanes(bounds: LogBounds) -> Any:
        found = stop_when(LogBounds(*(x.reshape(shape) for x in bounds)))
        return np.broadcast_to(np.asarray(found), shape).ravel()

    return of_lanes


@np.errstate(all="ignore")  # of infinite bounds
def concrete(
    steps: tuple[Step, ...],
    width: Width,
    directions: int,
    batch: Batch,
    stop_when: StopWhen | None = None,
) -> LogBounds:
    """Bounds of every concrete lane of every direction."""
    if len(steps) == 1:
        step = steps[0]
        return step.engine.concrete(batch, unknown(batch.values), step.row.levels[0])
    known: Any = jax.tree.map(np.array, unknown(batch.values))
    unanswered = np.ones(batch.values.shape, bool)

    def still_wide(step: Step) -> list[Any]:
        wide: list[Any] = list(goes_on(step, width, known, directions))
        if stop_when is not None and step.row.above != ALWAYS:
            stops = np.tile(np.asarray(stop_when(worse(known, directions))), directions)
            wide = [x & ~stops for x in wide]
        if step.engine.is_joint:
            return [np.tile(wide[1].reshape(directions, -1).any(axis=0), directions)]
        return wide

    for index, (engine, row) in enumerate(steps):
        if index == 1:
            unanswered = ~np.isfinite(known.lower)
        stalled = np.zeros(batch.values.shape, bool)
        skipped = row.if_unanswered & ~unanswered
        for level in (directions,) if engine.is_joint else row.levels:
            wide, tried = still_wide(steps[index]), stalled | skipped
            if not any(x.any() for x in wide):
                break
            for then in range(len(wide)):
                # The bounds found first can only make fewer lanes wide.
                if then and (wide[then] & ~tried).any():
                    wide = still_wide(steps[index])
                at = np.flatnonzero(wide[then] & ~tried)
                if at.size == 0:
                    continue
                tried[at] = True
                before = jax.tree.map(lambda x, at=at: x[at], known)
                better = engine.concrete(batch.at(at), before, level)
                better = better if engine.replaces else tighter(before, better)
                if len(row.levels) > 1:
                    left = width(better)
                    stalled[at] = (left > row.most_left * width(before)) | (left > row.most)
                for bound, improved in zip(known, better, strict=True):
                    bound[at] = np.asarray(improved)
    return known


def by_lanes(
    arrays: Callable[[Batch, LogBounds], Any],
    solve: Callable[[Any, Any], LogBounds],
    most: Callable[[Any, bool], int],
    on_host: int = 0,
    **options: Any,
) -> Engine:
    """An engine that maps arrays of lanes and a level to bounds, concrete lanes in pieces.

    Args:
        arrays: maps a batch and bounds before to a tree of arrays (lanes, ...).
        solve: maps arrays of some lanes, and a level, to bounds.
        most: maps arrays, and a flag for NumPy, to the largest number of lanes of a piece.
        on_host: number of lanes up to which NumPy computes; beyond, `solve` decides.
        options: of `Engine`.
    """

    def of_concrete(batch: Batch, known: LogBounds, level: Any) -> LogBounds:
        lanes, size = arrays(batch, known), batch.values.shape[0]
        is_on_host = size <= on_host
        level = xp.asarray(level, xp.int32)

        def of_piece(lanes: Any) -> LogBounds:
            with kernel() if is_on_host else contextlib.nullcontext():
                return solve(lanes, level)

        return in_pieces(of_piece, lanes, _lanes_a_call(most(lanes, is_on_host), size, is_on_host))

    def of_traced(batch: Batch, known: LogBounds, level: Any) -> LogBounds:
        return solve(arrays(batch, known), level)

    return Engine(of_concrete, of_traced, **options)


def by_releases(lanes: Any, _: bool) -> int:
    """Number of lanes in a piece of (terms, ...)."""
    return max(_MOST // sum(term.count.shape[-1] for term in lanes[0]), 1)


def in_pieces(function: Callable[[Any], Any], lanes: Any, piece: int) -> Any:
    """NumPy arrays function(lanes) of arrays (lanes, ...), evaluated for `piece` lanes a call."""
    size = jax.tree.leaves(lanes)[0].shape[0]
    with outside_traces():
        index = np.minimum(np.arange(-(-size // piece) * piece), size - 1).reshape(-1, piece)
        calls = [(jax.tree.map(lambda x, i=i: np.asarray(x)[i], lanes),) for i in index]
        results = in_threads(function, calls)
        return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x])[:size], *results)


def _lanes_a_call(most: int, size: int, on_host: bool) -> int:
    """Number of lanes in one call, at most `most`; a program gets few sizes, as each compiles."""
    of_a_core = -(-size // min(cores(), max(size // _LANES_A_THREAD, 1)))
    return min(most, of_a_core if on_host else _few_sizes(of_a_core))


def _few_sizes(size: int) -> int:
    """The number of lanes to which a batch of `size` lanes is padded."""
    multiple = 1 if size <= 2 else max(_FEW, 2 ** (size - 1).bit_length() // 8)
    return -(-size // multiple) * multiple
