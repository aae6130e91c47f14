"""Epsilon, delta, noise, steps and the course of epsilon of DP-SGD, each in one call."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.design.calibrate import calibrate_from
from jaxdp.dpsgd.base import Phase, Phases, loss_of, phases_of, rate_of
from jaxdp.dpsgd.schemes import SAMPLED_BY_STEP, Sampling
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
    sampling: Sampling = "poisson",
    batch_size_limit: ArrayLike | None = None,
    group_size: int = 1,
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
        sampling, batch_size_limit: how batches are drawn, see `Phase`.
        group_size: records of one user, which neighbours differ in.

    Returns:
        epsilon, of the common shape of all arguments, which broadcast.

    Every step must draw its batch as `sampling` says; `statement` says what else must hold.

    >>> import jaxdp as dp
    >>> print(f"{dp.dpsgd.epsilon(1.0, 1e-6, sampling_prob=0.01, steps=1000):.4f}")
    2.1245
    """
    schedule = dataset_size, batch_size, epochs, sampling_prob, steps
    drawn = sampling, batch_size_limit
    known = phases_of(noise_multiplier, phases, *schedule, *drawn)
    return loss_of(known, relation, group_size).epsilon(delta)


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
    sampling: Sampling = "poisson",
    batch_size_limit: ArrayLike | None = None,
    group_size: int = 1,
) -> Reals:
    """The delta of DP-SGD at `epsilon`: an upper bound, rounding included.

    Args:
        epsilon: nats.
        noise_multiplier, dataset_size, batch_size, epochs, sampling_prob, steps, phases, relation,
            sampling, batch_size_limit, group_size: as in `epsilon`.

    Returns:
        delta, of the common shape of all arguments, which broadcast.

    Every step must draw its batch as `sampling` says; `statement` says what else must hold.

    >>> import jaxdp as dp
    >>> print(f"{dp.dpsgd.delta(1.0, 1.0, sampling_prob=0.01, steps=1000):.4e}")
    2.6124e-03
    """
    schedule = dataset_size, batch_size, epochs, sampling_prob, steps
    drawn = sampling, batch_size_limit
    known = phases_of(noise_multiplier, phases, *schedule, *drawn)
    return loss_of(known, relation, group_size).delta(epsilon)


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
    sampling: Sampling = "poisson",
    batch_size_limit: ArrayLike | None = None,
    group_size: int = 1,
) -> Reals:
    """The least noise multiplier of DP-SGD that keeps to a budget, from the safe side.

    Args:
        epsilon, delta: the budget of the whole training, epsilon in nats.
        dataset_size, batch_size, epochs, sampling_prob, steps, relation, sampling,
            batch_size_limit, group_size: as in `epsilon`.
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
    drawn = sampling, batch_size_limit
    known = phases_of(1.0 if phases is None else None, phases, *schedule, *drawn)
    budget = as_budget((epsilon, delta))
    return calibrate_from(
        _expected_factor(budget, known),
        lambda factor: loss_of(tuple(p.louder(factor) for p in known), relation, group_size),
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
    sampling: Sampling = "poisson",
    batch_size_limit: ArrayLike | None = None,
    group_size: int = 1,
) -> Reals:
    """The most steps of DP-SGD that keep to (`epsilon`, `delta`), known numbers; 0 where none does.

    Args:
        noise_multiplier, dataset_size, batch_size, sampling_prob, relation, batch_size_limit,
            group_size: as in `epsilon`.
        epsilon, delta: the budget, epsilon in nats.
        sampling: as in `epsilon`, where steps are drawn one by one: "poisson", "truncated" or
            "without_replacement".
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
    if not checks.all_concrete(budget, rate, scale, before, batch_size_limit):
        raise ValueError("steps must know its arguments, got traced ones: use calibrate instead")
    done = () if before is None else phases_of(None, before, None, None, None, None, None)
    spent = loss_of(done, relation, group_size) if done else None
    checks.one_of("sampling", sampling, SAMPLED_BY_STEP)
    sizes = dataset_size, batch_size, None, sampling_prob, 1.0
    once = loss_of(phases_of(scale, None, *sizes, sampling, batch_size_limit), relation, group_size)
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
