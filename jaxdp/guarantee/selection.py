"""Tuning: the best result of a random number of runs of a mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import product_up, quotient_up, sum_up
from jaxdp._numeric.elementary import round_up
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.conversions import HasRenyi, to_rdp
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.guarantee.renyi import RDP

# Renyi orders by default. chosen: twice as many change epsilon by .1 %
_ORDERS = 200


@in_float64
def repeat_and_select(
    each: Any,
    *,
    gamma: ArrayLike | None = None,
    eta: ArrayLike = 1.0,
    mean: ArrayLike | None = None,
    order: ArrayLike | None = None,
) -> RDP | PureDP:
    """Guarantee of the best of K runs of a mechanism, K drawn at random and not published.

    Args:
        each: the privacy loss, the mechanism or a guarantee of one run.
        gamma, eta: K is truncated negative binomial on 1, 2, ..: gamma in (0, 1], eta > -1;
            eta = 1 is geometric of mean 1 / gamma, eta = 0 logarithmic. gamma = 1 is one run.
        mean: instead, K is Poisson with this mean, and where it is 0 nothing is released.
        order: of the Renyi divergences; those of an `RDP`, else by default 200 from 1.01 to 1001.

    Returns:
        With gamma the `PureDP` of (2 + eta) epsilon of a `PureDP`, else an RDP. With m = E[K] and
        any order b of `each`

            eps'(a) <= eps(a) + (1 + eta) ((1 - 1/b) eps(b) + log(1/gamma) / b) + log(m) / (a - 1),

        or, Poisson, eps(a) + m delta + log(m) / (a - 1), with delta of `each` at log(a / (a - 1)):
        of a privacy loss the exact delta, which is smaller than what follows from an RDP.

    Divergences rise with the order, so each order gets the least value of all orders from it on
    (Poisson: order 1 alone). The selection must depend on the results alone, and each run must draw
    its setting independently from one distribution. Source: Papernot & Steinke, ICLR 2022.

    >>> import jaxdp as dp
    >>> best = dp.repeat_and_select(dp.GDP(0.3), gamma=0.05)
    >>> print(f"{dp.GDP(0.3).epsilon(1e-6):.3f} {best.epsilon(1e-6):.3f}")
    1.292 2.950
    """
    if (gamma is None) == (mean is None):
        raise ValueError(f"give either gamma or mean, got gamma={gamma}, mean={mean}")
    if isinstance(each, PureDP) and mean is None:
        return _pure(each, gamma, eta)
    order, value = _divergences_of(each, order)
    excess = xp.where(order > 1, order - 1.0, 1.0)
    is_one_run = None
    if mean is not None:
        expected = checks.positive("mean", mean)[..., None]
        delta = each.delta(xp.moveaxis(xp.log1p(1.0 / excess) + 0.0 * value, -1, 0))
        cost = expected * xp.moveaxis(delta, 0, -1)
    else:
        share, shape = _parameters(gamma, eta)
        is_one_run = share == 1
        log_share = xp.where(is_one_run, -1.0, xp.log(share))
        expected = _mean_of(log_share, shape)
        each_order = (1.0 - 1.0 / order) * value - log_share / order
        cost = (1.0 + shape) * xp.min(each_order, axis=-1, keepdims=True)
    total = value + cost + xp.maximum(xp.log(expected), 0.0) / excess
    total = round_up(xp.where(order > 1, total, xp.inf), 64)
    least = _least_of_higher_orders(order, total)
    if is_one_run is None:
        return RDP(order, xp.where(order > 1, total, least))
    return RDP(order, xp.where(is_one_run, value, least))


def _pure(each: PureDP, gamma: ArrayLike | None, eta: ArrayLike) -> PureDP:
    share, shape = (x[..., 0] for x in _parameters(gamma, eta))
    runs = xp.where(share == 1, 1.0, 2.0 + shape)
    return PureDP(round_up(runs * each.epsilon_bound, 4))


def _divergences_of(each: Any, order: ArrayLike | None) -> tuple[Reals, Reals]:
    """Orders and divergences of one run."""
    if isinstance(each, ApproxDP) or not isinstance(each, Guarantee | HasRenyi):
        raise ValueError(
            "each must be a privacy loss, a mechanism or a guarantee that has Renyi divergences, "
            f"got {type(each).__name__}"
        )
    if order is None:
        order = each.order if isinstance(each, RDP) else 1.0 + np.geomspace(0.01, 1e3, _ORDERS)
    rdp = to_rdp(each, order)
    return rdp.order, rdp.value


def _least_of_higher_orders(order: Reals, value: Reals) -> Reals:
    """For each order the least value of the orders that are not below it."""
    order, value = xp.broadcast_arrays(order, value)
    is_higher = order[..., None, :] >= order[..., :, None]
    return xp.min(xp.where(is_higher, value[..., None, :], xp.inf), axis=-1)


def _parameters(gamma: ArrayLike | None, eta: ArrayLike) -> tuple[Reals, Reals]:
    assert gamma is not None
    share = checks.real("gamma", gamma, 0.0, 1.0, open_lower=True)
    return share[..., None], checks.real("eta", eta, -1.0, 1e6, open_lower=True)[..., None]


def _mean_of(log_gamma: Reals, eta: Reals) -> Reals:
    """E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)), its limit at eta = 0."""
    tiny = xp.abs(eta) < 1e-9
    safe = xp.where(tiny, 1.0, eta)
    ratio = xp.where(tiny, -1.0 / log_gamma, -safe / xp.expm1(safe * log_gamma))
    # Near eta = 0 the ratio is off by less than |eta log gamma| of itself, which is added.
    near = xp.where(tiny, xp.abs(eta) * (1.0 - log_gamma), 0.0)
    return ratio * xp.expm1(-log_gamma) * (1.0 + near)


@in_float64
def above_threshold(
    sensitivity: ArrayLike,
    *,
    threshold_scale: ArrayLike,
    query_scale: ArrayLike,
    answers: int = 1,
) -> PureDP:
    """Pure guarantee of AboveThreshold: which of a stream of queries exceed a noisy threshold.

    Args:
        sensitivity: of every query, D.
        threshold_scale: of the Laplace noise on the threshold, drawn once, D / eps1.
        query_scale: of fresh Laplace noise on every query, 2 c D / eps2.
        answers: queries that are reported above, c at most; then it stops.

    Returns:
        PureDP(eps1 + eps2), eps1 = D / threshold_scale, eps2 = 2 c D / query_scale, rounded up and
        exact where no operation rounds: however many queries are below.

    It holds if nothing but "above" or "below" is published (no noisy value: that is another
    release), every query gets fresh noise, and the queries, which may be chosen adaptively, are
    fixed before their noise. Where adding a record moves all queries in one direction eps2 may be
    halved, which is not done here. Source: Lyu, Su & Li, VLDB 2017, theorem 4 and algorithm 1.

    >>> import jaxdp as dp
    >>> print(dp.above_threshold(1.0, threshold_scale=4.0, query_scale=8.0).epsilon_bound)
    0.5
    """
    shift = checks.nonnegative("sensitivity", sensitivity)
    count = checks.positive_integer("answers", answers)
    threshold = checks.positive("threshold_scale", threshold_scale)
    query = checks.positive("query_scale", query_scale)
    return PureDP(_epsilon_above(shift, threshold, query, 2.0 * count))


@jitted
def _epsilon_above(shift: Reals, threshold: Reals, query: Reals, count: Reals | float) -> Reals:
    """shift / threshold + count shift / query, rounded up."""
    of_queries = product_up(xp.asarray(count), quotient_up(shift, query))
    return sum_up(quotient_up(shift, threshold), of_queries)
