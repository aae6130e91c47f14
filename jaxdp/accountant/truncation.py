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
from jaxdp.accountant.factors import Factor, Factors, over_releases, tilted

# Heights at which the bound is evaluated, over the furthest end. chosen: 3 decades below
HEIGHTS = 1.25 ** np.arange(-31.0, 20.0)
# Caps on the tilted density, in units of one over its deviation. chosen
_CAPS = 2.0 ** np.arange(-6.0, 13.0)
# Factor on the total variation for changes between nodes. chosen: 16 nodes a panel show 99 % of it
_BETWEEN = 1.05


def log_beyond(factors: Factors, tilt: Reals, end: Reals) -> Reals:
    """log of bounds on |M(tilt + it)| / M(tilt) for all t from each of end * HEIGHTS on."""
    heights = end * xp.asarray(HEIGHTS)
    gaussian = -0.5 * factors.variance * heights**2
    bounds = over_releases(factors, gaussian, lambda f: f.releases * _log_bounds(f, tilt, heights))
    return lax.cummax(bounds, reverse=True)


def _log_bounds(factor: Factor, tilt: Reals, heights: Reals) -> Reals:
    """log of bounds on |phi| of one release from each height to the next; the last has no end."""
    weight, mean = tilted(factor.law, tilt)
    offset = factor.law.loss - mean
    following = xp.append(heights[1:], xp.inf)
    near = xp.abs(offset)[None] <= 0.5 * xp.pi / following[:, None]
    powers = xp.stack([weight, weight * offset, weight * offset**2], axis=-1)
    m0, m1, m2 = (near.astype(float) @ powers).T
    square = 1.0 - (2.0 * heights / xp.pi) ** 2 * xp.maximum(m0 * m2 - m1**2, 0.0)
    by_moments = 0.5 * xp.log(xp.clip(square, 1e-300, 1.0))
    by_variation = xp.log(_atoms_and_variation(factor, weight, offset, heights))
    return xp.minimum(xp.minimum(by_moments, by_variation), 0.0)


def _atoms_and_variation(factor: Factor, weight: Reals, offset: Reals, heights: Reals) -> Reals:
    """The least A_c + V_c / t over the caps c."""
    law = factor.law
    spread = xp.sqrt(xp.sum(weight * offset**2))
    log_scale = xp.where(spread > 0, xp.log(spread), 0.0)
    # The tilted density in units of one over the deviation.
    has_mass = weight > 0
    density = weight * xp.exp(xp.where(has_mass, law.log_density - law.log_mass, 0.0) + log_scale)
    density = xp.where(has_mass, density, 0.0)
    caps = xp.asarray(_CAPS)[:, None]
    mass_above = xp.where(density[None] > caps, 1.0 - caps / density[None], 0.0) @ weight
    below = xp.pad(xp.minimum(density[None], caps), ((0, 0), (1, 1)))
    variation = _BETWEEN * xp.sum(xp.abs(xp.diff(below, axis=-1)), axis=-1)
    variation_term = variation[None] / (spread * heights[:, None])
    return xp.min(xp.where(spread > 0, mass_above[None] + variation_term, 1.0), axis=-1)
