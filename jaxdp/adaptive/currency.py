"""Cost of one release in the kind of guarantee that a running budget counts in."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import ONE_DIRECTION
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import quotient_up
from jaxdp._numeric.elementary import round_up
from jaxdp.composition.privacy_loss import privacy_loss
from jaxdp.guarantee.base import BudgetLike, Guarantee, as_budget
from jaxdp.guarantee.conversions import to_gdp, to_pure, to_rdp, to_zcdp
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.renyi import RDP, ZCDP
from jaxdp.ledger import rounded, rounded_root
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian

Currency: TypeAlias = PureDP | ZCDP | RDP | GDP
Item: TypeAlias = Guarantee | Mechanism


def as_currency(budget: Currency | BudgetLike) -> Currency:
    """The budget that a `Filter` counts in: the largest GDP of an (epsilon, delta).

    At delta = 0 it is the PureDP.
    """
    if isinstance(budget, Currency):
        return budget
    budget = as_budget(budget)
    if budget.epsilon.shape or budget.delta.shape:
        raise ValueError(f"budget must be one, got a batch of shape {budget.epsilon.shape}")
    return PureDP(budget.epsilon) if float(budget.delta) == 0 else largest_gdp(budget)


def in_currency(item: Item, budget: Currency) -> Currency:
    """Cost of one `item`, rounded up, as a guarantee of the budget's kind."""
    match budget:
        case RDP(order=order):
            return divergences(item, order)
        case ZCDP():
            cost = item.zcdp() if isinstance(item, Mechanism) else to_zcdp(item)
            return ZCDP(round_up(cost.xi, 8), round_up(cost.rho, 8)) if cost is not item else cost
        case PureDP():
            is_mechanism = isinstance(item, Mechanism)
            return PureDP(item.pure_epsilon()) if is_mechanism else to_pure(item)
        case GDP():
            return _mu_of(item) if isinstance(item, Mechanism) else to_gdp(item)


def _mu_of(mechanism: Mechanism) -> GDP:
    """Its mu, of whole releases, if the noise is Gaussian; else what its pure epsilon implies."""
    noise = mechanism.noise
    if isinstance(noise, Gaussian):
        if not mechanism.sampled:
            return GDP(quotient_up(mechanism.sensitivity, noise.scale))
        # rho = mu^2 / 2, of the whole release.
        return GDP(round_up(xp.sqrt(2.0 * mechanism.zcdp().rho), 4))
    pure = mechanism.pure_epsilon()
    if not bool(xp.all(xp.isfinite(pure))):
        raise ValueError(
            "item must have a mu under a budget of GDP: Gaussian noise has one, and noise with a "
            f"pure epsilon; {type(noise).__name__} has neither here"
        )
    return to_gdp(PureDP(pure))


def divergences(item: Item, order: ArrayLike) -> RDP:
    """Cost of one `item` at the orders: `to_rdp`, of its composed loss if sampled."""
    if isinstance(item, Mechanism) and item.sampled:
        if item.relation in ONE_DIRECTION:
            raise ValueError(
                f"relation must be 'add_remove' or 'replace_one', got {item.relation!r}: a "
                "running budget covers both directions"
            )
        return to_rdp(privacy_loss(item), order)
    return to_rdp(item, order)


def numbers(guarantee: Currency) -> tuple[float, ...]:
    """The cost of one release as plain numbers; `ValueError` for a batch."""
    match guarantee:
        case PureDP(epsilon_bound=value) | GDP(mu=value):
            return (_scalar(value),)
        case ZCDP(xi=xi, rho=rho):
            return _scalar(xi), _scalar(rho)
        case RDP(value=value):
            return vector(value)


def _scalar(value: Reals) -> float:
    if value.shape:
        raise ValueError(f"item must be one release, got a batch of shape {value.shape}")
    return float(value)


def vector(value: Reals) -> tuple[float, ...]:
    """The orders of one release, or its divergences."""
    if value.ndim != 1:
        raise ValueError(f"item must be one release, got a batch of shape {value.shape[:-1]}")
    return tuple(np.asarray(value).tolist())


def measure(budget: Currency, cost: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Parts of a cost that add up: rho and xi + rho of a zCDP, mu^2 of a GDP, else all.

    xi + a rho is below its limit at every a > 1 if it is at 1 and rho is.
    """
    match budget:
        case ZCDP():
            return cost[1], cost[0] + cost[1]
        case GDP():
            return (cost[0] ** 2,)
        case _:
            return cost


def guarantee_of(budget: Currency, measure: Sequence[Fraction], up: bool) -> Currency:
    """Guarantee of a measured sum: the inverse of `measure`, rounded."""
    match budget:
        case ZCDP():
            return ZCDP(rounded(measure[1] - measure[0], up), rounded(measure[0], up))
        case GDP():
            return GDP(rounded_root(measure[0], up))
        case PureDP():
            return PureDP(rounded(measure[0], up))
        case RDP(order=order):
            return RDP(order, [rounded(value, up) for value in measure])
