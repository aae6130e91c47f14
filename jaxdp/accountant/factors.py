"""The factors of a composition's moment generating function, as nodes: what a contour is run on.

M(z) = e^(v z (z + 1) / 2) prod_f phi_f(z)^(n_f), phi_f(z) = sum_j w_j e^(z l_j) over the nodes of
one release and v the summed mu^2 of all Gaussians that are not sampled.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Reals
from jaxdp.accountant.composition import Terms, is_gaussian, ratios_of
from jaxdp.dominating_pair.base import Law
from jaxdp.noise.nodes import DEPTH

# Nodes lighter than this in logarithms count for nothing. chosen: e^-700 is a normal number.
_NO_MASS = -690.0


class Factor(NamedTuple):
    """Releases of one kind: nodes (n, J) and their counts (n,)."""

    law: Law
    releases: Reals


class Factors(NamedTuple):
    """One composition in one lane."""

    parts: tuple[Factor, ...]
    variance: Reals


def factors_of(terms: Terms) -> Factors:
    """Of terms with the shape (n,): one lane."""
    # XLA takes long chains of operations on what is broadcast for a stuck rewrite.
    terms = lax.optimization_barrier(terms)
    variance, parts = jnp.zeros(()), []
    for term in terms:
        if is_gaussian(term):
            variance += jnp.sum(ratios_of(term) ** 2 * term.count)
        else:
            parts.append(Factor(term.pair.law(), term.count))
    return Factors(tuple(parts), variance)


def over_releases(factors: Factors, start: Any, value: Any) -> Any:
    """start + the sum over the releases f of value(factor f), a tree of arrays like `start`.

    value(factor) has the parameters of one release; a count of 0 adds nothing.
    """
    total = start

    def add(total: Any, factor: Factor) -> tuple[Any, None]:
        each = value(factor)
        none = factor.releases == 0
        return jax.tree.map(lambda a, b: a + jnp.where(none, 0.0, b), total, each), None

    for part in factors.parts:
        total = lax.scan(jax.checkpoint(add), total, part)[0]
    return total


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


def log_out_of_reach(factors: Factors) -> Reals:
    """log of a bound on the probability that any noise lies beyond the last node."""
    releases = over_releases(factors, jnp.zeros(()), lambda f: f.releases)
    return jnp.log(2.0 * jnp.maximum(releases, 1.0)) - DEPTH
