"""Privacy profile of a random allocation from the density of its loss, log(S / t) under Q.

For a law with density f of losses, T(e) = int_e (1 - e^(e - L)) f dL. Between the edges of panels

    T(e) = int_e^(L_j) (1 - e^(e - L)) f dL + (1 - e^(e - L_j)) F(L_j) + e^(e - L_j) T(L_j)

with F the mass beyond. Each e costs one panel. T is convex in e^e, since every panel has one error
of its density.

Concrete ratios are run again with more nodes where two runs differ by too much. A traced ratio
carries the derivative of its nodes, from a forward pass beside them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import custom_jvp, lax, logsumexp, picked, updated, vmap, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._numeric.mills import log_normal_survival
from jaxdp._numeric.quadrature import gauss_legendre
from jaxdp._numeric.sum_density import LogDensity, log_normal_sum
from jaxdp.noise.base import mirrored_log_delta

# Nodes of a density and points of its integrals. measured: 1e-11 of delta in most cases
_FEW = (200, 80)
# The same for lanes whose first error is too large. measured: 1e-8 of delta at worst
_MANY = (320, 144)
# Nodes that are kept. measured: interpolation errors are below the density's own
KEPT = 320
# Factor on the range of the nodes of the second run. chosen
_WIDER = 1.25
# Share of the difference of both runs that is stated as the error. derived: with Lagrange's
# polynomial through 10 nodes the second run's error is 1.25^10 = 9 times as large; measured: 6.6
# times at least
_SHARE = 0.3
# Relative error of a density above which more nodes are used. chosen: below 1e-6 of delta
_DOUBTFUL = 5e-8
# Least log mass of nodes whose errors count in this. chosen: smaller deltas are rare
_SEEN = -37.0
# Stretches of nodes whose largest errors are kept. chosen: 5 nodes each
STRETCHES = 64
# Relative error where two runs agree. chosen: above the rounding of an interpolation
_ROUNDING = 1e-12
# Ratio above which a fixed step bounds the pair. chosen: no delta is small there
_LARGEST_RATIO = 12.0
# Least ratio; a pair raises smaller ones to it. chosen: the loss keeps its digits
LEAST_RATIO = 1e-4


class Lane(NamedTuple):
    """One pair's density under Q, the errors of its logarithm, and the log masses beyond."""

    density: LogDensity
    errors: Reals  # (STRETCHES,)
    log_left_out: Reals
    ratio: Reals

    def error_at(self, v: Reals) -> Reals:
        """The largest error of the stretch of nodes at v."""
        node = (v - self.density.low) / self.density.step
        index = xp.floor(node * (STRETCHES / KEPT))
        return picked(self.errors, xp.clip(index, 0, STRETCHES - 1).astype(int))


def known_lanes(ratio: Reals, steps: int) -> Lane:
    """Lanes of concrete ratios (L,); lanes with a large error use more nodes."""
    density, error = _density(ratio, steps, _FEW)
    index = np.flatnonzero(np.asarray(_largest_error(density, error)) > _DOUBTFUL)
    density, error = _reduced(density, error)
    if index.size:
        refined = _reduced(*_density(ratio[index], steps, _MANY))
        lanes = density, error
        density, error = jax.tree.map(lambda x, y: updated(x, index, y), lanes, refined)
    return _lane(density, error, ratio, steps)


def traced_lane(ratio: Reals, steps: int) -> Lane:
    """The lane of a traced ratio, of shape ()."""
    density, errors = _traced(ratio, steps)
    return _lane(density, errors, ratio, steps)


def _lane(density: LogDensity, errors: Reals, ratio: Reals, steps: int) -> Lane:
    log_beyond = np.log(steps) + log_normal_survival(10.5 + ratio)
    log_low = log_normal_survival(xp.full_like(ratio, 10.5))
    left_out = xp.logaddexp(log_low, log_beyond) + np.log(2.0)
    centre = density.centre - np.log(steps)
    return Lane(density._replace(centre=centre), errors, lax.stop_gradient(left_out), ratio)


@partial(custom_jvp, nondiff_argnums=(1,))
def _traced(ratio: Reals, steps: int) -> tuple[LogDensity, Reals]:
    lanes = _reduced(*_density(ratio[None], steps, _FEW))
    return jax.tree.map(lambda x: x[0], lanes)


