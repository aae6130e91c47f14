"""Pure and approximate differential privacy."""

from __future__ import annotations

from typing import final

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import sum_up
from jaxdp._numeric.elementary import ULP, log1m, log1mexp, log1p, round_up
from jaxdp.guarantee.base import Guarantee, part_of, repeated


def log_delta_of_pure(bound: Reals, epsilon: Reals) -> Reals:
    """log of (e^bound - e^epsilon) / (1 + e^bound) for |epsilon| <= bound: randomised response.

    0 above, 1 - e^epsilon below. Relative error of log delta: (16 + 4 bound) ulp, upwards.
    """
    bound, epsilon = xp.broadcast_arrays(checks.guard(bound), epsilon)
    gap = xp.where(xp.isinf(bound), bound, bound - epsilon)
    inside = xp.where(gap <= 0, 1.0, gap)
    value = log1mexp(inside) - log1p(xp.exp(-bound))
    below = epsilon < -bound
    # A branch that is not taken may have no derivative.
    value = xp.where(below, log1mexp(xp.where(below, -epsilon, 1.0)), value)
    endless = xp.isinf(bound) | below
    relative_error = ULP * (8.0 + 2.0 * (xp.where(endless, 0.0, inside + bound)))
    value = xp.minimum(value + relative_error * xp.abs(value), 0.0)
    return xp.where(gap <= 0, -xp.inf, value)


def log_delta_of_approximate(bound: Reals, failure: Reals, epsilon: Reals) -> Reals:
    """log of failure + (1 - failure) delta with delta of `log_delta_of_pure`; rounded up."""
    pure = log_delta_of_pure(bound, epsilon)
    failure, pure = xp.broadcast_arrays(checks.guard(failure, 1.0), pure)
    value = xp.logaddexp(xp.log(failure), log1m(failure) + pure)
    return xp.minimum(round_up(value, 8) + 8.0 * ULP, 0.0)


@jitted
def epsilon_of_approximate(bound: Reals, failure: ArrayLike, delta: Reals) -> Reals:
    """The least epsilon >= 0 with `log_delta_of_approximate` = log(delta); infinite if none.

    bound + log(1 - (1 + e^-bound) (delta - failure) / (1 - failure)), rounded up. A failure within
    32 ulp of delta, the rounding of a sum, gives `bound`.
    """
    bound, failure, delta = xp.broadcast_arrays(
        checks.guard(bound), checks.guard(xp.asarray(failure), 1.0), delta
    )
    met = failure <= delta * (1.0 + 32.0 * ULP)
    remaining = xp.maximum(delta * (1.0 - 8.0 * ULP) - failure, 0.0) * (1.0 - 16.0 * ULP)
    share = remaining / xp.where(failure < 1, 1.0 - failure, 1.0) * (1.0 + xp.exp(-bound))
    inside = (share > 0) & (share < 1) & xp.isfinite(bound)
    lower = bound + log1m(xp.where(inside, share, 0.0)) + 8.0 * ULP * (1.0 + bound)
    value = xp.where(inside, xp.clip(lower, 0.0, bound), xp.where(share < 1, bound, 0.0))
    value = xp.where(delta == 1, 0.0, xp.where(met, value, xp.inf))
    return xp.where(xp.isnan(bound + failure + delta), xp.nan, value)


def log_delta_of_range(bound: Reals, epsilon: Reals) -> Reals:
    """log of (e^(bound / 2) - e^(epsilon / 2))^2 / (e^bound - 1) for |epsilon| <= bound.

    0 above, 1 - e^epsilon below; rounded up.
    """
    bound, epsilon = xp.broadcast_arrays(checks.guard(bound), epsilon)
    gap = xp.where(xp.isinf(bound), bound, bound - epsilon)
    inside = (gap > 0) & (epsilon >= -bound)
    half = xp.where(inside, 0.5 * gap, 1.0)
    fall, log_range = log1mexp(half), log1mexp(xp.where(inside, bound, 1.0))
    value = 2.0 * fall - log_range
    # log(1 - e^-y) turns the rounding of y into y / (e^y - 1) of it.
    finite = xp.where(xp.isinf(half), 0.0, half)
    value = value - (ULP * ((20.0 + 4.0 * finite) * fall + 10.0 * log_range))
    backward = log1mexp(xp.where(epsilon < -bound, -epsilon, 1.0)) * (1.0 - 10.0 * ULP)
    value = xp.where(epsilon < -bound, backward, value)
    return xp.where(gap <= 0, -xp.inf, xp.minimum(xp.where(gap > 0, value, gap), 0.0))


def tradeoff_of_pure(bound: Reals, failure: ArrayLike, fpr: Reals) -> Reals:
    """max(0, 1 - failure - e^bound fpr, e^-bound (1 - failure - fpr)), rounded down.

    0 at an infinite bound, where an output may reveal everything.
    """
    bound, failure, fpr = xp.broadcast_arrays(
        checks.guard(bound), checks.guard(xp.asarray(failure), 1.0), fpr
    )
    power = 1.0 - failure
    power = xp.where(failure == 0, power, round_up(power, -1))
    cost = xp.where(fpr == 0, xp.where(xp.isinf(bound), xp.inf, 0.0), xp.exp(bound) * fpr)
    falling = power - round_up(cost, 8)
    falling = xp.where(cost == 0, falling, falling - ULP)
    flat = xp.exp(-bound) * (power - fpr) * (1.0 - 8.0 * ULP)
    return xp.maximum(xp.maximum(falling, flat), 0.0)


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

    def __truediv__(self, parts: ArrayLike) -> PureDP:
        """One of `parts` equal parts: their epsilons add up to this one at most."""
        return PureDP(part_of(self.epsilon_bound, parts))


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

    @property
    def stated(self) -> tuple[Reals, Reals]:
        """Its epsilon and its delta."""
        return self.epsilon_bound, self.delta_bound

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
