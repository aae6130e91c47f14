"""An accountant with the interface of Google's dp_accounting, on exact privacy losses.

`Accountant` is created on first use, because its base class is dp_accounting's own.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Hashable
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import NEIGHBOURS, Relation
from jaxdp._core.threads import Locked
from jaxdp._core.types import ArrayLike
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.poisson import Poisson
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement

# Things with their counts, by structure and parameters.
Counts: TypeAlias = dict[Hashable, tuple[Any, float]]


@functools.cache
def everything() -> ApproxDP:
    """The guarantee of an event that costs everything."""
    return ApproxDP(0.0, 1.0)


class UnsupportedError(Exception):
    """An event that cannot be accounted for, and why."""

    def __init__(self, event: Any, reason: str):
        super().__init__(reason)
        self.event, self.reason = event, reason


def add(counts: Counts, item: Any, count: float | int) -> None:
    """Add `count` times an item."""
    key = key_of(item)
    counts[key] = item, counts.get(key, (item, 0.0))[1] + count


def costs_everything(counts: Counts) -> bool:
    """True if an event that costs everything was counted."""
    return key_of(everything()) in counts


def loss_of(counts: Counts) -> PrivacyLoss:
    """The privacy loss of all items: one batch for every structure, summed."""
    batches: dict[Any, list[tuple[float, ...]]] = {}
    for item, count in counts.values():
        structure, parameters = key_of(item)
        batches.setdefault(structure, []).append((count, *parameters))
    losses = []
    for structure, rows in batches.items():
        numbers, *columns = np.array(rows).T
        loss = (numbers * privacy_loss(jax.tree.unflatten(structure, columns))).sum()
        # A record that adds nothing is the special one: both directions count.
        zeroed = loss.relation == "zero_out"
        losses.append(PrivacyLoss(loss.terms, "add_remove") if zeroed else loss)
    return functools.reduce(operator.add, losses)


def relation_of(neighboring_relation: Any) -> Relation:
    """Our name of a relation of dp_accounting."""
    for name, neighbours in NEIGHBOURS.items():
        if neighbours.alias == neighboring_relation.name:
            return name
    raise ValueError(f"neighboring_relation must be a known one, got {neighboring_relation}")


def key_of(item: Any) -> tuple[Any, tuple[float, ...]]:
    """Structure and parameters of an item."""
    leaves, structure = jax.tree.flatten(item)
    return structure, tuple(map(float, leaves))


def name_of(event: Any) -> str:
    """The name of an event's class, or of its base class in dp_accounting."""
    names = (
        x.__name__
        for x in type(event).__mro__
        if x.__module__.startswith("dp_accounting") and x.__name__ != "DpEvent"
    )
    return next(names, type(event).__name__)


def holds_non_private(event: Any) -> bool:
    """True if the event is or holds a NonPrivateDpEvent."""
    if name_of(event) == "NonPrivateDpEvent":
        return True
    parts = getattr(event, "events", None) or [getattr(event, "event", None)]
    return any(part is not None and holds_non_private(part) for part in parts)


# Factors that round up and down. derived: a few operations of half an ulp each
_UP, _DOWN = 1.0 + 1e-15, 1.0 - 1e-15


def collect(event: Any, relation: Relation, count: float | int, counts: Counts) -> None:
    """Add `count` times the mechanisms of `event` to `counts`; `ValueError` for bad parameters."""
    if not (count >= 0 and float(count).is_integer()):
        raise ValueError(f"count must be whole and not negative, got {count}")
    match name_of(event):
        case "SelfComposedDpEvent":
            # The count of the event is checked on its own: two negative ones are no count.
            inner: Counts = {}
            collect(event.event, relation, event.count, inner)
            for item, repeats in inner.values():
                add(counts, item, count * repeats)
        case "ComposedDpEvent":
            for part in event.events:
                collect(part, relation, count, counts)
        case "PoissonSampledDpEvent" if event.sampling_probability == 1:
            collect(event.event, relation, count, counts)
        case _:
            item = _mechanism(event, relation)
            if item is not None and count > 0:
                add(counts, item, count)


