"""Privacy profile of a random allocation from its density, by integrals of positive terms.

For a law with density f of losses, T(e) = int_e (1 - e^(e - L)) f dL. Between the edges of panels

    T(e) = int_e^(L_j) (1 - e^(e - L)) f dL + (1 - e^(e - L_j)) F(L_j) + e^(e - L_j) T(L_j)

with F the mass beyond. Each e costs one panel. T is convex in e^e, since every panel has one error
of its density.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxdp._core.functions import logsumexp
from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._numeric.quadrature import gauss_legendre
from jaxdp.dominating_pair.allocation_density import KEPT, STRETCHES, Lane
from jaxdp.noise.base import mirrored_log_delta

# Points of a panel's integral. measured: 1e-14 of it
_POINTS = 12
# log of no mass. chosen: negligible in any sum, and slopes stay finite
_NOTHING = -1e4
# Nodes of the density from one edge to the next. derived
_NODES = KEPT // STRETCHES


class Panels(NamedTuple):
    """Edges of the panels of one direction (P + 1,) in the order of losses, and their tails.

    The first axis, of size 2, holds the tails with the errors of the density added and subtracted.
    """

    edge: Reals  # v
    loss: Reals
    log_mass: Reals
    log_tail: Reals  # log T


def log_deltas(lane: Lane, panels: Panels, epsilon: Reals, added: Bools) -> Reals:
    """Upper and lower bounds on log delta at any epsilons (...,): (..., 2)."""
    size, backward = xp.abs(epsilon), epsilon < 0
    # delta(-e) = 1 - e^-e + e^-e delta(e), with delta(e) of the exchanged pair.
    value = _log_tails(lane, panels, size, added ^ backward)
    mirrored = mirrored_log_delta(value, size[..., None], 1.0) + 8.0 * ULP
    return xp.minimum(xp.where(backward[..., None], mirrored, value), 0.0)


def panels_of(lane: Lane) -> Panels:
    """The panels of both directions, "remove" and "add"."""
    return jax.tree.map(lambda *x: xp.stack(x), *(_one_way(lane, added) for added in (False, True)))


def _one_way(lane: Lane, added: bool) -> Panels:
    density, order = lane.density, -1 if added else 1
    index = np.minimum(_NODES * np.arange(STRETCHES + 1.0), KEPT - 1.0)[::order]
    edge = density.low + density.step * index
    loss = order * density.place(edge)
    x, share = gauss_legendre(_POINTS)
    width = xp.diff(edge)[:, None]
    v = edge[:-1, None] + width * x[None]
    place = density.place(v)
    log_mass = density.read(v) + density.log_slope(v) + (0.0 if added else place)
    log_mass = log_mass + (xp.log(xp.abs(width)) + np.log(share)[None])
    gap = xp.maximum(order * place - loss[:-1, None], 1e-300)
    errors = lane.errors[::order]
    errors = xp.stack([errors, -errors])
    log_part, paid = (
        errors + logsumexp(y, axis=1)[None] for y in (log_mass, log_mass + log1mexp(gap))
    )
    log_beyond = _with_end(_from_each_on(log_part))
    # e^-L_j T(L_j) is the sum over the panels from j on.
    log_tail = xp.logaddexp(paid, log1mexp(xp.diff(loss))[None] + log_beyond[:, 1:])
    tail = _with_end(_from_each_on(log_tail - loss[None, :-1]) + loss[None, :-1])
    edge, loss = (xp.broadcast_to(x, log_beyond.shape) for x in (edge, loss))
    return Panels(edge, loss, log_beyond, tail)


def _from_each_on(logs: Reals) -> Reals:
    """log of the sums of each term along the last axis and all that follow it."""
    later = np.triu(np.ones((STRETCHES, STRETCHES), bool))
    return logsumexp(xp.where(later[None], logs[:, None], _NOTHING), axis=-1)


def _with_end(x: Reals) -> Reals:
    return xp.concatenate([x, xp.full((x.shape[0], 1), _NOTHING)], axis=1)


def _log_tails(lane: Lane, panels: Panels, epsilon: Reals, added: Bools) -> Reals:
    """log T at epsilons >= 0 (...,): (..., 2), with the mass beyond the nodes, and without."""
    density, sign = lane.density, xp.where(added, -1.0, 1.0)
    start = xp.clip(density.at_place(sign * epsilon), density.low, density.high)
    stretch = xp.floor((start - density.low) / density.step / _NODES).astype(int)
    stretch = xp.clip(stretch, 0, STRETCHES - 1)
    way, panel = added.astype(int), xp.where(added, STRETCHES - 1 - stretch, stretch)
    edge, loss, log_mass, log_tail = (x[way, :, panel + 1] for x in panels)
    x, share = gauss_legendre(_POINTS)
    length = edge[..., 0] - start
    inside = xp.abs(length) > 0
    v = start[..., None] + length[..., None] * x
    place = density.place(v)
    excess = xp.maximum(sign[..., None] * place - epsilon[..., None], 1e-300)
    value = density.read(v) + density.log_slope(v) + log1mexp(excess)
    value = value + xp.where(added[..., None], 0.0, place)
    log_part = logsumexp(value + np.log(share), axis=-1)
    log_part = log_part + xp.log(xp.where(inside, xp.abs(length), 1.0))
    log_part = log_part[..., None] + xp.array([1.0, -1.0]) * lane.errors[stretch][..., None]
    gap = xp.maximum(loss - epsilon[..., None], 1e-300)
    log_rest = xp.logaddexp(log1mexp(gap) + log_mass, log_tail - gap)
    log_total = xp.logaddexp(xp.where(inside[..., None], log_part, _NOTHING), log_rest)
    upper = xp.logaddexp(log_total[..., 0], lane.log_left_out)
    return xp.stack([upper, log_total[..., 1]], axis=-1)
