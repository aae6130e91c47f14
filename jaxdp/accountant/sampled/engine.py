"""Bounds on delta and epsilon of sampled Gaussians in few phases, beside plain Gaussians.

Identity: the inversion of `contour`. A short sum (`BULK`) serves most lanes of a batch. A long one
(`LONG`) serves the others; its number of blocks grows while a bracket is wide. A release that
samples everything is a plain Gaussian. Error: `errors`. Derivatives are the derivatives of the
contour's sum, with nodes and contour fixed, and of its inverse. Chosen by `engines` first for
sampled Gaussians (`serves`).
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
from jaxdp._core.tracing import kernel
from jaxdp._core.types import Index, Lanes, Reals
from jaxdp.accountant.batches import few_sizes, of_platform
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.cascade import Step
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.sampled import curve
from jaxdp.accountant.sampled.derivative import log_delta_slopes
from jaxdp.accountant.sampled.law import Releases, Stage
from jaxdp.accountant.sampled.plan import LEAST_UNIT
from jaxdp.accountant.sampled.releases import releases_of

Question: TypeAlias = Literal["log delta", "epsilon"]

MOST_PHASES = 8  # of traced releases. chosen: beyond, the general contour is faster
LARGEST_EPSILON = 1e9  # largest epsilon at which delta is evaluated. chosen

# A short sum over a law that ends sharply. chosen
BULK = Stage(nodes=64, points=16, start=-8.7, depth=20.0, height=0.0)
# A long sum over a law with a smooth cutoff. chosen
LONG = Stage(nodes=256, points=256, start=-9.5, depth=28.0, height=7.0, blocks=64)
# Numbers of its blocks, one after the other. chosen
BLOCKS = (1, 4, 16, 64)
# Bytes of the lanes of one step. chosen: a CPU's cache, and a part of an accelerator's
MEMORY = {"cpu": 2**27, "other": 2**31}
# Lanes that NumPy evaluates before a program is compiled. measured: 1.5 ms a lane, compiled .6
MOST_ON_HOST = 2**13
FEW = 64  # lanes up to which a batch begins with the long stage. chosen: it saves a compilation
ARRAYS = 24  # of a lane's nodes in memory at once. measured
MOST_AT_ONCE = {"cpu": 256, "other": 4096}  # lanes. measured: more are not faster
GUESSED = 1.0  # largest width of a bracket whose middle is a guess, nats or over epsilon. chosen


class Batch(NamedTuple):
    """Releases with the axes of `Releases` reversed, and epsilon or delta (lanes,)."""

    releases: Releases
    value: Reals


def serves(terms: Terms) -> bool:
    """True for sampled Gaussians, traced ones in few phases, beside Gaussians not sampled."""
    sampled = [term for term in terms if not is_gaussian(term)]
    phases = sum(term.count.shape[-1] for term in sampled)
    most = np.inf if checks.all_concrete(terms) else MOST_PHASES
    return 0 < phases <= most and all(term.pair.mixtures() for term in sampled)


def steps(question: Question, near: float) -> tuple[Step, ...]:
    """The stages in turn, the second one for brackets wider than `near`."""
    function = {"log delta": log_bounds, "epsilon": epsilon_bounds}[question]
    bulk, long = (partial(function, stage) for stage in (BULK, LONG))
    # Below the least unit a contour only has Chernoff's bounds.
    least = LEAST_UNIT if question == "log delta" else -np.inf
    return (
        Step(bulk, more_than=FEW),
        Step(long, near, BLOCKS, least, pack=partial(at_once, LONG)),
    )


def log_bounds(
    stage: Stage, terms: Terms, epsilon: Lanes, known: LogBounds, blocks: Index | int
) -> LogBounds:
    """Bounds on log delta at epsilons >= 0."""
    releases, log_hit = releases_of(terms)
    at = xp.minimum(epsilon, LARGEST_EPSILON)
    near = known.upper - known.lower < GUESSED
    guess = xp.where(near, 0.5 * (known.lower + known.upper), xp.nan)
    found = _bounds("log delta", stage, Batch(releases, at), guess, blocks)
    bad = xp.isnan(_sum_of(releases) + epsilon)
    upper = xp.where(bad, xp.nan, xp.minimum(found.upper, log_hit))
    lower = xp.where(epsilon <= LARGEST_EPSILON, found.lower, -xp.inf)
    return LogBounds(xp.minimum(lower, upper), upper)


def epsilon_bounds(
    stage: Stage, terms: Terms, delta: Lanes, known: LogBounds, blocks: Index | int
) -> LogBounds:
    """Bounds on the least epsilon >= 0 at each delta; the upper one is safe."""
    releases, log_hit = releases_of(terms)
    inside = (delta > 0) & (delta < 1)
    safe = xp.where(inside, delta, 0.5)
    near = known.upper - known.lower < GUESSED * (0.1 + known.lower)
    guess = xp.where(near, 0.5 * (known.lower + known.upper), xp.nan)
    found = _bounds("epsilon", stage, Batch(releases, safe), guess, blocks)
    bad = xp.isnan(_sum_of(releases) + delta)
    met = inside & (xp.log(safe) >= log_hit)
    lower, upper = (xp.where(met, 0.0, x) for x in (found.lower, found.upper))
    lower, upper = xp.where(inside, lower, 0.0), xp.where(inside, upper, xp.inf)
    upper = xp.where(bad, xp.nan, upper)
    return LogBounds(xp.minimum(lower, upper), upper)


def _sum_of(releases: Releases) -> Reals:
    """Sum of a lane's parameters: NaN where one is bad."""
    releases = releases._replace(sign=xp.zeros_like(releases.sign))
    parts = (xp.sum(x, tuple(range(1, x.ndim))) for x in releases)
    return sum(parts, start=xp.zeros(()))