def _mechanism(event: Any, relation: Relation) -> Any:
    """The mechanism or guarantee of a single event, None for no release."""
    moves = NEIGHBOURS[relation].factor
    match name_of(event):
        case "NoOpDpEvent":
            return None
        case "NonPrivateDpEvent":
            return everything()
        case "GaussianDpEvent":
            return _noisy(Gaussian, event.noise_multiplier, moves)
        case "LaplaceDpEvent":
            return _noisy(Laplace, event.noise_multiplier, moves)
        case "DiscreteLaplaceDpEvent":
            return _discrete_laplace(event, moves)
        case "ExponentialMechanismDpEvent":
            return ExponentialMechanism(event.epsilon)
        case "EpsilonDeltaDpEvent":
            return ApproxDP(event.epsilon, event.delta)
        case "TruncatedSubsampledGaussianDpEvent":
            return _truncated(event, relation)
        case "SampledWithoutReplacementDpEvent":
            return _without_replacement(event, relation)
        case "PoissonSampledDpEvent":
            return _sampled(event, relation)
        case name:
            reason = f"{name} is not one of the events whose exact loss is known."
            raise UnsupportedError(event, reason)


def _number(name: str, value: Any, upper: float = math.inf) -> float:
    return float(checks.real(name, value, 0.0, upper))


def _noisy(
    noise: type[Gaussian | Laplace],
    noise_multiplier: Any,
    sensitivity: float,
    scheme: Scheme | None = None,
    relation: Relation | None = None,
) -> Any:
    scale = _number("noise_multiplier", noise_multiplier)
    if scale == 0:
        return everything()
    if scale == math.inf:
        return None
    return Mechanism(noise(scale), sensitivity, sampling=scheme, relation=relation)


def _truncated(event: Any, relation: Relation) -> Any:
    sizes = event.sampling_probability, event.truncated_batch_size, event.dataset_size
    prob, limit, size = map(float, sizes)
    scheme = TruncatedPoisson(prob, limit or 1.0, size or 1.0)
    if 0 in (prob, limit, size):
        return None
    return _noisy(Gaussian, event.noise_multiplier, 1.0, scheme, relation)


def _without_replacement(event: Any, relation: Relation) -> Any:
    batch, size = float(event.sample_size), float(event.source_dataset_size)
    scheme = WithoutReplacement(batch or 1.0, size if batch else max(size, 1.0))
    if batch == 0:
        return None
    match name_of(event.event):
        case "NonPrivateDpEvent":
            # Whatever the scheme, outputs of two neighbours differ at most that often.
            return ApproxDP(0.0, batch / size)
        case "GaussianDpEvent":
            return _noisy(Gaussian, event.event.noise_multiplier, 1.0, scheme, relation)
    raise UnsupportedError(event, "A SampledWithoutReplacementDpEvent must hold a GaussianDpEvent.")


def _discrete_laplace(event: Any, moves: float) -> Any:
    parameter = _number("noise_parameter", event.noise_parameter)
    sensitivity = float(checks.whole("sensitivity", event.sensitivity)) * moves
    if sensitivity == 0 or parameter == math.inf:
        return None
    return Mechanism(DiscreteLaplace(_DOWN / parameter), sensitivity) if parameter else everything()


