"""Pure differential privacy."""

from typing import final

from jaxdp import _check
from jaxdp._numeric.elementary import round_up
from jaxdp._numeric.pure import log_delta_of_pure
from jaxdp._pytree import assign, pytree
from jaxdp._types import RealLike, Reals
from jaxdp.guarantee.base import Guarantee, repeated, tradeoff_of_pure


@final
@pytree
class PureDP(Guarantee):
    """The privacy loss never exceeds `epsilon`.

    The worst mechanism is randomised response, P = (p, 1 - p) against (1 - p, p) with
    p = 1 / (1 + e^-epsilon); delta and trade-off are its own, hence exact.
    Source: Kairouz, Oh & Viswanath, ICML 2015.
    """

    epsilon_bound: Reals

    def __init__(self, epsilon: RealLike):
        assign(self, epsilon_bound=_check.nonnegative("epsilon", epsilon))

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log of (e^e0 - e^epsilon) / (1 + e^e0) for |epsilon| <= e0, e0 the `epsilon` of this.

        delta is 0 above e0 and 1 - e^epsilon below -e0. Relative error of log delta:
        (16 + 4 e0) ulp, upwards.
        """
        return log_delta_of_pure(self.epsilon_bound, _check.real("epsilon", epsilon))

    def tradeoff(self, fpr: RealLike) -> Reals:
        """max(0, 1 - e^e0 fpr, e^-e0 (1 - fpr))."""
        return tradeoff_of_pure(self.epsilon_bound, 0.0, _check.probability("fpr", fpr, lift=True))

    def composed(self, other: "PureDP") -> "PureDP":
        return PureDP(round_up(self.epsilon_bound + other.epsilon_bound, 1))

    def __rmul__(self, count: RealLike) -> "PureDP":
        return PureDP(
            round_up(repeated("epsilon", _check.whole("count", count), self.epsilon_bound), 1)
        )
