"""Bounds on delta from the largest finite loss, and from Gaussians that are not sampled.

No engine is needed. Identities: with L the largest finite total loss and p the probability of an
infinite one, at epsilon >= 0

    p <= delta(epsilon) <= p + (1 - p) (1 - e^(epsilon - L))_+,

so delta = p for epsilon >= L, and epsilon <= L wherever delta >= p. L is a sum of products of given
numbers, added without error: if L is a double, as 1 + 2 is, the bound is exact there.

A pair of mixtures of Gaussians is a randomised function of N(mu, 1) and N(0, 1), mu the largest
distance between their means in units of the scale. A composition of such pairs is at most as
revealing as one Gaussian of their summed mu^2. This bound serves where a bracket is wide: if the
noise is so small beside a sensitivity, with losses of 10^6 nats and more, that no engine resolves
the losses. Chosen by `engines` for every lane, after the first engine.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import jax

from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.double_double import Double, dot_up, gap_up, rounded_up
from jaxdp._numeric.elementary import ULP, log1m, log1mexp, log_add
from jaxdp.accountant import profile
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Term, Terms, is_gaussian
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import log_of_finite, log_of_infinite, rounding_of_infinite
from jaxdp.noise.gaussian import Gaussian

# Relative width up to which bounds stay as they are. chosen: a tenth of the error stated
_NARROW = 1e-7
# Least mu for which a Gaussian has epsilon >= mu^2 / 2 at every delta up to `_SMALL_DELTA`.
# derived: at that epsilon delta is at least 1/2 - 1 / (mu sqrt(2 pi))
_LARGE_MU = 2.0
# Largest delta with that property. derived: 1/2 - 1 / (2 sqrt(2 pi)) is .3005
_SMALL_DELTA = 0.3


class _End(NamedTuple):
    """Largest finite total loss and its probability, arrays of lanes."""

    largest: Double  # largest finite total, rounded up
    log_finite: Reals  # log of the probability of a finite total
    log_infinite: Reals
    rounding: Reals  # of log_infinite


def bound_log_delta(terms: Terms, epsilon: Any, bounds: LogBounds) -> LogBounds:
    """Bounds on log delta at epsilon >= 0: the tightest of `bounds`, the end and a Gaussian."""
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
    return _gaussian_log_delta(terms, epsilon, LogBounds(xp.minimum(lower, upper), upper))


def bound_epsilon(terms: Terms, delta: Any, bounds: LogBounds) -> LogBounds:
    """Bounds on the least epsilon at delta: the tightest of `bounds`, the end and a Gaussian.

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
    return _gaussian_epsilon(terms, delta, LogBounds(lower, upper))


def _columns_of(term: Term) -> tuple[Reals, Reals, Reals]:
    """Number of releases, largest finite loss, and log P[L < inf] of each."""
    support = term.pair.support()
    columns = term.count, support.largest, log_of_finite(support.log_infinite)
    count, largest, finite = (
        xp.broadcast_to(x, term.count.shape).astype(xp.float64) for x in columns
    )
    return count, largest, finite


def _end_of(terms: Terms) -> _End:
    columns = zip(*map(_columns_of, terms), strict=True)
    count, losses, log_finite = (xp.concatenate(x, axis=-1) for x in columns)
    # An infinite loss is inserted last: a product with it has no derivative.
    endless = xp.any((losses == xp.inf) & (count != 0), axis=-1)
    largest = dot_up(count, xp.where(losses == xp.inf, 0.0, losses))
    largest = Double(xp.where(endless, xp.inf, largest.high), xp.where(endless, 0.0, largest.low))
    total = xp.sum(xp.where(count == 0, 0.0, count * log_finite), axis=-1)
    log_infinite = log_of_infinite(total)
    number = xp.sum(xp.where(count == 0, 0.0, 1.0), axis=-1)
    return _End(largest, total, log_infinite, rounding_of_infinite(log_infinite, number))


def _gaussian_log_delta(terms: Terms, epsilon: Any, bounds: LogBounds) -> LogBounds:
    """The `bounds` on log delta at epsilon >= 0, with the upper one at most the Gaussian's."""
    mu = _total_mu(terms)
    if mu is None:
        return bounds
    is_less = (epsilon <= 0.5 * mu**2) & (xp.exp(bounds.upper) <= _SMALL_DELTA)
    if not _may_gain(bounds, mu, is_less):
        return bounds
    return bounds.at_most(profile.log_bounds(_gaussian(mu), epsilon).upper)


def _gaussian_epsilon(terms: Terms, delta: Any, bounds: LogBounds) -> LogBounds:
    """The `bounds` on epsilon at delta, with the upper one at most the Gaussian's."""
    mu = _total_mu(terms)
    if mu is None:
        return bounds
    is_less = (bounds.upper <= 0.5 * mu**2) & (delta <= _SMALL_DELTA)
    if not _may_gain(bounds, mu, is_less):
        return bounds
    return bounds.at_most(profile.epsilon_bounds(_gaussian(mu), delta).upper)


def _may_gain(bounds: LogBounds, mu: Any, is_less: Bools) -> bool:
    """True if bounds of some lane are wide, and not surely below the Gaussian's bound."""
    lower, upper = bounds
    is_wide = ~(lower >= upper - _NARROW * (1.0 + xp.abs(upper))) & (lower != upper)
    return bool(xp.any(is_wide & ~(is_less & (mu >= _LARGE_MU))))


def _total_mu(terms: Terms) -> Any:
    """mu of a Gaussian at least as revealing as the composition; None if some term has none.

    None too for plain Gaussians alone, which compose to that Gaussian.
    """
    if all(map(is_gaussian, terms)):
        return None
    total: Any = 0.0
    for term in terms:
        mu = term.pair.mean_distance()
        if mu is None:
            return None
        # A bad parameter gives NaN; good parameters replace an engine's NaN.
        is_bad = functools.reduce(operator.or_, map(xp.isnan, jax.tree.leaves(term)))
        mu = xp.where(is_bad | ~(mu >= 0), xp.nan, mu)
        squared = xp.where(term.count == 0, 0.0, term.count * mu**2)
        total = total + xp.sum(squared, axis=-1)
    return xp.sqrt(total) * (1.0 + 64.0 * ULP)


def _gaussian(mu: Reals) -> Terms:
    one = xp.ones_like(mu)[..., None]
    return (Term(Additive(Gaussian(one), mu[..., None]), one),)
