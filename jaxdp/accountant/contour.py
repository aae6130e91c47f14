"""delta by inversion along a vertical contour in the plane of the moment generating function.

    delta(epsilon) = 1 / (2 pi i) int M(z) e^(-z epsilon) / (z (z + 1)) dz,   Re z = theta > 0,

theta near the saddle, by the trapezoidal rule in t = Im z: all points are one matrix product of
(points, nodes) by (nodes, points), t = h (a + B b). Chosen where the characteristic function of a
composition falls: releases with a density, sampled or many. The error that is stated:

* aliasing: the rule sums delta(epsilon + m P) e^(theta m P), P = 2 pi / h, positive for m != 0 and
  below Markov's bound at other tilts;
* truncation: `accountant.truncation`;
* quadrature of the law: the difference from a second rule; rounding: of sums and logarithms.

Source: Abate & Whitt, Queueing Systems 10, 1992; Feller, An Introduction to Probability II, XV.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Complexes, Index, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.contour_plan import (
    Plan,
    epsilon_chernoff,
    log_aliasing,
    log_chernoff,
    plan_at_delta,
    plan_at_epsilon,
)
from jaxdp.accountant.cut import depth_for_delta, depth_for_epsilon, without_rare_losses
from jaxdp.accountant.factors import Factor, Factors, over_releases, rounding_of, tilted
from jaxdp.accountant.truncation import log_beyond

# Square roots of the numbers of points of a contour, tried in turn.
ROOTS = (16, 64)
# Heights at which two rules are compared, in parts of the end.
_CHECKED = np.array([0.0, *(2.0 ** np.arange(-9.0, -1.0)), 0.4, 0.55, 0.7, 0.85, 1.0])
# Radians between neighbouring nodes at which nothing of a panel's integral is left. derived: the
# error of 16 nodes for e^(i x) grows like the 32nd power of the turn.
_TURN = 3.6
# Newton steps for epsilon along a contour that is held.
_NEWTON_STEPS = 8
# Of delta: what two contours for one delta may differ by beyond their errors.
_SLACK = 1e-9


class Contour(NamedTuple):
    """M(z) / M(theta) along the contour, at heights (N,), and its errors."""

    plan: Plan
    heights: Reals
    log_values: Complexes  # log of M(z) / M(theta)
    weights: Reals  # of the rule, times theta (theta + 1) / |z (z + 1)|
    angles: Reals  # of 1 / (z (z + 1))
    doubt: Reals  # log of 1 + the relative error of each value by phases that turn too far
    quadrature: Reals  # error of M along it, over M(theta)
    rounding: Reals  # of each value, relatively
    truncation: Reals  # of the sum


def log_bounds(factors: Factors, epsilon: Reals, root: int) -> LogBounds:
    """Bounds on log delta at one epsilon >= 0, from root^2 points."""
    held = lax.stop_gradient((factors, epsilon))
    factors, dropped = without_rare_losses(factors, depth_for_epsilon(*held))
    plan = lax.stop_gradient(plan_at_epsilon(factors, epsilon))
    line = _contour(factors, plan, root)
    total, size = _sum_at(line, epsilon)
    error, aliased = lax.stop_gradient(_errors(line, size, epsilon))
    log_size = line.plan.log_size(factors, epsilon)
    upper = total + lax.stop_gradient(error)
    lower = lax.stop_gradient(total - error - aliased)
    held_upper = lax.stop_gradient(upper)
    log_upper = jnp.log(jnp.where(held_upper > 0, upper, 1.0)) + log_size
    found = jnp.where(lower > 0, jnp.log(jnp.where(lower > 0, lower, 1.0)) + log_size, -jnp.inf)
    sure = jnp.isfinite(log_upper) & (held_upper > 0)
    found = lax.stop_gradient(jnp.where(sure, found, -jnp.inf))
    # Where the contour says nothing, or less than that, Chernoff's bound stands.
    bound = lax.stop_gradient(log_chernoff(factors, plan, epsilon))
    log_upper = jnp.where(sure & (log_upper < bound), log_upper, bound)
    dropped = lax.stop_gradient(jnp.logaddexp(dropped, factors.log_left_out))
    return LogBounds(found, jnp.logaddexp(log_upper, dropped))


def epsilon_bounds(factors: Factors, delta: Reals, root: int) -> LogBounds:
    """Around the least epsilon >= 0 of one delta; by Chernoff where the contour does not tell."""
    log_delta = jnp.log(delta)
    factors, dropped = without_rare_losses(factors, depth_for_delta(lax.stop_gradient(log_delta)))
    dropped = jnp.logaddexp(dropped, factors.log_left_out)
    held = lax.stop_gradient((factors, delta))
    plan, epsilon = lax.stop_gradient(plan_at_delta(*held))
    line = _contour(factors, plan, root)
    still = lax.stop_gradient(line)

    def gap(line: Contour, epsilon: Reals, factors: Factors) -> tuple[Reals, Reals]:
        """log of the sum over delta, and minus its slope."""
        total, slope = _sum_and_slope(line, epsilon)
        log_size = line.plan.log_size(factors, epsilon)
        safe = jnp.where(total > 0, total, 1.0)
        value = jnp.log(safe) + log_size - log_delta
        return jnp.where(total > 0, value, jnp.nan), slope / safe

    def step(_: Index | int, epsilon: Reals) -> Reals:
        value, slope = gap(still, epsilon, held[0])
        most = 0.7 * jnp.maximum(jnp.abs(epsilon), 1.0 / plan.tilt)
        return epsilon + jnp.clip(value / jnp.maximum(slope, 1e-300), -most, most)

    epsilon = lax.fori_loop(0, _NEWTON_STEPS, step, epsilon)
    epsilon = lax.stop_gradient(epsilon)
    value, slope = gap(line, epsilon, factors)
    total, size = _sum_at(still, epsilon)
    error, aliased = _errors(still, size, epsilon)
    share = jnp.exp(dropped - log_delta)
    wide = lax.stop_gradient(2.0 * error / total + share + _SLACK)
    slope = lax.stop_gradient(slope)
    upper = epsilon + (value + wide) / slope
    lower = epsilon + lax.stop_gradient((value - wide - aliased / total) / slope)
    bad = lax.stop_gradient(~(jnp.abs(value) < 1e-6) | ~(wide < 0.1))
    # There Chernoff's bound stands, with what is dropped counted as half of delta.
    bound = epsilon_chernoff(factors, plan, log_delta - jnp.log(2.0))
    bound = lax.stop_gradient(jnp.where(share < 0.5, bound, jnp.nan))
    upper = jnp.maximum(jnp.where(bad, bound, upper), 0.0)
    return LogBounds(jnp.where(bad, 0.0, jnp.maximum(lower, 0.0)), upper)


def _contour(factors: Factors, plan: Plan, root: int) -> Contour:
    points = root * root
    heights = plan.step * jnp.arange(1.0 * points)
    theta = plan.tilt
    own = -0.5 * factors.variance * heights**2, factors.variance * (theta + 0.5) * heights
    start = *own, jnp.zeros(points)
    real, imag, doubt = over_releases(factors, start, lambda f: _log_phi(f, plan, root))
    z = lax.complex(jnp.full_like(heights, theta), heights)
    pole = theta * (theta + 1.0) / (z * (z + 1.0))
    end = plan.step * (points - 0.5)
    beyond = jnp.exp(log_beyond(factors, theta, end))
    rule = jnp.where(jnp.arange(points) == 0, 0.5, 1.0) * plan.step / jnp.pi
    quadrature, rounding = lax.stop_gradient(_value_errors(factors, theta, end))
    return Contour(
        plan,
        heights,
        lax.complex(real, imag),
        rule * jnp.abs(pole),
        jnp.angle(pole),
        lax.stop_gradient(doubt),
        quadrature,
        rounding,
        lax.stop_gradient(theta * (theta + 1.0) * (1.0 + rounding) * beyond / (jnp.pi * end)),
    )


def _log_phi(factor: Factor, plan: Plan, root: int) -> tuple[Reals, Reals, Reals]:
    """count times the parts of log phi(theta + it) / phi(theta), and of log(1 + its error)."""
    weight, mean = tilted(factor.law, plan.tilt)
    offset = factor.law.loss - mean
    index = jnp.arange(1.0 * root)
    near, far = plan.step * index, plan.step * root * index
    real, imag = _products(weight, offset, near, far)
    square = real * real + imag * imag
    some = square > 0
    log_size = 0.5 * jnp.log(jnp.where(some, square, 1e-300))
    angle = jnp.arctan2(jnp.where(some, imag, 0.0), jnp.where(some, real, 1.0))
    angle += mean * plan.step * jnp.arange(1.0 * root * root)
    # Of a block of heights by that at its end, where phases turn furthest.
    turn = jnp.abs(jnp.diff(offset, append=offset[-1:]))[None] * (far + far[1])[:, None]
    spread = jnp.where(jnp.isfinite(factor.law.log_density), weight, 0.0)
    unresolved = 2.0 * jnp.minimum((turn / _TURN) ** 32, 1.0) @ spread
    doubt = jnp.log1p(jnp.repeat(unresolved, root) * jnp.exp(-log_size))
    count = factor.releases
    return count * log_size, count * angle, count * lax.stop_gradient(doubt)


def _products(weight: Reals, offset: Reals, near: Reals, far: Reals) -> tuple[Reals, Reals]:
    """Real and imaginary parts of sum_j w_j e^(i (far + near) l_j), as one matrix product."""
    across, along = near[:, None] * offset[None], far[:, None] * offset[None]
    right = jnp.concatenate([jnp.cos(across), jnp.sin(across)], axis=-1)
    real, imag = weight[None] * jnp.cos(along), weight[None] * jnp.sin(along)
    upper, lower = jnp.concatenate([real, -imag], axis=-1), jnp.concatenate([imag, real], axis=-1)
    product = jnp.concatenate([upper, lower]) @ right.T
    return product[: far.size].ravel(), product[far.size :].ravel()


def _terms_at(line: Contour, epsilon: Reals) -> tuple[Reals, Reals]:
    """Sizes and angles of the terms of the sum."""
    size = line.weights * jnp.exp(jnp.real(line.log_values))
    return size, jnp.imag(line.log_values) + line.angles - line.heights * epsilon


def _sum_at(line: Contour, epsilon: Reals) -> tuple[Reals, Reals]:
    """The sum, in units of `Plan.log_size`, and that of the sizes of its terms."""
    size, angle = _terms_at(line, epsilon)
    return jnp.sum(size * jnp.cos(angle)), jnp.sum(size)


def _sum_and_slope(line: Contour, epsilon: Reals) -> tuple[Reals, Reals]:
    """The sum, and minus the derivative of it times e^(-theta epsilon)."""
    size, angle = _terms_at(line, epsilon)
    total = jnp.sum(size * jnp.cos(angle))
    return total, line.plan.tilt * total - jnp.sum(size * jnp.sin(angle) * line.heights)


def _errors(line: Contour, size: Reals, epsilon: Reals) -> tuple[Reals, Reals]:
    """Error of the contour sum on either side, and what aliasing may add to the sum."""
    sums = ULP * (4.0 * line.heights.size + 16.0 * (1.0 + line.plan.tilt * jnp.abs(epsilon)))
    values = line.weights * jnp.exp(jnp.real(line.log_values))
    error = line.truncation + (line.rounding + sums) * size
    error += jnp.sum(values * jnp.expm1(jnp.minimum(line.doubt, 600.0)))
    error += line.quadrature * jnp.sum(line.weights)
    return error, jnp.exp(log_aliasing(line.plan, epsilon))


def _value_errors(factors: Factors, theta: Reals, end: Reals) -> tuple[Reals, Reals]:
    """Errors of M / M(theta): by a second rule, and relative, by rounding of losses and sums."""
    heights = end * jnp.asarray(_CHECKED)

    def phi(loss: Reals, log_mass: Reals, top: Reals) -> tuple[Reals, Reals]:
        size = jnp.exp(log_mass + theta * loss - top)
        turned = heights[:, None] * loss[None]
        return jnp.cos(turned) @ size, jnp.sin(turned) @ size

    def each(factor: Factor) -> tuple[Reals, Reals]:
        law = factor.law
        top = jnp.max(law.log_mass + theta * law.loss)
        (a, b), (c, d) = phi(law.loss, law.log_mass, top), phi(*law.check, top)
        whole = a[0]
        off, modulus = jnp.hypot(a - c, b - d) / whole, jnp.hypot(a, b) / whole
        others = jnp.exp((factor.releases - 1.0) * jnp.log(jnp.clip(modulus, 1e-300, 1.0)))
        return factor.releases * jnp.max(off * others), factor.releases * rounding_of(law, theta)

    off, rounding = over_releases(factors, (jnp.zeros(()), jnp.zeros(())), each)
    # Errors of all factors at once multiply.
    return jnp.expm1(jnp.minimum(off, 600.0)), jnp.expm1(jnp.minimum(rounding, 600.0))
