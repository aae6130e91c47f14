"""dp_accounting's events of other sampling schemes, mixtures and trees, as kinds of release."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.neighbours import NEIGHBOURS, Relation, shift_factor
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.dominating_pair.gaussian_mixture import GaussianMixture
from jaxdp.guarantee.matrix_mechanism import tree_sensitivity
from jaxdp.interop.releases import EVERYTHING, NOTHING, Release
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement

# Prefixes of kinds of release. chosen: distinct; the relation, or the number of sizes, follows
_TRUNCATED = "truncated_"
_FIXED = "fixed_"
_MIXTURE = "mixture_"


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
        TruncatedPoisson(prob, limit, size)
        return _noisy(_TRUNCATED + name, scale, (prob, limit, size))
    if isinstance(event, events.SampledWithoutReplacementDpEvent):
        if not isinstance(event.event, events.GaussianDpEvent):
            return None
        sizes = float(event.sample_size), float(event.source_dataset_size)
        WithoutReplacement(*sizes)
        return _noisy(_FIXED + name, float(event.event.noise_multiplier), sizes)
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
    return Release(f"{_MIXTURE}{sizes.size}", (deviation, *sizes[order], *shares))


def scheme_loss(kind: str, columns: tuple[np.ndarray, ...]) -> PrivacyLoss | None:
    """The loss of one release of such a kind, batched; None for another one."""
    if kind.startswith(_MIXTURE):
        count = int(kind.removeprefix(_MIXTURE))
        scale, sizes, shares = columns[0], columns[1 : 1 + count], columns[1 + count :]
        pair = GaussianMixture(list(sizes), list(shares), scale)
        return privacy_loss(pair, "add_remove")
    for start, scheme in ((_TRUNCATED, TruncatedPoisson), (_FIXED, WithoutReplacement)):
        if kind.startswith(start):
            relation: Any = kind.removeprefix(start)
            drawn_scheme = scheme(*columns[1:])
            loss = privacy_loss(
                Mechanism(Gaussian(columns[0]), 1.0, sampling=drawn_scheme, relation=relation)
            )
            # A record that adds nothing is the special one: both directions count.
            return PrivacyLoss(loss.terms, "add_remove") if relation == "zero_out" else loss
    return None


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
