"""Epsilon, delta, noise, steps and the course of epsilon of DP-SGD, each in one call."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log1mexp
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.design.calibrate import calibrate_from
from jaxdp.dpsgd.arguments import target_delta, with_names
from jaxdp.dpsgd.base import Phase, Phases
from jaxdp.dpsgd.schedule import Schedule, listed, training_of
from jaxdp.dpsgd.schemes import SAMPLED_BY_STEP
from jaxdp.guarantee.base import Budget, as_budget
from jaxdp.guarantee.gaussian_dp import largest_gdp

# Steps at most, where nothing exceeds the budget. chosen: no one trains longer
MOST_STEPS = 2.0**30
# The least noise multiplier that is searched. chosen: no training works below
_LEAST_NOISE = 1e-3
# The largest. chosen: no training works above
_LARGEST_NOISE = 1e9
# Halvings of the logarithm of a first guess. chosen: to 1e-6, far below the central limit's error
_GUESS_HALVINGS = 25


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
        delta: in [0, 1]; a known one above .1 is a `UserWarning`.
        schedule: dataset_size, batch_size and epochs, or sampling_prob and steps, or phases;
            relation, sampling, batch_size_limit, group_size: see `Schedule`.

    Returns:
        epsilon, of the common shape of all arguments, which broadcast.

    Every step must draw its batch as `sampling` says; `statement` says what else must hold.

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
        epsilon: nats.
        noise_multiplier, schedule: as in `epsilon`.

    Returns:
        delta, of the common shape of all arguments, which broadcast.

    Every step must draw its batch as `sampling` says; `statement` says what else must hold.

    >>> import jaxdp as dp
    >>> print(f"{dp.dpsgd.delta(1.0, 1.0, sampling_prob=0.01, steps=1000):.4e}")
    2.6124e-03
    """
    return training_of(noise_multiplier, schedule).privacy_loss.delta(epsilon)


@with_names
@in_float64
def noise_multiplier(
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The least noise multiplier of DP-SGD that keeps to a budget, from the safe side.

    Args:
        epsilon, delta: the budget of the whole training, epsilon in nats.
        schedule: as in `epsilon`; phases with their noise multipliers.

    Returns:
        The noise multiplier, of the common shape of all arguments; with `phases` the least factor
        by which all their noise multipliers must be multiplied. Found by `calibrate`, to 1e-10,
        from 1e-3 to 1e9: 1e-3 where less would do, infinite where nothing there is enough. 0 where
        no noise is needed: epsilon is infinite, or delta is at least the probability that a record
        is sampled at all. Differentiable in the budget and in the numbers of the schedule.

    >>> import jaxdp as dp
    >>> least = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, sampling_prob=0.01, steps=1000)
    >>> print(f"{least:.6f}")
    1.562666
    """
    training = training_of(1.0 if schedule.get("phases") is None else None, schedule)
    budget, phases = as_budget((epsilon, target_delta(delta))), training.phases

    def louder(factor: Reals) -> PrivacyLoss:
        return training._replace(phases=tuple(p.louder(factor) for p in phases)).privacy_loss

    # Nothing is asked of noise where any epsilon will do, or delta allows to publish each sample.
    needs_none = (budget.epsilon == xp.inf) | (budget.delta >= _hit(training.privacy_loss))
    if checks.is_concrete(needs_none) and bool(np.all(needs_none)):
        return xp.zeros(needs_none.shape)
    least = calibrate_from(
        _expected_factor(budget, phases),
        louder,
        budget,
        lower=_LEAST_NOISE,
        upper=_LARGEST_NOISE,
    )
    return xp.where(needs_none, 0.0, least)


def _hit(loss: PrivacyLoss) -> Reals:
    """Probability that a record takes part in some release, at most."""
    missed = sum(term.total(log1mexp(-term.pair.log_hit())) for term in loss.terms)
    return -xp.expm1(missed) * (1.0 + 1e-9)


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


@with_names
@in_float64
def steps(
    noise_multiplier: ArrayLike,
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    before: Phases | None = None,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The most steps of DP-SGD that keep to (`epsilon`, `delta`), known numbers; 0 where none does.

    Args:
        noise_multiplier: as in `epsilon`.
        epsilon, delta: the budget, epsilon in nats.
        before: phases that were run already, and count against the budget.
        schedule: as in `epsilon`, without epochs, steps and phases, and of a sampling that draws
            steps one by one: "poisson", "truncated" or "without_replacement".

    Returns:
        Whole numbers, of the common shape of all arguments: delta at `epsilon` is at most `delta`
        after them, and more than that after one more. At most 2^30.

    By bisection over whole numbers from what the central limit theorem expects.

    >>> import jaxdp as dp
    >>> dp.dpsgd.steps(1.0, epsilon=2.0, delta=1e-6, sampling_prob=0.01).item()
    874.0
    """
    budget = as_budget((epsilon, target_delta(delta)))
    for name in ("epochs", "steps", "phases"):
        if schedule.get(name) is not None:
            raise ValueError(f"{name} must not be given, as the number of steps is asked for")
    scale = checks.positive("noise_multiplier", noise_multiplier)
    if not checks.all_concrete(budget, scale, before, schedule):
        raise ValueError("steps must know its arguments, got traced ones: use calibrate instead")
    checks.one_of("sampling", schedule.get("sampling", "poisson"), SAMPLED_BY_STEP)
    training = training_of(scale, {**schedule, "steps": 1.0})
    once, rate = training.privacy_loss, training.phases[0].sampling_prob
    before_loss = None if before is None else training._replace(phases=listed(before)).privacy_loss
    batches = (once.shape, () if before_loss is None else before_loss.shape, budget.epsilon.shape)
    shape = xp.broadcast_shapes(*batches, budget.delta.shape)

    def passes(count: np.ndarray) -> np.ndarray:
        total = count * once if before_loss is None else count * once + before_loss
        return np.asarray(total.delta(budget.epsilon) <= budget.delta)

    low, high = np.zeros(shape), np.full(shape, np.inf)
    probe = np.broadcast_to(_expected(budget, scale, rate), shape)
    while np.any((high - low > 1) & (low < MOST_STEPS)):
        good = passes(probe)
        low, high = np.where(good, probe, low), np.where(good, high, probe)
        bounded = np.where(np.isinf(high), 4.0 * low, high)
        probe = np.asarray(np.clip(np.floor(0.5 * (low + bounded)), 1.0, MOST_STEPS))
    return xp.asarray(low)


def _expected(budget: Budget, scale: Reals, rate: Reals) -> np.ndarray:
    """The steps whose central limit has the budget's mu."""
    mu = np.asarray(largest_gdp(budget).mu)
    squared_mu = _squared_mu(Phase(scale, sampling_prob=rate, steps=1), 1.0)
    return np.asarray(np.clip(np.floor(mu**2 / np.maximum(squared_mu, 1e-300)), 1.0, MOST_STEPS))
