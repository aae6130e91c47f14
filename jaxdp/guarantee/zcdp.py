"""Zero-concentrated differential privacy."""

from typing import final

import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.elementary import round_up
from jaxdp._pytree import assign, pytree
from jaxdp._types import RealLike, Reals
from jaxdp.guarantee.base import (
    Guarantee,
    log_delta_of_cgf,
    require_same,
    tradeoff_of,
)


@final
@pytree
class ZCDP(Guarantee):
    """The Renyi divergence of every order a > 1 is at most xi + a rho.

    Its delta is a bound, 1 to 2 nats of log delta above the Gaussian's of the same rho: hold a
    Gaussian as `GDP`. Source: Bun & Steinke, TCC 2016.
    """

    xi: Reals
    rho: Reals

    def __init__(self, xi: RealLike, rho: RealLike):
        assign(self, xi=_check.nonnegative("xi", xi), rho=_check.nonnegative("rho", rho))

    def log_delta(self, epsilon: RealLike) -> Reals:
        """The least bound over orders of Canonne, Kamath & Steinke, 2020, proposition 12."""
        xi, rho, epsilon = jnp.broadcast_arrays(
            _check.guard(self.xi), _check.guard(self.rho), _check.real("epsilon", epsilon)
        )
        return log_delta_of_cgf(lambda s: s * (xi + (s + 1.0) * rho), epsilon)

    def tradeoff(self, fpr: RealLike) -> Reals:
        """The trade-off of this delta(epsilon): a lower bound, like it."""
        return tradeoff_of(self.log_delta, _check.probability("fpr", fpr))

    def __add__(self, other: "ZCDP") -> "ZCDP":
        require_same(self, other)
        return ZCDP(round_up(self.xi + other.xi, 1), round_up(self.rho + other.rho, 1))

    def __rmul__(self, count: RealLike) -> "ZCDP":
        count = _check.whole("count", count)
        return ZCDP(round_up(count * self.xi, 1), round_up(count * self.rho, 1))
