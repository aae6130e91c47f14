"""Random allocation: a record joins one of t steps of Gaussian noise, or one of t bins.

P = (1 / t) sum_i N(e_i / s), Q = N(0) in t dimensions; under Q the loss is log(S / t), S a sum of t
log-normal variables, and P has S / t times its density. It dominates "remove", and exchanged "add",
tightly; steps may depend on what earlier ones released.
Sources: arXiv:2502.08202 and arXiv:2412.16802 for the pair; the densities are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.pytree import pytree
from jaxdp._core.types import ArrayLike, Bools, Reals
from jaxdp._numeric.elementary import ULP, log1m, log1mexp
from jaxdp._numeric.mills import log_normal_survival
from jaxdp._numeric.quadrature import gauss_legendre
from jaxdp._numeric.sum_density import LogDensity, Resolution, log_normal_sum
from jaxdp.dominating_pair.base import DominatingPair, Law, Singularities, Smooth
from jaxdp.dominating_pair.moments import renyi_beyond, renyi_of_law

# Nodes of a density and points of its integrals. measured: 1e-11 of delta mostly
_FEW = Resolution(200, 80)
# Those of lanes that the few leave doubtful. measured: 1e-8 of delta at worst
_MANY = Resolution(320, 144)
# Nodes that a pair keeps. measured: read between them it is off by less than the density itself
_KEPT = 320
# Nodes of the law, read between those. chosen: the phases of a contour turn little from one to next
_OF_LAW = 1400
# By how much wider the nodes of the second run reach.
_WIDER = 1.25
# Share of what it differs by that is stated as the error. derived: of Lagrange's polynomial through
# 10 nodes the second run's is 1.25^10 = 9 times as large; measured: 6.6 times at least
_SHARE = 0.3
# Relative error of a density beyond which twice the nodes are taken. chosen: below 1e-6 of delta
_DOUBTFUL = 5e-8
# Least log mass of nodes whose errors count there. chosen: no smaller delta is asked for mostly
_SEEN = -37.0
# Stretches of nodes whose largest error is kept. chosen: 5 nodes each
_STRETCHES = 64
# Relative error where two runs agree. chosen: above the rounding of a read
_ROUNDING = 1e-12
# Points of a profile. measured: 1e-12 of delta
_POINTS = 128
# Ratio beyond which the record's step is taken for known. chosen: no delta is small there
_LARGEST_RATIO = 12.0
# And the least, to which smaller ones are lifted. chosen: the loss keeps its digits
_LEAST_RATIO = 1e-4


class _Lane(NamedTuple):
    """One pair's density under Q, the errors of its logarithm, and what lies beyond."""

    density: LogDensity
    errors: Reals
    log_left_out: Reals
    added: Reals

    def error_at(self, v: Reals) -> Reals:
        """The largest error of the stretch of nodes at v."""
        node = (v - self.density.low) / self.density.step
        index = jnp.floor(node * (_STRETCHES / _KEPT))
        return self.errors[jnp.clip(index, 0, _STRETCHES - 1).astype(int)]


@final
@pytree
class Allocation(DominatingPair):
    """A random allocation, "remove" or where `added` is 1 "add"; made by `allocation`."""

    centre: Reals
    width: Reals
    low: Reals
    step: Reals
    log_density: tuple[Reals, ...]
    log_error: tuple[Reals, ...]
    log_left_out: Reals
    ratio: Reals
    added: Reals

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of the integral of (1 - e^(epsilon - L))_+, and what the density may miss."""
        epsilon = checks.real("epsilon", epsilon)
        return self._by_lane(_log_delta, epsilon)

    def law(self) -> Law:
        """The nodes of the density; the second rule lies between them, and adds its error."""
        endless = jnp.full(self._shape, jnp.inf)
        columns = self._by_lane(_law_columns)
        loss, log_mass, log_density, check, checked, left_out = columns
        return Law(loss, log_mass, log_density, (check, checked), left_out, -endless, endless)

    def singularities(self) -> Singularities:
        """Smooth."""
        return Smooth()

    def reversed(self) -> Allocation:
        """`added` exchanged."""
        *others, added = jax.tree.leaves(self)
        return jax.tree.unflatten(jax.tree.structure(self), [*others, 1.0 - added])

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence from nodes, or that of a step which is known, by convexity."""

        def beyond(order: Reals, log_left_out: Reals) -> Reals:
            return renyi_beyond(self._of_one_step, order, log_left_out)

        return renyi_of_law(self, order, self._of_one_step, beyond)

    def _of_one_step(self, order: Reals) -> Reals:
        return 0.5 * order * self.ratio**2 * (1.0 + 8.0 * ULP)

    @property
    def _shape(self) -> tuple[int, ...]:
        return jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves(self)))

    def _by_lane(self, function: Callable[..., Any], *values: Reals) -> Any:
        """function(lane, *values) of every element of the batch."""
        own = self._shape
        shape = jnp.broadcast_shapes(own, *(x.shape for x in values))
        # Of one pair many values are asked for without a copy of its nodes for each.
        alone = math.prod(own) == 1
        lanes = (1,) * len(shape) if alone else shape

        def flat(x: Reals) -> Reals:
            return jnp.broadcast_to(x.reshape(()) if alone else x, lanes).reshape(-1)

        nodes, errors = (
            jnp.stack([flat(x) for x in each], axis=-1)
            for each in (self.log_density, self.log_error)
        )
        centre, width, low, step = map(flat, (self.centre, self.width, self.low, self.step))
        density = LogDensity(centre, width, low, step, nodes)
        lane = _Lane(density, errors, flat(self.log_left_out), flat(self.added))
        asked = [jnp.broadcast_to(x, shape).reshape(-1) for x in values]
        if alone and values:
            lane = jax.tree.map(lambda x: x[0], lane)
            found = jax.vmap(function, (None, *(0 for _ in asked)))(lane, *asked)
        else:
            found = jax.vmap(function)(lane, *asked)
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), found)


