"""Compositions of the exponential mechanism by Renyi divergences, if those are tighter.

The worst pair of a bounded range lets an adversary choose the range's position anew at every
release (`dominating_pair.known_guarantee.BoundedRange`), which costs a third of the variance. A
Renyi divergence of a fixed order composes without that loss, and costs about two nats of log delta
in the conversion. Both bounds hold, and the smaller is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant import evaluate
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Terms
from jaxdp.dominating_pair.known_guarantee import BoundedRange

# Error of delta for a trade-off. chosen: below the rates that are looked at
_DELTA_CLOSE = 1e-11


def log_delta(
    terms: Terms, epsilon: Reals, both: bool, stop_when: evaluate.StopWhen | None = None
) -> LogBounds:
    """Bounds on log delta at every real epsilon; -inf below where Renyi divergences gave it.

    `stop_when`: as in `evaluate.log_delta`, of the worst pair's bounds.
    """
    pair = evaluate.log_delta(terms, epsilon, both, stop_when)
    return _tighter(evaluate.log_delta_by_divergences, pair, terms, epsilon, both)


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
    return _tighter(evaluate.log_delta_by_divergences, pair, terms, epsilon, both)


def epsilon(terms: Terms, delta: Reals, both: bool) -> LogBounds:
    """Bounds on the least epsilon >= 0 that meets `delta`."""
    pair = evaluate.epsilon(terms, delta, both)
    return _tighter(evaluate.epsilon_by_divergences, pair, terms, delta, both)


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
    # The engines may have met the same bound. The lower one of the pair is above the truth then.
    is_less = by_renyi <= pair.upper + 16.0 * ULP * (1.0 + xp.abs(pair.upper))
    lower = xp.where(is_less, -xp.inf, pair.lower)
    return LogBounds(lower, xp.where(by_renyi < pair.upper, by_renyi, pair.upper))  # NaN stays
