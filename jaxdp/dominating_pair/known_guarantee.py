"""Worst pairs of a given guarantee: pure and approximate privacy, a bounded range.

Their compositions bound every adaptive composition of mechanisms that satisfy the guarantees.

Renyi divergences of a bounded range, of mechanisms whose losses differ by `bound` at most.

Identity: at a fixed t the worst loss in [t - bound, t] has the two values t and t - bound, since
e^(s L) is convex in e^-L, whose mean is 1. The largest of its cumulants over t is, in closed form,

    K(s) = (s + 1) l((s + 1) x) - s l(s x) - l(x), l(y) = log(sinh(y) / y), x = bound / 2.

K(s) is the integral of f''(u + v) over u in [0, s] and v in [0, 1], f(y) = y l(x y). f''(y) / y
falls, because l' is concave and l'' falls. So the divergence over its order falls as well, starting
from order 1, where it is l(x) + x coth(x) - 1 <= bound^2 / 8. These divergences compose adaptively
at every order, for any choice of t.

Sources: proofs ours; bound^2 / 8 from Cesar & Rogers, ALT 2021.
"""

from __future__ import annotations

import math
from typing import final

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import (
    ULP,
    horner,
    lifted,
    log1m,
    log1mexp,
    log1p,
    round_up,
    sinhc_excess,
)
from jaxdp.dominating_pair.base import LEAST_FINITE, Law, SymmetricPair, atoms, log_of_infinite
from jaxdp.guarantee.pure import (
    log_delta_of_approximate,
    log_delta_of_pure,
    log_delta_of_range,
)
from jaxdp.noise.nodes import panels
from jaxdp.noise.structure import Kinks, Lattice, Singularities

# Panels of the density of a bounded range. chosen: width 1 for a range of 30
_PANELS = 32
# Largest range with a summed density; wider ones have only infinite losses. measured: here the
# masses add up to 1 - 6e-12
_LARGEST_RANGE = 1e3
# Taylor coefficients of (y cosh(y) - sinh(y)) / y^3 in y^2. derived
_SLOPE = tuple(2.0 * k / math.factorial(2 * k + 1) for k in range(1, 16))
_NEAR = 2.0  # largest |y| of the series. derived: the 16th term is below an ulp


@final
@pytree
class Response(SymmetricPair):
    """The worst pair of (epsilon, delta)-DP: randomised response, or full disclosure.

    The loss is infinite with probability `failure`, else +-bound, with probability 1 / (1 +
    e^-bound) for +bound. Source: Kairouz, Oh & Viswanath, ICML 2015.
    """

    bound: Reals  # epsilon, nats
    failure: Reals  # delta

    def __init__(self, bound: ArrayLike, failure: ArrayLike):
        assign(
            self,
            bound=checks.nonnegative("bound", bound),
            failure=checks.probability("failure", failure),
        )

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """`ApproxDP.log_delta`; with failure 0, `PureDP.log_delta`."""
        epsilon = checks.real("epsilon", epsilon)
        bound, failure, epsilon = xp.broadcast_arrays(self.bound, self.failure, epsilon)
        bound, failure = checks.guard(bound), checks.guard(failure, 1.0)
        pure = log_delta_of_pure(bound, epsilon)
        with_failure = log_delta_of_approximate(bound, failure, epsilon)
        return xp.where(failure == 0, pure, with_failure)

    def law(self) -> Law:
        """Two atoms."""
        bound, failure = checks.guard(self.bound), checks.guard(self.failure, 1.0)
        bound, failure = xp.broadcast_arrays(bound, failure)
        log_finite = xp.maximum(log1m(failure), LEAST_FINITE)
        log_up = log_finite - log1p(xp.exp(-bound))
        endless = xp.isinf(bound)
        finite = xp.where(endless, 0.0, bound)
        log_infinite = log_of_infinite(xp.where(endless, LEAST_FINITE, log_finite))
        log_masses = xp.stack([log_up - finite, log_up], axis=-1)
        return atoms(
            xp.stack([-finite, finite], axis=-1),
            xp.where(endless[..., None], LEAST_FINITE, log_masses),
            log_infinite,
            finite,
        )

    def singularities(self) -> Singularities:
        """Odd multiples of `bound`."""
        unit = 2.0 * checks.guard(self.bound) + 0.0 * self.failure
        return Lattice(unit, xp.ones_like(unit))


