"""Estimate of epsilon, and tilt and period of every lane's contour.

No bound depends on the choice, only its width. With many samples that hold the record, a lane takes
the tilt at which the saddlepoint approximation of delta meets its target. Other lanes take, of many
tilts, the one whose sum needs fewest points and whose terms are least above delta.

If samples rarely hold the record, Chernoff's bound is far above epsilon. Below a cut of the noise
lies a body A, which most releases add to; D is the rest of one release's law. For n releases, A^n
and (A + D)^n - A^n have separate Chernoff bounds, each at its best tilt. The estimate is the least
epsilon, over all cuts, at which both bounds are delta.

Sources: Daniels, Annals of Mathematical Statistics 25, 1954 (approximation); Foss, Korshunov &
Zachary, Heavy-Tailed and Subexponential Distributions (one big jump).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import conversion_entropy, log1p
from jaxdp.accountant.contour.nodes import (
    Bounds,
    Nodes,
    Plan,
    Rows,
    Stage,
    by_tilts,
    chernoff,
    chernoff_of,
    composed,
    log_psi,
    sums,
)

ALIASED = 25.0  # nats below delta of the aliased terms. chosen: 1e-11
TRUNCATED = 22.0  # nats below delta of the sum's remainder. chosen
# Other tilts above a saddle's, in inverse deviations from it. chosen
ABOVE = np.asarray([0.0, 2.0, 4.0, 6.0, 9.0])[:, None]
# Other tilts below a saddle's, over the saddle's. chosen
BELOW = np.asarray([1e-300, 0.3, 0.65])[:, None]
# Tilts near the best of a coarse grid, over it. chosen: far out, e^700 falls by nats between them
NEAR_TILTS = np.exp(np.linspace(-0.4, 0.4, 17))
NEWTON_STEPS = 14  # measured: from the central limit to the saddle
LARGEST_TERMS = 26.0  # nats above delta of terms that lose all. derived
NO_EDGE = -14.0  # nats below delta of a law's end. chosen: 1e-6
REACHES = 5  # rounds of `_height_of_fall`. measured
CUTS = 32  # of the law. chosen: half a noise apart
CHERNOFF_SLACK = 2.5  # nats by which Chernoff's bound exceeds delta. measured: 2 to 3
NOTHING = -1e30  # log of an absent mass. chosen: far below any other


def _moments(nodes: Nodes, power: Reals) -> tuple[Reals, Reals, Reals]:
    """log psi at a power (phases, lanes), and mean and variance of l under that tilt."""
    exponent = nodes.log_weight + power * nodes.loss
    largest = xp.max(exponent, 0)
    weight = xp.exp(exponent - largest)
    total = xp.sum(weight, 0)
    mean = xp.sum(weight * nodes.loss, 0) / total
    square = xp.sum(weight * nodes.loss**2, 0) / total
    return largest + xp.log(total), mean, xp.maximum(square - mean * mean, 0.0)


def saddle(rows: Rows, place: Any, nodes: Nodes, log_delta: Reals) -> Plan:
    """The tilt at which the saddlepoint approximation equals log delta, by Newton's method."""
    spread = _moments(nodes, rows.power(xp.zeros_like(log_delta)))[2]
    spread = xp.sum(rows.number * spread, 0) + rows.variance + 1e-12
    log_tilt = 0.5 * xp.log(-2.0 * xp.minimum(log_delta, -0.1) / spread)
    log_tilt = xp.clip(log_tilt, -8.0, 9.0)
    tilt, epsilon, variance = xp.exp(log_tilt), log_delta, rows.number
    for _ in range(NEWTON_STEPS):
        tilt = xp.exp(log_tilt)
        log_psi, mean, variance = _moments(nodes, rows.power(tilt))
        spread = xp.sum(rows.number * variance, 0) + rows.variance
        spread = spread + (1.0 / tilt**2 + 1.0 / (1.0 + tilt) ** 2)
        mean = xp.sum(rows.number * rows.sign * mean, 0) + rows.variance * (tilt + 0.5)
        epsilon = mean - 1.0 / tilt - 1.0 / (1.0 + tilt)
        size = composed(rows, log_psi, tilt) - tilt * epsilon
        size = size - (xp.log(tilt * (1.0 + tilt)) + 0.5 * xp.log(2.0 * xp.pi * spread))
        step = xp.clip((size - log_delta) / (tilt * tilt * spread), -1.5, 1.5)
        log_tilt = xp.clip(log_tilt + step, -12.0, 14.0)
    epsilon = xp.maximum(epsilon, 0.0)
    above = tilt + xp.asarray(ABOVE) / xp.sqrt(spread)
    bounds = chernoff(rows, place, nodes, xp.concatenate([xp.asarray(BELOW) * tilt, above]))
    log_unit = xp.clip(log_delta, rows.least_unit, 0.0)
    period = _period(bounds, tilt, bounds.log - bounds.tilts * epsilon - log_unit)
    return Plan(tilt, period, epsilon, log_unit, bounds, xp.sqrt(variance))


def _period(bounds: Bounds, tilt: Reals, excess: Reals) -> Reals:
    """The least period with small aliased terms on both sides (..., lanes)."""
    tilt_column = tilt[..., None, :]
    gap = bounds.tilts - tilt_column
    reach = (excess + ALIASED) / xp.where(gap == 0, 1.0, xp.abs(gap))
    above = xp.min(xp.where(gap > 1e-9 * tilt_column, reach, xp.inf), -2)
    below = xp.min(xp.where(gap < -1e-9 * tilt_column, reach, xp.inf), -2)
    return xp.maximum(xp.maximum(above, below), 1.0 / tilt)


