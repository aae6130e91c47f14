"""Epsilon, its curve, delta, noise multiplier and steps of DP-SGD, each in one call."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal, NamedTuple, Unpack

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import Relation
from jaxdp._core.types import ArrayLike, Bools, Reals, Shape
from jaxdp._numeric.elementary import log1mexp, log1p
from jaxdp._numeric.search import secants
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.design.calibrate import (
    SLOPE,
    calibrate_from,
    least_of_composition,
    straightened,
)
from jaxdp.dpsgd.arguments import target_delta, with_names
from jaxdp.dpsgd.phase import Phase, Schedule, Training, training_of
from jaxdp.guarantee.base import Budget, excess_log_delta
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.noise.gaussian import log_delta_of_ratio
from jaxdp.risk import Rate

# Largest number of steps, if no number exceeds the budget. chosen: no training is longer
_MOST_STEPS = 2.0**30
# Smallest noise multiplier of the search. chosen: no training works with less
_LEAST_NOISE = 1e-3
# Largest noise multiplier of the search. chosen: no training works with more
_LARGEST_NOISE = 1e9
_ENDS: Any = {"lower": _LEAST_NOISE, "upper": _LARGEST_NOISE}
# Largest square of an inverse noise multiplier in a first guess. chosen: its third power is finite
_LARGEST_SHIFT = 200.0
# Relative tolerance of a first guess. chosen: below the central limit's error
_CLOSE = 1e-4


@with_names
@in_float64
def epsilon(
    noise_multiplier: ArrayLike | None = None,
    delta: ArrayLike = 1e-6,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The epsilon of DP-SGD at `delta`, in nats: an upper bound, rounding included.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm.
        delta: in [0, 1]; a concrete value above .1 raises a `UserWarning`.
        schedule: dataset_size, batch_size and epochs, or sampling_prob and steps, or phases;
            relation, sampling, batch_size_limit, group_size: see `Schedule`.

    Returns:
        epsilon, of the common shape of all arguments, which broadcast.

    Every step must draw its batch as `sampling` says; `statement` lists the other conditions.

    >>> import jaxdp as dp
    >>> print(f"{dp.dpsgd.epsilon(1.0, 1e-6, sampling_prob=0.01, steps=1000):.4f}")
    2.1245
    """
    target = target_delta(delta)
    return training_of(noise_multiplier, schedule, target).privacy_loss.epsilon(target)


