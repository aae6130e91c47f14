"""Bounds on delta by inversion along a vertical contour of the moment generating function.

Identity: for any theta > 0 at which M(theta) is finite,

    delta(epsilon) = 1 / (2 pi i) int M(z) e^(-z epsilon) / (z (z + 1)) dz,   Re z = theta.

The tilt theta lies near the saddle, and the trapezoidal rule in t = Im z sums the integral. Errors:

* aliasing: the rule sums delta(epsilon + m P) e^(theta m P), P = 2 pi / h. The terms m != 0 are
  positive and below Markov's bound at other tilts (`contour_plan`);
* truncation of the sum at a finite t (`truncation`);
* smoothing by a Gaussian where M falls too slowly, which only raises delta (`contour_sum`);
* rare large losses, whose probability is added to delta (`rare_losses`);
* rounding and quadrature errors of the values (`line`).

Chosen by `engines` first for losses on no lattice, and second for sampled Gaussians in few phases.
Where Chernoff's bound is below the sum, it is the upper bound. The derivative of the upper bound is
the derivative of the sum with the plan fixed, or 0 where there is no sum. The derivative of the
lower bound is 0. Lanes lie side by side.

Source: Abate & Whitt, Queueing Systems 10, 1992; Feller, An Introduction to Probability II, XV.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxdp._core.namespace import custom_jvp, lax, vmap, xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp.accountant.batches import of_platform
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.contour_plan import (
    epsilon_chernoff,
    log_chernoff,
    plan_at_delta,
    plan_at_epsilon,
)
from jaxdp.accountant.contour_sum import Contour, contour_of, errors_of
from jaxdp.accountant.factors import Factors, factors_of, used_in
from jaxdp.accountant.line import ROOT, values_on
from jaxdp.accountant.rare_losses import (
    depth_for_delta,
    depth_for_epsilon,
    without_rare_losses,
)
from jaxdp.accountant.tables import Table

# Bytes of the lanes evaluated side by side. chosen: a CPU's cache holds part of them
_MEMORY = {"cpu": 2**27, "other": 2**32}
# Newton steps for epsilon along a fixed contour. chosen: each doubles the digits
_NEWTON_STEPS = 8
# Relative slack on delta, beyond the errors of two contours for one delta. chosen
_SLACK = 1e-9


def log_bounds(table: Table, epsilon: Reals) -> LogBounds:
    """Bounds on log delta of finite losses at epsilons (L,) >= 0."""
    return _over_lanes(_log_bounds, table, epsilon)


def epsilon_bounds(table: Table, delta: Reals) -> LogBounds:
    """Bounds on the least epsilons >= 0 at deltas (L,), by Chernoff where the contour fails."""
    return _over_lanes(_epsilon_bounds, table, delta)


def _over_lanes(lane: Callable[..., LogBounds], table: Table, values: Reals) -> LogBounds:
    """Evaluate lane(factors, value) side by side for as many lanes as fit in memory."""
    used_factors, size = used_in(table), values.shape[0]
    bytes_of_lane = 8 * table.law.loss.shape[-1] * (16 * ROOT + 400)
    most_lanes = max(1, of_platform(_MEMORY) // bytes_of_lane)
    chunk = -(-size // max(1, -(-size // most_lanes)))  # chunks of nearly equal size
    by_lane = vmap(lambda table, value: lane(factors_of(table, used_factors), value))
    if chunk == size:
        return by_lane(table, values)
    spare = -size % chunk
    lanes = jax.tree.map(lambda x: xp.concatenate([x, x[:spare]]), (table, values))
    lanes = jax.tree.map(lambda x: x.reshape(-1, chunk, *x.shape[1:]), lanes)
    bounds = lax.map(lambda lane: by_lane(*lane), lanes)
    return LogBounds(*(x.reshape(-1)[:size] for x in bounds))


@custom_jvp
def _log_bounds(factors: Factors, epsilon: Reals) -> LogBounds:
    return _bounds_and_line(factors, epsilon)[0]


@_log_bounds.defjvp
def _log_bounds_jvp(primals: Any, tangents: Any) -> tuple[LogBounds, LogBounds]:
    factors, epsilon = primals
    bounds, line, has_slope = _bounds_and_line(factors, epsilon)
    # Where Chernoff's bound stands, the slope is 0: a NaN would reach other lanes.
    slopes = jax.tree.map(lambda x: xp.where(has_slope, x, 0.0), _slopes(line, factors, epsilon))
    slope = _dot(slopes, tangents)
    return bounds, LogBounds(xp.zeros_like(slope), slope)


@custom_jvp
def _epsilon_bounds(factors: Factors, delta: Reals) -> LogBounds:
    return _epsilon_and_line(factors, delta)[0]


@_epsilon_bounds.defjvp
def _epsilon_bounds_jvp(primals: Any, tangents: Any) -> tuple[LogBounds, LogBounds]:
    factors, delta = primals
    bounds, line, epsilon = _epsilon_and_line(factors, delta)
    slopes = _slopes(line, factors, epsilon)
    has_slope = xp.isfinite(slopes[1]) & (bounds.lower > 0)
    of_factors, of_epsilon = jax.tree.map(lambda x: xp.where(has_slope, x, 0.0), slopes)
    of_epsilon = xp.where(has_slope, of_epsilon, xp.inf)
    change = _dot(of_factors, tangents[0]) - tangents[1] / delta
    slope = -change / of_epsilon
    return bounds, LogBounds(xp.zeros_like(slope), slope)


def _slopes(line: Contour, factors: Factors, epsilon: Reals) -> Any:
    """Derivatives of log delta in laws, numbers of releases and epsilon; the plan is fixed."""
    log_share = xp.where(
        factors.each.law.log_mass > -xp.inf,
        line.factors.each.law.log_mass - factors.each.law.log_mass,
        -xp.inf,
    )

    def log_delta(parameters: Any, epsilon: Reals) -> Reals:
        loss, log_mass, releases, variance, log_finite = parameters
        law = line.factors.each.law._replace(loss=loss, log_mass=log_mass + log_share)
        factor = line.factors.each._replace(law=law, releases=releases)
        factors_at = line.factors._replace(
            each=factor, variance=variance + line.smoothed, log_finite=log_finite
        )
        line_at = line._replace(values=values_on(factors_at, line.plan))
        return xp.log(line_at.total(epsilon)) + line.plan.log_size(factors_at, epsilon)

    law = factors.each.law
    parameters = law.loss, law.log_mass, factors.each.releases, factors.variance, factors.log_finite
    (loss, log_mass, releases, variance, log_finite), slope = jax.grad(log_delta, (0, 1))(
        parameters, epsilon
    )
    zero = jax.tree.map(xp.zeros_like, factors._replace(used=xp.zeros(())))
    law = zero.each.law._replace(loss=loss, log_mass=log_mass)
    factor = zero.each._replace(law=law, releases=releases)
    return zero._replace(each=factor, variance=variance, log_finite=log_finite), slope


def _dot(slopes: Any, tangents: Any) -> Reals:
    """Sum of slopes times tangents, over the leaves that have a slope."""

    def product(slope: Reals, tangent: Any) -> Reals:
        if tangent.dtype == jax.dtypes.float0:
            return xp.zeros(())
        return xp.sum(xp.where(slope == 0, 0.0, slope * tangent))

    return sum(jax.tree.leaves(jax.tree.map(product, slopes, tangents)), start=xp.zeros(()))


def _bounds_and_line(factors: Factors, epsilon: Reals) -> tuple[LogBounds, Contour, Bools]:
    parts, dropped = without_rare_losses(factors, depth_for_epsilon(factors, epsilon))
    plan = plan_at_epsilon(parts, epsilon)
    line = contour_of(parts, plan, dropped)
    total = line.total(epsilon)
    error, below = errors_of(line, epsilon)
    log_size = line.plan.log_size(line.factors, epsilon)
    upper, lower = total + error, total - error - below
    log_upper = xp.log(xp.where(upper > 0, upper, 1.0)) + log_size
    log_lower = xp.where(lower > 0, xp.log(xp.where(lower > 0, lower, 1.0)) + log_size, -xp.inf)
    is_known = xp.isfinite(log_upper) & (upper > 0)
    log_lower = xp.where(is_known, log_lower, -xp.inf)
    # Where the contour fails, or is above Chernoff's bound, Chernoff's bound stands.
    bound = log_chernoff(plan, epsilon)
    log_upper = xp.where(is_known & (log_upper < bound), log_upper, bound)
    bounds = LogBounds(log_lower, xp.logaddexp(log_upper, line.dropped))
    return bounds, line, is_known & (total > 0)


def _epsilon_and_line(factors: Factors, delta: Reals) -> tuple[LogBounds, Contour, Reals]:
    log_delta = xp.log(delta)
    parts, dropped = without_rare_losses(factors, depth_for_delta(log_delta))
    plan, epsilon = plan_at_delta(parts, delta)
    line = contour_of(parts, plan, dropped)

    def gap(epsilon: Reals) -> tuple[Reals, Reals]:
        """log of the sum over delta, and minus its slope."""
        total, slope = line.total(epsilon), line.slope(epsilon)
        safe = xp.where(total > 0, total, 1.0)
        value = xp.log(safe) + log_size - plan.tilt * epsilon - log_delta
        return xp.where(total > 0, value, xp.nan), slope / safe

    def step(_: Index | int, epsilon: Reals) -> Reals:
        value, slope = gap(epsilon)
        largest_step = 0.7 * xp.maximum(xp.abs(epsilon), 1.0 / plan.tilt)
        return epsilon + xp.clip(value / xp.maximum(slope, 1e-300), -largest_step, largest_step)

    log_size = plan.log_size(line.factors, xp.zeros(()))
    epsilon = lax.fori_loop(0, _NEWTON_STEPS, step, epsilon)
    value, slope = gap(epsilon)
    total = line.total(epsilon)
    error, below = errors_of(line, epsilon)
    share = xp.exp(line.dropped - log_delta)
    margin = 2.0 * error / total + share + _SLACK
    upper = epsilon + (value + margin) / slope
    lower = epsilon + (value - margin - below / total) / slope
    bad = ~(xp.abs(value) < 1e-6) | ~(margin < 0.1)
    # Chernoff's bound replaces a failed contour; dropped losses take up to half of delta.
    bound = epsilon_chernoff(plan, log_delta - xp.log(2.0))
    bound = xp.where(share < 0.5, bound, xp.nan)
    upper = xp.maximum(xp.where(bad, bound, upper), 0.0)
    lower = xp.where(bad | ~(lower > 0), 0.0, lower)
    return LogBounds(lower, upper), line, epsilon
