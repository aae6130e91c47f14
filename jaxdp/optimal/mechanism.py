"""Answers to a query of bounded range whose law depends on the true answer, certified."""

import math
import time
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxdp._numeric.elementary import ULP
from jaxdp._pytree import assign
from jaxdp.guarantee.base import Budget
from jaxdp.noise.histogram import Certificate
from jaxdp.optimal.certify import budget_pair, positive
from jaxdp.optimal.exact import TOTAL, exp_below, float_above, whole_weights
from jaxdp.optimal.kernel import KernelProgram, Pair, Table, shortfalls, table_bound
from jaxdp.optimal.measure import ErrorMeasure, MeasureLike, measure_of
from jaxdp.optimal.table import RangeMechanism

_NODES = np.polynomial.legendre.leggauss(4)


def optimal_mechanism(
    budget: Budget,
    sensitivity: float,
    query_range: tuple[float, float],
    loss: MeasureLike = "l1",
    *,
    resolution: int = 16,
    weights: np.ndarray | None = None,
    cap: float | None = None,
    seconds: float = 300.0,
) -> RangeMechanism:
    """The `RangeMechanism` of least mean loss over the range, (epsilon, delta)-DP, certified.

    minimise the integral of w(v) E c(output(v) - v) over v in query_range; `weights`: w on each of
    `resolution` equal parts of the range, 1 by default, never chosen from data. loss: as
    `optimal_noise`, without a function. cap: no part of the range may have a mean loss above it
    (instance optimality; from the optimal noise's loss on it is feasible as resolution grows).
    Nodes: resolution + 1. A linear program, host-side (the extra `lp`), whose pairs of nodes are
    added as they bind: (1, .2) at 32 takes seconds, at 64 minutes.

    The certificate's bracket is that of the least mean loss of any mechanism for this range,
    without the cap; its deltas are exact. After `seconds` a ValueError, unless an answer was found.
    ValueError: epsilon <= 0, delta outside (0, 1), an empty range, a cap that no law keeps.
    Source: Selvi, Liu & Wiesemann, Differential privacy via distributionally robust optimization;
    the rounding between nodes, and bounds from it, are ours.
    """
    measure = measure_of(loss)
    if measure.function is not None:
        raise ValueError("loss must be a combination of |x|, its sides and x^2, not a function")
    epsilon, delta = budget_pair(budget)
    sensitivity = positive("sensitivity", sensitivity)
    low, high = (float(v) for v in query_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"query_range must be two rising finite numbers, got {query_range}")
    if resolution < 2 or resolution != int(resolution):
        raise ValueError(f"resolution must be a whole number, 2 or more, got {resolution}")
    parts = _parts(weights, resolution)
    ratio = _steps(sensitivity, low, high, resolution)
    while 0 < ratio % 1 < Fraction(1, 2**40):
        # A step short of a whole part of the sensitivity by rounding alone: a wider range.
        high = math.nextafter(high, math.inf)
        ratio = _steps(sensitivity, low, high, resolution)
    steps = math.ceil(ratio)
    until = time.monotonic() + seconds
    step = (high - low) / resolution
    part_costs = _part_costs(measure, step, resolution)
    cost = _node_costs(part_costs, parts)
    mirrored = measure.even and bool(np.all(parts == parts[::-1]))
    made, deltas, finished = _solved(cost, epsilon, delta, steps, mirrored, cap, part_costs, until)
    upper = math.fsum((cost * made).ravel()) / TOTAL * (1.0 + 64.0 * ULP)
    lower, sure = _lower(measure, step, parts, epsilon, delta, math.floor(ratio), mirrored, until)
    certificate = Certificate(
        lower, upper, (epsilon,), (float_above(deltas),), sensitivity, finished and sure
    )
    mechanism = object.__new__(RangeMechanism)
    assign(
        mechanism,
        low=jnp.asarray(low),
        high=jnp.asarray(high),
        weights=tuple(tuple(int(w) for w in row) for row in made),
        steps=steps,
        certificate=certificate,
    )
    return mechanism


def _steps(sensitivity: float, low: float, high: float, resolution: int) -> Fraction:
    """The sensitivity in steps between nodes, in rational arithmetic."""
    return Fraction(sensitivity) * resolution / (Fraction(high) - Fraction(low))


def _parts(weights: np.ndarray | None, resolution: int) -> np.ndarray:
    parts = np.ones(resolution) if weights is None else np.asarray(weights, dtype=float)
    good = parts.shape == (resolution,) and np.all(np.isfinite(parts)) and np.all(parts >= 0)
    if not (good and parts.sum() > 0):
        raise ValueError(
            f"weights must be {resolution} finite numbers, zero or more, not all zero, got {parts}"
        )
    return parts / parts.sum()


