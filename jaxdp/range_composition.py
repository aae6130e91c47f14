"""Compositions of the exponential mechanism by Renyi divergences, where those say more.

The worst pair of a bounded range lets an adversary choose anew at every release what is known of
the range (`loss.discrete.RangeLoss`), which costs a third of the variance; a Renyi divergence of a
fixed order composes without that, and costs about two nats of log delta at the end. Few releases
are the former's, many the latter's; both hold, and the better is reported.
"""

import functools
from collections.abc import Callable, Iterable
from typing import cast

import jax.numpy as jnp

from jaxdp._compile import compiled
from jaxdp._numeric.bounded_range import cumulant_of_range, renyi_of_range
from jaxdp._numeric.bracket import least_value
from jaxdp._numeric.elementary import ULP, log1mexp, log1p, round_up
from jaxdp._types import Reals
from jaxdp.guarantee.base import log_delta_of_cgf, rounding_slack
from jaxdp.loss import reported
from jaxdp.loss.base import Term, Terms, add_up
from jaxdp.loss.discrete import RangeLoss

_ROUNDED = 4096  # ulp of a cumulant. chosen: above the errors of all losses, 1e-13 and less
_ORDERS = (1e-12, 1e12)  # less 1, between which the best is sought. chosen: beyond, others serve


def log_delta(terms: Terms, epsilon: Reals, both: bool) -> Reals:
    """An upper bound on log delta at every real epsilon."""
    pair = reported.log_delta(terms, epsilon, both)
    return _lesser(_compiled_log_delta, pair, terms, epsilon, both)


def log_delta_error(terms: Terms, epsilon: Reals, both: bool) -> Reals:
    """By how much `log_delta` may be above the truth; infinite where Renyi divergences gave it."""
    error = reported.log_delta_error(terms, epsilon, both)
    if not _has_ranges(terms):
        return error
    pair = reported.log_delta(terms, epsilon, both)
    return jnp.where(
        _lesser(_compiled_log_delta, pair, terms, epsilon, both) < pair, jnp.inf, error
    )


def log_bounds(terms: Terms, epsilon: Reals, both: bool, points: int) -> tuple[Reals, Reals]:
    """Bounds on log delta from a grid of `points`; the lower one is -inf as the error is inf."""
    lower, upper = reported.log_bounds(terms, epsilon, both, points)
    least = _lesser(_compiled_log_delta, upper, terms, epsilon, both)
    return jnp.where(least < upper, -jnp.inf, lower), least


def epsilon(terms: Terms, delta: Reals, both: bool) -> Reals:
    """An epsilon >= 0 that meets `delta`."""
    return _lesser(_compiled_epsilon, reported.epsilon(terms, delta, both), terms, delta, both)


def renyi(terms: Terms, order: Reals, both: bool) -> Reals:
    """The Renyi divergence of an order >= 1, that of exponential mechanisms in closed form."""
    ranges = [term for term in terms if isinstance(term.noise, RangeLoss)]
    others = tuple(term for term in terms if not isinstance(term.noise, RangeLoss))
    value = reported.renyi(others, order, both) if others else jnp.zeros(order.shape)
    if not ranges:
        return value
    shape = jnp.broadcast_shapes(order.shape, *(term.shape for term in terms))
    more = _renyi_of_ranges(ranges, jnp.broadcast_to(order, shape))
    return jnp.broadcast_to(value, shape) + more


def _has_ranges(terms: Terms) -> bool:
    """True if there is an exponential mechanism among them."""
    return any(isinstance(term.noise, RangeLoss) for term in terms)


def _lesser(
    by_divergences: Callable[[Terms, Reals, bool], Reals],
    pair: Reals,
    terms: Terms,
    values: Reals,
    both: bool,
) -> Reals:
    """What the worst `pair` says, or what Renyi divergences do where that is less."""
    if not _has_ranges(terms):
        return pair
    other = by_divergences(terms, values, both)
    return jnp.where(other < pair, other, pair)  # NaN stays


def _log_delta(terms: Terms, epsilon: Reals, both: bool) -> Reals:
    """A bound on log delta at every real epsilon, by the best order; of the worse direction."""
    way, epsilon = _directions(terms, epsilon, both)
    finite = log_delta_of_cgf(functools.partial(_cumulant, way), epsilon)
    lost = add_up(way, Term.log_finite)
    infinite = lost < 0
    total = jnp.logaddexp(finite, log1mexp(jnp.where(infinite, -lost, 1.0)))
    total = jnp.minimum(round_up(total, 16) + 16.0 * ULP, 0.0)
    return _worse(jnp.where(infinite, total, finite), both)


def _epsilon(terms: Terms, delta: Reals, both: bool) -> Reals:
    """An epsilon >= 0 that meets `delta` by `log_delta`; infinite where none does.

    The least over orders of (K(s) - log(1 + s) - s log(1 + 1/s) - log delta) / s.
    """
    way, delta = _directions(terms, delta, both)
    left = delta + jnp.expm1(add_up(way, Term.log_finite)) * (1.0 + 16.0 * ULP)
    some = left > 0
    log_left = jnp.log(jnp.where(some, left, 1.0)) - rounding_slack(jnp.where(some, left, 1.0))

    def of_order(s: Reals) -> Reals:
        gain, entropy = _cumulant(way, s), log1p(s) + s * log1p(1.0 / s)
        size = gain + entropy + jnp.abs(log_left)
        return (gain - entropy - log_left + 16.0 * ULP * size) / s

    found = least_value(of_order, *(jnp.full(delta.shape, end) for end in _ORDERS))
    return _worse(jnp.where(some, jnp.maximum(found, 0.0), jnp.inf), both)


_compiled_log_delta = compiled(_log_delta, 2)
_compiled_epsilon = compiled(_epsilon, 2)


def _renyi_of_ranges(ranges: Iterable[Term], order: Reals) -> Reals:
    """What exponential mechanisms add to a divergence of `order`, of the batch's shape."""
    each = (term.broadcast(order.shape) for term in ranges)
    parts = [
        term.total(renyi_of_range(cast(RangeLoss, term.noise).epsilon, order[..., None]))
        for term in each
    ]
    return jnp.real(sum(parts, jnp.zeros(order.shape)))


def _cumulant(terms: Terms, s: Reals) -> Reals:
    """K(s) of all terms, in the shape of `s`, rounded up; infinite where one is not known."""
    z = s[..., None]

    def of_term(term: Term) -> Reals:
        if not isinstance(term.noise, RangeLoss):
            return jnp.real(term.cgf(z))
        return jnp.real(
            term.total(cumulant_of_range(term.noise.epsilon[..., None], z[..., None, :]))
        )

    value = add_up(terms, of_term)[..., 0]
    return jnp.where(jnp.isnan(value), jnp.inf, round_up(jnp.real(value), _ROUNDED))


def _directions(terms: Terms, values: Reals, both: bool) -> tuple[Terms, Reals]:
    """All in one shape, with a first axis for the two directions if both are owed."""
    shape = jnp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    if both:
        shape = (2, *shape)
    way = tuple(term.broadcast(shape) for term in terms)
    if both:
        second = jnp.arange(2).reshape(2, *(1,) * (len(shape) - 1)) == 1
        way = tuple(term.reversed(jnp.broadcast_to(second, shape)) for term in way)
    return way, jnp.broadcast_to(values, shape)


def _worse(value: Reals, both: bool) -> Reals:
    return jnp.max(value, axis=0) if both else value
