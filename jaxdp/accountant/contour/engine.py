"""Bounds on delta and epsilon by inversion along a vertical contour, for lanes side by side.

Identity: `terms`. Error and slopes: `curve`. Where Chernoff's bound is below the sum with its
errors, it is the upper bound.

Sampled Gaussians are rows of their own (`mixtures`): a short sum (`BULK`) serves most lanes of a
batch, a long one (`LONG`) the others. Any other losses, and mixed ones, are `laws`. The number of
blocks of a long sum grows while a bracket is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.contour import curve
from jaxdp.accountant.contour.laws import laws_of
from jaxdp.accountant.contour.mixtures import LEAST_UNIT
from jaxdp.accountant.contour.nodes import Rows, Stage
from jaxdp.accountant.runner import by_lanes
from jaxdp.accountant.steps import Engine, LogBounds, Question, Tangents
from jaxdp.dominating_pair.base import log_of_infinite, rounding_of_infinite

# Maps a batch to its rows, axes reversed, and log of the probability that a record is sampled.
Maker: TypeAlias = Callable[[Batch], tuple[Rows, Reals]]

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
MEMORY = 2**27  # bytes of the lanes of one piece. measured
ARRAYS = 24  # of a lane's nodes in memory at once. measured
MOST_AT_ONCE = 256  # lanes. measured: more are not faster
GUESSED = 1.0  # largest width of a bracket whose middle is a guess, nats or over epsilon. chosen


class Lanes(NamedTuple):
    """Rows with their axes reversed, and arrays (lanes,)."""

    rows: Rows
    log_hit: Reals
    value: Any  # epsilon or delta
    known: LogBounds  # bounds before


class _Point(NamedTuple):
    """Arguments of a contour's bound."""

    rows: Rows
    value: Reals  # epsilon >= 0, or the delta of finite losses


class _Line(NamedTuple):
    """Upper bounds at points, and their slopes in all numbers of the points."""

    point: _Point
    upper: Reals
    slopes: Any


def serves(terms: Terms) -> bool:
    """True for sampled Gaussians beside plain ones."""
    sampled = [term for term in terms if not is_gaussian(term)]
    return bool(sampled) and all(term.pair.mixtures() for term in sampled)


def are_few(terms: Terms) -> bool:
    """True for few sampled Gaussians of small groups."""
    sampled = [term for term in terms if not is_gaussian(term)]
    phases = sum(term.count.shape[-1] for term in sampled)
    components = max(one.mean.shape[-1] for term in sampled for one in term.pair.mixtures())
    return phases <= MOST_PHASES and components <= MOST_COMPONENTS


def engine(
    question: Question,
    stage: Stage,
    rows_of: Maker,
    skips: Callable[[Batch], Any] | None = None,
) -> Engine:
    """The engine of one stage."""

    def arrays(batch: Batch, known: LogBounds) -> Lanes:
        return Lanes(*rows_of(batch), batch.values, known)

    def most(lanes: Lanes) -> int:
        return at_once(stage, lanes.rows.nodes(stage))

    def solve(lanes: Lanes, blocks: Any) -> LogBounds:
        return _stage(question, stage, False, lanes, blocks)[0]

    tangents = Tangents(
        arrays, partial(_stage, question, stage, True), partial(_moved, question), most
    )
    # Below the least unit a contour only has Chernoff's bounds.
    has_unit = question == "log delta" and stage == LONG and rows_of is not laws_of
    least = LEAST_UNIT if has_unit else -np.inf
    return by_lanes(arrays, solve, most, least=least, skips=skips, tangents=tangents)


def _prepared(question: Question, lanes: Lanes) -> tuple[_Point, Reals]:
    """The point of every lane, and a guess of its log delta or epsilon."""
    known, scale, value = lanes.known, 1.0, xp.minimum(lanes.value, LARGEST_EPSILON)
    if question == "epsilon":
        finite, inside = _finite_delta(lanes)
        value, scale = xp.where(inside, finite, 0.5), 0.1 + known.lower
    near = known.upper - known.lower < GUESSED * scale
    return _Point(lanes.rows, value), xp.where(near, 0.5 * (known.lower + known.upper), xp.nan)


def finished_log(lanes: Lanes, found: LogBounds) -> LogBounds:
    """Bounds on log delta at epsilons >= 0, from those for finite losses."""
    rows, log_hit, epsilon, _ = lanes
    lower = xp.where(epsilon <= LARGEST_EPSILON, found.lower, -xp.inf)
    infinite = log_of_infinite(rows.log_finite)
    has_infinite = infinite != -xp.inf  # true for NaN, which stays
    error = rounding_of_infinite(infinite, xp.sum(xp.where(rows.number != 0, 1.0, 0.0), -1))
    ends = (lower, infinite - error), (found.upper, infinite + error)
    lower, upper = (xp.where(has_infinite, xp.logaddexp(x, y), x) for x, y in ends)
    bad = xp.isnan(sum_of(rows) + epsilon)
    upper = xp.where(bad, xp.nan, xp.minimum(upper, log_hit))
    return LogBounds(xp.minimum(lower, upper), upper)


