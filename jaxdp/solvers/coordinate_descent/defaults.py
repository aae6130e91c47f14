"""Thresholds, passes and steps for a budget: what coordinate descent does where no one says.

All follow from one number, r = n mu / p, with mu the budget as Gaussian DP and p coordinates: in
one pass of steps 1 / M_j with the thresholds C_j = sqrt(M_j) (the root mean square of a derivative
at theta = 0, targets of deviation 1), noise of deviation about 2 / r moves the score x theta of a
record. T passes, their steps falling linearly to 0, go as far as T / 2 whole ones, and end in the
noise of about sqrt(T) of them, in place of T.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.types import ArrayLike
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.solvers.coordinate_descent.schedule import Schedule

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
# |x| and |y| in deviations, that columns are clipped to and that targets seldom exceed. chosen: what
# lies beyond says little; least squares of California rises from .606 to .64
DEVIATIONS = 3.0


class Defaults(NamedTuple):
    """Arguments of `coordinate_descent.plan`, functions of public numbers alone."""

    clip: float
    passes: int
    step: Schedule


def defaults(
    budget: Budget,
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
        budget: of the whole run; a pure one counts as mu = epsilon / sqrt(2 p): one pass of Laplace
            noise.
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
    (100, 7.7164)
    """
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    curvature = checks.positive("curvature", curvature)
    coordinates = curvature.size
    pure = largest_laplace_ratio(budget) / jnp.sqrt(2.0 * coordinates)
    rate = float(jnp.where(budget.delta > 0, largest_gdp(budget).mu, pure))
    # Bounded, so that its square is a number.
    ratio = min(max(records * rate / coordinates * 2.0 / shift_factor(relation), 1e-6), 1e6)
    if passes is None:
        passes = int(min(max(-(-ratio // 1.0), 1.0), MOST_PASSES))
    linear = ratio / _UNIT_CLIP
    factor = min(linear, (linear * _STEADY_CLIP) ** 0.5)
    factor = min(max(factor, _LEAST_CLIP), float(checks.positive("largest", largest)))
    clip = factor * target_scale * float(jnp.sqrt(jnp.sum(curvature)))
    first = 1.0 / (1.0 + ratio**-2.0)
    return Defaults(clip, passes, lambda index: first * (1.0 - index / passes))
