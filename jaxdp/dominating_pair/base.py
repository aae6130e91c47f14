"""The protocol of a dominating pair: two laws P and Q that dominate all pairs of neighbours.

The privacy loss is L = log dP / dQ under P. Compositions of pairs bound compositions of the
mechanisms that they dominate, adaptive ones included (Zhu, Dong & Wang, AISTATS 2022).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import logsumexp, xp
from jaxdp._core.types import ArrayLike, Bools, Reals
from jaxdp._numeric.elementary import (
    ULP,
    expm1_minus,
    lifted,
    log1m,
    log1mexp,
    log1p,
    log_probability,
    round_up,
)
from jaxdp.noise.nodes import LEFT_OUT, Nodes
from jaxdp.noise.structure import Lattice, Singularities
from jaxdp.noise.truncated_laplace import LEAST_FINITE

# Tolerance of a law's total mass. measured: rounding makes 4e-13 of the package's own
MASS_ERROR = 1e-11
# Tolerance of a loss's distance to its lattice, over 1 + its size. measured: 3e-13 of our own pairs
LATTICE_ERROR = 1e-12
# Least order - 1; smaller ones use its divergence. chosen: K / s keeps its digits
LEAST_EXCESS = 2.0**-30
# Difference of a moment by both rules, up to which it is resolved. chosen: above their rounding
RESOLVED = 1e-11
# Largest exponent of a term with a mass beside it. derived: below the logarithm of any overflow
_LARGEST_EXPONENT = 650.0
# Relative error of a term. derived: a few ulps of the exponents of loss and mass
_TERM_ERROR = 4.0 * _LARGEST_EXPONENT * ULP
# Higher orders for the bound on the left-out moment, over the order. chosen: octaves
_HIGHER = (1.5, 2.0, 4.0, 8.0, 16.0)


class Law(NamedTuple):
    """The privacy loss of one release as nodes: quadrature of its density, and its atoms.

    Nodes lie along a last axis in the order of the outputs that make them.
    """

    loss: Reals  # finite losses
    log_mass: Reals  # under P; -inf for no mass
    log_density: Reals  # of the loss under P; inf at atoms
    check: tuple[Reals, Reals]  # losses and log masses of a second rule with other nodes
    log_left_out: Reals  # log of the probability outside the nodes, without their axis
    log_infinite: Reals  # log P[L = inf], without the axis of nodes
    largest: Reals  # upper bound on finite losses, without the axis of nodes


class Support(NamedTuple):
    """Upper end of the loss of one release."""

    largest: Reals  # upper bound on finite losses
    log_infinite: Reals  # log P[L = inf]


class Mixture(NamedTuple):
    """sum_i s_i N(m_i, 1) against N(0, 1), exchanged where `added` is 1; `share` of the releases.

    Arrays of the pair's shape, with components along a last axis.
    """

    mean: Reals  # m_i >= 0, without the component of mean 0
    probability: Reals  # s_i
    missed: Reals  # probability of the component of mean 0
    step: Reals  # the m_i are multiples of it
    added: Reals
    share: Reals  # probability with which a public coin selects this mixture


@in_float64
class DominatingPair(abc.ABC):
    """A pair of laws, as arrays of one shape; the engines use only these members.

    A final subclass is a pytree of arrays. Bad concrete values raise in the constructor; bad traced
    values give NaN.
    """

    def __init_subclass__(cls) -> None:
        in_float64(cls)

    @abc.abstractmethod
    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log E_P[(1 - e^(epsilon - L))_+] of one release at every real epsilon; rounded up."""

    @abc.abstractmethod
    def law(self) -> Law:
        """The loss as nodes; engines add the stated `log_left_out`, n releases n times.

        Masses, infinite losses and the probability left out add up to 1: see `is_whole`.
        """

    @abc.abstractmethod
    def singularities(self) -> Singularities:
        """Features that keep the characteristic function of the loss from falling."""

    @abc.abstractmethod
    def reversed(self) -> DominatingPair:
        """P and Q exchanged; a pytree of the same structure. A symmetric pair returns itself."""

    def renyi(self, order: ArrayLike) -> Reals:
        """The Renyi divergence of P from Q of an order >= 1; the largest loss at infinity.

        It must be infinite at every order above 1 where a loss can be infinite, since bounds on
        delta follow from it. By default it comes from the nodes of the law, or is the largest loss
        where they do not resolve it or losses have no bound.
        """
        largest = self.support().largest
        return renyi_of_law(self, order, lambda order: largest + 0.0 * order)

    def support(self) -> Support:
        """Largest finite loss and probability of an infinite one, as in `law`, without nodes."""
        law = self.law()
        return Support(law.largest, law.log_infinite)

    def mixtures(self) -> tuple[Mixture, ...]:
        """The mixtures from which a public coin selects one; empty for any other pair."""
        return ()

    def mean_distance(self) -> Reals | None:
        """mu of a pair that is N(mu, 1) against N(0, 1); None for any other."""
        return None

    def profile_error(self, epsilon: ArrayLike) -> Reals:
        """Error of `log_delta` in nats: excess over the truth beyond 2e-12 (1 + |log delta|)."""
        return xp.zeros(())

    def log_hit(self) -> Reals:
        """log of the probability that a release touches the record; 0 by default.

        P and Q share a law of probability 1 - e^log_hit, so n releases have delta(epsilon) <= 1 -
        (1 - e^log_hit)^n at epsilon >= 0. The exchanged pair has the same probability.
        """
        return xp.zeros(())


