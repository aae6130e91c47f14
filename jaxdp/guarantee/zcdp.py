"""Zero-concentrated differential privacy."""

from __future__ import annotations

from typing import final

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import sum_up
from jaxdp._numeric.elementary import round_up
from jaxdp.guarantee.base import Guarantee, repeated
from jaxdp.guarantee.renyi import log_delta_of_cgf, tradeoff_of_renyi

# Orders, less 1, that bound a trade-off, from 1e-6 to 1e6. chosen: 25 a decade
_ORDERS = 301


@final
@pytree
class ZCDP(Guarantee):
    """The Renyi divergence of every order a > 1 is at most xi + a rho.

    Its delta is a bound, 1 to 2 nats of log delta above the Gaussian's of the same rho: hold a
    Gaussian as `GDP`. Source: Bun & Steinke, TCC 2016.
    """

    xi: Reals
    rho: Reals

    def __init__(self, xi: ArrayLike, rho: ArrayLike):
        assign(self, xi=checks.nonnegative("xi", xi), rho=checks.nonnegative("rho", rho))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """The least bound over orders of Canonne, Kamath & Steinke, 2020, proposition 12."""
        xi, rho, epsilon = xp.broadcast_arrays(
            checks.guard(self.xi), checks.guard(self.rho), checks.real("epsilon", epsilon)
        )
        return log_delta_of_cgf(lambda s: s * (xi + (s + 1.0) * rho), epsilon)

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """The least fnr whose two-point test obeys the curve at every order, both ways round.

        (1 - fnr)^a fpr^(1 - a) + fnr^a (1 - fpr)^(1 - a) <= exp((a - 1)(xi + a rho)), by data
        processing, and attained: the two points satisfy the curve. Rounded down. 302 orders are
        looked at, 1 and from 1 + 1e-6 to 1 + 1e6: each gives a bound, and the best is taken.
        """
        return _tradeoff(self.xi, self.rho, checks.probability("fpr", fpr, lift=True))

    def excess(self, target: ZCDP) -> Reals:
        """A number that is at most 0 if this guarantee implies `target`; NaN for a bad one.

        The log of the larger ratio of rho and of xi + rho to the target's: xi + a rho, a line in
        a, is below the target's line at every a > 1 if its slope and its value at 1 are.
        """
        ratios = (
            xp.log(round_up(self.xi + self.rho, 2)) - xp.log(target.xi + target.rho),
            xp.log(self.rho) - xp.log(target.rho),
        )
        silent = (self.xi + self.rho == 0), self.rho == 0
        return xp.maximum(*(xp.where(x, -xp.inf, y) for x, y in zip(silent, ratios, strict=True)))

    def composed(self, other: ZCDP) -> ZCDP:
        """The guarantee of both releases together, rounded up."""
        return ZCDP(sum_up(self.xi, other.xi), sum_up(self.rho, other.rho))

    def __rmul__(self, count: ArrayLike) -> ZCDP:
        count = checks.whole("count", count)
        return ZCDP(repeated("xi", count, self.xi), repeated("rho", count, self.rho))


@jitted
def _tradeoff(xi: Reals, rho: Reals, fpr: Reals) -> Reals:
    xi, rho, fpr = xp.broadcast_arrays(checks.guard(xi), checks.guard(rho), fpr)

    # An order that is missed leaves a constraint out, and the bound lower.
    s = xp.concatenate([xp.zeros(1), xp.logspace(-6.0, 6.0, _ORDERS)])
    s = xp.broadcast_to(s, (*fpr.shape, s.size))
    return tradeoff_of_renyi(s, xi[..., None] + (s + 1.0) * rho[..., None], fpr)
