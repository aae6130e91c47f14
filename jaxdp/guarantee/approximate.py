"""Approximate differential privacy."""

from __future__ import annotations

from typing import final

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import sum_up
from jaxdp._numeric.elementary import log1m, round_up
from jaxdp.guarantee.base import Guarantee, repeated
from jaxdp.guarantee.pure import (
    epsilon_of_approximate,
    log_delta_of_approximate,
    tradeoff_of_pure,
)


@final
@pytree
class ApproxDP(Guarantee):
    """delta(`epsilon`) <= `delta`, and nothing else is known.

    The worst mechanism reveals its input with probability `delta` and is randomised response
    otherwise, so delta elsewhere and the trade-off are exact. Compositions are loosened to one
    (epsilon, delta): epsilons add, and 1 - delta multiplies.
    Source: Kairouz, Oh & Viswanath, ICML 2015.
    """

    epsilon_bound: Reals
    delta_bound: Reals

    def __init__(self, epsilon: ArrayLike, delta: ArrayLike):
        assign(
            self,
            epsilon_bound=checks.nonnegative("epsilon", epsilon),
            delta_bound=checks.probability("delta", delta, lift=True),
        )

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of d + (1 - d) delta_pure(epsilon), d the `delta` of this guarantee."""
        epsilon = checks.real("epsilon", epsilon)
        return log_delta_of_approximate(self.epsilon_bound, self.delta_bound, epsilon)

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The inverse of `log_delta`: `epsilon` at its own `delta`, infinite below.

        A `delta` within 32 ulp of the guarantee's own, the rounding of a sum, counts as equal.
        """
        delta = checks.probability("delta", delta)
        return epsilon_of_approximate(self.epsilon_bound, self.delta_bound, delta)

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """max(0, 1 - d - e^e0 fpr, e^-e0 (1 - d - fpr))."""
        fpr = checks.probability("fpr", fpr, lift=True)
        return tradeoff_of_pure(self.epsilon_bound, self.delta_bound, fpr)

    def composed(self, other: ApproxDP) -> ApproxDP:
        """The guarantee of both releases together, rounded up."""
        epsilon = sum_up(self.epsilon_bound, other.epsilon_bound)
        total_delta = self.delta_bound + other.delta_bound * (1.0 - self.delta_bound)
        return ApproxDP(epsilon, xp.minimum(round_up(total_delta, 2), 1.0))

    def __rmul__(self, count: ArrayLike) -> ApproxDP:
        count = checks.whole("count", count)
        epsilon = repeated("epsilon", count, self.epsilon_bound)
        delta = -xp.expm1(repeated("log(1 - delta)", count, log1m(self.delta_bound)))
        return ApproxDP(epsilon, xp.minimum(round_up(delta, 16), 1.0))
