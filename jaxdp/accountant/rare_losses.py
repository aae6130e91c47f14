"""Cuts rare large losses off a law and adds their probability to delta instead.

Unbounded losses far in the tail dominate the moments at large tilts, and the contour's bracket then
stays wide. Each release's law is multiplied by the smooth step erfc((l - c) / w) / 2. Its place c
is where n releases exceed it with probability e^-depth. The error is the dropped probability, which
is counted.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxdp._core.functions import logsumexp, special
from jaxdp._core.namespace import lax, updated, xp
from jaxdp._core.types import Index, Reals
from jaxdp.accountant.factors import Factor, Factors, over_releases

# Depths tried: -log of the dropped probability; with the last, no loss is dropped. chosen
_DEPTHS = np.array([20.0, 27.0, 36.0, 48.0, 64.0, 85.0, 113.0, 150.0, 200.0, 265.0, np.inf])
# Nats between the depth and -log delta. chosen: 1e-13 of delta
_BELOW = 30.0
# Nats of log probability over which the step falls. chosen: several panels of a tail
_FALL = 8.0
# Relative difference of a loss within one atom. chosen: far above rounding
_ATOM = 1e-9
# Nodes that Chernoff's bound joins in one. chosen: the bound need not be exact
_NODES_IN_ONE = 8
# log of the tilts of Chernoff's bound. chosen
_LOG_TILTS = np.linspace(-14.0, 13.0, 40)


class _Tail(NamedTuple):
    """Nodes of one release in the order of their losses."""

    loss: Reals
    log_mass: Reals
    log_beyond: Reals  # log of the probability of losses from here on, over all releases

    def at(self, depth: Reals) -> Reals:
        """The least loss with log_beyond <= -depth; inf where there is none (D,)."""
        index = xp.sum(self.log_beyond[None] > -depth[:, None], axis=-1)
        inside = index < self.loss.size
        return xp.where(inside, self.loss[xp.minimum(index, self.loss.size - 1)], xp.inf)


def without_rare_losses(factors: Factors, depth: Reals) -> tuple[Factors, Reals]:
    """The factors without rare large losses, and log of the dropped probability."""

    def put(index: Index, state: tuple[Factor, Reals]) -> tuple[Factor, Reals]:
        laws, dropped = state
        factor, log_dropped = _cut(jax.tree.map(lambda x: x[index], factors.each), depth)
        return jax.tree.map(lambda x, y: updated(x, index, y), laws, factor), dropped + log_dropped

    cut_factors, dropped = lax.fori_loop(0, factors.used, put, (factors.each, xp.zeros(())))
    return factors._replace(each=cut_factors), xp.log(dropped)


def depth_for_delta(log_delta: Reals) -> Reals:
    """The least depth that is negligible beside delta."""
    return xp.take(_DEPTHS, xp.argmax(_BELOW - log_delta <= _DEPTHS))


def depth_for_epsilon(factors: Factors, epsilon: Reals) -> Reals:
    """The least depth that is negligible beside Chernoff's bound on delta at this depth."""
    depths, tilts = xp.asarray(_DEPTHS), xp.exp(_LOG_TILTS)

    def log_moments(factor: Factor) -> Reals:
        tail = _coarser(_tail(factor))
        last_kept = xp.sum(tail.log_beyond[None] > -depths[:, None], axis=-1) - 1
        moments = lax.cumlogsumexp(tail.log_mass[None] + tilts[:, None] * tail.loss[None], axis=1)
        return factor.releases * moments[:, xp.maximum(last_kept, 0)].T

    log_weight = 0.5 * factors.variance * tilts * (tilts + 1.0)
    start = xp.broadcast_to(log_weight, (depths.size, tilts.size))
    log_weight = tilts * epsilon + xp.log(tilts) + xp.log1p(tilts)
    heights = over_releases(factors, start, log_moments) - log_weight[None]
    estimate = xp.min(xp.where(xp.isnan(heights), xp.inf, heights), axis=-1)
    negligible = (-depths <= estimate - _BELOW) | (depths == xp.inf)
    return xp.take(depths, xp.argmax(negligible))


def _tail(factor: Factor) -> _Tail:
    loss, log_mass = lax.sort((factor.law.loss, factor.law.log_mass), num_keys=1)
    mass_beyond = lax.cumsum(xp.exp(log_mass), reverse=True)
    return _Tail(loss, log_mass, xp.log(mass_beyond) + xp.log(xp.maximum(factor.releases, 1.0)))


def _coarser(tail: _Tail) -> _Tail:
    """The tail with `_NODES_IN_ONE` neighbouring nodes joined in one, at their mean loss."""
    pad = -tail.loss.size % _NODES_IN_ONE
    loss, log_beyond = (
        xp.pad(x, (0, pad), mode="edge").reshape(-1, _NODES_IN_ONE)
        for x in (tail.loss, tail.log_beyond)
    )
    log_mass = xp.pad(tail.log_mass, (0, pad), constant_values=-xp.inf)
    log_mass = logsumexp(log_mass.reshape(-1, _NODES_IN_ONE), axis=-1)
    return _Tail(xp.mean(loss, axis=-1), log_mass, log_beyond[:, 0])


def _cut(factor: Factor, depth: Reals) -> tuple[Factor, Reals]:
    start, end = _tail(factor).at(xp.stack([depth, depth + _FALL]))
    absent = ~(end - start > _ATOM * xp.abs(end)) | xp.isinf(end)
    centre = xp.where(absent, 0.0, 0.5 * (start + end))
    width = xp.where(absent, 1.0, 0.25 * (end - start))

    def log_kept(loss: Reals) -> Reals:
        return xp.where(absent, 0.0, xp.log(0.5 * special.erfc((loss - centre) / width)))

    law = factor.law
    log_share, check = log_kept(law.loss), law.check[1] + log_kept(law.check[0])
    log_mass, log_density = law.log_mass + log_share, law.log_density + log_share
    share = xp.where(law.log_mass > -xp.inf, xp.exp(law.log_mass) * -xp.expm1(log_share), 0.0)
    dropped = xp.where(factor.releases == 0, 0.0, factor.releases * xp.sum(share))
    check = law.check[0], check
    law = law._replace(log_mass=log_mass, log_density=log_density, check=check)
    return factor._replace(law=law), dropped
