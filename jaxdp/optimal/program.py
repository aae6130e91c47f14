"""The linear program over cell masses, with the constraints of a shift added when they bind.

Variables: masses p of the cells (mirror images tied for an even cost), a mass at 0, and a mass
beyond each end, for lower bounds. A block is one shift k at one budget (epsilon, delta):

    sum_i t_i + s + atom <= delta,  t_i >= p_i - e^epsilon p_(i - k) where i - k is a cell,
    s >= sum of the other p_i - (e^epsilon - 1) beyond,  t, s >= 0.

"Beyond" is the mass past the end that those cells come from: with it they are one event, whose
shifted copy is that mass. Few shifts bind; the others are never in the program.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxdp._core import checks
from jaxdp.optimal.exact import excesses

# Indices of the variables of a constraint, and their weights.
Row: TypeAlias = tuple[Any, np.ndarray]
# Options of every model: silent, on one core, and as near to feasible as HiGHS goes.
OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


def new_model() -> tuple[Any, Any]:
    """An empty model, and the enumeration of what its solver may report."""
    highspy = checks.extra("highspy", "lp")
    model = highspy.Highs()
    for name, value in OPTIONS.items():
        model.setOptionValue(name, value)
    return model, highspy.HighsModelStatus


def add_columns(model: Any, cost: np.ndarray, upper: np.ndarray) -> int:
    """Add variables that are at least 0; the index of the first one."""
    first, none = model.getNumCol(), np.zeros(0)
    zeros, index = np.zeros(cost.size), none.astype(np.int32)
    model.addCols(cost.size, cost, zeros, upper, 0, zeros.astype(np.int32), index, none)
    return first


def add_rows(model: Any, entries: list[Row], low: float, high: float) -> int:
    """Add low <= sum of weights times variables <= high, one row each; index of the first row."""
    first, count, none = model.getNumRow(), len(entries), np.zeros(0)
    starts = np.cumsum([0, *(len(columns) for columns, _ in entries)])[:-1].astype(np.int32)
    index = np.concatenate([none, *(columns for columns, _ in entries)]).astype(np.int32)
    value = np.concatenate([none, *(weights for _, weights in entries)])
    ends = np.full(count, low), np.full(count, high)
    model.addRows(count, *ends, index.size, starts, index, value)
    return first


def add_gaps(model: Any, slack: np.ndarray, terms: list[tuple[float, np.ndarray]]) -> int:
    """Add rows slack + sum of weights times columns >= 0; the index of the first row."""
    terms = [(1.0, slack), *terms]
    index = np.stack([columns for _, columns in terms], axis=1)
    value = np.tile([weight for weight, _ in terms], (slack.size, 1))
    # A law and its mirror image share variables: their weights are added up.
    for i, j in itertools.combinations(range(1, len(terms)), 2):
        is_shared = index[:, i] == index[:, j]
        value[is_shared, i] += value[is_shared, j]
        value[is_shared, j] = 0.0
    rows = zip(index, value, strict=True)
    return add_rows(model, [(i[v != 0], v[v != 0]) for i, v in rows], 0.0, math.inf)


def solved(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values of the variables, and multipliers of the rows; 0 if the solver has none."""
    solution = model.getSolution()
    # A solver that was stopped at once has neither.
    values, duals = np.zeros(model.getNumCol()), np.zeros(model.getNumRow())
    for padded, found in ((values, solution.col_value), (duals, solution.row_dual)):
        padded[: len(found)] = found
    return values, duals


def run(model: Any, deadline: float) -> Any:
    """The status of the model after a run until the deadline."""
    seconds = max(deadline - time.monotonic(), 0.01)
    model.setOptionValue("time_limit", model.getRunTime() + seconds)
    model.run()
    return model.getModelStatus()


# Violations up to this share of delta are left to the repair of the weights. chosen: the repair
# costs as much
TOLERANCE = 2e-10


class Shape(NamedTuple):
    """Grid, budgets and symmetries that every program over one grid shares."""

    cells: int
    steps: int  # largest shift, in cells
    budgets: tuple[tuple[float, float], ...]
    even: bool
    monotone: bool

    @property
    def shifts(self) -> np.ndarray:
        """Shifts of the program's constraints, in cells."""
        forward = np.array([self.steps]) if self.monotone else np.arange(1, self.steps + 1)
        return forward if self.even else np.concatenate([forward, -forward])

    @property
    def fold(self) -> np.ndarray:
        """The variable of each cell: its distance from the nearer end where mirrored."""
        index = np.arange(self.cells)
        return np.minimum(index, self.cells - 1 - index) if self.even else index


class Block(NamedTuple):
    """Multipliers of one shift and budget: of cells with a partner, and of those without."""

    shift: int
    budget: int
    inner: np.ndarray  # (cells,), 0 without a partner
    outer: float


class Solution(NamedTuple):
    """Masses, and multipliers that prove a bound whether or not they are the best ones."""

    masses: np.ndarray
    atom: float
    violation: float  # largest H + atom - delta, in floating point
    blocks: tuple[Block, ...]
    slopes: np.ndarray  # multipliers of the monotone rows
    finished: bool
    feasible: bool