@final
@in_float64
@pytree
class RandomisedResponse(SymmetricPair):
    """Randomised response: the truth has e^epsilon times the probability of each other category.

    The loss is +-epsilon if the answer is either input's category, and 0 otherwise. Source:
    Kairouz, Oh & Viswanath, JMLR 2016, section 4.
    """

    bound: Reals  # epsilon, nats
    categories: Reals

    def __init__(self, epsilon: ArrayLike, categories: ArrayLike):
        assign(
            self,
            bound=checks.nonnegative("epsilon", epsilon),
            categories=checks.whole("categories", categories, 2.0),
        )

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of (e^b - e^epsilon)_+ / (e^b + k - 1), plus the share of loss 0 if epsilon < 0."""
        epsilon = checks.real("epsilon", epsilon)
        log_up, level = self._log_masses()
        b = checks.guard(self.bound)
        above = xp.minimum(log_up + _log_gap(b - epsilon), 0.0)
        middle = level + _log_gap(-epsilon)
        below = log_up - b + _log_gap(-b - epsilon)
        total = xp.logaddexp(xp.logaddexp(above, middle), below)
        total = xp.where(xp.isnan(epsilon), xp.nan, total)
        return xp.minimum(round_up(total, 16) + 1e-15, 0.0)

    def law(self) -> Law:
        """Three atoms."""
        log_up, level = self._log_masses()
        b = xp.broadcast_to(checks.guard(self.bound), log_up.shape)
        losses = xp.stack([-b, xp.zeros_like(b), b], axis=-1)
        masses = xp.stack([log_up - b, level, log_up], axis=-1)
        return atoms(losses, masses, xp.full_like(b, -xp.inf), b)

    def singularities(self) -> Singularities:
        """Multiples of epsilon."""
        unit = checks.guard(self.bound) + 0.0 * self.categories
        return Lattice(unit, xp.zeros_like(unit))

    def _log_masses(self) -> tuple[Reals, Reals]:
        """log probabilities of the losses b and 0."""
        b, k = xp.broadcast_arrays(checks.guard(self.bound), self.categories)
        log_total = b + log1p((k - 1.0) * xp.exp(-b))
        return b - log_total, xp.log(k - 2.0) - log_total


@final
@pytree
class BoundedRange(SymmetricPair):
    """The worst pair of a mechanism of bounded range b: loss density ~ e^(l / 2), |l| <= b.

    Bounded range: the losses of two outputs differ by b at most, as in the exponential mechanism.
    The largest profile of the pairs of losses t and t - b over 0 <= t <= b is

        delta(e) = (e^(b / 2) - e^(e / 2))^2 / (e^b - 1),   |e| <= b.

    It is convex in e^e, and so the profile of the density e^((b + l) / 2) / (2 (e^b - 1)). t can be
    chosen anew at every step.

    Source: Durfee & Rogers, NeurIPS 2019; Dong, Durfee & Rogers, ICML 2020.
    """

    bound: Reals

    def __init__(self, bound: ArrayLike):
        assign(self, bound=checks.nonnegative("bound", bound))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of (e^(b / 2) - e^(e / 2))^2 / (e^b - 1) at |e| <= b; 0 above, 1 - e^e below."""
        bound, epsilon = xp.broadcast_arrays(
            checks.guard(self.bound), checks.real("epsilon", epsilon)
        )
        return log_delta_of_range(bound, epsilon)

    def law(self) -> Law:
        """Gauss-Legendre on panels of [-b, b]."""
        bound = checks.guard(self.bound)
        endless = bound > _LARGEST_RANGE
        has_range = (bound > 0) & ~endless
        b = xp.where(has_range, bound, 1.0)
        nodes = panels((-b, b), each=_PANELS)
        b, has_range = b[..., None], has_range[..., None]
        log_density = 0.5 * (nodes.x - b) - math.log(2.0) - xp.log(-xp.expm1(-b))
        log_mass = log_density + xp.log(nodes.weight)
        log_mass = xp.where(endless[..., None], LEAST_FINITE, log_mass)
        loss = xp.where(has_range, nodes.x, 0.0)
        log_density = xp.where(has_range, log_density, xp.inf)
        log_infinite = xp.where(endless, 0.0, xp.where(xp.isnan(bound), xp.nan, -xp.inf))
        first = nodes.first
        return Law(
            loss[..., :first],
            log_mass[..., :first],
            log_density[..., :first],
            (loss[..., first:], log_mass[..., first:]),
            xp.full_like(bound, -xp.inf),
            log_infinite,
            bound,
        )

    def singularities(self) -> Singularities:
        """A density that ends at +-b."""
        return Kinks((xp.full_like(self.bound, xp.nan),))

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence of the worst fixed pair of losses t, t - b; smaller than this pair's."""
        return renyi_of_range(self.bound, checks.real("order", order, 1.0))


