"""Cumulants of a batch on its real nodes, and the Chernoff bounds that they give.

K(theta) = sum n log psi(p) + variance theta (theta + 1) / 2 over the phases, where psi - 1 is a sum
of w (e^(p l) - 1): where few samples hold the record, the digits of what they add are kept.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy, log1p
from jaxdp.accountant.sampled.law import Nodes, Releases

SLACK = 0.5  # nats that every other real node may be off by. measured: below 1e-3
MOST_GAP = 0.3  # share of log psi that every other node is off by, of which more is known. chosen
WIDEST = 0.5  # spacing of nodes beyond which two sums may miss alike. chosen: half of the noise
CUMULANT = 64.0  # ulps of a sum of weights. derived: arguments of exp down to -37, and the sum


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
    """log psi at powers, and by how much nodes twice as far apart would differ."""

    log: Reals  # (..., phases, lanes)
    gap: Reals


def log_psi_and_gap(nodes: Nodes, power: Reals) -> Psi:
    """log psi at powers (..., phases, lanes), and how far every other node is off."""
    _, risen, largest = _parts(nodes, power)
    return _psi(risen, largest, nodes.spacing)


def _psi(risen: Reals, largest: Reals, spacing: Reals) -> Psi:
    log = _log_of(xp.sum(risen, -3), largest)
    gap = xp.abs(log - _log_of(2.0 * xp.sum(risen[..., ::2, :, :], -3), largest))
    return Psi(log, xp.where(spacing < WIDEST, gap, xp.inf))


def log_psi_in_parts(
    nodes: Nodes, power: Reals, cuts: int, is_falling: Bools
) -> tuple[Psi, Reals, Reals]:
    """log psi at powers (..., phases, lanes), of smaller losses than some cuts, and what is above.

    The parts are arrays (..., cuts, phases, lanes), what lies above as a share of what lies below.
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
    """w e^(p l), w (e^(p l) - 1), both over e^largest, nodes along axis -3; and `largest`."""
    rise = power[..., None, :, :] * nodes.loss
    exponent = nodes.log_weight + rise
    largest = lax.stop_gradient(xp.maximum(xp.max(exponent, -3), 0.0))
    top = largest[..., None, :, :]
    weight, base = xp.exp(exponent - top), xp.exp(nodes.log_weight - top)
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
    """Chernoff's bounds on delta at some tilts (tilts, lanes): log, and for epsilon 0."""

    tilts: Reals
    log: Reals


def chernoff(releases: Releases, nodes: Nodes, tilts: Reals) -> Bounds:
    """Bounds from K at `tilts` (tilts, lanes), their slack included."""
    power, largest = releases.power(tilts), xp.max(xp.abs(nodes.loss), 0)
    psi = log_psi_and_gap(nodes, power)
    return Bounds(tilts, log_bound(releases, tilts, power, psi, largest))


def log_bound(releases: Releases, tilt: Reals, power: Reals, psi: Psi, largest: Reals) -> Reals:
    """log of Chernoff's bound at tilts (..., lanes), for epsilon 0; `largest`: of losses on nodes.

    As l is convex no peak of e^(p l) under N(0, 1) is narrower than that where p > 0. Where p < 0
    one may be: errors of the trapezoidal rule fall like e^(-c / h^2) with its spacing, or like
    e^(-c / h), and are, in parts of log psi, at most the square of what nodes twice as far apart
    are off by.
    """
    rounded = ULP * (CUMULANT + 8.0 * xp.abs(power) * largest)
    rounded = rounded * xp.minimum(xp.abs(psi.log), 1.0) + 4.0 * ULP * xp.abs(psi.log)
    share = psi.gap / xp.maximum(xp.abs(psi.log), 1e-300)
    off = xp.where(share < MOST_GAP, psi.gap * share, xp.inf)
    rounded = rounded + xp.where((power > 0) | (psi.gap <= rounded), 0.0, off)
    rounded = xp.where(psi.gap < xp.inf, rounded, xp.inf)
    lost = xp.sum(xp.where(releases.number > 0, releases.number * rounded, 0.0), -2)
    lost = lost + releases.log_coin_error
    return composed(releases, psi.log, tilt) + lost - conversion_entropy(tilt) + SLACK


def every_other(nodes: Nodes) -> Nodes:
    """Every other node, which weighs twice as much."""
    x, loss, log_weight = (v[::2] for v in (nodes.x, nodes.loss, nodes.log_weight))
    return Nodes(x, 2.0 * nodes.spacing, loss, log_weight + xp.log(2.0))


def least_epsilon(bounds: Bounds, log_delta: Reals) -> Reals:
    """The least epsilon >= 0 that the bounds give for log delta."""
    each = (bounds.log - log_delta) / bounds.tilts
    each = xp.where(bounds.tilts > 1e-200, each, xp.inf)
    return xp.maximum(xp.min(xp.where(xp.isnan(each), xp.inf, each), 0), 0.0)


def log_least_delta(bounds: Bounds, epsilon: Reals) -> Reals:
    """The least log delta that the bounds give for epsilon."""
    each = bounds.log - bounds.tilts * epsilon
    return xp.minimum(xp.min(xp.where(xp.isnan(each), 0.0, each), 0), 0.0)