class SymmetricPair(DominatingPair):
    """A pair whose P and Q can be exchanged."""

    def reversed(self) -> SymmetricPair:
        """The pair itself."""
        return self


def is_symmetric(pair: DominatingPair) -> bool:
    """True if a pair is its own exchange, which `reversed` says by returning the pair itself."""
    return pair.reversed() is pair


def atoms(losses: Reals, log_masses: Reals, log_infinite: Reals, largest: Reals) -> Law:
    """The law of finitely many losses, along a last axis."""
    losses, log_masses = xp.broadcast_arrays(losses, log_masses)
    nodes = losses, log_masses
    no_density, nothing = xp.full_like(losses, xp.inf), xp.full_like(largest, -xp.inf)
    return Law(*nodes, no_density, nodes, nothing, log_infinite, largest)


def unexplained(law: Law) -> Reals:
    """Distance of the total mass from 1, less the difference of the law's two rules."""
    first, second = (xp.sum(xp.exp(x), axis=-1) for x in (law.log_mass, law.check[1]))
    missing = xp.abs(1.0 - first - xp.exp(law.log_infinite))
    return xp.maximum(missing - xp.abs(first - second), 0.0)


def is_whole(law: Law) -> Bools:
    """True where the masses add up to 1 - exp(log_left_out); False for NaN."""
    missing = unexplained(law)
    return (missing <= xp.exp(law.log_left_out) + MASS_ERROR) | (
        (law.log_left_out >= 0) & ~xp.isnan(missing)
    )


def is_on_lattice(law: Law, singularities: Singularities) -> Bools:
    """True where no lattice is declared, or every loss lies on it up to rounding.

    Lower bounds rely on it: with a wrong lattice they would exceed the truth.
    """
    if not isinstance(singularities, Lattice):
        return xp.ones(law.loss.shape[:-1], bool)
    unit = singularities.unit[..., None]
    anchor = 0.5 * singularities.odd[..., None] * unit
    # For a unit of 0 all losses are 0; an infinite step stands for it.
    step = xp.where(unit > 0, unit, xp.inf)

    def distance(loss: Reals, log_mass: Reals) -> Reals:
        """Largest distance of a loss with mass from the lattice, over 1 + |loss|; NaN for NaN."""
        gap = loss - anchor
        gap = xp.where(step < xp.inf, gap - step * xp.round(gap / step), gap)
        gap = xp.where(log_mass > -xp.inf, xp.abs(gap) / (1.0 + xp.abs(loss)), 0.0)
        return xp.max(gap, axis=-1)

    farthest = xp.maximum(distance(law.loss, law.log_mass), distance(*law.check))
    is_near = ~(farthest > LATTICE_ERROR) & ~(singularities.unit < 0)
    return is_near | (singularities.unit == xp.inf)