def _log_gap(gap: Reals) -> Reals:
    """log(1 - e^-gap) for gap > 0, else -inf."""
    positive = gap > 0
    return xp.where(positive, xp.log(-xp.expm1(-xp.where(positive, gap, 1.0))), -xp.inf)


@jitted
def renyi_of_range(bound: Reals, order: Reals) -> Reals:
    """Renyi divergence K(s) / s of a bounded range, with s = order - 1 >= 0.

    It is `rho_of_range` at order 1 and the bound at infinity. It is at most order * `rho_of_range`
    and at most the bound. Rounded up by at most 1e-14 max(s, 1 / s) of K, and 1e-7 if s < 1. NaN
    for a bad bound.
    """
    bound, order = xp.broadcast_arrays(checks.guard(bound), order)
    inside, endless = (order > 1) & (order < xp.inf), xp.isinf(bound)
    s, x = xp.where(inside, order - 1.0, 1.0), xp.where(endless, 0.5, 0.5 * bound)
    grown = (s + 1.0) * _log_sinhc((s + 1.0) * x)
    value = grown - s * _log_sinhc(s * x) - _log_sinhc(x) + 16.0 * ULP * grown
    rho = rho_of_range(bound)
    limit = round_up(xp.minimum(s * ((s + 1.0) * rho), s * bound), 4)
    value = xp.minimum(xp.where(xp.isfinite(grown), value, xp.inf), limit) / s
    value = xp.where(order == 1, rho, xp.where(inside & ~endless, value, bound))
    return lifted(xp.where(xp.isnan(order), xp.nan, value), bound > 0)


@jitted
def rho_of_range(bound: Reals) -> Reals:
    """l(x) + x coth(x) - 1, x = bound / 2: the least rho of zCDP with xi = 0, rounded up."""
    bound = checks.guard(bound)
    x = xp.where(xp.isinf(bound), 1.0, 0.5 * bound)
    near = x <= _NEAR
    low, high = xp.where(near, x, 0.0), xp.where(near, 1.0, x)
    square = low * low
    slope = square * horner(_SLOPE, square) / (1.0 + sinhc_excess(low))
    slope = xp.where(near, slope, high * (1.0 + 2.0 / xp.expm1(2.0 * high)) - 1.0)
    rho = lifted(round_up(_log_sinhc(x) + slope, 16), bound > 0)
    return xp.where(xp.isinf(bound), xp.inf, rho)


def _log_sinhc(y: Reals) -> Reals:
    """log(sinh(y) / y), y >= 0. Relative error: 8 ulp."""
    near = y <= _NEAR
    low, high = xp.where(near, y, 0.0), xp.where(near, _NEAR, y)
    far = high + log1mexp(2.0 * high) - xp.log(2.0 * high)
    return xp.where(near, log1p(sinhc_excess(low)), far)
