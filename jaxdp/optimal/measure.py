"""Cost of an error: convex combinations of |x|, its one-sided parts, x^2, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

# Pieces of a cell, with a bound on a user's function in each. chosen: 2% of a cell
_POINTS = 64


class ErrorMeasure(NamedTuple):
    """left max(-x, 0) + right max(x, 0) + square x^2 + function(|x|), in the query's unit.

    `ErrorMeasure(1 - q, q)` is the pinball loss of a quantile q in (0, 1).
    Weights are zero or more; `function`, if any, takes and returns NumPy arrays, is nonnegative
    and does not decrease. The sum must grow without bound on both sides: otherwise the optimum is
    no answer at all.
    """

    left: float = 1.0
    right: float = 1.0
    square: float = 0.0
    function: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def even(self) -> bool:
        """True if x and -x cost the same."""
        return self.left == self.right

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The cost of errors x."""
        cost = self.left * np.maximum(-x, 0.0) + self.right * np.maximum(x, 0.0)
        cost = cost + self.square * x * x
        return cost if self.function is None else cost + np.asarray(self.function(np.abs(x)))

    def cell_means(self, ends: np.ndarray) -> np.ndarray:
        """The mean cost over each cell between `ends`; of a function an upper bound."""
        a, b = ends[:-1], ends[1:]
        low, high = np.minimum(a, 0.0), np.minimum(b, 0.0)
        left = 0.5 * (low * low - high * high)
        low, high = np.maximum(a, 0.0), np.maximum(b, 0.0)
        right = 0.5 * (high * high - low * low)
        mean = (self.left * left + self.right * right) / (b - a)
        mean = mean + self.square * (a * a + a * b + b * b) / 3.0
        if self.function is None:
            return mean
        parts = np.abs(a[:, None] + (b - a)[:, None] * np.linspace(0.0, 1.0, _POINTS + 1))
        outer = np.maximum(parts[:, 1:], parts[:, :-1])
        return mean + np.mean(np.asarray(self.function(outer)), axis=1)

    def node_values(self, nodes: np.ndarray) -> np.ndarray:
        """Values at evenly spaced nodes, 0 among them, whose interpolant is nowhere above the cost.

        |x| and its parts equal their interpolants, the interpolant of x^2 is above by step^2 / 4 at
        most; a function is compared with its interpolant between 64 points of each cell.
        """
        step = nodes[1] - nodes[0]
        values = self._replace(function=None)(nodes) - 0.25 * self.square * step * step
        if self.function is None:
            return values
        at_nodes = np.asarray(self.function(np.abs(nodes)))
        share = np.linspace(0.0, 1.0, _POINTS + 1)
        chord = at_nodes[:-1, None] + (at_nodes[1:] - at_nodes[:-1])[:, None] * share
        inside = np.abs(nodes[:-1, None] + step * share)
        lowest = np.asarray(self.function(np.minimum(inside[:, 1:], inside[:, :-1])))
        gap = np.max(np.maximum(chord[:, 1:], chord[:, :-1]) - lowest, axis=1)
        return values + at_nodes - np.maximum(np.append(gap, gap[-1]), np.insert(gap, 0, gap[0]))


# By name, see `dp.optimal.noise`.
MEASURES = {
    "l1": ErrorMeasure(),
    "l2": ErrorMeasure(0.0, 0.0, 1.0),
    "asymmetric": ErrorMeasure(1.0, 2.0),
}
MeasureLike: TypeAlias = str | ErrorMeasure | Callable[[np.ndarray], np.ndarray]


def measure_of(loss: MeasureLike) -> ErrorMeasure:
    """The `ErrorMeasure` of a name, a measure or a function of |x|."""
    if isinstance(loss, str):
        if loss not in MEASURES:
            raise ValueError(f"loss must be one of {', '.join(MEASURES)}, got {loss!r}")
        return MEASURES[loss]
    if isinstance(loss, ErrorMeasure):
        return _checked(loss)
    if callable(loss):
        return _checked(ErrorMeasure(0.0, 0.0, 0.0, loss))
    raise ValueError(f"loss must be a name, an ErrorMeasure or a function, got {loss!r}")


