"""Pure differential privacy."""

from __future__ import annotations

from typing import final

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import sum_up
from jaxdp.guarantee.base import Guarantee, repeated
from jaxdp.guarantee.pure_profile import epsilon_of_approximate, log_delta_of_pure, tradeoff_of_pure


@final
@pytree
class PureDP(Guarantee):
    """The privacy loss never exceeds `epsilon`.

    The worst mechanism is randomised response, P = (p, 1 - p) against (1 - p, p) with
    p = 1 / (1 + e^-epsilon); delta and trade-off are its own, hence exact.
    Source: Kairouz, Oh & Viswanath, ICML 2015.
    """

    epsilon_bound: Reals

    def __init__(self, epsilon: ArrayLike):
        assign(self, epsilon_bound=checks.nonnegative("epsilon", epsilon))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of (e^e0 - e^epsilon) / (1 + e^e0) for |epsilon| <= e0, e0 the `epsilon` of this.

        delta is 0 above e0 and 1 - e^epsilon below -e0. Relative error of log delta:
        (16 + 4 e0) ulp, upwards.
        """
        return log_delta_of_pure(self.epsilon_bound, checks.real("epsilon", epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """e0 + log(1 - `delta` (1 + e^-e0)), the inverse of `log_delta`; at least 0."""
        return epsilon_of_approximate(self.epsilon_bound, 0.0, checks.probability("delta", delta))

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """max(0, 1 - e^e0 fpr, e^-e0 (1 - fpr))."""
        return tradeoff_of_pure(self.epsilon_bound, 0.0, checks.probability("fpr", fpr, lift=True))

    def composed(self, other: PureDP) -> PureDP:
        """The guarantee of both releases together, rounded up."""
        return PureDP(sum_up(self.epsilon_bound, other.epsilon_bound))

    def __rmul__(self, count: ArrayLike) -> PureDP:
        return PureDP(repeated("epsilon", checks.whole("count", count), self.epsilon_bound))
