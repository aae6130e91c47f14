"""Nodes of the losses of a batch, sums over them, and Chernoff's bounds from these.

Nodes come first, lanes last. psi(p) = E e^(p l) of one release is the sum of e^(log_weight + p
loss) over real nodes. psi - 1 is a sum of w (e^(p l) - 1), which keeps its digits if few samples
hold the record. The cumulant of a batch, over its phases, is K(theta) = log P[L < inf] +
sum n log psi(p) + variance theta (theta + 1) / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import conversion_entropy, log1p

Pair: TypeAlias = tuple[Reals, Reals]  # real and imaginary parts


LEAST_LOG = -690.0  # log of a number above 0. derived: e^-708 is the least normal double
MOST_AT_ONCE = 2**22  # numbers of one array of nodes at all tilts. chosen: 32 MB
LARGEST_LOG = 600.0  # log above which a sum is unknown. derived: its square root can be squared


class Stage(NamedTuple):
    """Number and place of the nodes and points of one inversion."""

    points: int  # of a block
    blocks: int = 1  # largest number of blocks
    nodes: int = 0  # of a mixture
    start: float = 0.0  # first node, in units of the noise
    depth: float = 0.0  # nats below delta of the probability above the cutoff
    height: float = 0.0  # height of the nodes over their spacing, with a smooth cutoff; 0: sharp

    @property
    def is_bulk(self) -> bool:
        """True for a short sum at a saddle, over a mixture that ends sharply."""
        return self.nodes > 0 and self.height == 0


class Nodes(NamedTuple):
    """Real nodes of the losses, arrays (nodes, phases, lanes)."""

    loss: Reals
    log_weight: Reals
    spacing: Any = None  # (phases, lanes), of a mixture's nodes in units of the noise


class Sums(NamedTuple):
    """w e^(p l) and w (e^(p l) - 1) at powers (..., nodes, phases, lanes), over e^largest."""

    weight: Reals
    risen: Reals
    largest: Reals  # (..., phases, lanes)

    @property
    def log_psi(self) -> Reals:
        """log psi at the powers."""
        return log_of(xp.sum(self.risen, -3), self.largest)


class Psi(NamedTuple):
    """log psi at powers (..., phases, lanes), and a bound on its error."""

    log: Reals
    error: Reals


class FrozenContour(NamedTuple):
    """Law and contour of every lane, which stay fixed under differentiation."""

    place: Any  # of the nodes
    height: Reals  # of the nodes over the real axis (phases, lanes)
    tilt: Reals  # (lanes,)
    step: Reals  # (lanes,)
    epsilon: Reals  # (lanes,): at which terms are centred
    log_unit: Reals  # (lanes,): unit of sums
    blocks: Index | int
    end: Reals  # (lanes,): height from which on no point counts
    smoothed: Reals  # (lanes,): variance of a Gaussian that makes psi fall


class LineNodes(NamedTuple):
    """Nodes for values off the real axis: psi over psi at the tilt, less the mean loss."""

    weight: Pair  # (nodes, phases, lanes)
    loss: Pair
    mean: Reals  # (phases, lanes), subtracted from the losses


class Bounds(NamedTuple):
    """Logs of Chernoff's bounds on delta at some tilts (tilts, lanes), for epsilon 0."""

    tilts: Reals
    log: Reals


class Plan(NamedTuple):
    """A contour of each lane (lanes,)."""

    tilt: Reals
    period: Reals
    epsilon: Reals  # estimate of epsilon
    log_unit: Reals  # estimate of log delta there
    bounds: Bounds  # of the law on its nodes
    spread: Reals  # (phases, lanes), of l at the tilt of a saddle


class LawErrors(NamedTuple):
    """Errors of a contour from its law, in units of e^log_scale of the sum, and its end."""

    of_phi: Reals  # error of phi that does not depend on t (phases, lanes)
    by_height: Any  # what `phi_error` of the rows reads
    truncation: Reals  # (lanes,)
    of_scale: Any = 0.0  # log of 1 + the relative error of the moment at the tilt (lanes,)
    end: Any = xp.inf  # height from which on no point counts (lanes,)
    smoothed: Any = 0.0  # variance of the Gaussian that makes psi fall (lanes,)


# `mixtures.Mixtures` or `laws.Laws`, which have the same methods: releases of a composition as
# phases of equal releases, in arrays (phases, lanes) or (lanes,), with nodes first. The engine
# knows no noise: rows know the error of each of their sums.
Rows: TypeAlias = Any


def sums(nodes: Nodes, power: Reals) -> Sums:
    """Sums of the nodes at powers (..., phases, lanes)."""
    rise = power[..., None, :, :] * nodes.loss
    exponent = nodes.log_weight + rise
    largest = xp.maximum(xp.max(exponent, -3), 0.0)
    at_nodes = largest[..., None, :, :]
    weight, base = xp.exp(exponent - at_nodes), xp.exp(nodes.log_weight - at_nodes)
    near = xp.abs(rise) < 1.0
    risen = xp.where(near, base * xp.expm1(xp.where(near, rise, 0.0)), weight - base)
    return Sums(weight, risen, largest)


def by_tilts(function: Callable[[Reals], Any], nodes: Nodes, tilts: Reals) -> Any:
    """function(tilts) (tilts, ...), in chunks where arrays of tilts and nodes would be large."""
    count = tilts.shape[0]
    pieces = min(-(-nodes.loss.size * count // MOST_AT_ONCE), count)
    chunk = -(-count // max(pieces, 1))
    if chunk >= count:
        return function(tilts)
    widths = [(0, -count % chunk), *[(0, 0)] * (tilts.ndim - 1)]
    parts = xp.pad(tilts, widths, mode="edge").reshape(-1, chunk, *tilts.shape[1:])
    found = lax.map(function, parts)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found)


def log_psi(nodes: Nodes, power: Reals) -> Reals:
    """log psi at powers (..., phases, lanes)."""
    return sums(nodes, power).log_psi


def log_of(risen: Reals, largest: Reals) -> Reals:
    """log(1 + risen e^largest)."""
    is_zero = largest == 0.0
    small = log1p(xp.where(is_zero, risen, 0.0))
    total = xp.where(is_zero, 1.0, risen + xp.exp(-largest))
    return xp.where(is_zero, small, largest + xp.log(total))


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


def least_epsilon(bounds: Bounds, log_delta: Reals) -> Reals:
    """The least epsilon >= 0 from the bounds at log delta."""
    each = (bounds.log - log_delta) / bounds.tilts
    each = xp.where(bounds.tilts > 1e-200, each, xp.inf)
    return xp.maximum(xp.min(xp.where(xp.isnan(each), xp.inf, each), 0), 0.0)


def log_least_delta(bounds: Bounds, epsilon: Reals) -> tuple[Reals, Reals]:
    """The least log delta from the bounds at epsilon, and its tilt, which is minus its slope."""
    each = bounds.log - bounds.tilts * epsilon
    each = xp.where(xp.isnan(each), 0.0, each)
    best = xp.argmin(each, 0)[None]
    tilt = xp.take_along_axis(bounds.tilts + xp.zeros_like(each), best, 0)[0]
    return xp.minimum(xp.take_along_axis(each, best, 0)[0], 0.0), tilt
