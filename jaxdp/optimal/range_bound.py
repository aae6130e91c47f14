"""Lower bounds on the mean loss of any private mechanism for answers in a range."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from jaxdp._numeric.elementary import ULP
from jaxdp.optimal.measure import ErrorMeasure
from jaxdp.optimal.table_program import KernelProgram, table_bound

# A range of more sensitivities than this is bounded block by block. chosen: the program stays small
_BLOCK = 8
# Cells to a sensitivity, in a block. chosen: the same
_CELLS = 4
# Cells at least, where weights differ. chosen: finer, as weights vary within a cell
_UNEVEN = 24


def range_bound(
    measure: ErrorMeasure,
    nodes: np.ndarray,
    parts: np.ndarray,
    budget: tuple[float, float],
    sensitivity: float,
    deadline: float,
) -> tuple[float, bool]:
    """Lower bound on the mean loss within the budget, and whether the solver was done.

    Answers low + k step + s, outputs by hat functions at low + j step + s: for every offset s the
    hat masses of a mechanism keep its budget, and so does their mean over s. Outputs within a
    block need letters from -1 to the number of its cells. A cell counts with the least of w in it;
    a range of several blocks costs at least the sum of their bounds.
    """
    low, high = Fraction(nodes[0]), Fraction(nodes[-1])
    span, felt = high - low, Fraction(sensitivity)
    density = parts / np.diff(nodes)
    if span <= _BLOCK * felt:
        count = max(nodes.size - 1, math.ceil(span / felt))
        if not np.allclose(density, density[0]):
            # A cell counts with its least weight: they are kept small.
            count = max(count, _UNEVEN)
        count = _cells(span, felt, count)
        steps = math.floor(felt * count / span)
        step = span / count
        if felt / step - steps > 1 - Fraction(1, 2**40):
            # A whole number of steps but for rounding: steps that are shorter by as much.
            steps += 1
            step = felt / steps
        sizes = [count]
    else:
        steps, step = _CELLS, felt / _CELLS
        n_cells = math.floor(span / step)
        size = _CELLS * _BLOCK
        sizes = [size] * (n_cells // size) + [n_cells % size] * (n_cells % size > 0)
    first, total, is_complete = 0, 0.0, True
    bounds: dict[bytes, tuple[float, bool]] = {}
    for size in sizes:
        ends = np.array([float(low + (first + k) * step) for k in range(size + 1)])
        first += size
        weights = _least_density(density, nodes, ends) * float(step)
        chance = float(weights.sum())
        if chance == 0.0:
            continue
        # Blocks that look alike are solved once; weights are rounded down for it.
        shares = np.floor(weights / chance * 2.0**40) / 2.0**40
        key = shares.tobytes()
        if key not in bounds:
            bounds[key] = _block(measure, float(step), shares, budget, steps, deadline)
        bound, finished = bounds[key]
        total += chance * bound
        is_complete = is_complete and finished
    # Offsets s within rounding of a cell's ends are left out of the mean.
    share = 1.0 - 64.0 * ULP - 16.0 * ULP * float(np.max(np.abs(nodes))) / float(step)
    return max(total * share, 0.0), is_complete


def _cells(span: Fraction, felt: Fraction, count: int) -> int:
    """A number of cells, `count` or a little more, that wastes least of the sensitivity."""

    def waste(number: int) -> Fraction:
        ratio = felt * number / span
        remainder = ratio % 1
        return Fraction(0) if remainder > 1 - Fraction(1, 2**40) else remainder / ratio

    return min(range(count, count + count // 4 + 1), key=waste)


def _least_density(density: np.ndarray, nodes: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The least density in each cell, except within rounding of its ends."""
    margin, last_part = 4.0 * ULP * float(np.max(np.abs(nodes))), density.size - 1
    first = np.clip(np.searchsorted(nodes, ends[:-1] + margin, side="right") - 1, 0, last_part)
    ends_at = np.clip(np.searchsorted(nodes, ends[1:] - margin, side="left") - 1, 0, last_part)
    return np.array([density[a : b + 1].min() for a, b in zip(first, ends_at, strict=True)])


def _block(
    measure: ErrorMeasure,
    step: float,
    shares: np.ndarray,
    budget: tuple[float, float],
    steps: int,
    deadline: float,
) -> tuple[float, bool]:
    epsilon, delta = budget
    count = shares.size
    values = measure.node_values(np.arange(-count - 1, count + 2) * (step * (1.0 - 8.0 * ULP)))
    k, j = np.meshgrid(np.arange(count), np.arange(-1, count + 1), indexing="ij")
    cost = shares[:, None] * values[j - k + count + 1]
    mirrored = measure.even and bool(np.all(shares == shares[::-1]))
    program = KernelProgram(cost, epsilon, delta, mirrored)
    a, b = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    close = (a != b) & (abs(a - b) <= steps)
    pairs = np.stack([a[close], b[close]], axis=1)
    distance = np.abs(pairs[:, 0] - pairs[:, 1])
    for row, partner in pairs[distance == min(steps, int(distance.max(initial=1)))]:
        program.add((int(row), int(partner)))
    table = program.solve(pairs, deadline)
    bound = table_bound(cost, table.multipliers, epsilon, delta, mirrored)
    # Values of an interpolant may be below 0, and less weight would raise the bound there.
    bound -= 2.0**-40 * count * max(-float(values.min()), 0.0)
    return max(bound - 16.0 * ULP * abs(bound), 0.0), table.finished
