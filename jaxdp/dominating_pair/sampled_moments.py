"""Moments and delta of a Poisson-sampled release from those of the whole release.

Under Q the ratio of a Poisson sample is 1 - q + q e^u, u the loss of the whole release. For an
integer order a, its a-th moment is sum_k C(a, k) (1 - q)^(a - k) q^k E[e^(k u)]. For any order a =
j m with integer j, Minkowski's inequality in L^m bounds it by the m-th power of sum_k C(j, k) (1 -
q)^(j - k) q^k E[e^(k m u)]^(1 / m). The bound is exact at m = 1; at j = 1 it is the triangle
inequality.

Source: Mironov, Talwar & Zhang 2019 (arXiv:1908.10530), section 3.3, for integer orders; else ours.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import lax, logsumexp, xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1m, log1mexp, log1p, log_probability, round_up
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.moments import renyi_of_law
from jaxdp.noise.base import expanded
from jaxdp.noise.nodes import along_last

# Largest integer order with its own sum. chosen: accountants use no higher one
WHOLE_TERMS = 1024
# Largest j of other orders. measured: with 30, log moments are 4 % too large; 128 halve the error
TERMS = 64
# Orders beyond the terms' for Chernoff bounds of a tail, over the order. derived: nodes of a noise
# of `scale` sensitivities end at an order of about 25 scale
_TILTS = np.concatenate([[1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0], 10.0 ** np.arange(1.0, 7.1, 0.5)])
# Order - 1 of the order that bounds order 1. chosen: K / s keeps all digits
NEXT_ORDER = 2.0**-30
# log k! of 0 <= k <= WHOLE_TERMS. derived
_LOG_FACTORIALS = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, WHOLE_TERMS + 1.0)))])
# Largest order in products. chosen: the product of two does not overflow
_LARGEST_ORDER = 1e150

# Renyi divergence of the whole release, for orders above 1 along a new last axis.
Divergence = Callable[[Reals], Reals]


class _Expansion(NamedTuple):
    """Binomial weights, along a last axis k = 0, 1, ..., of the order j m with `stretch` m."""

    k: Reals
    log_weight: Reals
    error: Reals  # error of log_weight
    stretch: Reals  # with the last axis

    def log_sum(self, log_norm: Reals) -> Reals:
        """log of the sum of weight_k e^log_norm_k, rounded up."""
        # A term without weight contributes 0 also with an infinite moment.
        absent = self.log_weight == -xp.inf
        exponent = xp.where(absent, -xp.inf, self.log_weight + log_norm)
        size = xp.where(xp.isfinite(exponent), xp.abs(exponent), 0.0)
        # The error is infinite there: q is 0 or 1.
        error = xp.where(absent, 0.0, self.error)
        exponent = exponent + lax.stop_gradient(error + 8.0 * ULP * (1.0 + size))
        return logsumexp(exponent, axis=-1)


def sampled_renyi(renyi: Divergence, order: Reals, q: Reals) -> Reals:
    """Upper bound on the divergence of (1 - q) Q + q P from Q of an order >= 1; 0 at q = 0.

    Up to `WHOLE_TERMS` it is the exact divergence of the next integer order. Beyond, it is close if
    the moment is dominated by samples that all miss or all hold the record.
    """
    stretched = triangle_renyi(renyi, order, q, TERMS)
    ceiling = xp.clip(xp.ceil(order), 2.0, WHOLE_TERMS)
    exact = _log_moment(renyi, _expansion(ceiling, q, WHOLE_TERMS, whole=True)) / (ceiling - 1.0)
    return xp.where(order <= WHOLE_TERMS, xp.minimum(exact, stretched), stretched)


def triangle_renyi(renyi: Divergence, order: Reals, q: Reals, terms: int = 1) -> Reals:
    """Upper bound on the same divergence by Minkowski's inequality, with `terms` terms."""
    order = xp.maximum(order, 1.0 + NEXT_ORDER)
    return _log_moment(renyi, _expansion(order, q, terms)) / (order - 1.0)


