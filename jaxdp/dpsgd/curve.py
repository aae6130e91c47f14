"""Epsilon along a training by DP-SGD."""

from __future__ import annotations

import functools
import math
import operator
from typing import Literal, NamedTuple, Unpack

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import Relation
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.dpsgd.arguments import target_delta, with_names
from jaxdp.dpsgd.phase import Phase, Schedule, training_of


class Curve(NamedTuple):
    """Epsilon along a training: epsilon[..., i] after steps[i] steps, or epochs[i] epochs."""

    steps: Reals
    epsilon: Reals
    epochs: Reals


@with_names
@in_float64
def curve(
    noise_multiplier: ArrayLike | None = None,
    delta: ArrayLike = 1e-6,
    *,
    every: int | Literal["epoch"] = "epoch",
    **schedule: Unpack[Schedule],
) -> Curve:
    """Epsilon of DP-SGD at `delta` after each epoch, or every `every` steps, and after the last.

    Args:
        every: "epoch", of 1 / sampling_prob steps of the phase (rounded up), or a number of steps.
        noise_multiplier, delta, schedule: as in `epsilon`; noise multipliers and delta may be
            batched, steps and sampling_prob are one concrete number for each phase.

    Returns:
        The steps, a vector, epsilon in nats, with them along its last axis, and the steps in epochs
        (times the sampling probabilities).

    `ValueError` without steps, for several numbers of a phase, and within the epochs of a scheme
    that allocates records to the steps of an epoch.

    >>> import jaxdp as dp
    >>> curve = dp.dpsgd.curve(1.0, 1e-6, sampling_prob=0.01, steps=1000, every=500)
    >>> print(curve.steps, curve.epsilon.round(4))
    [ 500. 1000.] [1.5803 2.1245]
    """
    target = target_delta(delta)
    phases, relation, group_size = training_of(noise_multiplier, schedule, target)
    if any(np.size(x) != 1 for phase in phases for x in (phase.sampling_prob, phase.steps)):
        raise ValueError("steps and sampling_prob must be one number in each phase of a curve")
    counts = [float(np.asarray(phase.steps).item()) for phase in phases]
    starts = np.concatenate([[0.0], np.cumsum(counts)])
    if starts[-1] == 0:
        raise ValueError("steps must be 1 or more in all, got 0")
    rates = [float(np.asarray(phase.sampling_prob).item()) for phase in phases]
    if every == "epoch":
        parts = [_ends(n, q) + start for n, q, start in zip(counts, rates, starts, strict=False)]
        times = np.unique(np.concatenate([*parts, starts[-1:]]))
    else:
        times = np.arange(checks.positive_integer("every", every), starts[-1], every, dtype=float)
        times = np.append(times, starts[-1])
    parts = zip(counts, starts, strict=False)
    done = [np.clip(times - start, 0.0, count) for count, start in parts]
    losses = [
        _loss_after(phase, steps, relation, group_size)
        for phase, steps in zip(phases, done, strict=True)
    ]
    total = functools.reduce(operator.add, losses)
    epochs = sum(rate * steps for rate, steps in zip(rates, done, strict=True))
    return Curve(xp.asarray(times), total.epsilon(target[..., None]), xp.asarray(epochs))


def _loss_after(
    phase: Phase, counts: np.ndarray, relation: Relation, group_size: int
) -> PrivacyLoss:
    """The loss of the first steps of a phase, with a last axis for their number."""
    scale, *others = jax.tree.leaves(phase)
    leaves = [scale[..., None], *(xp.reshape(x, ()) for x in others)]
    single = jax.tree.unflatten(jax.tree.structure(phase), leaves)
    return single.sampling.releases(counts) * single.release_loss(relation, group_size)


def _ends(count: float, rate: float) -> np.ndarray:
    """The ends of the whole epochs of one phase."""
    if rate == 0:
        return np.zeros(0)
    epochs = np.arange(1, math.floor(count * rate * (1.0 + 1e-12)) + 1)
    return np.minimum(np.ceil(epochs / rate * (1.0 - 1e-12)), count)
