"""Error bounds of a contour's sum, on either side, from the errors of its law.

* rounding: of phi, times n |phi|^(n - 1), and of the angle of its power;
* quadrature and truncation, which the law's rows bound (`mixture_errors`, `law_errors`);
* aliasing: Chernoff's bounds at other tilts;
* smoothing: a Gaussian of variance s beside the losses raises delta by at most s e^(s / 8) f_s,
  f_s the density of the total. Proof: the heat equation, and m f_m e^(m^2 / 8) rises with m, as
  e^(-y^2 / (2 m^2)) does, m^2 the variance;
* the probability of losses beyond the nodes.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, log1p
from jaxdp.accountant.contour import transform
from jaxdp.accountant.contour.nodes import LARGEST_LOG, FrozenContour, Pair, Stage
from jaxdp.accountant.contour.rows import Bounds, Parts, Rows
from jaxdp.accountant.contour.terms import Block, Line

TURN = 40.0  # ulps of an angle and a modulus. derived


class Errors(NamedTuple):
    """Errors of a contour's sum in its unit, at the epsilon of its terms (lanes,)."""

    log_scale: Reals
    noise: Pair  # errors of delta and of the density on either side, over e^log_scale
    lost: Reals  # deficit of the sum at every epsilon
    tilted_lost: Reals  # deficit that falls with e^(-tilt epsilon)
    bounds: Bounds
    period: Reals
    relative: Reals  # relative error of the scale, and from errors of the law's probabilities
    truncation: Reals  # part of the first noise


def noise_of(
    stage: Stage, rows: Rows, frozen: FrozenContour, common: Parts, line: Line, block: Block
) -> tuple[Reals, Reals]:
    """Quadrature and rounding errors of the terms of a block: of delta, of the density (lanes,)."""
    slope, t = transform.rounding(stage.points) * line.wander, block.t[:, None]
    of_phi = common.of_phi + rows.phi_error(common.by_height, frozen, t)
    of_phi = of_phi + slope * t + 16.0 * ULP * block.size
    lost_power = rows.number * log1p(of_phi * xp.exp(-block.log_phi[0]))
    lost_power = xp.sum(xp.where(rows.number == 0, 0.0, lost_power), 1)
    turning = ULP * (4.0 * block.turned + 4.0 * xp.abs(block.log_power) + TURN)
    turning = turning + _of_scale(rows, frozen, line)
    angle = frozen.epsilon + xp.abs(line.drift) + rows.variance * (frozen.tilt + 1.0)
    turning = turning + 4.0 * ULP * block.t * angle
    power = xp.exp(xp.maximum(block.log_power, -690.0))
    each = xp.expm1(xp.minimum(lost_power + turning, LARGEST_LOG))
    each = xp.where(block.weight > 0, block.weight * power * each, 0.0)
    poles = xp.sqrt((frozen.tilt**2 + block.t**2) * ((frozen.tilt + 1.0) ** 2 + block.t**2))
    return xp.sum(each, 0), xp.sum(poles * each, 0)


def _of_scale(rows: Rows, frozen: FrozenContour, line: Line) -> Reals:
    """Relative rounding error of a contour's scale."""
    psi = xp.where(rows.number == 0, 0.0, rows.number * xp.abs(line.log_psi))
    scaled = xp.sum(psi, 0) + frozen.tilt * frozen.epsilon
    return 4.0 * ULP * (scaled + rows.variance * frozen.tilt * (frozen.tilt + 1.0))


def bounds_of_sum(
    errors: Errors, frozen: FrozenContour, epsilon: Reals, value: Reals, density: Reals
) -> tuple[Reals, Reals]:
    """Bounds on excess and deficit of the sum `value` at an epsilon, in the contour's unit.

    `density` is the sum of the smoothed total's density.
    """
    move = epsilon - frozen.epsilon
    log_scale = errors.log_scale - frozen.tilt * move
    scale = xp.exp(xp.minimum(log_scale, LARGEST_LOG))
    scale = xp.where(log_scale > LARGEST_LOG, xp.inf, scale)
    noise, of_density = scale * errors.noise[0], scale * errors.noise[1]
    smoothed = frozen.smoothed * (density + of_density) + scale * errors.truncation
    is_smoothed = frozen.smoothed > 0
    smoothed = xp.where(is_smoothed, smoothed * xp.exp(0.125 * frozen.smoothed), 0.0)
    gap = errors.bounds.tilts - frozen.tilt
    excess = errors.bounds.log - errors.bounds.tilts * epsilon - frozen.log_unit
    turns = xp.abs(gap) * errors.period
    images = excess - turns - log1p(-xp.exp(-xp.maximum(turns, 1e-300)))
    apart = 1e-9 * frozen.tilt
    above = xp.min(xp.where(gap > apart, images, xp.inf), 0)
    below = xp.min(xp.where(gap < -apart, images, xp.inf), 0)
    aliased = xp.exp(xp.minimum(above, LARGEST_LOG)) + xp.exp(xp.minimum(below, LARGEST_LOG))
    lost = errors.lost + errors.tilted_lost * xp.exp(xp.minimum(-frozen.tilt * move, LARGEST_LOG))
    grown = xp.where(errors.relative > 0, (xp.abs(value) + noise) * errors.relative, 0.0)
    noise = noise + grown
    return noise + (aliased + smoothed), noise + lost