def log_moment_beyond(
    renyi: Divergence, order: Reals, last_loss: Reals, q: Reals, log_left_out: Reals
) -> Reals:
    """log of a bound on E[(1 - q + q e^u)^order; u > c] under Q, c = `last_loss`.

    Every term of the sum is bounded by Chernoff at the best order b >= its own: E[e^(k u); u > c]
    <= E[e^(b u)] e^((k - b) c). P and Q have a probability of at most e^log_left_out there.
    """
    expansion = _expansion(order, q, TERMS)
    own_orders = expansion.k * expansion.stretch
    tilts = xp.minimum(order, _LARGEST_ORDER)[..., None] * along_last(_TILTS, order.ndim)
    orders = xp.concatenate([own_orders, tilts], axis=-1)
    steps, log_moment = orders * last_loss[..., None], _log_moment_of_whole(renyi, orders)
    size = lax.stop_gradient(xp.abs(log_moment) + xp.abs(steps))
    tilted = log_moment - steps + 8.0 * ULP * size
    tilted = xp.where(xp.isnan(tilted), xp.inf, tilted)
    log_bound = lax.cummin(tilted, axis=tilted.ndim - 1, reverse=True)[..., : TERMS + 1]
    tail = log_bound + steps[..., : TERMS + 1]
    tail = xp.where(own_orders <= 1.0, xp.minimum(tail, log_left_out[..., None]), tail)
    return expansion.stretch[..., 0] * expansion.log_sum(tail / expansion.stretch)


def _expansion(order: Reals, q: Reals, terms: int, *, whole: bool = False) -> _Expansion:
    order, q = xp.minimum(order, _LARGEST_ORDER)[..., None], q[..., None]
    j = order if whole else xp.clip(xp.floor(order), 1.0, terms)
    stretch = xp.ones((1,) * order.ndim) if whole else order / j
    k = along_last(np.arange(terms + 1.0), order.ndim - 1)
    inside = k <= j
    n_misses = xp.where(inside, j - k, 0.0)
    # 0 log 0 is 0 here.
    hits = k * xp.log(xp.where(q == 0, 1.0, q))
    hits = xp.where((k > 0) & (q == 0), -xp.inf, hits)
    misses = n_misses * log1m(xp.where(q == 1, 0.0, q))
    misses = xp.where((n_misses > 0) & (q == 1), -xp.inf, misses)
    of_whole, of_missed = (xp.take(_LOG_FACTORIALS, x.astype(int)) for x in (j, n_misses))
    log_binomial = of_whole - of_missed - along_last(_LOG_FACTORIALS[: terms + 1], order.ndim - 1)
    log_weight = xp.where(inside, log_binomial + hits + misses, -xp.inf)
    return _Expansion(k, log_weight, 8.0 * ULP * (of_whole - hits - misses), stretch)


def _log_moment(renyi: Divergence, expansion: _Expansion) -> Reals:
    """m log(1 + sum_k weight_k (E[e^(k m u)]^(1 / m) - 1)); terms of k = 0 and k m = 1 are 0."""
    log_norm = _log_moment_of_whole(renyi, expansion.k * expansion.stretch) / expansion.stretch
    positive = log_norm > 0
    excess = log1mexp(xp.where(positive, log_norm, 1.0)) * (1.0 - 8.0 * ULP)
    excess = xp.where(positive, excess, xp.where(log_norm <= 0, -xp.inf, xp.nan))
    log_sum = expansion.log_sum(log_norm + excess)
    gain = log1p(xp.exp(-xp.abs(log_sum)))
    return expansion.stretch[..., 0] * (xp.maximum(log_sum, 0.0) + gain)


def _log_moment_of_whole(renyi: Divergence, order: Reals) -> Reals:
    """log E[e^(a u)] under Q; 0 for the orders 0 and 1."""
    higher = order > 1.0
    safe = xp.where(higher, order, 2.0)
    return xp.where(higher, (safe - 1.0) * renyi(safe), 0.0)


