"""Errors of a contour over the quadrature nodes of any law, and where it ends.

* quadrature: the difference to a second rule with other nodes, at some heights up to the end. It
  bounds the error where both rules do not fail alike. Where the phases of neighbouring nodes differ
  by more than a panel resolves, the mass of these nodes is the error;
* truncation: for the loss of one release under the tilted law, at every t from some height on,

      |phi(t)|^2 <= 1 - (4 t^2 / pi^2) (m_0 m_2 - m_1^2)   m_k: moments of |l - c| <= pi / (2 t),
      |phi(t)|  <= A_c + V_c / t                           every cap c on the density.

  The first holds because 1 - cos x >= 2 x^2 / pi^2 for |x| <= pi. In the second, A_c is the mass
  above the cap, including atoms, and V_c the total variation of the density below it. Both hold for
  the nodes' own law where the density is monotone between nodes;
* smoothing: where psi falls too slowly, as for atoms, one more release, a Gaussian, makes it fall
  (`curve` bounds what this adds to delta).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.contour.nodes import FrozenContour, LawErrors, LineNodes, Pair, Stage, log_psi

# Heights at which both rules are compared, in units of the end. chosen
_CHECKED = np.unique(np.append(2.0 ** np.arange(-10.0, 0.0), np.arange(5.0, 17.0) / 16.0))
# Radians between neighbouring nodes at which a panel's integral has no digit left. derived: the
# error of 16 nodes for e^(i x) grows like the 32nd power of the turn.
_TURN = 3.6
# Radians between neighbouring nodes up to which a smoothed contour extends. chosen: (2.7 / 3.6)^32
# is 1e-4
_RESOLVED = 2.7
# Mass of a node that can turn further. chosen: the error is at most this mass
_LEAST_ERROR = 1e-9
# log of the truncation error over delta, where psi falls without smoothing. chosen: 5e-12
CUT_OFF = -26.0
# Heights at which the bound is evaluated, over the furthest end. chosen: 3 decades below
HEIGHTS = 1.25 ** np.arange(-31.0, 20.0)
# Caps on the tilted density, in units of one over its deviation. chosen
_CAPS = 2.0 ** np.arange(-6.0, 13.0)
# Factor on the total variation for changes between nodes. chosen: 16 nodes a panel show 99 % of it
_BETWEEN = 1.05


class ByHeight(NamedTuple):
    """Errors of phi up to each of the heights `_CHECKED`, and per unit of height."""

    quadrature: Reals  # (heights, phases, lanes)
    slope: Reals  # (phases, lanes)


def parts(laws: Any, stage: Stage, frozen: FrozenContour, line: LineNodes, logs: Pair) -> LawErrors:
    """End and errors of a contour but for its scale's; `logs` are log psi and log_scale."""
    weight, offset = line.weight[0], line.loss[0]
    is_spread = xp.isfinite(laws.log_density)
    gap = xp.where(is_spread, xp.abs(xp.diff(laws.loss, axis=0, append=laws.loss[-1:])), 0.0)
    end, smoothed, truncation = _ended(laws, stage, frozen, line, logs, gap)
    check = laws.check_on(frozen.place)
    psi = log_psi(check, laws.power(frozen.tilt))
    other = xp.exp(check.log_weight + frozen.tilt * check.loss - psi)

    def at_height(share: Reals) -> Pair:
        t = share * end
        first, second = _sum(weight, offset, t), _sum(other, check.loss - line.mean, t)
        unresolved = 2.0 * xp.sum(weight * xp.minimum((gap * (t / _TURN)) ** 32, 1.0), 0)
        return xp.hypot(first[0] - second[0], first[1] - second[1]), unresolved

    gaps, unresolved = lax.map(at_height, xp.asarray(_CHECKED))
    by_height = ByHeight(lax.cummax(gaps) + unresolved, xp.sum(weight * laws.rounding, 0))
    of_phi = laws.mass_gap + 4.0 * ULP
    return LawErrors(of_phi, by_height, truncation, end=end, smoothed=smoothed)


def phi_error(_: Any, by_height: Any, frozen: FrozenContour, t: Reals) -> Reals:
    """Error of phi at heights (points, 1, lanes)."""
    ends = xp.asarray(_CHECKED)[:, None] * frozen.end
    index = xp.sum(ends[:, None] < t[:, 0][None], 0)  # (points, lanes)
    index = xp.minimum(index, len(_CHECKED) - 1)[:, None]
    shape = index.shape[0], by_height.slope.shape[0], index.shape[2]
    found = xp.take_along_axis(by_height.quadrature, xp.broadcast_to(index, shape), 0)
    return found + by_height.slope * t


