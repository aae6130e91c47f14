"""Bounds of concrete lanes from masses on grids (`grid`), where values of one loss share a grid.

The masses of a total hold at every epsilon. Those of one tilt serve epsilons whose log deltas are
within `APART` nats: brackets grow by less than a third. Tables are made once for a loss.
Epsilons at deltas are found by regula falsi, which begins at the bounds of the engines before.
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
from jaxdp.accountant import grid
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.bounds import LogBounds, of_numpy
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.tables import Table

CLOSE = 1e-12  # width at which a search for epsilon ends, over 1 + epsilon. chosen: rounding
NEAR = 1e-6  # first step of a search without bounds before, over 1 + epsilon. chosen
WIDEN = 8.0  # growth of its next steps. chosen
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
    values = np.asarray(batch.values)
    calls, lanes = [], []
    for loss in batch.losses:
        one = batch.at(loss.lanes[:1])
        lane, table = jax.tree.map(lambda x: x[0], (one.terms, one.table))
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
        bounds.lower[at], bounds.upper[at] = np.transpose(found)
    return bounds


def _log_bounds(
    terms: Terms, table: Table, epsilon: Lanes, _: LogBounds, points: int
) -> list[LogBounds]:
    with kernel():
        lane = grid.lane_at(terms, table, epsilon[epsilon.size // 2], points)
        return [grid.log_bounds_at(lane, table, x) for x in epsilon]


def _epsilon_bounds(
    terms: Terms, table: Table, delta: Lanes, known: LogBounds, points: int
) -> list[LogBounds]:
    with kernel():
        guess = grid.chernoff_epsilon(table, delta[delta.size // 2])
        lane = grid.lane_at(terms, table, guess, points)
        return [
            _epsilon_at(lane, table, float(guess), x, LogBounds(*ends))
            for x, *ends in zip(delta, *known, strict=True)
        ]


def _epsilon_at(
    lane: grid.Lane, table: Table, guess: float, delta: float, known: LogBounds
) -> LogBounds:
    """The epsilons at which the upper and the lower bound on delta equal delta."""
    if np.any(grid.is_bad(table)) or np.isnan(delta):
        return of_numpy(np.nan, np.nan)
    log_delta = max(float(np.log(delta)), grid.LEAST)
    slack, end = float(lane.slack), float(lane.end)

    def gap(epsilon: float) -> float:
        found = float(lane.upper(_array(epsilon))) - log_delta + slack
        return grid.FAR if np.isnan(found) else float(np.clip(found, -grid.FAR, grid.FAR))

    at = float(known.upper if np.isfinite(known.upper) else guess)
    width = max(NEAR * (1.0 + at), at - float(known.lower) if np.isfinite(known.lower) else 0.0)
    low = high = min(max(at, 0.0), end)
    above = below = gap(high)
    while below > 0 and high < end:  # up to a feasible end
        low, above = high, below
        high, width = min(high + width, end), WIDEN * width
        below = gap(high)
    while above <= 0 and low > 0:  # down to another one
        high, below = (low, above) if above <= 0 else (high, below)
        low, width = max(low - width, 0.0), WIDEN * width
        above = gap(low)
    if below > 0:
        return of_numpy(_infeasible(lane, end, 0.0, log_delta), np.inf)
    if above <= 0:
        return of_numpy(0.0, 0.0)
    slope, side = (above - below) / (high - low), 0.0
    for _ in range(grid.STEPS):
        if high - low <= CLOSE * (1.0 + high):
            break
        share = np.clip(above / (above - below), CLOSE, 1.0 - CLOSE)
        x = low + share * (high - low)
        found = gap(x)
        # The Illinois rule: the value of an end that stays twice is halved.
        if found > 0:
            low, above, below, side = x, found, below * (0.5 if side > 0 else 1.0), 1.0
        else:
            high, below, above, side = x, found, above * (0.5 if side < 0 else 1.0), -1.0
    return of_numpy(_infeasible(lane, high, slope, log_delta), high)


def _array(x: float) -> Any:
    return np.asarray(x)


def _infeasible(lane: grid.Lane, upper: float, slope: float, log_delta: float) -> float:
    """An epsilon, at most `upper`, whose lower bound exceeds delta; 0 if none was found."""
    gap = log_delta - float(lane.lower(_array(upper)))
    if gap < 0:
        return upper
    width = np.clip(gap, 1e-13, 1.0) / max(slope, 1e-300)
    for k in range(grid.BACK):
        epsilon = max(upper - 1.02 * width * 2.0 ** (0.5 * k), 0.0)
        if epsilon == 0 or float(lane.lower(_array(epsilon))) > log_delta:
            return epsilon
    return 0.0