def _finite_delta(lanes: Lanes) -> tuple[Reals, Bools]:
    """delta of finite losses, and whether it lies between 0 and 1."""
    finite = lanes.value + xp.expm1(lanes.rows.log_finite)
    return finite, (finite > 0) & (lanes.value < 1)


def _finished_epsilon(lanes: Lanes, found: LogBounds) -> LogBounds:
    """Bounds on the least epsilon >= 0 at each delta; the upper one is safe."""
    rows, log_hit, delta, _ = lanes
    finite, inside = _finite_delta(lanes)
    bad = xp.isnan(sum_of(rows) + delta)
    met = inside & (xp.log(xp.where(inside, delta, 0.5)) >= log_hit)
    lower, upper = (xp.where(met, 0.0, x) for x in found)
    impossible = xp.where(delta > 0, xp.inf, 0.0)
    lower = xp.where(inside, lower, xp.where(finite > 0, 0.0, impossible))
    upper = xp.where(bad, xp.nan, xp.where(inside, upper, xp.inf))
    return LogBounds(xp.minimum(lower, upper), upper)


def _moved(question: Question, lanes: Lanes, line: _Line) -> Reals:
    """Upper bounds of lanes near the points of a line."""
    point = _prepared(question, lanes)[0]

    def along(x: Any, before: Any, slope: Any) -> Any:
        before, slope = (_padded(y, x.shape) for y in (before, slope))
        x = _padded(x, before.shape)
        moves = (slope != 0) & xp.isfinite(slope) & xp.isfinite(x) & xp.isfinite(before)
        step = xp.where(moves, x, 0.0) - xp.where(moves, before, 0.0)
        slope = xp.where(moves, slope, 0.0)
        return xp.sum((slope * step).reshape(slope.shape[0], -1), 1)

    parts = jax.tree.leaves(jax.tree.map(along, point, line.point, line.slopes))
    upper = line.upper + sum(parts)
    return _FINISHED[question](lanes, LogBounds(xp.full_like(upper, -xp.inf), upper)).upper


def _padded(x: Any, shape: tuple[int, ...]) -> Any:
    """x with zeros where `shape` is larger."""
    return xp.pad(x, [(0, max(b - a, 0)) for a, b in zip(x.shape, shape, strict=True)])


def sum_of(rows: Rows) -> Reals:
    """Sum of a lane's parameters: NaN where one is bad."""
    return sum((xp.sum(x, tuple(range(1, x.ndim))) for x in rows.parameters), start=xp.zeros(()))


def at_once(stage: Stage, nodes: int) -> int:
    """Number of lanes in one piece, a power of two, for `nodes` nodes of all phases."""
    tables = 4 * (32 + stage.blocks) if stage.blocks > 1 else 0
    each = 8 * (nodes * (ARRAYS + tables) + 8 * stage.points * stage.blocks)
    return min(1 << max((MEMORY // each).bit_length() - 1, 0), MOST_AT_ONCE)


def _stage(
    question: Question, stage: Stage, with_slopes: bool, lanes: Lanes, blocks: Index | int
) -> tuple[LogBounds, _Line | None]:
    """Bounds of lanes side by side, and slopes of the upper ones in every parameter."""
    point, guess = _prepared(question, lanes)
    with jax.numpy_rank_promotion("allow"):
        rows = lanes_last(point.rows)
        found, frozen = _CURVES[question](stage, rows, point.value, guess, blocks)
        bounds = _FINISHED[question](lanes, found)
        if not with_slopes:
            return bounds, None
        of_rows, of_epsilon = curve.log_delta_slopes(stage, rows, frozen)
        if question == "epsilon":  # epsilon does not fall below 0
            falls = (found.upper > 0) & (of_epsilon < 0)
            scale = xp.where(falls, -1.0 / xp.where(falls, of_epsilon, -1.0), 0.0)
            of_rows = jax.tree.map(lambda x: scale * x, of_rows)
            of_epsilon = -scale / point.value
        return bounds, _Line(point, found.upper, _Point(lanes_last(of_rows), of_epsilon))


def lanes_last(rows: Any) -> Any:
    """Rows with their axes reversed."""
    return jax.tree.map(lambda x: x.T, rows)


_CURVES: dict[Question, Callable[..., Any]] = {
    "log delta": curve.log_delta_bounds,
    "epsilon": curve.epsilon_bounds,
}
_FINISHED: dict[Question, Callable[..., LogBounds]] = {
    "log delta": finished_log,
    "epsilon": _finished_epsilon,
}
