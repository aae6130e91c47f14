"""An accountant with the interface of Google's dp_accounting, on exact privacy losses.

`Accountant` is created on first use, because its base class is dp_accounting's own.

True-positive rates: each (epsilon, delta) that holds in both directions bounds them twice: tpr <=
delta + e^epsilon fpr, and 1 - fpr <= delta + e^epsilon (1 - tpr). The least over some of them is a
bound as well.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeAlias

import numpy as np

from jaxdp._core import checks
from jaxdp._core.functions import special
from jaxdp._core.neighbours import Relation
from jaxdp._core.threads import Locked
from jaxdp._core.types import ArrayLike
from jaxdp._numeric.elementary import ULP
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.conversions import to_rdp
from jaxdp.guarantee.renyi import RDP, ZCDP
from jaxdp.guarantee.selection import gamma_of_mean, repeat_and_select
from jaxdp.interop.counted import (
    Counts,
    Selected,
    UnsupportedError,
    add,
    costs_everything,
    loss_of,
    relation_of,
)
from jaxdp.interop.dp_events import collect

# Number of evaluated epsilons. measured: Gaussians of mu .05 to 8 have their rates to 6e-4
_POINTS = 512
# The delta whose epsilon is the last of them, above the probability of an infinite loss. chosen:
# far below the false-positive rates of the estimate
_LEAST = 1e-18
# False-positive rates of the estimate. chosen: those of dp_accounting
_RATES = np.logspace(-12.0, np.log10(0.5), 500)

Guaranteed: TypeAlias = PrivacyLoss | Guarantee


def gdp_estimate(budget: Guaranteed, rates: Any, deltas: Any) -> float:
    """The least mu of Gaussian DP that allows the true-positive rates at false-positive ones."""
    name = "false_positive_rates"
    fpr = _RATES if rates is None else np.asarray(checks.probability(name, rates))
    if fpr.size == 0 or not ((fpr > 0) & (fpr < 1)).all():
        raise ValueError(f"{name} must lie in (0, 1), one or more, got {rates}")
    if _delta_at_infinity(budget) > fpr.min():
        return float(np.inf)
    tpr, fnr = _rates(budget, fpr, deltas)
    # The smaller of the two, which has all its digits.
    reached = np.where(tpr < 0.5, np.asarray(special.ndtri(tpr)), -np.asarray(special.ndtri(fnr)))
    return max(float(np.max(reached - np.asarray(special.ndtri(fpr)))), 0.0)


def _rates(budget: Guaranteed, rates: np.ndarray, deltas: Any) -> tuple[np.ndarray, np.ndarray]:
    """True-positive rates from above, false-negative ones from below."""
    epsilon, delta = _pairs(budget, deltas)
    fpr = rates[..., None]
    with np.errstate(over="ignore", invalid="ignore"):
        cost = np.exp(epsilon) * fpr
    # Without a false alarm delta is all there is, however large the factor.
    from_tpr = np.where(fpr == 0, delta, delta + cost) * (1.0 + 16.0 * ULP)
    from_fnr = np.exp(-epsilon) * ((1.0 - fpr) * (1.0 - ULP) - delta) * (1.0 - 16.0 * ULP)
    fnr = np.maximum((1.0 - from_tpr) * (1.0 - ULP), from_fnr).max(axis=-1, initial=0.0)
    tpr = np.minimum(from_tpr.min(axis=-1, initial=1.0), (1.0 - fnr) * (1.0 + 2.0 * ULP))
    bounded = np.clip(tpr, rates, 1.0), np.clip(fnr, 0.0, 1.0 - rates)
    return np.asarray(bounded[0]), np.asarray(bounded[1])


def _pairs(budget: Guaranteed, deltas: Any) -> tuple[np.ndarray, np.ndarray]:
    """Finite epsilons, and a delta at each."""
    if deltas is not None:
        delta = np.ravel(np.asarray(checks.probability("deltas", deltas)))
        epsilon = np.asarray(budget.epsilon(delta))
        return epsilon[np.isfinite(epsilon)], delta[np.isfinite(epsilon)]
    delta_at_infinity = _delta_at_infinity(budget) * (1.0 + 1e-9)
    largest_epsilon = float(budget.epsilon(min(delta_at_infinity + _LEAST, 1.0)))
    epsilon = np.linspace(0.0, largest_epsilon if np.isfinite(largest_epsilon) else 0.0, _POINTS)
    return epsilon, np.asarray(budget.delta(epsilon))


def _delta_at_infinity(budget: Guaranteed) -> float:
    """The delta of every epsilon: the probability of an infinite loss."""
    return float(budget.delta(np.inf))


# Orders at which other losses are added to zCDP. measured: log delta is at most 10 % above that of
# all orders, on 229 random sampled Gaussians with zCDP
_ORDERS = 1.0 + np.concatenate([np.logspace(-3.0, 5.0, 161), np.logspace(6.0, 12.0, 7)])
# What bounds Renyi divergences alone, and the events that it comes from.
_WITHOUT_LOSS = {ZCDP: "ZCDpEvent", Selected: "RepeatAndSelectDpEvent"}


def __getattr__(name: str) -> Any:
    if name == "Accountant":
        return _accountant()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Answers(Locked):
    """Loss, epsilon and delta of counted releases; `_counts` is kept by `Accountant`."""

    _counts: Counts

    def privacy_loss(self) -> PrivacyLoss:
        """The privacy loss of all that was composed; raises `ValueError` if it has none."""
        if costs_everything(self._counts):
            raise ValueError("a NonPrivateDpEvent was composed: its loss is infinite")
        if not self._counts:
            raise ValueError("nothing was composed, so there is no privacy loss")
        for item, _ in self._counts.values():
            if type(item) in _WITHOUT_LOSS:
                name = _WITHOUT_LOSS[type(item)]
                raise ValueError(f"a {name} was composed: it bounds divergences and has no loss")
        return loss_of(self._counts)

    def get_epsilon(self, target_delta: ArrayLike) -> float:
        """The least epsilon >= 0 that has been shown at `target_delta`, in [0, 1]."""
        delta = checks.probability("target_delta", target_delta)
        if costs_everything(self._counts):
            return math.inf
        return float(_guarantee_of(self._counts).epsilon(delta)) if self._counts else 0.0

    def get_delta(self, target_epsilon: ArrayLike) -> float:
        """The least delta that has been shown at `target_epsilon` >= 0."""
        epsilon = checks.real("target_epsilon", target_epsilon, 0.0)
        if costs_everything(self._counts):
            return 1.0
        return float(_guarantee_of(self._counts).delta(epsilon)) if self._counts else 0.0

    def get_true_positive_rates(self, false_positive_rates: ArrayLike, deltas: Any = None) -> Any:
        """Upper bounds on the true-positive rates of any membership test.

        At false-positive rates in [0, 1]; a number for a number. The bound uses the epsilons at
        `deltas` in [0, 1]; fewer make it wider. By default it uses 512 epsilons, and the relative
        error of a Gaussian's rates is at most 6e-4.
        """
        rates = np.asarray(checks.probability("false_positive_rates", false_positive_rates))
        powers = rates
        if costs_everything(self._counts):
            powers = np.ones_like(rates)
        elif self._counts:
            powers = _rates(_guarantee_of(self._counts), rates, deltas)[0]
        return powers if rates.ndim else float(powers)

    def get_gdp_parameter_estimate(
        self, false_positive_rates: Any = None, deltas: Any = None
    ) -> float:
        """The least mu of Gaussian DP that allows `get_true_positive_rates`: no bound.

        At false-positive rates in (0, 1), by default 500 from 1e-12 to 1/2: between and beyond them
        a larger mu may be needed. Infinite where the loss is with a probability above the least of
        them.
        """
        if costs_everything(self._counts):
            return math.inf
        if not self._counts:
            return 0.0
        return gdp_estimate(_guarantee_of(self._counts), false_positive_rates, deltas)


@functools.cache
def _accountant() -> type:
    package = checks.extra("dp_accounting", "interop")
    relations = package.NeighboringRelation
    details = package.PrivacyAccountant.CompositionErrorDetails

    class Accountant(_Answers, package.PrivacyAccountant):
        """A `dp_accounting.PrivacyAccountant` whose epsilon and delta are upper bounds.

        Events: NoOp, NonPrivate, Gaussian, Laplace, DiscreteLaplace, RandomizedResponse,
        EpsilonDelta, ExponentialMechanism (by its bounded range), PermuteAndFlip (by its epsilon),
        DiscreteGaussian (exact in one dimension, else by its zCDP), MixtureOfGaussians,
        TruncatedSubsampledGaussian, SampledWithoutReplacement of a Gaussian or a NonPrivate,
        SingleEpochTreeAggregation, ZCDp, RepeatAndSelect (exact for one run), Poisson samples of a
        Laplace, of a DiscreteLaplace (records are added or removed), of Gaussians or of a
        NonPrivate, and compositions of these. The error for another event names it and the reason.
        ZCDp and RepeatAndSelect bound Renyi divergences alone: with them, other events count by
        their divergences, and `privacy_loss` raises `ValueError`. A noise multiplier of 0 has delta
        1 even in a sample, as in dp_accounting.

        Relations: REPLACE_ONE doubles the sensitivity of a query; for Poisson samples see
        `Mechanism`. REPLACE_SPECIAL replaces a record by one that contributes nothing.
        SingleEpochTreeAggregation and RandomizedResponse require one of the two; the latter is
        exact under REPLACE_ONE, and bounded by its largest loss under REPLACE_SPECIAL. Stated
        guarantees are assumed to hold under the accountant's relation.

        epsilon is in nats, with the accuracy of `PrivacyLoss.log_delta`. `ValueError` for bad
        parameters, counts and targets.
        """

        def __init__(self, neighboring_relation: Any = relations.ADD_OR_REMOVE_ONE):
            Locked.__init__(self)
            package.PrivacyAccountant.__init__(self, neighboring_relation)
            self._counts: Counts = {}
            self._relation: Relation = relation_of(neighboring_relation)

        def supports(self, event: Any) -> bool:
            """True if `event` can be composed; False for one with bad parameters."""
            try:
                return super().supports(event)
            except ValueError:
                return False

        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            counts: Counts = {}
            try:
                collect(event, self._relation, count, counts)
            except UnsupportedError as error:
                return details(invalid_event=error.event, error_message=error.reason)
            if do_compose:
                with self._lock:
                    totals = dict(self._counts)
                    for item, number in counts.values():
                        add(totals, item, number)
                    self._counts = totals
            return None

    Accountant.__module__, Accountant.__qualname__ = __name__, "Accountant"
    return Accountant


def _guarantee_of(counts: Counts) -> PrivacyLoss | Guarantee:
    """The loss of all items, or their Renyi divergences where some have no loss."""
    stated = [x for x in counts.values() if type(x[0]) in _WITHOUT_LOSS]
    others = {k: x for k, x in counts.items() if type(x[0]) not in _WITHOUT_LOSS}
    if not stated:
        return loss_of(others)
    zcdps = [(n, float(x.xi), float(x.rho)) for x, n in stated if isinstance(x, ZCDP)]
    numbers, xi, rho = np.array(zcdps or [(0.0, 0.0, 0.0)]).T
    round_up = 1.0 + 4e-16 * (2.0 + numbers.size)
    zcdp = ZCDP(float(numbers @ xi) * round_up, float(numbers @ rho) * round_up)
    if not others and len(zcdps) == len(stated):
        return zcdp
    total = to_rdp(zcdp, _ORDERS)
    for item, count in stated:
        if isinstance(item, Selected):
            total = total + count * _best_of_runs(item)
    return total + to_rdp(loss_of(others), _ORDERS) if others else total


def _best_of_runs(selected: Selected) -> RDP:
    run = _guarantee_of(selected.run)
    if math.isinf(selected.shape):
        best = repeat_and_select(run, mean=selected.mean, order=_ORDERS)
    else:
        gamma = gamma_of_mean(selected.mean, selected.shape)
        best = repeat_and_select(run, gamma=gamma, eta=selected.shape, order=_ORDERS)
    return to_rdp(best, _ORDERS)
