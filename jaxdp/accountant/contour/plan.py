"""Choice of the tilt and the period of each lane's contour.

No bound depends on the choice, only its width. With many samples that hold the record, a lane takes
the tilt at which the saddlepoint approximation of delta meets its target. Other lanes take, of many
tilts, the one whose sum needs fewest points and whose terms are least above delta.

Source: Daniels, Annals of Mathematical Statistics 25, 1954 (approximation).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp.accountant.contour.nodes import (
    Bounds,
    Nodes,
    Plan,
    Rows,
    Stage,
    chernoff,
    composed,
    log_psi,
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
