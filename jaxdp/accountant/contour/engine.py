"""Bounds on delta and epsilon by inversion along a vertical contour, for lanes side by side.

Identity: `terms`. Error: `errors`. Derivatives: `slopes`, of the sum and of its inverse. Where
Chernoff's bound is below the sum with its errors, it is the upper bound.

Sampled Gaussians are rows of their own (`mixtures`): a short sum (`BULK`) serves most lanes of a
batch, a long one (`LONG`) the others. Any other losses, and mixed ones, are `laws`. The number of
blocks of a long sum grows while a bracket is wide.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import compiled
from jaxdp._core.namespace import lax, xp
from jaxdp._core.tracing import in_kernel, kernel
from jaxdp._core.types import Index, Reals
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.batches import in_pieces, lanes_a_call, of_platform
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.cascade import Step
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.contour import curve
from jaxdp.accountant.contour.laws import laws_of
from jaxdp.accountant.contour.mixtures import LEAST_UNIT, mixtures_of
from jaxdp.accountant.contour.nodes import Stage
from jaxdp.accountant.contour.slopes import log_delta_slopes
from jaxdp.dominating_pair.base import log_of_infinite, rounding_of_infinite

Question: TypeAlias = Literal["log delta", "epsilon"]
# Maps a batch to its rows, axes reversed, and log of the probability that a record is sampled.
Maker: TypeAlias = Callable[[Batch], tuple[Any, Reals]]

MOST_PHASES = 8  # of traced mixtures. chosen: beyond, laws are faster
# Components of a traced mixture, one more than records of a group. measured: with 16 records and
# noise below 1, the contour's bracket is infinitely wide, and the laws' 1e-6
MOST_COMPONENTS = 9
LARGEST_EPSILON = 1e9  # largest epsilon at which delta is evaluated. chosen

# A short sum over a mixture that ends sharply. chosen
BULK = Stage(points=16, nodes=64, start=-8.7, depth=20.0)
# A long sum over a mixture with a smooth cutoff. chosen
LONG = Stage(points=256, blocks=64, nodes=256, start=-9.5, depth=28.0, height=7.0)
# A long sum over any law's own nodes. chosen
OF_LAWS = Stage(points=256, blocks=64, depth=30.0)
# Laws without the rare large losses that decide delta and leave a contour no digit. Their
# probability, 4 nats above an estimate of delta or 1 below a given delta, is in the bound. chosen
RARE = {"log delta": OF_LAWS._replace(depth=-4.0), "epsilon": OF_LAWS._replace(depth=1.0)}
# Numbers of its blocks, one after the other. chosen
BLOCKS = (1, 4, 16, 64)
LAW_BLOCKS = (1, 16, 64)  # the same of laws. measured: 4 seldom helps
# Share of a bracket that a sum on laws leaves, above which a longer one is not tried. measured:
# atoms leave nearly all
MOST_LEFT = 0.9
# Bytes of the lanes of one step. measured for NumPy and a CPU; chosen: a part of an accelerator's
MEMORY = {"numpy": 2**27, "cpu": 2**25, "other": 2**31}
# Lanes that NumPy evaluates before a program is compiled. measured: it takes .07 and 2.5 ms a lane,
# programs .06 and 1 ms, a compilation 2 to 3 s
MOST_ON_HOST = {BULK: 2**17, LONG: 2**11}
MOST_LAWS = 2**13  # laws that NumPy evaluates in one call. chosen
FEW = 64  # lanes up to which a batch begins with the long stage. chosen: it saves a compilation
ARRAYS = 24  # of a lane's nodes in memory at once. measured
MOST_AT_ONCE = {"numpy": 256, "cpu": 256, "other": 4096}  # lanes. measured: more are not faster
UNRESOLVED = 0.1  # width of a bracket that resolves no digit, nats. chosen
GUESSED = 1.0  # largest width of a bracket whose middle is a guess, nats or over epsilon. chosen


class _Lanes(NamedTuple):
    """Rows with their axes reversed, and epsilon or delta (lanes,)."""

    rows: Any
    value: Reals


def serves(terms: Terms) -> bool:
    """True for sampled Gaussians, traced ones few and of small groups, beside plain ones."""
    sampled = [term for term in terms if not is_gaussian(term)]
    mixtures = [term.pair.mixtures() for term in sampled]
    if not sampled or not all(mixtures):
        return False
    if checks.all_concrete(terms):
        return True
    phases = sum(term.count.shape[-1] for term in sampled)
    components = max(one.mean.shape[-1] for of_pair in mixtures for one in of_pair)
    return phases <= MOST_PHASES and components <= MOST_COMPONENTS


def steps(question: Question, near: float) -> tuple[Step, ...]:
    """The stages of mixtures in turn, the second one for brackets wider than `near`."""
    # Below the least unit a contour only has Chernoff's bounds.
    least = LEAST_UNIT if question == "log delta" else -np.inf
    return (
        Step(partial(_ENGINES[question], BULK, mixtures_of), more_than=FEW, if_unanswered=True),
        Step(
            partial(_ENGINES[question], LONG, mixtures_of),
            near,
            BLOCKS,
            least,
            pack=partial(at_once, LONG, LONG.nodes),
        ),
    )


def law_step(question: Question) -> Step:
    """The stage of any laws."""
    return Step(
        partial(_ENGINES[question], OF_LAWS, laws_of), levels=LAW_BLOCKS, most_left=MOST_LEFT
    )


def rare_step(question: Question) -> Step:
    """The stage of laws without rare large losses, for brackets wider than `UNRESOLVED`."""
    return Step(partial(_ENGINES[question], RARE[question], laws_of), UNRESOLVED)


def log_bounds(
    stage: Stage, rows_of: Maker, batch: Batch, known: LogBounds, blocks: Any
) -> LogBounds:
    """Bounds on log delta at epsilons >= 0."""
    (rows, log_hit), epsilon = rows_of(batch), batch.values
    at = xp.minimum(epsilon, LARGEST_EPSILON)
    near = known.upper - known.lower < GUESSED
    guess = xp.where(near, 0.5 * (known.lower + known.upper), xp.nan)
    found = _bounds("log delta", stage, _Lanes(rows, at), guess, blocks)
    lower = xp.where(epsilon <= LARGEST_EPSILON, found.lower, -xp.inf)
    lower, upper = with_infinite(rows, LogBounds(lower, found.upper))
    bad = xp.isnan(sum_of(rows) + epsilon)
    upper = xp.where(bad, xp.nan, xp.minimum(upper, log_hit))
    return LogBounds(xp.minimum(lower, upper), upper)


def with_infinite(rows: Any, bounds: LogBounds) -> LogBounds:
    """Bounds on log delta with infinite losses, from bounds for the finite losses."""
    infinite = log_of_infinite(rows.log_finite)
    has_infinite = infinite != -xp.inf  # true for NaN, which stays
    error = rounding_of_infinite(infinite, xp.sum(xp.where(rows.number != 0, 1.0, 0.0), -1))
    ends = (bounds.lower, infinite - error), (bounds.upper, infinite + error)
    return LogBounds(*(xp.where(has_infinite, xp.logaddexp(x, y), x) for x, y in ends))


def epsilon_bounds(
    stage: Stage, rows_of: Maker, batch: Batch, known: LogBounds, blocks: Any
) -> LogBounds:
    """Bounds on the least epsilon >= 0 at each delta; the upper one is safe."""
    (rows, log_hit), delta = rows_of(batch), batch.values
    finite = delta + xp.expm1(rows.log_finite)
    inside = (finite > 0) & (delta < 1)
    safe = xp.where(inside, finite, 0.5)
    near = known.upper - known.lower < GUESSED * (0.1 + known.lower)
    guess = xp.where(near, 0.5 * (known.lower + known.upper), xp.nan)
    found = _bounds("epsilon", stage, _Lanes(rows, safe), guess, blocks)
    bad = xp.isnan(sum_of(rows) + delta)
    met = inside & (xp.log(xp.where(inside, delta, 0.5)) >= log_hit)
    lower, upper = (xp.where(met, 0.0, x) for x in found)
    impossible = xp.where(delta > 0, xp.inf, 0.0)
    lower = xp.where(inside, lower, xp.where(finite > 0, 0.0, impossible))
    upper = xp.where(bad, xp.nan, xp.where(inside, upper, xp.inf))
    return LogBounds(xp.minimum(lower, upper), upper)


def sum_of(rows: Any) -> Reals:
    """Sum of a lane's parameters: NaN where one is bad."""
    return sum((xp.sum(x, tuple(range(1, x.ndim))) for x in rows.parameters), start=xp.zeros(()))


