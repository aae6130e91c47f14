"""Renyi and zero-concentrated differential privacy, their profiles and trade-off functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Reals, Shape
from jaxdp._numeric.double_double import sum_up
from jaxdp._numeric.elementary import ULP, conversion_entropy, log1m, log1p, round_up
from jaxdp._numeric.search import bisect, zoom
from jaxdp.guarantee.base import (
    Budget,
    BudgetLike,
    Guarantee,
    as_budget,
    largest_within,
    part_of,
    repeated,
)

# Orders, less 1, that bound a trade-off, from 1e-6 to 1e6. chosen: 25 a decade
_ORDERS = 301


@final
@pytree
class ZCDP(Guarantee):
    """The Renyi divergence of every order a > 1 is at most xi + a rho.

    Its delta is a bound, 1 to 2 nats of log delta above the Gaussian's of the same rho: hold a
    Gaussian as `GDP`. Source: Bun & Steinke, TCC 2016.
    """

    xi: Reals
    rho: Reals

    def __init__(self, xi: ArrayLike, rho: ArrayLike):
        assign(self, xi=checks.nonnegative("xi", xi), rho=checks.nonnegative("rho", rho))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """The least bound over orders of Canonne, Kamath & Steinke, 2020, proposition 12."""
        xi, rho, epsilon = xp.broadcast_arrays(
            checks.guard(self.xi), checks.guard(self.rho), checks.real("epsilon", epsilon)
        )
        return log_delta_of_cgf(lambda s: s * (xi[None] + (s + 1.0) * rho[None]), epsilon)

    def epsilon(self, delta: ArrayLike) -> Reals:
        """Minimum over s > 0 of xi + (1 + s) rho - (log(delta) + H(s)) / s, at least 0; rounded up.

        H(s) = log(1 + s) + s log(1 + 1 / s). At this epsilon `log_delta` is at most log(delta).
        """
        return _zcdp_epsilon(self.xi, self.rho, checks.probability("delta", delta))

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """The least fnr whose two-point test obeys the curve at every order, both ways round.

        (1 - fnr)^a fpr^(1 - a) + fnr^a (1 - fpr)^(1 - a) <= exp((a - 1)(xi + a rho)), by data
        processing, and attained: the two points satisfy the curve. Rounded down. 302 orders are
        evaluated, 1 and from 1 + 1e-6 to 1 + 1e6: each gives a bound, and the best is taken.
        """
        return _zcdp_tradeoff(self.xi, self.rho, checks.probability("fpr", fpr, lift=True))

    def excess(self, target: ZCDP) -> Reals:
        """A number that is at most 0 if this guarantee implies `target`; NaN for a bad one.

        The log of the larger ratio of rho and of xi + rho to the target's: xi + a rho, a line in
        a, is below the target's line at every a > 1 if its slope and its value at 1 are.
        """
        ratios = (
            xp.log(round_up(self.xi + self.rho, 2)) - xp.log(target.xi + target.rho),
            xp.log(self.rho) - xp.log(target.rho),
        )
        silent = (self.xi + self.rho == 0), self.rho == 0
        return xp.maximum(*(xp.where(x, -xp.inf, y) for x, y in zip(silent, ratios, strict=True)))

    def composed(self, other: ZCDP) -> ZCDP:
        """The guarantee of both releases together, rounded up."""
        return ZCDP(sum_up(self.xi, other.xi), sum_up(self.rho, other.rho))

    def __rmul__(self, count: ArrayLike) -> ZCDP:
        count = checks.whole("count", count)
        return ZCDP(repeated("xi", count, self.xi), repeated("rho", count, self.rho))

    def __truediv__(self, parts: ArrayLike) -> ZCDP:
        """One of `parts` equal parts: their xi and rho add up to these at most."""
        return ZCDP(part_of(self.xi, parts), part_of(self.rho, parts))


@jitted
def _zcdp_epsilon(xi: Reals, rho: Reals, delta: Reals) -> Reals:
    xi, rho, delta = xp.broadcast_arrays(checks.guard(xi), checks.guard(rho), delta)
    needed = -xp.log(delta)[None]

    def bound(log_s: Reals) -> Reals:
        s = xp.exp(log_s)
        # Unimodal: the slope in s is rho - (log(1 / delta) - log(1 + s)) / s^2.
        entropy, divergence = conversion_entropy(s), xi[None] + (s + 1.0) * rho[None]
        rounding = 16.0 * ULP * (divergence + (needed + entropy) / s)
        return divergence + (needed - entropy) / s + rounding

    found = xp.maximum(zoom(bound, *_log_orders(delta.shape))[1], 0.0)
    return xp.where((delta == 1.0) & ~xp.isnan(found), 0.0, found)


@jitted
def _zcdp_tradeoff(xi: Reals, rho: Reals, fpr: Reals) -> Reals:
    xi, rho, fpr = xp.broadcast_arrays(checks.guard(xi), checks.guard(rho), fpr)

    # An order that is missed leaves a constraint out, and the bound lower.
    s = xp.concatenate([xp.zeros(1), xp.logspace(-6.0, 6.0, _ORDERS)])
    s = xp.broadcast_to(s, (*fpr.shape, s.size))
    return tradeoff_of_renyi(s, xi[..., None] + (s + 1.0) * rho[..., None], fpr)


# Searches of s = order - 1 cover log s from minus this to this. chosen: the best s lies inside
_LOG_REACH = 69.0


def log_delta_of_cgf(cgf: Callable[[Reals], Reals], epsilon: Reals) -> Reals:
    """log delta <= min over s > 0 of K(s) - s epsilon - log(1 + s) - s log(1 + 1/s).

    `cgf` is K(s), s times the Renyi divergence of order 1 + s, with s along a new first axis.
    Every s gives a bound, so the minimisation need not be exact to be safe.
    Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
    """

    def bound(log_s: Reals) -> Reals:
        s = xp.exp(log_s)
        gain, cost = cgf(s), s * epsilon[None]
        entropy = conversion_entropy(s)
        value = gain - cost - entropy + 4.0 * ULP * (xp.abs(gain) + xp.abs(cost) + entropy)
        # An infinite divergence says nothing; beside it only the cost is infinite.
        value = xp.where(xp.isinf(cost) & ~xp.isnan(gain), -cost, value)
        return xp.where(gain == xp.inf, xp.inf, value)

    return xp.minimum(zoom(bound, *_log_orders(epsilon.shape))[1], 0.0)


def _log_orders(shape: Shape) -> tuple[Reals, Reals]:
    """Ends of a search in log(order - 1), as arrays of a shape."""
    return xp.full(shape, -_LOG_REACH), xp.full(shape, _LOG_REACH)


def tradeoff_of_renyi(s: Reals, value: Reals, fpr: Reals) -> Reals:
    """The least fnr with D(p || q) and D(q || p) <= `value` at the orders 1 + `s`, rounded down.

    s >= 0; at s = 0 D is the Kullback-Leibler divergence. p and q are the laws of a test's answer,
    two points with p = 1 - fnr and q = fpr. `s` and `value` have one more axis than `fpr`, the
    orders. The rates that obey an order form a convex set that contains fnr = 1 - fpr, so that a
    bisection finds its edge. Relative error: 1e-10. NaN in, NaN out.
    """
    # A rate moved up only lowers the fnr that is left to it.
    rate = xp.maximum(fpr, checks.LEAST_NORMAL)[..., None]
    true_negative = 1.0 - fpr[..., None]
    log_q = xp.log(rate), log1m(fpr)[..., None]
    allowed = round_up(value, 4)

    def breaks_an_order(fnr: Reals) -> Bools:
        fnr = fnr[..., None]
        log_p, gap = (log1m(fnr), xp.log(fnr)), true_negative - fnr
        forward = (
            _log_ratio(gap / rate, log_p[0] - log_q[0]),
            _log_ratio(-gap / true_negative, log_p[1] - log_q[1]),
        )
        backward = -forward[0], -forward[1]
        divergence = xp.maximum(_divergence(s, log_p, forward), _divergence(s, log_q, backward))
        return xp.any(divergence > allowed, axis=-1)

    least_rate = xp.full_like(fpr, checks.LEAST_NORMAL)
    ends = least_rate, xp.maximum(1.0 - fpr, least_rate)
    fnr = bisect(breaks_an_order, *ends, geometric=True)[0]
    fnr = xp.where(fnr <= least_rate, 0.0, fnr)
    fnr = xp.where((fpr == 0) & xp.any(xp.isfinite(value), axis=-1), 1.0, fnr)
    return xp.where(xp.isnan(xp.sum(s + value, axis=-1) + fpr), xp.nan, fnr)


def _log_ratio(excess: Reals, difference: Reals) -> Reals:
    """log(1 + excess), where that is far from 0 as the difference of two logarithms."""
    near = xp.abs(excess) < 0.5
    return xp.where(near, log1p(xp.where(near, excess, 0.0)), difference)


def _divergence(s: Reals, logs: tuple[Reals, Reals], losses: tuple[Reals, Reals]) -> Reals:
    """Divergence of order 1 + s of two points with log masses and losses, rounded down."""
    top = xp.maximum(xp.abs(losses[0]), xp.abs(losses[1]))
    near = s * top < 1.0
    low, high = xp.where(near, s, 0.0), xp.where(near, 1.0, s)
    first, second = (
        xp.exp(log) * loss * _mean_growth(low * loss)
        for log, loss in zip(logs, losses, strict=True)
    )
    mean = first + second
    small = mean * _mean_log(low * mean)
    large = xp.logaddexp(logs[0] + high * losses[0], logs[1] + high * losses[1]) / high
    rounding = xp.where(near, xp.abs(first) + xp.abs(second), 2.0 * top)
    return xp.where(near, small, large) - 32.0 * ULP * rounding


def _mean_growth(y: Reals) -> Reals:
    """(e^y - 1) / y."""
    return xp.where(y == 0, 1.0, xp.expm1(y) / xp.where(y == 0, 1.0, y))


def _mean_log(y: Reals) -> Reals:
    """log(1 + y) / y."""
    return xp.where(y == 0, 1.0, log1p(y) / xp.where(y == 0, 1.0, y))


# Orders at most. chosen: far enough from overflow
_LARGEST_ORDER = 1e300


@final
@pytree
class RDP(Guarantee):
    """The Renyi divergence of each `order` in [1, 1e300] is at most `value` nats, both ways round.

    The last axis holds the orders, axes before it are the batch; a number is one order. An
    infinite value says nothing of its order. Order 1 is the Kullback-Leibler divergence: it bounds
    the trade-off, and delta only by that. Bad input: `ValueError`, or NaN where traced.
    Source: Mironov, CSF 2017.
    """

    order: Reals
    value: Reals

    def __init__(self, order: ArrayLike, value: ArrayLike):
        order = xp.atleast_1d(checks.real("order", order, 1.0, _LARGEST_ORDER))
        value = xp.atleast_1d(checks.nonnegative("value", value))
        if value.shape[-1] not in (1, order.shape[-1]) or order.shape[-1] == 0:
            raise ValueError(
                f"value must hold one divergence for each of {order.shape[-1]} orders (at least "
                f"one) on its last axis, got shape {value.shape}"
            )
        order, value = xp.broadcast_arrays(order, value)
        assign(self, order=order, value=value)

    @property
    def shape(self) -> Shape:
        """The batch."""
        return xp.broadcast_shapes(self.order.shape, self.value.shape)[:-1]

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """The least over the orders of s (value - epsilon) - log(1 + s) - s log(1 + 1/s), or 0.

        s = order - 1; every real epsilon, in the batch's shape; rounded up. Each order gives a
        bound on the same delta, so the least one holds, whichever it is.
        Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
        """
        return _log_delta(self, checks.real("epsilon", epsilon))

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """The least fnr whose two-point test obeys every order held here, both ways round.

        (1 - fnr)^a fpr^(1 - a) + fnr^a (1 - fpr)^(1 - a) <= exp((a - 1) value) and the same with
        the two laws exchanged, by data processing. Rounded down. It uses that the divergences
        are bounded in both directions, as they are for a symmetric neighbouring relation.
        """
        return _tradeoff(self, checks.probability("fpr", fpr, lift=True))

    def composed(self, other: RDP) -> RDP:
        """The values add, order by order. The orders must be the same: `ValueError` if not."""
        orders = self.order.shape[-1], other.order.shape[-1]
        concrete = checks.all_concrete(self.order, other.order)
        if orders[0] != orders[1] or (
            concrete and np.any(np.asarray(self.order) != np.asarray(other.order))
        ):
            raise ValueError(f"order must be the same in both, got {self.order} and {other.order}")
        order, other_order, value, other_value = xp.broadcast_arrays(
            self.order, other.order, self.value, other.value
        )
        return RDP(order, xp.where(order == other_order, sum_up(value, other_value), xp.nan))

    def __rmul__(self, count: ArrayLike) -> RDP:
        count, value = xp.broadcast_arrays(checks.whole("count", count)[..., None], self.value)
        return RDP(self.order, repeated("value", count, value))

    def __truediv__(self, parts: ArrayLike) -> RDP:
        """One of `parts` equal parts: their divergences add up to these at most."""
        return RDP(self.order, part_of(self.value, checks.whole("parts", parts, 1.0)[..., None]))


def _guarded(guarantee: RDP, argument: Reals) -> tuple[Reals, Reals, Reals]:
    """s, the values and the argument, all in one shape with the orders last."""
    order, value, argument = xp.broadcast_arrays(
        guarantee.order, checks.guard(guarantee.value), argument[..., None]
    )
    s = xp.where((order >= 1) & (order <= _LARGEST_ORDER), order - 1.0, xp.nan)
    return s, value, argument


@jitted
def _log_delta(guarantee: RDP, epsilon: Reals) -> Reals:
    s, value, epsilon = _guarded(guarantee, epsilon)
    first, gap = s == 0, value - epsilon  # of order 1 the bound is 1
    gain = xp.where(first & ~xp.isnan(gap), 0.0, s * gap)
    entropy = conversion_entropy(s)
    bound = gain - entropy + 16.0 * ULP * (xp.abs(gain) + entropy)
    # An infinite gain has an infinite error of the other sign.
    bound = xp.where(xp.isinf(gain), gain, bound)
    bound = xp.where(xp.isinf(value) & ~xp.isnan(s + epsilon), 0.0, bound)
    return xp.minimum(xp.min(bound, axis=-1), 0.0)


@jitted
def _tradeoff(guarantee: RDP, fpr: Reals) -> Reals:
    s, value, rate = _guarded(guarantee, fpr)
    return tradeoff_of_renyi(s, value, rate[..., 0])


@in_float64
def largest_zcdp(budget: BudgetLike) -> ZCDP:
    """The largest rho whose zero-concentrated guarantee satisfies a budget.

    Args:
        budget: a `Budget` or (epsilon, delta), epsilon in nats; batched.

    Returns:
        A `ZCDP` with xi = 0, rho rounded down by a few ulps. rho = 0 (infinite noise) if nothing in
        (1e-300, 1e15) is feasible, as at delta = 0.

    The delta of a rho is the bound of Canonne, Kamath & Steinke (NeurIPS 2020, proposition 12).
    Discrete Gaussians, which have no mu, share such a budget; for Gaussians alone `largest_gdp`
    allows less noise.

    >>> import jaxdp as dp
    >>> print(f"{dp.largest_zcdp((1.0, 1e-6)).rho:.5f}")
    0.02436
    """
    return _largest(as_budget(budget))


@jitted
def _largest(budget: Budget) -> ZCDP:
    def log_delta(rho: Reals, epsilon: Reals) -> Reals:
        return ZCDP(xp.zeros_like(rho), rho).log_delta(epsilon)

    rho = largest_within(log_delta, budget.epsilon, budget.delta)
    return ZCDP(xp.zeros_like(rho), rho)
