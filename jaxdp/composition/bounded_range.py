"""Compositions of the exponential mechanism by Renyi divergences, if those are tighter.

The worst pair of a bounded range lets an adversary choose the range's position anew at every
release (`dominating_pair.known_guarantee.BoundedRange`), which costs a third of the variance. A
Renyi divergence of a fixed order composes without that loss, and costs about two nats of log delta
in the conversion. Both bounds hold, and the smaller is reported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxdp._core.compilation import compiled
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy, round_up
from jaxdp._numeric.search import least_value
from jaxdp.accountant import evaluate
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Terms, add_up
from jaxdp.dominating_pair.known_guarantee import BoundedRange
from jaxdp.guarantee.base import rounding_slack
from jaxdp.guarantee.renyi import log_delta_of_cgf

# ulp of a cumulant. chosen: above the errors of all divergences, 1e-13 and less
_ROUNDED = 4096
# Error of delta for a trade-off. chosen: below the rates that are looked at
_DELTA_CLOSE = 1e-11
# Less 1, between which the best order is sought. chosen: beyond, others serve
_ORDERS = (1e-12, 1e12)


def log_delta(
    terms: Terms, epsilon: Reals, both: bool, stop_when: evaluate.StopWhen | None = None
) -> LogBounds:
    """Bounds on log delta at every real epsilon; -inf below where Renyi divergences gave it.

    `stop_when`: as in `evaluate.log_delta`, of the worst pair's bounds.
    """
    pair = evaluate.log_delta(terms, epsilon, both, stop_when)
    return _tighter(_compiled_log_delta, pair, terms, epsilon, both)


@in_float64
def rough_log_delta(
    terms: Terms, both: bool, epsilon: ArrayLike, tolerance: float = _DELTA_CLOSE
) -> Reals:
    """Upper bound on log delta at concrete epsilons >= 0; a delta within `tolerance` suffices."""

    def stop_when(bounds: LogBounds) -> Any:
        return np.exp(bounds.upper) - np.exp(bounds.lower) < tolerance

    return log_delta(terms, xp.asarray(epsilon), both, stop_when).upper


@in_float64
def log_delta_for_power(
    terms: Terms, both: bool, epsilon: ArrayLike, fpr: float, tolerance: float
) -> Reals:
    """An upper bound on log delta at concrete epsilons >= 0, for the power e^epsilon fpr + delta.

    The power within `tolerance`, relatively, suffices.
    """
    at_rate = np.exp(np.asarray(epsilon)) * fpr

    def stop_when(bounds: LogBounds) -> Any:
        lower, upper = np.exp(bounds.lower), np.exp(bounds.upper)
        return upper - lower < tolerance * (upper + at_rate)

    return log_delta(terms, xp.asarray(epsilon), both, stop_when).upper


def log_bounds(terms: Terms, epsilon: Reals, both: bool, points: int) -> LogBounds:
    """Bounds on log delta from a grid of `points`; -inf below as in `log_delta`."""
    pair = evaluate.log_bounds(terms, epsilon, both, points)
    return _tighter(_compiled_log_delta, pair, terms, epsilon, both)


def epsilon(terms: Terms, delta: Reals, both: bool) -> LogBounds:
    """Bounds on the least epsilon >= 0 that meets `delta`."""
    return _tighter(_compiled_epsilon, evaluate.epsilon(terms, delta, both), terms, delta, both)


def renyi(terms: Terms, order: Reals, both: bool) -> LogBounds:
    """The Renyi divergence of an order >= 1, as an upper bound alone."""
    value = evaluate.renyi(terms, order, both)
    return LogBounds(value, value)


def _tighter(
    by_divergences: Callable[[Terms, Reals, bool], Reals],
    pair: LogBounds,
    terms: Terms,
    values: Reals,
    both: bool,
) -> LogBounds:
    """Bounds by the worst `pair`, or by Renyi divergences where those are less."""
    if not any(isinstance(term.pair, BoundedRange) for term in terms):
        return pair
    by_renyi = by_divergences(terms, values, both)
    lower = xp.where(by_renyi < pair.upper, -xp.inf, pair.lower)
    return LogBounds(lower, xp.where(by_renyi < pair.upper, by_renyi, pair.upper))  # NaN stays


def _log_delta(terms: Terms, epsilon: Reals, both: bool) -> Reals:
    """A bound on log delta at every real epsilon, by the best order."""
    lanes, epsilon = _broadcast(terms, epsilon)
    return log_delta_of_cgf(functools.partial(_cumulant, lanes, both), epsilon)


def _epsilon(terms: Terms, delta: Reals, both: bool) -> Reals:
    """An epsilon >= 0 that meets `delta` by `log_delta`; infinite where none does.

    The least over orders of (K(s) - log(1 + s) - s log(1 + 1/s) - log delta) / s.
    """
    lanes, delta = _broadcast(terms, delta)
    safe_delta = xp.where(delta > 0, delta, 1.0)
    log_delta = xp.log(safe_delta) - rounding_slack(safe_delta)

    def of_order(s: Reals) -> Reals:
        gain, entropy = _cumulant(lanes, both, s), conversion_entropy(s)
        size = gain + entropy + xp.abs(log_delta)
        return (gain - entropy - log_delta + 16.0 * ULP * size) / s

    least_epsilon = least_value(of_order, *(xp.full(delta.shape, end) for end in _ORDERS))
    return xp.where(delta > 0, xp.maximum(least_epsilon, 0.0), xp.inf)


_compiled_log_delta = compiled(_log_delta, 2)
_compiled_epsilon = compiled(_epsilon, 2)


def _cumulant(terms: Terms, both: bool, s: Reals) -> Reals:
    """K(s) of all terms, in the shape of `s`, rounded up; of the worse direction if `both`.

    Infinite where one is not known.
    """
    order = 1.0 + s[..., None]
    value = add_up(terms, lambda term: term.total(term.pair.renyi(order)))
    if both:
        reverse = add_up(terms, lambda term: term.total(term.pair.reversed().renyi(order)))
        value = xp.maximum(value, reverse)
    return xp.where(xp.isnan(value), xp.inf, round_up(s * value, _ROUNDED))


def _broadcast(terms: Terms, values: Reals) -> tuple[Terms, Reals]:
    shape = xp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    return tuple(term.broadcast(shape) for term in terms), xp.broadcast_to(values, shape)
