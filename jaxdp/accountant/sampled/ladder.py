"""Bounds for lanes of sampled Gaussians: a short sum, then longer ones where the bracket is wide.

A batch is flat, (ways * lanes,), in the order of directions; the worse direction of a lane counts.
More than `FEW` such entries begin with the short sum (`BULK`), fewer with the long one (`LONG`),
whose number of blocks grows while a bracket is wide. Of a wide lane the direction of the larger
upper bound goes on first, the other one only where it may still be the worse. NumPy picks concrete
entries. Traced ones go on in packs of a fixed size, in a loop that ends when no bracket is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import compiled
from jaxdp._core.namespace import lax, xp
from jaxdp._core.threads import in_threads
from jaxdp._core.types import Bools, Index, Lanes, Reals
from jaxdp.accountant.batches import few_sizes, of_platform
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.sampled import curve
from jaxdp.accountant.sampled.derivative import log_delta_slopes
from jaxdp.accountant.sampled.law import Releases, Stage
from jaxdp.accountant.sampled.plan import LEAST_UNIT

Question: TypeAlias = Literal["log delta", "epsilon"]
# Bounds (lanes,) to an array: true where they need not be any nearer.
Enough: TypeAlias = Callable[[LogBounds], Any]

NEAR = 1e-6  # width of a bracket, relative where epsilon is large, that is near enough. chosen
# A bulk, and what is not one: many points, in blocks of which few may do.
BULK = Stage(nodes=64, points=16, start=-8.7, depth=20.0, height=0.0)
LONG = Stage(nodes=256, points=256, start=-9.5, depth=28.0, height=7.0, blocks=64)
STAGES = (BULK, LONG)
BLOCKS = ((1,), (1, 4, 16, 64))
# Bytes that the lanes of one step may take. chosen: a CPU's cache, and a part of an accelerator's
MEMORY = {"cpu": 2**27, "other": 2**31}
# Lanes that NumPy answers in a process before they are compiled. measured: 1.5 ms a lane for .6
MOST_ON_HOST = 2**13
FEW = 64  # lanes that begin with the long stage: it settles more. chosen: a compilation is saved
ARRAYS = 24  # of a lane's nodes at once. measured
MOST_AT_ONCE = {"cpu": 256, "other": 4096}  # lanes. measured: more are no faster


class Batch(NamedTuple):
    """Releases with the axes of `Releases` reversed, and the value that is asked at (lanes,)."""

    releases: Releases
    value: Reals


class Found(NamedTuple):
    """Bounds and a guess (lanes,), and where asked slopes in every parameter and the value."""

    lower: Reals
    upper: Reals
    guess: Reals
    slopes: Batch | None


def at_once(stage: Stage) -> int:
    """Number of lanes that one step takes: a power of two."""
    tables = 4 * (32 + stage.blocks) if stage.blocks > 1 else 0
    each = 8 * (stage.nodes * (ARRAYS + tables) + 8 * stage.points * stage.blocks)
    return int(
        np.clip(1 << (of_platform(MEMORY) // each).bit_length() - 1, 8, of_platform(MOST_AT_ONCE))
    )


def answered(
    question: Question,
    lanes: Batch,
    ways: int,
    with_slopes: bool,
    enough: Enough | None = None,
) -> Found:
    """Bounds of every lane, (ways * lanes,) in the order of directions.

    `enough`: true of bounds of the worse direction that need not be any nearer.
    """
    if checks.all_concrete(lanes):
        return _known(question, lanes, ways, enough)
    return _traced(question, lanes, ways, with_slopes)


def _stage(
    question: Question,
    index: int,
    with_slopes: bool,
    lanes: Batch,
    guess: Reals,
    blocks: Index | int,
) -> Found:
    """One stage for lanes, some at a time."""
    stage = STAGES[index]
    size = guess.size
    chunk = min(at_once(stage), size)

    def padded(x: Reals) -> Reals:
        width = [(0, -size % chunk), *[(0, 0)] * (x.ndim - 1)]
        return xp.pad(x, width, mode="edge").reshape(-1, chunk, *x.shape[1:])

    def some(at: tuple[Batch, Reals]) -> Found:
        lanes, guess = at
        releases = Releases(*(x.T for x in lanes.releases))
        answer = _QUESTIONS[question](stage, releases, lanes.value, guess, blocks)
        slopes = None
        if with_slopes:
            of_releases, of_epsilon = log_delta_slopes(stage, releases, answer.held)
            if question == "epsilon":
                of_releases = Releases(*(-x / of_epsilon for x in of_releases))
                of_epsilon = 1.0 / (of_epsilon * lanes.value)
            slopes = Batch(Releases(*(x.T for x in of_releases)), of_epsilon)
        return Found(answer.lower, answer.upper, answer.guess, slopes)

    with jax.numpy_rank_promotion("allow"):
        if chunk == size:
            return some((lanes, guess))
        found = lax.map(some, jax.tree.map(padded, (lanes, guess)))
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:size], found)


_QUESTIONS: dict[Question, Callable[..., curve.Answer]] = {
    "log delta": curve.log_delta_bounds,
    "epsilon": curve.epsilon_bounds,
}
_PROGRAMS = {
    (question, index): compiled(partial(_stage, question, index, False), (), lanes=0)
    for question in _QUESTIONS
    for index in range(len(STAGES))
}


class _OnHost:
    """Lanes that NumPy has answered in this process."""

    lanes = 0

    @classmethod
    def takes(cls, lanes: int) -> bool:
        """True of few lanes, and of more until a compilation would have paid."""
        cls.lanes += lanes
        return lanes <= FEW or cls.lanes <= MOST_ON_HOST


@np.errstate(all="ignore")  # as in a compiled kernel
def _known(question: Question, lanes: Batch, ways: int, enough: Enough | None) -> Found:
    lanes = jax.tree.map(np.asarray, lanes)
    size = lanes.value.size
    on_host = _OnHost.takes(size)
    known: Found | None = None
    for index, some in enumerate(BLOCKS):
        if index == 0 and size <= FEW:
            continue
        program = partial(_stage, question, index, False)
        program = program if on_host else _PROGRAMS[question, index]
        for blocks in some:
            for only_worst in (True, False):
                if known is None:
                    guess = np.full(size, np.nan)
                    known = _in_packs(program, STAGES[index], blocks, lanes, guess)
                    break
                go_on = np.asarray(_wide(question, known, ways, only_worst))
                if enough is not None:
                    worse = (x.reshape(ways, -1).max(0) for x in (known.lower, known.upper))
                    go_on = go_on & ~np.tile(np.asarray(enough(LogBounds(*worse))), ways)
                at = np.flatnonzero(go_on)
                if at.size == 0:
                    break
                picked = jax.tree.map(lambda x, at=at: x[at], (lanes, known.guess))
                found = _in_packs(program, STAGES[index], blocks, *picked)
                before = jax.tree.map(lambda x, at=at: x[at], known)
                for old, new in zip(
                    jax.tree.leaves(known), jax.tree.leaves(_nearer(before, found)), strict=True
                ):
                    old[at] = np.asarray(new)
    assert known is not None
    return known


def _in_packs(
    program: Callable[..., Found], stage: Stage, blocks: int, lanes: Batch, guess: Lanes
) -> Found:
    """`program` of known lanes, a fixed number a call, so that few shapes are compiled."""
    size = guess.size
    pack = min(at_once(stage), few_sizes(size))
    index = np.minimum(np.arange(-(-size // pack) * pack), size - 1).reshape(-1, pack)
    count = np.int32(blocks)
    calls = [(*jax.tree.map(lambda x, i=i: x[i], (lanes, guess)), count) for i in index]
    # In two threads the same would be compiled twice.
    found = [program(*calls[0]), *in_threads(program, calls[1:])]
    return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x])[:size], *found)


def _traced(question: Question, lanes: Batch, ways: int, with_slopes: bool) -> Found:
    size = lanes.value.size
    stage = partial(_stage, question)
    if size > FEW:
        known = stage(0, with_slopes, lanes, xp.full(size, xp.nan), 1)
    else:
        known = _unknown(question, lanes, with_slopes)
    pack = min(at_once(LONG), size)

    def level(index: Index | int, known: Found) -> Found:
        blocks = xp.asarray(BLOCKS[1])[index]

        def candidates(state: tuple[Found, Bools]) -> Bools:
            known, tried = state
            wide = _wide(question, known, ways, False) & ~tried
            first = _wide(question, known, ways, True) & ~tried
            others = xp.any(first.reshape(ways, -1), 0)
            return xp.where(xp.tile(others, ways), first, wide)

        def step(state: tuple[Found, Bools]) -> tuple[Found, Bools]:
            known, tried = state
            at = xp.nonzero(candidates(state), size=pack, fill_value=size)[0]
            picked = jax.tree.map(lambda x: x[xp.minimum(at, size - 1)], (lanes, known))
            found = stage(1, with_slopes, picked[0], picked[1].guess, blocks)
            found = _nearer(picked[1], found)
            known = jax.tree.map(lambda x, y: x.at[at].set(y, mode="drop"), known, found)
            return known, tried.at[at].set(True, mode="drop")

        state = known, xp.zeros(size, bool)
        return lax.while_loop(lambda x: xp.any(candidates(x)), step, state)[0]

    return lax.fori_loop(0, len(BLOCKS[1]), level, known)


def _unknown(question: Question, lanes: Batch, with_slopes: bool) -> Found:
    """Bounds of lanes before any stage: the trivial ones."""
    least, most = (0.0, xp.inf) if question == "epsilon" else (-xp.inf, 0.0)
    lower, upper, guess = (xp.full_like(lanes.value, x) for x in (least, most, xp.nan))
    slopes = jax.tree.map(xp.zeros_like, lanes) if with_slopes else None
    return Found(lower, upper, guess, slopes)


def _wide(question: Question, known: Found, ways: int, only_worst: bool) -> Any:
    """True of directions that go on: of wide lanes, those that may be the worse one."""
    lower, upper = (x.reshape(ways, -1) for x in (known.lower, known.upper))
    worst_lower, worst_upper = lower.max(0, keepdims=True), upper.max(0, keepdims=True)
    near = NEAR * (1.0 + worst_lower) if question == "epsilon" else NEAR
    wide = ~(worst_upper - worst_lower <= near) & ~(worst_upper < LEAST_UNIT)
    go_on = (upper == worst_upper) if only_worst else ~(upper < worst_lower)
    return (wide & ~(worst_lower == np.inf) & go_on).ravel()


def _nearer(known: Found, found: Found) -> Found:
    """The nearer bounds, the newer guess, and the slopes of the narrower bracket."""
    lib: Any = np if checks.all_concrete(known, found) else xp
    lower, upper = lib.fmax(known.lower, found.lower), lib.fmin(known.upper, found.upper)
    guess = lib.where(lib.isnan(found.guess), known.guess, found.guess)
    better = ~(found.upper - found.lower > known.upper - known.lower)

    def slope(old: Any, new: Any) -> Any:
        return lib.where(better.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    slopes = jax.tree.map(slope, known.slopes, found.slopes)
    return Found(lib.minimum(lower, upper), upper, guess, slopes)
