"""Cumulants of a batch on its real nodes, and the Chernoff bounds that they give.

K(theta) = sum n log psi(p) + variance theta (theta + 1) / 2 over the phases, where psi - 1 is a sum
of w (e^(p l) - 1): where few samples hold the record, the digits of what they add are kept.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, log1p
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
    """log psi at a power (phases, lanes)."""
    _, risen, largest = _parts(nodes, power)
    return _log_of(jnp.sum(risen, 0), largest)


class Psi(NamedTuple):
    """log psi at a power, and by how much nodes twice as far apart would differ (phases, lanes)."""

    log: Reals
    gap: Reals


def log_psi_and_gap(nodes: Nodes, power: Reals) -> Psi:
    """log psi at a power (phases, lanes), and how far every other node is off."""
    _, risen, largest = _parts(nodes, power)
    return _psi(risen, largest, nodes.spacing)


def _psi(risen: Reals, largest: Reals, spacing: Reals) -> Psi:
    log = _log_of(jnp.sum(risen, 0), largest)
    gap = jnp.abs(log - _log_of(2.0 * jnp.sum(risen[::2], 0), largest))
    return Psi(log, jnp.where(spacing < WIDEST, gap, jnp.inf))


def log_psi_in_parts(
    nodes: Nodes, power: Reals, cuts: int, is_falling: Bools
) -> tuple[Psi, Reals, Reals]:
    """log psi at a power (phases, lanes), of smaller losses than some cuts, and what lies above.

    The parts are arrays (cuts, phases, lanes), what lies above as a share of what lies below.
    """
    weight, risen, largest = _parts(nodes, power)
    blocks = weight.reshape(-1, cuts, nodes.x.shape[0] // cuts, *weight.shape[1:]).sum((0, 2))
    blocks = jnp.where(is_falling, blocks[::-1], blocks)
    below = jnp.maximum(jnp.cumsum(blocks, 0), 1e-300)
    above = jnp.cumsum(blocks[::-1], 0)[::-1] - blocks
    return _psi(risen, largest, nodes.spacing), largest + jnp.log(below), above / below


def _parts(nodes: Nodes, power: Reals) -> tuple[Reals, Reals, Reals]:
    """w e^(p l), w (e^(p l) - 1), both over e^largest, and `largest`."""
    rise = power * nodes.loss
    exponent = nodes.log_weight + rise
    largest = lax.stop_gradient(jnp.maximum(jnp.max(exponent, 0), 0.0))
    weight, base = jnp.exp(exponent - largest), jnp.exp(nodes.log_weight - largest)
    near = jnp.abs(rise) < 1.0
    risen = jnp.where(near, base * jnp.expm1(jnp.where(near, rise, 0.0)), weight - base)
    return weight, risen, largest


def _log_of(risen: Reals, largest: Reals) -> Reals:
    """log(1 + risen e^largest)."""
    is_zero = largest == 0.0
    small = log1p(jnp.where(is_zero, risen, 0.0))
    total = jnp.where(is_zero, 1.0, risen + jnp.exp(-largest))
    return jnp.where(is_zero, small, largest + jnp.log(total))


def moments(nodes: Nodes, power: Reals) -> Moments:
    """log psi at a power (phases, lanes), and mean and variance of l under that tilt."""
    exponent = nodes.log_weight + power * nodes.loss
    largest = jnp.max(exponent, 0)
    weight = jnp.exp(exponent - largest)
    total = jnp.sum(weight, 0)
    mean = jnp.sum(weight * nodes.loss, 0) / total
    square = jnp.sum(weight * nodes.loss**2, 0) / total
    return Moments(largest + jnp.log(total), mean, jnp.maximum(square - mean * mean, 0.0))


def composed(releases: Releases, each: Reals, tilt: Reals) -> Reals:
    """K from log psi of every phase (..., phases, lanes) at a tilt (..., lanes)."""
    total = jnp.sum(releases.number * each, -2)
    return total + 0.5 * releases.variance * tilt * (tilt + 1.0)


class Bounds(NamedTuple):
    """Chernoff's bounds on delta at some tilts (tilts, lanes): log, and for epsilon 0."""

    tilts: Reals
    log: Reals


def chernoff(releases: Releases, nodes: Nodes, tilts: Reals) -> Bounds:
    """Bounds from K at `tilts` (tilts, lanes), their slack included."""
    largest = jnp.max(jnp.abs(nodes.loss), 0)

    def each(tilt: Reals) -> Reals:
        power = releases.power(tilt)
        return log_bound(releases, tilt, power, log_psi_and_gap(nodes, power), largest)

    return Bounds(tilts, jax.vmap(each)(tilts))


def log_bound(releases: Releases, tilt: Reals, power: Reals, psi: Psi, largest: Reals) -> Reals:
    """log of Chernoff's bound at a tilt, for epsilon 0; `largest`: of the losses on nodes.

    As l is convex no peak of e^(p l) under N(0, 1) is narrower than that where p > 0. Where p < 0
    one may be: errors of the trapezoidal rule fall like e^(-c / h^2) with its spacing, or like
    e^(-c / h), and are, in parts of log psi, at most the square of what nodes twice as far apart
    are off by.
    """
    rounded = ULP * (CUMULANT + 8.0 * jnp.abs(power) * largest)
    rounded = rounded * jnp.minimum(jnp.abs(psi.log), 1.0) + 4.0 * ULP * jnp.abs(psi.log)
    share = psi.gap / jnp.maximum(jnp.abs(psi.log), 1e-300)
    off = jnp.where(share < MOST_GAP, psi.gap * share, jnp.inf)
    rounded += jnp.where((power > 0) | (psi.gap <= rounded), 0.0, off)
    rounded = jnp.where(psi.gap < jnp.inf, rounded, jnp.inf)
    lost = jnp.sum(jnp.where(releases.number > 0, releases.number * rounded, 0.0), 0)
    lost += releases.log_coin_error
    return composed(releases, psi.log, tilt) + lost + log_most(tilt) + SLACK


def log_most(tilt: Reals) -> Reals:
    """log of the largest (1 - e^-y) e^(-tilt y), y >= 0; 0 at a tilt of 0."""
    safe = jnp.where(tilt > 0, tilt, 1.0)
    return jnp.where(tilt > 0, -log1p(tilt) - safe * log1p(1.0 / safe), 0.0)


def every_other(nodes: Nodes) -> Nodes:
    """Every other node, which weighs twice as much."""
    x, loss, log_weight = (v[::2] for v in (nodes.x, nodes.loss, nodes.log_weight))
    return Nodes(x, 2.0 * nodes.spacing, loss, log_weight + jnp.log(2.0))


def least_epsilon(bounds: Bounds, log_delta: Reals) -> Reals:
    """The least epsilon >= 0 that the bounds give for log delta."""
    each = (bounds.log - log_delta) / bounds.tilts
    each = jnp.where(bounds.tilts > 1e-200, each, jnp.inf)
    return jnp.maximum(jnp.min(jnp.where(jnp.isnan(each), jnp.inf, each), 0), 0.0)


def log_least_delta(bounds: Bounds, epsilon: Reals) -> Reals:
    """The least log delta that the bounds give for epsilon."""
    each = bounds.log - bounds.tilts * epsilon
    return jnp.minimum(jnp.min(jnp.where(jnp.isnan(each), 0.0, each), 0), 0.0)
