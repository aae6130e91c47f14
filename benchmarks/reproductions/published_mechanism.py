"""The published data-dependent formulation, for comparison: a noise for each part of the range.

Answers of parts [a, b) and [c, d) differ by (c - b, d - a), and the shortfall is affine between
whole cells: to look at all of them within the sensitivity (three where a part is a cell) is
sufficient and necessary. "aligned" looks at c - a only, which is not.
Source: Selvi, Liu & Wiesemann, Differential privacy via distributionally robust optimization,
proposition 5 and section 4.3.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core import checks
from jaxdp.guarantee.base import BudgetLike
from jaxdp.optimal.certify import budget_pair, positive, range_of, truncation
from jaxdp.optimal.measure import ErrorMeasure, MeasureLike, measure_of, part_chances
from jaxdp.optimal.program import add_columns, add_gaps
from jaxdp.optimal.table_program import KernelProgram


class ShiftedProgram(KernelProgram):
    """Pairs (a, b, s) with sum_j (g_a(j) - e^epsilon g_b(j - s))_+ <= delta, letters of a noise."""

    def add(self, pair: Any) -> None:
        """The constraint of one pair; letters without a partner count in full."""
        if pair in self.pairs:
            return
        row, other, shift = pair
        every = np.arange(self.fold.shape[1])
        paired = (every - shift >= 0) & (every - shift < every.size)
        inner = every[paired]
        first = add_columns(self.model, np.zeros(inner.size), np.full(inner.size, math.inf))
        slack, growth = np.arange(first, first + inner.size), math.exp(self.epsilon)
        terms = [(-1.0, self.fold[row, inner]), (growth, self.fold[other, inner - shift])]
        self.pairs[pair] = add_gaps(self.model, slack, terms)
        outside = np.bincount(self.fold[row, every[~paired]], minlength=self.size).astype(float)
        extra = np.flatnonzero(outside)
        columns = np.concatenate([extra, slack]).astype(np.int32)
        weights = np.concatenate([outside[extra], np.ones(inner.size)])
        self.model.addRow(-math.inf, self.delta, columns.size, columns, weights)

    def shortfalls(self, laws: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Those of pairs (n, 3), in floating point."""
        amounts, n = np.empty(len(pairs)), laws.shape[-1]
        padded = np.pad(math.exp(self.epsilon) * laws, ((0, 0), (n, n)))
        for at, (row, other, shift) in enumerate(pairs):
            start = n - int(np.clip(shift, -n, n))
            moved = padded[other, start : start + n]
            amounts[at] = np.maximum(laws[row] - moved, 0.0).sum()
        return amounts


class PublishedKernel(NamedTuple):
    """Mean loss over the range; the true delta of the laws; the laws, (parts, cells)."""

    loss: float
    delta: float
    laws: np.ndarray


def published_mechanism(
    budget: BudgetLike,
    sensitivity: float,
    query_range: tuple[float, float],
    loss: MeasureLike = "l1",
    *,
    resolution: int = 8,
    support: float,
    parts: Sequence[float] | np.ndarray | None = None,
    weights: np.ndarray | None = None,
    cap: float | None = None,
    monotone: bool = False,
    shifts: str = "three",
    seconds: float = 300.0,
) -> PublishedKernel:
    """The published data-dependent mechanism: a noise for each part of the query's range.

    Args:
        budget: (epsilon, delta), known numbers, epsilon in nats.
        sensitivity, support: whole numbers of cells, in the query's unit.
        query_range: (lowest, highest) answer.
        loss: as in `dp.optimal.noise`.
        resolution: cells of the noise are query range / resolution wide.
        parts: the ends of the parts, rising, multiples of a cell from the low end; every cell if
            None.
        weights: a density on the parts.
        cap: no part's noise may lose more (instance optimality).
        monotone: each density falls from 0, and is the same in the two cells beside it.
        shifts: "three" looks at all differences within the sensitivity; "aligned" at those of the
            low ends only, which is not sufficient.
        seconds: for the solver.

    Returns:
        A `PublishedKernel`, of piecewise-constant noises. Its `delta`, of the laws under all
        shifts, is in floating point, and exceeds the budget with "aligned". Nothing bounds the loss
        from below.

    For comparison: `optimal.mechanism` is better. What does not fit the cells, or cannot be kept,
    or was not solved in `seconds`: `ValueError`.
    Source: Selvi, Liu & Wiesemann, Differential privacy via distributionally robust optimization.
    """
    measure = measure_of(loss)
    pair = budget_pair(budget)
    checks.one_of("shifts", shifts, ("three", "aligned"))
    cells = _cells(query_range, resolution, sensitivity, support, parts)
    chances = part_chances(weights, cells.ends * cells.width)
    mean = measure.cell_means(np.arange(-cells.half, cells.half + 1) * cells.width)
    cost = chances[:, None] * mean
    mirrored = _mirrored(measure, cells, chances)
    program = ShiftedProgram(cost, pair[0], pair[1] * (1.0 - 1e-9), mirrored)
    _constrain(program, mean, chances.size, cap, monotone)
    laws = _solved(program, cells, shifts == "aligned", pair, seconds)
    found = program.shortfalls(laws, _pairs(cells.ends, cells.steps, False))
    return PublishedKernel(float((cost * laws).sum()), float(found.max()), laws)


