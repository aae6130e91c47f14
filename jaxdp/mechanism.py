"""A noise bound to the sensitivity of what it is added to."""

from typing import final

import jax

from jaxdp import _check
from jaxdp._pytree import assign, pytree
from jaxdp._types import RealLike, Reals
from jaxdp.guarantee.base import epsilon_of
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.noise.base import Noise, exp_up


@final
@pytree
class Mechanism:
    """One release of query + noise, the query moving by at most `sensitivity` between neighbours.

    Batched: the noise's parameters and `sensitivity` broadcast, and every element is a release
    of its own. Coordinates released together compose: see `GDP` for Gaussians. The noises are
    symmetric, so both directions of any neighbouring relation agree; `sensitivity` carries it.
    """

    noise: Noise
    sensitivity: Reals

    def __init__(self, noise: Noise, sensitivity: RealLike):
        assign(self, noise=noise, sensitivity=_check.nonnegative("sensitivity", sensitivity))

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log of the least delta at `epsilon`: an upper bound, as tight as its noise says."""
        return self.noise.log_delta(self.sensitivity, epsilon)

    def delta(self, epsilon: RealLike) -> Reals:
        """exp(log_delta), rounded up; never 0 where the true delta is not."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: RealLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`: safe side, 1e-15 relative."""
        return _epsilon(self, _check.probability("delta", delta))

    def renyi(self, order: RealLike) -> Reals:
        """The Renyi divergence of an order > 1, in nats."""
        return self.noise.renyi(self.sensitivity, order)

    def zcdp(self) -> ZCDP:
        """The (xi, rho) of `noise.zcdp`."""
        return ZCDP(*self.noise.zcdp(self.sensitivity))


@jax.jit
def _epsilon(mechanism: Mechanism, delta: Reals) -> Reals:
    return epsilon_of(mechanism.log_delta, delta)