class Program:
    """One HiGHS model, warm from solve to solve."""

    def __init__(self, shape: Shape):
        self.shape, self.blocks = shape, []
        self.rows: list[int] = []
        self.model, self.status = new_model()
        fold = shape.fold
        self.multiplicity = np.bincount(fold).astype(float)
        self.free = self.multiplicity.size
        self.lumps = 1 if shape.even else 2
        # Order: cells, the atom, the mass beyond (left, right).
        add_columns(self.model, np.zeros(self.free), np.ones(self.free))
        add_columns(self.model, np.zeros(1 + self.lumps), np.zeros(1 + self.lumps))
        weights = np.concatenate([self.multiplicity, [1.0], np.full(self.lumps, 3.0 - self.lumps)])
        add_rows(self.model, [(np.arange(weights.size), weights)], 1.0, 1.0)
        self.slopes = 0
        if shape.monotone:
            pairs = falling(shape)
            self.slopes = len(pairs)
            ones = np.array([1.0, -1.0])
            add_rows(self.model, [(pair, ones) for pair in pairs], 0.0, math.inf)
        spread = (1.0, 1.0 - 1.0 / shape.steps, 0.88, 0.7, 0.5, 0.25, 0.08)
        starts = {max(1, round(f * shape.steps)) for f in spread}
        signs = (1,) if shape.even else (1, -1)
        for budget in range(len(shape.budgets)):
            for k in sorted(starts & {int(abs(s)) for s in shape.shifts}):
                for sign in signs:
                    self._add(sign * k, budget)

    def _add(self, shift: int, budget: int) -> None:
        shape, fold = self.shape, self.shape.fold
        epsilon, delta = shape.budgets[budget]
        growth = math.exp(epsilon)
        cells = np.arange(shape.cells)
        paired = (cells - shift >= 0) & (cells - shift < shape.cells)
        inner = cells[paired]
        first = add_columns(self.model, np.zeros(inner.size + 1), np.full(inner.size + 1, math.inf))
        end_column = self.free + 1 + (0 if shift > 0 or shape.even else 1)
        slack, outer_column = np.arange(first, first + inner.size), first + inner.size
        terms = [(-1.0, fold[inner]), (growth, fold[inner - shift])]
        row = add_gaps(self.model, slack, terms)
        outside = np.bincount(fold[cells[~paired]], minlength=self.free).astype(float)
        columns = np.flatnonzero(outside)
        index = np.concatenate([[outer_column], columns, [end_column]])
        value = np.concatenate([[1.0], -outside[columns], [growth - 1.0]])
        add_rows(self.model, [(index, value)], 0.0, math.inf)
        total = np.concatenate([slack, [outer_column, self.free]])
        add_rows(self.model, [(total, np.ones(total.size))], -math.inf, delta)
        self.blocks.append((shift, budget, inner))
        self.rows.append(row)

    def solve(
        self, cost: np.ndarray, most_atom: float, end_costs: np.ndarray | None, deadline: float
    ) -> Solution:
        """The least sum of cost p; `end_costs` of the mass past each end, None without."""
        shape = self.shape
        folded = np.bincount(shape.fold, weights=cost)
        for j in range(self.free):
            self.model.changeColCost(j, float(folded[j]))
        self.model.changeColBounds(self.free, 0.0, most_atom)
        for side in range(self.lumps):
            column = self.free + 1 + side
            price = 0.0
            if end_costs is not None:
                price = float(end_costs.sum() if shape.even else end_costs[side])
            self.model.changeColCost(column, price)
            self.model.changeColBounds(column, 0.0, 0.0 if end_costs is None else 1.0)
        while True:
            status = run(self.model, deadline)
            if status == self.status.kInfeasible:
                return self._solution(False, False)
            solution = self._solution(status == self.status.kOptimal, True)
            if not solution.finished or not self._grow(solution):
                return solution

    def _grow(self, solution: Solution) -> bool:
        """Adds the shifts that are worst among their neighbours; whether there were any."""
        shape, present = self.shape, {(k, b) for k, b, _ in self.blocks}
        added = False
        for budget, (epsilon, delta) in enumerate(shape.budgets):
            for side in (1, -1):
                shifts = shape.shifts[shape.shifts * side > 0]
                if not shifts.size:
                    continue
                gaps = excesses(solution.masses, shifts, epsilon) + solution.atom - delta
                padded = np.concatenate([[-math.inf], gaps, [-math.inf]])
                peak = (gaps >= padded[:-2]) & (gaps >= padded[2:]) & (gaps > TOLERANCE * delta)
                for k in shifts[peak]:
                    if (int(k), budget) not in present:
                        self._add(int(k), budget)
                        added = True
        return added

    def _solution(self, finished: bool, feasible: bool) -> Solution:
        shape, (values, duals) = self.shape, solved(self.model)
        masses = np.maximum(values[: self.free], 0.0)[shape.fold]
        atom = max(float(values[self.free]), 0.0)
        blocks = []
        for (shift, budget, inner), row in zip(self.blocks, self.rows, strict=True):
            multipliers = np.zeros(shape.cells)
            multipliers[inner] = np.maximum(duals[row : row + inner.size], 0.0)
            outer = max(float(duals[row + inner.size]), 0.0)
            blocks.append(Block(shift, budget, multipliers, outer))
        slopes = np.maximum(duals[1 : 1 + self.slopes], 0.0)
        violation = max(
            float(np.max(excesses(masses, shape.shifts, e)) + atom - d) for e, d in shape.budgets
        )
        return Solution(masses, atom, violation, tuple(blocks), slopes, finished, feasible)


def falling(shape: Shape) -> list[tuple[int, int]]:
    """(nearer to 0, farther) of every two neighbouring variables on one side."""
    fold, middle = shape.fold, (shape.cells - 1) / 2
    pairs = {
        (int(fold[i + 1]), int(fold[i])) if i + 1 <= middle else (int(fold[i]), int(fold[i + 1]))
        for i in range(shape.cells - 1)
    }
    return sorted(pair for pair in pairs if pair[0] != pair[1])
