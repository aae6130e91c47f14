"""Thresholds, passes and steps for a budget: what coordinate descent does by default.

All follow from one number, r = n mu / p, with mu the budget as Gaussian DP and p coordinates: in
one pass of steps 1 / M_j with the thresholds C_j = sqrt(M_j) (the root mean square of a derivative
at theta = 0, targets of deviation 1), noise of deviation about 2 / r moves the score x theta of a
record. T passes, their steps falling linearly to 0, go as far as T / 2 whole ones, and end in the
noise of about sqrt(T) of them, in place of T.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.types import ArrayLike
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers.coordinate_descent.greedy import SELECTION_SHARE
from jaxdp.solvers.coordinate_descent.plan import Schedule

# Passes at most: with more, ill-conditioned problems gain little for their time. measured:
# benchmarks/bench_estimators.py, as all below
MOST_PASSES = 100
# C_j = sqrt(M_j) t, t = 1 at this r: with less noise a wider, less biased threshold costs little.
# measured: there
_UNIT_CLIP = 60.0
# t at least: saturated derivatives still point the way. measured: there
_LEAST_CLIP = 0.5
# t from which it grows with the root of r: noise of deviation t / r must fall as well. measured:
# there
_STEADY_CLIP = 3.0
# Deviations that columns are clipped to, and that residuals seldom exceed. chosen: values beyond
# say little; R^2 of least squares on California rises from .606 to .64
DEVIATIONS = 3.0


# Threshold of greedy descent, in deviations; its number of updates, as a share of that at which the
# last one is lost in noise, and at most. measured: signs, n = p = 1e4, 10 coefficients, epsilon .3
# and 1: R^2 within .01 of the best threshold in .5 to 1.5 and share in .7 to 1.5
_GREEDY_CLIP, _GREEDY_PART, _MOST_UPDATES = 1.5, 0.7, 1000


class Defaults(NamedTuple):
    """Arguments of `coordinate_descent.plan`, functions of public numbers alone."""

    clip: float
    passes: int
    step: Schedule
    rate: float  # r of the module


class GreedyDefaults(NamedTuple):
    """Arguments of `coordinate_descent.plan(order="greedy")`, functions of public numbers alone."""

    clip: float
    updates: int
    rate: float  # the largest signal over the noise of a selection; below 1 nothing is learnt


@in_float64
def defaults(
    budget: Budget | GDP,
    curvature: ArrayLike,
    records: int,
    relation: str,
    *,
    target_scale: float = 1.0,
    largest: float = DEVIATIONS**2,
    passes: int | None = None,
) -> Defaults:
    """Thresholds, passes and steps of coordinate descent for a budget, from public numbers.

    Args:
        budget: budget of the whole run, or its `largest_gdp`. A pure budget is treated as mu =
            epsilon / sqrt(2 p), one pass of Laplace noise.
        curvature: M_j, (p,), public.
        records: n, public.
        relation: "replace_one" or "add_remove".
        target_scale: deviation of the targets.
        largest: |partial| / (target_scale sqrt(M_j)) that no record exceeds, or hardly any: k_x k_y
            for the squared loss of features and residuals within k_x and k_y deviations, 2 k_x for
            the logistic loss. A wider threshold cuts nothing more.
        passes: their number; r, in [1, 100], if None.

    Returns:
        `Defaults`, arguments of `plan`. clip: t target_scale sqrt(sum M), t = r / 60, at least 0.5;
        from 3 on t grows as sqrt(r), up to `largest`. step: from r^2 / (1 + r^2), the shrinkage of
        a signal of size 1 in noise of deviation 1 / r, linearly to 0 after the last pass. The
        module defines r.

    >>> import jaxdp as dp
    >>> found = dp.solvers.coordinate_descent.defaults(
    ...     dp.Budget(1.0, 1e-5), [1.0, 1.0], 1000, "add_remove")
    >>> found.passes, round(found.clip, 4)
    (100, 5.1774)
    """
    curvature = checks.positive("curvature", curvature)
    # Bounded, so that its square is a number.
    ratio = _records_mu(budget, curvature.size, records, relation) / curvature.size
    ratio = min(max(ratio, 1e-6), 1e6)
    if passes is None:
        passes = int(min(max(-(-ratio // 1.0), 1.0), MOST_PASSES))
    linear = ratio / _UNIT_CLIP
    factor = min(linear, (linear * _STEADY_CLIP) ** 0.5)
    factor = min(max(factor, _LEAST_CLIP), float(checks.positive("largest", largest)))
    clip = factor * target_scale * float(xp.sqrt(xp.sum(curvature)))
    first = 1.0 / (1.0 + ratio**-2.0)
    return Defaults(clip, passes, lambda index: first * (1.0 - index / passes), ratio)


def greedy_defaults(
    budget: Budget | GDP,
    curvature: ArrayLike,
    records: int,
    relation: str,
    *,
    target_scale: float = 1.0,
) -> GreedyDefaults:
    """Thresholds and updates of greedy coordinate descent for a budget, from public numbers.

    Args:
        budget, curvature, records, relation, target_scale: as in `defaults`.

    Returns:
        `GreedyDefaults`. clip: 1.5 target_scale sqrt(sum M). updates: T, at which T coefficients of
        one size that explain the targets stand out from the noise of their selection, whose size is
        3 sqrt(T) log(p) / (n mu) with mu of all selections: .7 n mu / (3 log p), in [1, 1000].

    >>> import jaxdp as dp
    >>> found = dp.solvers.coordinate_descent.greedy_defaults(
    ...     dp.Budget(1.0, 1e-8), [1.0] * 10_000, 10_000, "replace_one")
    >>> found.updates
    35
    """
    curvature = checks.positive("curvature", curvature)
    size = _records_mu(budget, curvature.size, records, relation) * SELECTION_SHARE**0.5
    rate = _GREEDY_PART * size / (2.0 * _GREEDY_CLIP * max(math.log(curvature.size), 1.0))
    clip = _GREEDY_CLIP * target_scale * float(xp.sqrt(xp.sum(curvature)))
    return GreedyDefaults(clip, min(max(int(rate), 1), _MOST_UPDATES), rate)


def _records_mu(budget: Budget | GDP, coordinates: int, records: int, relation: str) -> float:
    """n mu of replaced records; twice that of added or removed ones, whose sums move by half."""
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    if isinstance(budget, GDP):
        mu = budget.mu
    elif budget.delta > 0:
        mu = largest_gdp(budget).mu
    else:
        mu = largest_laplace_ratio(budget) / math.sqrt(2.0 * coordinates)
    return records * float(mu) * 2.0 / shift_factor(relation)
