"""Tables of optimised noise, batched over budgets, on any device, certified on the host."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike
from jaxdp.noise.histogram import Certificate, Histogram, from_whole
from jaxdp.optimal.certify import (
    positive,
    reach_of,
    resolution_of,
    safe_law,
    slack,
    truncation,
    weights_of,
)
from jaxdp.optimal.dual import dual_bound
from jaxdp.optimal.exact import TOTAL, exact_delta, float_above
from jaxdp.optimal.halpern import solve
from jaxdp.optimal.measure import ErrorMeasure, MeasureLike, measure_of
from jaxdp.optimal.program import Block, Shape
from jaxdp.optimal.saddle import budgets_of

# From 1 to the next double.
_ULP = float(np.finfo(np.float64).eps)
# Resolutions that the budget may choose. chosen: a few, as each shape is compiled once
_RESOLUTIONS = (2, 4, 8, 16, 24, 40)
# Entries of the multipliers that are held at once. chosen: 64 MB
_ENTRIES = 2**23


class NoiseTable(NamedTuple):
    """Arrays of the budgets' shape: certified brackets, exact deltas, whether the gap was met."""

    loss_lower: np.ndarray
    loss_upper: np.ndarray
    delta: np.ndarray
    met: np.ndarray
    steps: np.ndarray
    noises: tuple[Histogram, ...]  # in the order of the flattened budgets


def optimal_noise_table(
    epsilon: ArrayLike,
    delta: ArrayLike,
    loss: MeasureLike = "l1",
    *,
    sensitivity: float = 1.0,
    resolution: int | None = None,
    support: float | None = None,
    gap: float = 1e-3,
    max_steps: int = 40_000,
) -> NoiseTable:
    """Noises of least expected loss for arrays of budgets at once, without an LP solver.

    Args:
        epsilon, delta: of the budgets, known numbers, broadcast together; epsilon in nats.
        loss: as in `optimal_noise`, even ones only.
        sensitivity: in the query's unit.
        resolution, support: as in `optimal_noise`; if None those or the next of a few that are
            finer and longer, so that budgets share grids. A support that is given must be long
            enough for each budget: ceil(log(1 + (e^epsilon - 1) / (2 delta)) / epsilon)
            sensitivities is.
        gap: a budget is done when its bracket is narrower than this times max(1, loss).
        max_steps: or after so many steps, or when a finer grid is what it needs.

    Returns:
        A `NoiseTable`, arrays of the budgets' shape. Where `met` is False the bracket is as wide as
        it is. The certificates are those of `optimal_noise`.

    An uneven loss, traced budgets, and as in `optimal_noise`: `ValueError`. Per budget it is slower
    than the linear program on a CPU.

    >>> import jaxdp as dp
    >>> table = dp.optimal_noise_table(1.0, [0.1, 0.2], resolution=2, gap=0.1)
    >>> print(table.met)
    [ True  True]
    """
    measure = measure_of(loss)
    if not measure.even:
        raise ValueError("loss must be even here: optimal_noise takes others")
    epsilons, deltas = (np.asarray(x) for x in np.broadcast_arrays(*_budget(epsilon, delta)))
    sensitivity = positive("sensitivity", sensitivity)
    gap = positive("gap", gap)
    if support is not None:
        support = positive("support", support) / sensitivity
    budgets = list(zip(epsilons.ravel().tolist(), deltas.ravel().tolist(), strict=True))
    grids = [_grid(pair, resolution, support) for pair in budgets]
    return _table_of(_rows(budgets, grids, measure, sensitivity, gap, max_steps), epsilons.shape)


