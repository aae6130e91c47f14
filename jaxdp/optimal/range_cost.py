"""Cost of answers over a range, by nodes: weights of its parts, and integrated losses."""

from __future__ import annotations

import numpy as np

from jaxdp.optimal.measure import ErrorMeasure

# Nodes and weights of Gauss-Legendre quadrature. derived: exact for a hat times x^2
_RULE = np.polynomial.legendre.leggauss(4)
# Pieces of a part on each of which a user's function is bounded. chosen: 0.4% of a part
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
