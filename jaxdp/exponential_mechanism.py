"""The exponential mechanism, accounted for by its bounded range."""

from __future__ import annotations

from typing import final

import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.dominating_pair.known_guarantee import BoundedRange, renyi_of_range, rho_of_range
from jaxdp.guarantee.base import epsilon_of
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.noise.base import exp_up


@final
@in_float64
@pytree
class ExponentialMechanism:
    """The exponential mechanism: an answer has probability ~ exp(epsilon score / (2 Delta)).

    Delta is the largest change of a score between neighbours, and `epsilon` the parameter of pure
    privacy, in nats; batched. Log ratios of two answers change by at most epsilon, so the range is
    bounded by epsilon. If neighbours move all scores in the same direction (monotone), weights
    exp(epsilon score / Delta) have the same guarantee. It is tighter than `PureDP(epsilon)`:
    `privacy_loss` composes bounded ranges, see `accountant.engines`. `to_zcdp` and `to_rdp`
    accept it. `ValueError` for bad concrete input, NaN for traced.
    Source: McSherry & Talwar, FOCS 2007; Durfee & Rogers, NeurIPS 2019.
    """

    epsilon_bound: Reals

    def __init__(self, epsilon: ArrayLike):
        assign(self, epsilon_bound=checks.nonnegative("epsilon", epsilon))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of (e^(b / 2) - e^(epsilon / 2))^2 / (e^b - 1), b the `epsilon` of this; rounded up.

        0 above b, 1 - e^epsilon below -b.
        """
        return BoundedRange(self.epsilon_bound).log_delta(epsilon)

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`, from the safe side."""
        return epsilon_of(self.log_delta, checks.probability("delta", delta))

    def renyi(self, order: ArrayLike) -> Reals:
        """The largest Renyi divergence of an order >= 1, rounded up.

        See `dominating_pair.bounded_range`. With s = order - 1 by at most
        1e-14 max(s, 1 / s), 1e-7 where s < 1; of infinite order `epsilon`.
        """
        return renyi_of_range(self.epsilon_bound, checks.real("order", order, 1.0))

    def zcdp(self) -> ZCDP:
        """(0, log(sinh(x) / x) + x coth(x) - 1), x = epsilon / 2: the least rho, at order 1.

        At most epsilon^2 / 8 (Cesar & Rogers, ALT 2021), and met by a mechanism of that range.
        """
        rho = rho_of_range(self.epsilon_bound)
        return ZCDP(jnp.zeros_like(rho), rho)
