"""Sum of one contour: its points, its value and its errors.

Terms of the trapezoidal rule are in units of `Plan.log_size`.

Smoothing: where M falls too slowly, as for atoms, one more release, a Gaussian of mu = s, makes it
fall. It only raises delta, by int_0^s m f_m dm <= s^2 e^(s^2 / 8) f_s(epsilon), with f_m the
density of the total with a Gaussian of mu = m. Proof: the heat equation, and m f_m e^(m^2 / 8)
rises with m, as e^(-y^2 / (2 m^2)) does.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.contour_plan import Plan, log_aliasing
from jaxdp.accountant.factors import Factors
from jaxdp.accountant.line import ROOT, Errors, Values, resolved_end, values_and_errors
from jaxdp.accountant.truncation import HEIGHTS, log_beyond

# log of the truncation error over the sum, where M falls without smoothing. chosen: 5e-12
_CUT_OFF = -26.0


class Contour(NamedTuple):
    """M(z) / M(theta) along the contour, at heights (N,), and its errors."""

    plan: Plan
    factors: Factors  # of the smoothed law
    smoothed: Reals  # variance added by smoothing
    heights: Reals
    poles: Reals  # |z (z + 1)|
    weights: Reals  # of the rule, times theta (theta + 1) / |z (z + 1)|
    angles: Reals  # of 1 / (z (z + 1))
    values: Values
    errors: Errors
    truncation: Reals  # truncation error of the sum
    dropped: Reals  # log of the probability outside the contour's law

    @property
    def sizes(self) -> Reals:
        """Absolute values of the terms of the sum."""
        return self.weights * xp.exp(self.values.log_size)

    def turned(self, epsilon: Reals) -> Reals:
        """Angles of the terms of the sum."""
        return self.values.angle + self.angles - self.heights * epsilon

    def total(self, epsilon: Reals) -> Reals:
        """The sum, in units of `Plan.log_size`."""
        return xp.sum(self.sizes * xp.cos(self.turned(epsilon)))

    def slope(self, epsilon: Reals) -> Reals:
        """Minus the derivative of the sum times e^(-theta epsilon)."""
        sines = xp.sum(self.sizes * xp.sin(self.turned(epsilon)) * self.heights)
        return self.plan.tilt * self.total(epsilon) - sines


def contour_of(factors: Factors, plan: Plan, dropped: Reals) -> Contour:
    """The contour of a plan through its points, smoothed where needed."""
    points, theta = ROOT * ROOT, plan.tilt
    longest = plan.step * (points - 0.5)
    log_tails = log_beyond(factors, theta, longest)
    plan, smoothed, truncation = _with_end(
        plan, log_tails, (longest, resolved_end(factors, plan)), points
    )
    factors = factors._replace(variance=factors.variance + smoothed)
    values, errors = values_and_errors(factors, plan)
    heights = plan.step * xp.arange(1.0 * points)
    rule = xp.where(xp.arange(points) == 0, 0.5, 1.0) * plan.step / xp.pi
    size = xp.sqrt((theta**2 + heights**2) * ((theta + 1.0) ** 2 + heights**2))
    return Contour(
        plan,
        factors,
        smoothed,
        heights,
        size,
        rule * (theta * (theta + 1.0) / size),
        -xp.arctan2(heights, theta) - xp.arctan2(heights, theta + 1.0),
        values,
        errors,
        truncation,
        xp.logaddexp(dropped, factors.log_left_out),
    )


def _with_end(
    plan: Plan, log_tails: Reals, longest: tuple[Reals, Reals], points: int
) -> tuple[Plan, Reals, Reals]:
    """The plan with its end, the variance of the smoothing, and the truncation error.

    `longest` is the largest end with this number of points, and the largest end that the nodes
    resolve, which limits a smoothed contour. With x = log(T / theta) + 2, the truncation error is
    less than the smoothing error of a variance 2 x / T^2.
    """
    ends, theta = longest[0] * xp.asarray(HEIGHTS), plan.tilt
    falls = (log_tails - xp.log1p(ends / theta) <= _CUT_OFF) & (ends <= longest[0])
    last_end = xp.maximum(xp.sum(ends <= xp.minimum(*longest)) - 1, 0)
    k = xp.where(xp.any(falls), xp.argmax(falls), last_end)
    end = ends[k]
    depth = xp.log1p(end / theta) + 2.0
    missing = xp.where(xp.any(falls), 0.0, xp.maximum(depth + log_tails[k], 0.0))
    smoothed = xp.where(xp.isnan(missing), 0.0, 2.0 * missing / end**2)
    log_cut_off = xp.where(ends >= end, log_tails - 0.5 * smoothed * ends**2, -xp.inf)
    truncation = theta * (theta + 1.0) * xp.exp(xp.max(log_cut_off)) / (xp.pi * end)
    return plan._replace(step=end / (points - 0.5)), smoothed, truncation


def errors_of(line: Contour, epsilon: Reals) -> tuple[Reals, Reals]:
    """Error of the contour sum on either side, and the excess from aliasing and smoothing."""
    plan, errors = line.plan, line.errors
    theta, sizes = plan.tilt, line.sizes
    # Rounding errors of sums, of z epsilon, and of phases.
    sums = ULP * (4.0 * line.heights.size + 16.0 + 16.0 * theta * xp.abs(epsilon))
    turn_errors = 8.0 * ULP * line.heights * (errors.mean + xp.abs(epsilon))
    term_errors = (_grown(errors.value_error) + sums + turn_errors) * sizes
    error = line.truncation + xp.sum(term_errors)
    error = error + _grown(plan.error) * (xp.abs(line.total(epsilon)) + error)
    # Terms of the density at epsilon are the terms of delta times z (z + 1). Beyond the end T they
    # are at most (theta (theta + 1) / pi) |M(T)| int_T e^(-s^2 (t^2 - T^2) / 2) dt.
    real = sizes * xp.cos(line.turned(epsilon) - line.angles)
    density = line.smoothed * xp.sum(line.poles * (real + term_errors))
    excess = density + xp.where(line.smoothed > 0, line.truncation, 0.0)
    excess = excess * xp.exp(0.125 * line.smoothed)
    return error, xp.exp(log_aliasing(plan, epsilon)) + excess


def _grown(log_factor: Reals) -> Reals:
    """Relative error of a product, from the error of its logarithm."""
    return xp.where(log_factor < 600.0, xp.expm1(log_factor), xp.inf * log_factor)
