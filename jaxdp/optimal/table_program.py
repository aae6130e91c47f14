"""The linear program over a table of laws, one row an input, with pairs added when they bind.

A constraint (a, b) is sum_j (g_a(j) - e^epsilon g_b(j))_+ <= delta, over the letters j. Rows are
laws, or mixtures of two that are next to each other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxdp._numeric.elementary import ULP
from jaxdp.optimal.program import TOLERANCE, add_columns, add_gaps, add_rows, new_model, run, solved

# Numbers of two rows.
Pair: TypeAlias = tuple[int, ...]


class Table(NamedTuple):
    """Laws (rows, letters), and multipliers of each pair's constraint, letter by letter."""

    laws: np.ndarray
    multipliers: dict[Pair, np.ndarray]
    finished: bool
    feasible: bool


def shortfalls(laws: np.ndarray, pairs: np.ndarray, epsilon: float) -> np.ndarray:
    """sum_j (g_a(j) - e^epsilon g_b(j))_+ of each of `pairs`, (n, 2), in floating point."""
    scaled, amounts = math.exp(epsilon) * laws, [np.zeros(0)]
    for part in np.array_split(pairs, max(1, len(pairs) // 512)):
        gaps = laws[part[:, 0]] - scaled[part[:, 1]]
        amounts.append(np.maximum(gaps, 0.0).sum(axis=1))
    return np.concatenate(amounts)


class KernelProgram:
    """One HiGHS model over a table; `mirrored`: turned by 180 degrees it is the same."""

    def __init__(
        self,
        cost: np.ndarray,
        epsilon: float,
        delta: float,
        mirrored: bool,
        mix: np.ndarray | None = None,
    ):
        """`mix`: the laws that pairs are of, (laws, rows); the rows themselves by default."""
        self.epsilon, self.delta = epsilon, delta
        rows, letters = cost.shape
        self.mix = np.eye(rows) if mix is None else mix
        index = np.arange(rows * letters).reshape(rows, letters)
        if mirrored:
            index = np.minimum(index, index[::-1, ::-1])
        columns, fold = np.unique(index, return_inverse=True)
        self.fold, self.size = fold.reshape(rows, letters), columns.size
        self.model, self.status = new_model()
        folded = np.bincount(self.fold.ravel(), weights=cost.ravel())
        add_columns(self.model, folded, np.full(columns.size, math.inf))
        for row in range((rows + 1) // 2 if mirrored else rows):
            self.add_row(row, np.ones(letters), 1.0, 1.0)
        self.pairs: dict[Pair, int] = {}  # and their first rows in the model

    def add_row(self, row: int | np.ndarray, weights: np.ndarray, low: float, high: float) -> None:
        """low <= sum over letters (and rows) of weights g <= high."""
        columns = self.fold[row].ravel()
        total = np.bincount(columns, weights=weights.ravel())
        nonzero = np.flatnonzero(total)
        add_rows(self.model, [(nonzero, total[nonzero])], low, high)

    def _mixture(self, law: int) -> list[tuple[int, float]]:
        return [(int(row), float(self.mix[law, row])) for row in np.flatnonzero(self.mix[law])]

    def add(self, pair: Pair) -> None:
        """The constraint of one pair."""
        if pair in self.pairs:
            return
        letters, growth = self.fold.shape[1], math.exp(self.epsilon)
        slack = add_columns(self.model, np.zeros(letters), np.full(letters, math.inf))
        columns = np.arange(slack, slack + letters)
        p = [(weight, self.fold[a]) for a, weight in self._mixture(pair[0])]
        q = [(-growth * weight, self.fold[b]) for b, weight in self._mixture(pair[1])]
        self.pairs[pair] = add_gaps(self.model, columns, [(-w, index) for w, index in p + q])
        add_rows(self.model, [(columns, np.ones(letters))], -math.inf, self.delta)

    def shortfalls(self, laws: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Those of pairs, by the rows' laws."""
        return shortfalls(self.mix @ laws, pairs, self.epsilon)

    def solve(self, candidates: np.ndarray, deadline: float) -> Table:
        """Least cost where every pair of `candidates`, (n, 2), keeps the budget."""
        while True:
            table = self._table(run(self.model, deadline))
            if not table.finished:
                return table
            violations = self.shortfalls(table.laws, candidates) - self.delta
            worst = np.flatnonzero(violations > TOLERANCE * self.delta)
            worst = worst[np.argsort(-violations[worst])][: 2 * self.fold.shape[0]]
            chosen = [tuple(map(int, candidates[i])) for i in worst]
            fresh = [pair for pair in chosen if pair not in self.pairs]
            if not fresh:
                return table
            for pair in fresh:
                self.add(pair)

    def _table(self, status: Any) -> Table:
        values, duals = solved(self.model)
        laws = np.maximum(values[self.fold], 0.0)
        letters = self.fold.shape[1]
        multipliers = {
            pair: np.maximum(duals[row : row + letters], 0.0) for pair, row in self.pairs.items()
        }
        finished = status == self.status.kOptimal
        return Table(laws, multipliers, finished, status != self.status.kInfeasible)


def table_bound(
    cost: np.ndarray,
    multipliers: dict[Pair, np.ndarray],
    epsilon: float,
    delta: float,
    mirrored: bool,
) -> float:
    """A lower bound from any multipliers >= 0, less its rounding.

    sum_a min_j [c_a(j) + sum_b lambda_(a, b)(j) - e^epsilon sum_b lambda_(b, a)(j)]
    - delta sum over pairs of max lambda.
    """
    reduced, size = cost.copy(), np.abs(cost)
    paid = 0.0
    growth = math.exp(epsilon) * (1.0 + 4.0 * ULP)
    for (row, other), values in multipliers.items():
        letters = np.maximum(values, 0.0)
        weighted = growth * letters
        reduced[row] += letters
        reduced[other] -= weighted
        size[row] += letters
        size[other] += weighted
        paid += delta * float(letters.max())
    if mirrored:
        reduced, size = 0.5 * (reduced + reduced[::-1, ::-1]), 0.5 * (size + size[::-1, ::-1])
    terms = 4.0 * len(multipliers) + 4.0 * cost.shape[0] + 16.0
    rounding = terms * ULP * (float(size.max(axis=1).sum()) + paid)
    return float(reduced.min(axis=1).sum()) - paid - rounding