class SampledPair(DominatingPair):
    """A release that uses a record with probability `_q`: Renyi divergences from `_whole`'s.

    `_last` is the largest loss of the whole release at a node, and log of the probability beyond;
    `_beyond` makes a bound on the log of the moment beyond the nodes from `log_moment_beyond`.
    """

    _moves = 1.0  # distance between the means of P and Q, over the whole release's

    @property
    @abc.abstractmethod
    def _whole(self) -> DominatingPair: ...

    @property
    @abc.abstractmethod
    def _q(self) -> Reals: ...

    @property
    @abc.abstractmethod
    def _largest(self) -> Reals: ...

    @abc.abstractmethod
    def _renyi_bound(self, order: Reals) -> Reals: ...

    @abc.abstractmethod
    def _last(self, log_left_out: Reals) -> tuple[Reals, Reals]: ...

    @abc.abstractmethod
    def _beyond(self, tail: Reals, order: Reals, log_left_out: Reals) -> Reals: ...

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence from nodes and `log_left_out`, or a bound from the whole release."""
        beyond = self._log_moment_left_out if isinstance(self._whole, Additive) else None
        return renyi_of_law(self, order, self._renyi_bound, beyond)

    def mean_distance(self) -> Reals | None:
        """Largest distance between means under Gaussian noise."""
        distance = self._whole.mean_distance()
        return (
            None
            if distance is None
            else xp.where(xp.isnan(self._q), xp.nan, self._moves * distance)
        )

    def log_hit(self) -> Reals:
        """log of the sampling probability, plus the whole release's own."""
        return log_probability(self._q) + self._whole.log_hit()

    def _log_moment_left_out(self, order: Reals, log_left_out: Reals) -> Reals:
        """log of a bound on the moment from outputs beyond the nodes."""
        last_loss, left_out = self._last(log_left_out)
        q, left_out = (xp.broadcast_to(x, order.shape) for x in (self._q, left_out))
        tail = log_moment_beyond(self._renyi_of_whole, order, last_loss, q, left_out)
        # At most the largest loss, if there is one.
        largest = self._largest
        log_bound = (order - 1.0) * largest + log_left_out
        bounded = xp.where(largest < xp.inf, log_bound, xp.inf)
        return xp.minimum(self._beyond(tail, order, left_out), bounded)

    def _renyi_of_whole(self, order: Reals) -> Reals:
        """Renyi divergences of the whole release, with orders along a new last axis."""
        return cast(DominatingPair, expanded(self._whole)).renyi(order)

    def _renyi_removed(self, order: Reals) -> Reals:
        """`sampled_renyi` of the whole release."""
        return sampled_renyi(self._renyi_of_whole, order, xp.broadcast_to(self._q, order.shape))


# epsilon above which e^-epsilon is negligible beside it. derived: half an ulp of 50
_LARGE = 50.0
# Largest epsilon with a finite e^epsilon. derived: the largest double is e^709
_LARGEST = 700.0
# Error of the sums and logarithms of an argument, ulps. derived: a few for each
_LOST = 8.0


def sampled_log_delta(
    base: DominatingPair, sampling_prob: Reals, added: Reals, epsilon: ArrayLike
) -> Reals:
    """log delta of the pair `Poisson` of a base whose delta is delta_0; as exact, rounded up.

    * Removed: q delta_0(log(1 + (e^epsilon - 1) / q)), and 1 - e^epsilon below log(1 - q).
    * Added: c delta_0(log(q e^epsilon / c)) with c = 1 - (1 - q) e^epsilon, and 0 from -log(1 - q)
      on.

    Source: Balle, Barthe & Gaboardi, NeurIPS 2018, theorem 8.
    """
    return _sampled_log_delta(base, sampling_prob, added, checks.real("epsilon", epsilon))


@jitted
def _sampled_log_delta(
    pair: DominatingPair, sampling_prob: Reals, added: Reals, epsilon: Reals
) -> Reals:
    # Without the barrier, XLA's rewrites of a long chain of constants do not end.
    base = pair.log_delta(lax.optimization_barrier(xp.zeros(())))
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
    # Without the barrier, XLA's rewrites of a long chain of constants do not end.
    largest = lax.optimization_barrier(largest)
    largest, q, added = xp.broadcast_arrays(largest, sampling_prob, added)
    large = largest > 30.0
    grown = log1p(q * xp.expm1(xp.where(large, 0.0, largest)))
    grown = xp.where(large, largest + xp.log(q + (1.0 - q) * xp.exp(-largest)), grown)
    grown = xp.where(q == 0, 0.0, grown)
    return round_up(xp.where(added > 0, -log1p(q * xp.expm1(-largest)), grown), 8)
