"""The law of one sampled Gaussian's loss, cut off smoothly at some size, and what lies between.

W_j(L) keeps what is below e^y_j: a normal tail in sinh(log L - y_j), which falls faster than
e^(theta L) rises, and leaves nothing of the many losses near 0 above it.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, logsumexp, ndtr

from jaxdp._numeric.elementary import log1mexp, log1p
from jaxdp._numeric.jump_law import JumpLaw, jump_law, moments_below, steepness
from jaxdp._types import Bools, Reals
from jaxdp.loss.base import Term, Terms
from jaxdp.loss.sampled import Sampled
from jaxdp.noise.base import Loss, ratio_of
from jaxdp.noise.gaussian import Gaussian

# Of the edges of windows, of log L: the largest distance of two, up to such a steepness of the
# density, and the width of one in distances.
_APART, _STEEP, _WIDTH = 0.3, 20.0, 0.4
# Of the edge above which a single loss makes the total exceed epsilon, in distances.
_SURE = 3.5
# Beyond so many e-foldings an edge is one-sided, beyond so many widths what is left negligible.
_REACH, _DEEP = 6.0, 5.0
# In standard deviations of all small losses: how far above them sizes begin, and the inverse of
# what is left to be summed as a whole.
_BULK, _FINE = 3.0, 6.0
# Of shift over scale, and of sampling probabilities, where this is tried.
_LARGEST_RATIO, _LARGEST_PROB = 5.0, 0.5
# e^40 is as good as e^40 - 1; what is larger than e^600 is infinite.
_LARGE, LARGEST_EXPONENT = 40.0, 600.0
# e^-40 is as good as 0 beside 1.
_TINY = -40.0


class Releases(NamedTuple):
    """What is composed, on nodes: (*lanes, m) releases."""

    law: JumpLaw
    number: Reals
    size: Reals  # of the largest loss that is looked for, (*lanes,)
    apart: Reals  # the distance of two windows' edges, of log L, (*lanes,)
    last: Reals  # the window below which the rest is summed as a whole, (*lanes,)
    sound: Bools  # resolved, (*lanes,)

    def log_rest(self) -> Reals:
        """log of a bound on the probability of a loss above the last node."""
        some = self.number > 0
        each = jnp.log(jnp.where(some, self.number, 1.0)) + self.law.log_rest
        return logsumexp(jnp.where(some, each, -jnp.inf), axis=-1)


class Parameters(NamedTuple):
    """Of sampled Gaussians, (*lanes, m)."""

    ratio: Reals  # shift over scale
    sampling_prob: Reals
    number: Reals
    added: Reals

    def used(self) -> Bools:
        """The releases that matter."""
        return (self.ratio > 0) & (self.sampling_prob > 0) & (self.number > 0)

    def usable(self, epsilon: Reals) -> Bools:
        """Where epsilon > 0 and all records are removed: the losses have no largest one."""
        used = self.used()
        small = (self.ratio < _LARGEST_RATIO) & (self.sampling_prob < _LARGEST_PROB)
        plain = jnp.all(~used | (small & (self.added == 0)), axis=-1) & jnp.any(used, axis=-1)
        return plain & (epsilon > 0) & (epsilon < jnp.inf)


def applies(terms: Terms) -> bool:
    """Whether every release is a sampled Gaussian's."""
    return all(_is_sampled_gaussian(term.noise) for term in terms)


def _is_sampled_gaussian(noise: Loss) -> bool:
    return isinstance(noise, Sampled) and isinstance(noise.noise, Gaussian)


def parameters_of(terms: Terms) -> Parameters:
    """Of terms to which this `applies`."""

    def of(term: Term) -> Parameters:
        assert isinstance(term.noise, Sampled)
        noise = term.noise
        ratio = ratio_of(term.shift, noise.noise.scale)
        return Parameters(ratio, noise.sampling_prob, term.count, noise.added)

    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *(of(term) for term in terms))


def releases_of(of: Parameters, epsilon: Reals) -> Releases:
    """At epsilon > 0, where it is `usable`."""
    sound = of.usable(epsilon)
    used = of.used() & sound[..., None]
    at = jnp.where(sound, epsilon, 1.0)
    pairs = (of.number, 0.0), (of.ratio, 1.0), (of.sampling_prob, 0.5)
    number, c, q = (jnp.where(used, x, other) for x, other in pairs)

    def each(x: Reals) -> Reals:
        return jnp.broadcast_to(x[..., None], c.shape)

    moments = moments_below(c, q, each(0.5 * at))
    mean, square = (jnp.sum(number * moment, axis=-1) for moment in moments)
    spread = jnp.sqrt(square)
    size = jnp.maximum(at - mean, 0.1 * at) + _BULK * spread
    steepest = jnp.max(jnp.where(used, steepness(c, q, each(size)), 0.0), axis=-1)
    apart = _APART * jnp.sqrt(_STEEP / jnp.maximum(steepest, _STEEP))
    largest = size * jnp.exp(_SURE * apart + jnp.arcsinh(_DEEP * _WIDTH * apart))
    law = jump_law(c, q, each(size), each(largest), each(apart / _APART))
    sound &= jnp.all(law.resolved | ~used, axis=-1)
    last = 1.0 + jnp.ceil(jnp.log(_FINE * size / spread) / apart)
    return Releases(law, number, size, apart, last, sound)


