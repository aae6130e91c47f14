"""Nodes of the losses of a batch, and sums over them; nodes come first, lanes last.

psi(p) = E e^(p l) of one release is the sum of e^(log_weight + p loss) over real nodes. psi - 1 is
a sum of w (e^(p l) - 1), which keeps its digits if few samples hold the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import log1p

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
    rounding: Any = None  # error of each e^(i t l) per unit of t, of the nodes of any law


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


def sums(nodes: Nodes, power: Reals) -> Sums:
    """Sums of the nodes at powers (..., phases, lanes)."""
    rise = power[..., None, :, :] * nodes.loss
    exponent = nodes.log_weight + rise
    largest = lax.stop_gradient(xp.maximum(xp.max(exponent, -3), 0.0))
    at_nodes = largest[..., None, :, :]
    weight, base = xp.exp(exponent - at_nodes), xp.exp(nodes.log_weight - at_nodes)
    near = xp.abs(rise) < 1.0
    risen = xp.where(near, base * xp.expm1(xp.where(near, rise, 0.0)), weight - base)
    return Sums(weight, risen, largest)


def by_tilts(function: Callable[[Reals], Any], nodes: Nodes, tilts: Reals) -> Any:
    """function(tilts) (tilts, ...), in chunks where arrays of tilts and nodes would be large."""
    count = tilts.shape[0]
    pieces = min(-(-nodes.loss.size * count // MOST_AT_ONCE), count)
    return in_chunks(function, tilts, -(-count // max(pieces, 1)))


def in_chunks(function: Callable[[Any], Any], trees: Any, chunk: int) -> Any:
    """function(trees) of arrays with one first axis, for `chunk` of its entries at a time."""
    size = jax.tree.leaves(trees)[0].shape[0]
    if chunk >= size:
        return function(trees)

    def parts(x: Any) -> Any:
        width = [(0, -size % chunk), *[(0, 0)] * (x.ndim - 1)]
        return xp.pad(x, width, mode="edge").reshape(-1, chunk, *x.shape[1:])

    found = lax.map(function, jax.tree.map(parts, trees))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:size], found)


def log_psi(nodes: Nodes, power: Reals) -> Reals:
    """log psi at powers (..., phases, lanes)."""
    return sums(nodes, power).log_psi


def log_of(risen: Reals, largest: Reals) -> Reals:
    """log(1 + risen e^largest)."""
    is_zero = largest == 0.0
    small = log1p(xp.where(is_zero, risen, 0.0))
    total = xp.where(is_zero, 1.0, risen + xp.exp(-largest))
    return xp.where(is_zero, small, largest + xp.log(total))