def allocation(ratio: ArrayLike, steps: int) -> Allocation:
    """The pair of a record that joins one of `steps` steps, which it moves by `ratio` scales.

    Args:
        ratio: sensitivity over the scale of the noise, at least 0; a batch of any shape.
        steps: known.

    The relative error of the density is 0.3 of what a coarser run differs by: 1e-11 mostly; lanes
    of known numbers where it exceeds 5e-8 are run again with more nodes. Beyond a ratio of 12 it is
    the pair of a step that is known, a bound.
    """
    ratio = checks.nonnegative("ratio", ratio)
    steps = checks.positive_integer("steps", steps)
    lanes = jnp.clip(jnp.ravel(ratio), _LEAST_RATIO, None)
    density, error = _density(lanes, steps, _FEW)
    if checks.all_concrete(lanes):
        index = np.flatnonzero(np.asarray(_doubt(density, error)) > _DOUBTFUL)
        kept = [_kept(density, error)]
        if index.size:
            again = _kept(*_density(lanes[index], steps, _MANY))
            kept = [jax.tree.map(lambda x, y: x.at[index].set(y), kept[0], again)]
        density, error = kept[0]
    else:
        density, error = _kept(density, error)
    beyond = jnp.log(1.0 * steps) + log_normal_survival(10.5 + lanes)
    left_out = jnp.logaddexp(log_normal_survival(jnp.full_like(lanes, 10.5)), beyond) + np.log(2.0)

    def shaped(x: Reals) -> Reals:
        return jnp.broadcast_to(x.reshape(ratio.shape), ratio.shape)

    centre = density.centre - np.log(steps)
    return Allocation(
        shaped(centre),
        shaped(density.width),
        shaped(density.low),
        shaped(density.step),
        tuple(map(shaped, density.values.T)),
        tuple(map(shaped, error.T)),
        shaped(left_out),
        jnp.maximum(ratio, _LEAST_RATIO),
        jnp.zeros(ratio.shape),
    )


