"""Factors of a composition's moment generating function, from the nodes of each release's law.

    M(z) = P[L < inf] e^(v z (z + 1) / 2) prod_f phi_f(z)^(n_f),   phi_f(z) = sum_j w_j e^(z l_j)

The sum runs over the nodes of one release; the masses w_j are conditional on a finite loss. v is
the summed mu^2 of all Gaussians that are not sampled. log phi(z) = log1p(sum_j w_j (e^(z l_j) - 1))
keeps the digits of small losses, also in powers n_f of 1e6 and more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxdp._core.functions import logsumexp, softmax
from jaxdp._core.namespace import checkpoint, lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import ULP, log1p
from jaxdp.accountant.tables import Table
from jaxdp.dominating_pair.base import MASS_ERROR, Law

# log of the least mass of a node that counts. chosen: e^-700 is a normal number
_NO_MASS = -690.0


class Factor(NamedTuple):
    """Releases of one pair: nodes (J,) and the number of releases."""

    law: Law
    releases: Reals
    hit: Reals  # probability that a release touches the record
    mass_gap: Reals  # difference of the masses of both rules, beyond rounding

    def by_check(self) -> Factor:
        """The factor with the nodes of the second rule."""
        loss, log_mass = self.law.check
        return self._replace(law=self.law._replace(loss=loss, log_mass=log_mass))


class Factors(NamedTuple):
    """One composition in one lane: factors (F,)."""

    each: Factor
    variance: Reals
    log_finite: Reals  # log of the probability that every loss is finite
    log_left_out: Reals  # log of the probability that some loss lies at no node
    used: Index | int  # number of factors up to the last one with releases


def factors_of(table: Table, used_factors: Index | None = None) -> Factors:
    """Factors of a table in one lane; Gaussians that are not sampled add to the variance.

    `used_factors` is taken over all lanes of a batch, so that each lane's loop has the same length.
    """
    numbers = xp.where(table.variance > 0, 0.0, table.number)
    log_left_out = xp.where(numbers == 0, -xp.inf, xp.log(numbers) + table.law.log_left_out)
    left_out = lax.stop_gradient(logsumexp(log_left_out))
    loss, log_mass = table.law.check
    first, check = _total(table.law.log_mass), _total(log_mass)
    gap = lax.stop_gradient(xp.abs(xp.exp(first) - xp.exp(check))[..., 0])
    gap = xp.where(gap > MASS_ERROR, gap, 0.0)
    # Only losses and masses carry derivatives: an error's reverse derivative would be 0 times inf.
    fixed_law = lax.stop_gradient(table.law._replace(check=(loss, log_mass - check)))
    law = fixed_law._replace(loss=table.law.loss, log_mass=table.law.log_mass - first)
    hit = xp.where(table.log_missed > -xp.inf, -xp.expm1(table.log_missed), 1.0)
    factor = Factor(law, numbers, *lax.stop_gradient((hit, gap)))
    used_factors = used_in(table) if used_factors is None else used_factors
    return Factors(
        factor, table.total(table.variance), table.total(table.log_finite), left_out, used_factors
    )


def used_in(table: Table) -> Index:
    """One more than the last place at which some lane has releases."""
    is_used = table.number != 0  # true for NaN
    places = xp.where(is_used, 1 + xp.arange(is_used.shape[-1]), 0)
    return xp.max(places)


def _total(log_mass: Reals) -> Reals:
    """log of the sum of the masses; 0 if there are none."""
    total = logsumexp(log_mass, axis=-1, keepdims=True)
    return xp.where(total == -xp.inf, 0.0, total)


def over_releases(factors: Factors, start: Any, value: Callable[[Factor], Any]) -> Any:
    """start + the sum of value(factor) over the factors, a tree of arrays like `start`."""

    def add(index: Index | int, total: Any) -> Any:
        factor = jax.tree.map(lambda x: x[index], factors.each)
        is_unused = factor.releases == 0
        return jax.tree.map(lambda a, b: a + xp.where(is_unused, 0.0, b), total, value(factor))

    return lax.fori_loop(0, factors.used, add, start)


def over_all(factors: Factors, start: Any, value: Callable[[Factor], Any]) -> Any:
    """`over_releases` with derivatives, which needs a loop of fixed length."""

    def add(total: Any, factor: Factor) -> tuple[Any, None]:
        is_unused = factor.releases == 0
        summand = value(factor)
        return jax.tree.map(lambda a, b: a + xp.where(is_unused, 0.0, b), total, summand), None

    return lax.scan(checkpoint(add), start, factors.each)[0]


def log_phi(law: Law, tilts: Reals) -> Reals:
    """log phi of one release at real tilts (T,)."""
    exponent = tilts[:, None] * law.loss[None]
    log_growth = law.log_mass[None] + xp.maximum(exponent, 0.0)
    log_scale = lax.stop_gradient(xp.maximum(xp.max(log_growth, axis=-1), 0.0))
    sizes = xp.exp(log_growth - log_scale[:, None]) * -xp.expm1(-xp.abs(exponent))
    excess = xp.sum(xp.where(exponent < 0, -sizes, sizes), axis=-1)
    is_large = log_scale > 0
    by_excess = log1p(xp.where(is_large, 0.0, excess))
    by_scale = log_scale + xp.log(xp.where(is_large, excess + xp.exp(-log_scale), 1.0))
    return xp.where(is_large, by_scale, by_excess)


def cumulants(factors: Factors, tilts: Reals, loop: Callable[..., Any] = over_releases) -> Reals:
    """K = log M at real tilts (T,)."""
    start = factors.log_finite + 0.5 * factors.variance * tilts * (tilts + 1.0)
    return loop(factors, start, lambda f: f.releases * log_phi(f.law, tilts))


def cumulant_errors(factors: Factors, tilts: Reals) -> Reals:
    """Errors of K at tilts (T,): rounding, and three times the difference of both rules."""

    def error_of(factor: Factor) -> Reals:
        law, check = factor.law, factor.by_check().law
        value, check_value = log_phi(law, tilts), log_phi(check, tilts)
        heavy = law.log_mass > _NO_MASS
        log_mass = xp.where(heavy, law.log_mass, -xp.inf)
        tilted_mass = xp.exp(log_mass[None] + tilts[:, None] * law.loss[None] - value[:, None])
        mass = tilted_mass + xp.exp(log_mass)[None]
        rounded = tilts * (mass @ xp.where(heavy, rounding_of_nodes(factor), 0.0))
        return factor.releases * (rounded + 3.0 * (xp.abs(value - check_value) + factor.mass_gap))

    return over_releases(factors, xp.full_like(tilts, 64.0 * ULP), error_of)


def tilted(law: Law, tilt: Reals) -> tuple[Reals, Reals]:
    """Normalised masses of one release's nodes (J,) under e^(tilt L), and their mean loss."""
    exponent = law.log_mass + tilt * law.loss
    weight = softmax(xp.where(law.log_mass > _NO_MASS, exponent, -xp.inf))
    return weight, lax.stop_gradient(xp.sum(weight * law.loss))


def rounding_of_nodes(factor: Factor) -> Reals:
    """Rounding error of each node's e^(i t l) per unit of t: of losses, masses and products.

    A loss has an error of some ULP of itself and of the probability of a hit, times 1 + |log mass|,
    since it comes from logarithms of densities.
    """
    law = factor.law
    return 16.0 * ULP * (xp.abs(law.loss) + factor.hit) * (1.0 + xp.abs(law.log_mass))
