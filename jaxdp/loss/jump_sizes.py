"""Of what size one loss must be to matter, where few releases hit the record, and its windows.

Above epsilon, less what all others add, one loss alone makes the total exceed it; but where n of
them sum to it far more easily than one is that large, such losses may be left out, with their
probability as an error. What is that easy is estimated from the law cut off at many sizes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import log_ndtr, logsumexp

from jaxdp._numeric.elementary import LOG_SQRT_2PI, log1p
from jaxdp._numeric.jump_law import moments_below, point_of, steepness
from jaxdp._numeric.sampled_nodes import loss_at
from jaxdp._types import Bools, Index, Reals
from jaxdp.loss.jump_rest import Rest

# Of the edges of windows, of log L: the largest distance of two, and up to such a steepness of the
# density.
APART, _STEEP = 0.3, 20.0
WINDOWS = 120
# The highest edges, in distances from the largest size.
_HIGHEST = (3.5, 1.0, -1.0)
# In standard deviations of all small losses: how far above them sizes begin, and the inverse of
# what is left to be summed as a whole.
_BULK, _FINE = 3.0, 6.0
# Where a loss ceases to grow like the likelihood ratio.
_TRANSITION = 1.0
# Sizes at which the law is cut off, and tilts of each of two looks, as logarithms.
_CUTS, _LOG_TILTS, _TILTS, _LOOKS = 24, (-4.0, 9.0), 25, 2
# Nodes up to there, from the lowest x on, and where they begin to be farther apart.
_NODES, _LOWEST, _BEND = 128, -9.5, 5.0
# Near a cut: within e^-0.7 of it. Where less than this is expected there the cut does not matter.
_LOG_NEAR, _UNTOUCHED = -0.7, 1e-2
# Of log delta: how far it may be below its estimate; below it, what is left out.
_MARGIN, _NEGLIGIBLE = 10.0, 45.0
_BISECTIONS = 30
# Standard deviations of the noise that no release exceeds but with a probability of e^-11,000.
_FARTHEST = 150.0
# Of the largest size over the least.
_LEAST_SPAN = 4.0


class Sizes(NamedTuple):
    """Of the largest loss, (*lanes,)."""

    lowest: Reals  # of those that are looked at
    largest: Reals
    exceeds: Bools  # a larger one makes the total exceed epsilon


class Edges(NamedTuple):
    """Of windows, from the highest on, along the first axis."""

    log_size: Reals
    apart: Reals  # the distance of two there, of log L

    def at(self, index: Reals) -> "Edges":
        return jax.tree.map(
            lambda x: jnp.take_along_axis(x, index[None].astype(int), axis=0)[0], self
        )


class Hits(NamedTuple):
    """Sampled Gaussians: shift over scale, sampling probability and number, (*lanes, m)."""

    ratio: Reals
    sampling_prob: Reals
    number: Reals
    rest: Rest

    def each(self, x: Reals) -> Reals:
        return jnp.broadcast_to(x[..., None], self.ratio.shape)


def likely_log_delta(hits: Hits, epsilon: Reals) -> Reals:
    """What delta is at least, likely, without large losses."""
    low, most, _ = _ends(hits, epsilon)
    return _log_likely(hits, low, most, epsilon) - _MARGIN


def sizes_of(hits: Hits, epsilon: Reals, likely: Reals) -> Sizes:
    """At epsilon > 0, if delta is not far less than `likely`."""
    low, most, exceeds = _ends(hits, epsilon)
    largest = _rarer_than(hits, likely - _NEGLIGIBLE, low, most)
    return Sizes(low, largest, exceeds & (largest >= most))


def _ends(hits: Hits, epsilon: Reals) -> tuple[Reals, Reals, Bools]:
    """The least and the largest size that may matter, and whether that makes the total exceed."""
    moments = moments_below(hits.ratio, hits.sampling_prob, hits.each(0.5 * epsilon))
    mean, square = (jnp.sum(hits.number * moment, axis=-1) for moment in moments)
    spread = jnp.sqrt(square)
    enough = jnp.maximum(epsilon - mean, 0.1 * epsilon) + _BULK * spread
    enough += hits.rest.lowest(epsilon)
    rare = loss_at(hits.ratio + _FARTHEST, hits.ratio, hits.sampling_prob)
    rarest = jnp.max(jnp.where(hits.number > 0, rare, 0.0), axis=-1)
    most = jnp.minimum(enough, rarest)
    return jnp.minimum(spread / _FINE, most / _LEAST_SPAN), most, enough <= rarest


def edges_of(hits: Hits, sizes: Sizes) -> Edges:
    """From `_HIGHEST` on downwards; none is the first."""
    first, log_largest = apart_at(hits, sizes.largest), jnp.log(sizes.largest)
    distances = jnp.array(_HIGHEST).reshape(-1, *(1,) * first.ndim)
    highest = log_largest[None] + distances * first[None]

    def lower(log_size: Reals, _: None) -> tuple[Reals, tuple[Reals, Reals]]:
        apart = apart_at(hits, jnp.exp(log_size))
        return log_size - apart, (log_size, apart)

    rest = lax.scan(lower, highest[-1], None, WINDOWS)[1]
    infinite = jnp.full_like(highest[:1], jnp.inf)
    return Edges(
        jnp.concatenate([infinite, highest[:-1], rest[0]]),
        jnp.concatenate([jnp.broadcast_to(first, (3, *first.shape)), rest[1]]),
    )


def scale_of(hits: Hits, sizes: Sizes) -> Reals:
    """In which nodes are equally far apart, of log L."""
    return apart_at(hits, jnp.minimum(sizes.largest, _TRANSITION)) / APART


def apart_at(hits: Hits, size: Reals) -> Reals:
    """The distance of two edges at a size, of log L: less where the density is steeper."""
    each = steepness(hits.ratio, hits.sampling_prob, hits.each(size))
    steepest = jnp.max(jnp.where(hits.number > 0, each, 0.0), axis=-1)
    return APART * jnp.sqrt(_STEEP / jnp.maximum(steepest, _STEEP))


def _log_likely(hits: Hits, low: Reals, high: Reals, epsilon: Reals) -> Reals:
    """About the largest log delta without the losses above a size that no tilted law reaches."""
    share = jnp.linspace(0.0, 1.0, _CUTS)[(None,) * low.ndim]
    cut = jnp.exp(jnp.log(low)[..., None] + jnp.log(high / low)[..., None] * share)
    law = _CutLaw.of(hits, cut)
    offset = jnp.linspace(-1.0, 1.0, _TILTS)[(None,) * cut.ndim]

    def nearer(
        middle_and_reach: tuple[Reals, Reals], _: None
    ) -> tuple[tuple[Reals, Reals], tuple[Reals, Reals]]:
        middle, reach = middle_and_reach
        tilts = jnp.exp(middle[..., None] + reach * offset)
        beside = hits.rest.log_moment(tilts.reshape(*epsilon.shape, -1)).reshape(tilts.shape)
        bound = beside + law.log_moment(tilts) - tilts * epsilon[..., None, None]
        bound -= jnp.log(tilts) + jnp.log1p(tilts)
        best = jnp.argmin(jnp.where(jnp.isnan(bound), jnp.inf, bound), axis=-1)[..., None]
        tilt, least = (jnp.take_along_axis(x, best, axis=-1)[..., 0] for x in (tilts, bound))
        return (jnp.log(tilt), reach * (2.0 / (_TILTS - 1))), (tilt, least)

    low_tilt, high_tilt = _LOG_TILTS
    first = 0.5 * (low_tilt + high_tilt) - jnp.log(cut)
    reach = jnp.asarray(0.5 * (high_tilt - low_tilt))
    tilt, least = (x[-1] for x in lax.scan(nearer, (first, reach), None, _LOOKS)[1])
    untouched = law.near_cut(tilt[..., None])[..., 0] < _UNTOUCHED
    return jnp.max(jnp.where(untouched, least, -jnp.inf), axis=-1)


class _CutLaw(NamedTuple):
    """Losses below cuts on nodes, (*lanes, m, cuts, nodes); what is above counts as 0."""

    loss: Reals
    log_weight: Reals
    near: Bools
    number: Reals  # (*lanes, m)

    @staticmethod
    def of(hits: Hits, cut: Reals) -> "_CutLaw":
        c, q = hits.ratio[..., None, None], hits.sampling_prob[..., None, None]
        cut = cut[..., None, :, None]
        top = point_of(c, q, cut)
        share = (jnp.arange(_NODES) + 0.5) / _NODES
        low, high = (jnp.arcsinh(end / _BEND) for end in (jnp.minimum(_LOWEST, top - 1.0), top))
        v = low + (high - low) * share[(None,) * cut.ndim][..., 0, :]
        x, width = _BEND * jnp.sinh(v), _BEND * jnp.cosh(v) * (high - low) / _NODES
        loss = loss_at(x, *jnp.broadcast_arrays(c, q, x)[:2])
        log_weight = loss - 0.5 * x * x - LOG_SQRT_2PI + jnp.log(width)
        return _CutLaw(loss, log_weight, loss > cut * jnp.exp(_LOG_NEAR), hits.number)

    def _tilted(self, tilts: Reals) -> Reals:
        """(*lanes, m, cuts, tilts, nodes)"""
        exponent = tilts[..., None, :, :, None] * self.loss[..., None, :]
        return jnp.exp(jnp.minimum(exponent + self.log_weight[..., None, :], 700.0))

    def log_moment(self, tilts: Reals) -> Reals:
        less = jnp.exp(self.log_weight)[..., None, :]
        each = log1p(jnp.maximum(jnp.sum(self._tilted(tilts) - less, axis=-1), -0.99))
        return jnp.sum(self.number[..., None, None] * each, axis=-3)

    def near_cut(self, tilts: Reals) -> Reals:
        """How many losses are expected there."""
        tilted = self._tilted(tilts)
        near = jnp.sum(jnp.where(self.near[..., None, :], tilted, 0.0), axis=-1)
        return jnp.sum(self.number[..., None, None] * near / jnp.sum(tilted, axis=-1), axis=-3)


def _rarer_than(hits: Hits, log_mass: Reals, low: Reals, high: Reals) -> Reals:
    """The least size above which a loss is, with at most such a probability; or `high`."""

    def halve(_: Index | int, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        middle = 0.5 * (ends[0] + ends[1])
        rare = _log_mass_above(hits, jnp.exp(middle)) < log_mass
        return jnp.where(rare, ends[0], middle), jnp.where(rare, middle, ends[1])

    ends = lax.fori_loop(0, _BISECTIONS, halve, (jnp.log(low), jnp.log(high)))
    return jnp.where(_log_mass_above(hits, high) < log_mass, jnp.exp(ends[1]), high)


def _log_mass_above(hits: Hits, size: Reals) -> Reals:
    c, q = hits.ratio, hits.sampling_prob
    x = point_of(c, q, hits.each(size))
    each = jnp.logaddexp(jnp.log1p(-q) + log_ndtr(-x), jnp.log(q) + log_ndtr(c - x))
    some = hits.number > 0
    each += jnp.log(jnp.where(some, hits.number, 1.0))
    return logsumexp(jnp.where(some, each, -jnp.inf), axis=-1)
