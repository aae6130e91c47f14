"""Bounds at many epsilons, or many deltas, of one loss, from a few contours.

The sum of a contour holds at every epsilon, and its terms do not depend on it. So a few contours,
planned for log deltas from that of epsilon 0 down to `LEAST_LOG_DELTA`, serve all epsilons of one
loss: each takes the contour whose errors are least there. An epsilon at a delta is found by
Newton's method on the upper bound, from a grid of epsilons.

Error: the five errors of `curve` at the contour that is taken, plus the rounding of a turn by more
than its own epsilon. A value is answered only if its bracket is at most `WIDER` times the brackets
of contours at their own epsilons around it, which a value alone has. Any other value has an upper
bound, but no lower one, so that it goes on alone.

Values of one loss are those whose terms are equal, byte by byte. The contours of the losses used
last are kept: they are functions of the loss alone, so that an answer does not depend on them.
Chosen by `engines` as the first step of concrete values, if enough of them belong to one loss.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.namespace import kernel
from jaxdp._core.types import Lanes as Values
from jaxdp.accountant import inverse
from jaxdp.accountant.batch import Batch, Loss
from jaxdp.accountant.contour import curve
from jaxdp.accountant.contour import engine as contour
from jaxdp.accountant.contour.curve import Errors
from jaxdp.accountant.contour.engine import (
    LARGEST_EPSILON,
    LONG,
    OF_LAWS,
    Lanes,
    Maker,
    at_once,
    finished_log,
    lanes_last,
    sum_of,
)
from jaxdp.accountant.contour.laws import laws_of
from jaxdp.accountant.contour.mixtures import mixtures_of
from jaxdp.accountant.contour.nodes import LARGEST_LOG, FrozenContour, Stage
from jaxdp.accountant.inverse import Reading
from jaxdp.accountant.steps import Engine, LogBounds, Question, of_numpy

CONTOURS = 10  # of a loss. measured: 8 widen brackets between them, 12 answer no more values
LEAST_LOG_DELTA = -34.0  # of the last contour. chosen: deltas that are reported are above
WIDER = 1.25  # times the bracket at a contour's own epsilon. measured: twice what it has alone
MOST_GROWTH = 4.0  # of brackets from one contour to the last. chosen: the last plan can be bad
CLOSE = 1e-10  # width of a bracket that is not compared. chosen: far below what is reported
GRID = 97  # epsilons between which Newton's method starts. chosen: its first step is within 1e-3
NEAR = 64  # points of a sum that are turned at once. chosen: a square root of their number
TINY = 1e-300  # derived: a normal number
# Width of a smoothed total's bracket that 16 times as many points leave wide. derived: over 16^2 it
# is above the width from which on the next engine is evaluated
HOPELESS = 3e-4
KEPT = 8  # losses whose contours are kept. chosen: 100 kB each, with all blocks 8 MB


class Way(NamedTuple):
    """Rows of laws or of mixtures."""

    stage: Stage
    rows_of: Maker
    fewest: int  # values of a loss. measured: as many take as long alone


MIXTURES = Way(LONG, mixtures_of, 24)
LAWS = Way(OF_LAWS, laws_of, 12)


class Contours(NamedTuple):
    """Contours of one loss, planned for falling log deltas."""

    series: Any  # (contours, 3, points): terms of delta, of its slope, of the density
    turned: Any  # (contours,): sum of |term| t
    errors: Errors  # (..., contours)
    frozen: FrozenContour
    # Epsilons (contours,), and logs of the widths that brackets of log delta have there alone.
    alone: tuple[Any, Any]
    rows: Any  # one lane, for what does not depend on the contour
    log_hit: Any  # ()


def read(of: Contours, epsilon: Any) -> tuple[Reading, Any]:
    """Bounds at epsilons >= 0, each from the contour with the least errors there.

    And True where the bracket is as narrow as at a contour's own epsilon.
    """
    move = epsilon[:, None] - of.frozen.epsilon
    fall, unit = of.frozen.tilt * move, of.frozen.log_unit
    noise = np.log(of.errors.noise[0] + TINY) + of.errors.log_scale - fall
    lost = of.errors.lost + of.errors.tilted_lost * np.exp(np.minimum(-fall, LARGEST_LOG))
    size = unit + np.logaddexp(noise, np.log(lost + TINY))
    best = np.argmin(np.where(np.isnan(size), np.inf, size), axis=1)
    sums: Any = np.zeros((3, epsilon.size))
    for i in np.unique(best):
        here = np.flatnonzero(best == i)
        sums[:, here] = _turned(of.series[i], of.frozen.step[i] * move[here, i])
    errors, frozen = (jax.tree.map(lambda x: np.asarray(x)[..., best], x) for x in of[2:4])
    found = curve.read(errors, frozen, epsilon, sums, of.turned[best])
    width = np.where(found.upper == -np.inf, 0.0, found.upper - found.lower)
    alone = np.exp(np.interp(epsilon, *of.alone))
    # A smoothed total varies little with the contour.
    return found, (width <= np.maximum(WIDER * alone, CLOSE)) | (frozen.smoothed > 0)


def _turned(series: np.ndarray, turn: Values) -> np.ndarray:
    """Re sum_k term_k e^(-i k turn) of rows of terms (rows, points), at turns: (rows, values)."""
    rows, points = series.shape
    near = np.exp(-1j * turn[:, None] * np.arange(NEAR))
    far = np.exp(-1j * turn[:, None] * np.arange(0, points, NEAR))
    blocks = near @ series.reshape(-1, NEAR).T  # (values, rows and blocks)
    return np.einsum("vrb,vb->rv", blocks.reshape(len(turn), rows, -1), far).real


def built(stage: Stage, rows_of: Maker, batch: Batch, blocks: int) -> list[Contours]:
    """Contours of a batch of losses, all of them side by side."""
    rows, log_hit = jax.tree.map(np.asarray, rows_of(batch))
    losses, one = log_hit.size, lanes_last(rows)
    zero: Any = np.zeros(losses)
    first = curve.rough_log_delta(stage, one, zero)
    ends = np.sqrt(-2.0 * np.maximum(first, 0.5 * LEAST_LOG_DELTA)), np.sqrt(-2.0 * LEAST_LOG_DELTA)
    log_delta = -0.5 * np.linspace(*ends, CONTOURS, axis=-1).ravel() ** 2
    lanes = jax.tree.map(lambda x: np.repeat(x, CONTOURS, axis=-1), one)
    place, planned = curve.contour_for(stage, lanes, blocks, log_delta, None)
    found = curve.curve_of(stage, lanes, place, planned, blocks)
    frozen = found.frozen._replace(place=None, height=None, blocks=np.zeros(len(log_delta)))
    points = stage.points * blocks
    series = np.zeros((len(log_delta), 3, points + -points % NEAR), complex)
    for i, (re, im) in enumerate(found.pairs):
        each = (re + 1j * im)[:blocks].reshape(points, -1)
        series[:, i, :points] = each.T
    turned = frozen.step * (np.abs(series[:, 0]) @ np.arange(series.shape[-1]))
    parts = []
    for i in range(losses):
        part = slice(i * CONTOURS, (i + 1) * CONTOURS)
        pick = partial(jax.tree.map, lambda x, part=part: np.asarray(x)[..., part])
        own = jax.tree.map(lambda x, i=i: x[i : i + 1], rows)
        unknown = np.zeros(1), np.full(1, np.inf)
        each = pick(found.errors), pick(frozen), unknown, own, log_hit[i]
        of = Contours(series[part], turned[part], *each)
        parts.append(of._replace(alone=_alone(of)))
    return parts


def _alone(of: Contours) -> tuple[np.ndarray, np.ndarray]:
    """`Contours.alone`: a width that is greater than a later one is a bad plan's."""
    epsilon = np.sort(of.frozen.epsilon)
    found, _ = read(of, epsilon)
    width = found.upper - found.lower + CLOSE
    width[-1] = min(width[-1], MOST_GROWTH * width[-2])
    width = np.where(np.isnan(width), np.inf, width)
    least = np.minimum.accumulate(width[::-1])[::-1]
    known = np.isfinite(least)
    return epsilon, np.log(np.where(known, least, least[known].max(initial=CLOSE)))


