"""dp_accounting's events of other sampling schemes, mixtures and trees, as kinds of release."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import NEIGHBOURS, Relation, shift_factor
from jaxdp.guarantee.matrix_mechanism import tree_sensitivity
from jaxdp.interop.releases import (
    EVERYTHING,
    FIXED,
    MIXTURE,
    NOTHING,
    TRUNCATED,
    Release,
    everything_of,
)
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement


def scheme_event(package: Any, relation: Any, event: Any) -> Release | None:
    """The release of such an event, None for another one; bad parameters raise `ValueError`."""
    events = package.dp_event
    name = _relation(relation)
    if isinstance(event, getattr(events, "TruncatedSubsampledGaussianDpEvent", ())):
        parameters = (
            event.noise_multiplier,
            event.sampling_probability,
            event.truncated_batch_size,
            event.dataset_size,
        )
        scale, prob, limit, size = map(float, parameters)
        TruncatedPoisson(prob, limit or 1.0, size or 1.0)
        if 0 in (prob, limit, size):
            return NOTHING
        return _noisy(TRUNCATED + name, scale, (prob, limit, size))
    if isinstance(event, events.SampledWithoutReplacementDpEvent):
        sizes = float(event.sample_size), float(event.source_dataset_size)
        WithoutReplacement(sizes[0] or 1.0, sizes[1] if sizes[0] else max(sizes[1], 1.0))
        if sizes[0] == 0:
            return NOTHING
        if isinstance(event.event, events.NonPrivateDpEvent):
            return everything_of(sizes[0] / sizes[1])
        if not isinstance(event.event, events.GaussianDpEvent):
            return None
        return _noisy(FIXED + name, float(event.event.noise_multiplier), sizes)
    # A record that is removed moves all that follow to other leaves.
    is_tree = isinstance(event, events.SingleEpochTreeAggregationDpEvent)
    if is_tree and name != "add_remove":
        counts = np.atleast_1d(np.asarray(event.step_counts))
        sensitivity = max(tree_sensitivity(int(count)) for count in counts)
        sensitivity *= shift_factor(name)
        return _noisy("gaussian", float(event.noise_multiplier), (sensitivity,))
    return None


def mixture_release(deviation: float, sizes: np.ndarray, shares: np.ndarray) -> Release:
    """A mixture over several sensitivities, checked already, in the order of their size."""
    order = np.argsort(sizes)
    shares = shares[order] / shares.sum()
    return Release(f"{MIXTURE}{sizes.size}", (deviation, *sizes[order], *shares))


def _noisy(kind: str, scale: float, parameters: tuple[float, ...]) -> Release:
    scale = float(checks.real("noise_multiplier", scale, 0.0))
    if scale == 0:
        return EVERYTHING
    return NOTHING if math.isinf(scale) else Release(kind, (scale, *parameters))


def _relation(relation: Any) -> Relation:
    for name, neighbours in NEIGHBOURS.items():
        if neighbours.alias == relation.name:
            return name
    raise ValueError(f"neighboring_relation must be one that jaxdp knows, got {relation}")
