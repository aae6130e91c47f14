"""Privacy loss of the history that an Opacus accountant keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian


def loss_from_history(history: Sequence[Any]) -> PrivacyLoss:
    """The privacy loss of DP-SGD steps (noise_multiplier, sample_rate, steps), as in `history`.

    `history` is that of an Opacus accountant, or `state_dict()["history"]`. Noise multipliers are
    noise over clipping norm; each step takes every record with probability `sample_rate`, on its
    own: of batches drawn otherwise this says nothing. Neighbours differ by one record more or less,
    in the worse direction. Equal entries are merged. With a noise multiplier of 0 delta is 1. Bad
    input, an empty history among it, raises `ValueError`.
    """
    if len(history) == 0:
        raise ValueError("history must hold at least one (noise_multiplier, sample_rate, steps)")
    counts: dict[tuple[float, float], float] = {}
    for index, entry in enumerate(history):
        if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 3:
            raise ValueError(
                f"history[{index}] must be (noise_multiplier, sample_rate, steps), got {entry!r}"
            )
        noise_multiplier, sample_rate, steps = entry
        values = (
            float(checks.zero_or_positive(f"history[{index}] noise_multiplier", noise_multiplier)),
            float(checks.probability(f"history[{index}] sample_rate", sample_rate, lift=True)),
        )
        count = float(checks.whole(f"history[{index}] steps", steps))
        counts[values] = counts.get(values, 0.0) + count
    silent = [(rate, count) for (scale, rate), count in counts.items() if scale == 0]
    if any(rate > 0 and count > 0 for rate, count in silent):
        return privacy_loss(ApproxDP(0.0, 1.0))
    # What is left of those without noise has no record in it, or no step, and costs nothing.
    counts = {values: count for values, count in counts.items() if values[0] > 0} or {(1.0, 0.0): 0}
    scales, rates = np.array(list(counts)).T
    steps = Mechanism(Gaussian(scales), 1.0, rates, "add_remove")
    return (np.array(list(counts.values())) * privacy_loss(steps)).sum()
