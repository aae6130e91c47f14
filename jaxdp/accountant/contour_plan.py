"""Plan of a contour: its tilt, its step, and the aliasing of the trapezoidal rule.

The tilt is the saddle of the integrand, or the best tilt of Chernoff's bound on epsilon. The step
is the largest with an aliasing error of at most e^-`_ALIASED` times delta's saddlepoint estimate.
`log_aliasing` bounds this error, so only the bracket's width depends on the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp.accountant.factors import (
    Factors,
    cumulant_errors,
    cumulants,
    over_all,
)

# log of the range of tilts searched. chosen: all that a double may need
_LOG_TILTS = (-16.0, 14.0)
# Tilts tried at once, in two rounds; the second lies between the neighbours of the best. chosen
_TRIED = 24
# Other tilts, in units of the best, at which Chernoff's bound is evaluated too. chosen
_BESIDE = np.array(
    [0.01, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0, 8.0, 50.0]
)
# -log of the largest aliased share of delta's saddlepoint estimate. chosen: 1e-11
_ALIASED = 25.0


class Plan(NamedTuple):
    """A contour through `tilt` with points `step` apart, and Chernoff's bounds at other tilts."""

    tilt: Reals
    step: Reals
    log_scale: Reals  # log of M(tilt) / (tilt (tilt + 1))
    error: Reals  # error of log M(tilt)
    others: Reals  # other tilts (T,)
    log_moments: Reals  # above log M there, plus log of max_y e^(-theta y) (1 - e^-y)

    def log_size(self, factors: Factors, epsilon: Reals) -> Reals:
        """log of M(tilt) e^(-tilt epsilon) / (tilt (tilt + 1)), with derivatives."""
        cumulant = cumulants(factors, self.tilt[None], over_all)[0]
        return cumulant - self.tilt * epsilon - xp.log(self.tilt) - xp.log1p(self.tilt)


def plan_at_epsilon(factors: Factors, epsilon: Reals) -> Plan:
    """Plan through the saddle of M(z) e^(-z epsilon) / (z (z + 1))."""
    factors, epsilon = lax.stop_gradient((factors, epsilon))
    return _plan(factors, lambda t, k: k - t * epsilon - xp.log(t) - xp.log1p(t), epsilon)


def plan_at_delta(factors: Factors, delta: Reals) -> tuple[Plan, Reals]:
    """Plan through the tilt of Chernoff's bound on epsilon, and that bound."""
    log_delta = xp.log(delta)

    def bound(t: Reals, k: Reals) -> Reals:
        return (k - conversion_entropy(t) - log_delta) / t

    plan = _plan(factors, bound, None)
    bounds = (plan.log_moments - log_delta) / plan.others
    epsilon = xp.maximum(xp.nanmin(xp.where(xp.isfinite(bounds), bounds, xp.inf)), 0.0)
    return _with_step(plan, epsilon), epsilon


def log_chernoff(plan: Plan, epsilon: Reals) -> Reals:
    """Chernoff's bound on log delta at the best of all tilts; NaN where none is finite."""
    return _least_finite(plan.log_moments - plan.others * epsilon)


def epsilon_chernoff(plan: Plan, log_delta: Reals) -> Reals:
    """Chernoff's bound on epsilon at the best of all tilts; NaN where none is finite."""
    return _least_finite((plan.log_moments - log_delta) / plan.others)


def log_aliasing(plan: Plan, epsilon: Reals) -> Reals:
    """log of the aliasing error of the sum, in units of `Plan.log_size`.

    The error is the sum of delta(epsilon + m P) e^(theta m P) over all m != 0. At any tilt s,
    delta(y) is less than M(s) e^(-s y) max_x (1 - e^-x) e^(-s x). For m >= 1 the bound uses s >
    theta, for m <= -1 it uses s < theta.
    """
    period = 2.0 * xp.pi / plan.step
    log_unit = plan.log_scale - plan.tilt * epsilon
    tilts, moments = xp.append(plan.others, 0.0), xp.append(plan.log_moments, 0.0)
    decay = xp.abs(tilts - plan.tilt) * period
    log_aliased = moments - tilts * epsilon - log_unit - decay - xp.log(-xp.expm1(-decay))
    log_aliased = xp.where(xp.isfinite(log_aliased), log_aliased, xp.inf)
    from_above = xp.min(xp.where(tilts > plan.tilt, log_aliased, xp.inf))
    from_below = xp.min(xp.where(tilts < plan.tilt, log_aliased, xp.inf))
    return xp.logaddexp(from_above, from_below)


def best_tilt(
    height: Callable[[Reals], Reals], rounds: int, ends: tuple[float, float]
) -> tuple[Reals, Reals]:
    """The tilt of the least height(tilts), and that height.

    Each round searches between the neighbours of the previous best tilt.
    """

    def narrow(_: Index | int, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        points = xp.linspace(state[0], state[1], _TRIED)
        heights = height(xp.exp(points))
        heights = xp.where(xp.isfinite(heights), heights, xp.inf)
        best = xp.argmin(heights)
        low, high = points[xp.maximum(best - 1, 0)], points[xp.minimum(best + 1, _TRIED - 1)]
        return low, high, points[best], heights[best]

    low, high = (xp.asarray(x) for x in ends)
    log_tilt, least = lax.fori_loop(0, rounds, narrow, (low, high, low, low))[2:]
    return xp.exp(log_tilt), least


def _plan(factors: Factors, height: Callable[[Reals, Reals], Reals], epsilon: Reals | None) -> Plan:
    tilt, _ = best_tilt(lambda tilts: height(tilts, cumulants(factors, tilts)), 2, _LOG_TILTS)
    tilts = xp.append(tilt * xp.asarray(_BESIDE), tilt)
    values, errors = cumulants(factors, tilts), cumulant_errors(factors, tilts)
    log_scale = values[-1] - xp.log(tilt) - xp.log1p(tilt)
    moments = values - conversion_entropy(tilts) + errors
    plan = Plan(tilt, xp.ones(()), log_scale, errors[-1], tilts, moments)
    return lax.stop_gradient(plan if epsilon is None else _with_step(plan, epsilon))


def _with_step(plan: Plan, epsilon: Reals) -> Plan:
    """The plan with the largest step whose aliasing is below e^-`_ALIASED`."""
    log_unit = plan.log_scale - plan.tilt * epsilon
    excess = xp.append(plan.log_moments - plan.others * epsilon, 0.0) - log_unit + _ALIASED
    distance = xp.append(plan.others, 0.0) - plan.tilt
    needed = xp.where(xp.isfinite(excess), xp.maximum(excess, 1.0) / xp.abs(distance), xp.inf)
    from_above = xp.min(xp.where(distance > 0, needed, xp.inf))
    from_below = xp.min(xp.where(distance < 0, needed, xp.inf))
    return plan._replace(step=2.0 * xp.pi / xp.maximum(from_above, from_below))


def _least_finite(bounds: Reals) -> Reals:
    least_bound = xp.min(xp.where(xp.isfinite(bounds), bounds, xp.inf))
    return xp.where(least_bound == xp.inf, xp.nan, least_bound)