def _checked(measure: ErrorMeasure) -> ErrorMeasure:
    weights = np.array([measure.left, measure.right, measure.square])
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0)):
        raise ValueError(f"loss must have finite weights, zero or more, got {weights}")
    if measure.square > 0 or (measure.left > 0 and measure.right > 0):
        return measure
    if measure.function is None:
        raise ValueError(f"loss must be unbounded on both sides, got weights {weights}")
    points = np.append(0.0, 4.0 ** np.arange(-10.0, 31.0))
    try:
        with np.errstate(over="ignore"):
            values = np.asarray(measure.function(points), dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError("loss must be a function that takes a NumPy array of |x|") from error
    near = values[np.isfinite(values)] if values.shape == points.shape else np.full(1, np.nan)
    # Far out a loss may overflow.
    is_infinite = near.size > 1 and np.all(values[near.size :] == np.inf)
    if not (is_infinite and near[0] >= 0 and np.all(np.diff(near) >= 0)):
        raise ValueError("loss must be a finite function of |x|, zero or more, that never falls")
    if near.size < values.size:
        return measure
    # A bounded loss stops growing between 1 and 4^30.
    growth = np.diff(values)
    if not growth[-1] > 1e-3 * growth[-20]:
        raise ValueError("loss must be unbounded: it stops growing with |x|")
    return measure


# Nodes and weights of Gauss-Legendre quadrature. derived: exact for a hat times x^2
_RULE = np.polynomial.legendre.leggauss(4)
# Pieces of a part, with a bound on a user's function in each. chosen: 0.4% of a part
_PIECES = 256


def part_chances(weights: np.ndarray | None, nodes: np.ndarray) -> np.ndarray:
    """The chance of each part: `weights`, a density, times its length, of sum 1."""
    count = nodes.size - 1
    parts = np.ones(count) if weights is None else np.asarray(weights, dtype=float)
    good = parts.shape == (count,) and np.all(np.isfinite(parts)) and np.all(parts >= 0)
    if not (good and parts.sum() > 0):
        raise ValueError(
            f"weights must be {count} finite numbers, zero or more, not all zero, got {parts}"
        )
    chances = parts * np.diff(nodes)
    return chances / chances.sum()


def part_costs(measure: ErrorMeasure, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over each part of hat_k(v) c(y - v), for its left node and its right one.

    (parts, outputs), the outputs the nodes. Between nodes |y - v| and its square are polynomials,
    for which Gauss's rule is exact. A function is largest at an end of every piece.
    """
    widths = np.diff(nodes)[:, None]
    place = 0.5 * (_RULE[0] + 1.0)
    v = nodes[:-1, None] + widths * place
    cost = measure._replace(function=None)(nodes - v[:, :, None])
    rule = 0.5 * _RULE[1]
    left = np.einsum("q,pqj->pj", rule * (1.0 - place), cost)
    right = np.einsum("q,pqj->pj", rule * place, cost)
    if measure.function is not None:
        cuts = np.linspace(0.0, 1.0, _PIECES + 1)
        distance = np.abs(nodes - (nodes[:-1, None] + widths * cuts)[:, :, None])
        worst = np.asarray(measure.function(np.maximum(distance[:, 1:], distance[:, :-1])))
        middle = 0.5 * (cuts[1:] + cuts[:-1])
        left = left + np.einsum("q,pqj->pj", (1.0 - middle) / _PIECES, worst)
        right = right + np.einsum("q,pqj->pj", middle / _PIECES, worst)
    return left, right


def node_costs(costs: tuple[np.ndarray, np.ndarray], parts: np.ndarray) -> np.ndarray:
    """(nodes, outputs): the cost of each output at each node."""
    left, right = costs
    cost = np.zeros((parts.size + 1, parts.size + 1))
    cost[:-1] += parts[:, None] * left
    cost[1:] += parts[:, None] * right
    return cost
