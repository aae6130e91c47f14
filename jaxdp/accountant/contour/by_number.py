"""Bounds where rare large losses decide, by the number of releases whose loss is rare.

A release is rare if its loss is infinite or at no node, or by a coin whose probability rises with
the loss (`rare_losses`); p is the expected number of rare ones. With f = (1 - e^(epsilon - L))_+,
delta = E[f] is at most the sum of

    none rare:    e^(K(v) - v epsilon - entropy(v)), K the cumulant of losses that are not rare;
    one:          E[g(S)], g(a) = min(p, sum of each release's own delta(epsilon - a)), S the sum
                  of the others: releases are independent, and a rare loss is one of the law's;
    two or more:  p^2 / 2, as f <= 1.

g rises, and P[S > a] <= T(a) = min(1, e^(K'(v) - v a)), K' of one release less. With each cell of S
rounded up, for 0 = a_0 < ... < a_m and the last cell above a_m,

    E[g(S)] <= sum_i g(a_i) (T(a_(i - 1)) - T(a_i)) + p T(a_m),  T(a_(-1)) = 1.

Lower bound: delta >= P[A] - e^epsilon Q[A] of the event A that some loss exceeds epsilon. The sum
of the releases' own delta(epsilon), less r^2 / 2, r the sum of P[L > epsilon], is below it; r is at
most the sum of delta(epsilon - a), over 1 - e^-a.

Error: the bracket, .1 nats of log delta in the median where one rare loss decides. Each profile's
stated error, rounding, and the difference of both rules of a law are in it. Chosen by `engines`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.functions import logsumexp
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy, log1m
from jaxdp._numeric.search import secant_bracket
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.contour import curve
from jaxdp.accountant.contour.cumulant import chernoff_of
from jaxdp.accountant.contour.engine import OF_LAWS, at_once, lanes_last
from jaxdp.accountant.contour.laws import Laws, laws_of
from jaxdp.accountant.contour.nodes import by_tilts, sums
from jaxdp.accountant.contour.rare_losses import cut, uncut
from jaxdp.accountant.profile import bounds_of
from jaxdp.accountant.runner import ANY_NUMBER, by_lanes
from jaxdp.accountant.steps import Engine, Question

# Tilts tried. chosen: a neighbour of the best one costs .5 % of an exponent
_TILTS = np.exp(np.arange(-9.0, 15.0, 0.2))[:, None]
_CELLS = np.arange(129.0) / 128.0  # of the sum of the others, over their end. chosen
# Shares of epsilon at which the probability of a loss above epsilon is bounded. chosen
_SHARES = 2.0 ** -np.arange(12.0)
# Nats below delta of two rare losses, and of the cell without an end. chosen: 2e-4 of delta
_BELOW = 8.0
_ROUNDS = 2  # of an estimate of delta and its cut. measured: a third changes .01 nats
_CLOSE = 1e-7  # of epsilon, relative. chosen
# Relative rounding of a sum of cells. derived: 4 ulp each, and 700 of a logarithm
_ROUNDED = 4096.0 * ULP
_LEAST = 1e-300  # of a sum in its unit. derived: a sum that underflows is not 0
_LARGEST = 1e6  # epsilon that is tried. chosen: others serve larger ones


class _Lanes(NamedTuple):
    """Terms, their laws with axes reversed, epsilon or delta, and bounds before."""

    terms: Terms
    laws: Laws
    value: Reals
    known: LogBounds


class _Parts(NamedTuple):
    """Losses that are not rare at every tilt (tilts, lanes), and rare ones."""

    body: Laws  # of losses that are not rare
    none: Reals  # log of the bound if none is rare, at epsilon 0
    others: Reals  # K'
    log_rare: Reals  # log p (lanes,)

    def least(self, epsilon: Reals) -> Reals:
        """Chernoff's bound if none is rare."""
        return xp.min(self.none - _TILTS * epsilon * (1.0 - 8.0 * ULP), 0)


def engine(question: Question) -> Engine:
    """The bounds for a question."""

    def arrays(batch: Batch, known: LogBounds) -> _Lanes:
        # Gaussians that are not sampled have no rare loss: they are part of every sum.
        terms = tuple(x for x in batch.terms if not is_gaussian(x))
        return _Lanes(terms, laws_of(batch)[0], batch.values, known)

    def solve(lanes: _Lanes, _: Any) -> LogBounds:
        with jax.numpy_rank_promotion("allow"):
            found = _SOLVE[question](lanes._replace(laws=lanes_last(lanes.laws)))
        lower, upper = (
            xp.where(xp.isnan(x), y, x) for x, y in zip(found, (-xp.inf, xp.inf), strict=True)
        )
        return LogBounds(xp.minimum(lower, upper), upper)

    def most(lanes: _Lanes, on_host: bool) -> int:
        return at_once(OF_LAWS, lanes.laws.nodes(OF_LAWS), on_host)

    return by_lanes(arrays, solve, most, ANY_NUMBER)


