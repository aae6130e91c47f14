"""Poisson sampling of any pair: each record joins a sample independently.

Under Q the ratio of a Poisson sample is 1 - q + q e^u, u the loss of the whole release. For an
integer order a, its a-th moment is sum_k C(a, k) (1 - q)^(a - k) q^k E[e^(k u)]. The log of the
moment is convex in the order, so that between two integers it is at most its chord. By the triangle
inequality it is at most a log(1 - q + q E[e^(a u)]^(1 / a)) at every order.

Source: Mironov, Talwar & Zhang 2019 (arXiv:1908.10530), section 3.3, for integer orders; else ours.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import cast, final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import logsumexp, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1m, log1mexp, log1p, log_probability, round_up
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import (
    LEAST_EXCESS,
    RESOLVED,
    DominatingPair,
    Law,
    Mixture,
    Support,
    is_whole,
    nodal_divergence,
    renyi_of_law,
    with_its_error,
)
from jaxdp.noise.base import expanded
from jaxdp.noise.nodes import along_last
from jaxdp.noise.structure import Kinks, Singularities, Smooth

# Loss above which 1 is negligible beside e^loss. chosen: below an ulp
_FAR = 40.0
# Largest integer order with its own sum. chosen: accountants use no higher one
WHOLE_TERMS = 1024
# log k! of 0 <= k <= WHOLE_TERMS. derived
_LOG_FACTORIALS = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, WHOLE_TERMS + 1.0)))])


def sampled_renyi(log_norms: Reals, of_whole: Reals, order: Reals, q: Reals) -> Reals:
    """Upper bound on the divergence of (1 - q) Q + q P from Q of an order >= 1; 0 at q = 0.

    `log_norms` are log E[e^(k u)] under Q of 0 <= k <= `WHOLE_TERMS` along a last axis, and
    `of_whole` is the divergence of P from Q of the order. The bound is exact at integers up to
    `WHOLE_TERMS`. Beyond, it is close if the moment is dominated by samples that all miss or all
    hold the record.
    """
    order = xp.maximum(order, 1.0 + LEAST_EXCESS)
    chord = _chord(lambda order: _log_moment(log_norms, order, q), order) / (order - 1.0)
    return xp.minimum(chord, triangle_renyi(of_whole, order, q))


def _chord(log_moment: Callable[[Reals], Reals], order: Reals) -> Reals:
    """The chord between both integers beside an order, of a function that is convex."""
    low = xp.clip(xp.floor(order), 1.0, WHOLE_TERMS - 1.0)
    part = order - low
    # An infinite moment without a share in the chord does not count.
    below = xp.where(part < 1, (1.0 - part) * log_moment(low), 0.0)
    above = xp.where(part > 0, part * log_moment(low + 1.0), 0.0)
    return xp.where(order <= WHOLE_TERMS, below + above, xp.inf)


def triangle_renyi(of_whole: Reals, order: Reals, q: Reals) -> Reals:
    """Upper bound on the same divergence from the whole release's, by the triangle inequality."""
    order = xp.maximum(order, 1.0 + LEAST_EXCESS)
    log_norm, log_q = of_whole * ((order - 1.0) / order), log_probability(q)
    size = 1.0 + xp.abs(log_norm) + xp.abs(xp.where(q > 0, log_q, 0.0))
    log_rise = log_q + log_norm + log1mexp(log_norm) + 8.0 * ULP * size
    rise = xp.where(q == 0, 0.0, xp.logaddexp(0.0, log_rise))
    return (order / (order - 1.0)) * rise


def _log_moment(log_norm: Reals, order: Reals, q: Reals) -> Reals:
    """log(1 + sum_k weight_k (E[e^(k u)] - 1)) of an integer order; terms of k = 0, 1 are 0."""
    order, q = order[..., None], q[..., None]
    k = along_last(np.arange(WHOLE_TERMS + 1.0), order.ndim - 1)
    inside = k <= order
    n_misses = xp.where(inside, order - k, 0.0)
    # 0 log 0 is 0 here.
    hits = k * xp.log(xp.where(q == 0, 1.0, q))
    hits = xp.where((k > 0) & (q == 0), -xp.inf, hits)
    misses = n_misses * log1m(xp.where(q == 1, 0.0, q))
    misses = xp.where((n_misses > 0) & (q == 1), -xp.inf, misses)
    of_all, of_missed = (xp.take(_LOG_FACTORIALS, x.astype(int)) for x in (order, n_misses))
    log_binomial = of_all - of_missed - along_last(_LOG_FACTORIALS, order.ndim - 1)
    log_weight = xp.where(inside, log_binomial + hits + misses, -xp.inf)
    positive = log_norm > 0
    excess = log1mexp(xp.where(positive, log_norm, 1.0)) * (1.0 - 8.0 * ULP)
    excess = xp.where(positive, excess, xp.where(log_norm <= 0, -xp.inf, xp.nan))
    # A term without weight contributes 0 also with an infinite moment.
    absent = log_weight == -xp.inf
    exponent = xp.where(absent, -xp.inf, log_weight + log_norm + excess)
    size = xp.where(xp.isfinite(exponent), xp.abs(exponent), 0.0)
    error = xp.where(absent, 0.0, of_all - hits - misses)
    log_sum = logsumexp(exponent + 8.0 * ULP * (1.0 + size + error), axis=-1)
    return xp.maximum(log_sum, 0.0) + log1p(xp.exp(-xp.abs(log_sum)))


