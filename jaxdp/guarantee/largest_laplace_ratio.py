"""The largest ratio of composed Laplaces by their sum."""

from __future__ import annotations

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, log1m, round_up
from jaxdp.guarantee.base import Budget

# Largest sum of shift / scale. chosen: as in `largest_gdp`
_LARGEST_RATIO = 1e15


def largest_laplace_ratio(budget: Budget) -> Reals:
    """The largest shift / scale of one Laplace: epsilon - 2 log(1 - delta), and at most 1e15.

    One shift by the sum of the ratios dominates their composition: for log-concave noise
    f_d1 (x) f_d2 >= f_(d1 + d2) (triangle inequality of trade-offs), so that delta is at most
    1 - exp((epsilon - sum) / 2), which lies below the i.n.i.d. paper's corollary 6,
    1 - exp(epsilon - sum). Rounded down so that the delta which `Laplace.log_delta` reports is
    inside the budget.
    """
    epsilon, delta = xp.broadcast_arrays(budget.epsilon, budget.delta)
    reported_ulps = 16.0 + 10.0 * xp.abs(xp.log(xp.where(delta == 0, 1.0, delta)))
    allowance = -2.0 * log1m(delta) * (1.0 - reported_ulps * ULP)
    return xp.minimum(round_up(epsilon + allowance, -8), _LARGEST_RATIO)
