"""Chernoff's bound on epsilon from the whole law: the bound of all Renyi orders, at the best order.

With theta the order less 1, K the cumulants of all releases, and delta reduced by the probability
outside the nodes,

    epsilon <= (K(theta) - log(1 + theta) - theta log(1 + 1 / theta) - log delta) / theta.

Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
"""

from __future__ import annotations

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp.accountant.contour_plan import best_tilt
from jaxdp.accountant.factors import cumulant_errors, cumulants, factors_of
from jaxdp.accountant.tables import Table

# log of the range of tilts searched. chosen: 1e15 releases, and losses of 1e-10
LOG_TILTS = (-23.0, 30.0)
# Rounds of the search, each between the neighbours of the best tilt. chosen: resolves 2e-6
ROUNDS = 7


def epsilon_of(table: Table, delta: Reals) -> Reals:
    """A bound on the least epsilon >= 0 of one lane; infinite where there is none. No derivative.

    K comes from two quadrature rules; three times their difference is added to it.
    """
    table, delta = lax.stop_gradient((table, delta))
    factors = factors_of(table)
    finite_delta = delta + xp.expm1(factors.log_finite) - xp.exp(factors.log_left_out)
    log_finite_delta = xp.log(xp.where(finite_delta > 0, finite_delta, 1.0))

    def bound(tilts: Reals) -> Reals:
        values = cumulants(factors, tilts) + cumulant_errors(factors, tilts)
        return (values - conversion_entropy(tilts) - log_finite_delta) / tilts

    least = best_tilt(bound, ROUNDS, LOG_TILTS)[1]
    upper = xp.minimum(xp.maximum(least, 0.0), table.total(table.largest))
    return xp.where((finite_delta > 0) & xp.isfinite(least), upper, xp.inf)