def _rows(
    budgets: list[tuple[float, float]],
    grids: list[tuple[int, int]],
    measure: ErrorMeasure,
    sensitivity: float,
    gap: float,
    max_steps: int,
) -> list[_Row]:
    """The noises of all budgets, those of one resolution together, in blocks of one shape."""
    rows_of: dict[int, _Row] = {}
    for steps in sorted({steps for steps, _ in grids}):
        members = [i for i, grid in enumerate(grids) if grid[0] == steps]
        # A support that is longer than needed costs nothing but time.
        half = max(grids[i][1] for i in members)
        size = max(1, _ENTRIES // (4 * steps * half))
        for first in range(0, len(members), size):
            part = members[first : first + size]
            # Of one shape with those before it.
            filled = part + [part[-1]] * (min(size, len(members)) - len(part))
            rows = _solved(
                [budgets[i] for i in filled], steps, half, measure, sensitivity, gap, max_steps
            )
            rows_of |= dict(zip(part, rows, strict=False))
    return [rows_of[i] for i in range(len(budgets))]


def _table_of(rows: list[_Row], shape: tuple[int, ...]) -> NoiseTable:
    def table(values: list) -> np.ndarray:
        return np.array(values).reshape(shape)

    return NoiseTable(
        table([row.certificate.loss_lower for row in rows]),
        table([row.certificate.loss_upper for row in rows]),
        table([row.certificate.deltas[0] for row in rows]),
        table([row.certificate.complete for row in rows]),
        table([row.steps for row in rows]),
        tuple(row.noise for row in rows),
    )


class _Row(NamedTuple):
    noise: Histogram
    certificate: Certificate
    steps: int


def _grid(
    budget: tuple[float, float], resolution: int | None, support: float | None
) -> tuple[int, int]:
    """(cells to a sensitivity, cells on a side) for one budget."""
    reach = reach_of((budget,)) if support is None else support
    steps = resolution_of(resolution, reach_of((budget,)), (budget,))
    if resolution is None:
        steps = next(r for r in _RESOLUTIONS if r >= steps)
    half = math.ceil(reach * steps) if support is None else math.floor(reach * steps - 0.5 + 1e-9)
    return steps, max(half, 1)


def _solved(
    budgets: list[tuple[float, float]],
    steps: int,
    half: int,
    measure: ErrorMeasure,
    sensitivity: float,
    gap: float,
    max_steps: int,
) -> list[_Row]:
    """All of `budgets` on one grid."""
    width = math.nextafter(sensitivity / steps, math.inf)
    cells = 2 * half + 1
    shapes = [Shape(cells, steps, (pair,), True, False) for pair in budgets]
    deltas = [d - slack(cells, e, d) for e, d in budgets]
    safe = [
        safe_law(shape._replace(budgets=((e, a),)))
        for shape, (e, _), a in zip(shapes, budgets, deltas, strict=True)
    ]
    short = [pair for pair, law in zip(budgets, safe, strict=True) if law is None]
    if short:
        needed = max(truncation(e, d) for e, d in short)
        raise ValueError(
            f"support must be longer for budgets {short}, got {half * width:g}: "
            f"{math.ceil(needed) * sensitivity:g} is enough"
        )
    values = measure.node_values(np.arange(-half - 1, half + 2) * (width * (1.0 - 8.0 * _ULP)))
    means = measure.cell_means((np.arange(cells + 1) - 0.5 * cells) * width)
    exact_answer = float(measure(np.zeros(1))[0])
    costs = np.array(
        [[*values[1:-1], values[0], math.inf], [*means, math.inf, exact_answer]], dtype=float
    )
    lanes = budgets_of(
        jnp.asarray([math.exp(e) for e, _ in budgets]),
        jnp.asarray(deltas),
        jnp.asarray(np.stack([law[0] for law in safe if law])),
        jnp.asarray([law[1] for law in safe if law]),
        steps,
    )
    solution = solve(lanes, jnp.asarray(costs), gap, max_steps)
    rows = []
    for i, shape in enumerate(shapes):
        lower = _lower(shape, solution.duals[i], values)
        weights, atom_weight, delta = _upper(shape, solution.laws[i])
        upper = math.fsum([*(means * weights), exact_answer * atom_weight]) / TOTAL
        upper *= 1.0 + 32.0 * _ULP
        met = upper - lower <= gap * max(1.0, upper) * (1.0 + 1e-3)
        certificate = Certificate(
            lower, upper, (shape.budgets[0][0],), (float_above(delta),), sensitivity, bool(met)
        )
        noise = from_whole(width, weights.tolist(), atom_weight, certificate)
        rows.append(_Row(noise, certificate, int(solution.steps[i])))
    return rows


def _budget(epsilon: ArrayLike, delta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    if not (checks.is_concrete(epsilon) and checks.is_concrete(delta)):
        raise ValueError("epsilon and delta must be concrete: certificates are made on the host")
    high = np.asarray(checks.real("epsilon", epsilon, 0.0, 30.0, open_lower=True))
    low = np.asarray(checks.real("delta", delta, 0.0, 1.0, open_lower=True))
    return high, low


def _upper(shape: Shape, law: np.ndarray) -> tuple[np.ndarray, int, Fraction]:
    """Whole weights of a law, that of the atom, and their delta, as if they came from anywhere."""
    ((epsilon, delta),) = shape.budgets
    weights = weights_of(law[:-2], float(law[-1]), shape)
    exact = exact_delta(weights[:-1], int(weights[-1]), shape.steps, epsilon)
    if exact > Fraction(delta):
        raise ValueError(f"delta must be larger for weights of 2^-40, got {delta}")
    return weights[:-1], int(weights[-1]), exact


def _lower(shape: Shape, dual: np.ndarray, values: np.ndarray) -> float:
    """Lower bound that the multipliers prove, whoever found them."""
    cells = np.arange(shape.cells)
    blocks = tuple(
        Block(k, 0, np.where(cells >= k, row[:-2], 0.0), float(row[-2]))
        for k, row in enumerate(dual, start=1)
    )
    bound = dual_bound(shape, values[1:-1], values[[0, -1]], blocks, np.zeros(0))
    return max(bound - 16.0 * _ULP * abs(bound), 0.0)