def with_its_error(law: Law) -> Law:
    """The law with the distance of its mass from 1 added to `log_left_out`.

    This reports a quadrature that fails. The probability left out is at most 1; a distance within
    rounding adds 0.
    """
    missing = unexplained(law)
    missing = xp.where(missing <= MASS_ERROR, 0.0, xp.minimum(missing, 1.0))
    return law._replace(log_left_out=xp.maximum(law.log_left_out, log_probability(missing)))


@in_float64(side=0.0)
def law_on(
    nodes: Nodes,
    loss: Reals,
    log_density: Reals,
    slope: Reals,
    log_infinite: Reals,
    largest: Reals,
) -> Law:
    """Law from the loss, the log density of P and the loss's slope at the nodes of both rules.

    Args:
        nodes: from `panels`, or from a noise.
        loss, log_density, slope: values at `nodes.x`; slope is the derivative of the loss.
        log_infinite: log of the probability of an infinite loss under P, without the axis of nodes.
        largest: upper bound on finite losses; inf for unbounded ones.

    Returns:
        A `Law`. The distance of its mass from 1 is included in `log_left_out`.

    >>> import numpy as np
    >>> import jaxdp as dp
    >>> nodes = dp.own.panels((np.asarray(-12.0), np.asarray(12.0)))
    >>> loss, slope = nodes.x + 0.5, np.ones_like(nodes.x)  # of a Gaussian at shift 1
    >>> density = dp.Gaussian(1.0).log_density(nodes.x)
    >>> law = dp.own.law_on(nodes, loss, density, slope, *np.array([-np.inf, np.inf]))
    >>> print(np.sum(np.exp(law.log_mass)).round(9))
    1.0
    """
    log_mass = log_density + xp.log(nodes.weight)
    of_loss = log_density - xp.log(xp.abs(slope))
    first = nodes.first
    # Where the loss is constant at the end, outputs beyond have that loss, so that phi leaves out
    # none.
    level = xp.isfinite(largest) & xp.isinf(of_loss[..., 0])
    law = Law(
        loss[..., :first],
        log_mass[..., :first],
        of_loss[..., :first],
        (loss[..., first:], log_mass[..., first:]),
        xp.where(level, -xp.inf, -LEFT_OUT),
        log_infinite,
        largest,
    )
    return with_its_error(law)


def log_of_infinite(log_finite: Reals) -> Reals:
    """log of the probability of an infinite loss, from the log of a finite one's; -inf for none."""
    possible = log_finite < 0
    value = xp.where(possible, log1mexp(xp.where(possible, -log_finite, 1.0)), -xp.inf)
    return xp.where(xp.isnan(log_finite), xp.nan, value)


def rounding_of_infinite(log_infinite: Reals, releases: Reals) -> Reals:
    """Error of `log_of_infinite` for a composition of `releases` releases; 0 where it is -inf."""
    size = xp.abs(xp.where(log_infinite == -xp.inf, 0.0, log_infinite))
    return ULP * (16.0 + releases + 4.0 * size)


def log_of_finite(log_infinite: Reals) -> Reals:
    """log of the probability of a finite loss, at least -700."""
    return xp.maximum(log1m(xp.exp(log_infinite)), LEAST_FINITE)


def renyi_of_law(
    pair: DominatingPair,
    order: ArrayLike,
    bound_of: Callable[[Reals], Reals],
    log_tail_of: Callable[[Reals], Reals] | None = None,
) -> Reals:
    """log E[e^((a - 1) L)] / (a - 1) of order a by nodes and `log_left_out`, or `bound_of(a)`.

    Both are upper bounds. The second applies where it is smaller, or where the nodes do not resolve
    the integrand. `log_tail_of(a)` bounds the log of the left-out moment, beside `_log_left_out`.
    The result is infinite if a loss is infinite, the largest loss at infinite order, and NaN where
    the masses do not add up.
    """
    order = checks.real("order", order, 1.0)
    law = pair.law()
    order = xp.broadcast_to(order, xp.broadcast_shapes(order.shape, law.largest.shape))
    excess = xp.clip(order - 1.0, LEAST_EXCESS, 1e300)
    # E[e^-L] = 1 less the probability of Q at L = -inf.
    mass_at_minus_infinity = xp.exp(pair.reversed().support().log_infinite)
    nodal, error = nodal_divergence(law, order, mass_at_minus_infinity)
    resolved = (excess * error <= RESOLVED) & xp.isfinite(nodal)
    nodal = nodal + error
    left_out = _log_left_out(bound_of, order, law)
    if log_tail_of is not None:
        left_out = xp.fmin(left_out, log_tail_of(order))
    nodal = nodal + xp.logaddexp(0.0, left_out - excess * nodal) / excess
    bound = xp.broadcast_to(bound_of(order), order.shape)
    value = xp.where(resolved & (nodal < bound), nodal, bound)
    largest = xp.where(law.log_infinite > -xp.inf, xp.inf, law.largest)
    largest = xp.where(xp.isnan(law.log_infinite), xp.nan, largest)
    largest = xp.broadcast_to(largest, order.shape)
    endless = (order == xp.inf) | (largest == xp.inf) & (law.log_infinite > -xp.inf)
    value = xp.where(endless, largest, value)
    value = xp.where(xp.broadcast_to(is_whole(law), order.shape), value, xp.nan)
    return lifted(round_up(xp.minimum(value, largest), 4), largest > 0)


