"""Privacy loss of the history that an Opacus accountant keeps."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import Scheme


def loss_from_history(history: Sequence[Any]) -> PrivacyLoss:
    """Privacy loss of the DP-SGD steps in the history of an Opacus accountant.

    It assumes Poisson sampling: each record joins each step independently with probability
    sample_rate. Neighbours differ by one record more or less, and the worse direction is reported.
    A step with noise multiplier 0 has epsilon 0 and delta sample_rate.

    Args:
        history: `accountant.history` or `state_dict()["history"]`: triples (noise_multiplier,
            sample_rate, steps). A noise multiplier is the standard deviation of the noise divided
            by the clipping norm. Equal entries are merged.

    Returns:
        A `PrivacyLoss`. `ValueError` for bad entries and for an empty history.

    >>> import jaxdp as dp
    >>> loss = dp.interop.opacus.loss_from_history([(1.0, 0.01, 400), (1.0, 0.01, 600)])
    >>> print(f"{float(loss.epsilon(1e-6)):.4f}")
    2.1245
    """
    if len(history) == 0:
        raise ValueError("history must hold at least one (noise_multiplier, sample_rate, steps)")
    counts: dict[tuple[float, float], float] = {}
    losses = []
    for index, entry in enumerate(history):
        scale, sampling, steps = history_entry(f"history[{index}]", entry)
        if isinstance(sampling, Scheme):
            once = Mechanism(Gaussian(scale), 1.0, sampling=sampling, relation="add_remove")
            losses.append(sampling.releases(xp.float64(steps)) * privacy_loss(once))
        else:
            counts[scale, sampling] = counts.get((scale, sampling), 0.0) + steps
    # Without a record or a step nothing is spent, whatever the noise.
    counts = {values: n for values, n in counts.items() if values[1] > 0 and n > 0}
    silent = {rate: n for (scale, rate), n in counts.items() if scale == 0}
    counts = {values: n for values, n in counts.items() if values[0] > 0}
    if not silent and not counts and not losses:
        counts = {(1.0, 0.0): 0.0}
    if counts:
        scales, rates = np.array(list(counts)).T
        steps = Mechanism(Gaussian(scales), 1.0, rates, "add_remove")
        losses.append((np.array(list(counts.values())) * privacy_loss(steps)).sum())
    if silent:
        # A batch without noise tells all of a record that it holds.
        without_noise = privacy_loss(ApproxDP(0.0, np.array(list(silent))))
        losses.append((np.array(list(silent.values())) * without_noise).sum())
    return functools.reduce(operator.add, losses)


def history_entry(name: str, entry: Any) -> tuple[float, float | Scheme, int]:
    """(noise multiplier, sample rate or sampling scheme, steps) of an entry; else `ValueError`."""
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 3:
        raise ValueError(f"{name} must be (noise_multiplier, sample_rate, steps), got {entry!r}")
    scale, sampling, steps = entry
    count = int(checks.whole(f"{name} steps".strip(), steps))
    name_of_scale = f"{name} noise_multiplier".strip()
    if isinstance(sampling, Scheme):
        return float(checks.positive(name_of_scale, scale)), sampling, count
    rate = checks.probability(f"{name} sample_rate".strip(), sampling, lift=True)
    return float(checks.zero_or_positive(name_of_scale, scale)), float(rate), count
