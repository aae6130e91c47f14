"""Chernoff's bound on epsilon from the whole law: that of all Renyi orders, at its best order.

With theta the order less 1, K the cumulants of all releases and delta less what no node stands for,

    epsilon <= (K(theta) - log(1 + theta) - theta log(1 + 1 / theta) - log delta) / theta.

Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Index, Reals
from jaxdp.accountant.contour_plan import log_most
from jaxdp.accountant.factors import (
    cumulants,
    factors_of,
    over_releases,
    rounding_of,
)
from jaxdp.accountant.tables import Table

# log of the tilts between which the best is sought. chosen: 1e15 releases, and losses of 1e-10
LOG_TILTS = (-23.0, 30.0)
# Tilts that are tried at once, each time between the neighbours of the best. chosen: 2e-6 is left
TRIED = 25
ROUNDS = 7


def epsilon_of(table: Table, delta: Reals) -> Reals:
    """A bound on the least epsilon >= 0 of one lane; infinite where there is none. No derivative.

    Two rules give K, and three times their gap is added to it.
    """
    table, delta = lax.stop_gradient((table, delta))
    factors = factors_of(table)
    loss, log_mass = factors.each.law.check
    law = factors.each.law._replace(loss=loss, log_mass=log_mass)
    again = factors._replace(each=factors.each._replace(law=law))
    left = delta + jnp.expm1(table.total(table.log_finite)) - jnp.exp(factors.log_left_out)
    log_left = jnp.log(jnp.where(left > 0, left, 1.0))

    def narrow(_: Index | int, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        low, high, least, best = state
        tried = jnp.linspace(low, high, TRIED)
        tilts = jnp.exp(tried)
        values, others = cumulants(factors, tilts), cumulants(again, tilts)
        each = values + 3.0 * jnp.abs(values - others) + log_most(tilts) - log_left
        each = jnp.where(jnp.isfinite(each), each / tilts, jnp.inf)
        at = jnp.argmin(each)
        less = each[at] < least
        ends = tried[jnp.maximum(at - 1, 0)], tried[jnp.minimum(at + 1, TRIED - 1)]
        return *ends, jnp.where(less, each[at], least), jnp.where(less, tilts[at], best)

    start = (*(jnp.asarray(x) for x in LOG_TILTS), jnp.asarray(jnp.inf), jnp.ones(()))
    least, best = lax.fori_loop(0, ROUNDS, narrow, start)[2:]
    rounded = over_releases(
        factors, jnp.zeros(()), lambda factor: factor.releases * rounding_of(factor.law, best)
    )
    bound = jnp.minimum(jnp.maximum(least, 0.0) + rounded / best, table.total(table.largest))
    return jnp.where((left > 0) & jnp.isfinite(least), bound, jnp.inf)
