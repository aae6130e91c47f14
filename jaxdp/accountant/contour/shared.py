"""Bounds at many epsilons, or many deltas, of one loss, from a few contours.

The sum of a contour holds at every epsilon, and its terms do not depend on it. So a few contours,
planned for log deltas from that of epsilon 0 down to `LEAST_LOG_DELTA`, serve all epsilons of one
loss: each takes the contour whose errors are least there. An epsilon at a delta is found by
Newton's method on the upper bound, from a grid of epsilons.

Error: the five errors of `curve` at the contour that is taken, plus the rounding of a turn by more
than its own epsilon. A value is answered only if its bracket is at most `WIDER` times the brackets
of contours at their own epsilons around it, which a value alone has. Any other value has an upper
bound, but no lower one, so that it goes on alone. Chosen by `engines` for concrete values, if
enough of them belong to one loss (`values_of_a_loss`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core.types import Lanes
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant import inverse
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.bounds import LogBounds, of_numpy
from jaxdp.accountant.contour import curve
from jaxdp.accountant.contour.cumulant import log_least_delta
from jaxdp.accountant.contour.curve import Errors
from jaxdp.accountant.contour.engine import LARGEST_EPSILON, Maker, lanes_last, with_infinite
from jaxdp.accountant.contour.nodes import LARGEST_LOG, FrozenContour, Stage
from jaxdp.accountant.inverse import Reading

CONTOURS = 10  # of a loss. measured: 8 widen brackets between them, 12 answer no more values
LEAST_LOG_DELTA = -34.0  # of the last contour. chosen: deltas that are reported are above
WIDER = 1.25  # times the bracket at a contour's own epsilon. measured: twice what it has alone
MOST_GROWTH = 4.0  # of brackets from one contour to the last. chosen: the last plan can be bad
CLOSE = 1e-10  # width of a bracket that is not compared. chosen: far below what is reported
GRID = 97  # epsilons between which Newton's method starts. chosen: its first step is within 1e-3
NEAR = 64  # points of a sum that are turned at once. chosen: a square root of their number
TINY = 1e-300  # derived: a normal number


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

    @property
    def is_smoothed(self) -> bool:
        """True if psi falls at no contour's end, as for atoms."""
        return bool((self.frozen.smoothed > 0).all())


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
    at = best, np.arange(epsilon.size)
    found = np.zeros((3, epsilon.size))
    for i in np.unique(best):
        here = np.flatnonzero(best == i)
        found[:, here] = _turned(of.series[i], of.frozen.step[i] * move[here, i])
    each, frozen = (jax.tree.map(lambda x: np.asarray(x)[..., best], x) for x in of[2:4])
    move, unit = move[at[1], best], unit[best]
    log_scale = each.log_scale - frozen.tilt * move
    scale = np.exp(np.minimum(log_scale, LARGEST_LOG))
    found = scale * found
    high, low = curve.bounds_of_sum(each, frozen, epsilon, found[0], found[2])
    rounded = 4.0 * ULP * np.abs(move)
    rounded = rounded * (scale * of.turned[best] + frozen.tilt * (np.abs(found[0]) + high))
    least: Any = np.exp(log_least_delta(each.bounds, epsilon) - unit) + lost[at[1], best]
    lower, upper = curve.log_ends(unit, found[0], (high + rounded, low + rounded), least)
    lower: Any = np.where(log_scale < LARGEST_LOG, lower, -np.inf)
    width = np.where(upper == -np.inf, 0.0, upper - lower)
    alone = np.exp(np.interp(epsilon, *of.alone))
    # A smoothed total varies little with the contour.
    is_close = (width <= np.maximum(WIDER * alone, CLOSE)) | (frozen.smoothed > 0)
    falls = unit + np.log(np.where(found[1] > 0, found[1], np.nan))
    return Reading(lower, upper, falls), is_close


# Maps the contours of one loss, and values, to bounds.
Answer: TypeAlias = Callable[[Contours, Lanes], LogBounds]


def _turned(series: np.ndarray, turn: Lanes) -> np.ndarray:
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


def log_delta(of: Contours, epsilon: Lanes) -> LogBounds:
    """Bounds on log delta at epsilons >= 0; without a lower end where they are not close."""
    found, is_close = read(of, np.minimum(epsilon, LARGEST_EPSILON))
    inside = (epsilon <= LARGEST_EPSILON) & is_close
    bounds = of_numpy(np.where(inside, found.lower, -np.inf), found.upper)
    bounds = with_infinite(of.rows, bounds)
    upper = np.minimum(bounds.upper, of.log_hit)
    lower = np.where(inside, np.minimum(bounds.lower, upper), -np.inf)
    return of_numpy(lower, upper)


def epsilon(of: Contours, delta: Lanes) -> LogBounds:
    """Bounds on the least epsilons; without a lower end where they are not close."""
    finite = delta + np.expm1(of.rows.log_finite)
    inside = (finite > 0) & (delta < 1) & (np.log(delta) < of.log_hit)
    goal: Any = np.log(np.where(inside, finite, 0.5))
    grid: Any = np.max(of.frozen.epsilon) * np.linspace(0.0, 1.0, GRID)
    falling = np.minimum.accumulate(read(of, grid)[0].upper)
    start = np.interp(-goal, -falling, grid)
    most: Any = np.full(goal.shape, LARGEST_EPSILON)
    lower, upper = inverse.epsilon_bounds(lambda x: read(of, x)[0], goal, start, most)
    is_close = read(of, np.minimum(upper, LARGEST_EPSILON))[1]
    is_answered = inside & is_close & (lower > 0) & (upper < np.inf) & (goal < falling[0])
    return of_numpy(np.where(is_answered, lower, -np.inf), np.where(inside, upper, np.inf))
