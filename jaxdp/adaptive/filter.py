"""A running budget: the next release may depend on earlier outputs.

The sums of `a + b` hold for parameters that are fixed in advance. A `Filter` fixes the budget
instead. It is a host object: it changes, it does not jit, and its sums are exact.

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

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.files import Format, Saved, sealed, unsealed
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.precision import require_outside_traces
from jaxdp._core.threads import Locked
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy
from jaxdp._numeric.search import zoom
from jaxdp.adaptive.costs import Item, Kind, cost_of, in_words, numbers, vector
from jaxdp.adaptive.steps import (
    ONE_CHARGE,
    Number,
    Step,
    as_written,
    from_text,
    rounded,
    rounded_root,
    rows_of,
    steps_of,
    to_text,
    whole_count,
)
from jaxdp.guarantee.base import Budget, BudgetLike, Guarantee, as_budget
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.guarantee.renyi import RDP, ZCDP

# Format of a stored filter: name and version.
_FORMAT = Format("jaxdp-filter", 2)
# Kinds of a stored budget, by name.
_KINDS = {"PureDP": PureDP, "ZCDP": ZCDP, "RDP": RDP, "GDP": GDP, "Budget": Budget}
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


class BudgetExceededError(ValueError):
    """The step would pass the budget; it was not taken.

    remaining: guarantees of which one would fit. step: with its cost.
    """

    def __init__(self, text: str, remaining: Sequence[Guarantee] = (), step: Step | None = None):
        super().__init__(text)
        self.remaining, self.step = remaining, step


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
      will be depends on the outputs;
    * `GDP`: squares of mu add (Smith & Thakurta 2022; Koskela, Tobaben & Honkela, ICLR 2023);
    * `Budget` or (epsilon, delta): epsilons and deltas add (Rogers et al.), squares of mu add, or
      the divergences of one order do. Each step counts in all of them, and is taken if one of them
      has room.

    Several bounds share delta: `jaxdp.adaptive.filter` proves that their deltas add. The first
    step, which no output has influenced, decides how. If it states a delta and basic composition
    has room for as many copies of it as the others, basic composition gets all of delta. Otherwise
    basic composition gets 3/8, the better of the others 1/2 and the last 1/8; or the better one
    all, if the step does not fit otherwise. Steps without a delta need none in basic composition:
    whatever the first step was, pure steps fit while their epsilons do. For Gaussians alone,
    `Filter(largest_gdp(budget))` has 3 % more mu.

    Items are a `Mechanism`, a guarantee, or an (epsilon, delta). A `Mechanism` costs its `zcdp`,
    its `renyi`, its `pure_epsilon`, or its mu, which Gaussian noise and noise with a pure epsilon
    have. Under an (epsilon, delta), noise without a pure epsilon costs its own epsilon at a
    sixteenth of the delta that remains, or at all of it if only this fits. A sampled mechanism
    costs its own divergences under an `RDP` and under an (epsilon, delta), and as much as the
    unsampled one elsewhere. An item that has no finite cost raises `TypeError` or `ValueError`. One
    release, not a batch. Sums are exact, and numbers that you write count as the decimals that
    Python prints: ten times 0.1 is 1. Threads may share a filter: a step is checked and charged
    atomically.
    """

    def __init__(self, budget: Kind | BudgetLike):
        kind = as_kind(budget)
        order = vector(kind.order) if isinstance(kind, RDP) else ()
        limits = tuple(as_written(x) for x in numbers(kind))
        if isinstance(kind, Budget):
            order, more = limits_of(kind)
            limits = (*limits, *more)
        self._set(kind, order, limits)

    def _set(self, kind: Kind, order: tuple[float, ...], limits: tuple[Number, ...]) -> None:
        if any(math.isinf(x) or 0 < float(x) <= checks.LEAST_NORMAL for x in limits):
            # A smaller number was lifted to this one, as costs are.
            raise ValueError(
                f"budget must be 0, or above {checks.LEAST_NORMAL} and finite, got {kind}"
            )
        self._budget, self._order, self._limits = kind, order, limits
        self._steps: tuple[Step, ...] = ()
        first = limits[:4] if isinstance(kind, Budget) else limits
        self._sums: tuple[Number, ...] = tuple(Fraction(0) for _ in sums_of(kind, first))

    @classmethod
    def within(cls, budget: BudgetLike, order: float) -> Filter:
        """The filter of one Renyi `order` whose guarantee implies the budget.

        It holds the largest divergence that Canonne, Kamath & Steinke's conversion allows: every
        release is judged by its own divergence there, a sampled one too. Many sampled steps may
        fit better at a low order, which must be chosen in advance.
        """
        order = float(checks.real("order", order, 1.0, open_lower=True))
        most = largest_rdp(budget, order)
        if not most.value[0] > 0:
            raise ValueError(f"budget must leave room for some divergence, got {budget}, {order=}")
        return Filter(most)

    @property
    def budget(self) -> Kind:
        """Budget that all the steps together will not pass."""
        with self._current():
            return self._budget

    @property
    def steps(self) -> tuple[Step, ...]:
        """The history: names, costs of one release in the budget's numbers, and counts."""
        with self._current():
            return self._steps

    def would_fit(self, item: Item, count: object = 1) -> bool:
        """True if `spend` would take the step; bad input raises as there."""
        with self._current():
            step = self._step(item, count, "")
            return is_met(self._bounds(step), self._after(self._sums, step))

    def admitted(self, item: Item, count: object = 1, name: str = "") -> Step:
        """The step that `spend` would take, or `BudgetExceededError` with what would fit."""
        with self._current():
            return self._admitted(item, count, name)

    def spend(self, item: Item, count: object = 1, name: str = "") -> None:
        """Take `count` releases of `item`, or raise `BudgetExceededError` and change nothing."""
        with self._current():
            self._take([self._admitted(item, count, name)])

    def spent(self) -> Guarantee:
        """The sum of the steps, rounded up: valid as a guarantee for steps fixed in advance.

        For adaptive ones what holds is the `budget`. Of an (epsilon, delta) it is the sum in the
        bound with the most room: an `ApproxDP`, a `GDP` or an `RDP`.
        """
        with self._current():
            return self._guarantee(self._roomiest(), dict(enumerate(self._sums)), up=True)

    def remaining(self) -> Guarantee:
        """A guarantee that still fits, rounded down; for ZCDP the one with the most rho."""
        with self._current():
            return self._remaining(self._roomiest())

    def to_json(self) -> str:
        """The state as text; numbers are exact, so that `from_json` resumes where this stands."""
        with self._current():
            payload = {
                "kind": type(self._budget).__name__,
                "order": [*map(to_text, self._order)],
                "budget": [*map(to_text, self._limits)],
                "steps": rows_of(self._steps),
            }
            return sealed(_FORMAT, payload)

    @classmethod
    def from_json(cls, text: str) -> Filter:
        """Filter from what `to_json` wrote; `ValueError` for other, changed or overspent text."""
        body = unsealed(_FORMAT, text)
        for key in ("kind", "order", "budget", "steps"):
            if not isinstance(body.get(key), str | list):
                raise ValueError(f"text must hold {key}")
        kind = checks.one_of("kind", body["kind"], tuple(_KINDS))
        limits = tuple(map(from_text, body["budget"]))
        order = tuple(float(from_text(x)) for x in body["order"])
        values = [float(x) for x in limits]
        budget = RDP(order, values) if kind == "RDP" else _KINDS[kind](*values[:2])
        restored = object.__new__(Filter)
        restored._set(budget, order, limits)
        restored._take(steps_of(body["steps"]))
        return restored

    @contextlib.contextmanager
    def _current(self, is_charged: bool = False) -> Iterator[Any]:
        """The state as it is now, for this thread alone."""
        with self._lock:
            yield

    def _take(self, steps: Sequence[Step]) -> None:
        """Add steps; `ValueError` if all together do not fit."""
        sums, taken = self._sums, (*self._steps, *steps)
        for step in steps:
            sums = self._after(sums, step)
        if taken and not is_met(bounds_of(self._budget, self._limits, taken[0]), sums):
            raise ValueError(f"steps must fit in the budget {self._budget}, got {len(taken)}")
        self._sums, self._steps = sums, taken

    def _admitted(self, item: Item, count: object, name: str) -> Step:
        """The step of an item that fits; else `BudgetExceededError`."""
        step = self._step(item, count, name)
        bounds = self._bounds(step)
        if is_met(bounds, self._after(self._sums, step)):
            return step
        rest = [self._remaining(bound) for bound in bounds if self._room(bound) >= 0]
        left = " or ".join(in_words(x, numbers(x)) for x in rest) or "nothing"
        cost, most = in_words(self._budget, step.cost), max(self._copies(b, step) for b in bounds)
        raise BudgetExceededError(
            f"item must fit in what remains, {left}, got {count} x {item}, which costs {count} x "
            f"({cost}): {most} x would fit; equal parts that fit together are budget / number",
            rest,
            step,
        )

    def _step(self, item: Item, count: object, name: str) -> Step:
        require_outside_traces(type(self).__name__, ONE_CHARGE)
        number = whole_count(count)
        cost = cost_of(item, self._budget, self._order, self._basic_left(number))
        if all(math.isinf(x) for x in cost):
            raise BudgetExceededError(f"item must have a finite cost, got {cost} for {item}")
        return Step(name or type(item).__name__, cost, number)

    def _basic_left(self, number: int) -> tuple[Number, Number]:
        """Epsilon and delta that basic composition has left for each of so many releases."""
        if not isinstance(self._budget, Budget):
            return 0.0, 0.0
        pair = self._bounds()[0] if self._steps else basic(self._limits, Fraction(1))
        epsilon, delta = (max(x - self._sums[i], Fraction(0)) / number for i, x in pair.items())
        return epsilon, delta

    def _after(self, sums: Sequence[Number], step: Step) -> tuple[Number, ...]:
        costs = sums_of(self._budget, step.cost)
        return tuple(x + step.count * y for x, y in zip(sums, costs, strict=True))

    def _bounds(self, first: Step | None = None) -> tuple[Bound, ...]:
        """The bounds of the first step, which may be the one to come."""
        steps = self._steps or (first or Step("", self._limits, 1),)
        return bounds_of(self._budget, self._limits, steps[0])

    def _roomiest(self) -> Bound:
        """The bound with the largest part left; of a new (epsilon, delta) basic composition."""
        if isinstance(self._budget, Budget) and not self._steps:
            return basic(self._limits, Fraction(1))
        return max(self._bounds(), key=self._room)

    def _room(self, bound: Bound) -> float:
        """The least part of the bound's limits that is left, negative if one is passed."""
        return min(1.0 - float(ratio(self._sums[i], limit)) for i, limit in bound.items())

    def _copies(self, bound: Bound, step: Step) -> int:
        """The number of releases of the step that fit."""
        cost = sums_of(self._budget, step.cost)
        ratios = (ratio(x - self._sums[i], cost[i]) for i, x in bound.items() if cost[i])
        return max(0, math.floor(min(ratios))) if self._room(bound) >= 0 else 0

    def _remaining(self, bound: Bound) -> Guarantee:
        left = {i: limit - self._sums[i] for i, limit in bound.items()}
        if isinstance(self._budget, ZCDP):
            left[0] = min(left.values())
        return self._guarantee(bound, left, up=False)

    def _guarantee(self, bound: Bound, sums: Bound, up: bool) -> Guarantee:
        """The guarantee of sums in a bound, rounded."""
        values = [sums[i] for i in bound]
        budget = self._budget
        if isinstance(budget, ZCDP):
            return ZCDP(rounded(values[1] - values[0], up), rounded(values[0], up))
        if isinstance(budget, GDP) or (isinstance(budget, Budget) and MU in bound):
            return GDP(rounded_root(values[0], up))
        if isinstance(budget, PureDP):
            return PureDP(rounded(values[0], up))
        if isinstance(budget, Budget) and DELTA in bound:
            return ApproxDP(*(rounded(x, up) for x in values))
        return RDP(self._order, [rounded(x, up) for x in values])


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


@np.errstate(divide="ignore", invalid="ignore")  # of a delta of 0, and of an infinite epsilon
def largest_rdp(budget: BudgetLike, order: float) -> RDP:
    """The largest divergence of `order` > 1 that implies `budget`, rounded down; 0 if none does.

    It is epsilon + (log(delta) + H(s)) / s with s = order - 1: see `RDP.log_delta`.
    """
    budget, s = single(budget), xp.asarray(order) - 1.0
    log, entropy = xp.log(budget.delta), conversion_entropy(s)
    value = budget.epsilon + (log + entropy) / s
    rounding = 64.0 * ULP * (budget.epsilon + (entropy - log) / s)
    value = xp.where(budget.epsilon == xp.inf, xp.inf, value - rounding)
    return RDP(order, xp.maximum(value, 0.0))