class _Cells(NamedTuple):
    """The grid: lengths in cells, the ends of the parts from the low end of the range on."""

    width: float  # of a cell, in the query's unit
    across: int  # the range
    steps: int  # in the sensitivity
    half: int  # in the support
    ends: np.ndarray


def _cells(
    query_range: tuple[float, float],
    resolution: int,
    sensitivity: float,
    support: float,
    parts: Sequence[float] | np.ndarray | None,
) -> _Cells:
    low, high = range_of(query_range)
    width = (high - low) / resolution
    sensitivity, support = positive("sensitivity", sensitivity), positive("support", support)
    steps, half = round(sensitivity / width), round(support / width)
    if abs(steps * width - sensitivity) + abs(half * width - support) >= 1e-9 * width:
        raise ValueError(f"sensitivity and support must be multiples of {width:g}, a cell's width")
    return _Cells(width, resolution, steps, half, _ends(parts, low, high, resolution))


def _mirrored(measure: ErrorMeasure, cells: _Cells, chances: np.ndarray) -> bool:
    """True if the range read from its high end is the same program."""
    even = measure.even and bool(np.all(cells.ends + cells.ends[::-1] == cells.across))
    return even and bool(np.allclose(chances, chances[::-1], rtol=1e-12))


def _solved(
    program: KernelProgram,
    cells: _Cells,
    aligned: bool,
    budget: tuple[float, float],
    seconds: float,
) -> np.ndarray:
    """The best laws, (parts, cells), where there are any."""
    asked = _pairs(cells.ends, cells.steps, aligned)
    far = np.abs(asked[:, 2]) >= min(cells.steps, cells.across - 1)
    for pair in asked[far]:
        program.add(tuple(map(int, pair)))
    table = program.solve(asked, time.monotonic() + positive("seconds", seconds))
    if not table.feasible:
        enough = cells.steps * cells.width * math.ceil(truncation(*budget))
        raise ValueError(
            f"support must be longer, or cap larger: nothing keeps the budget on "
            f"{cells.half * cells.width:g}; without a cap a support of {enough:g} is enough"
        )
    if not table.finished:
        raise ValueError(f"seconds must be more: it was not solved in {seconds:g}")
    return table.laws


def _ends(
    parts: Sequence[float] | np.ndarray | None, low: float, high: float, resolution: int
) -> np.ndarray:
    """The ends of the parts, in cells from the low end of the range."""
    width = (high - low) / resolution
    places = np.arange(resolution + 1) if parts is None else (np.asarray(parts) - low) / width
    ends = np.round(places).astype(int)
    if np.max(abs(ends - places)) > 1e-9:
        raise ValueError(f"parts must be multiples of {width:g}, a cell's width, got {parts}")
    whole = ends.size > 1 and ends[0] == 0 and ends[-1] == resolution
    if not whole or not np.all(np.diff(ends) > 0):
        raise ValueError(f"parts must rise from {low:g} to {high:g}, got {parts}")
    return ends


def _constrain(
    program: KernelProgram, mean: np.ndarray, rows: int, cap: float | None, monotone: bool
) -> None:
    """The cap on every part's loss, and the fall of every density from 0."""
    half = mean.size // 2
    for row in range(rows):
        if cap is not None:
            program.add_row(row, mean, -math.inf, positive("cap", cap))
        for j in range(2 * half - 1 if monotone else 0):
            slope = np.zeros(2 * half)
            slope[j : j + 2] = (-1.0, 1.0) if j + 1 < half else (1.0, -1.0)
            program.add_row(row, slope, 0.0, 0.0 if j + 1 == half else math.inf)


def _pairs(ends: np.ndarray, steps: int, aligned: bool) -> np.ndarray:
    """(row, other, shift), within the sensitivity, of parts [ends[k], ends[k + 1])."""
    found = []
    for k, m in itertools.product(range(ends.size - 1), repeat=2):
        shifts = range(int(ends[m] - ends[k + 1]), int(ends[m + 1] - ends[k]) + 1)
        for shift in [int(ends[m] - ends[k])] if aligned else shifts:
            if abs(shift) <= steps and (k != m or shift):
                found.append((k, m, shift))
    return np.array(found)