class Window(NamedTuple):
    """Of every node: the share below the lower edge, and that between both edges."""

    below: Reals
    log_below: Reals
    cut: Reals  # 1 - below
    between: Reals

    @staticmethod
    def of(releases: Releases, index: Reals) -> "Window":
        """Edges in distances: none, `_SURE`, 1, -1, -2, ..."""

        place = jnp.stack([index + 1.0, index])
        lower = jnp.where(place > 2, 2.0 - place, jnp.where(place == 2, 1.0, _SURE))
        distance = _distance(releases, jnp.where(place == 0, jnp.inf, lower))
        (below, cut), (below_top, cut_top) = ndtr(jnp.stack([-distance, distance], axis=1))
        # Whichever does not cancel.
        between = jnp.where(cut < 0.5, cut - cut_top, below_top - below)
        return Window(below, log_ndtr(-distance[0]), cut, between)


def _distance(releases: Releases, places: Reals) -> Reals:
    """Of every node from the edges, in widths: (edges, *lanes, m, nodes)."""
    loss = releases.law.loss
    positive = loss > 0
    edges = places * releases.apart[None] + jnp.log(releases.size)[None]
    distance = jnp.log(jnp.where(positive, loss, 1.0))[None] - edges[..., None, None]
    distance = jnp.where(positive[None], jnp.clip(distance, -_REACH, _REACH), -_REACH)
    return jnp.sinh(distance) / (_WIDTH * releases.apart[None, ..., None, None])


class Parts(NamedTuple):
    """Logarithms of A (below) and B (between) of every release, (*lanes, m, tilts)."""

    below: Reals
    between: Reals
    number: Reals
    whole: Bools  # A^n alone is looked at, (*lanes,)

    @staticmethod
    def of(releases: Releases, window: Window, tilts: Reals, whole: Bools) -> "Parts":
        """At real tilts (*lanes, tilts); infinite where they overflow."""
        law = releases.law
        exponent = tilts[..., None, :, None] * law.loss[..., None, :]
        log_weight = law.log_weight[..., None, :]
        below, log_below, cut, between = (x[..., None, :] for x in window)
        large, weight = exponent > _LARGE, jnp.exp(log_weight)
        grown = jnp.exp(jnp.minimum(log_weight + log_below + exponent, LARGEST_EXPONENT))
        small = weight * below * jnp.expm1(jnp.where(large, 0.0, exponent))
        # E[e^(tilt L) W] - 1, whose error is that of what the release adds.
        total = jnp.sum(jnp.where(large, grown, small) - weight * cut, axis=-1)
        usable = (total > -1.0) & jnp.all(grown < math.exp(LARGEST_EXPONENT), axis=-1)
        log_below = jnp.where(usable, log1p(jnp.where(usable, total, 0.0)), jnp.inf)
        exponent = jnp.where(between > 0, exponent + log_weight, -jnp.inf)
        top = jnp.maximum(jnp.max(exponent, axis=-1), -jnp.finfo(jnp.float64).max)
        total = jnp.sum(between * jnp.exp(exponent - top[..., None]), axis=-1)
        return Parts(log_below, top + jnp.log(total), releases.number, whole)

    def lifted(self) -> tuple[Reals, Reals]:
        """log B / A, and by how much it is lifted: tiny differences are linear in B."""
        number = self.number[..., None]
        used = (number > 0) & (self.below < jnp.inf)
        ratio = jnp.where(used, self.between - self.below, -jnp.inf)
        largest = jnp.max(ratio + jnp.log(jnp.where(number > 0, number, 1.0)), axis=-2)
        lift = jnp.where(largest > -jnp.inf, jnp.maximum(_TINY - largest, 0.0), 0.0)
        return ratio + lift[..., None, :], lift

    def exponents(self) -> tuple[Reals, Reals, Reals]:
        """n log A and n log(1 + B / A), lifted, over all releases, and the lift."""
        ratio, lift = self.lifted()
        near = jnp.where(ratio > -_TINY, ratio, log1p(jnp.exp(jnp.minimum(ratio, -_TINY))))
        number = self.number[..., None]
        below, near = (jnp.where(number > 0, number * x, 0.0) for x in (self.below, near))
        return jnp.sum(below, axis=-2), jnp.sum(near, axis=-2), lift

    def log_difference(self) -> Reals:
        """log((A + B)^n - A^n), or log A^n."""
        base, rise, lift = self.exponents()
        difference = base + rise + log1mexp(rise) - lift
        return jnp.where((base < jnp.inf) & ~self.whole[..., None], difference, base)