def _part_costs(measure: ErrorMeasure, step: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean over each part of the range of hat_k(v) c(y - v), for its left node and its right one.

    (parts, outputs). The cost is a polynomial between nodes: Gauss's rule is exact.
    """
    place = 0.5 * (_NODES[0] + 1.0)
    v = step * (np.arange(count)[:, None] + place)
    outputs = step * np.arange(count + 1)
    cost = measure(outputs[None, None, :] - v[:, :, None])
    rule = 0.5 * _NODES[1]
    left = np.einsum("q,pqj->pj", rule * (1.0 - place), cost)
    return left, np.einsum("q,pqj->pj", rule * place, cost)


def _node_costs(part_costs: tuple[np.ndarray, np.ndarray], parts: np.ndarray) -> np.ndarray:
    left, right = part_costs
    cost = np.zeros((parts.size + 1, parts.size + 1))
    cost[:-1] += parts[:, None] * left
    cost[1:] += parts[:, None] * right
    return cost


def _near(rows: int, steps: int) -> np.ndarray:
    """(row, other, 0) of all nodes that are at most `steps` apart."""
    a, b = np.meshgrid(np.arange(rows), np.arange(rows), indexing="ij")
    close = (a != b) & (abs(a - b) <= steps)
    return np.stack([a[close], b[close], np.zeros(close.sum(), dtype=int)], axis=1)


def _solve(program: KernelProgram, pairs: np.ndarray, steps: int, until: float) -> Table:
    apart = np.abs(pairs[:, 0] - pairs[:, 1])
    for row, other, _ in pairs[apart == min(steps, int(apart.max(initial=1)))]:
        program.add(Pair(int(row), int(other)))
    return program.solve(pairs, until)


def _solved(
    cost: np.ndarray,
    epsilon: float,
    delta: float,
    steps: int,
    mirrored: bool,
    cap: float | None,
    part_costs: tuple[np.ndarray, np.ndarray],
    until: float,
) -> tuple[np.ndarray, Fraction, bool]:
    """Whole weights that keep the budget exactly, their delta, whether the solver was done."""
    rows = cost.shape[0]
    pairs = _near(rows, steps)
    for attempt in range(4):
        slack = 1e-9 * delta + 4.0 * math.sqrt(rows) * (1.0 + math.exp(epsilon)) / TOTAL
        asked = delta - slack * 32.0**attempt
        if asked <= 0:
            break
        program = KernelProgram(cost, epsilon, asked, mirrored)
        if cap is not None:
            _cap(program, part_costs, cap)
        table = _solve(program, pairs, steps, until)
        if not table.feasible:
            raise ValueError(f"cap must be larger: no law keeps it and the budget, got {cap}")
        laws = table.laws
        if not table.finished:
            laws = _mixed(laws, pairs, epsilon, delta)
        made = np.stack([whole_weights(law) for law in laws])
        kept = exact_table_delta(made, pairs, epsilon)
        if kept <= Fraction(delta):
            return made, kept, table.finished
    raise ValueError(f"the budget ({epsilon}, {delta}) cannot be kept by weights of 2^-40")


def _cap(program: KernelProgram, part_costs: tuple[np.ndarray, np.ndarray], cap: float) -> None:
    """Rows: no part of the range loses more than `cap` on average."""
    left, right = part_costs
    for part in range(left.shape[0]):
        both = np.stack([left[part], right[part]])
        program.add_row(np.array([part, part + 1]), both, -math.inf, cap)


def _mixed(laws: np.ndarray, pairs: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    """An unfinished table, mixed with one law for all, which tells nothing."""
    laws = laws + 1e-12
    laws = laws / laws.sum(axis=1, keepdims=True)
    worst = max(float(shortfalls(laws, pairs, epsilon).max()), 0.0)
    share = max(1.0 - delta * (1.0 - 1e-6) / worst, 0.0) if worst > 0 else 0.0
    return (1.0 - share) * laws + share * laws.mean(axis=0)


def exact_table_delta(made: np.ndarray, pairs: np.ndarray, epsilon: float) -> Fraction:
    """The largest delta over `pairs` of whole weights, e^epsilon rounded down: never too low."""
    rough = shortfalls(made / TOTAL, pairs, epsilon)
    growth = exp_below(epsilon)
    up, down = growth.numerator, growth.denominator
    worst = 0
    for row, other, _ in pairs[rough >= rough.max() - 1e-11]:
        own, their = made[row].tolist(), made[other].tolist()
        gaps = (a * down - up * b for a, b in zip(own, their, strict=True))
        worst = max(worst, sum(gap for gap in gaps if gap > 0))
    return Fraction(worst, down * TOTAL)


def _lower(
    measure: ErrorMeasure,
    step: float,
    parts: np.ndarray,
    epsilon: float,
    delta: float,
    steps: int,
    mirrored: bool,
    until: float,
) -> tuple[float, bool]:
    """No mechanism loses less: answers k step + s, outputs by hat functions at j step + s.

    For every offset s the hat masses of a mechanism keep its budget; so does their mean over s,
    and w is constant on each part. Outputs within the range need letters -1, ..., resolution.
    """
    count = parts.size
    values = measure.node_values(np.arange(-count - 1, count + 2) * (step * (1.0 - 8.0 * ULP)))
    k, j = np.meshgrid(np.arange(count), np.arange(-1, count + 1), indexing="ij")
    cost = parts[:, None] * values[j - k + count + 1]
    program = KernelProgram(cost, epsilon, delta, mirrored)
    pairs = _near(count, steps)
    table = _solve(program, pairs, steps, until)
    bound = table_bound(cost, table.multipliers, epsilon, delta, mirrored)
    return max(bound - 16.0 * ULP * abs(bound), 0.0), table.finished
