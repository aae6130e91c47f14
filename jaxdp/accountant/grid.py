"""Bounds on delta and epsilon of any composition, from masses on one grid of losses.

Identity: every release becomes its chord law on a uniform grid (`masses`), tilted to the saddle
(`window`), and one FFT multiplies them (`convolution`). Infinite losses, of probability p each, add
1 - prod (1 - p)^n.

Error: the bracket. The upper bound is the chord law's delta; its excess falls like the step
squared. The lower bound comes from the coupling of a chord law with the loss itself. Losses on one
lattice are exact.

The masses of a total hold at every epsilon. Those of one tilt serve epsilons whose log deltas are
within `APART` nats: brackets grow by less than a third. Tables are made once for a loss.

Chosen where no characteristic function falls (few or equal releases with atoms), where every loss
lies on one lattice, and wherever another engine's bracket stays wide. The grid needs the privacy
profile of every release; the law's nodes only place the grid.

Sources: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, PETS 2022 (chords); Gopi, Lee & Wutschitz,
NeurIPS 2021 (one FFT, and a coupling of a discretised loss).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxdp._core.namespace import kernel, xp
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp._numeric.search import zoom
from jaxdp.accountant import inverse
from jaxdp.accountant.batch import Batch, Table
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.convolution import Total
from jaxdp.accountant.inverse import Reading
from jaxdp.accountant.runner import in_threads
from jaxdp.accountant.steps import LogBounds, of_numpy
from jaxdp.accountant.window import (
    FILL,
    LOG_TILTS,
    common_unit,
    cumulants,
    joined,
    plan_of,
    total,
)
from jaxdp.dominating_pair.base import log_of_infinite

POINTS = 2**16  # of the grid. chosen: 1e-5 of log delta for a few releases
MANY = 500.0  # different releases from which on a grid has 4 times as many points. chosen
LATTICES = 64.0  # releases on different lattices for which 4 times as many are 4e-6 wide. measured
SEVERAL = 16.0  # different sampled releases from which on it has twice as many. chosen
FEWEST = 2**8  # points on a lattice, where all losses of the window fit. chosen
TRIED, ROUNDS = 24, 3  # of a search for the best tilt. chosen: each round is 11 times finer
SLACK = 3e-7  # of log delta at epsilon. measured: upper bounds of two plans differ by 1e-7
LATTICE_SLACK = 2e-10  # the same on a lattice. measured: 1e-11
LEAST = -1e4  # log delta in place of log 0. chosen: below the logarithm of any double
APART = 8.0  # nats of log delta from the first to the last value of a grid. measured: 1.3 as wide


def log_bounds(batch: Batch, known: LogBounds, points: int) -> LogBounds:
    """Bounds on log delta at epsilons >= 0; `known` has estimates, or infinities."""
    return _by_grids(partial(_log_bounds, points), batch, np.asarray(known.upper))


def epsilon_bounds(batch: Batch, known: LogBounds, points: int) -> LogBounds:
    """Bounds on the least epsilons >= 0 at deltas; `known` are bounds before."""
    return _by_grids(partial(_epsilon_bounds, points), batch, np.log(batch.values))


def _by_grids(solve: Callable[..., LogBounds], batch: Batch, log_delta: Any) -> LogBounds:
    """solve(terms, table, values) of the lanes that share a grid, for all lanes."""
    of_lanes = batch.terms, batch.table
    calls, lanes = [], []
    for loss in batch.losses:
        one = jax.tree.map(lambda x, at=loss.lanes[0]: np.asarray(x[at]), of_lanes)
        order = loss.lanes[np.argsort(log_delta[loss.lanes], kind="stable")]
        first = 0
        for i in range(1, order.size + 1):
            gap = np.inf if i == order.size else log_delta[order[i]] - log_delta[order[first]]
            if not gap <= APART:  # also where no estimate is known
                lanes.append(order[first:i])
                calls.append((*one, np.asarray(batch.values)[order[first:i]]))
                first = i
    bounds: Any = of_numpy(*np.empty((2, log_delta.size)))
    for at, found in zip(lanes, in_threads(partial(_known, solve), calls), strict=True):
        bounds.lower[at], bounds.upper[at] = found
    return bounds


@np.errstate(all="ignore")  # of deltas of 0
def _known(solve: Callable[..., LogBounds], terms: Terms, table: Table, values: Any) -> Any:
    """The bounds, NaN where a parameter of some release is NaN; none at infinite epsilons."""
    parameters = table.number, table.largest, table.smallest, table.log_finite, table.drift
    bad = any(np.any(np.isnan(x) & (table.number != 0)) for x in parameters) | np.isnan(values)
    finite = np.isfinite(values)
    bounds = np.stack([np.full(values.shape, -np.inf), np.full(values.shape, np.inf)])
    if finite.any():
        with kernel():
            bounds[:, finite] = solve(terms, table, values[finite])
    return np.where(bad, np.nan, bounds)


def _total(points: int, terms: Terms, table: Table, facts: Table, epsilon: Any) -> Total:
    """The total of a composition, planned for an epsilon."""
    is_chosen = points == POINTS
    if is_chosen:
        points = _points_of(facts)
    plan = plan_of(facts, epsilon, points)
    if is_chosen and np.all(plan.exact | (facts.number == 0)):
        longest = max((plan.high - plan.low) / plan.step, np.max(plan.below + plan.above))
        points = min(points, max(1 << int(longest / FILL).bit_length(), FEWEST))
    return Total(terms, table, plan, points)


def _points_of(facts: Table) -> int:
    """Number of points of the grid of a composition."""
    is_used = facts.number > 0
    if np.all(facts.lattice | ~is_used):
        if common_unit(facts.spacing, is_used & (facts.spacing > 0))[1]:
            return POINTS
        releases = np.sum(facts.number) / LATTICES
        return POINTS << int(np.clip(2.75 + 0.5 * np.log2(releases), 2, 4))
    if facts.used > MANY:
        return 4 * POINTS
    is_sampled = np.any(is_used & (facts.log_missed > -np.inf))
    return 2 * POINTS if is_sampled and facts.used > SEVERAL else POINTS


def _log_bounds(points: int, terms: Terms, table: Table, epsilon: Any) -> LogBounds:
    middle = epsilon[epsilon.size // 2]
    found = _total(points, terms, table, joined(table), middle).read(epsilon)
    return LogBounds(found.lower, found.upper)


def _epsilon_bounds(points: int, terms: Terms, table: Table, delta: Any) -> LogBounds:
    facts = joined(table)
    guess: Any = chernoff_epsilon(facts, delta[delta.size // 2])
    of = _total(points, terms, table, facts, guess)
    goal = np.maximum(np.log(delta), LEAST)
    slack = SLACK if of.coupled > 0 else LATTICE_SLACK

    def read(epsilon: Any) -> Reading:
        # A user evaluates log delta at an epsilon with another plan.
        found = of.read(epsilon)
        return found._replace(upper=found.upper + slack)

    most: Any = np.full(delta.shape, of.end)
    bounds = inverse.epsilon_bounds(read, goal, np.minimum(guess, most), most)
    never = goal < of.log_infinite - of.infinite_rounding
    return bounds._replace(lower=np.where(never, np.inf, bounds.lower))


def chernoff_epsilon(facts: Table, delta: Any) -> Any:
    """Chernoff's bound on epsilon, at least 0, from the nodes of the laws.

    For finite losses delta <= e^(K(z) - z epsilon) z^z / (1 + z)^(1 + z) at every z > 0.
    """
    infinite = np.exp(log_of_infinite(total(facts.number, facts.log_finite)))
    log_delta = np.log(np.maximum(delta - infinite, 1e-300))

    def height(log_tilts: Any) -> Any:
        z = np.exp(log_tilts)
        whole = total(facts.number, cumulants(facts, z))
        heights = (whole - conversion_entropy(z) - log_delta) / z
        return np.where(np.isfinite(heights), heights, np.inf)

    low, high = map(xp.asarray, LOG_TILTS)
    bound = zoom(height, low, high, TRIED, ROUNDS)[1] + total(facts.number, facts.drift)
    bound = np.minimum(bound, total(facts.number, facts.largest))
    return np.where(np.isfinite(bound), np.maximum(bound, 0.0), 0.0 * bound)
