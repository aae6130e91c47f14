"""Truncation error: bounds on a characteristic function beyond the end of a contour.

For the loss of one release under the tilted law, at every t from some height on,

    |phi(t)|^2 <= 1 - (4 t^2 / pi^2) (m_0 m_2 - m_1^2)     m_k: moments of |l - c| <= pi / (2 t),
    |phi(t)|  <= A_c + V_c / t                             every cap c on the density.

The first holds because 1 - cos x >= 2 x^2 / pi^2 for |x| <= pi. In the second, A_c is the mass
above the cap, including atoms, and V_c the total variation of the density below it. Both hold for
the nodes' own law where the density is monotone between nodes.
"""

from __future__ import annotations

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals

# Heights at which the bound is evaluated, over the furthest end. chosen: 3 decades below
HEIGHTS = 1.25 ** np.arange(-31.0, 20.0)
# Caps on the tilted density, in units of one over its deviation. chosen
_CAPS = 2.0 ** np.arange(-6.0, 13.0)
# Factor on the total variation for changes between nodes. chosen: 16 nodes a panel show 99 % of it
_BETWEEN = 1.05


def log_fall(weight: Reals, offset: Reals, log_density: Reals, heights: Reals) -> Reals:
    """log of bounds on |phi| (heights, phases, lanes) for all t from each height to the next.

    Args:
        weight: tilted masses of the nodes (nodes, phases, lanes).
        offset: losses less their mean.
        log_density: of the tilted law at the nodes; inf at atoms.
        heights: (heights, lanes), rising; the last one has no end.
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

    def of_cap(cap: Reals) -> tuple[Reals, Reals]:
        above = xp.sum(xp.where(density > cap, (1.0 - cap / density) * weight, 0.0), 0)
        below = xp.pad(xp.minimum(density, cap), ((1, 1), (0, 0), (0, 0)))
        return above, _BETWEEN * xp.sum(xp.abs(xp.diff(below, axis=0)), 0)

    mass_above, variation = lax.map(of_cap, xp.asarray(_CAPS))
    at_heights = spread * heights[:, None]
    best = xp.full_like(at_heights, xp.inf)
    for above, changes in zip(mass_above, variation, strict=True):
        best = xp.minimum(best, above + changes / at_heights)
    return xp.where(spread > 0, best, 1.0)
