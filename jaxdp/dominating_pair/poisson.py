"""Poisson sampling of any pair: each record joins a sample independently."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log1m, log1p, log_probability, round_up
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import (
    DominatingPair,
    Law,
    Mixture,
    Support,
    is_whole,
    with_its_error,
)
from jaxdp.dominating_pair.sampled_moments import (
    SampledPair,
    sampled_largest,
    sampled_log_delta,
)
from jaxdp.noise.structure import Kinks, Singularities, Smooth

# Loss above which 1 is negligible beside e^loss. chosen: below an ulp
_FAR = 40.0


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
        if mean is None or not self.base.is_gaussian:
            return ()
        q = self._q
        return (Mixture(mean[..., None], q[..., None], 1.0 - q, mean, self.added, xp.ones(())),)

    @property
    def _q(self) -> Reals:
        """The sampling probability; NaN where a transformation moved it out of [0, 1]."""
        return checks.guard(self.sampling_prob, 1.0)

    @property
    def _whole(self) -> DominatingPair:
        return self.base

    def _removed(self) -> Poisson:
        return Poisson(self.base, self.sampling_prob, xp.zeros_like(self.added))

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


def mixed_slope(loss: Reals, mixed: Reals, q: Reals) -> Reals:
    """Slope of `mixed` = log_mixed(loss, q) in the loss: q e^loss / (1 - q + q e^loss)."""
    share = xp.exp(xp.where(loss < xp.inf, loss - mixed, 0.0))
    return xp.where(loss < xp.inf, q * share, 1.0)


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
