"""Every conversion between guarantees that is exact or a proved bound; the others raise."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import lax, vmap, xp
from jaxdp._core.types import ArrayLike, Index, Reals
from jaxdp._numeric.elementary import (
    LOG_SQRT_2PI,
    ULP,
    lifted,
    log1m,
    log1mexp,
    log1p,
    normal_integral_over_density,
    round_up,
)
from jaxdp._numeric.mills import log_normal_survival, mills
from jaxdp.guarantee.base import Budget, Guarantee, require_both_directions
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.guarantee.renyi import RDP, ZCDP

# ulp by which a divergence is rounded up. derived: above the errors of the noises' own, 1e-13
# relatively and less
_RENYI_ULPS = 4096
# The epsilon below which mu is a multiple of it, nats. derived: the next term is 1e-17
_STRAIGHT = 1e-8
# Beyond, mu is 2 sqrt(2 epsilon). chosen: no square overflows
_LARGEST_EPSILON = 1e290
# Newton's steps of each search. measured: the sixth changes nothing on [1e-8, 1e4]
_NEWTON_STEPS = 7


@runtime_checkable
class HasRenyi(Protocol):
    """A mechanism or a privacy loss with its own Renyi divergences."""

    def renyi(self, order: ArrayLike) -> Reals:
        """The Renyi divergence of an order >= 1."""
        ...


@runtime_checkable
class HasZCDP(Protocol):
    """A mechanism with its own (xi, rho)."""

    def zcdp(self) -> ZCDP:
        """(xi, rho): the Renyi divergence of each order a is at most xi + rho a."""
        ...


@in_float64
def to_pure(guarantee: Guarantee) -> PureDP:
    """The pure guarantee that a guarantee implies: ApproxDP at delta = 0 is PureDP.

    Args:
        guarantee: a PureDP or an ApproxDP.

    Returns:
        A `PureDP`, whose epsilon is infinite at a positive delta.

    Others, whose loss is unbounded: `TypeError`.

    >>> import jaxdp as dp
    >>> float(dp.to_pure(dp.ApproxDP(1.0, 0.0)).epsilon_bound)
    1.0
    """
    match guarantee:
        case PureDP():
            return guarantee
        case ApproxDP(epsilon_bound=epsilon, delta_bound=delta):
            return PureDP(xp.where(delta == 0, epsilon, xp.where(delta > 0, xp.inf, xp.nan)))
        case _:
            raise TypeError(f"{type(guarantee).__name__} has an unbounded loss: no PureDP follows")


@in_float64
def to_zcdp(guarantee: Guarantee | HasZCDP | HasRenyi) -> ZCDP:
    """The zero-concentrated guarantee that a guarantee or a mechanism implies.

    Args:
        guarantee: a ZCDP, GDP or PureDP; or what has `zcdp`: a mechanism, the exponential one as
            well.

    Returns:
        A `ZCDP`, rounded up: from GDP (0, mu^2 / 2) and from PureDP (0, epsilon tanh(epsilon / 2)),
        both exact; from a mechanism its own.

    PureDP: randomised response is the worst case (Kairouz, Oh & Viswanath 2015). With s = order -
    1/2 its divergence over its order is (log cosh(s epsilon) - log cosh(epsilon / 2)) / (s^2 -
    1/4); log cosh is concave in s^2, so the least order is the worst: there the ratio is the
    Kullback-Leibler divergence, epsilon tanh(epsilon / 2) <= epsilon^2 / 2. ApproxDP and RDP, which
    bound not every order: `TypeError`.

    >>> import jaxdp as dp
    >>> print(f"{dp.to_zcdp(dp.PureDP(1.0)).rho:.4f}")
    0.4621
    """
    match guarantee:
        case ZCDP():
            return guarantee
        case GDP(mu=mu):
            return ZCDP(xp.zeros_like(mu), lifted(round_up(0.5 * mu * mu, 2), mu > 0))
        case PureDP(epsilon_bound=epsilon):
            rho = xp.where(xp.isinf(epsilon), xp.inf, epsilon * xp.tanh(0.5 * epsilon))
            return ZCDP(xp.zeros_like(epsilon), lifted(round_up(rho, 8), epsilon > 0))
        case HasZCDP():
            return guarantee.zcdp()
        case _:
            raise TypeError(
                f"{type(guarantee).__name__} does not bound all Renyi divergences, so no ZCDP "
                "follows: for a composition add the to_zcdp of its mechanisms; where delta is 0 "
                "apply to_pure first"
            )


@in_float64
def to_rdp(source: Guarantee | HasRenyi, order: ArrayLike) -> RDP:
    """The Renyi divergences of a guarantee, a mechanism or a privacy loss at some orders.

    Args:
        source: a ZCDP, GDP, PureDP or RDP; or what has `renyi`: a mechanism or a privacy loss, not
            in one direction ("add", "remove") alone. An RDP must have these orders and stays as it
            is.
        order: in [1, 1e300], 1 for the Kullback-Leibler divergence; the last axis holds the orders.

    Returns:
        An `RDP`, whose values have the orders along their last axis. Rounded up, by at most 1e-12
        relatively (PureDP: where a divergence is above 1e-300).

    From ZCDP xi + order rho; from GDP order mu^2 / 2, exact; from PureDP the divergence of
    randomised response, exact (Kairouz, Oh & Viswanath 2015: every other is a processing of it).
    Bad orders and one direction alone: `ValueError`, or NaN where traced; ApproxDP: `TypeError`.

    >>> import jaxdp as dp
    >>> print(dp.to_rdp(dp.GDP(1.0), [2.0, 8.0]).value.round(4))
    [1. 4.]
    """
    order = xp.atleast_1d(checks.real("order", order, 1.0, 1e300))
    match source:
        case RDP(value=value):
            checked = source + RDP(order, 0.0)
            value = xp.broadcast_to(value, checked.value.shape)
            return RDP(checked.order, xp.where(xp.isnan(checked.value), xp.nan, value))
        case ZCDP(xi=xi, rho=rho):
            xi, rho, order = xp.broadcast_arrays(xi[..., None], rho[..., None], order)
            return RDP(order, round_up(xi + order * rho, 4))
        case GDP(mu=mu):
            mu, order = xp.broadcast_arrays(mu[..., None], order)
            return RDP(order, lifted(round_up(0.5 * order * mu * mu, 4), mu > 0))
        case PureDP(epsilon_bound=epsilon):
            epsilon, order = xp.broadcast_arrays(epsilon[..., None], order)
            return RDP(order, _renyi_of_pure(epsilon, order))
        case HasRenyi():
            require_both_directions(source, "an RDP bounds the divergences of both directions")
            by_order = vmap(source.renyi)(xp.moveaxis(order, -1, 0))
            value = xp.moveaxis(by_order, 0, -1)
            return RDP(order, round_up(value, _RENYI_ULPS))
        case _:
            raise TypeError(
                f"{type(source).__name__} bounds no Renyi divergence, so no RDP follows: where "
                "delta is 0 apply to_pure first"
            )


@in_float64
def to_gdp(guarantee: Guarantee | HasRenyi) -> GDP:
    """The Gaussian guarantee that a pure one implies, with the least mu that holds.

    Args:
        guarantee: a PureDP, or a GDP, which stays as it is.

    Returns:
        A `GDP`, mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), rounded up by at most 3e-15 relatively;
        infinite at an infinite epsilon.

    The sign of N(+-mu/2, 1) is randomised response, so its trade-off lies above the Gaussian's, and
    meets it at its corner. No finite mu follows from ApproxDP, ZCDP or RDP: `TypeError`. For a
    mechanism or a privacy loss, `gdp_with_regret` finds the nearest mu.

    >>> import jaxdp as dp
    >>> print(f"{dp.to_gdp(dp.PureDP(1.0)).mu:.4f}")
    1.2320
    """
    match guarantee:
        case GDP():
            return guarantee
        case PureDP(epsilon_bound=epsilon):
            return GDP(_mu_of_pure(epsilon))
        case _:
            raise TypeError(
                f"{type(guarantee).__name__} does not convert to a GDP that holds at every delta: "
                "dp.gdp_with_regret(loss) returns the least mu that holds where delta(epsilon) >= "
                "1e-10, and its regret"
            )


@jitted
def _mu_of_pure(epsilon: Reals) -> Reals:
    """2 x with log Q(x) = -log(1 + e^epsilon), rounded up; erf(x / sqrt 2) = tanh(epsilon / 2).

    Both by Newton's steps: from above for the first, whose left side is concave, from below for
    the second, and a line where that is straight.
    """
    straight, near = epsilon < _STRAIGHT, epsilon < 1.0
    low = xp.where(near & ~straight, epsilon, 0.5)
    share = -xp.expm1(-low) / (1.0 + xp.exp(-low))
    high = xp.where(near | (epsilon > _LARGEST_EPSILON), 1.0, epsilon)
    log_odds = high + log1p(xp.exp(-high))

    def step(_: Index, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        x, y = ends
        # erf over the density, less what it should be, is the step.
        density = xp.exp(-0.5 * x * x - LOG_SQRT_2PI)
        x = x - normal_integral_over_density(x) + 0.5 * share / density
        return x, y + (log_normal_survival(y) + log_odds) * mills(y)

    start = share * xp.exp(LOG_SQRT_2PI) / 2.0, xp.sqrt(2.0 * log_odds)
    x, y = lax.fori_loop(0, _NEWTON_STEPS, step, start)
    # What lies beyond is not searched for: Q(y) < e^(-y^2 / 2).
    far = 2.0 * xp.sqrt(2.0) * xp.sqrt(epsilon)
    value = xp.where(epsilon > _LARGEST_EPSILON, far, 2.0 * y)
    value = xp.where(near, 2.0 * x, value)
    value = xp.where(straight, 0.5 * xp.exp(LOG_SQRT_2PI) * epsilon, value)
    return round_up(xp.where(xp.isnan(epsilon), xp.nan, value), 8)


@jitted
def _renyi_of_pure(epsilon: Reals, order: Reals) -> Reals:
    """log(1 + w) / (order - 1), w = 2 sinh(a e / 2) sinh((a - 1) e / 2) / cosh(e / 2).

    At order 1 e tanh(e / 2).
    """
    first = order == 1
    s = xp.where(first, 1.0, order - 1.0)
    inside = xp.where((epsilon == 0) | xp.isinf(epsilon), 1.0, epsilon)
    parts = log1mexp(order * inside), log1mexp(s * inside), -log1p(xp.exp(-inside))
    log_w = s * inside + (parts[0] + parts[1] + parts[2])
    error = 16.0 * ULP * (1.0 + s * inside + xp.abs(parts[0]) + xp.abs(parts[1]))
    small = log1p(xp.exp(xp.minimum(log_w, 0.0)) * (1.0 + error))
    large = xp.maximum(log_w, 0.0) + log1p(xp.exp(-xp.abs(log_w))) + error
    value = round_up(xp.where(log_w < 0, small, large), 16) / s
    value = xp.where(first, round_up(inside * xp.tanh(0.5 * inside), 8), value)
    value = lifted(xp.minimum(value, epsilon), epsilon > 0)
    return xp.where((epsilon == 0) | xp.isinf(epsilon), epsilon, value)


# Largest sum of shift / scale. chosen: as in `largest_gdp`
_LARGEST_RATIO = 1e15


def largest_laplace_ratio(budget: Budget) -> Reals:
    """The largest shift / scale of one Laplace: epsilon - 2 log(1 - delta), and at most 1e15.

    One shift by the sum of the ratios dominates their composition: for log-concave noise
    f_d1 (x) f_d2 >= f_(d1 + d2) (triangle inequality of trade-offs), so that delta is at most
    1 - exp((epsilon - sum) / 2), which lies below the i.n.i.d. paper's corollary 6,
    1 - exp(epsilon - sum). Rounded down so that the delta which `Laplace.log_delta` reports is
    inside the budget.
    """
    epsilon, delta = xp.broadcast_arrays(budget.epsilon, budget.delta)
    reported_ulps = 16.0 + 10.0 * xp.abs(xp.log(xp.where(delta == 0, 1.0, delta)))
    allowance = -2.0 * log1m(delta) * (1.0 - reported_ulps * ULP)
    return xp.minimum(round_up(epsilon + allowance, -8), _LARGEST_RATIO)
