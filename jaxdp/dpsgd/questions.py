"""Epsilon, delta, noise, steps and the course of epsilon of DP-SGD, each in one call."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.design.calibrate import calibrate_from
from jaxdp.dpsgd.base import Phase, Phases, loss_of, phases_of, rate_of, step_loss
from jaxdp.guarantee.base import Budget, as_budget
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.sampling.base import Relation

# Steps at most, where nothing exceeds the budget. chosen: no one trains longer
MOST_STEPS = 2.0**30
# The least noise multiplier that is searched. chosen: no training works below
_LEAST_NOISE = 1e-3
# The largest. chosen: no training works above
_LARGEST_NOISE = 1e9
# Halvings of the logarithm of a first guess. chosen: to 1e-6, far below the central limit's error
_GUESS_HALVINGS = 25


@in_float64
def epsilon(
    noise_multiplier: ArrayLike | None = None,
    delta: ArrayLike = 1e-6,
    *,
    dataset_size: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    epochs: ArrayLike | None = None,
    sampling_prob: ArrayLike | None = None,
    steps: ArrayLike | None = None,
    phases: Phases | None = None,
    relation: Relation = "add_remove",
) -> Reals:
    """The epsilon of DP-SGD at `delta`, in nats: an upper bound, rounding included.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm.
        delta: in [0, 1].
        dataset_size, batch_size, epochs, sampling_prob, steps: see `Phase`; the rate and the
            length in either language.
        phases: instead of all these a `Phase` or a list of them, which compose.
        relation: what neighbours differ in, see `Mechanism`. "add_remove": one record more or
            less, the worse of the two.

    Returns:
        epsilon, of the common shape of all arguments, which broadcast.

    Every step must draw a Poisson sample; `statement` says what else must hold.

    >>> import jaxdp as dp
    >>> print(f"{dp.dpsgd.epsilon(1.0, 1e-6, sampling_prob=0.01, steps=1000):.4f}")
    2.1245
    """
    schedule = dataset_size, batch_size, epochs, sampling_prob, steps
    return loss_of(phases_of(noise_multiplier, phases, *schedule), relation).epsilon(delta)


@in_float64
def delta(
    noise_multiplier: ArrayLike | None = None,
    epsilon: ArrayLike = 1.0,
    *,
    dataset_size: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    epochs: ArrayLike | None = None,
    sampling_prob: ArrayLike | None = None,
    steps: ArrayLike | None = None,
    phases: Phases | None = None,
    relation: Relation = "add_remove",
) -> Reals:
    """The delta of DP-SGD at `epsilon`: an upper bound, rounding included.

    Args:
        epsilon: nats.
        noise_multiplier, dataset_size, batch_size, epochs, sampling_prob, steps, phases, relation:
            as in `epsilon`.

    Returns:
        delta, of the common shape of all arguments, which broadcast.

    Every step must draw a Poisson sample; `statement` says what else must hold.

    >>> import jaxdp as dp
    >>> print(f"{dp.dpsgd.delta(1.0, 1.0, sampling_prob=0.01, steps=1000):.4e}")
    2.6124e-03
    """
    schedule = dataset_size, batch_size, epochs, sampling_prob, steps
    return loss_of(phases_of(noise_multiplier, phases, *schedule), relation).delta(epsilon)


@in_float64
def noise_multiplier(
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    dataset_size: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    epochs: ArrayLike | None = None,
    sampling_prob: ArrayLike | None = None,
    steps: ArrayLike | None = None,
    phases: Phases | None = None,
    relation: Relation = "add_remove",
) -> Reals:
    """The least noise multiplier of DP-SGD that keeps to a budget, from the safe side.

    Args:
        epsilon, delta: the budget of the whole training, epsilon in nats.
        dataset_size, batch_size, epochs, sampling_prob, steps, relation: as in `epsilon`.
        phases: as in `epsilon`, with their noise multipliers.

    Returns:
        The noise multiplier, of the common shape of all arguments; with `phases` the least factor
        by which all their noise multipliers must be multiplied. Found by `calibrate`, to 1e-10,
        from 1e-3 to 1e9; infinite where nothing there is enough.

    >>> import jaxdp as dp
    >>> least = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, sampling_prob=0.01, steps=1000)
    >>> print(f"{least:.6f}")
    1.562666
    """
    schedule = dataset_size, batch_size, epochs, sampling_prob, steps
    known = phases_of(1.0 if phases is None else None, phases, *schedule)
    budget = as_budget((epsilon, delta))
    return calibrate_from(
        _expected_factor(budget, known),
        lambda factor: loss_of(tuple(_louder(phase, factor) for phase in known), relation),
        budget,
        lower=_LEAST_NOISE,
        upper=_LARGEST_NOISE,
    )


def _expected_factor(budget: Budget, phases: tuple[Phase, ...]) -> np.ndarray | None:
    """The factor whose central limit has the budget's mu; None where something is traced."""
    if not checks.all_concrete(budget, phases):
        return None
    target = np.asarray(largest_gdp(budget).mu) ** 2
    shape = np.broadcast_shapes(target.shape, *(phase.shape for phase in phases))
    low, high = np.full(shape, np.log(_LEAST_NOISE)), np.full(shape, np.log(_LARGEST_NOISE))
    for _ in range(_GUESS_HALVINGS):
        middle = 0.5 * (low + high)
        excess = sum(_squared_mu(phase, np.exp(middle)) for phase in phases) > target
        low, high = np.where(excess, middle, low), np.where(excess, high, middle)
    return np.asarray(np.exp(high))


