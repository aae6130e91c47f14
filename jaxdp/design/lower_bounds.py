"""The least variance that an unbiased private mechanism can have, and one that has it."""

from __future__ import annotations

import jax

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
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
# ulp by which a bound is rounded down. chosen: above rounding and the trapezoid's error
_SAFETY_ULPS = -256


@in_float64
def lower_bound(guarantee: Guarantee, sensitivity: ArrayLike) -> Reals:
    """The least variance that an unbiased private answer can have.

    Args:
        guarantee: a PureDP, ApproxDP, GDP or ZCDP; batched.
        sensitivity: m, by which the answers at two inputs differ, in the query's unit; broadcasts.

    Returns:
        A bound on the larger variance at the two inputs, in the query's unit squared, rounded down
        by 1e-13.

      PureDP:   m^2 / (4 sinh^2(epsilon / 2)), attained by `two_point_release`;
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
    >>> print(f"{dp.lower_bound(dp.PureDP(1.0), 2.0):.4f}")
    3.6827
    """
    sensitivity = checks.nonnegative("sensitivity", sensitivity)
    per_unit = _unit_bound(guarantee)
    per_unit, sensitivity = xp.broadcast_arrays(per_unit, sensitivity)
    return round_up(per_unit * sensitivity**2, _SAFETY_ULPS)


@in_float64
def lower_bound_covariance(
    guarantee: Guarantee, axes: ArrayLike, records: int, *, worst_case: bool = False
) -> Reals:
    """The least covariance of an unbiased private mean of vectors in an ellipsoid.

    Args:
        guarantee: as in `lower_bound`; batched.
        axes: U, (d, k), of the set {U u : |u| <= 1} that holds every value.
        records: how many values the mean is of.
        worst_case: bound a covariance that does not depend on the data, which has 4 times as much.

    Returns:
        S with Cov >= S, (d, d), batched in front over the guarantee.

    Replacing one record moves direction v by up to its width 2 |U^T v| / n, and by at least half of
    that from any data set, so every data set has Cov >= U U^T / n^2 times the bound for sensitivity
    1. Axes that are no matrix: `ValueError`.

    >>> import jaxdp as dp
    >>> from jaxdp.design.lower_bounds import lower_bound_covariance
    >>> print(lower_bound_covariance(dp.PureDP(1.0), [[1.0, 0.0], [0.0, 2.0]], 10).round(4))
    [[0.0092 0.    ]
     [0.     0.0368]]
    """
    matrix = checks.real("axes", axes)
    if matrix.ndim != 2:
        raise ValueError(f"axes must have shape (d, k), got {matrix.shape}")
    step = (2.0 if worst_case else 1.0) / checks.whole("records", records, 1.0)
    return xp.einsum("...,ij->...ij", lower_bound(guarantee, step), matrix @ matrix.T)


@in_float64
def two_point_release(
    key: Key,
    value: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    epsilon: ArrayLike,
    shape: Shape = (),
) -> Reals:
    """An unbiased, purely private answer for a bounded value, one of two: randomised response.

    Args:
        key: of the draw; use it once and keep it secret.
        value: in [lower, upper], in the query's unit; broadcasts with all that follow.
        lower, upper: public ends.
        epsilon: nats, above 0.
        shape: of the draws, broadcast with that of the values.

    Returns:
        middle +- (width / 2) coth(epsilon / 2); NaN for a value outside.

    The sign is + with probability (1 + tanh(epsilon / 2) (value - middle) / (width / 2)) / 2. At
    both ends its variance is the lower bound width^2 / (4 sinh^2(epsilon / 2)); inside it is
    larger, by up to width^2 / 4. It is PureDP(epsilon).

    >>> import jax
    >>> import jaxdp as dp
    >>> answer = dp.two_point_release(jax.random.key(0), 0.25, 0.0, 1.0, 2.0)
    >>> print(f"{abs(answer - 0.5):.4f}")
    0.6565
    """
    value, lower, upper, epsilon = xp.broadcast_arrays(
        checks.real("value", value),
        checks.real("lower", lower),
        checks.real("upper", upper),
        checks.positive("epsilon", epsilon),
    )
    half, middle = 0.5 * (upper - lower), 0.5 * (upper + lower)
    inside = (value >= lower) & (value <= upper) & (half > 0)
    slope = xp.tanh(0.5 * epsilon)
    # Clipped: the middle of bounds that are a few ulp apart is rounded by up to half an ulp.
    chance = 0.5 * (1.0 + slope * xp.clip((value - middle) / half, -1.0, 1.0))
    shape = xp.broadcast_shapes(shape, value.shape)
    above = jax.random.uniform(checked_key(key, value), shape, dtype=xp.float64) < chance
    return xp.where(inside, middle + xp.where(above, 1.0, -1.0) * half / slope, xp.nan)


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
