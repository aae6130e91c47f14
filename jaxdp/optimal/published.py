"""The published data-dependent formulation, for comparison: a noise for each part of the range."""

import math
from typing import NamedTuple

import numpy as np

from jaxdp import _check
from jaxdp.guarantee.base import Budget
from jaxdp.optimal.certify import budget_pair
from jaxdp.optimal.kernel import KernelProgram, Pair, shortfalls
from jaxdp.optimal.measure import MeasureLike, measure_of


class PublishedKernel(NamedTuple):
    """Mean loss over the range; the true delta of the laws; the laws, (parts, cells)."""

    loss: float
    delta: float
    laws: np.ndarray


def published_mechanism(
    budget: Budget,
    sensitivity: float,
    query_range: tuple[float, float],
    loss: MeasureLike = "l1",
    *,
    resolution: int = 8,
    support: float,
    monotone: bool = False,
    shifts: str = "three",
) -> PublishedKernel:
    """One piecewise-constant noise for all answers in each of `resolution` parts of the range.

    Answers of parts k and l may differ by (l - k - 1, l - k + 1) widths of a part, and the
    shortfall is affine between multiples: shifts="three" looks at both ends and the middle,
    within the sensitivity, which is sufficient and necessary. "aligned" looks at the middle only,
    which is not: its `delta`, of the laws under all three, exceeds the budget. monotone: each
    density falls from 0, and is the same in the two cells beside it. The sensitivity and the
    support are whole numbers of widths. `optimal_mechanism` is better; nothing is certified.
    Source: Selvi, Liu & Wiesemann, Differential privacy via distributionally robust optimization,
    proposition 5.
    """
    measure = measure_of(loss)
    epsilon, delta = budget_pair(budget)
    _check.one_of("shifts", shifts, ("three", "aligned"))
    width = (query_range[1] - query_range[0]) / resolution
    steps, half = round(sensitivity / width), round(support / width)
    if (
        abs(steps * width - sensitivity) > 1e-9 * width
        or abs(half * width - support) > 1e-9 * width
    ):
        raise ValueError(f"sensitivity and support must be multiples of {width:g}, a part's width")
    ends = np.arange(-half, half + 1) * width
    cost = np.tile(measure.cell_means(ends) / resolution, (resolution, 1))
    program = KernelProgram(cost, epsilon, delta * (1.0 - 1e-9), measure.even)
    if monotone:
        for row in range(resolution):
            for j in range(2 * half - 1):
                slope = np.zeros(2 * half)
                slope[j : j + 2] = (-1.0, 1.0) if j + 1 < half else (1.0, -1.0)
                program.add_row(row, slope, 0.0, 0.0 if j + 1 == half else math.inf)
    three, aligned = _pairs(resolution, steps, 1), _pairs(resolution, steps, 0)
    asked = three if shifts == "three" else aligned
    far = np.abs(asked[:, 2]) >= min(steps, resolution - 1)
    for row, other, shift in asked[far]:
        program.add(Pair(int(row), int(other), int(shift)))
    table = program.solve(asked, math.inf)
    if not (table.finished and table.feasible):
        raise ValueError(f"support must be longer: nothing keeps the budget on {support:g}")
    found = float(shortfalls(table.laws, three, epsilon).max())
    return PublishedKernel(float((cost * table.laws).sum()), found, table.laws)


def _pairs(parts: int, steps: int, spread: int) -> np.ndarray:
    """(row, other, shift) with shifts up to `spread` from the distance, within the sensitivity."""
    found = []
    for k in range(parts):
        for m in range(parts):
            for shift in range(m - k - spread, m - k + spread + 1):
                if abs(shift) <= steps and (k != m or shift):
                    found.append((k, m, shift))
    return np.array(found)
