"""The course of epsilon along a training by DP-SGD."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.dpsgd.base import Phase, Phases, phases_of, step_loss
from jaxdp.dpsgd.schemes import loss_of_scheme
from jaxdp.privacy_loss import PrivacyLoss
from jaxdp.sampling.allocation import BallsInBins, RandomAllocation
from jaxdp.sampling.base import Relation


class Curve(NamedTuple):
    """Epsilon along a training: after steps[i] steps it is epsilon[..., i]."""

    steps: Reals
    epsilon: Reals


@in_float64
def curve(
    noise_multiplier: ArrayLike | None = None,
    delta: ArrayLike = 1e-6,
    *,
    every: int | Literal["epoch"] = "epoch",
    dataset_size: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    epochs: ArrayLike | None = None,
    sampling_prob: ArrayLike | None = None,
    steps: ArrayLike | None = None,
    phases: Phases | None = None,
    relation: Relation = "add_remove",
) -> Curve:
    """Epsilon at `delta` after each epoch of DP-SGD, or every so many steps, and after the last.

    Args:
        every: "epoch", of 1 / sampling_prob steps of the phase (rounded up), or a number of steps.
        steps, sampling_prob: as in `epsilon`, one known number for each phase.
        noise_multiplier, delta, dataset_size, batch_size, epochs, phases, relation: as in
            `epsilon`; noise multipliers and delta may be batched.

    Returns:
        The steps, a vector, and epsilon in nats, with them along its last axis.

    No steps, and more than one number a phase: `ValueError`.

    >>> import jaxdp as dp
    >>> course = dp.dpsgd.curve(1.0, 1e-6, sampling_prob=0.01, steps=1000, every=500)
    >>> print(course.steps, course.epsilon.round(4))
    [ 500. 1000.] [1.5803 2.1245]
    """
    schedule = dataset_size, batch_size, epochs, sampling_prob, steps
    known = phases_of(noise_multiplier, phases, *schedule)
    if any(np.size(x) != 1 for phase in known for x in (phase.sampling_prob, phase.steps)):
        raise ValueError("steps and sampling_prob must be one number in each phase of a curve")
    counts = [float(np.asarray(phase.steps).item()) for phase in known]
    starts = np.concatenate([[0.0], np.cumsum(counts)])
    if starts[-1] == 0:
        raise ValueError("steps must be 1 or more in all, got 0")
    if every == "epoch":
        rates = [float(np.asarray(phase.sampling_prob).item()) for phase in known]
        parts = [_ends(n, q) + start for n, q, start in zip(counts, rates, starts, strict=False)]
        times = np.unique(np.concatenate([*parts, starts[-1:]]))
    else:
        times = np.arange(checks.positive_integer("every", every), starts[-1], every, dtype=float)
        times = np.append(times, starts[-1])
    total = None
    for phase, count, start in zip(known, counts, starts, strict=False):
        scale = phase.noise_multiplier[..., None]
        once = _per_step(phase, scale, relation)
        part = np.clip(times - start, 0.0, count) * once
        total = part if total is None else total + part
    assert total is not None
    target = checks.probability("delta", delta)
    return Curve(jnp.asarray(times), total.epsilon(target[..., None]))


def _per_step(phase: Phase, scale: Reals, relation: Relation) -> PrivacyLoss:
    """The loss of one step of a phase at other noise multipliers."""
    if phase.scheme is None:
        return step_loss(scale, jnp.reshape(phase.sampling_prob, ()), relation)
    if isinstance(phase.scheme, RandomAllocation | BallsInBins):
        raise ValueError(
            "phases of a curve must have steps on their own: of records that are allocated to the "
            "steps of an epoch ask epsilon after each epoch"
        )
    scheme = jax.tree.map(lambda x: jnp.reshape(x, ()), phase.scheme)
    return loss_of_scheme(scale, scheme, relation, 1)


def _ends(count: float, rate: float) -> np.ndarray:
    """The ends of the whole epochs of one phase."""
    if rate == 0:
        return np.zeros(0)
    whole = np.arange(1, math.floor(count * rate * (1.0 + 1e-12)) + 1)
    return np.minimum(np.ceil(whole / rate * (1.0 - 1e-12)), count)
