"""Lower bounds from multipliers, whoever found them.

For lambda >= 0 with maxima mu_k the Lagrangian of the program over masses p >= 0 of sum 1 is

    bound = min_i [c_i + sum_k (lambda_(k, i) - e^epsilon lambda_(k, i + k))] - sum_k delta_k mu_k,

plus the terms of the mass beyond the ends and of monotone pairs: true of every noise that keeps
the budgets, for any multipliers. Nothing is taken from a solver but these numbers.
"""

from __future__ import annotations

import math

import numpy as np

from jaxdp._numeric.elementary import ULP
from jaxdp.optimal.program import Block, Shape, falling


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
