"""A running budget: the next release may depend on earlier outputs.

The sums of `a + b` hold for parameters that are fixed in advance. A `Filter` fixes the budget
instead. It is a host object: it changes, it does not jit, and its sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import final

from jaxdp import ledger
from jaxdp._core import checks
from jaxdp._core.compilation import jitted, require_outside_traces
from jaxdp._core.files import Format, Saved
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.threads import Locked
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp._numeric.search import zoom
from jaxdp.adaptive.currency import (
    Currency,
    Item,
    as_currency,
    guarantee_of,
    in_currency,
    measure,
    numbers,
    vector,
)
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget, largest_within
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.renyi import RDP, ZCDP
from jaxdp.ledger import ONE_CHARGE, Step

# First line of a stored filter, and the budgets that it may hold.
_FORMAT = Format("jaxdp-filter")
_KINDS = {"PureDP": PureDP, "ZCDP": ZCDP, "RDP": RDP, "GDP": GDP}
# log(order - 1) among which the best order is looked for. chosen: from the Laplace's to 1 / delta.
_LOG_EXCESSES = -14.0, 70.0
# Orders of a round of the zoom. derived: 4 rounds leave 84 (2 / 63)^4 = 9e-5 of log(order - 1), and
# half its square of rho.
_ORDERS = 64
# Rounds of the search for the order; see _ORDERS.
_ROUNDS = 4


class BudgetExceededError(ValueError):
    """The step would pass the budget; it was not taken."""


@final
@in_float64
class Filter(Locked, Saved):
    """Lets adaptively chosen releases through until `budget` would be passed.

    All accepted releases together satisfy `budget`, at any stopping time, if each step's guarantee
    holds given the outputs before it:

    * `PureDP`: epsilons add (Rogers, Roth, Ullman & Vadhan, NeurIPS 2016);
    * `ZCDP`: the sums are at most xi + a rho at every order a > 1 (Whitehouse, Ramdas, Rogers & Wu,
      ICML 2023; it is the filter below at each order);
    * `RDP`: the values add and satisfy the budget at each of its orders (Feldman & Zrnic,
      NeurIPS 2021; Lecuyer 2021). One order that still has room is not enough: which one that
      will be depends on the outputs. To be judged at the best order, choose it in advance;
    * `GDP`: squares of mu add (Smith & Thakurta 2022; Koskela, Tobaben & Honkela, ICLR 2023).

    A `Budget` or (epsilon, delta) is kept as its `largest_gdp`, and at delta = 0 as a `PureDP`.
    Gaussians can use all of it. Discrete Gaussians and ZCDPs have no mu, and require a `ZCDP` as
    the budget, as `largest_zcdp(budget)`.

    Items are converted to the budget's kind: a `Mechanism` by its `zcdp`, by its `renyi` for
    `RDP`, by its `pure_epsilon` for `PureDP`, by its mu for `GDP` if its noise is Gaussian, else by
    its `pure_epsilon`. A guarantee of a kind that does not convert raises `TypeError`; noise with
    neither a mu nor a pure epsilon raises `ValueError` under `GDP`. A sampled mechanism costs its
    own divergences under an `RDP`, and as much as the unsampled one under the others (its
    divergences at the largest orders are as large). One release, not a batch; finite costs. Sums
    are exact, so that no rounding lets a step through. Threads may share a filter: a step is
    checked and charged atomically.
    """

    def __init__(self, budget: Currency | BudgetLike):
        budget = as_currency(budget)
        super().__init__()
        self._budget = budget
        self._limits = measure(budget, ledger.exact("budget", numbers(budget)))
        self._steps: tuple[Step, ...] = ()
        self._sums = tuple(Fraction(0) for _ in self._limits)

    @classmethod
    def within(cls, budget: BudgetLike, order: float | None = None) -> Filter:
        """The filter of one Renyi order whose guarantee implies `budget`, however one stops.

        It holds the largest divergence that Canonne, Kamath & Steinke's conversion allows, by
        default at the order where that is the most rho of zCDP: every release is judged by its own
        divergence there, a sampled one too. Many sampled steps may fit better at a lower `order`,
        which must be chosen in advance. For Gaussians alone `Filter(largest_gdp(budget))` is
        tighter.
        """
        budget = as_budget(budget)
        if budget.epsilon.shape or budget.delta.shape:
            raise ValueError(f"budget must be one, got a batch of shape {budget.epsilon.shape}")
        if order is not None:  # order 1 implies no budget
            order = float(checks.real("order", order, 1.0, open_lower=True))
        orders = RDP(_best_order(budget) if order is None else order, 0.0).order
        most = _largest(budget, orders)
        if not most > 0:
            raise ValueError(f"budget must leave room for some divergence, got {budget}, {order=}")
        return cls(RDP(orders, most))

    @property
    def budget(self) -> Currency:
        """Budget that all the steps together will not pass."""
        return self._budget

    @property
    def steps(self) -> tuple[Step, ...]:
        """The history: names, costs of one release in the budget's kind, and counts."""
        return self._steps

    def would_fit(self, item: Item, count: object = 1) -> bool:
        """True if `spend` would take the step; bad input raises as there."""
        try:
            return self._fits(self._after(self._step(item, count, "")))
        except BudgetExceededError:
            return False

    def spend(self, item: Item, count: object = 1, name: str = "") -> None:
        """Take `count` releases of `item`, or raise `BudgetExceededError` and change nothing."""
        step = self._step(item, count, name)
        with self._lock:
            sums = self._after(step)
            if not self._fits(sums):
                left, sizes = numbers(self.remaining()), ", ".join(map(repr, step.cost))
                raise BudgetExceededError(
                    f"item must fit in what remains, {', '.join(map(repr, left))} of "
                    f"{type(self._budget).__name__}, got {count} x {item}, which costs {count} x "
                    f"{sizes}: equal parts that fit together are budget / number"
                )
            self._sums, self._steps = sums, (*self._steps, step)

    def spent(self) -> Currency:
        """The sum of the steps, rounded up: valid as a guarantee for steps fixed in advance.

        For adaptive ones what holds is the `budget`, or an `Odometer`.
        """
        return guarantee_of(self._budget, self._sums, up=True)

    def remaining(self) -> Currency:
        """A guarantee that still fits, rounded down; for ZCDP the one with the most rho."""
        left = [limit - total for limit, total in zip(self._limits, self._sums, strict=True)]
        if isinstance(self._budget, ZCDP):
            left[0] = min(left)
        return guarantee_of(self._budget, left, up=False)

    def to_json(self) -> str:
        """The state as text; numbers are exact, so that `from_json` resumes where this stands."""
        order = vector(self._budget.order) if isinstance(self._budget, RDP) else ()
        payload = {"order": ledger.to_hex(order), "budget": ledger.to_hex(numbers(self._budget))}
        return ledger.dump(_FORMAT, {"kind": type(self._budget).__name__, **payload}, self._steps)

    @classmethod
    def from_json(cls, text: str) -> Filter:
        """Filter from what `to_json` wrote; `ValueError` for other, changed or overspent text."""
        body, steps = ledger.parse(_FORMAT, text, ("kind", "order", "budget"))
        kind = checks.one_of("kind", body["kind"], tuple(_KINDS))
        numbers = ledger.from_hex(body["budget"])
        order = ledger.from_hex(body["order"])
        restored = cls(RDP(order, numbers) if kind == "RDP" else _KINDS[kind](*numbers))
        return restored.resumed(steps)

    def resumed(self, steps: Sequence[Step]) -> Filter:
        """The filter itself after steps that were taken; `ValueError` if they do not fit."""
        for step in steps:
            self._sums = self._after(step)
        self._steps = (*self._steps, *steps)
        if not self._fits(self._sums):
            raise ValueError(f"steps must fit in the budget {self._budget}, got {self.spent()}")
        return self

    def _step(self, item: Item, count: object, name: str) -> Step:
        require_outside_traces("Filter", ONE_CHARGE)
        cost = numbers(in_currency(item, self._budget))
        if math.inf in cost:
            raise BudgetExceededError(f"item must have a finite cost, got {cost} for {item}")
        return Step(name or type(item).__name__, cost, ledger.whole_count(count))

    def _after(self, step: Step) -> tuple[Fraction, ...]:
        costs = measure(self._budget, ledger.exact("cost", step.cost))
        pairs = zip(self._sums, costs, strict=True)
        return tuple(total + step.count * cost for total, cost in pairs)

    def _fits(self, sums: Sequence[Fraction]) -> bool:
        return all(total <= limit for total, limit in zip(sums, self._limits, strict=True))


@jitted
def _best_order(budget: Budget) -> Reals:
    """The order with the largest ratio of allowed divergence to order."""

    def negative(log_s: Reals) -> Reals:
        s = xp.exp(log_s)
        gain = (xp.log(budget.delta) + conversion_entropy(s)) / s
        return -(budget.epsilon + gain) / (1.0 + s)

    low, high = (xp.asarray(end) for end in _LOG_EXCESSES)
    return 1.0 + xp.exp(zoom(negative, low, high, _ORDERS, _ROUNDS)[0])


@jitted
def _largest(budget: Budget, order: Reals) -> Reals:
    """The largest divergence of `order` that implies `budget`; 0 if none does."""

    def log_delta(value: Reals, epsilon: Reals) -> Reals:
        return RDP(order, value).log_delta(epsilon)

    return largest_within(log_delta, budget.epsilon, budget.delta)
