"""Quadrature of a noise's density between its kinks.

The densities g(x - m) of a noise at shifts m have the kinks of g moved by each m. The line is cut
at all of them, and every piece into panels of Gauss-Legendre nodes, graded towards a kink. Source:
Davis & Rabinowitz, Methods of Numerical Integration, 1984, section 2.12 (the grading).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.quadrature import gauss_legendre, graded_gauss_legendre
from jaxdp.noise.base import Noise, expanded

# -log of the probability beyond the last node. chosen: a tilt of 10 moves a Gaussian by 14 scales
DEPTH = 300.0
# -log of the probability beyond the last node on either side. derived: twice e^-300
LEFT_OUT = DEPTH - float(np.log(2.0))
# Nodes on a panel. measured: it and the rule of CHECK_ORDER differ by 1e-14 of a moment
ORDER = 16
CHECK_ORDER = 14
# Panels of a tail. measured: 24 lose 1e-9 of a Gaussian's.
TAIL_PANELS = 32
# Panels of a tail end at powers of this of equal parts. chosen: short ones in the middle
_GROWTH = 1.5
# Panels between two kinks.
INNER_PANELS = 4
# log of the largest reach in widths of the noise. chosen: exponential tails end at log 300.
_LOG_REACH = 12.0
# Sections of the range of log reaches, and rounds. derived: 24 / 16^13 is rounding
_SECTIONS, _ROUNDS = 16, 13
# Atoms of a lattice noise that become nodes of their own; beyond, nodes stand for several.
_LATTICE_NODES = 1500


class Nodes(NamedTuple):
    """Places x and weights dx of one rule and then of another, along a new last axis."""

    x: Reals
    weight: Reals
    first: int  # nodes of the first rule


def reach_of(noise: Noise) -> Reals:
    """The x beyond which the noise lies with probability e^-300, or where its support ends."""
    # XLA takes the long chain of constants that a known place leaves for a stuck rewrite.
    width = xp.exp(-noise.log_density(lax.optimization_barrier(xp.zeros(()))))

    shares = np.arange(1.0, _SECTIONS).reshape(-1, *[1] * xp.ndim(width)) / _SECTIONS

    def nearer(_: Index | int, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        low, high = ends
        log_x = low[None] + shares * (high - low)[None]
        inside = noise.log_survival(width[None] * xp.exp(log_x)) > -DEPTH
        first = xp.sum(xp.cumprod(xp.where(inside, 1.0, 0.0), axis=0), axis=0)
        part = (high - low) / _SECTIONS
        return low + first * part, low + (first + 1.0) * part

    ends = xp.full_like(width, -_LOG_REACH), xp.full_like(width, _LOG_REACH)
    return lax.stop_gradient(width * xp.exp(lax.fori_loop(0, _ROUNDS, nearer, ends)[1]))


def of_law(noise: Noise, shifts: tuple[Reals, ...]) -> Nodes:
    """`between_kinks`, with weights of NaN where the noise is not consistent."""
    nodes = between_kinks(noise, shifts)
    believed = xp.broadcast_to(noise.is_consistent(), nodes.weight.shape[:-1])
    return nodes._replace(weight=xp.where(believed[..., None], nodes.weight, xp.nan))


def between_kinks(noise: Noise, shifts: tuple[Reals, ...]) -> Nodes:
    """Nodes for the densities at all `shifts`, all of one shape."""
    starts, lengths = _pieces(noise, shifts)
    count = lengths.shape[-1]
    pieces = [(starts[..., i], lengths[..., i]) for i in range(count)]
    return _by_both_rules(pieces, lambda order, i: _panels(i, count, order))


def _by_both_rules(
    pieces: Sequence[tuple[Reals, Reals]],
    panels_of: Callable[[int, int], list[tuple[np.ndarray, np.ndarray]]],
) -> Nodes:
    """Nodes of pieces, by start and length, from the panels of [0, 1] of an order and a piece."""
    x, weight, rank = [], [], xp.ndim(pieces[0][0])
    for order in (ORDER, CHECK_ORDER):
        for i, (start, length) in enumerate(pieces):
            panels = zip(*panels_of(order, i), strict=True)
            unit, share = (along_last(np.concatenate(rule), rank) for rule in panels)
            x.append(start[..., None] + length[..., None] * unit)
            weight.append(length[..., None] * share)
    first = sum(int(part.shape[-1]) for part in x[: len(pieces)])
    return Nodes(xp.concatenate(x, axis=-1), xp.concatenate(weight, axis=-1), first)


@in_float64(side=0.0)
def panels(breaks: Sequence[Reals], each: int = 32) -> Nodes:
    """Nodes between successive places of one shape, for the law of a pair of your own.

    Args:
        breaks: the first place, those where a density or the loss is not smooth, the last one.
        each: panels between two of them, of 16 nodes and, for the second rule, 14.

    Returns:
        Places and weights of both rules, along a new last axis.

    >>> import numpy as np
    >>> import jaxdp as dp
    >>> nodes = dp.own.panels((np.asarray(0.0), np.asarray(1.0)), each=2)
    >>> print(f"{np.sum(nodes.weight[: nodes.first] * nodes.x[: nodes.first] ** 2):.12f}")
    0.333333333333
    """
    edges = np.linspace(0.0, 1.0, each + 1)

    def panels_of(order: int, _: int) -> list[tuple[np.ndarray, np.ndarray]]:
        place, share = gauss_legendre(order)
        return [(a + (b - a) * place, (b - a) * share) for a, b in itertools.pairwise(edges)]

    ends = [xp.asarray(place) for place in breaks]
    return _by_both_rules([(a, b - a) for a, b in itertools.pairwise(ends)], panels_of)


def tails_of(noise: Noise) -> tuple[Reals, Reals, Reals]:
    """Starts of all panels from -reach to reach, and log of the integral beyond by both rules."""
    shifts = (xp.zeros_like(reach_of(noise)),)
    nodes, (starts, lengths) = between_kinks(noise, shifts), _pieces(noise, shifts)
    mass = xp.exp(cast(Noise, expanded(noise)).log_density(nodes.x)) * nodes.weight
    count, rank = lengths.shape[-1], lengths.ndim - 1
    places = (
        starts[..., i, None] + lengths[..., i, None] * along_last(_edges(i, count)[:-1], rank)
        for i in range(count)
    )
    beyond = []
    both = mass[..., : nodes.first], mass[..., nodes.first :]
    for order, rule in zip((ORDER, CHECK_ORDER), both, strict=True):
        sizes = [unit.size for i in range(count) for unit, _ in _panels(i, count, order)]
        begins = np.cumsum([0, *sizes[:-1]])
        summed = xp.cumsum(rule[..., ::-1], axis=-1)[..., ::-1][..., begins]
        beyond.append(xp.log(summed + np.exp(-DEPTH)))
    return xp.concatenate(list(places), axis=-1), beyond[0], beyond[1]


def _pieces(noise: Noise, shifts: tuple[Reals, ...]) -> tuple[Reals, Reals]:
    """Starts and lengths of the pieces between kinks, along a new last axis."""
    shape = shifts[0].shape
    reach = xp.broadcast_to(reach_of(noise), shape)
    places = noise.kinks() or (xp.zeros(()),)
    kinks = [xp.broadcast_to(kink, shape) + m for kink in places for m in shifts]
    ends = xp.stack(shifts, axis=-1)
    low, high = xp.min(ends, axis=-1) - reach, xp.max(ends, axis=-1) + reach
    breaks = xp.sort(xp.clip(xp.stack(kinks, axis=-1), low[..., None], high[..., None]), axis=-1)
    starts = xp.concatenate([low[..., None], breaks], axis=-1)
    return starts, xp.diff(starts, axis=-1, append=high[..., None])


def on_integers(noise: Noise, shifts: tuple[Reals, ...]) -> Nodes:
    """The integers within reach, or every k-th of them with weight k."""
    x, stride = integers(noise, shifts)
    weight = xp.broadcast_to(stride, x.shape)
    # Where nodes stand for several integers the second rule says that nothing is known.
    doubt = xp.where(stride > 1, 2.0, 1.0) * weight
    both = xp.concatenate([weight, doubt], axis=-1)
    return Nodes(xp.concatenate([x, x], axis=-1), both, _LATTICE_NODES)


def integers(noise: Noise, shifts: tuple[Reals, ...]) -> tuple[Reals, Reals]:
    """1,500 integers within reach along a new last axis, and the distance of two, with the axis."""
    ends = xp.stack(shifts, axis=-1)
    reach = xp.broadcast_to(reach_of(noise), shifts[0].shape)
    low = xp.floor(xp.min(ends, axis=-1) - reach)
    stride = xp.ceil((xp.max(ends, axis=-1) + reach - low) / _LATTICE_NODES)
    stride = lax.stop_gradient(xp.maximum(stride, 1.0))[..., None]
    index = along_last(np.arange(1.0 * _LATTICE_NODES), low.ndim)
    return lax.stop_gradient(low)[..., None] + stride * index, stride


def _edges(index: int, count: int) -> np.ndarray:
    """Ends of the panels of [0, 1] for one of `count` pieces, the first and last of them tails."""
    tail = index in (0, count - 1)
    panels = TAIL_PANELS if tail else INNER_PANELS
    edges = np.linspace(0.0, 1.0, panels + 1) ** (_GROWTH if tail else 1.0)
    return 1.0 - edges[::-1] if index == 0 else edges


def _panels(index: int, count: int, order: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Nodes and weights of each panel of [0, 1] for one of `count` pieces."""
    plain, graded = gauss_legendre(order), graded_gauss_legendre(order + 8)
    edges = _edges(index, count)
    panels = []
    for panel, (start, end) in enumerate(itertools.pairwise(edges)):
        at_start = panel == 0 and index > 0
        at_end = panel == edges.size - 2 and index < count - 1
        x, w = graded if at_start or at_end else plain
        x, w = (1.0 - x[::-1], w[::-1]) if at_end else (x, w)
        panels.append((start + (end - start) * x, (end - start) * w))
    return panels


def along_last(values: np.ndarray, rank: int) -> Reals:
    """A constant vector along the axis after `rank` others."""
    return xp.asarray(values)[(None,) * rank]
