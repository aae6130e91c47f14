"""Runs engines in turn on the lanes of a batch, each on the lanes whose bracket is still wide.

Lanes along one axis are ordered by direction: (directions * lanes,). The worse direction of a lane
counts. In a wide lane the direction with the larger upper bound goes first. The other direction
follows only if its own bracket is wide and it can still be the worse one. The highest lower bound
and the lowest upper bound of all engines remain.

All arrays are NumPy's, and pieces of a batch run on all cores. `primitive` brings the lanes here,
also from inside of transformations.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import kernel
from jaxdp._core.precision import default_platform, opened, outside_traces
from jaxdp._core.types import Reals
from jaxdp.accountant.batch import Batch, require_consistent, require_few
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.steps import (
    ALWAYS,
    Engine,
    LogBounds,
    Step,
    Width,
    goes_on,
    of_numpy,
    tighter,
    unknown,
    worse,
)

# Maps the bounds of the worse direction to an array, True where they need not be tighter.
StopWhen: TypeAlias = Callable[[LogBounds], Any]
# Takes every answer that lowers an upper bound: the engine, the lanes, bounds before and the level.
Recorder: TypeAlias = Callable[[Engine, np.ndarray, LogBounds, Any], None]

# Fewest lanes that are worth a thread. chosen: a lane takes milliseconds
_LANES_A_THREAD = 8
# Releases of a piece, all its lanes together. chosen: their nodes take 250 MB
_MOST = 4096


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run function(terms, values, ...) outside of the surrounding trace if both are concrete.

    Raises `ValueError` if the releases are too many, or if the result has a NaN or an infinity and
    a law contradicts itself.
    """

    @functools.wraps(function)
    def call(terms: Terms, values: Reals, *options: Any) -> Any:
        if not checks.all_concrete(terms, values):
            return function(terms, values, *options)
        with outside_traces(), np.errstate(all="ignore"):
            require_few(terms)
            answer = function(terms, values, *options)
            require_consistent(answer, terms)
            return answer

    return call


@np.errstate(all="ignore")  # of infinite bounds
def in_turn(
    steps: tuple[Step, ...],
    width: Width,
    directions: int,
    batch: Batch,
    stop_when: StopWhen | None = None,
    record: Recorder | None = None,
) -> LogBounds:
    """Bounds of every lane of every direction."""
    known: Any = jax.tree.map(np.array, unknown(batch.values))
    unanswered = np.ones(batch.values.shape, bool)

    def still_wide(step: Step) -> list[Any]:
        wide: list[Any] = list(goes_on(step, width, known, directions))
        if stop_when is not None and step.row.above != ALWAYS:
            stops = np.tile(np.asarray(stop_when(worse(known, directions))), directions)
            wide = [x & ~stops for x in wide]
        return wide

    for index, (engine, row) in enumerate(steps):
        if index == 1:
            unanswered = ~np.isfinite(known.lower)
        stalled = np.zeros(batch.values.shape, bool)
        skipped = row.if_unanswered & ~unanswered
        for level in row.levels:
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
                if engine.skips is not None:
                    at = at[~engine.skips(batch.at(at))]
                    if at.size == 0:
                        continue
                before = jax.tree.map(lambda x, at=at: x[at], known)
                # Where all lanes go on, so does the batch, without a copy.
                part = batch if at.size == batch.values.size else batch.at(at)
                better = engine.solve(part, before, level)
                better = better if engine.replaces else tighter(before, better)
                if record is not None:
                    is_new = np.flatnonzero(np.asarray(better.upper) != before.upper)
                    record(engine, at[is_new], of_numpy(*(x[is_new] for x in before)), level)
                if len(row.levels) > 1:
                    left = width(better)
                    stalled[at] = (left > row.most_left * width(before)) | (left > row.most)
                for bound, improved in zip(known, better, strict=True):
                    bound[at] = np.asarray(improved)
    return known


def by_lanes(
    arrays: Callable[[Batch, LogBounds], Any],
    solve: Callable[[Any, Any], LogBounds],
    most: Callable[[Any], int],
    **options: Any,
) -> Engine:
    """An engine that maps a tree of arrays (lanes, ...) and a level to bounds, in pieces.

    `most` returns the largest number of lanes of a piece; `options` are passed to `Engine`.
    """

    def of_batch(batch: Batch, known: LogBounds, level: Any) -> LogBounds:
        return in_pieces(lambda lanes: solve(lanes, level), arrays(batch, known), most)

    return Engine(of_batch, **options)


def by_releases(lanes: Any) -> int:
    """Number of lanes in a piece of (terms, ...)."""
    return max(_MOST // sum(term.count.shape[-1] for term in lanes[0]), 1)


def fill(
    answer: list[np.ndarray], lanes: np.ndarray, function: Callable[[np.ndarray], Any]
) -> None:
    """Write function(lanes) to these lanes of the answer; those that it refuses stay."""
    try:
        found = function(lanes)
    except (ValueError, OverflowError):
        if lanes.size > 1:  # the others have an answer
            for half in np.array_split(lanes, 2):
                fill(answer, half, function)
        return
    for of_all, of_some in zip(answer, found, strict=True):
        of_all[lanes] = of_some


def in_pieces(function: Callable[[Any], Any], lanes: Any, most: Callable[[Any], int]) -> Any:
    """NumPy arrays function(lanes) of arrays (lanes, ...), evaluated for some lanes a call."""
    size = jax.tree.leaves(lanes)[0].shape[0]
    of_a_core = -(-size // min(cores(), max(size // _LANES_A_THREAD, 1)))
    piece = min(most(lanes), of_a_core)

    def of_piece(start: int) -> Any:
        with kernel():
            return function(jax.tree.map(lambda x: x[start : start + piece], lanes))

    with outside_traces():
        lanes = jax.tree.map(np.asarray, lanes)
        results = in_threads(of_piece, [(start,) for start in range(0, size, piece)])
        return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x]), *results)


def in_threads(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """function(*call) of every call of NumPy, which must not call this again."""
    if len(calls) < 2:
        return [function(*call) for call in calls]

    def run(call: tuple[Any, ...]) -> Any:
        with opened():  # which a thread does not inherit
            return function(*call)

    return list(_pool().map(run, calls))


def cores() -> int:
    """Number of CPU cores that this process may use; 1 on an accelerator."""
    if default_platform() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="jaxdp")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads are not copied