def at_once(stage: Stage, nodes: int, on_host: bool = False) -> int:
    """Number of lanes in one step, a power of two, for `nodes` nodes of all phases."""
    tables = 4 * (32 + stage.blocks) if stage.blocks > 1 else 0
    each = 8 * (nodes * (ARRAYS + tables) + 8 * stage.points * stage.blocks)
    memory, most = (x["numpy"] if on_host else of_platform(x) for x in (MEMORY, MOST_AT_ONCE))
    return min(1 << max((memory // each).bit_length() - 1, 0), most)


# Lanes of mixtures that NumPy has evaluated in this process, by question, stage and nodes.
_evaluated: Counter[tuple[Question, Stage, int]] = Counter()


def _is_on_host(question: Question, stage: Stage, nodes: int, lanes: int) -> bool:
    """True for few lanes, and for more until a compilation would have paid."""
    if stage not in MOST_ON_HOST:
        return lanes <= MOST_LAWS
    _evaluated[question, stage, nodes] += lanes
    return lanes <= FEW or _evaluated[question, stage, nodes] <= MOST_ON_HOST[stage]


def _bounds(
    question: Question, stage: Stage, lanes: _Lanes, guess: Reals, blocks: Index | int
) -> LogBounds:
    """Bounds of one stage; concrete lanes in packs of one size, so that few shapes compile."""
    if not checks.all_concrete(lanes, guess):
        return _differentiable(question, stage, lanes, guess, blocks)
    size, nodes = guess.size, lanes.rows.nodes(stage)
    on_host = _is_on_host(question, stage, nodes, size)
    program = partial(_stage, question, stage) if on_host else _PROGRAMS[question, stage]

    def answered(lanes: _Lanes, guess: Reals) -> LogBounds:
        with kernel() if on_host else contextlib.nullcontext():
            return program(lanes, guess, xp.asarray(blocks, xp.int32))

    pack = lanes_a_call(at_once(stage, nodes, on_host), size, on_host)
    return in_pieces(answered, (lanes, guess), pack)


def _stage(
    question: Question, stage: Stage, lanes: _Lanes, guess: Reals, blocks: Index | int
) -> LogBounds:
    return _stage_and_slopes(question, stage, False, lanes, guess, blocks)[0]


def _stage_and_slopes(
    question: Question,
    stage: Stage,
    with_slopes: bool,
    lanes: _Lanes,
    guess: Reals,
    blocks: Index | int,
) -> tuple[LogBounds, _Lanes | None]:
    """Bounds of one stage for lanes, some at a time, and slopes of both in every parameter."""
    size = guess.size
    chunk = min(at_once(stage, lanes.rows.nodes(stage), in_kernel()), size)

    def padded(x: Reals) -> Reals:
        width = [(0, -size % chunk), *[(0, 0)] * (x.ndim - 1)]
        return xp.pad(x, width, mode="edge").reshape(-1, chunk, *x.shape[1:])

    def of_chunk(at: tuple[_Lanes, Reals]) -> tuple[LogBounds, _Lanes | None]:
        lanes, guess = at
        rows = lanes_last(lanes.rows)
        answer = _CURVES[question](stage, rows, lanes.value, guess, blocks)
        bounds = LogBounds(answer.lower, answer.upper)
        if not with_slopes:
            return bounds, None
        of_rows, of_epsilon = log_delta_slopes(stage, rows, answer.frozen)
        if question == "epsilon":  # epsilon does not fall below 0
            falls = (answer.upper > 0) & (of_epsilon < 0)
            scale = xp.where(falls, -1.0 / xp.where(falls, of_epsilon, -1.0), 0.0)
            of_rows = jax.tree.map(lambda x: scale * x, of_rows)
            of_epsilon = -scale / lanes.value
        return bounds, _Lanes(lanes_last(of_rows), of_epsilon)

    with jax.numpy_rank_promotion("allow"):
        if chunk == size:
            return of_chunk((lanes, guess))
        found = lax.map(of_chunk, jax.tree.map(padded, (lanes, guess)))
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:size], found)


def lanes_last(rows: Any) -> Any:
    """Rows with their axes reversed."""
    return jax.tree.map(lambda x: x.T, rows)


def _differentiable(
    question: Question, stage: Stage, lanes: _Lanes, guess: Reals, blocks: Index | int
) -> LogBounds:
    """Bounds of traced lanes; the upper ones carry their slopes."""

    @jax.custom_jvp
    def bounds_of(lanes: _Lanes) -> LogBounds:
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
    (question, stage): compiled(partial(_stage, question, stage), lanes=0)
    for question in _CURVES
    for stage in (BULK, LONG, OF_LAWS, RARE[question])
}
_ENGINES: dict[Question, Callable[..., LogBounds]] = {
    "log delta": log_bounds,
    "epsilon": epsilon_bounds,
}
