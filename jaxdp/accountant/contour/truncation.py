"""Truncation error: bounds on a characteristic function beyond the end of a contour.

For the loss of one release under the tilted law, at every t from some height on,

    |phi(t)|^2 <= 1 - (4 t^2 / pi^2) (m_0 m_2 - m_1^2)     m_k: moments of |l - c| <= pi / (2 t),
    |phi(t)|  <= A_c + V_c / t                             every cap c on the density,
    |phi(t)|  <= A + E_c / t + V_c / t^2                   every cap c on its slope.

The first holds because 1 - cos x >= 2 x^2 / pi^2 for |x| <= pi. In the second, A_c is the mass
above the cap, including atoms, and V_c the total variation of the density below it. In the third, A
is the mass of atoms, E_c the integral of the slope's size beyond the cap, jumps included, and V_c
the total variation of the slope within it. They hold for the nodes' own law where the density, or
in the third its slope, is monotone between nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP

# Heights at which the bound is evaluated, over the furthest end. chosen: 3 decades below
HEIGHTS = 1.25 ** np.arange(-31.0, 20.0)
# Caps on the tilted density, in units of one over its deviation. chosen
_CAPS = 2.0 ** np.arange(-6.0, 13.0)
# Caps on its slope, in units of one over the squared deviation. chosen: a jump between two nodes of
# any panel is steeper
_SLOPES = 2.0 ** np.arange(-5.0, 9.0)
# Difference of losses over those beside it that is a gap without losses. chosen: above a panel's
_GAP = 32.0
# Factor on the total variation for changes between nodes. chosen: 16 nodes a panel show 99 % of it
_BETWEEN = 1.05
# The same of the slope, of which differences show means between nodes. chosen
_BETWEEN_SLOPES = 1.25


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


class _Density(NamedTuple):
    """A tilted density without its atoms, in units of one over the deviation."""

    value: Reals  # (nodes, phases, lanes)
    loss: Reals
    edges: Reals  # values where one branch of the loss, or one interval of losses, ends


def _atoms_and_variation(weight: Reals, offset: Reals, log_density: Reals, heights: Reals) -> Reals:
    """The least of the second and the third bound over all caps."""
    spread = xp.sqrt(xp.sum(weight * offset**2, 0))
    safe = xp.where(spread > 0, spread, 1.0)
    is_atom = xp.isinf(log_density) & (log_density > 0)
    density = xp.where(weight > 0, xp.exp(log_density + xp.log(safe)), 0.0)
    atoms = xp.sum(xp.where(is_atom, weight, 0.0), 0)
    found = _without_atoms(is_atom, density, offset / safe)
    weight = xp.where(is_atom, 0.0, weight)
    at_heights = spread * heights[:, None]
    best = xp.full_like(at_heights, xp.inf)
    for above, changes in zip(*_of_caps(weight, found), strict=True):
        best = xp.minimum(best, above + changes / at_heights)
    for jumps, changes in zip(*_of_slopes(found), strict=True):
        best = xp.minimum(best, (jumps + changes / at_heights) / at_heights)
    return xp.where(spread > 0, atoms + best, 1.0)


def _without_atoms(is_atom: Bools, density: Reals, loss: Reals) -> _Density:
    """The density on nodes of which those of atoms are like the node before them."""
    index = xp.asarray(np.arange(density.shape[0])[:, None, None])
    before = lax.cummax(xp.where(is_atom, 0, index), 0)
    density = xp.where(is_atom & (before == 0), 0.0, xp.take_along_axis(density, before, 0))
    loss = xp.take_along_axis(loss, before, 0)
    move = xp.diff(loss, axis=0)
    # Where the loss is level, differences are rounding.
    size = xp.where(xp.abs(move) <= 16.0 * ULP * (1.0 + xp.abs(loss[1:])), 0.0, xp.abs(move))
    turns = (size[1:] > 0) & (size[:-1] > 0) & (move[1:] * move[:-1] < 0)
    around = xp.pad(size, ((1, 1), (0, 0), (0, 0)))
    is_gap = size > _GAP * xp.maximum(around[:-2], around[2:])
    ends = xp.where(is_gap, xp.minimum(density[1:], density[:-1]), 0.0)
    turns = xp.where(turns, density[1:-1], 0.0)
    return _Density(density, loss, xp.concatenate([ends, turns]))


def _of_caps(weight: Reals, found: _Density) -> tuple[Reals, Reals]:
    """A_c, but for atoms, and V_c of caps on the density (caps, phases, lanes)."""
    density = found.value

    def of_cap(cap: Reals) -> tuple[Reals, Reals]:
        above = xp.sum(xp.where(density > cap, (1.0 - cap / density) * weight, 0.0), 0)
        below = xp.pad(xp.minimum(density, cap), ((1, 1), (0, 0), (0, 0)))
        changes = xp.sum(xp.abs(xp.diff(below, axis=0)), 0)
        return above, _BETWEEN * (changes + 2.0 * xp.sum(xp.minimum(found.edges, cap), 0))

    return lax.map(of_cap, xp.asarray(_CAPS))


def _of_slopes(found: _Density) -> tuple[Reals, Reals]:
    """E_c and V_c of caps on the slope of the density (caps, phases, lanes)."""
    density = found.value
    change, length = xp.diff(density, axis=0), xp.abs(xp.diff(found.loss, axis=0))
    slope = xp.where(length > 0, change / xp.where(length > 0, length, 1.0), 0.0)
    jumps = xp.sum(xp.where(length > 0, 0.0, xp.abs(change)), 0)
    jumps = jumps + density[0] + density[-1] + 2.0 * xp.sum(found.edges, 0)

    def of_cap(cap: Reals) -> tuple[Reals, Reals]:
        steep = xp.sum(xp.maximum(xp.abs(slope) - cap, 0.0) * length, 0)
        flat = xp.pad(xp.clip(slope, -cap, cap), ((1, 1), (0, 0), (0, 0)))
        changes = xp.sum(xp.abs(xp.diff(flat, axis=0)), 0)
        return _BETWEEN * (jumps + steep), _BETWEEN_SLOPES * changes

    return lax.map(of_cap, xp.asarray(_SLOPES))
