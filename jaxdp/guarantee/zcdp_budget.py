"""The largest zero-concentrated guarantee within a budget."""

from __future__ import annotations

from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget, largest_within
from jaxdp.guarantee.renyi import ZCDP


@in_float64
def largest_zcdp(budget: BudgetLike) -> ZCDP:
    """The largest rho whose zero-concentrated guarantee satisfies a budget.

    Args:
        budget: a `Budget` or (epsilon, delta), epsilon in nats; batched.

    Returns:
        A `ZCDP` with xi = 0, rho rounded down by a few ulps. rho = 0 (infinite noise) if nothing in
        (1e-300, 1e15) is feasible, as at delta = 0.

    The delta of a rho is the bound of Canonne, Kamath & Steinke (NeurIPS 2020, proposition 12).
    Discrete Gaussians, which have no mu, share such a budget; for Gaussians alone `largest_gdp`
    allows less noise.

    >>> import jaxdp as dp
    >>> print(f"{dp.largest_zcdp((1.0, 1e-6)).rho:.5f}")
    0.02436
    """
    return _largest(as_budget(budget))


@jitted
def _largest(budget: Budget) -> ZCDP:
    def log_delta(rho: Reals, epsilon: Reals) -> Reals:
        return ZCDP(xp.zeros_like(rho), rho).log_delta(epsilon)

    rho = largest_within(log_delta, budget.epsilon, budget.delta)
    return ZCDP(xp.zeros_like(rho), rho)
