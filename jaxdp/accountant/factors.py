"""The factors of a composition's moment generating function, as nodes: what a contour is run on.

M(z) = e^(v z (z + 1) / 2) prod_f phi_f(z)^(n_f), phi_f(z) = sum_j w_j e^(z l_j) over the nodes of
one release and v the summed mu^2 of all Gaussians that are not sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.tables import Table
from jaxdp.dominating_pair.base import Law

# Nodes lighter than this in logarithms count for nothing. chosen: e^-700 is a normal number.
_NO_MASS = -690.0


class Factor(NamedTuple):
    """Releases of one pair: nodes (J,) and how many there are."""

    law: Law
    releases: Reals


class Factors(NamedTuple):
    """One composition in one lane: factors (F,)."""

    each: Factor
    variance: Reals
    log_left_out: Reals  # of the probability that the loss of one of them is at no node


def factors_of(table: Table) -> Factors:
    """Factors of a table in one lane; Gaussians that are not sampled are the variance."""
    others = jnp.where(table.variance > 0, 0.0, table.number)
    each = jnp.where(others == 0, -jnp.inf, jnp.log(others) + table.law.log_left_out)
    left_out = lax.stop_gradient(jax.nn.logsumexp(each))
    return Factors(Factor(table.law, others), table.total(table.variance), left_out)


def over_releases(factors: Factors, start: Any, value: Callable[[Factor], Any]) -> Any:
    """start + the sum of value(factor) over the factors, a tree of arrays like `start`.

    A factor of no release is not looked at.
    """

    def add(total: Any, factor: Factor) -> tuple[Any, None]:
        def more(factor: Factor) -> Any:
            return jax.tree.map(jnp.add, total, value(factor))

        return lax.cond(factor.releases == 0, lambda _: total, more, factor), None

    return lax.scan(jax.checkpoint(add), start, factors.each)[0]


def cumulants(factors: Factors, tilts: Reals) -> Reals:
    """K at real tilts (T,)."""

    def each(factor: Factor) -> Reals:
        exponent = factor.law.log_mass[None] + tilts[:, None] * factor.law.loss[None]
        return factor.releases * jax.nn.logsumexp(exponent, axis=-1)

    own = 0.5 * factors.variance * tilts * (tilts + 1.0)
    return over_releases(factors, own, each)


def tilted(law: Law, tilt: Reals) -> tuple[Reals, Reals]:
    """The normalised masses of one release's nodes (J,) under e^(tilt L), and their mean loss."""
    exponent = law.log_mass + tilt * law.loss
    weight = jax.nn.softmax(jnp.where(law.log_mass > _NO_MASS, exponent, -jnp.inf))
    return weight, lax.stop_gradient(jnp.sum(weight * law.loss))


def rounding_of(law: Law, tilt: Reals) -> Reals:
    """Error of one release's K at a tilt by rounding: of exponents, of their sum, and of nodes."""
    weight, _ = tilted(law, tilt)
    size = jnp.abs(law.loss) + jnp.abs(law.log_mass)
    each = jnp.sum(jnp.where(weight > 0, weight * size, 0.0))
    return ULP * (16.0 + 4.0 * (1.0 + tilt) * each)
