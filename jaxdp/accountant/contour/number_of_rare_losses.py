"""Bounds where rare large losses decide, by the number of releases whose loss is rare.

A loss is rare if it is infinite or at no node, or by a coin whose probability rises with the loss
(`laws`); p is the expected number of rare ones. With f = (1 - e^(epsilon - L))_+, delta =
E[f] is at most the sum of

    none rare:    a contour's bound, or e^(K(v) - v epsilon - entropy(v)), for losses not rare;
    one:          E[g(S)], S the sum of the others and g(a) the least of p and the sum of each
                  release's own delta(epsilon - a): it is independent of the others;
    two or more:  p^2 / 2, as f <= 1.

g rises, and P[S > a] <= T(a) = min(1, e^(K'(v) - v a)), K' of one release less. With S rounded up
in cells 0 = a_0 < ... < a_m, the last one without an end, and T(a_(-1)) = 1,

    E[g(S)] <= sum_i g(a_i) (T(a_(i - 1)) - T(a_i)) + p T(a_m).

Lower bound: P[A] - e^epsilon Q[A] <= delta for every event A. Let A be that some loss exceeds
epsilon: it is at least the sum of the releases' own delta(epsilon), less r^2 / 2, r the sum of
P[L > epsilon] <= delta(epsilon - a) / (1 - e^-a). None rare is another lower bound.

Error: the bracket, .1 nats of log delta where one rare loss decides. Stated errors of the profiles,
rounding, and the difference of a law's two rules are in it. Chosen by `engines` for log delta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.namespace import logsumexp, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy, log1m
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.closed_forms import bounds_of
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.contour import curve
from jaxdp.accountant.contour.engine import OF_LAWS, Lanes, at_once, lanes_last
from jaxdp.accountant.contour.laws import Laws, cut, laws_of, uncut
from jaxdp.accountant.contour.nodes import Bounds, by_tilts, chernoff_of, log_least_delta, sums
from jaxdp.accountant.runner import by_lanes
from jaxdp.accountant.steps import Engine, LogBounds

# Tilts tried. chosen: a neighbour of the best one costs 1 % of an exponent
_TILTS = np.exp(np.arange(-8.0, 16.0, 0.25))[:, None]
_CELLS = (np.arange(129.0) / 128.0)[:, None]  # of the others' sum, over the last one. chosen
# Shares of epsilon at which the probability of a loss above epsilon is bounded. chosen
_SHARES = 2.0 ** -np.arange(12.0)[:, None]
# Nats below twice delta of two rare losses at most. measured: a smooth cut drops less than it may
_BELOW = 2.0
_FAR = 8.0  # nats of the last cell below delta. measured: a lower cut leaves a lighter body
# Of a sum of cells, relative. derived: 4 ulp each, and 700 of a logarithm
_ROUNDED = 4096.0 * ULP
_LEAST = 1e-300  # of a sum in its unit. derived: a sum that underflows is not 0


class _Parts(NamedTuple):
    """Losses that are not rare, and rare ones."""

    body: Laws  # without the rare losses
    whole: Bounds  # of all its releases
    others: Reals  # K' (tilts, lanes)
    log_rare: Reals  # log p (lanes,)


def engine() -> Engine:
    """The engine for log delta; it has no epsilon of its own."""

    def arrays(batch: Batch, known: LogBounds) -> tuple[Terms, Lanes]:
        # Gaussians that are not sampled have no rare loss: they are part of every sum.
        terms = tuple(x for x in batch.terms if not is_gaussian(x))
        return terms, Lanes(*laws_of(batch), batch.values, known)

    def solve(lanes: tuple[Terms, Lanes], _: Any) -> LogBounds:
        terms, of = lanes
        with jax.numpy_rank_promotion("allow"):
            return _log_delta(terms, of._replace(rows=lanes_last(of.rows)))

    def most(lanes: tuple[Terms, Lanes]) -> int:
        return at_once(OF_LAWS, lanes[1].rows.nodes(OF_LAWS))

    return by_lanes(arrays, solve, most)


def _log_delta(terms: Terms, lanes: Lanes) -> LogBounds:
    """Bounds on log delta at epsilons >= 0, from two estimates of delta and their cuts."""
    laws: Any = lanes.rows
    epsilon, first = lanes.value, _lower(terms, lanes.value)
    unit = xp.where(first > -xp.inf, first, lanes.known.upper)
    parts = _parts(laws, unit)
    found = _upper(terms, parts, unit, epsilon, log_least_delta(parts.whole, epsilon)[0])
    least = xp.fmin(found, lanes.known.upper)
    parts = _parts(laws, least)
    body, _ = curve.log_delta_bounds(OF_LAWS, parts.body, epsilon, xp.full_like(unit, xp.nan), 1)
    none = xp.fmin(body.upper + laws.log_finite, log_least_delta(parts.whole, epsilon)[0])
    found = _upper(terms, parts, least, epsilon, none)
    return LogBounds(xp.fmax(first, body.lower + laws.log_finite), xp.fmin(found, least))


def _parts(laws: Laws, log_delta: Reals) -> _Parts:
    """The law cut so that two rare losses are far less probable than delta."""
    phases = xp.sum(xp.where(laws.number > 0, 1.0, 0.0), 0)
    place = cut(laws, 0.5 * (_BELOW - log_delta) + xp.log(phases))
    body = laws.kept(place)
    nothing = uncut(body)
    nodes = body.on_axis(None, nothing)

    def at(tilts: Reals) -> tuple[Reals, Reals]:
        power = body.power(tilts)
        psi = body.psi(nothing, nodes, power, sums(nodes, power))
        whole = chernoff_of(body, tilts, psi).log
        whole = xp.where(xp.isnan(whole), xp.inf, whole)
        # Any release may be the one less.
        one = xp.max(xp.where(body.number > 0, psi.error - psi.log, 0.0), -2)
        return whole, whole + conversion_entropy(tilts) + xp.maximum(one, 0.0) - body.log_finite

    tilts = xp.broadcast_to(_TILTS, (_TILTS.size, *log_delta.shape))
    whole, others = by_tilts(at, nodes, tilts)
    rare = xp.exp(laws.log_lost(place)) - laws.log_finite
    return _Parts(body, Bounds(xp.asarray(_TILTS), whole), others, xp.log(rare * (1.0 + _ROUNDED)))


def _upper(terms: Terms, parts: _Parts, unit: Reals, epsilon: Reals, none: Reals) -> Reals:
    """The sum of none, one, and two or more rare losses; `unit` is an estimate of log delta."""
    far = xp.maximum(parts.log_rare - unit + _FAR, 1.0)
    cells = xp.clip(xp.min((parts.others + far) / _TILTS, 0), 0.0, epsilon) * _CELLS
    log_tail = parts.others[:, None] - _TILTS[:, None] * (cells - 8.0 * ULP * epsilon)
    tail = xp.exp(xp.minimum(xp.min(log_tail, 0), 0.0))
    share = xp.concatenate([1.0 - tail[:1], tail[:-1] - tail[1:], tail[-1:]])
    own = _log_sum(terms, lambda pair: pair.log_delta((epsilon - cells)[..., None]))
    own = xp.concatenate([xp.minimum(own, parts.log_rare), parts.log_rare[None]])
    total = xp.exp(none - unit) + xp.sum(share * xp.exp(own - unit), 0)
    total = total + 0.5 * xp.exp(2.0 * parts.log_rare - unit)
    found = unit + xp.log(xp.maximum(total, _LEAST))
    return found + _ROUNDED * (1.0 + xp.abs(found) + xp.abs(unit))


def _lower(terms: Terms, epsilon: Reals) -> Reals:
    """The log of the lower bound from the event that some loss exceeds epsilon."""
    steps = epsilon * _SHARES
    least = _log_sum(terms, lambda pair: bounds_of(pair, epsilon[:, None]).lower)
    above = _log_sum(terms, lambda pair: pair.log_delta((epsilon - steps)[..., None]))
    exceeds = xp.min(above - xp.log(-xp.expm1(-steps)), 0)
    share = 0.5 * xp.exp(2.0 * exceeds - least) * (1.0 + _ROUNDED)
    kept = log1m(xp.where(share < 1.0, share, 1.0))
    return least + kept - _ROUNDED * (1.0 + xp.abs(least))


def _log_sum(terms: Terms, log_of: Callable[[Any], Reals]) -> Reals:
    """log of the sum of number times e^log_of(pair) over all releases (..., lanes)."""
    # A user's own pair answers with arrays of JAX, which would compile all that follows.
    own = [(x.count, np.asarray(log_of(x.pair))) for x in terms]
    each = [xp.where(n == 0, -xp.inf, log + xp.log(n)) for n, log in own]
    return logsumexp(xp.concatenate(each, -1), axis=-1)
