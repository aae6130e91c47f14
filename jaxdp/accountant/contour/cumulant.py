"""Cumulants of a batch on its real nodes, and Chernoff bounds from them.

K(theta) = log P[L < inf] + sum n log psi(p) + variance theta (theta + 1) / 2 over the phases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp.accountant.contour.nodes import Nodes, Psi, Sums, by_tilts, sums
from jaxdp.accountant.contour.rows import Bounds, Rows


class Moments(NamedTuple):
    """Moments of the tilted law of one release (phases, lanes)."""

    log_psi: Reals
    mean: Reals  # of l, not of the loss
    variance: Reals


def moments(nodes: Nodes, power: Reals) -> Moments:
    """log psi at a power (phases, lanes), and mean and variance of l under that tilt."""
    exponent = nodes.log_weight + power * nodes.loss
    largest = xp.max(exponent, 0)
    weight = xp.exp(exponent - largest)
    total = xp.sum(weight, 0)
    mean = xp.sum(weight * nodes.loss, 0) / total
    square = xp.sum(weight * nodes.loss**2, 0) / total
    return Moments(largest + xp.log(total), mean, xp.maximum(square - mean * mean, 0.0))


def composed(rows: Rows, each: Reals, tilt: Reals) -> Reals:
    """K from log psi of every phase (..., phases, lanes) at a tilt (..., lanes)."""
    total = xp.sum(_of_used(rows.number, each), -2)
    return total + (0.5 * rows.variance * tilt * (tilt + 1.0) + rows.log_finite)


def _of_used(number: Reals, each: Reals) -> Reals:
    """number times each, 0 where there are no releases."""
    return xp.where(number == 0, 0.0, number * each)


def chernoff(rows: Rows, place: Any, nodes: Nodes, tilts: Reals) -> Bounds:
    """Chernoff's bounds from K at `tilts` (tilts, lanes), with the error of K."""

    def bounds(tilts: Reals) -> Bounds:
        power = rows.power(tilts)
        return chernoff_of(rows, tilts, rows.psi(place, nodes, power, sums(nodes, power)))

    return by_tilts(bounds, nodes, tilts)


def chernoff_of(rows: Rows, tilts: Reals, psi: Psi) -> Bounds:
    """Chernoff's bounds from psi of every phase."""
    error = xp.sum(_of_used(rows.number, psi.error), -2) + rows.composed_error
    return Bounds(tilts, composed(rows, psi.log, tilts) + error - conversion_entropy(tilts))


def in_parts(found: Sums, cuts: int, is_falling: Any) -> tuple[Reals, Reals]:
    """log of psi's part below each cut of the loss, and the part above over the part below.

    Arrays (..., cuts, phases, lanes). Nodes are in the order of their losses, or in reverse where
    `is_falling`; those of several mixtures follow each other.
    """
    weight, largest = found.weight, found.largest
    nodes = weight.shape[-3]
    mixtures = is_falling[1]
    shape = mixtures, cuts, nodes // (mixtures * cuts), *weight.shape[-2:]
    blocks = weight.reshape(*weight.shape[:-3], *shape).sum((-5, -3))
    blocks = xp.where(is_falling[0], blocks[..., ::-1, :, :], blocks)
    below = xp.maximum(xp.cumsum(blocks, -3), 1e-300)
    above = xp.cumsum(blocks[..., ::-1, :, :], -3)[..., ::-1, :, :] - blocks
    return largest[..., None, :, :] + xp.log(below), above / below


def least_epsilon(bounds: Bounds, log_delta: Reals) -> Reals:
    """The least epsilon >= 0 from the bounds at log delta."""
    each = (bounds.log - log_delta) / bounds.tilts
    each = xp.where(bounds.tilts > 1e-200, each, xp.inf)
    return xp.maximum(xp.min(xp.where(xp.isnan(each), xp.inf, each), 0), 0.0)


def log_least_delta(bounds: Bounds, epsilon: Reals) -> Reals:
    """The least log delta from the bounds at epsilon."""
    return log_least_delta_at(bounds, epsilon)[0]


def log_least_delta_at(bounds: Bounds, epsilon: Reals) -> tuple[Reals, Reals]:
    """The least log delta from the bounds at epsilon, and its tilt, which is minus its slope."""
    each = bounds.log - bounds.tilts * epsilon
    each = xp.where(xp.isnan(each), 0.0, each)
    best = xp.argmin(each, 0)[None]
    tilt = xp.take_along_axis(bounds.tilts + xp.zeros_like(each), best, 0)[0]
    return xp.minimum(xp.take_along_axis(each, best, 0)[0], 0.0), tilt
