"""delta of one Poisson-sampled release, from delta of the release without sampling."""

from __future__ import annotations

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1mexp, log1p, round_up
from jaxdp.dominating_pair.base import DominatingPair

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