class SampledPair(DominatingPair):
    """A release that uses a record with probability `_q`: Renyi divergences from `_whole`'s."""

    sampling_prob: Reals

    @property
    @abc.abstractmethod
    def _whole(self) -> DominatingPair: ...

    @property
    def _q(self) -> Reals:
        """The sampling probability; NaN where a transformation moved it out of [0, 1]."""
        return checks.guard(self.sampling_prob, 1.0)

    @abc.abstractmethod
    def _renyi_bound(self, removed: Callable[[Reals], Reals], order: Reals) -> Reals:
        """A bound from the whole release, and from a bound `removed` for "remove"."""

    @abc.abstractmethod
    def _log_tail(self, removed: Reals, order: Reals) -> Reals:
        """log of a bound on the moment beyond the nodes, from the bound for "remove"."""

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence from nodes, or a bound from the whole release."""
        removed = self._renyi_removed()
        bound, beyond = (partial(x, removed) for x in (self._renyi_bound, self._log_moment_beyond))
        is_additive = isinstance(self._whole, Additive)
        return renyi_of_law(self, order, bound, beyond if is_additive else None)

    def _log_moment_beyond(self, removed: Callable[[Reals], Reals], order: Reals) -> Reals:
        """log of a bound on the moment beyond the nodes, by that of "remove".

        At integers this is the whole moment less that at the nodes; its log is convex.
        """
        law = Poisson(self._whole, self._q, 0.0).law()

        def log_beyond(order: Reals) -> Reals:
            excess = order - 1.0
            nodal, error = nodal_divergence(law, order, 0.0)
            whole = xp.expm1(excess * round_up(removed(order), 16))
            beyond = whole - xp.expm1(excess * (nodal - error)) + 16.0 * ULP * whole
            is_known = (whole < xp.inf) & (excess * error <= RESOLVED)
            beyond = xp.where(is_known, xp.maximum(beyond, 0.0), xp.inf)
            return xp.logaddexp(xp.log(beyond), law.log_left_out)

        return self._log_tail(_chord(log_beyond, order), order)

    def log_hit(self) -> Reals:
        """log of the sampling probability, plus the whole release's own."""
        return log_probability(self._q) + self._whole.log_hit()

    def _renyi_removed(self) -> Callable[[Reals], Reals]:
        """Bounds on divergences of "remove" as a function of the order."""
        whole = self._whole
        if not isinstance(whole, Additive):  # many orders are expensive
            return lambda order: triangle_renyi(whole.renyi(order), order, self._q)
        k = along_last(np.arange(2.0, WHOLE_TERMS + 1.0), max(map(xp.ndim, jax.tree.leaves(self))))
        higher = (k - 1.0) * cast(Additive, expanded(whole)).renyi(k)
        log_norms = xp.concatenate([xp.zeros((*higher.shape[:-1], 2)), higher], axis=-1)

        def bound(order: Reals) -> Reals:
            q = xp.broadcast_to(self._q, order.shape)
            return sampled_renyi(log_norms, whole.renyi(order), order, q)

        return bound


# epsilon above which e^-epsilon is negligible beside it. derived: half an ulp of 50
_LARGE = 50.0
# Largest epsilon with a finite e^epsilon. derived: the largest double is e^709
_LARGEST = 700.0
# Error of the sums and logarithms of an argument, ulps. derived: a few for each
_LOST = 8.0


