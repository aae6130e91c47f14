"""Bounds from the same Gaussians without sampling; sampling never increases the loss.

Identity: a pair of mixtures of Gaussians is a randomised function of N(mu, 1) and N(0, 1), mu the
largest distance between their means in units of the scale. A composition of such pairs is therefore
at most as revealing as one Gaussian of their summed mu^2.

Error: an upper bound without the gain of sampling. Chosen by `ends` where a bracket is wide: if the
noise is so small beside a sensitivity, with losses of 10^6 nats and more, that no engine resolves
the losses.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Lanes, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant import profile
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Term, Terms, is_gaussian
from jaxdp.dominating_pair.additive import Additive
from jaxdp.noise.gaussian import Gaussian

# Relative width up to which bounds stay as they are. chosen: far below any stated error
_NARROW = 1e-9
# Least mu for which a Gaussian has epsilon >= mu^2 / 2 at every delta up to `_SMALL_DELTA`.
# derived: at that epsilon delta is at least 1/2 - 1 / (mu sqrt(2 pi))
_LARGE_MU = 2.0
# Largest delta with that property. derived: 1/2 - 1 / (2 sqrt(2 pi)) is .3005
_SMALL_DELTA = 0.3


def bound_log_delta(terms: Terms, epsilon: Lanes, bounds: LogBounds) -> LogBounds:
    """The `bounds` on log delta at epsilon >= 0, with the upper one at most the Gaussian's."""
    mu = _total_mu(terms)
    if mu is None:
        return bounds
    is_less = (epsilon <= 0.5 * mu**2) & (xp.exp(bounds.upper) <= _SMALL_DELTA)
    return lax.cond(_may_gain(bounds, mu, is_less), _log_delta, _kept, mu, epsilon, bounds)


def bound_epsilon(terms: Terms, delta: Lanes, bounds: LogBounds) -> LogBounds:
    """The `bounds` on epsilon at delta, with the upper one at most the Gaussian's."""
    mu = _total_mu(terms)
    if mu is None:
        return bounds
    is_less = (bounds.upper <= 0.5 * mu**2) & (delta <= _SMALL_DELTA)
    return lax.cond(_may_gain(bounds, mu, is_less), _epsilon, _kept, mu, delta, bounds)


def _may_gain(bounds: LogBounds, mu: Any, is_less: Bools) -> Bools:
    """True if bounds of some lane are wide, and not surely below the Gaussian's bound."""
    lower, upper = bounds
    is_wide = ~(lower >= upper - _NARROW * (1.0 + xp.abs(upper))) & (lower != upper)
    return xp.any(is_wide & ~(is_less & (mu >= _LARGE_MU)))


def _kept(mu: Reals, value: Lanes, bounds: LogBounds) -> LogBounds:
    return bounds


def _total_mu(terms: Terms) -> Any:
    """mu of a Gaussian at least as revealing as the composition; None if some term has none.

    None too for plain Gaussians alone, which compose to that Gaussian.
    """
    if all(map(is_gaussian, terms)):
        return None
    total: Any = 0.0
    for term in terms:
        mu = term.pair.mean_distance()
        if mu is None:
            return None
        # A bad parameter gives NaN; good parameters replace an engine's NaN.
        is_bad = functools.reduce(operator.or_, map(xp.isnan, jax.tree.leaves(term)))
        mu = xp.where(is_bad | ~(mu >= 0), xp.nan, mu)
        squared = xp.where(term.count == 0, 0.0, term.count * mu**2)
        total = total + xp.sum(squared, axis=-1)
    return xp.sqrt(total) * (1.0 + 64.0 * ULP)


def _gaussian(mu: Reals) -> Terms:
    one = xp.ones_like(mu)[..., None]
    return (Term(Additive(Gaussian(one), mu[..., None]), one),)


def _log_delta(mu: Reals, epsilon: Reals, bounds: LogBounds) -> LogBounds:
    return bounds.at_most(profile.log_bounds(_gaussian(mu), epsilon).upper)


def _epsilon(mu: Reals, delta: Reals, bounds: LogBounds) -> LogBounds:
    return bounds.at_most(profile.epsilon_bounds(_gaussian(mu), delta).upper)
