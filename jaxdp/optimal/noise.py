"""Additive noise of least expected loss for a budget, with a proven bracket of that loss.

minimise E c(T) subject to P[T in A] <= e^epsilon P[T + m in A] + delta for all |m| <= sensitivity,
every set A and every budget. A linear program on cells of sensitivity / resolution, host-side
(HiGHS, the extra `lp`).

The certificate brackets the least loss of any noise that satisfies the budgets in [loss_lower,
loss_upper] (of any monotone noise if `monotone`; the lower bound ignores `support`, `max_atom` and
`symmetric`), and has the exact deltas. `complete` is False if the time ran out: the noise satisfies
the budgets, and the bracket is wider. Source: Selvi, Liu & Wiesemann, Differential privacy via
distributionally robust optimization; atom, lower bounds and lazy shifts are ours, `jaxdp.optimal`
says which.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxdp._core import checks
from jaxdp._numeric.elementary import ULP
from jaxdp.guarantee.base import BudgetLike
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.histogram import Certificate, Histogram
from jaxdp.optimal.certify import (
    budget_pair,
    certified,
    lower_bound_of,
    positive,
    reach_of,
    resolution_of,
)
from jaxdp.optimal.exact import TOTAL
from jaxdp.optimal.measure import ErrorMeasure, MeasureLike, measure_of
from jaxdp.optimal.program import Program, Shape

# Share of the time that is allowed, for the noise. chosen: the lower bound takes less
_FIRST = 0.6
# Seconds more for the lower bound of a solver that was stopped. chosen: a coarse grid takes no more
_COARSE = 1.0
# Share of a weight: what rounding leaves where nothing belongs. chosen: 1e-9 of all
_SPECK = 2.0**-30


def noise(
    budget: BudgetLike,
    loss: MeasureLike = "l1",
    *,
    sensitivity: float = 1.0,
    resolution: int | None = None,
    support: float | None = None,
    symmetric: bool = True,
    monotone: bool = False,
    max_atom: float = 1.0,
    centred: bool = True,
    also: Sequence[BudgetLike] = (),
    seconds: float = 300.0,
) -> Histogram:
    """The additive noise of least expected loss that keeps a budget, and a proof that it is.

    Args:
        budget: (epsilon, delta) of one release, known numbers, epsilon > 0 in nats, delta in (0,
            1); delta = 0 needs `Staircase`.
        loss: c(x), with x in the query's unit: "l1", "l2", "asymmetric", an `ErrorMeasure` or a
            function of |x|.
        sensitivity: in the query's unit.
        resolution: cells to a sensitivity; if None about 300 cells in all, 2 to 20 to a sensitivity
            (40 above epsilon = 1).
        support: the noise stays within [-support, support]; if None 1.25 times the bound of the
            truncated Laplace, and one sensitivity.
        symmetric: even laws only, which costs nothing where c is even; an uneven c needs False.
        monotone: the density falls from 0.
        max_atom: the most probable the exact answer may be; optima for large epsilon or delta
            return it with probability up to delta.
        centred: a cell around 0, else a cell boundary.
        also: more budgets that it must keep.
        seconds: then the solver stops: the noise keeps the budgets, the bracket is wider.

    Returns:
        A `Histogram`, see the module for its certificate.

    Too short a support and a loss bounded on one side: `ValueError`. Needs the extra `lp`.

    >>> import jaxdp as dp
    >>> noise = dp.optimal.noise((1.0, 0.1), resolution=4)
    >>> print(f"{noise.certificate.loss_lower:.3f} {noise.certificate.loss_upper:.3f}")
    0.682 0.692
    """
    measure, pairs = measure_of(loss), tuple(budget_pair(b) for b in (budget, *also))
    sensitivity, seconds = positive("sensitivity", sensitivity), positive("seconds", seconds)
    if not 0 <= max_atom <= 1:
        raise ValueError(f"max_atom must lie in [0, 1], got {max_atom}")
    _check_evenness(measure, symmetric)
    limits = symmetric, monotone, max_atom, centred
    question = _Question(measure, pairs, sensitivity, seconds, *limits)
    return _designed(question, resolution, support)


class _Question(NamedTuple):
    """A question to `noise` that makes sense, with the properties that the noise must have."""

    measure: ErrorMeasure
    budgets: tuple[tuple[float, float], ...]
    sensitivity: float
    seconds: float
    symmetric: bool
    monotone: bool
    max_atom: float
    centred: bool


def _check_evenness(measure: ErrorMeasure, symmetric: bool) -> None:
    if not measure.even and symmetric:
        raise ValueError("symmetric must be False for a loss that is not even")


def _designed(question: _Question, resolution: int | None, support: float | None) -> Histogram:
    measure, budgets, sensitivity, seconds, *_ = question
    reach = reach_of(budgets) if support is None else positive("support", support) / sensitivity
    steps = resolution_of(resolution, reach, budgets)
    coarse = resolution_of(None, reach, budgets)
    if support is None and steps > 3 * coarse:
        # Where a coarser optimum ends: the lower bound does not rest on it.
        reach = min(reach, _end(_designed(question, None, None)) + 2.0 / coarse)
    # Shifts of `sensitivity` are `steps` cells at most, in real numbers as well.
    width = math.nextafter(sensitivity / steps, math.inf)
    begun = time.monotonic()
    cells = _cells(reach * steps, support is not None, question.centred)
    shape = Shape(cells, steps, budgets, question.symmetric, question.monotone)
    cost = measure.cell_means((np.arange(cells + 1) - 0.5 * cells) * width)
    atom_limit = min(question.max_atom, min(d for _, d in budgets))
    if not np.all(np.isfinite(cost)):
        raise ValueError(f"loss must be finite as far as the noise goes, {0.5 * cells * width:g}")
    program, weights, atom_weight, deltas, sure = certified(
        shape, cost, atom_limit, begun + _FIRST * seconds
    )
    exact_answer = float(measure(np.zeros(1))[0])
    upper = math.fsum([*(cost * weights), exact_answer * atom_weight]) / TOTAL
    upper *= 1.0 + 32.0 * ULP
    centred_program = program if question.centred else None
    lower, finished = _lower(measure, shape, width, centred_program, begun + seconds)
    epsilons = tuple(e for e, _ in budgets)
    certificate = Certificate(lower, upper, epsilons, deltas, sensitivity, finished and sure)
    return Histogram(width, weights.tolist(), atom_weight / TOTAL, certificate)


def _cells(half: float, at_most: bool, centred: bool) -> int:
    """Number of cells that reach at least (or at most) `half` cells to either side."""
    if not at_most:
        return 2 * math.ceil(half) + int(centred)
    if not centred:
        return 2 * math.floor(half + 1e-9)
    return 2 * max(math.floor(half - 0.5 + 1e-9), 0) + 1


def integer_noise(
    budget: BudgetLike,
    sensitivity: int = 1,
    loss: MeasureLike = "l1",
    *,
    support: int | None = None,
    symmetric: bool = True,
    monotone: bool = False,
    also: Sequence[BudgetLike] = (),
    seconds: float = 300.0,
) -> DiscreteHistogram:
    """The noise on the integers of least expected loss that keeps a budget.

    Args:
        budget, symmetric, monotone, also, seconds: as in `noise`.
        sensitivity: a whole number, 1 or more.
        loss: as in `noise`, of whole numbers.
        support: whole number; the noise stays within [-support, support]; as in `noise` if
            None.

    Returns:
        A `DiscreteHistogram`, with the certificate of `noise`.

    The program is exact, and the bracket closes to rounding. Less is lost than by any density: at
    (1, .1) and sensitivity 1 E|T| is .5886, where the best density loses .6906. Sums are exact. For
    queries of whole numbers. Others, and as in `noise`: `ValueError`.

    >>> import jaxdp as dp
    >>> noise = dp.optimal.integer_noise((1.0, 0.1))
    >>> print(f"{noise.certificate.loss_lower:.4f} {noise.certificate.loss_upper:.4f}")
    0.5886 0.5886
    """
    measure = measure_of(loss)
    budgets = tuple(budget_pair(b) for b in (budget, *also))
    seconds = positive("seconds", seconds)
    sensitivity = checks.positive_integer("sensitivity", sensitivity)
    _check_evenness(measure, symmetric)
    half = math.ceil(reach_of(budgets) * sensitivity) if support is None else support
    half = checks.positive_integer("support", half)
    begun = time.monotonic()
    shape = Shape(2 * half + 1, sensitivity, budgets, symmetric, monotone)
    values = measure(np.arange(-half - 1.0, half + 2.0))
    cost, end_costs = values[1:-1], values[[0, -1]]
    program, weights, _, deltas, sure = certified(shape, cost, 0.0, begun + _FIRST * seconds)
    upper = math.fsum(cost * weights) / TOTAL * (1.0 + 32.0 * ULP)
    lower, finished = lower_bound_of(program, shape, cost, end_costs, begun + seconds)
    epsilons, bounds = tuple(e for e, _ in budgets), (lower, upper)
    proof = Certificate(*bounds, epsilons, deltas, float(sensitivity), finished and sure)
    return DiscreteHistogram(weights, proof)


def _lower(
    measure: ErrorMeasure, shape: Shape, width: float, program: Program | None, deadline: float
) -> tuple[float, bool]:
    """Lower bound on the loss of any noise: hat functions at the nodes, and the mass beyond.

    For a law that keeps the budgets the masses E hat_i(T), hats of the nodes i width, keep them as
    well, and the values of an interpolant below the cost at the nodes cost them no more.
    """
    if program is None:
        shape = shape._replace(cells=shape.cells + 1)
        program = Program(shape)
    half = shape.cells // 2
    nodes = np.arange(-half - 1, half + 2) * (width * (1.0 - 8.0 * ULP))
    values = measure.node_values(nodes)
    cost, end_costs = values[1:-1], np.array([values[0], values[-1]])
    bound, finished = lower_bound_of(program, shape, cost, end_costs, deadline)
    if finished or shape.steps == 1:
        return bound, finished
    # The proof on a coarse grid takes a moment.
    steps = max(1, shape.steps // 10)
    ratio = shape.steps / steps
    coarse = shape._replace(cells=2 * math.ceil(half / ratio), steps=steps)
    soon = time.monotonic() + _COARSE
    return max(bound, _lower(measure, coarse, ratio * width, None, soon)[0]), False


def _end(noise: Histogram) -> float:
    """Distance within which there is mass to speak of, in sensitivities."""
    weights = np.array(noise.weights)
    cells_with_mass = np.flatnonzero(weights > _SPECK * noise.total)
    cells = np.max(np.abs(cells_with_mass - 0.5 * (weights.size - 1))) + 0.5
    certificate = noise.certificate
    return float(cells) * float(noise.width) / (certificate.sensitivity if certificate else 1.0)
