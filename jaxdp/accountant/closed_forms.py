"""Bounds in closed form: by the profile of a single release, or by the ends of a composition.

Profile: the composition of one release is its pair, so delta is `DominatingPair.log_delta`. Plain
Gaussians compose to one release. Error: 2e-12 (1 + |log delta|), plus the pair's `profile_error`.
Chosen by `engines` for single releases and plain Gaussians.

Ends: L is the largest finite total loss, p the probability of an infinite one. At epsilon >= 0

    p <= delta(epsilon) <= p + (1 - p) (1 - e^(epsilon - L))_+,

so delta = p for epsilon >= L, and epsilon <= L wherever delta >= p. L is a sum of products of given
numbers, added without error: if L is a double, as 1 + 2 is, the bound is exact there. Chosen by
`engines` for every lane, after the first engine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.double_double import Double, dot_up, gap_up, rounded_up
from jaxdp._numeric.elementary import ULP, log1m, log1mexp, log_add
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.steps import LogBounds
from jaxdp.dominating_pair.base import (
    DominatingPair,
    log_of_finite,
    log_of_infinite,
    rounding_of_infinite,
)
from jaxdp.guarantee.base import epsilon_of

_PROFILE = 2e-12  # relative error of log delta. derived: the pair's contract
_ARGUMENT = 32.0 * ULP  # of epsilon, which a profile can round down. derived: twice that rounding


def profile_log_delta(terms: Terms, epsilon: Reals, _: Any = None) -> LogBounds:
    """Bounds on log delta of single releases; infinite for several."""
    (term,) = terms
    found = bounds_of(term.pair, epsilon[..., None])
    return _if_single(term, LogBounds(*(x[..., 0] for x in found)))


def bounds_of(pair: DominatingPair, epsilon: Reals) -> LogBounds:
    """Bounds on a pair's own log delta at epsilon."""
    # A profile can exceed the truth at epsilon, but not the truth a few ulps of epsilon below.
    points = xp.stack([epsilon, epsilon * (1.0 + _ARGUMENT)])
    with jax.numpy_rank_promotion("allow"):
        log_deltas, error = pair.log_delta(points), pair.profile_error(points)
    upper, log_next = log_deltas[0], lax.stop_gradient(log_deltas[1])
    width = _PROFILE * (1.0 + xp.abs(xp.where(log_next > -xp.inf, log_next, 0.0)))
    width = width + lax.stop_gradient(xp.broadcast_to(error, log_deltas.shape)[1])
    return LogBounds(xp.minimum(log_next, upper) - width, upper)


def profile_epsilon(terms: Terms, delta: Reals, _: Any = None) -> LogBounds:
    """Bounds on the least epsilon of single releases; infinite for several."""
    (term,) = terms
    pair = jax.tree.map(lambda x: x[..., 0], term.pair)
    upper = epsilon_of(pair.log_delta, delta)
    return _if_single(term, LogBounds(upper * (1.0 - _PROFILE), upper))


def _if_single(term: Term, bounds: LogBounds) -> LogBounds:
    count = term.count[..., 0]
    lower = xp.where(count == 1, bounds.lower, -xp.inf)
    upper = xp.where(count == 1, bounds.upper, xp.inf)
    return LogBounds(lower, xp.where(xp.isnan(count), xp.nan, upper))


class _End(NamedTuple):
    """Largest finite total loss and its probability, arrays of lanes."""

    largest: Double  # largest finite total, rounded up
    log_finite: Reals  # log of the probability of a finite total
    log_infinite: Reals
    rounding: Reals  # of log_infinite


def end_log_delta(terms: Terms, epsilon: Any, bounds: LogBounds) -> LogBounds:
    """Bounds on log delta at epsilon >= 0: the tighter of `bounds` and of the end."""
    end = _end_of(terms)
    # At an infinite epsilon delta is p, also for unbounded finite losses.
    at_infinity = (epsilon == xp.inf) & ~xp.isnan(end.largest.high)
    gap = xp.where(at_infinity, -xp.inf, gap_up(end.largest, epsilon))
    inside = gap > 0
    finite = end.log_finite + log1mexp(xp.where(inside, gap, 1.0))
    highest = log_add(end.log_infinite, xp.where(inside, finite, -xp.inf)) + end.rounding
    highest = xp.where(xp.isnan(gap), xp.nan, xp.minimum(highest, 0.0))
    lowest = end.log_infinite - end.rounding
    upper = xp.where(highest < bounds.upper, highest, bounds.upper)  # a NaN stays NaN
    lower = xp.where(lowest > bounds.lower, lowest, bounds.lower)
    return LogBounds(xp.minimum(lower, upper), upper)


def end_epsilon(terms: Terms, delta: Any, bounds: LogBounds) -> LogBounds:
    """Bounds on the least epsilon at delta: the tighter of `bounds` and of the end.

    A delta that equals p up to rounding is met. If delta is 0 or 1, the end alone decides.
    """
    end = _end_of(terms)
    largest, positive = rounded_up(end.largest), delta > 0
    log_delta = xp.log(xp.where(positive, delta, 1.0))
    met = xp.where(positive, end.log_infinite <= log_delta + end.rounding, False)
    met = met | ((delta == 0) & (end.log_infinite == -xp.inf))
    # delta - p, rounded down; epsilon = L + log(1 - (delta - p)) still satisfies delta.
    spare = delta * (1.0 - 4.0 * ULP) - xp.exp(end.log_infinite) * (1.0 + 2.0 * end.rounding)
    spared = (spare > 0) & xp.isfinite(largest)
    below_largest = largest + log1m(xp.where(spared, spare, 0.0)) + 4.0 * ULP * largest
    highest = xp.where(spared, xp.clip(below_largest, 0.0, largest), largest)
    highest = xp.where(delta == 1, 0.0, xp.where(met, highest, xp.inf))
    highest = xp.where(xp.isnan(largest + end.log_finite + delta), xp.nan, highest)
    all_said = (delta == 0) | (delta == 1)
    upper = xp.where(all_said | (highest < bounds.upper), highest, bounds.upper)  # a NaN stays NaN
    lower = xp.where(all_said, upper, xp.minimum(bounds.lower, upper))
    return LogBounds(lower, upper)


def _end_of(terms: Terms) -> _End:
    columns = []
    for term in terms:
        support, shape = term.pair.support(), term.count.shape
        each = term.count, support.largest, log_of_finite(support.log_infinite)
        columns.append([xp.broadcast_to(x, shape).astype(xp.float64) for x in each])
    count, losses, log_finite = (xp.concatenate(x, axis=-1) for x in zip(*columns, strict=True))
    # An infinite loss is inserted last: a product with it has no derivative.
    endless = xp.any((losses == xp.inf) & (count != 0), axis=-1)
    largest = dot_up(count, xp.where(losses == xp.inf, 0.0, losses))
    largest = Double(xp.where(endless, xp.inf, largest.high), xp.where(endless, 0.0, largest.low))
    total = xp.sum(xp.where(count == 0, 0.0, count * log_finite), axis=-1)
    log_infinite = log_of_infinite(total)
    number = xp.sum(xp.where(count == 0, 0.0, 1.0), axis=-1)
    return _End(largest, total, log_infinite, rounding_of_infinite(log_infinite, number))