def search(
    stage: Stage,
    rows: Rows,
    coarse: Nodes,
    bounds: Bounds,
    points: Index | int,
    epsilon: Reals,
    log_unit: Reals,
) -> Plan:
    """The best of the tilts of `bounds`, estimated on coarse nodes.

    `points` is the size of the sum, and `log_unit` the unit of delta at `epsilon`.
    """
    tilts, excess = bounds.tilts, bounds.log - bounds.tilts * epsilon - log_unit
    # The first tilt is 0: it only bounds aliased terms.
    tilt, scale = tilts[1:], excess[1:]
    power = rows.power(tilt)
    exponent = coarse.log_weight + power[:, None] * coarse.loss
    exponent = exponent - log_psi(coarse, power)[:, None]
    edge = rows.log_edge(stage, exponent)
    fall = xp.maximum(scale, 0.0) + TRUNCATED
    height = _height_of_fall(rows, xp.exp(exponent), coarse.loss, fall)
    periods = _period(bounds, tilt, excess)
    log_points = xp.log(height * periods / (2.0 * xp.pi))
    costs = 10.0 * xp.maximum(log_points - xp.log(0.4 * points), 0.0)
    costs = costs + (0.3 * log_points + xp.maximum(scale - rows.large_terms, 0.0))
    costs = costs + xp.maximum(edge + scale - NO_EDGE, 0.0)
    costs = costs + 1e3 * xp.maximum(scale - LARGEST_TERMS, 0.0)
    costs = xp.where(xp.isnan(costs), xp.inf, costs)
    best = xp.argmin(costs, 0)[None]
    tilt = xp.take_along_axis(tilt, best, 0)[0]
    period = xp.take_along_axis(periods, best, 0)[0]
    spread = xp.zeros_like(rows.number)
    return Plan(tilt, period, epsilon, log_unit, bounds, spread)


def _height_of_fall(rows: Rows, weight: Reals, loss: Reals, fall: Reals) -> Reals:
    """The t at which |phi|^n falls by `fall` nats, estimated by t^2 E min(l^2, 2 / t^2) / 2."""
    square = (loss - rows.centre(weight, loss)) ** 2

    def narrow(_: Index | int, inverse: Reals) -> Reals:
        inside = xp.sum(weight * xp.minimum(square, inverse[:, None, None]), 1)
        spread = xp.sum(rows.number * inside, 1) + rows.variance
        return spread / fall  # 2 / t^2 with t^2 = 2 fall / spread

    inverse = lax.fori_loop(0, REACHES, narrow, xp.full_like(fall, xp.inf))
    return xp.sqrt(2.0 / xp.maximum(inverse, 1e-300))


class Parts(NamedTuple):
    """Bounds of the whole law, and of both parts at every cut, for epsilon 0."""

    whole: Bounds
    log: Reals  # (tilts, 2, cuts, lanes)

    def epsilon(self, log_delta: Reals) -> Reals:
        """Estimate of the least epsilon >= 0 at log delta."""
        each = (self.log - (log_delta + CHERNOFF_SLACK)) / self.whole.tilts[:, None, None]
        return xp.maximum(_least_of_worse(each), 0.0)

    def log_delta(self, epsilon: Reals) -> Reals:
        """Estimate of log delta at an epsilon."""
        each = self.log - (self.whole.tilts * epsilon)[:, None, None]
        return xp.minimum(_least_of_worse(each), 0.0) - CHERNOFF_SLACK


def _least_of_worse(each: Reals) -> Reals:
    """The bound of the worse part, each at its best tilt, at the best cut."""
    least = xp.min(xp.where(xp.isnan(each), xp.inf, each), 0)
    return xp.min(xp.max(least, 0), 0)


def parts(rows: Rows, place: Any, nodes: Nodes, tilts: Reals) -> Parts:
    """Chernoff's bounds at `tilts` (tilts, lanes), of the whole law and of its parts at cuts."""

    def bounds(tilts: Reals) -> tuple[Bounds, Reals]:
        power = rows.power(tilts)
        found = sums(nodes, power)
        whole = chernoff_of(rows, tilts, rows.psi(place, nodes, power, found))
        # Nodes are in the order of their losses, or in reverse where these fall.
        falls, mixtures = rows.order()
        size = found.weight.shape
        shape = *size[:-3], mixtures, CUTS, size[-3] // (mixtures * CUTS), *size[-2:]
        blocks = found.weight.reshape(shape).sum((-5, -3))
        blocks = xp.where(falls, blocks[..., ::-1, :, :], blocks)
        below = xp.maximum(xp.cumsum(blocks, -3), 1e-300)
        above = xp.cumsum(blocks[..., ::-1, :, :], -3)[..., ::-1, :, :] - blocks
        # log of psi below each cut of the loss, and psi above over psi below.
        below, above = found.largest[..., None, :, :] + xp.log(below), above / below
        body = composed(rows, below, tilts[:, None])
        risen = xp.sum(rows.number * log1p(above), -2)
        share = -xp.expm1(-risen)
        rest = body + risen + xp.log(xp.where(share > 0, share, 1.0))
        both = xp.stack([body, xp.where(share > 0, rest, NOTHING)], 1)
        return whole, both - conversion_entropy(tilts)[:, None, None]

    return Parts(*by_tilts(bounds, nodes, tilts))