def _log_delta(lanes: _Lanes) -> LogBounds:
    """Bounds on log delta at epsilons >= 0."""
    laws, epsilon, least = lanes.laws, lanes.value, lanes.known.upper
    lower = _lower(lanes.terms, epsilon)
    guess = xp.where(lower > -xp.inf, lower, least)
    for _ in range(_ROUNDS):
        parts = _parts(laws, guess)
        found = _upper(lanes, parts, guess, epsilon, parts.least(epsilon))
        guess = least = xp.where(found < least, found, least)
    whole = curve.log_delta_bounds(OF_LAWS, parts.body, epsilon, xp.full_like(guess, xp.nan), 1)
    none = whole.upper + laws.log_finite
    found = _upper(lanes, parts, guess, epsilon, none)
    lower = xp.maximum(lower, whole.lower + laws.log_finite)
    return LogBounds(lower, xp.where(found < least, found, least))


def _epsilon(lanes: _Lanes) -> LogBounds:
    """Bounds on the least epsilon at each delta."""
    goal = xp.log(lanes.value)
    parts = _parts(lanes.laws, goal)
    high = xp.where(lanes.known.upper < xp.inf, lanes.known.upper, _LARGEST)
    low = 1e-12 * high

    def above(epsilon: Reals) -> Reals:
        return _upper(lanes, parts, goal, epsilon, parts.least(epsilon)) - goal

    def below(epsilon: Reals) -> Reals:
        return goal - _lower(lanes.terms, epsilon)

    upper = secant_bracket(above, high, low, 0.5 * high, close=_CLOSE)
    guess = xp.where(upper < high, upper, high)
    lower = secant_bracket(below, low, guess, guess * (1.0 - 1e-3), close=_CLOSE)
    return LogBounds(xp.where(lower < xp.inf, lower, -xp.inf), upper)


def _parts(laws: Laws, log_delta: Reals) -> _Parts:
    """The law cut so that two rare losses are far less probable than delta."""
    place = cut(laws, 0.5 * (_BELOW - log_delta))
    body = laws.kept(place)
    whole = uncut(body)
    nodes = body.on_axis(None, whole)

    def at(tilts: Reals) -> tuple[Reals, Reals]:
        power = body.power(tilts)
        psi = body.psi(whole, nodes, power, sums(nodes, power))
        bounds = chernoff_of(body, tilts, psi).log
        none = xp.where(xp.isnan(bounds), xp.inf, bounds)
        # The release that is less can be any.
        one = xp.max(xp.where(body.number > 0, psi.error - psi.log, 0.0), -2)
        return none, none + conversion_entropy(tilts) + xp.maximum(one, 0.0) - body.log_finite

    tilts = xp.broadcast_to(_TILTS, (_TILTS.size, *log_delta.shape))
    none, others = by_tilts(at, nodes, tilts)
    rare = xp.exp(laws.log_lost(place)) - laws.log_finite
    return _Parts(body, none, others, xp.log(rare * (1.0 + _ROUNDED)))


def _upper(lanes: _Lanes, parts: _Parts, unit: Reals, epsilon: Reals, none: Reals) -> Reals:
    """The sum of none, one, and two or more rare losses; `unit` is an estimate of log delta."""
    far = xp.maximum(parts.log_rare - unit + _BELOW, 1.0)
    end = xp.clip(xp.min((parts.others + far) / _TILTS, 0), 0.0, epsilon)
    cells = end * _CELLS[:, None]
    log_tail = parts.others[:, None] - _TILTS[:, None] * (cells - 8.0 * ULP * epsilon)
    tail = xp.exp(xp.minimum(xp.min(log_tail, 0), 0.0))
    share = xp.concatenate([1.0 - tail[:1], tail[:-1] - tail[1:], tail[-1:]])
    own = _log_sum(lanes.terms, lambda pair: pair.log_delta((epsilon - cells)[..., None]))
    own = xp.minimum(own, parts.log_rare)
    own = xp.concatenate([own, parts.log_rare[None]])
    two = 2.0 * parts.log_rare - np.log(2.0)
    total = xp.exp(none - unit) + xp.exp(two - unit) + xp.sum(share * xp.exp(own - unit), 0)
    found = unit + xp.log(xp.maximum(total, _LEAST))
    return found + _ROUNDED * (1.0 + xp.abs(found))


def _lower(terms: Terms, epsilon: Reals) -> Reals:
    """The log of a lower bound on delta, from the event that some loss exceeds epsilon."""
    steps = epsilon * _SHARES[:, None]
    least = _log_sum(terms, lambda pair: bounds_of(pair, epsilon[:, None]).lower)
    above = _log_sum(terms, lambda pair: pair.log_delta((epsilon - steps)[..., None]))
    exceeds = xp.min(above - xp.log(-xp.expm1(-steps)), 0)
    share = xp.exp(2.0 * exceeds - np.log(2.0) - least) * (1.0 + _ROUNDED)
    kept = xp.where(share < 1.0, log1m(xp.where(share < 1.0, share, 0.0)), -xp.inf)
    return least + kept - _ROUNDED * (1.0 + xp.abs(least))


def _log_sum(terms: Terms, log_of: Callable[[Any], Reals]) -> Reals:
    """log of the sum of number times e^log_of(pair) over all releases (..., lanes)."""
    each = [log_of(x.pair.prepared()) + xp.log(x.count) for x in terms]
    return logsumexp(xp.concatenate(each, -1), axis=-1)


_SOLVE: dict[Question, Callable[[_Lanes], LogBounds]] = {
    "log delta": _log_delta,
    "epsilon": _epsilon,
}