def nodal_divergence(
    law: Law, order: Reals, mass_at_minus_infinity: Reals | float
) -> tuple[Reals, Reals]:
    """log E[e^((a - 1) L)] / (a - 1) over the nodes, and its error by the second rule."""
    excess = xp.clip(order - 1.0, LEAST_EXCESS, 1e300)
    rules = (law.loss, law.log_mass), law.check
    (value, rounding), (check, _) = (
        _divergence(*x, order, excess, mass_at_minus_infinity) for x in rules
    )
    return value, xp.abs(value - check) + rounding


def _divergence(
    loss: Reals, log_mass: Reals, order: Reals, excess: Reals, missing: Reals | float
) -> tuple[Reals, Reals]:
    """log E[e^(s L)] / s and its rounding error, by positive terms where possible.

    With m = `missing`, E[e^-L] = 1 - m, so E[e^(s L) - 1] is
    E[e^(s L) - 1 - s L] + s (E[e^-L - 1 + L] + m).
    """
    exponent = excess[..., None] * loss
    has_mass = log_mass > -xp.inf
    # Only growing exponentials overflow or round: e^-x - 1 + x has the error of x.
    size = xp.max(xp.where(has_mass, xp.maximum(exponent, -loss), 0.0), axis=-1, initial=0.0)
    near = size < _LARGEST_EXPONENT
    mass = xp.where(has_mass, xp.exp(log_mass), 0.0)
    safe = xp.where(has_mass & near[..., None], loss, 0.0)
    first = xp.sum(mass * expm1_minus(-safe), axis=-1) + missing
    grown = xp.sum(mass * expm1_minus(excess[..., None] * safe), axis=-1) / excess
    # For order 1 only the first term remains.
    grown = xp.where(order == 1.0, 0.0, grown)
    summed = log1p(excess * (first + grown)) / excess
    far = logsumexp(log_mass + exponent, axis=-1) / excess
    far = xp.where(order == 1.0, xp.inf, far)
    far_error = (_TERM_ERROR + 4.0 * ULP * size) / excess
    value = xp.where(near, xp.where(order == 1.0, first, summed), far)
    return value, xp.where(near, _TERM_ERROR * xp.minimum(value, 1.0 / excess), far_error)


def _log_left_out(bound_of: Callable[[Reals], Reals], order: Reals, law: Law) -> Reals:
    """log of a bound on the moment of the outputs beyond the nodes.

    All of them have the largest loss at most. With divergences of higher orders b, Hoelder's
    inequality gives E[e^(s L); A] <= E[e^(r L)]^(s / r) P[A]^(1 - s / r), s = a - 1 < r = b - 1.
    """
    left_out = law.log_left_out
    excess = xp.clip(order - 1.0, LEAST_EXCESS, 1e150)
    bound = excess * law.largest + left_out
    bound = xp.where(xp.isnan(bound), xp.inf, bound)
    for factor in _HIGHER:
        higher = factor * excess + (factor - 1.0)
        share = excess / higher
        by_order = excess * bound_of(1.0 + higher) + (1.0 - share) * left_out
        bound = xp.minimum(bound, xp.where(xp.isnan(by_order), xp.inf, by_order))
    return xp.where(left_out > -xp.inf, bound, -xp.inf)