def _sampled(event: Any, relation: Relation) -> Any:
    """A Poisson sample of one noise, or of Gaussians, which together are one Gaussian."""
    rate = _number("sampling_probability", event.sampling_probability, 1.0)
    inner: Counts = {}
    collect(event.event, relation, 1, inner)
    if rate == 0 or not inner:
        return None
    if costs_everything(inner):
        # dp_accounting takes noise of scale 0 for non-private even in a sample: delta is 1.
        return ApproxDP(0.0, rate) if holds_non_private(event) else everything()
    drawn: Relation = "replace_one" if relation == "replace_one" else "add_remove"
    items = list(inner.values())
    if all(_is_gaussian(item) for item, _ in items):
        (first, count), *others = items
        scale = float(first.noise.scale)
        if others or count > 1:
            scale = _DOWN / math.sqrt(sum(n / float(x.noise.scale) ** 2 for x, n in items))
        return Mechanism(Gaussian(scale), 1.0, rate, drawn)
    if all(isinstance(x, ApproxDP) and float(x.epsilon_bound) == 0 for x, _ in items):
        never = sum(n * math.log1p(-float(x.delta_bound)) for x, n in items)
        return ApproxDP(0.0, min(-math.expm1(never) * rate * (1.0 + 1e-14), 1.0))
    match items:
        case [(Mechanism(noise=Laplace() as noise, sampling=None), 1.0)]:
            return Mechanism(noise, 1.0, rate, drawn)
        case [(Mechanism(noise=DiscreteLaplace(), sampling=None) as one, 1.0)] if (
            drawn == "add_remove"
        ):
            return Mechanism(one.noise, float(one.sensitivity), rate, drawn)
        case [(Mechanism(sampling=Poisson() as scheme) as one, 1.0)]:
            joint_rate = min(rate * float(scheme.sampling_prob) * _UP, 1.0)
            return Mechanism(one.noise, float(one.sensitivity), joint_rate, drawn)
    names = sorted({type(getattr(x, "noise", x)).__name__ for x, _ in items})
    raise UnsupportedError(
        event,
        "A PoissonSampledDpEvent must hold one LaplaceDpEvent, GaussianDpEvents alone, or where "
        "no record is replaced one DiscreteLaplaceDpEvent: the loss of a sample of "
        f"{', '.join(names)} is not known.",
    )


def _is_gaussian(item: Any) -> bool:
    return isinstance(item, Mechanism) and not item.sampled and isinstance(item.noise, Gaussian)


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
        return loss_of(self._counts)

    def get_epsilon(self, target_delta: ArrayLike) -> float:
        """The least epsilon >= 0 that has been shown at `target_delta`, in [0, 1]."""
        delta = checks.probability("target_delta", target_delta)
        if costs_everything(self._counts):
            return math.inf
        return float(loss_of(self._counts).epsilon(delta)) if self._counts else 0.0

    def get_delta(self, target_epsilon: ArrayLike) -> float:
        """The least delta that has been shown at `target_epsilon` >= 0."""
        epsilon = checks.real("target_epsilon", target_epsilon, 0.0)
        if costs_everything(self._counts):
            return 1.0
        return float(loss_of(self._counts).delta(epsilon)) if self._counts else 0.0


@functools.cache
def _accountant() -> type:
    package = checks.extra("dp_accounting", "interop")
    relations = package.NeighboringRelation
    details = package.PrivacyAccountant.CompositionErrorDetails

    class Accountant(_Answers, package.PrivacyAccountant):
        """A `dp_accounting.PrivacyAccountant` whose epsilon and delta are upper bounds.

        Events: NoOp, NonPrivate, Gaussian, Laplace, DiscreteLaplace, EpsilonDelta,
        ExponentialMechanism (by its bounded range), TruncatedSubsampledGaussian,
        SampledWithoutReplacement of a Gaussian or a NonPrivate, Poisson samples of a Laplace, of a
        DiscreteLaplace (records are added or removed), of Gaussians or of a NonPrivate, and
        compositions of these. The error for another event names it and the reason. A noise
        multiplier of 0 has delta 1 even in a sample, as in dp_accounting.

        Relations: REPLACE_ONE doubles the sensitivity of a query; for Poisson samples see
        `Mechanism`. REPLACE_SPECIAL replaces a record by one that contributes nothing. Stated
        guarantees are assumed to hold under the accountant's relation.

        epsilon is in nats, with the accuracy of `PrivacyLoss.log_delta`. `ValueError` for bad
        parameters, counts and targets.
        """

        def __init__(self, neighboring_relation: Any = relations.ADD_OR_REMOVE_ONE):
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