def _squared_mu(phase: Phase, factor: np.ndarray | float) -> np.ndarray:
    """mu^2 of the central limit of a phase; Bu, Dong, Long & Su, 2020."""
    noise = np.asarray(phase.noise_multiplier) * factor
    hits = np.asarray(phase.steps) * np.asarray(phase.sampling_prob) ** 2
    return np.asarray(hits * np.expm1(np.minimum(noise**-2.0, 700.0)))


def _louder(phase: Phase, factor: Reals) -> Phase:
    scale = phase.noise_multiplier * factor
    return Phase(scale, sampling_prob=phase.sampling_prob, steps=phase.steps)


@in_float64
def steps(
    noise_multiplier: ArrayLike,
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    dataset_size: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    sampling_prob: ArrayLike | None = None,
    before: Phases | None = None,
    relation: Relation = "add_remove",
) -> Reals:
    """The most steps of DP-SGD that keep to (`epsilon`, `delta`), known numbers; 0 where none does.

    Args:
        noise_multiplier, dataset_size, batch_size, sampling_prob, relation: as in `epsilon`.
        epsilon, delta: the budget, epsilon in nats.
        before: phases that were run already, and count against the budget.

    Returns:
        Whole numbers, of the common shape of all arguments: delta at `epsilon` is at most `delta`
        after them, and more than that after one more. At most 2^30.

    By bisection over whole numbers from what the central limit theorem expects.

    >>> import jaxdp as dp
    >>> dp.dpsgd.steps(1.0, epsilon=2.0, delta=1e-6, sampling_prob=0.01).item()
    874.0
    """
    budget, rate = as_budget((epsilon, delta)), rate_of(dataset_size, batch_size, sampling_prob)
    scale = checks.positive("noise_multiplier", noise_multiplier)
    if not checks.all_concrete(budget, rate, scale, before):
        raise ValueError("steps must know its arguments, got traced ones: use calibrate instead")
    spent = None if before is None else loss_of(phases_of(None, before, *(None,) * 5), relation)
    once = step_loss(scale, rate, relation)
    batches = (once.shape, () if spent is None else spent.shape, budget.epsilon.shape)
    shape = jnp.broadcast_shapes(*batches, budget.delta.shape)

    def passes(count: np.ndarray) -> np.ndarray:
        total = count * once if spent is None else count * once + spent
        return np.asarray(total.delta(budget.epsilon) <= budget.delta)

    low, high = np.zeros(shape), np.full(shape, np.inf)
    probe = np.broadcast_to(_expected(budget, scale, rate), shape)
    while np.any((high - low > 1) & (low < MOST_STEPS)):
        good = passes(probe)
        low, high = np.where(good, probe, low), np.where(good, high, probe)
        bounded = np.where(np.isinf(high), 4.0 * low, high)
        probe = np.asarray(np.clip(np.floor(0.5 * (low + bounded)), 1.0, MOST_STEPS))
    return jnp.asarray(low)


def _expected(budget: Budget, scale: Reals, rate: Reals) -> np.ndarray:
    """The steps whose central limit has the budget's mu."""
    mu = np.asarray(largest_gdp(budget).mu)
    each = _squared_mu(Phase(scale, sampling_prob=rate, steps=1), 1.0)
    return np.asarray(np.clip(np.floor(mu**2 / np.maximum(each, 1e-300)), 1.0, MOST_STEPS))


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
        once = step_loss(scale, jnp.reshape(phase.sampling_prob, ()), relation)
        part = np.clip(times - start, 0.0, count) * once
        total = part if total is None else total + part
    assert total is not None
    target = checks.probability("delta", delta)
    return Curve(jnp.asarray(times), total.epsilon(target[..., None]))


def _ends(count: float, rate: float) -> np.ndarray:
    """The ends of the whole epochs of one phase."""
    if rate == 0:
        return np.zeros(0)
    whole = np.arange(1, math.floor(count * rate * (1.0 + 1e-12)) + 1)
    return np.minimum(np.ceil(whole / rate * (1.0 - 1e-12)), count)