def _density(ratio: Reals, steps: int, resolution: Resolution) -> tuple[LogDensity, Reals]:
    """The density of each lane, and what that of a coarser run differs by at its nodes."""
    size = ratio.size
    safe = jnp.minimum(ratio, _LARGEST_RATIO)
    spread = jnp.concatenate([jnp.ones(size), jnp.full(size, _WIDER)])
    both = log_normal_sum(jnp.concatenate([safe, safe]), spread, steps, resolution)
    fine, coarse = (jax.tree.map(lambda x, i=i: x[i : i + size], both) for i in (0, size))
    error = _difference(fine, coarse)
    if steps == 1 or (checks.is_concrete(ratio) and bool(jnp.all(ratio <= _LARGEST_RATIO))):
        return fine, error
    # A step that is known: its law is one log-normal's, moved as the sum is divided.
    alone = log_normal_sum(ratio, jnp.ones(size), 1, resolution)
    alone = alone._replace(centre=alone.centre + np.log(steps))
    large = ratio > _LARGEST_RATIO

    def choose(x: Reals, y: Reals) -> Reals:
        return jnp.where(large.reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(choose, alone, fine), jnp.where(large[:, None], 0.0, error)


@jax.jit
@jax.vmap
def _difference(fine: LogDensity, coarse: LogDensity) -> Reals:
    again = coarse.read(coarse.at_place(fine.nodes[0]))
    return jax.lax.stop_gradient(jnp.minimum(jnp.abs(fine.values - again), 1.0))


@jax.jit
@jax.vmap
def _doubt(density: LogDensity, error: Reals) -> Reals:
    """The largest error where either law has mass."""
    place, dl = density.nodes
    mass = density.values + jnp.log(dl)
    larger = jnp.maximum(mass, mass + place - density.centre)
    return _SHARE * jnp.max(jnp.where(larger > _SEEN, error, 0.0))


@jax.jit
@jax.vmap
def _kept(density: LogDensity, error: Reals) -> tuple[LogDensity, Reals]:
    """The density at the nodes that a pair keeps, and the largest errors of its stretches.

    What reading between those nodes misses is one of them.
    """
    step = (density.high - density.low) / (_KEPT - 1.0)
    v = density.low + step * jnp.arange(1.0 * _KEPT)
    kept = density._replace(step=step, values=density.read(v))
    middle = v + 0.5 * step
    missed = jnp.abs(kept.read(middle) - density.read(middle))
    index = jnp.clip((v - density.low) / density.step, 0.0, error.size - 1.0)
    near = error[jnp.floor(index).astype(int)], error[jnp.ceil(index).astype(int)]
    each = _SHARE * jnp.maximum(*near) + missed + _ROUNDING
    each = jnp.maximum(each, jnp.append(each[1:], each[-1]))
    return kept, jax.lax.stop_gradient(jnp.max(each.reshape(_STRETCHES, -1), axis=-1))


def _log_delta(lane: _Lane, epsilon: Reals) -> Reals:
    size = jnp.abs(epsilon)
    backward = epsilon < 0
    # delta(-e) = 1 - e^-e + e^-e times that of the exchanged pair at e.
    value = _integral(lane, size, (lane.added > 0) ^ backward)
    mixed = -jnp.expm1(-size) + jnp.exp(value - size)
    near_one = mixed > 0.5
    close = log1m(jnp.where(near_one, -jnp.expm1(value) * jnp.exp(-size), 0.0))
    mirrored = jnp.where(near_one, close, jnp.log(jnp.where(near_one, 1.0, mixed)))
    mirrored += ULP * (8.0 + 8.0 * jnp.abs(mirrored))
    value = jnp.where(epsilon == jnp.inf, lane.log_left_out, value)
    return jnp.minimum(jnp.where(backward, mirrored, value), 0.0)


def _integral(lane: _Lane, epsilon: Reals, added: Bools) -> Reals:
    """log of E_Q (S / t - e^epsilon)_+, or where `added` of E_Q (1 - e^epsilon S / t)_+."""
    density = lane.density
    kink = density.at_place(jnp.where(added, -epsilon, epsilon))
    kink = jnp.clip(kink, density.low, density.high)
    start, end = jnp.where(added, density.low, kink), jnp.where(added, kink, density.high)
    x, share = gauss_legendre(_POINTS)
    length = end - start
    some = length > 0
    v = start + jnp.where(some, length, 1.0) * x
    place = density.place(v)
    over = jnp.where(added, -place - epsilon, place - epsilon)
    pay = jnp.where(added, 0.0, place) + log1mexp(jnp.maximum(over, 1e-300))
    value = density.read(v) + lane.error_at(v) + pay + density.log_slope(v)
    summed = jax.nn.logsumexp(value + np.log(share)) + jnp.log(jnp.where(some, length, 1.0))
    return jnp.logaddexp(jnp.where(some, summed, -1e4), lane.log_left_out)


def _law_columns(lane: _Lane) -> tuple[Reals, ...]:
    """Columns of the `Law`: of the first rule, of the second one, and what is left out."""
    density, sign = lane.density, jnp.where(lane.added > 0, -1.0, 1.0)
    tilt = jnp.where(lane.added > 0, 0.0, 1.0)
    step = (density.high - density.low) / (_OF_LAW - 1.0)

    def rule(v: Reals) -> tuple[Reals, Reals, Reals]:
        place = density.place(v)
        under_p = density.read(v) + tilt * place
        return sign * place, under_p + density.log_slope(v) + jnp.log(step), under_p

    first = density.low + step * jnp.arange(1.0 * _OF_LAW)
    second = first[:-1] + 0.5 * step
    loss, log_mass, _ = rule(second)
    return *rule(first), loss, log_mass + lane.error_at(second), lane.log_left_out