@_traced.defjvp
def _traced_jvp(steps: int, primals: Any, tangents: Any) -> Any:
    lane, slopes = jax.jvp(
        lambda ratio: jax.tree.map(lambda x: x[0], _reduced(*_density(ratio[None], steps, _FEW))),
        primals,
        (xp.ones(()),),
    )
    return lane, jax.tree.map(lambda x: x * tangents[0], slopes)


def _density(ratio: Reals, steps: int, resolution: tuple[int, int]) -> tuple[LogDensity, Reals]:
    """The density of each lane, and its difference to a coarser run at its nodes."""
    size = ratio.size
    safe = xp.minimum(ratio, _LARGEST_RATIO)
    spread = xp.concatenate([xp.ones(size), xp.full(size, _WIDER)])
    runs = log_normal_sum(xp.concatenate([safe, safe]), spread, steps, *resolution)
    fine, coarse = (jax.tree.map(lambda x, i=i: x[i : i + size], runs) for i in (0, size))
    error = _difference(fine, coarse)
    if steps == 1 or (checks.is_concrete(ratio) and bool(xp.all(ratio <= _LARGEST_RATIO))):
        return fine, error
    # A fixed step: its law is one log-normal's, shifted as the sum is divided by t.
    single = log_normal_sum(ratio, xp.ones(size), 1, *resolution)
    single = single._replace(centre=single.centre + np.log(steps))
    large = ratio > _LARGEST_RATIO

    def choose(x: Reals, y: Reals) -> Reals:
        return xp.where(large.reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(choose, single, fine), xp.where(large[:, None], 0.0, error)


@jitted
@vmap
def _difference(fine: LogDensity, coarse: LogDensity) -> Reals:
    values = coarse.read(coarse.at_place(fine.nodes[0]))
    return lax.stop_gradient(xp.minimum(xp.abs(fine.values - values), 1.0))


@jitted
@vmap
def _largest_error(density: LogDensity, error: Reals) -> Reals:
    """The largest error at nodes where either law has mass."""
    place, dl = density.nodes
    mass = density.values + xp.log(dl)
    larger = xp.maximum(mass, mass + place - density.centre)
    return _SHARE * xp.max(xp.where(larger > _SEEN, error, 0.0))


@jitted
@vmap
def _reduced(density: LogDensity, error: Reals) -> tuple[LogDensity, Reals]:
    """The density at the nodes that are kept, and the largest errors of its stretches.

    The errors include the interpolation error between these nodes.
    """
    step = (density.high - density.low) / (KEPT - 1.0)
    v = density.low + step * xp.arange(1.0 * KEPT)
    reduced = density._replace(step=step, values=density.read(v))
    middle = v + 0.5 * step
    read_error = xp.abs(reduced.read(middle) - density.read(middle))
    index = xp.clip((v - density.low) / density.step, 0.0, error.size - 1.0)
    near = error[xp.floor(index).astype(int)], error[xp.ceil(index).astype(int)]
    errors = _SHARE * xp.maximum(*near) + read_error + _ROUNDING
    errors = xp.maximum(errors, xp.append(errors[1:], errors[-1]))
    return reduced, lax.stop_gradient(xp.max(errors.reshape(STRETCHES, -1), axis=-1))


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
    edge, loss, log_mass, log_tail = (picked(x, (way, slice(None), panel + 1)) for x in panels)
    length = edge[..., 0] - start
    x, share = (np.broadcast_to(y, (*length.shape, _POINTS)) for y in gauss_legendre(_POINTS))
    inside = xp.abs(length) > 0
    v = start[..., None] + length[..., None] * x
    place = density.place(v)
    excess = xp.maximum(sign[..., None] * place - epsilon[..., None], 1e-300)
    value = density.read(v) + density.log_slope(v) + log1mexp(excess)
    value = value + xp.where(added[..., None], 0.0, place)
    log_part = logsumexp(value + np.log(share), axis=-1)
    log_part = log_part + xp.log(xp.where(inside, xp.abs(length), 1.0))
    error = picked(lane.errors, stretch)
    log_part = xp.stack([log_part + error, log_part - error], axis=-1)
    gap = xp.maximum(loss - epsilon[..., None], 1e-300)
    log_rest = xp.logaddexp(log1mexp(gap) + log_mass, log_tail - gap)
    log_total = xp.logaddexp(xp.where(inside[..., None], log_part, _NOTHING), log_rest)
    upper = xp.logaddexp(log_total[..., 0], lane.log_left_out)
    return xp.stack([upper, log_total[..., 1]], axis=-1)
