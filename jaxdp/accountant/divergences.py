"""Bounds on delta and epsilon from the Renyi divergences of pairs; the last engine.

With K(s) the sum of s times the divergences of order 1 + s, and every s > 0,

    log delta <= K(s) - s epsilon - log(1 + s) - s log(1 + 1 / s).

A release with infinite losses has infinite divergences, and no bound from them.

Error: an upper bound, 1 to 4 nats of log delta above the truth for most compositions. The best s is
found to 4e-6, relatively, which moves log delta by far less; every s gives a bound.

Chosen by `engines` after all other engines, where the bracket is wide: losses beyond the nodes of a
law, so small a delta that no sum resolves it, and laws whose two quadrature rules differ. So an
answer exceeds the conversions of Renyi and zero-concentrated differential privacy by its stated
error at most.

Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Lanes, Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy, round_up
from jaxdp._numeric.search import zoom
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.runner import by_lanes
from jaxdp.accountant.steps import Engine, LogBounds, Question
from jaxdp.guarantee.base import rounding_slack

# log of the range of s searched. chosen: orders less 1 from 1e-12 to 1e30
_LOG_RANGE = (-27.6, 69.1)
# Points of a round of the search, and rounds, each between the neighbours of the best point.
# derived: 97 / 16 / 8^7 is 3e-6
_TRIED, _ROUNDS = 17, 8
# ulp of a cumulant. chosen: above the errors of all divergences, 1e-13 and less
_ROUNDED = 4096
# Divergences evaluated side by side. chosen: each can take 1,600 nodes, in some 50 MB together
_AT_ONCE = 512


def engine(question: Question) -> Engine:
    """The engine for a question; it has an upper bound alone."""
    upper_of = _log_delta if question == "log delta" else _epsilon

    def arrays(batch: Batch, _: LogBounds) -> tuple[Terms, Lanes]:
        return batch.terms, batch.values

    def solve(lanes: tuple[Terms, Lanes], _: Any) -> LogBounds:
        upper = xp.asarray(upper_of(*lanes))
        return LogBounds(xp.full_like(upper, -xp.inf), upper)

    def most(lanes: tuple[Terms, Lanes]) -> int:
        return max(_AT_ONCE // (_TRIED * _releases(lanes[0])), 1)

    return by_lanes(arrays, solve, most)


def _releases(terms: Terms) -> int:
    return sum(term.count.shape[-1] for term in terms)


def _cumulant(terms: Terms, s: Reals) -> Reals:
    """K(s) in the shape of `s` (..., lanes), rounded up; infinite where one is not known."""

    def total(s: Reals) -> Reals:
        each = []
        for term in terms:
            order = xp.broadcast_to(1.0 + s[..., None], (*s.shape, term.count.shape[-1]))
            each.append(term.total(round_up(s[..., None] * term.pair.renyi(order), _ROUNDED)))
        return functools.reduce(operator.add, each)

    is_large = s.ndim > 1 and s.size * _releases(terms) > _AT_ONCE
    value = lax.map(total, s) if is_large else total(s)
    return xp.where(xp.isnan(value), xp.inf, value)


def _log_delta(terms: Terms, epsilon: Lanes) -> Lanes:
    """Upper bounds on log delta of lanes at real epsilons."""

    def bound(s: Reals) -> Reals:
        gain, cost, entropy = _cumulant(terms, s), s * epsilon, conversion_entropy(s)
        value = gain - cost - entropy + 4.0 * ULP * (xp.abs(gain) + xp.abs(cost) + entropy)
        value = xp.where(xp.isinf(cost), -cost, value)
        return xp.where(gain < xp.inf, value, xp.inf)

    return xp.minimum(_least(bound, terms, epsilon), 0.0)


def _epsilon(terms: Terms, delta: Lanes) -> Lanes:
    """Upper bounds on the least epsilons >= 0 of lanes; infinite where there is none."""
    inside = ~((delta <= 0) | (delta >= 1))  # true for NaN
    safe = xp.where(inside, delta, 0.5)
    log_delta = xp.log(safe) - rounding_slack(safe)

    def bound(s: Reals) -> Reals:
        gain, entropy = _cumulant(terms, s), conversion_entropy(s)
        size = gain + entropy + xp.abs(log_delta)
        value = (gain - entropy - log_delta + 16.0 * ULP * size) / s
        return xp.where(gain < xp.inf, value, xp.inf)

    return xp.where(inside, xp.maximum(_least(bound, terms, safe), 0.0), xp.inf)


def _least(bound: Callable[[Reals], Reals], terms: Terms, values: Lanes) -> Lanes:
    """The least bound over s; NaN where a parameter or a value is."""

    def at(log_s: Reals) -> Reals:
        found = bound(xp.exp(log_s))
        return xp.where(xp.isnan(found), xp.inf, found)

    low, high = (xp.full_like(values, x) for x in _LOG_RANGE)
    with jax.numpy_rank_promotion("allow"):
        least = zoom(at, low, high, _TRIED, _ROUNDS)[1]
    return xp.where(is_bad(terms) | xp.isnan(values), xp.nan, least)


def is_bad(terms: Terms) -> Bools:
    """True for lanes with a parameter that is NaN."""
    bad: Any = False
    for term in terms:
        of_term = functools.reduce(operator.or_, map(xp.isnan, jax.tree.leaves(term)))
        bad = bad | xp.any(of_term & (term.count != 0), axis=-1)
    return bad
