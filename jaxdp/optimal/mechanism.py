"""Answers to a query of bounded range whose law depends on the true answer, certified.

minimise the integral of w(v) E c(output(v) - v) over v in the range: a linear program, host-side
(the extra `lp`), whose pairs of answers are added as they bind.

The certificate brackets the least mean loss of any mechanism for this range and w, without the cap.
Ranges longer than 8 sensitivities are bounded block by block, which is loose. Its deltas are exact
and include the rounding of answers in `release`. `complete` is False if the time ran out. Source:
Selvi, Liu & Wiesemann, Differential privacy via distributionally robust optimization; the rounding
between nodes, and bounds from it, are ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from jaxdp._core.pytree import assign
from jaxdp._numeric.elementary import ULP
from jaxdp.guarantee.base import BudgetLike
from jaxdp.noise.histogram import Certificate
from jaxdp.optimal.certify import budget_pair, positive, range_of, slack
from jaxdp.optimal.exact import TOTAL, float_above, whole_weights
from jaxdp.optimal.measure import (
    ErrorMeasure,
    MeasureLike,
    measure_of,
    node_costs,
    part_chances,
    part_costs,
)
from jaxdp.optimal.range_bound import range_bound
from jaxdp.optimal.table import (
    Points,
    RangeMechanism,
    close_points,
    exact_table_delta,
    felt_sensitivity,
)
from jaxdp.optimal.table_program import KernelProgram, shortfalls

# Shares this close to a node's are the node's in the program, not in the proof. chosen: the solver
# resolves no smaller ones
_SNAP = 1e-9
# Share of the time that is allowed, for the mechanism. chosen: the lower bound takes less
_FIRST = 0.6


def mechanism(
    budget: BudgetLike,
    sensitivity: float,
    query_range: tuple[float, float],
    loss: MeasureLike = "l1",
    *,
    resolution: int | None = None,
    nodes: Sequence[float] | np.ndarray | None = None,
    weights: np.ndarray | None = None,
    cap: float | None = None,
    seconds: float = 300.0,
) -> RangeMechanism:
    """The mechanism of least mean loss for a query of bounded range, and a proof that it is.

    Args:
        budget: (epsilon, delta), known numbers, epsilon > 0 in nats, delta in [0, 1).
        sensitivity: in the query's unit.
        query_range: (lowest, highest) answer.
        loss: c, as in `noise`; of a function both bounds are looser.
        resolution: equal parts of the range, 16 if None.
        nodes: instead, the outputs and the ends of the parts, rising, from one end of the range to
            the other.
        weights: the density w on each part, up to a factor, 1 if None; never chosen from data.
        cap: no part may have a mean loss above it (instance optimality; from the optimal noise's
            loss on it is feasible as parts shrink).
        seconds: then the solver stops: the mechanism keeps the budget (perhaps not the cap: that
            raises), the bracket is wider.

    Returns:
        A `RangeMechanism`, whose law depends on the true answer; see the module for its
        certificate.

    An empty range, and a cap that no law keeps: `ValueError`. Needs the extra `lp`; (1, .2) at 32
    parts takes seconds, at 64 minutes.

    >>> import jaxdp as dp
    >>> found = dp.optimal.mechanism((1.0, 0.2), 1.0, (0.0, 2.0), resolution=4)
    >>> print(f"{found.certificate.loss_lower:.3f} {found.certificate.loss_upper:.3f}")
    0.291 0.361
    """
    measure = measure_of(loss)
    pair = budget_pair(budget, pure=True)
    sensitivity, seconds = positive("sensitivity", sensitivity), positive("seconds", seconds)
    places = _nodes(query_range, resolution, nodes)
    parts = part_chances(weights, places)
    cap = None if cap is None else positive("cap", cap)
    begun = time.monotonic()
    deadline = begun + _FIRST * seconds
    table = _best_table(measure, places, parts, pair, sensitivity, cap, deadline)
    table_weights, upper, delta, finished = table
    lower, sure = range_bound(measure, places, parts, pair, sensitivity, begun + seconds)
    bounds, deltas = (min(lower, upper), upper), (float_above(delta),)
    certificate = Certificate(*bounds, pair[:1], deltas, sensitivity, finished and sure)
    made = object.__new__(RangeMechanism)
    rows = tuple(tuple(int(w) for w in row) for row in table_weights)
    assign(made, nodes=tuple(places.tolist()), weights=rows, certificate=certificate)
    return made


def _best_table(
    measure: ErrorMeasure,
    places: np.ndarray,
    parts: np.ndarray,
    budget: tuple[float, float],
    sensitivity: float,
    cap: float | None,
    deadline: float,
) -> tuple[np.ndarray, float, Fraction, bool]:
    """Whole weights of least mean loss within budget and cap; their loss, delta, and if optimal."""
    nodes = tuple(places.tolist())
    felt = felt_sensitivity(nodes, sensitivity)
    costs = part_costs(measure, places)
    cost = node_costs(costs, parts)
    if not np.all(np.isfinite(cost)):
        ends = float(places[0]), float(places[-1])
        raise ValueError(f"loss must be finite as far as the range is wide, {ends}")
    even = np.allclose(places + places[::-1], places[0] + places[-1], rtol=1e-12, atol=0.0)
    mirrored = measure.even and even and bool(np.allclose(parts, parts[::-1], rtol=1e-12))
    rough, exact = close_points(nodes, felt, _SNAP), close_points(nodes, felt)

    def solved(target_delta: float, cap: float | None = cap) -> tuple[np.ndarray, bool]:
        program = KernelProgram(cost, budget[0], target_delta, mirrored, rough.mix)
        laws = _solved(program, rough, cost, costs, cap, deadline)
        if laws is None:
            least_cap = _part_losses(costs, solved(target_delta, None)[0]).max()
            raise ValueError(f"cap must be at least {least_cap:.6g} for this budget, got {cap}")
        return laws

    weights, exact_delta, finished = _whole_table(solved, exact, budget)
    loss = math.fsum((cost * weights).ravel()) / TOTAL * (1.0 + 64.0 * ULP)
    return weights, loss, exact_delta, finished


def _nodes(
    query_range: tuple[float, float],
    resolution: int | None,
    nodes: Sequence[float] | np.ndarray | None,
) -> np.ndarray:
    low, high = range_of(query_range)
    if nodes is None:
        count = 16 if resolution is None else resolution
        if count < 2 or count != int(count):
            raise ValueError(f"resolution must be a whole number, 2 or more, got {resolution}")
        places = np.linspace(low, high, int(count) + 1)
    else:
        if resolution is not None:
            raise ValueError("resolution must be None where nodes are given")
        places = np.asarray(nodes, dtype=float)
        ends = places.ndim == 1 and places.size > 2 and places[0] == low and places[-1] == high
        if not (ends and np.all(np.diff(places) > 0)):
            raise ValueError(
                f"nodes must rise from {low:g} to {high:g}, 3 of them or more, got {nodes}"
            )
    if not np.all(np.diff(places) > 0):
        raise ValueError(f"query_range must be wider than its rounding, got {query_range}")
    return places


def _solved(
    program: KernelProgram,
    points: Points,
    cost: np.ndarray,
    costs: tuple[np.ndarray, np.ndarray],
    cap: float | None,
    deadline: float,
) -> tuple[np.ndarray, bool] | None:
    """Laws that keep the budget but for rounding, and whether they are the best."""
    if cap is not None:
        for part, ends in enumerate(np.stack(costs, axis=1)):
            program.add_row(np.array([part, part + 1]), ends, -math.inf, cap)
    for row, partner in points.pairs[points.far]:
        program.add((int(row), int(partner)))
    table = program.solve(points.pairs, deadline)
    if not table.feasible:
        return None
    if table.finished:
        return table.laws, True
    laws = _mixed(table.laws, points, cost, program.epsilon, program.delta)
    if cap is not None and _part_losses(costs, laws).max() > cap:
        raise ValueError(f"seconds must be more: no law that keeps the cap {cap} was found yet")
    return laws, False


def _part_losses(costs: tuple[np.ndarray, np.ndarray], laws: np.ndarray) -> np.ndarray:
    return (costs[0] * laws[:-1] + costs[1] * laws[1:]).sum(axis=1)


def _whole_table(
    solved: Callable[[float], tuple[np.ndarray, bool]], points: Points, budget: tuple[float, float]
) -> tuple[np.ndarray, Fraction, bool]:
    """Whole weights that keep the budget exactly, their delta, whether the solver was done."""
    epsilon, delta = budget
    for attempt in range(4):
        spare = slack(points.nodes, epsilon, delta) * 32.0**attempt
        if 0 < delta <= spare:
            break
        laws, finished = solved(max(delta - spare, 0.0))
        if delta == 0:
            # Answers that are the same for all widen no ratio, and cover what rounding does.
            share = min(spare * points.nodes / math.expm1(epsilon), 1.0)
            laws = (1.0 - share) * laws + share / points.nodes
        weights = np.stack([whole_weights(law) for law in laws])
        exact = exact_table_delta(weights, points, epsilon)
        if exact <= Fraction(delta):
            return weights, exact, finished
    raise ValueError(f"the budget ({epsilon}, {delta}) cannot be satisfied by weights of 2^-40")


def _mixed(
    laws: np.ndarray, points: Points, cost: np.ndarray, epsilon: float, delta: float
) -> np.ndarray:
    """An unfinished table, mixed with the best answer that is the same for all."""
    constant = np.zeros_like(laws)
    constant[:, np.argmin(cost.sum(axis=0))] = 1.0
    totals = laws.sum(axis=1, keepdims=True)
    if totals.min() <= 0:
        return constant
    laws = laws / totals
    worst = max(float(shortfalls(points.mix @ laws, points.pairs, epsilon).max()), 0.0)
    share = max(1.0 - delta * (1.0 - 1e-6) / worst, 0.0) if worst > 0 else 0.0
    mixed = (1.0 - share) * laws + share * constant
    return mixed if (cost * mixed).sum() < (cost * constant).sum() else constant
