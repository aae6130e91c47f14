"""An accountant with the interface of Google's dp_accounting, on exact privacy losses.

`Accountant` is created on first use, because its base class is dp_accounting's own.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import Relation
from jaxdp._core.threads import Locked
from jaxdp._core.types import ArrayLike
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.conversions import to_rdp
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.interop.dp_events import (
    Counts,
    UnsupportedError,
    add,
    collect,
    costs_everything,
    loss_of,
    relation_of,
)

# Orders at which other losses are added to zCDP. measured: log delta is at most 10 % above that of
# all orders, on 229 random sampled Gaussians with zCDP
_ORDERS = 1.0 + np.concatenate([np.logspace(-3.0, 5.0, 161), np.logspace(6.0, 12.0, 7)])


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
        if any(isinstance(item, ZCDP) for item, _ in self._counts.values()):
            raise ValueError("a ZCDpEvent was composed: it bounds divergences and has no loss")
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
        SingleEpochTreeAggregation, ZCDp, Poisson samples of a Laplace, of a DiscreteLaplace
        (records are added or removed), of Gaussians or of a NonPrivate, and compositions of these.
        The error for another event names it and the reason. ZCDp bounds Renyi divergences alone:
        with it, other events count by their divergences, and `privacy_loss` raises `ValueError`. A
        noise multiplier of 0 has delta 1 even in a sample, as in dp_accounting.

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
    """The loss of all items, or their Renyi divergences where some are stated as zCDP."""
    stated = [(n, float(x.xi), float(x.rho)) for x, n in counts.values() if isinstance(x, ZCDP)]
    others = {key: x for key, x in counts.items() if not isinstance(x[0], ZCDP)}
    if not stated:
        return loss_of(others)
    numbers, xi, rho = np.array(stated).T
    round_up = 1.0 + 4e-16 * (2.0 + numbers.size)
    zcdp = ZCDP(float(numbers @ xi) * round_up, float(numbers @ rho) * round_up)
    return to_rdp(zcdp, _ORDERS) + to_rdp(loss_of(others), _ORDERS) if others else zcdp