def log_delta(of: Contours, epsilon: Values) -> LogBounds:
    """Bounds on log delta at epsilons >= 0; without a lower end where they are not close."""
    found, is_close = read(of, np.minimum(epsilon, LARGEST_EPSILON))
    bounds = LogBounds(found.lower, found.upper)
    bounds = finished_log(Lanes(of.rows, of.log_hit, epsilon, bounds), bounds)
    inside = (epsilon <= LARGEST_EPSILON) & is_close
    return of_numpy(np.where(inside, bounds.lower, -np.inf), bounds.upper)


def epsilon(of: Contours, delta: Values) -> LogBounds:
    """Bounds on the least epsilons; without a lower end where they are not close."""
    finite = delta + np.expm1(of.rows.log_finite)
    inside = (finite > 0) & (delta < 1) & (np.log(delta) < of.log_hit) & ~np.isnan(sum_of(of.rows))
    goal: Any = np.log(np.where(inside, finite, 0.5))
    grid: Any = np.max(of.frozen.epsilon) * np.linspace(0.0, 1.0, GRID)
    falling = np.minimum.accumulate(read(of, grid)[0].upper)
    start = np.interp(-goal, -falling, grid)
    most: Any = np.full(goal.shape, LARGEST_EPSILON)
    lower, upper = inverse.epsilon_bounds(lambda x: read(of, x)[0], goal, start, most)
    is_close = read(of, np.minimum(upper, LARGEST_EPSILON))[1]
    is_answered = inside & is_close & (lower > 0) & (upper < np.inf) & (goal < falling[0])
    return of_numpy(np.where(is_answered, lower, -np.inf), np.where(inside, upper, np.inf))


