"""Epsilon, delta, noise multiplier, steps and batch size limit of DP-SGD, each in one call."""

from __future__ import annotations

import math
from typing import Any, Unpack

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import ArrayLike, Bools, Reals, Shape
from jaxdp._numeric.elementary import log1mexp
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.design.calibrate import calibrate, calibrate_from, least_of_composition
from jaxdp.dpsgd.arguments import target_delta, with_names
from jaxdp.dpsgd.phase import Phase, Phases, Schedule, Training, as_phases, training_of
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.risk import Advantage, Rate

# Largest number of steps, if no number exceeds the budget. chosen: no training is longer
_MOST_STEPS = 2.0**30
# Smallest noise multiplier of the search. chosen: no training works with less
_LEAST_NOISE = 1e-3
# Largest noise multiplier of the search. chosen: no training works with more
_LARGEST_NOISE = 1e9
_ENDS: Any = {"lower": _LEAST_NOISE, "upper": _LARGEST_NOISE}
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
    advantage: ArrayLike | None = None,
    tpr: ArrayLike | None = None,
    fpr: ArrayLike | None = None,
    rho: ArrayLike | None = None,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The least noise multiplier of DP-SGD that satisfies a budget or a risk, rounded up.

    Args:
        epsilon, delta: the budget of the whole training, epsilon in nats.
        advantage: in place of epsilon and delta, the largest advantage of a membership test: see
            `risk.Advantage`.
        tpr, fpr: or its largest true-positive rate at a false-positive rate: see `risk.Rate`.
        rho: or the rho of zero-concentrated privacy (`ZCDP`), which sampling does not lower: its
            divergences of large orders are as large as without sampling.
        schedule: as in `epsilon`; phases with their noise multipliers.

    Returns:
        The noise multiplier, of the common shape of all arguments; with `phases`, the least common
        factor of all their noise multipliers. It is exact to 1e-10 and lies
        between 1e-3 and 1e9, or is infinite if no noise there satisfies the budget. It is 0 where
        no noise is needed: epsilon is infinite, or delta is at least the probability that a record
        is sampled at all. Differentiable in the budget and in the numbers of the schedule.

    >>> import jaxdp as dp
    >>> least = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, sampling_prob=0.01, steps=1000)
    >>> print(f"{least:.6f}")
    1.562666
    >>> least = dp.dpsgd.noise_multiplier(advantage=0.1, sampling_prob=0.01, steps=1000)
    >>> print(f"{least:.4f}")
    1.4224
    """
    training = training_of(1.0 if schedule.get("phases") is None else None, schedule)
    given = (x is not None for x in (epsilon, advantage, fpr if tpr is None else tpr, rho))
    if sum(given) != 1 or (tpr is None) != (fpr is None):
        raise ValueError(
            "noise_multiplier takes one of epsilon (and delta), advantage, tpr and fpr, or rho"
        )
    if epsilon is not None:
        return _noise_multiplier(training, Budget(epsilon, target_delta(delta)))
    if rho is not None:
        least = calibrate(lambda x: training.scaled(x).zcdp, ZCDP(0.0, rho), **_ENDS)
        return xp.where(xp.asarray(rho) == xp.inf, 0.0, least)
    if advantage is not None:
        target = Advantage(advantage)
    else:
        assert tpr is not None
        assert fpr is not None
        target = Rate(tpr, fpr)
    return target.solved(lambda budget: _noise_multiplier(training, budget))


def _noise_multiplier(training: Training, budget: Budget) -> Reals:
    relation, group_size = training.relation, training.group_size

    def loss(factor: Reals, phases: tuple[Phase, ...]) -> PrivacyLoss:
        return Training(phases, relation, group_size).scaled(factor).privacy_loss

    def least(budget: Budget, phases: tuple[Phase, ...]) -> Reals:
        needs_none = needs_no_noise(budget, Training(phases, relation, group_size).privacy_loss)
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
    return (budget.epsilon == xp.inf) | (budget.delta >= _sampled(loss))


def _sampled(loss: PrivacyLoss) -> Reals:
    """Upper bound on the probability that a record takes part in some release."""
    log_never = sum(term.total(log1mexp(-term.pair.log_hit())) for term in loss.terms)
    return -xp.expm1(log_never) * (1.0 + 1e-9)


def expected_factor(budget: Budget, phases: tuple[Phase, ...]) -> Reals:
    """The factor whose central limit has the budget's mu."""
    target = xp.asarray(largest_gdp(budget).mu) ** 2
    shape = np.broadcast_shapes(target.shape, *(phase.shape for phase in phases))
    ends = xp.full(shape, np.log(_LEAST_NOISE)), xp.full(shape, np.log(_LARGEST_NOISE))

    def halved(_: Any, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        low, high = ends
        middle = 0.5 * (low + high)
        excess = sum(_squared_mu(phase, xp.exp(middle)) for phase in phases) > target
        return xp.where(excess, middle, low), xp.where(excess, high, middle)

    return xp.exp(lax.fori_loop(0, _GUESS_HALVINGS, halved, ends)[1])


def _squared_mu(phase: Phase, factor: Reals | float) -> Reals:
    """mu^2 of the central limit of a phase; Bu, Dong, Long & Su, 2020."""
    noise = phase.noise_multiplier * factor
    weight = phase.steps * phase.sampling_prob**2
    return weight * xp.expm1(xp.minimum(noise**-2.0, 700.0))


@with_names
@in_float64
def steps(
    noise_multiplier: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike = 1e-6,
    *,
    before: Phases | None = None,
    **schedule: Unpack[Schedule],
) -> Reals:
    """The largest number of steps of DP-SGD that satisfies a concrete budget; 0 if none does.

    Args:
        noise_multiplier: as in `epsilon`.
        epsilon, delta: the budget, epsilon in nats.
        before: phases that were run already and count against the budget.
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
    if not checks.all_concrete(budget, scale, before, schedule):
        raise ValueError("steps requires concrete arguments, got traced ones: use calibrate")
    training = training_of(scale, {**schedule, "steps": 1.0})
    scheme, rate = training.phases[0].sampling, training.phases[0].sampling_prob
    once = training.privacy_loss
    earlier = None
    if before is not None:
        earlier = training._replace(phases=as_phases(before)).privacy_loss
    batches = (once.shape, () if earlier is None else earlier.shape, budget.epsilon.shape)
    shape = xp.broadcast_shapes(*batches, budget.delta.shape)

    def satisfies(count: np.ndarray) -> np.ndarray:
        total = scheme.releases(xp.asarray(count)) * once
        total = total if earlier is None else total + earlier
        return np.asarray(total.delta(budget.epsilon) <= budget.delta)

    low, high = np.zeros(shape), np.full(shape, np.inf)
    probe = np.broadcast_to(_expected_steps(budget, scale, rate), shape)
    while np.any((high - low > 1) & (low < _MOST_STEPS)):
        good = satisfies(probe)
        low, high = np.where(good, probe, low), np.where(good, high, probe)
        bounded = np.where(np.isinf(high), 4.0 * low, high)
        probe = np.asarray(np.clip(np.floor(0.5 * (low + bounded)), 1.0, _MOST_STEPS))
    return xp.asarray(low)


def _expected_steps(budget: Budget, scale: Reals, rate: Reals) -> np.ndarray:
    """The steps whose central limit has the budget's mu."""
    mu = np.asarray(largest_gdp(budget).mu)
    squared_mu = _squared_mu(Phase(scale, sampling_prob=rate, steps=1), 1.0)
    return np.asarray(np.clip(np.floor(mu**2 / np.maximum(squared_mu, 1e-300)), 1.0, _MOST_STEPS))


@with_names
@in_float64
def batch_size_limit(
    noise_multiplier: ArrayLike,
    delta: ArrayLike = 1e-6,
    *,
    excess: ArrayLike = 0.01,
    **schedule: Unpack[Schedule],
) -> int:
    """The least limit of a truncated Poisson batch that costs at most `excess` of epsilon.

    Args:
        noise_multiplier, delta, schedule: as in `epsilon`, one concrete number each, with
            dataset_size and batch_size (the mean), and without sampling and batch_size_limit.
        excess: allowed relative increase of epsilon over that without a limit, above 0.

    Returns:
        A whole number, by bisection: epsilon falls as the limit rises.

    >>> import jaxdp as dp
    >>> dp.dpsgd.batch_size_limit(1.1, dataset_size=60_000, batch_size=256, steps=3516, delta=1e-5)
    324
    """
    excess = float(checks.real("excess", excess, 0.0, open_lower=True))
    for name in ("dataset_size", "batch_size"):
        if schedule.get(name) is None:
            raise ValueError(f"{name} must be given for a batch_size_limit")
    size = checks.positive_integer("dataset_size", schedule.get("dataset_size"))
    mean = float(checks.positive("batch_size", schedule.get("batch_size") or 0.0))

    def epsilon_of(limit: int | None) -> float:
        cut = {} if limit is None else {"sampling": "truncated", "batch_size_limit": limit}
        loss = training_of(noise_multiplier, {**schedule, **cut}).privacy_loss
        return float(loss.epsilon(delta))

    largest = epsilon_of(None) * (1.0 + excess)
    low, high = max(math.floor(mean) - 1, 0), math.ceil(mean + 12.0 * math.sqrt(mean) + 12.0)
    high = min(high, size)
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon_of(middle) <= largest:
            high = middle
        else:
            low = middle
    return high
