"""The loss of counted releases of all kinds."""

from __future__ import annotations

import numpy as np

from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.interop.releases import Release, loss_of_kind
from jaxdp.interop.scheme_events import scheme_loss


def loss_of(counts: dict[Release, float]) -> PrivacyLoss:
    """One batch for every kind, summed."""
    kinds: dict[str, list[tuple[float, ...]]] = {}
    for release, count in counts.items():
        kinds.setdefault(release.kind, []).append((count, *release.parameters))
    losses = [_of_kind(kind, *np.array(rows).T) for kind, rows in kinds.items()]
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    return total


def _of_kind(kind: str, numbers: np.ndarray, *columns: np.ndarray) -> PrivacyLoss:
    single_loss = scheme_loss(kind, columns)
    if single_loss is None:
        return loss_of_kind(kind, numbers, *columns)
    return (numbers * single_loss).sum()