def engine(question: Question, way: Way) -> Engine:
    """The engine of values of one loss; the contour of one value has the slopes."""
    tangents = contour.engine(question, way.stage, way.rows_of).tangents
    return Engine(partial(_bounds, question, way), tangents=tangents)


def _bounds(question: Question, way: Way, batch: Batch, known: LogBounds, blocks: int) -> LogBounds:
    """Bounds of the lanes whose loss has enough of them, or was answered before."""
    values: Any = batch.values
    answer = log_delta if question == "log delta" else epsilon
    bounds: Any = of_numpy(np.full(values.shape, -np.inf), np.full(values.shape, np.inf))
    was_answered = np.isfinite(known.lower)
    if values.size < way.fewest and not was_answered.any():
        return bounds
    losses = [x for x in batch.losses if x.lanes.size >= way.fewest or was_answered[x.lanes].any()]
    with kernel(), jax.numpy_rank_promotion("allow"):
        if blocks > 1:
            width = np.asarray(known.upper) - np.asarray(known.lower)
            losses = [x for x in losses if _can_narrow(way, batch, x, width[x.lanes])]
        if not losses:
            return bounds
        nodes = way.rows_of(batch.at(losses[0].lanes[:1]))[0].nodes(way.stage)
        size = max(at_once(way.stage, nodes) // CONTOURS, 1)
        for start in range(0, len(losses), size):
            part = losses[start : start + size]
            for loss, of in zip(part, _contours(way, blocks, batch, part), strict=True):
                found = answer(of, values[loss.lanes])
                for x, y, unknown in zip(bounds, found, (-np.inf, np.inf), strict=True):
                    x[loss.lanes] = np.where(np.isnan(y), unknown, y)
    return bounds


def _can_narrow(way: Way, batch: Batch, loss: Loss, width: np.ndarray) -> bool:
    """False if more points would not narrow the bracket: psi of atoms does not fall."""
    if width.min() <= HOPELESS:
        return True
    return not (_contours(way, 1, batch, [loss])[0].frozen.smoothed > 0).all()


# The last used one last. Single operations alone, which other threads and forks do not divide.
_kept: OrderedDict[Any, Contours] = OrderedDict()


def _contours(way: Way, blocks: int, batch: Batch, losses: list[Loss]) -> list[Contours]:
    """The contours of losses, kept or new."""
    keys = [(way, blocks, x.key) for x in losses]
    found = {key: kept for key in keys if (kept := _kept.get(key)) is not None}
    missing = {key: x for key, x in zip(keys, losses, strict=True) if key not in found}
    if missing:
        lanes = np.array([x.lanes[0] for x in missing.values()])
        new = built(way.stage, way.rows_of, batch.at(lanes), blocks)
        found.update(zip(missing, new, strict=True))
    for key in keys:
        _kept.pop(key, None)
        _kept[key] = found[key]
    with contextlib.suppress(KeyError):
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return [found[key] for key in keys]
