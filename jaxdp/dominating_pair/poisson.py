"""Poisson sampling of any pair: every record takes part with a probability of its own."""

from __future__ import annotations

from typing import cast, final

import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log1m, log1p, log_probability, round_up
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair, Law, is_whole, with_its_error
from jaxdp.dominating_pair.moments import renyi_of_law
from jaxdp.dominating_pair.sampled_moments import (
    log_moment_beyond,
    sampled_renyi,
    triangle_renyi,
)
from jaxdp.dominating_pair.sampled_profile import sampled_largest, sampled_log_delta
from jaxdp.noise.nodes import expanded
from jaxdp.noise.structure import Kinks, Singularities, Smooth

# e^loss is large from here on. chosen: less than an ulp is lost beside it.
_FAR = 40.0


@final
@pytree
class Poisson(DominatingPair):
    """Mixture (1 - q) Q + q P against Q of a base pair P, Q, exchanged where `added` is 1.

    added = 0: the record was there ("remove"); added = 1: "add". It dominates every neighbouring
    pair under Poisson sampling. The base stays itself when it is exchanged.
    Source: Zhu, Dong & Wang, AISTATS 2022, theorem 11.
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
        """The base's at another epsilon: see `sampled_log_delta`."""
        return sampled_log_delta(self.base, self._q, self.added, epsilon)

    def law(self) -> Law:
        """The base's nodes u under log(1 - q + q e^u), with the masses of the mixture."""
        base, exchanged = self.base.law(), self.base.reversed()
        law_q = base if exchanged is self.base else exchanged.law()
        q, added, _ = jnp.broadcast_arrays(self._q, self.added, base.largest)
        # Where the base's P has nothing: an atom at log(1 - q) under its Q.
        log_only = jnp.broadcast_to(law_q.log_infinite, q.shape)
        add = (added > 0)[..., None]

        def mixed(u: Reals, log_mass: Reals) -> tuple[Reals, Reals]:
            u = jnp.concatenate([u, jnp.full_like(log_only, -jnp.inf)[..., None]], axis=-1)
            log_mass = jnp.where(is_whole(base)[..., None], log_mass, jnp.nan)
            under_q = jnp.concatenate([log_mass - u[..., :-1], log_only[..., None]], axis=-1)
            loss = log_mixed(u, q[..., None])
            return jnp.where(add, -loss, loss), jnp.where(add, under_q, under_q + loss)

        loss, log_mass = mixed(base.loss, base.log_mass)
        # dl / du = q e^u / (1 - q + q e^u).
        ratio = jnp.where(add, -loss, loss)[..., :-1]
        density = base.log_density - 2.0 * base.loss - jnp.log(q)[..., None] + ratio
        density = jnp.where(add, density, density + ratio)
        end = jnp.full_like(log_only, jnp.inf)[..., None]
        largest = sampled_largest(base.largest, q, added)
        hidden = (added > 0) & (log_only > -jnp.inf)
        mixed_left_out = log_mixed_probability(q, base.log_left_out, law_q.log_left_out)
        law = Law(
            loss,
            log_mass,
            jnp.concatenate([density, end], axis=-1),
            mixed(*base.check),
            jnp.where(added > 0, law_q.log_left_out, mixed_left_out),
            jnp.where(added > 0, -jnp.inf, jnp.log(q) + base.log_infinite),
            jnp.where(hidden, round_up(-log1p(-q), 8), largest),
        )
        return with_its_error(law)

    def singularities(self) -> Singularities:
        """The base's, moved as its losses are; a lattice is none any more."""
        kind = self.base.singularities()
        if isinstance(kind, Smooth):
            return kind
        atoms = kind.atoms if isinstance(kind, Kinks) else (jnp.full_like(self.added, jnp.nan),)
        mixed_atoms = (log_mixed(atom, self._q) for atom in atoms)
        return Kinks(tuple(jnp.where(self.added > 0, -atom, atom) for atom in mixed_atoms))

    def reversed(self) -> Poisson:
        """`added` exchanged."""
        return Poisson(self.base, self.sampling_prob, 1.0 - self.added)

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence from nodes and what they leave out, or by `sampled_renyi`."""
        beyond = self._log_moment_left_out if isinstance(self.base, Additive) else None
        return renyi_of_law(self, order, self._renyi_bound, beyond)

    def log_hit(self) -> Reals:
        """log of the sampling probability, and what the base says."""
        return log_probability(self._q) + self.base.log_hit()

    @property
    def _q(self) -> Reals:
        """The sampling probability as it may have come through a transformation."""
        return checks.guard(self.sampling_prob, 1.0)

    def _log_moment_left_out(self, order: Reals, log_left_out: Reals) -> Reals:
        """log of what the places beyond the nodes add to a moment, at most."""
        base = self.base.law()
        largest = sampled_largest(base.largest, self._q, self.added)
        # At most the largest loss, if there is one; losses of "add" are that large there.
        log_bound = (order - 1.0) * largest + log_left_out
        bounded = jnp.where(largest < jnp.inf, log_bound, jnp.inf)
        last_loss = jnp.max(jnp.where(base.log_mass > -jnp.inf, base.loss, -jnp.inf), axis=-1)
        q, left_out = (
            jnp.broadcast_to(x, order.shape)
            for x in (self._q, jnp.maximum(base.log_left_out, log_left_out))
        )
        removed = log_moment_beyond(self._renyi_of_base, order, last_loss, q, left_out)
        return jnp.where(self.added > 0, bounded, jnp.minimum(removed, bounded))

    def _renyi_bound(self, order: Reals) -> Reals:
        """Bound from the divergences of the whole release; of "add" its largest loss at most.

        Of a noise that is symmetric "add" diverges no more than "remove".
        Source: Mironov, Talwar & Zhang 2019, theorem 5.
        """
        q, exchanged = self._q, self.base.reversed().renyi(order)
        added = jnp.minimum(exchanged, jnp.where(q < 1, -log1p(-q), jnp.inf))
        if isinstance(self.base, Additive):
            removed = sampled_renyi(self._renyi_of_base, order, jnp.broadcast_to(q, order.shape))
            added = jnp.minimum(added, removed)
        else:
            removed = triangle_renyi(self._renyi_of_base, order, jnp.broadcast_to(q, order.shape))
        return jnp.where(q == 0, 0.0, round_up(jnp.where(self.added > 0, added, removed), 64))

    def _renyi_of_base(self, order: Reals) -> Reals:
        """Renyi divergence of the base, of orders along a new last axis."""
        return cast(DominatingPair, expanded(self.base)).renyi(order)


def log_mixed_probability(q: Reals, inside: Reals, outside: Reals) -> Reals:
    """log(q e^inside + (1 - q) e^outside), for probabilities of 0 as well."""
    return jnp.logaddexp(log_probability(q) + inside, log1m(q) + outside)


def log_mixed(loss: Reals, q: Reals) -> Reals:
    """log(1 - q + q e^loss), for infinite losses as well."""
    far = loss > _FAR
    excess = q * jnp.expm1(jnp.where(far, 0.0, loss))
    near = excess > -0.5
    mixed = jnp.where(near, 1.0, 1.0 - q + q * jnp.exp(jnp.where(far, 0.0, loss)))
    low = jnp.where(q < 1, jnp.log(jnp.where(mixed > 0, mixed, 1.0)), loss)
    beside = q + (1.0 - q) * jnp.exp(-jnp.where(far, loss, 0.0))
    high = loss + jnp.log(jnp.where(far & (beside > 0), beside, 1.0))
    value = jnp.where(far, high, jnp.where(near, log1p(jnp.where(near, excess, 0.0)), low))
    # There e^-loss underflows.
    value = jnp.where(far & (q == 0), 0.0, value)
    return jnp.where(jnp.isnan(q), jnp.nan, value)
