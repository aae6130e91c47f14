"""Every conversion between guarantees that is exact or a proved bound; the others raise."""

import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.elementary import round_up
from jaxdp._types import RealLike
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.noise.gaussian import Gaussian


def to_approx(guarantee: Guarantee, delta: RealLike) -> ApproxDP:
    """The (epsilon, delta) that `guarantee` implies at `delta`; epsilon is inf where there is none.

    Exact from PureDP, ApproxDP and GDP; from ZCDP the bound of Canonne, Kamath & Steinke.
    """
    return ApproxDP(guarantee.epsilon(delta), _check.probability("delta", delta))


def to_pure(guarantee: Guarantee) -> PureDP:
    """ApproxDP at delta = 0 is PureDP; at a positive delta its epsilon is infinite."""
    match guarantee:
        case PureDP():
            return guarantee
        case ApproxDP(epsilon_bound=epsilon, delta_bound=delta):
            return PureDP(jnp.where(delta == 0, epsilon, jnp.where(delta > 0, jnp.inf, jnp.nan)))
        case _:
            raise TypeError(f"{type(guarantee).__name__} has an unbounded loss: no PureDP")


def to_zcdp(guarantee: Guarantee) -> ZCDP:
    """ZCDP(0, rho): rho = mu^2 / 2 from GDP, rho = epsilon tanh(epsilon / 2) from PureDP; exact.

    PureDP: randomised response is the worst case (Kairouz, Oh & Viswanath 2015). With
    s = order - 1/2 its divergence over its order is (log cosh(s epsilon) - log cosh(epsilon / 2))
    / (s^2 - 1/4); log cosh is concave in s^2, so the least order is the worst: there the ratio is
    the Kullback-Leibler divergence, epsilon tanh(epsilon / 2) <= epsilon^2 / 2.
    """
    match guarantee:
        case ZCDP():
            return guarantee
        case GDP(mu=mu):
            return ZCDP(jnp.zeros_like(mu), round_up(0.5 * mu * mu, 2))
        case PureDP(epsilon_bound=epsilon):
            rho = jnp.where(jnp.isinf(epsilon), jnp.inf, epsilon * jnp.tanh(0.5 * epsilon))
            return ZCDP(jnp.zeros_like(epsilon), round_up(rho, 8))
        case _:
            raise TypeError(
                f"{type(guarantee).__name__} bounds no Renyi divergence: no ZCDP follows "
                "(at delta = 0 use to_pure first)"
            )


def to_gdp(guarantee: Guarantee) -> GDP:
    """From PureDP: mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), the least that holds.

    The sign of N(+-mu/2, 1) is randomised response, so its trade-off lies above the Gaussian's,
    and meets it at its corner. No finite mu follows from ApproxDP with delta > 0 or from ZCDP.
    """
    match guarantee:
        case GDP():
            return guarantee
        case PureDP(epsilon_bound=epsilon):
            tail = jnp.exp(-jnp.logaddexp(0.0, epsilon))
            return GDP(round_up(jnp.abs(2.0 * Gaussian(1.0).quantile(tail)), 64))
        case _:
            raise TypeError(f"{type(guarantee).__name__} implies no GDP with a finite mu")
