"""Mechanisms, guarantees and pairs with their counts, equal ones counted once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxdp._core.neighbours import NEIGHBOURS, Relation
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.guarantee.pure import ApproxDP

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