@jitted
def sampled_log_delta(
    pair: DominatingPair, sampling_prob: Reals, added: Reals, epsilon: Reals
) -> Reals:
    """log delta of `Poisson` samples of `pair`, from its delta, delta_0; as exact, rounded up.

    * Removed: q delta_0(log(1 + (e^epsilon - 1) / q)), and 1 - e^epsilon below log(1 - q).
    * Added: c delta_0(log(q e^epsilon / c)) with c = 1 - (1 - q) e^epsilon, and 0 from -log(1 - q)
      on.

    Source: Balle, Barthe & Gaboardi, NeurIPS 2018, theorem 8.
    """
    base = pair.log_delta(xp.zeros(()))
    q, added, epsilon, base = xp.broadcast_arrays(sampling_prob, added, epsilon, base)
    add = added > 0
    safe_q = xp.where(q > 0, q, 1.0)
    finite = xp.minimum(epsilon, _LARGEST)
    # 1 - (1 - q) e^epsilon is q less this part of it, rounded down; for an added record.
    fallen = (1.0 - q) * xp.expm1(xp.where(add, finite, 0.0)) / safe_q
    fallen = fallen - (_LOST * ULP * xp.abs(fallen))
    inside = xp.where(add, fallen < 1.0, xp.expm1(finite) > -q)
    fallen = xp.where(inside, fallen, 0.0)
    e = xp.where(inside, epsilon, 0.0)
    # epsilon large: log(1 + (e^epsilon - 1) / q) = epsilon - log q.
    large = e > _LARGE
    grown = xp.expm1(xp.where(large | add, 0.0, e)) / safe_q
    removed_at = xp.where(large, e - xp.log(safe_q), log1p(grown))
    e_base = xp.where(add, e - log1p(-fallen), removed_at)
    # The argument is rounded down by the error of its own sums: relative to it, but at log(1 - q).
    steep = xp.maximum(-grown, 0.0) / (1.0 + grown)
    e_base = xp.where(e_base < xp.inf, e_base - _LOST * ULP * (xp.abs(e_base) + steep), e_base)
    value = pair.log_delta(e_base) + xp.log(safe_q) + xp.where(add, log1p(-fallen), 0.0)
    size = xp.where(value > -xp.inf, xp.abs(value), 0.0)
    value = value + ULP * (8.0 + 4.0 * size)
    below = log1mexp(xp.where(inside | add, 1.0, -epsilon)) * (1.0 - 8.0 * ULP)
    value = xp.where(inside, value, xp.where(add, -xp.inf, below))
    negative = epsilon < 0
    certain = xp.where(negative, log1mexp(xp.where(negative, -epsilon, 1.0)), -xp.inf)
    value = xp.where(q == 0, certain, value)
    broken = xp.isnan(base) | xp.isnan(q + added + epsilon)
    return xp.where(broken, xp.nan, xp.minimum(value, 0.0))


def sampled_largest(largest: Reals, sampling_prob: Reals, added: Reals) -> Reals:
    """log(1 - q + q e^largest) removed, -log(1 - q + q e^-largest) added; rounded up."""
    largest, q, added = xp.broadcast_arrays(largest, sampling_prob, added)
    grown = xp.where(xp.isnan(largest), xp.nan, log_mixed(largest, q))
    return round_up(xp.where(added > 0, -log1p(q * xp.expm1(-largest)), grown), 8)