@with_names
@in_float64
def delta(
    noise_multiplier: ArrayLike | None = None,
    epsilon: ArrayLike = 1.0,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The delta of DP-SGD at `epsilon`: an upper bound, rounding included.

    Args:
        epsilon: in nats.
        noise_multiplier, schedule: as in `epsilon`.

    Returns:
        delta, of the common shape of all arguments, which broadcast.

    Every step must draw its batch as `sampling` says; `statement` lists the other conditions.

    >>> import jaxdp as dp
    >>> print(f"{dp.dpsgd.delta(1.0, 1.0, sampling_prob=0.01, steps=1000):.4e}")
    2.6124e-03
    """
    return training_of(noise_multiplier, schedule).privacy_loss.delta(epsilon)


@with_names
@in_float64
def noise_multiplier(
    epsilon: ArrayLike | None = None,
    delta: ArrayLike = 1e-6,
    *,
    tpr: ArrayLike | None = None,
    fpr: ArrayLike | None = None,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The least noise multiplier of DP-SGD that satisfies a budget or a rate, rounded up.

    Args:
        epsilon, delta: the budget of the whole training, epsilon in nats.
        tpr, fpr: instead of epsilon and delta, the largest true-positive rate of a membership test,
            and its false-positive rate: see `risk.Rate`.
        schedule: as in `epsilon`; phases with their noise multipliers.

    Returns:
        The noise multiplier, of the common shape of all arguments; with `phases`, the least common
        factor of all their noise multipliers. It is exact to 1e-10 and lies between 1e-3 and 1e9,
        or is infinite if no noise there satisfies the budget. It is 0 if no noise is needed:
        epsilon is infinite, or delta is at least the probability that a record is sampled at all.
        Differentiable in the budget and in the numbers of the schedule.

    >>> import jaxdp as dp
    >>> least = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, sampling_prob=0.01, steps=1000)
    >>> print(f"{least:.6f}")
    1.562666
    """
    training = training_of(1.0 if schedule.get("phases") is None else None, schedule)
    if epsilon is not None and tpr is None and fpr is None:
        return _noise_multiplier(training, Budget(epsilon, target_delta(delta)))
    if epsilon is not None or tpr is None or fpr is None:
        raise ValueError("noise_multiplier takes either epsilon (and delta), or tpr and fpr")
    return Rate(tpr, fpr).solved(partial(_noise_multiplier, training))


def _noise_multiplier(training: Training, budget: Budget) -> Reals:
    def loss(factor: Reals, phases: tuple[Phase, ...]) -> PrivacyLoss:
        return training._replace(phases=phases).scaled(factor).privacy_loss

    def least(budget: Budget, phases: tuple[Phase, ...]) -> Reals:
        needs_none = needs_no_noise(budget, loss(xp.ones(()), phases))
        if bool(np.all(needs_none)):
            return xp.zeros(needs_none.shape)
        guess = expected_factor(budget, phases)
        found = calibrate_from(guess, lambda x: loss(x, phases), budget, **_ENDS)
        return xp.where(needs_none, 0.0, found)

    numbers = jax.tree.leaves((budget, training.phases))
    shape: Shape = np.broadcast_shapes(*(x.shape for x in numbers))
    return least_of_composition(least, loss, budget, training.phases, shape)


def needs_no_noise(budget: Budget, loss: PrivacyLoss) -> Bools:
    """True for an infinite epsilon, and where delta allows to publish each sample."""
    log_never = sum(term.total(log1mexp(-term.pair.log_hit())) for term in loss.terms)
    sampled = -xp.expm1(log_never) * (1.0 + 1e-9)
    return (budget.epsilon == xp.inf) | (budget.delta >= sampled)


@np.errstate(all="ignore")
def expected_factor(budget: Budget, phases: tuple[Phase, ...]) -> tuple[Reals, Reals]:
    """A factor that meets the budget, about, and the slope of `straightened` there."""
    epsilon, delta = budget.epsilon, budget.delta
    shape = np.broadcast_shapes(epsilon.shape, delta.shape, *(phase.shape for phase in phases))
    epsilon, delta = xp.broadcast_to(epsilon, shape), xp.broadcast_to(delta, shape)

    def residual(factor: Reals, done: Bools) -> Reals:
        del done
        second, skew = _of_orders(phases, factor)
        half = 0.5 * second * (1.0 - 1.5 * skew)
        squared_mu = half + xp.sqrt(half**2 + second * epsilon * skew)
        log_delta = log_delta_of_ratio(xp.sqrt(squared_mu), epsilon)
        return straightened(excess_log_delta(log_delta, delta), xp.zeros(shape), delta)

    ends = xp.full(shape, _LARGEST_NOISE), xp.full(shape, _LEAST_NOISE)
    found = secants(residual, *ends, slope=SLOPE, close=_CLOSE)
    return found.found, found.slope


def _of_orders(phases: tuple[Phase, ...], factor: Reals) -> tuple[Reals, Reals]:
    """(D, skew): t times the divergence of Renyi order 1 + t is t (t + 1) / 2 (1 + (t - 1) skew) D.

    Exact at the orders 2 and 3. At the order of the tail, t = epsilon / mu^2 - 1/2, it is near that
    of a Gaussian of the same delta, t (t + 1) / 2 mu^2: a quadratic equation in mu^2.
    """
    second: Any = 0.0
    third: Any = 0.0
    for phase in phases:
        rate = phase.sampling_prob
        moment = xp.expm1(xp.minimum((phase.noise_multiplier * factor) ** -2.0, _LARGEST_SHIFT))
        squares = rate**2 * moment
        second = second + phase.steps * log1p(squares)
        third = third + phase.steps * log1p(squares * (3.0 + rate * moment * (3.0 + moment)))
    return second, third / (3.0 * second) - 1.0


@with_names
@in_float64
def steps(
    noise_multiplier: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike = 1e-6,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The largest number of steps of DP-SGD that satisfies a concrete budget; 0 if none does.

    Args:
        noise_multiplier: as in `epsilon`.
        epsilon, delta: the budget, epsilon in nats.
        schedule: as in `epsilon`, without epochs, steps and phases; a scheme that draws each step
            separately.

    Returns:
        Whole numbers, of the common shape of all arguments, at most 2^30: delta at `epsilon` is at
        most `delta` after them, and larger after one more.

    The search is a bisection that starts from the central limit theorem.

    >>> import jaxdp as dp
    >>> dp.dpsgd.steps(1.0, epsilon=2.0, delta=1e-6, sampling_prob=0.01).item()
    874.0
    """
    budget = Budget(epsilon, target_delta(delta))
    for name in ("epochs", "steps", "phases"):
        if schedule.get(name) is not None:
            raise ValueError(f"{name} must not be given, since the number of steps is the answer")
    scale = checks.positive("noise_multiplier", noise_multiplier)
    if not checks.all_concrete(budget, scale, schedule):
        raise ValueError("steps requires concrete arguments, got traced ones: use calibrate")
    training = training_of(scale, {**schedule, "steps": 1.0})
    (phase,), once = training.phases, training.privacy_loss
    shape = xp.broadcast_shapes(once.shape, budget.epsilon.shape, budget.delta.shape)

    def satisfies(count: np.ndarray) -> np.ndarray:
        total = phase.sampling.releases(xp.asarray(count)) * once
        return np.asarray(total.delta(budget.epsilon) <= budget.delta)

    low, high = np.zeros(shape), np.full(shape, np.inf)
    probe = np.broadcast_to(_expected_steps(budget, phase), shape)
    while np.any((high - low > 1) & (low < _MOST_STEPS)):
        good = satisfies(probe)
        low, high = np.where(good, probe, low), np.where(good, high, probe)
        bounded = np.where(np.isinf(high), 4.0 * low, high)
        probe = np.asarray(np.clip(np.floor(0.5 * (low + bounded)), 1.0, _MOST_STEPS))
    return xp.asarray(low)


@np.errstate(all="ignore")
def _expected_steps(budget: Budget, phase: Phase) -> np.ndarray:
    """The steps that meet the budget, about, of the phase of one step."""
    squared_mu = np.asarray(largest_gdp(budget).mu) ** 2
    second, skew = _of_orders((phase,), xp.ones(()))
    tail = squared_mu * (1.0 - 1.5 * skew) + budget.epsilon * skew
    count = np.asarray(squared_mu**2 / (second * tail))
    return np.where(count < _MOST_STEPS, np.floor(np.maximum(count, 1.0)), _MOST_STEPS)


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
    counts = np.array([np.asarray(phase.steps).item() for phase in phases])
    rates = np.array([np.asarray(phase.sampling_prob).item() for phase in phases])
    ends = np.cumsum(counts)
    starts, last = ends - counts, ends[-1]
    if last == 0:
        raise ValueError("steps must be 1 or more in all, got 0")
    if every == "epoch":
        times = [start + _epochs(*x) for start, *x in zip(starts, counts, rates, strict=True)]
        times = np.unique(np.concatenate([*times, [last]]))
    else:
        times = np.arange(checks.positive_integer("every", every), last, every, dtype=float)
        times = np.append(times, last)
    done = np.clip(times - starts[:, None], 0.0, counts[:, None])
    first, *others = map(partial(_loss_after, relation, group_size), phases, done)
    epsilon = sum(others, first).epsilon(target[..., None])
    return Curve(xp.asarray(times), epsilon, xp.asarray(rates @ done))


def _loss_after(
    relation: Relation, group_size: int, phase: Phase, counts: np.ndarray
) -> PrivacyLoss:
    """The loss of the first steps of a phase, with a last axis for their number."""
    scale, *others = jax.tree.leaves(phase)
    leaves = [scale[..., None], *(xp.reshape(x, ()) for x in others)]
    single = jax.tree.unflatten(jax.tree.structure(phase), leaves)
    return single.sampling.releases(counts) * single.release_loss(relation, group_size)


def _epochs(count: float, rate: float) -> np.ndarray:
    """The steps at which the whole epochs of one phase end."""
    if rate == 0:
        return np.zeros(0)
    epochs = np.arange(1, math.floor(count * rate * (1.0 + 1e-12)) + 1)
    return np.minimum(np.ceil(epochs / rate * (1.0 - 1e-12)), count)
