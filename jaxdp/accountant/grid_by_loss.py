"""Bounds of concrete lanes from masses on grids (`grid`), where values of one loss share a grid.

The masses of a total hold at every epsilon. Those of one tilt serve epsilons whose log deltas are
within `APART` nats: brackets grow by less than a third. Tables are made once for a loss.
Epsilons at deltas are found by regula falsi, all of them side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxdp._core.threads import in_threads
from jaxdp._core.tracing import kernel
from jaxdp._core.types import Lanes
from jaxdp._numeric.search import falling_root
from jaxdp.accountant import grid
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.bounds import LogBounds, of_numpy
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.tables import Table
from jaxdp.accountant.total_curve import TotalCurve

NEAR = 1e-6  # distance of the points of a difference quotient, over 1 + epsilon. chosen
APART = 8.0  # nats of log delta from the first to the last value of a grid. measured: 1.3 as wide


def log_bounds(batch: Batch, known: LogBounds, points: int) -> LogBounds:
    """Bounds on log delta at epsilons >= 0; `known` has estimates, or infinities."""
    return _by_grids(partial(_log_bounds, points=points), batch, np.asarray(known.upper), known)


def epsilon_bounds(batch: Batch, known: LogBounds, points: int) -> LogBounds:
    """Bounds on the least epsilons >= 0 at deltas; `known` are bounds before."""
    return _by_grids(partial(_epsilon_bounds, points=points), batch, np.log(batch.values), known)


def _by_grids(
    function: Callable[..., Any], batch: Batch, log_delta: Lanes, known: LogBounds
) -> LogBounds:
    """function(lane, table, values, known) of the lanes that share a grid, for all lanes."""
    values, of_lanes = np.asarray(batch.values), (batch.terms, batch.table)
    calls, lanes = [], []
    for loss in batch.losses:
        lane, table = jax.tree.map(lambda x, at=loss.lanes[0]: x[at], of_lanes)
        order = loss.lanes[np.argsort(log_delta[loss.lanes], kind="stable")]
        first = 0
        for i in range(1, order.size + 1):
            gap = np.inf if i == order.size else log_delta[order[i]] - log_delta[order[first]]
            if not gap <= APART:  # also where no estimate is known
                at = order[first:i]
                own = jax.tree.map(lambda x, at=at: np.asarray(x)[at], known)
                lanes.append(at)
                calls.append((lane, table, values[at], own))
                first = i
    bounds: Any = of_numpy(np.empty(values.shape), np.empty(values.shape))
    for at, found in zip(lanes, in_threads(function, calls), strict=True):
        bounds.lower[at], bounds.upper[at] = found
    return bounds


def _log_bounds(terms: Terms, table: Table, epsilon: Lanes, _: LogBounds, points: int) -> LogBounds:
    with kernel():
        curve = TotalCurve(grid.lane_at(terms, table, epsilon[epsilon.size // 2], points))
        lower, upper = curve.bounds(epsilon)
    bad = grid.is_bad(table) | np.isnan(epsilon)
    lower = np.where(np.isnan(lower), -np.inf, lower)
    upper = np.where(np.isnan(upper), 0.0, upper)
    return of_numpy(*(np.where(bad, np.nan, x) for x in (lower, upper)))


def _epsilon_bounds(
    terms: Terms, table: Table, delta: Lanes, _: LogBounds, points: int
) -> LogBounds:
    with kernel():
        guess = grid.chernoff_epsilon(table, delta[delta.size // 2])
        lane = grid.lane_at(terms, table, guess, points)
        lower, upper = _epsilons_at(TotalCurve(lane), lane, np.maximum(np.log(delta), grid.LEAST))
    bad = grid.is_bad(table) | np.isnan(delta)
    return of_numpy(*(np.where(bad, np.nan, x) for x in (lower, upper)))


@np.errstate(all="ignore")  # of deltas of 0
def _epsilons_at(curve: TotalCurve, lane: grid.Lane, log_delta: Any) -> tuple[Any, Any]:
    """The epsilons at which the lower and the upper bound on delta equal delta."""
    end: Any = np.full(log_delta.shape, float(lane.end))
    zero: Any = np.zeros(end.shape)

    def gap_at(epsilon: Any) -> Any:
        return grid.limited(curve.upper(epsilon) + float(lane.slack) - log_delta)

    upper: Any = falling_root(gap_at, zero, end, grid.STEPS)[1]
    upper = np.where(gap_at(end) <= 0, upper, np.inf)
    upper = np.where(gap_at(zero) <= 0, 0.0, upper)
    tried = np.where(np.isfinite(upper), upper, end)
    here = curve.bounds(tried)
    ahead = NEAR * (1.0 + tried)
    slope = (curve.upper(np.maximum(tried - ahead, 0.0)) - here.upper) / ahead
    gap = log_delta - here.lower
    width = np.clip(gap, 1e-13, 1.0) / np.maximum(slope, 1e-300)
    lower = np.zeros_like(end)
    for k in range(grid.BACK):
        epsilon = np.maximum(tried - 1.02 * width * 2.0 ** (0.5 * k), 0.0)
        is_better = (curve.bounds(epsilon).lower > log_delta) & (epsilon > lower)
        lower = np.where(is_better, epsilon, lower)
    return np.where(upper == 0, 0.0, np.where(gap < 0, tried, lower)), upper
