"""The least variance that an unbiased private mechanism can have."""

from __future__ import annotations

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, round_up
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.zcdp import ZCDP

# Nodes of the trapezoid over a standard normal. chosen: its error is below 1e-15 for every mu
_NODES = 801
# Deviations that it reaches on either side. chosen: beyond lies 1e-38
_REACH = 13.0
# Rounding of a bound, in ulp. chosen: above rounding and the trapezoid's error
_SAFETY_ULPS = -256


@in_float64
def lower_bound(guarantee: Guarantee, sensitivity: ArrayLike) -> Reals:
    """The least variance that an unbiased private answer can have.

    Args:
        guarantee: a PureDP, ApproxDP, GDP or ZCDP; batched.
        sensitivity: m, the difference of the answers at two inputs, in the query's unit;
            broadcasts.

    Returns:
        A bound on the larger variance at the two inputs, in the query's unit squared, rounded down
        by 1e-13.

      PureDP:   m^2 / (4 sinh^2(epsilon / 2)), attained by randomised response;
      ApproxDP: m^2 (1 - delta) / (4 (sinh^2(epsilon / 2) + delta)), attained;
      GDP:      (m^2 / 4)(1 / c - 1), c = (1/2) int (p - q)^2 / (p + q) for N(0, 1) and N(mu, 1):
                the form for every pair of laws, hence for every trade-off;
      ZCDP:     m^2 / (exp(xi + 2 rho) - 1), from the divergence of order 2.

    Proof: P and Q being symmetric about the middle of the two answers without loss, Cauchy-Schwarz
    on the mean difference int t (p - q) gives E t^2 >= (m / 2)^2 / c. Other guarantees:
    `TypeError`.
    Source: Hammersley-Chapman-Robbins for PureDP and ZCDP; the exact ApproxDP and GDP forms are
    ours.

    >>> import jaxdp as dp
    >>> print(f"{dp.optimal.lower_bound(dp.PureDP(1.0), 2.0):.4f}")
    3.6827
    """
    sensitivity = checks.nonnegative("sensitivity", sensitivity)
    per_unit = _unit_bound(guarantee)
    per_unit, sensitivity = xp.broadcast_arrays(per_unit, sensitivity)
    return round_up(per_unit * sensitivity**2, _SAFETY_ULPS)


def _unit_bound(guarantee: Guarantee) -> Reals:
    match guarantee:
        case PureDP(epsilon_bound=epsilon):
            return 0.25 / xp.sinh(0.5 * checks.guard(epsilon)) ** 2
        case ApproxDP(epsilon_bound=epsilon, delta_bound=delta):
            delta = checks.guard(delta, 1.0)
            return 0.25 * (1.0 - delta) / (xp.sinh(0.5 * checks.guard(epsilon)) ** 2 + delta)
        case ZCDP(xi=xi, rho=rho):
            return 1.0 / xp.expm1(checks.guard(xi) + 2.0 * checks.guard(rho))
        case GDP(mu=mu):
            return _unit_bound_of_gdp(checks.guard(mu))
        case _:
            raise TypeError(f"no lower bound is known from a {type(guarantee).__name__}")


@jitted
def _unit_bound_of_gdp(mu: Reals) -> Reals:
    """(1 - c) / (4 c), with 1 - c = exp(-mu^2/8) E sech(mu u / 2), u standard normal.

    Below mu = 2, c = exp(-mu^2/8) E sinh(mu u / 2) tanh(mu u / 2), whose terms are positive.
    """
    reach = _REACH * xp.minimum(1.0, 12.0 / mu)[..., None]
    u = reach * xp.linspace(-1.0, 1.0, _NODES)
    half = 0.5 * mu[..., None] * u
    weight = xp.exp(-0.5 * u * u - LOG_SQRT_2PI) * (2.0 * reach / (_NODES - 1))
    scale = xp.exp(-(mu**2) / 8.0)
    complement = scale * xp.sum(weight / xp.cosh(half), axis=-1)
    small = xp.where(mu[..., None] < 2.0, half, 0.0)
    near = scale * xp.sum(weight * xp.sinh(small) * xp.tanh(small), axis=-1)
    return 0.25 * complement / xp.where(mu < 2.0, near, 1.0 - complement)
