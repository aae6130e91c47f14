"""Whole weights that keep the budgets exactly, and a lower bound, from a program.

For lambda >= 0 with maxima mu_k the Lagrangian of the program over masses p >= 0 of sum 1 is

    bound = min_i [c_i + sum_k (lambda_(k, i) - e^epsilon lambda_(k, i + k))] - sum_k delta_k mu_k,

plus the terms of the mass beyond the ends and of monotone pairs: true of every noise that keeps
the budgets, for any multipliers. Nothing is taken from a solver but these numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._numeric.elementary import ULP
from jaxdp.guarantee.base import BudgetLike, as_budget
from jaxdp.optimal.exact import TOTAL, exact_delta, float_above, whole_weights
from jaxdp.optimal.program import Block, Program, Shape, Solution, falling

# Cells on each side, where the budget decides. chosen: a program of moderate size
_CELLS = 150


def budget_pair(budget: BudgetLike, pure: bool = False) -> tuple[float, float]:
    """epsilon and delta, which may be 0 where `pure`."""
    budget = as_budget(budget)
    if not all(checks.is_concrete(x) and jnp.ndim(x) == 0 for x in (budget.epsilon, budget.delta)):
        raise ValueError("budget must be two concrete numbers: the program is solved on the host")
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    if not 0 < epsilon <= 30:
        raise ValueError(f"epsilon must lie in (0, 30], got {epsilon}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta}")
    if delta == 0 and not pure:
        raise ValueError(
            "delta must lie in (0, 1), got 0: bounded noise cannot have delta = 0, where the "
            "optimum is Staircase(epsilon, sensitivity, staircase_split(epsilon))"
        )
    return epsilon, delta


def positive(name: str, value: float) -> float:
    """`value`, a positive finite number."""
    number = np.asarray(value) if np.ndim(value) == 0 else np.zeros(0, bool)
    if number.dtype.kind not in "fiu" or not 0 < number < math.inf:
        raise ValueError(f"{name} must lie in (0, inf), got {value!r}")
    return float(value)


def range_of(query_range: tuple[float, float]) -> tuple[float, float]:
    """Two finite numbers that rise."""
    low, high = (float(v) for v in query_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"query_range must be two rising finite numbers, got {query_range}")
    return low, high


def truncation(epsilon: float, delta: float) -> float:
    """The bound of the truncated Laplace, in sensitivities."""
    return math.log1p(math.expm1(epsilon) / (2.0 * delta)) / epsilon


def reach_of(budgets: tuple[tuple[float, float], ...]) -> float:
    """Reach of the noise by default, in sensitivities."""
    return 1.25 * max(truncation(e, d) for e, d in budgets) + 1.0


def resolution_of(
    resolution: int | None, reach: float, budgets: tuple[tuple[float, float], ...]
) -> int:
    """Cells to a sensitivity."""
    if resolution is None:
        finest = 20 if max(e for e, _ in budgets) <= 1 else 40
        return min(max(int(_CELLS / reach), 2), finest)
    return checks.positive_integer("resolution", resolution)


def certified(
    shape: Shape, cost: np.ndarray, most_atom: float, deadline: float
) -> tuple[Program, np.ndarray, int, tuple[float, ...], bool]:
    """Integer weights of cells and atom that keep every budget exactly, with their proof.

    Returns the program, the weights, the weight of the atom, the deltas of the budgets (rounded up)
    and whether the solver finished.
    """
    for attempt in range(4):
        # What rounding to whole weights may cost, more each time that it was not enough.
        budgets = tuple((e, d - slack(shape.cells, e, d) * 32.0**attempt) for e, d in shape.budgets)
        if min(d for _, d in budgets) <= 0:
            break
        program = Program(shape._replace(budgets=budgets))
        solution = program.solve(cost, most_atom, None, deadline)
        if not solution.feasible and safe_law(shape) is None:
            # On it a stepped truncated Laplace keeps the budgets.
            needed = truncation(*(min(x) for x in zip(*shape.budgets, strict=True)))
            raise ValueError(
                f"support must be longer: no noise on {shape.cells} cells, {shape.steps} to a "
                f"sensitivity, satisfies the budgets; use {math.ceil(needed):g} "
                "sensitivities or more"
            )
        masses, atom = solution.masses, solution.atom
        # A delta near the solver's tolerances may look infeasible to it where it is not.
        if not (solution.finished and solution.feasible):
            masses, atom = _mixed(shape, solution)
        weights = weights_of(masses, atom, shape)
        deltas = [
            exact_delta(weights[:-1], int(weights[-1]), shape.steps, e) for e, _ in shape.budgets
        ]
        if all(k <= Fraction(d) for k, (_, d) in zip(deltas, shape.budgets, strict=True)):
            sure = solution.finished and solution.feasible
            exact = tuple(map(float_above, deltas))
            return program, weights[:-1], int(weights[-1]), exact, sure
    raise ValueError(
        f"budgets {shape.budgets} cannot be satisfied by weights of 2^-40: use a larger "
        "delta or a smaller epsilon"
    )


def weights_of(masses: np.ndarray, atom: float, shape: Shape) -> np.ndarray:
    """Whole weights of the cells, then of the atom, which is not rounded up."""
    weights = whole_weights(np.append(masses, atom))
    spare = max(int(weights[-1]) - math.floor(atom * TOTAL), 0)
    weights[-1] -= spare
    weights[shape.cells // 2] += spare
    if shape.even:
        _mirror(weights)
    return weights


def _mirror(weights: np.ndarray) -> None:
    """Makes the cells' weights even, in place; units that are left over go to the middle."""
    cells = weights[:-1]
    n = cells.size
    low = np.minimum(cells[: n // 2], cells[::-1][: n // 2])
    cells[: n // 2], cells[n - n // 2 :] = low, low[::-1]
    if n % 2:
        cells[n // 2] += TOTAL - int(weights.sum())
    else:
        # With an even atom the rest is even.
        weights[-1] -= weights[-1] % 2
        cells[n // 2 - 1 : n // 2 + 1] += (TOTAL - int(weights.sum())) // 2


def slack(cells: int, epsilon: float, delta: float) -> float:
    """Margin to ask for below delta, so that whole weights keep delta."""
    return 1e-9 * delta + 4.0 * math.sqrt(cells) * (1.0 + math.exp(epsilon)) / TOTAL


def _mixed(shape: Shape, solution: Solution) -> tuple[np.ndarray, float]:
    """An unfinished solution, mixed with a law that keeps the budgets: delta is convex in laws."""
    safe_pair = safe_law(shape)
    if safe_pair is None:
        raise ValueError("seconds must be more, or support longer: no noise was found in time")
    safe, spare = safe_pair
    total = solution.masses.sum() + solution.atom
    if not (solution.feasible and total > 0):
        return safe, 0.0
    violation = max(solution.violation, 0.0) + 1e-9 * min(d for _, d in shape.budgets)
    share = min(violation / (violation + spare), 1.0)
    return (1 - share) * solution.masses / total + share * safe, (1 - share) * solution.atom / total


def safe_law(shape: Shape) -> tuple[np.ndarray, float] | None:
    """Cell masses of the truncated Laplace on all cells, and how far its delta is below."""
    epsilon = min(e for e, _ in shape.budgets)
    delta = min(d for _, d in shape.budgets)
    exponent = 0.5 * epsilon * shape.cells / shape.steps
    least_delta = math.exp(-exponent) * math.expm1(epsilon) / (-2.0 * math.expm1(-exponent))
    if least_delta >= delta:
        return None
    ends = (np.arange(shape.cells + 1) - 0.5 * shape.cells) / shape.steps
    tails = np.sign(ends) * -np.expm1(-epsilon * np.abs(ends))
    return np.diff(tails) / np.diff(tails).sum(), delta - least_delta


def lower_bound_of(
    program: Program, shape: Shape, cost: np.ndarray, end_costs: np.ndarray, deadline: float
) -> tuple[float, bool]:
    """Lower bound that the multipliers of the program prove, and whether they are the best."""
    solution = program.solve(cost, 0.0, end_costs, deadline)
    bound = dual_bound(shape, cost, end_costs, solution.blocks, solution.slopes)
    return max(bound - 16.0 * ULP * abs(bound), 0.0), solution.finished


def dual_bound(
    shape: Shape,
    cost: np.ndarray,
    end_costs: np.ndarray,
    blocks: tuple[Block, ...],
    slopes: np.ndarray,
) -> float:
    """The bound, less its rounding; `cost` of the cells, `end_costs` of the mass past each end."""
    reduced, size = cost.astype(float).copy(), np.abs(cost).astype(float)
    past, past_size = end_costs.astype(float).copy(), np.abs(end_costs).astype(float)
    paid, paid_size = 0.0, 0.0
    cells = np.arange(shape.cells)
    for block in blocks:
        epsilon, delta = shape.budgets[block.budget]
        # Rounded up: more is taken off.
        growth = math.exp(epsilon) * (1.0 + 4.0 * ULP)
        partner = cells - block.shift
        paired = (partner >= 0) & (partner < shape.cells)
        inner = np.where(paired, np.maximum(block.inner, 0.0), 0.0)
        outer = max(block.outer, 0.0)
        gain = np.where(paired, inner, outer)
        loss = np.zeros(shape.cells)
        loss[partner[paired]] = growth * inner[paired]
        reduced += gain - loss
        size += gain + loss
        side = 0 if block.shift > 0 else 1
        past[side] -= (growth - 1.0) * outer
        past_size[side] += growth * outer
        largest = max(float(inner.max(initial=0.0)), outer)
        paid += delta * largest
        paid_size += delta * largest
    if shape.even:
        # The mean of the two mirror images.
        reduced, size = 0.5 * (reduced + reduced[::-1]), 0.5 * (size + size[::-1])
        past = np.full(2, past.mean())
    if slopes.size:
        pairs = falling(shape)
        tilt = np.zeros(int(shape.fold.max()) + 1)
        for (near, far), multiplier in zip(pairs, np.maximum(slopes, 0.0), strict=True):
            tilt[near] -= multiplier
            tilt[far] += multiplier
        spread = tilt / np.bincount(shape.fold)
        reduced, size = reduced + spread[shape.fold], size + np.abs(spread)[shape.fold]
    least_cost = min(float(reduced.min()), float(past.min()))
    terms = 4.0 * len(blocks) + 16.0
    rounding = terms * ULP * (max(float(size.max()), float(past_size.max())) + paid_size)
    return least_cost - paid - rounding
