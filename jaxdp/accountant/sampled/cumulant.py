"""Cumulants of a batch on its real nodes, and Chernoff bounds from them.

K(theta) = sum n log psi(p) + variance theta (theta + 1) / 2 over the phases. psi - 1 is a sum of w
(e^(p l) - 1), which keeps its digits if few samples hold the record.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy, log1p
from jaxdp.accountant.sampled.law import Nodes, Releases

SLACK = 0.5  # nats of slack for every other real node. measured: errors below 1e-3
MOST_GAP = 0.3  # largest error of every other node, over log psi, that is squared. chosen
WIDEST = 0.5  # spacing at which both sums can err alike. chosen: half of the noise
CUMULANT = 64.0  # ulps of a sum of weights. derived: the sum, and exp of arguments from -37


class Moments(NamedTuple):
    """Moments of the tilted law of one release (phases, lanes)."""

    log_psi: Reals
    mean: Reals  # of l, not of the loss
    variance: Reals


def log_psi(nodes: Nodes, power: Reals) -> Reals:
    """log psi at powers (..., phases, lanes)."""
    _, risen, largest = _parts(nodes, power)
    return _log_of(xp.sum(risen, -3), largest)


class Psi(NamedTuple):
    """log psi at powers, and its difference to a sum over every other node."""

    log: Reals  # (..., phases, lanes)
    gap: Reals


def log_psi_and_gap(nodes: Nodes, power: Reals) -> Psi:
    """log psi at powers (..., phases, lanes), and its difference to a sum over every other node."""
    _, risen, largest = _parts(nodes, power)
    return _psi(risen, largest, nodes.spacing)


def _psi(risen: Reals, largest: Reals, spacing: Reals) -> Psi:
    log = _log_of(xp.sum(risen, -3), largest)
    gap = xp.abs(log - _log_of(2.0 * xp.sum(risen[..., ::2, :, :], -3), largest))
    return Psi(log, xp.where(spacing < WIDEST, gap, xp.inf))


def log_psi_in_parts(
    nodes: Nodes, power: Reals, cuts: int, is_falling: Bools
) -> tuple[Psi, Reals, Reals]:
    """log psi at powers (..., phases, lanes), and its parts below and above each cut of the loss.

    The parts are arrays (..., cuts, phases, lanes): the log of the part below, and the part above
    over the part below.
    """
    weight, risen, largest = _parts(nodes, power)
    shape = -1, cuts, nodes.x.shape[0] // cuts, *weight.shape[-2:]
    blocks = weight.reshape(*weight.shape[:-3], *shape).sum((-5, -3))
    blocks = xp.where(is_falling, blocks[..., ::-1, :, :], blocks)
    below = xp.maximum(xp.cumsum(blocks, -3), 1e-300)
    above = xp.cumsum(blocks[..., ::-1, :, :], -3)[..., ::-1, :, :] - blocks
    psi = _psi(risen, largest, nodes.spacing)
    return psi, largest[..., None, :, :] + xp.log(below), above / below


def _parts(nodes: Nodes, power: Reals) -> tuple[Reals, Reals, Reals]:
    """w e^(p l) and w (e^(p l) - 1), over e^largest, with nodes along axis -3; and `largest`."""
    rise = power[..., None, :, :] * nodes.loss
    exponent = nodes.log_weight + rise
    largest = lax.stop_gradient(xp.maximum(xp.max(exponent, -3), 0.0))
    largest_at_nodes = largest[..., None, :, :]
    weight, base = xp.exp(exponent - largest_at_nodes), xp.exp(nodes.log_weight - largest_at_nodes)
    near = xp.abs(rise) < 1.0
    risen = xp.where(near, base * xp.expm1(xp.where(near, rise, 0.0)), weight - base)
    return weight, risen, largest


def _log_of(risen: Reals, largest: Reals) -> Reals:
    """log(1 + risen e^largest)."""
    is_zero = largest == 0.0
    small = log1p(xp.where(is_zero, risen, 0.0))
    total = xp.where(is_zero, 1.0, risen + xp.exp(-largest))
    return xp.where(is_zero, small, largest + xp.log(total))


def moments(nodes: Nodes, power: Reals) -> Moments:
    """log psi at a power (phases, lanes), and mean and variance of l under that tilt."""
    exponent = nodes.log_weight + power * nodes.loss
    largest = xp.max(exponent, 0)
    weight = xp.exp(exponent - largest)
    total = xp.sum(weight, 0)
    mean = xp.sum(weight * nodes.loss, 0) / total
    square = xp.sum(weight * nodes.loss**2, 0) / total
    return Moments(largest + xp.log(total), mean, xp.maximum(square - mean * mean, 0.0))


def composed(releases: Releases, each: Reals, tilt: Reals) -> Reals:
    """K from log psi of every phase (..., phases, lanes) at a tilt (..., lanes)."""
    total = xp.sum(releases.number * each, -2)
    return total + 0.5 * releases.variance * tilt * (tilt + 1.0)


class Bounds(NamedTuple):
    """Logs of Chernoff's bounds on delta at some tilts (tilts, lanes), for epsilon 0."""

    tilts: Reals
    log: Reals


