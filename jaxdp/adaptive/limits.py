"""Sums that a running budget limits, in one or more bounds.

A budget has one or more bounds. A bound limits some of the numbers that charges add up, such as
(epsilon, delta) or mu^2, and is a filter by one of the theorems that `Filter` names. A step is
taken if all steps so far meet one of the bounds. Proof that several bounds hold together: let bound
j alone be an (epsilon, delta_j) filter, and B_j the outputs after which bound j, and no earlier
one, is met. Costs only grow, so on B_j bound j was met all the time, and the outputs are those of
filter j: P(S and B_j) <= e^epsilon Q(S and B_j) + delta_j. The sum over j is (epsilon, sum of
delta_j). Without the sum it fails: who picks the bound after a look at the outputs gets the worse
of two events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp._numeric.search import zoom
from jaxdp.adaptive.costs import Kind
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget, largest_within
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.renyi import RDP, ZCDP
from jaxdp.ledger import Number, Step, as_written

# Shares of delta: of the better of mu and the divergence for the first step, of the other, of basic
# composition. chosen: mu is 3 % smaller than with all of delta, and a third of delta is left to add
_SHARES = Fraction(1, 2), Fraction(1, 8), Fraction(3, 8)
# log(order - 1) among which the best order is looked for. chosen: from the Laplace's to 1 / delta.
_LOG_EXCESSES = -14.0, 70.0
# Orders of a round of the zoom. derived: 4 rounds leave 84 (2 / 63)^4 = 9e-5 of log(order - 1), and
# half its square of rho.
_ORDERS = 64
# Rounds of the search for the order; see _ORDERS.
_ROUNDS = 4
# Places of the sums of an (epsilon, delta).
EPSILON, DELTA, MU, DIVERGENCE = range(4)

# Limits of sums by their places.
Bound = Mapping[int, Number]


def basic(limits: Sequence[Number], share: Number) -> Bound:
    """Basic composition with a share of delta."""
    return {EPSILON: limits[EPSILON], DELTA: share * limits[DELTA]}


def bounds_of(kind: Kind, limits: Sequence[Number], first: Step) -> tuple[Bound, ...]:
    """The bounds of which one must be met; those of an (epsilon, delta) by its first step."""
    if not isinstance(kind, Budget):
        return (dict(enumerate(sums_of(kind, limits))),)
    cost = sums_of(kind, first.cost)
    full, better, other = (
        dict(zip((MU, DIVERGENCE), (mu**2, divergence), strict=True))
        for mu, divergence in zip(limits[2::2], limits[3::2], strict=True)
    )
    best = max(full, key=lambda place: ratio(full[place], cost[place]))
    alone = basic(limits, Fraction(1))
    most = min(ratio(x, cost[i]) for i, x in alone.items())
    if cost[DELTA] > 0 and most >= ratio(full[best], cost[best]):
        return (alone,)
    rest = {MU: DIVERGENCE, DIVERGENCE: MU}[best]
    shared = basic(limits, _SHARES[2]), {best: better[best]}, {rest: other[rest]}
    if is_met(shared, [first.count * x for x in cost]):
        return shared
    return basic(limits, Fraction(0)), {best: full[best]}


def sums_of(kind: Kind, cost: Sequence[Number]) -> tuple[Number, ...]:
    """Parts of a cost that add up: rho and xi + rho of a zCDP, squares of mu, else all.

    xi + a rho is below its limit at every a > 1 if it is at 1 and rho is.
    """
    match kind:
        case ZCDP():
            return cost[1], cost[0] + cost[1]
        case GDP():
            return (cost[0] ** 2,)
        case Budget():
            epsilon, delta, mu, divergence = cost
            return epsilon, delta, mu**2, divergence
        case _:
            return tuple(cost)


def is_met(bounds: Sequence[Bound], sums: Sequence[Number]) -> bool:
    """True if the sums are within all limits of one bound."""
    return any(all(sums[i] <= limit for i, limit in bound.items()) for bound in bounds)


def ratio(limit: Number, cost: Number) -> Number:
    """limit / cost, infinite for a cost of 0 and 0 for an infinite one."""
    if cost == 0:
        return math.inf if limit > 0 else 0.0
    return 0.0 if cost == math.inf else limit / cost


def single(budget: BudgetLike) -> Budget:
    """The `Budget` of an argument; `ValueError` for a batch."""
    budget = as_budget(budget)
    if budget.epsilon.shape or budget.delta.shape:
        raise ValueError(f"budget must be one, got a batch of shape {budget.epsilon.shape}")
    return budget


def as_kind(budget: Kind | BudgetLike) -> Kind:
    """The budget that a `Filter` counts in; at delta = 0 a PureDP."""
    if isinstance(budget, PureDP | ZCDP | RDP | GDP):
        return budget
    budget = single(budget)
    return budget if float(budget.delta) > 0 else PureDP(budget.epsilon)


def limits_of(budget: BudgetLike) -> tuple[tuple[float, ...], tuple[Number, ...]]:
    """An order; mu and the divergence that imply the budget with all of delta and with shares."""
    budget = single(budget)
    order, limits = float(_best_order(budget)), []
    for share in (1.0, *map(float, _SHARES[:2])):
        part = Budget(budget.epsilon, share * budget.delta)
        limits.extend((largest_gdp(part).mu, largest_rdp(part, order).value[0]))
    return (order,), tuple(as_written(float(x)) for x in limits)


@jitted
def _best_order(budget: Budget) -> Reals:
    """The order with the largest ratio of allowed divergence to order."""

    def negative(log_s: Reals) -> Reals:
        s = xp.exp(log_s)
        gain = (xp.log(budget.delta) + conversion_entropy(s)) / s
        return -(budget.epsilon + gain) / (1.0 + s)

    low, high = (xp.asarray(end) for end in _LOG_EXCESSES)
    return 1.0 + xp.exp(zoom(negative, low, high, _ORDERS, _ROUNDS)[0])


def largest_rdp(budget: BudgetLike, order: float) -> RDP:
    """The largest divergence of `order` that implies `budget`; 0 if none does."""
    return RDP(order, _largest(single(budget), xp.asarray(order)))


@jitted
def _largest(budget: Budget, order: Reals) -> Reals:
    def log_delta(value: Reals, epsilon: Reals) -> Reals:
        return RDP(order, value).log_delta(epsilon)

    return largest_within(log_delta, budget.epsilon, budget.delta)