def _sum(weight: Reals, loss: Reals, t: Reals) -> Pair:
    """sum w (e^(i t l) - 1)."""
    half = xp.sin(0.5 * t * loss)
    return -2.0 * xp.sum(weight * half * half, 0), xp.sum(weight * xp.sin(t * loss), 0)


def _ended(
    laws: Any, stage: Stage, frozen: FrozenContour, line: LineNodes, logs: Pair, gap: Reals
) -> tuple[Reals, Reals, Reals]:
    """The end of the contour, the variance of the smoothing, and the truncation error.

    With x = log(T / theta) + 2, the truncation error is less than the smoothing error of a variance
    2 x / T^2.
    """
    (log_psi, log_scale), weight, offset = logs, line.weight[0], line.loss[0]
    longest = frozen.step * (stage.points * frozen.blocks - 0.5)
    ends = longest * xp.asarray(HEIGHTS)[:, None]
    log_density = laws.log_density + (frozen.tilt * (offset + line.mean) - log_psi)
    fall = log_fall(weight, offset, log_density + frozen.place.log_kept, ends)
    # log of bounds on |M(theta + it)| / M(theta) for all t from each end on.
    falls = xp.sum(xp.where(laws.number == 0, 0.0, laws.number * fall), 1)
    log_tails = lax.cummax(falls - 0.5 * laws.variance * ends**2, reverse=True)
    # Up to this height phases of neighbouring nodes differ by `_RESOLVED` at most.
    largest = xp.max(xp.where(laws.number * weight > _LEAST_ERROR, gap, 0.0), (0, 1))
    resolved = xp.where(largest > 0, _RESOLVED / xp.where(largest > 0, largest, 1.0), xp.inf)
    is_below = (log_scale + log_tails - xp.log(xp.pi * ends) <= CUT_OFF) & (ends <= longest)
    last = xp.maximum(xp.sum(ends <= xp.minimum(longest, resolved), 0) - 1, 0)
    has_fallen = xp.any(is_below, 0)
    k = xp.where(has_fallen, xp.argmax(is_below, 0), last)[None]
    end, tail = (xp.take_along_axis(x, k, 0)[0] for x in (ends, log_tails))
    missing = xp.maximum(xp.log1p(end / frozen.tilt) + 2.0 + tail, 0.0)
    smoothed = xp.where(has_fallen | xp.isnan(missing), 0.0, 2.0 * missing / end**2)
    cut_off = xp.where(ends >= end, log_tails - 0.5 * smoothed * ends**2, -xp.inf)
    # Halfway between two points, so that the points beyond sum to less than the integral.
    end = frozen.step * (xp.floor(end / frozen.step) + 0.5)
    return end, smoothed, xp.exp(xp.max(cut_off, 0)) / (xp.pi * end)


def log_fall(weight: Reals, offset: Reals, log_density: Reals, heights: Reals) -> Reals:
    """log of bounds on |phi| (heights, phases, lanes) for all t from each height to the next.

    `weight` and `log_density` are the tilted law's at the nodes, `offset` losses less their mean.
    """
    following = xp.concatenate([heights[1:], xp.full_like(heights[:1], xp.inf)])

    def by_moments(at: tuple[Reals, Reals]) -> Reals:
        height, next_ = at
        near = xp.where(xp.abs(offset) <= 0.5 * xp.pi / next_, weight, 0.0)
        m0, m1 = xp.sum(near, 0), xp.sum(near * offset, 0)
        m2 = xp.sum(near * offset**2, 0)
        square = 1.0 - (2.0 * height / xp.pi) ** 2 * xp.maximum(m0 * m2 - m1**2, 0.0)
        return 0.5 * xp.log(xp.clip(square, 1e-300, 1.0))

    moments = lax.map(by_moments, (heights, following))
    variation = _atoms_and_variation(weight, offset, log_density, heights)
    return xp.minimum(xp.minimum(moments, xp.log(variation)), 0.0)


def _atoms_and_variation(weight: Reals, offset: Reals, log_density: Reals, heights: Reals) -> Reals:
    """The least A_c + V_c / t over the caps c."""
    spread = xp.sqrt(xp.sum(weight * offset**2, 0))
    log_scale = xp.where(spread > 0, xp.log(spread), 0.0)
    # The tilted density in units of one over the deviation.
    density = xp.where(weight > 0, xp.exp(log_density + log_scale), 0.0)

    at_heights = spread * heights[:, None]
    best = xp.full_like(at_heights, xp.inf)
    for cap in _CAPS:
        above = xp.sum(xp.where(density > cap, (1.0 - cap / density) * weight, 0.0), 0)
        below = xp.pad(xp.minimum(density, cap), ((1, 1), (0, 0), (0, 0)))
        variation = _BETWEEN * xp.sum(xp.abs(xp.diff(below, axis=0)), 0)
        best = xp.minimum(best, above + variation / at_heights)
    return xp.where(spread > 0, best, 1.0)
