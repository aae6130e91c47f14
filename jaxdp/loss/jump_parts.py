"""The law of one sampled Gaussian's loss, cut off smoothly at some size, and what lies between.

W_j(L) keeps what is below e^y_j: a normal tail in sinh(log L - y_j), which falls faster than
e^(theta L) rises, and leaves nothing of the many losses near 0 above it.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import log_ndtr, logsumexp, ndtr

from jaxdp._numeric.elementary import log1mexp, log1p
from jaxdp._numeric.jump_law import JumpLaw, jump_law
from jaxdp._types import Bools, Reals
from jaxdp.loss.base import Term, Terms
from jaxdp.loss.jump_rest import Rest
from jaxdp.loss.jump_sizes import (
    Edges,
    Hits,
    Sizes,
    edges_of,
    likely_log_delta,
    scale_of,
    sizes_of,
)
from jaxdp.loss.sampled import Sampled
from jaxdp.noise.base import Loss, ratio_of
from jaxdp.noise.gaussian import Gaussian

# Of an edge: its width, in distances of two; of nodes there, in widths, beyond which they miss more
# than 4e-14.
_WIDTH, _RESOLVED = 0.4, 0.8
# Beyond so many e-foldings an edge is one-sided, beyond so many widths what is left negligible.
_REACH, _DEEP = 40.0, 5.0
# Of shift over scale, and of sampling probabilities, where this is tried.
_LARGEST_RATIO, _LARGEST_PROB = 1e3, 1.0
# e^40 is as good as e^40 - 1; what is larger than e^600 is infinite.
_LARGE, LARGEST_EXPONENT = 40.0, 600.0
# e^-40 is as good as 0 beside 1.
_TINY = -40.0


class Releases(NamedTuple):
    """What is composed, on nodes: (*lanes, m) releases."""

    law: JumpLaw
    number: Reals
    sizes: Sizes
    edges: Edges
    last: Reals  # the window below which what is left is summed as a whole, (*lanes,)
    sound: Bools  # resolved, (*lanes,)
    rest: Rest

    def log_rest(self) -> Reals:
        """log of a bound on the probability of a loss above the last node."""
        some = self.number > 0
        each = jnp.log(jnp.where(some, self.number, 1.0)) + self.law.log_rest
        return logsumexp(jnp.where(some, each, -jnp.inf), axis=-1)


class Parameters(NamedTuple):
    """Of sampled Gaussians, (*lanes, m), and what is released besides."""

    ratio: Reals  # shift over scale
    sampling_prob: Reals
    number: Reals
    added: Reals
    rest: Rest

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
    """Whether there are sampled Gaussians among the releases, and all have complex cumulants."""
    found = any(_is_sampled_gaussian(term.noise) for term in terms)
    return found and all(term.noise.contoured for term in terms)


def all_apply(terms: Terms) -> bool:
    """Whether there is nothing else."""
    return all(_is_sampled_gaussian(term.noise) for term in terms)


def _is_sampled_gaussian(noise: Loss) -> bool:
    return isinstance(noise, Sampled) and isinstance(noise.noise, Gaussian)


def parameters_of(terms: Terms) -> Parameters:
    """Of terms to which this `applies`."""

    def of(term: Term) -> tuple[Reals, ...]:
        assert isinstance(term.noise, Sampled)
        noise = term.noise
        ratio = ratio_of(term.shift, noise.noise.scale)
        return ratio, noise.sampling_prob, term.count, noise.added

    hits = [of(term) for term in terms if _is_sampled_gaussian(term.noise)]
    rest = Rest(tuple(term for term in terms if not _is_sampled_gaussian(term.noise)))
    ratio, prob, number, added = (jnp.concatenate(x, axis=-1) for x in zip(*hits, strict=True))
    return Parameters(ratio, prob, number, added, rest)


def releases_of(of: Parameters, epsilon: Reals, likely: Reals) -> Releases:
    """At epsilon > 0, where it is `usable`; `likely`: see `jump_sizes`."""
    sound, used, hits, at = _usable(of, epsilon)
    sizes = sizes_of(hits, at, likely)
    edges = edges_of(hits, sizes)
    top = edges.at(jnp.ones_like(at))
    largest = jnp.exp(top.log_size + jnp.arcsinh(_DEEP * _WIDTH * top.apart))
    ends = hits.each(sizes.lowest), hits.each(largest)
    law = jump_law(hits.ratio, hits.sampling_prob, *ends, hits.each(scale_of(hits, sizes)))
    sound &= jnp.all(law.resolved | ~used, axis=-1)
    usable = (edges.log_size > jnp.log(sizes.lowest)[None]) & _resolved(law, used, edges)
    # A window ends at the next edge.
    last = jnp.sum(jnp.cumprod(usable[1:], axis=0), axis=0)
    sound &= last > 0
    return Releases(law, hits.number, sizes, edges, last, sound, of.rest)


def likely_of(of: Parameters, epsilon: Reals) -> Reals:
    """See `jump_sizes`."""
    _, _, hits, at = _usable(of, epsilon)
    return likely_log_delta(hits, at)


def _usable(of: Parameters, epsilon: Reals) -> tuple[Bools, Bools, Hits, Reals]:
    """Where it is, the releases that matter there, those, and epsilon; else harmless values."""
    sound = of.usable(epsilon)
    used = of.used() & sound[..., None]
    ratio, prob = jnp.where(used, of.ratio, 1.0), jnp.where(used, of.sampling_prob, 0.5)
    hits = Hits(ratio, prob, jnp.where(used, of.number, 0.0), of.rest)
    return sound, used, hits, jnp.where(sound, epsilon, 1.0)


def _resolved(law: JumpLaw, used: Bools, edges: Edges) -> Bools:
    log_size, apart = (jnp.moveaxis(x, 0, -1)[..., None, :] for x in edges)
    spacing = law.spacing_at(jnp.exp(jnp.where(log_size < jnp.inf, log_size, 0.0)))
    fine = jnp.all((spacing < _RESOLVED * _WIDTH * apart) | ~used[..., None], axis=-2)
    return jnp.moveaxis(fine, -1, 0)


class Window(NamedTuple):
    """Of every node: the share below the lower edge, and that between both edges."""

    below: Reals
    log_below: Reals
    cut: Reals  # 1 - below
    between: Reals

    @staticmethod
    def of(releases: Releases, index: Reals) -> "Window":
        """Between the edges of this index and the next."""
        lower, upper = (_distance(releases, releases.edges.at(index + more)) for more in (1.0, 0.0))
        distance = jnp.stack([lower, upper])
        (below, cut), (below_top, cut_top) = ndtr(jnp.stack([-distance, distance], axis=1))
        # Whichever does not cancel.
        between = jnp.where(cut < 0.5, cut - cut_top, below_top - below)
        return Window(below, log_ndtr(-lower), cut, jnp.maximum(between, 0.0))


def _distance(releases: Releases, edge: Edges) -> Reals:
    """Of every node from an edge, in widths: (*lanes, m, nodes)."""
    loss = releases.law.loss
    positive = loss > 0
    log_size, apart = (x[..., None, None] for x in edge)
    distance = jnp.log(jnp.where(positive, loss, 1.0)) - log_size
    distance = jnp.where(positive, jnp.clip(distance, -_REACH, _REACH), -_REACH)
    return jnp.sinh(distance) / (_WIDTH * apart)


class Parts(NamedTuple):
    """Logarithms of A (below) and B (between) of every release, (*lanes, m, tilts)."""

    below: Reals
    between: Reals
    number: Reals
    whole: Bools  # A^n alone is looked at, (*lanes,)
    rest: Reals  # log R, (*lanes, tilts)

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
        rest = releases.rest.log_moment(tilts)
        return Parts(log_below, top + jnp.log(total), releases.number, whole, rest)

    def lifted(self) -> tuple[Reals, Reals]:
        """log B / A, and by how much it is lifted: tiny differences are linear in B."""
        number = self.number[..., None]
        used = (number > 0) & (self.below < jnp.inf)
        ratio = jnp.where(used, self.between - self.below, -jnp.inf)
        largest = jnp.max(ratio + jnp.log(jnp.where(number > 0, number, 1.0)), axis=-2)
        lift = jnp.where(largest > -jnp.inf, jnp.maximum(_TINY - largest, 0.0), 0.0)
        return ratio + lift[..., None, :], lift

    def exponents(self) -> tuple[Reals, Reals, Reals]:
        """log R A^n and n log(1 + B / A), lifted, over all releases, and the lift."""
        ratio, lift = self.lifted()
        near = jnp.where(ratio > -_TINY, ratio, log1p(jnp.exp(jnp.minimum(ratio, -_TINY))))
        number = self.number[..., None]
        below, near = (jnp.where(number > 0, number * x, 0.0) for x in (self.below, near))
        return self.rest + jnp.sum(below, axis=-2), jnp.sum(near, axis=-2), lift

    def log_difference(self) -> Reals:
        """log R ((A + B)^n - A^n), or log R A^n."""
        base, rise, lift = self.exponents()
        difference = base + rise + log1mexp(rise) - lift
        return jnp.where((base < jnp.inf) & ~self.whole[..., None], difference, base)


def tilted(law: JumpLaw, theta: Reals, share: Reals, log_total: Reals) -> Reals:
    """A share of the law, tilted by theta (*lanes,), of a known total: (*lanes, m, nodes)."""
    some = share > 0
    exponent = law.log_weight + theta[..., None, None] * law.loss - log_total
    return jnp.where(some, share * jnp.exp(jnp.where(some, exponent, 0.0)), 0.0)