def chernoff(releases: Releases, nodes: Nodes, tilts: Reals) -> Bounds:
    """Chernoff's bounds from K at `tilts` (tilts, lanes), with their slack."""
    power, largest = releases.power(tilts), xp.max(xp.abs(nodes.loss), 0)
    psi = log_psi_and_gap(nodes, power)
    return Bounds(tilts, log_bound(releases, tilts, power, psi, largest))


def log_bound(releases: Releases, tilt: Reals, power: Reals, psi: Psi, largest: Reals) -> Reals:
    """log of Chernoff's bound at tilts (..., lanes), for epsilon 0.

    `largest` is the largest loss on the nodes. As l is convex, the peak of e^(p l) under N(0, 1) is
    at least as wide as the peak of N(0, 1) if p > 0. If p < 0 it can be narrower. The error of the
    trapezoidal rule then falls like e^(-c / h^2), h the spacing, or like e^(-c / h). Over log psi,
    it is at most the square of the difference to a sum over every other node.
    """
    rounded = ULP * (CUMULANT + 8.0 * xp.abs(power) * largest)
    rounded = rounded * xp.minimum(xp.abs(psi.log), 1.0) + 4.0 * ULP * xp.abs(psi.log)
    share = psi.gap / xp.maximum(xp.abs(psi.log), 1e-300)
    error = xp.where(share < MOST_GAP, psi.gap * share, xp.inf)
    rounded = rounded + xp.where((power > 0) | (psi.gap <= rounded), 0.0, error)
    rounded = xp.where(psi.gap < xp.inf, rounded, xp.inf)
    lost = xp.sum(xp.where(releases.number > 0, releases.number * rounded, 0.0), -2)
    lost = lost + releases.log_coin_error
    return composed(releases, psi.log, tilt) + lost - conversion_entropy(tilt) + SLACK


def every_other(nodes: Nodes) -> Nodes:
    """Every other node, with twice the weight."""
    x, loss, log_weight = (v[::2] for v in (nodes.x, nodes.loss, nodes.log_weight))
    return Nodes(x, 2.0 * nodes.spacing, loss, log_weight + xp.log(2.0))


def least_epsilon(bounds: Bounds, log_delta: Reals) -> Reals:
    """The least epsilon >= 0 from the bounds at log delta."""
    each = (bounds.log - log_delta) / bounds.tilts
    each = xp.where(bounds.tilts > 1e-200, each, xp.inf)
    return xp.maximum(xp.min(xp.where(xp.isnan(each), xp.inf, each), 0), 0.0)


def log_least_delta(bounds: Bounds, epsilon: Reals) -> Reals:
    """The least log delta from the bounds at epsilon."""
    each = bounds.log - bounds.tilts * epsilon
    return xp.minimum(xp.min(xp.where(xp.isnan(each), 0.0, each), 0), 0.0)