def at_once(stage: Stage) -> int:
    """Number of lanes in one step: a power of two."""
    tables = 4 * (32 + stage.blocks) if stage.blocks > 1 else 0
    each = 8 * (stage.nodes * (ARRAYS + tables) + 8 * stage.points * stage.blocks)
    return int(
        np.clip(1 << (of_platform(MEMORY) // each).bit_length() - 1, 8, of_platform(MOST_AT_ONCE))
    )


class _OnHost:
    """Number of lanes that NumPy has evaluated in this process."""

    lanes = 0

    @classmethod
    def takes(cls, lanes: int) -> bool:
        """True for few lanes, and for more until a compilation would have paid."""
        cls.lanes += lanes
        return lanes <= FEW or cls.lanes <= MOST_ON_HOST


def _bounds(
    question: Question, stage: Stage, lanes: Batch, guess: Reals, blocks: Index | int
) -> LogBounds:
    """Bounds of one stage; concrete lanes in packs of one size, so that few shapes compile."""
    if not checks.all_concrete(lanes, guess):
        return _differentiable(question, stage, lanes, guess, blocks)
    size = guess.size
    on_host = _OnHost.takes(size)
    program = partial(_stage, question, stage) if on_host else _PROGRAMS[question, stage]
    lanes, guess = jax.tree.map(np.asarray, (lanes, guess))
    pack = min(at_once(stage), size if on_host else few_sizes(size))
    index = np.minimum(np.arange(-(-size // pack) * pack), size - 1).reshape(-1, pack)
    calls = [jax.tree.map(lambda x, i=i: x[i], (lanes, guess)) for i in index]

    def answered(lanes: Batch, guess: Reals) -> LogBounds:
        with kernel():
            return program(lanes, guess, xp.asarray(blocks, xp.int32))

    # Two threads would compile the same program twice.
    found = [answered(*calls[0]), *in_threads(answered, calls[1:])]
    return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x])[:size], *found)


def _stage(
    question: Question, stage: Stage, lanes: Batch, guess: Reals, blocks: Index | int
) -> LogBounds:
    return _stage_and_slopes(question, stage, False, lanes, guess, blocks)[0]


def _stage_and_slopes(
    question: Question,
    stage: Stage,
    with_slopes: bool,
    lanes: Batch,
    guess: Reals,
    blocks: Index | int,
) -> tuple[LogBounds, Batch | None]:
    """Bounds of one stage for lanes, some at a time, and slopes of both in every parameter."""
    size = guess.size
    chunk = min(at_once(stage), size)

    def padded(x: Reals) -> Reals:
        width = [(0, -size % chunk), *[(0, 0)] * (x.ndim - 1)]
        return xp.pad(x, width, mode="edge").reshape(-1, chunk, *x.shape[1:])

    def of_chunk(at: tuple[Batch, Reals]) -> tuple[LogBounds, Batch | None]:
        lanes, guess = at
        releases = Releases(*(x.T for x in lanes.releases))
        answer = _CURVES[question](stage, releases, lanes.value, guess, blocks)
        bounds = LogBounds(answer.lower, answer.upper)
        if not with_slopes:
            return bounds, None
        of_releases, of_epsilon = log_delta_slopes(stage, releases, answer.frozen)
        if question == "epsilon":  # epsilon does not fall below 0
            falls = answer.upper > 0
            of_releases = Releases(*(xp.where(falls, -x / of_epsilon, 0.0) for x in of_releases))
            of_epsilon = xp.where(falls, 1.0 / (of_epsilon * lanes.value), 0.0)
        return bounds, Batch(Releases(*(x.T for x in of_releases)), of_epsilon)

    with jax.numpy_rank_promotion("allow"):
        if chunk == size:
            return of_chunk((lanes, guess))
        found = lax.map(of_chunk, jax.tree.map(padded, (lanes, guess)))
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:size], found)


def _differentiable(
    question: Question, stage: Stage, lanes: Batch, guess: Reals, blocks: Index | int
) -> LogBounds:
    """Bounds of traced lanes; the upper ones carry their slopes."""

    @jax.custom_jvp
    def bounds_of(lanes: Batch) -> LogBounds:
        return _stage(question, stage, lanes, guess, blocks)

    @bounds_of.defjvp
    def along(primals: Any, tangents: Any) -> tuple[LogBounds, LogBounds]:
        bounds, slopes = _stage_and_slopes(question, stage, True, primals[0], guess, blocks)
        parts = jax.tree.map(
            lambda s, t: xp.sum(s * t, tuple(range(1, s.ndim))), slopes, tangents[0]
        )
        total = sum(jax.tree.leaves(parts), start=xp.zeros_like(bounds.upper))
        return bounds, LogBounds(xp.zeros_like(total), total)

    return bounds_of(lanes)


_CURVES: dict[Question, Callable[..., curve.Answer]] = {
    "log delta": curve.log_delta_bounds,
    "epsilon": curve.epsilon_bounds,
}
_PROGRAMS = {
    (question, stage): compiled(partial(_stage, question, stage), (), lanes=0)
    for question in _CURVES
    for stage in (BULK, LONG)
}