@final
@pytree
class Poisson(SampledPair):
    """Mixture (1 - q) Q + q P against Q of a base pair P, Q, exchanged where `added` is 1.

    added = 0: the record was there ("remove"); added = 1: "add". It dominates every neighbouring
    pair under Poisson sampling. The base is not exchanged. Source: Zhu, Dong & Wang, AISTATS 2022,
    theorem 11.
    """

    base: DominatingPair
    sampling_prob: Reals
    added: Reals

    def __init__(self, base: DominatingPair, sampling_prob: ArrayLike, added: ArrayLike):
        assign(
            self,
            base=base,
            sampling_prob=checks.probability("sampling_prob", sampling_prob),
            added=checks.probability("added", added),
        )

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """The base's profile at another epsilon: see `sampled_log_delta`."""
        epsilon = checks.real("epsilon", epsilon)
        return sampled_log_delta(self.base, self._q, self.added, epsilon)

    def law(self) -> Law:
        """The base's nodes u under log(1 - q + q e^u), with the masses of the mixture."""
        base, exchanged = self.base.law(), self.base.reversed()
        law_q = base if exchanged is self.base else exchanged.law()
        q, added, _ = xp.broadcast_arrays(self._q, self.added, base.largest)
        support = self.support()
        # Where the base's P has no mass: an atom at log(1 - q) under its Q.
        log_only = xp.broadcast_to(law_q.log_infinite, q.shape)
        add = (added > 0)[..., None]

        def mixed(u: Reals, log_mass: Reals) -> tuple[Reals, Reals]:
            u = xp.concatenate([u, xp.full_like(log_only, -xp.inf)[..., None]], axis=-1)
            log_mass = xp.where(is_whole(base)[..., None], log_mass, xp.nan)
            under_q = xp.concatenate([log_mass - u[..., :-1], log_only[..., None]], axis=-1)
            loss = log_mixed(u, q[..., None])
            return xp.where(add, -loss, loss), xp.where(add, under_q, under_q + loss)

        loss, log_mass = mixed(base.loss, base.log_mass)
        # dl / du = q e^u / (1 - q + q e^u).
        ratio = xp.where(add, -loss, loss)[..., :-1]
        density = base.log_density - 2.0 * base.loss - xp.log(q)[..., None] + ratio
        density = xp.where(add, density, density + ratio)
        end = xp.full_like(log_only, xp.inf)[..., None]
        sides = log_probability(q) + base.log_left_out, log1m(q) + law_q.log_left_out
        law = Law(
            loss,
            log_mass,
            xp.concatenate([density, end], axis=-1),
            mixed(*base.check),
            xp.where(added > 0, law_q.log_left_out, xp.logaddexp(*sides)),
            support.log_infinite,
            support.largest,
        )
        return with_its_error(law)

    def support(self) -> Support:
        """The base's support under log(1 - q + q e^u); with "add", losses of Q alone are finite."""
        base, exchanged = self.base.support(), self.base.reversed()
        exchanged_support = base if exchanged is self.base else exchanged.support()
        q, added, _ = xp.broadcast_arrays(self._q, self.added, base.largest)
        largest = sampled_largest(base.largest, q, added)
        has_exchanged_infinite = (added > 0) & (exchanged_support.log_infinite > -xp.inf)
        return Support(
            xp.where(has_exchanged_infinite, round_up(-log1p(-q), 8), largest),
            xp.where(added > 0, -xp.inf, xp.log(q) + base.log_infinite),
        )

    def singularities(self) -> Singularities:
        """The base's singularities, moved with its losses; a lattice does not remain one."""
        kind = self.base.singularities()
        if isinstance(kind, Smooth):
            return kind
        atoms = kind.atoms if isinstance(kind, Kinks) else (xp.full_like(self.added, xp.nan),)
        mixed_atoms = (log_mixed(atom, self._q) for atom in atoms)
        return Kinks(tuple(xp.where(self.added > 0, -atom, atom) for atom in mixed_atoms))

    def reversed(self) -> Poisson:
        """`added` exchanged."""
        return Poisson(self.base, self.sampling_prob, 1.0 - self.added)

    def mixtures(self) -> tuple[Mixture, ...]:
        """One mixture of two components if the base is Gaussian."""
        mean = self.base.mean_distance()
        if mean is None:
            return ()
        q = self._q
        return (Mixture(mean[..., None], q[..., None], 1.0 - q, mean, self.added, xp.ones(())),)

    @property
    def _whole(self) -> DominatingPair:
        return self.base

    def _log_tail(self, removed: Reals, order: Reals) -> Reals:
        """Losses of "add" are as large as the largest there."""
        return xp.where(self.added > 0, xp.inf, removed)

    def _renyi_bound(self, removed: Callable[[Reals], Reals], order: Reals) -> Reals:
        """Bound from the divergences of the whole release; for "add" also its largest loss.

        For symmetric noise, the divergence of "add" is at most the divergence of "remove". Source:
        Mironov, Talwar & Zhang 2019, theorem 5.
        """
        q, exchanged = self._q, self.base.reversed().renyi(order)
        added = xp.minimum(exchanged, xp.where(q < 1, -log1p(-q), xp.inf))
        of_removed = removed(order)
        if isinstance(self.base, Additive):
            added = xp.minimum(added, of_removed)
        return xp.where(q == 0, 0.0, round_up(xp.where(self.added > 0, added, of_removed), 64))


def coin_renyi(of_whole: Reals, order: Reals, q: Reals) -> Reals:
    """log(1 - q + q e^(s D)) / s, s = order - 1: a coin reveals whether the record is used."""
    excess = xp.where(order > 1, order - 1.0, 1.0)
    return xp.where(order > 1, log_mixed(excess * of_whole, q) / excess, q * of_whole)


def log_mixed(loss: Reals, q: Reals) -> Reals:
    """log(1 - q + q e^loss), for infinite losses as well."""
    far = loss > _FAR
    excess = q * xp.expm1(xp.where(far, 0.0, loss))
    near = excess > -0.5
    mixed = xp.where(near, 1.0, 1.0 - q + q * xp.exp(xp.where(far, 0.0, loss)))
    low = xp.where(q < 1, xp.log(xp.where(mixed > 0, mixed, 1.0)), loss)
    beside = q + (1.0 - q) * xp.exp(-xp.where(far, loss, 0.0))
    high = loss + xp.log(xp.where(far & (beside > 0), beside, 1.0))
    value = xp.where(far, high, xp.where(near, log1p(xp.where(near, excess, 0.0)), low))
    # There e^-loss underflows.
    value = xp.where(far & (q == 0), 0.0, value)
    return xp.where(xp.isnan(q), xp.nan, value)
