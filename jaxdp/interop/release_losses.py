"""The loss of counted releases of all kinds."""

from __future__ import annotations

import numpy as np

from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.interop.releases import Release, loss_of_kind
from jaxdp.interop.scheme_events import scheme_loss


def loss_of(counts: dict[Release, float]) -> PrivacyLoss:
    """One batch for every kind, summed."""
    kinds: dict[str, list[tuple[float, ...]]] = {}
    for release, often in counts.items():
        kinds.setdefault(release.kind, []).append((often, *release.parameters))
    losses = [_of_kind(kind, *np.array(rows).T) for kind, rows in kinds.items()]
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    return total


def _of_kind(kind: str, often: np.ndarray, *columns: np.ndarray) -> PrivacyLoss:
    one = scheme_loss(kind, columns)
    return loss_of_kind(kind, often, *columns) if one is None else (often * one).sum()
