"""Greedy coordinate descent: the steepest coordinate is selected privately (Mangold et al., 2023).

Each update is two releases. The exponential mechanism selects the coordinate j whose sum of clipped
derivatives is the largest in units of its threshold C_j. Then that sum is released with Gaussian
noise, and theta_j moves. The cost of a model with p coordinates grows with log p, not with p.

A score is a sum of whole numbers, of units of C_j / grid, and moves by `grid` when a record is
added or removed, by twice that when one is replaced; so does its absolute value. The weights
exp(epsilon score / (2 sensitivity)) are rounded by 1e-12 relatively, which the accounted epsilon
includes. A coordinate is selected in a binary tree of sums, by one uniform of 62 bits a level.

Source: Mangold, Bellet, Salmon & Tommasi, High-dimensional private empirical risk minimization by
greedy coordinate descent, AISTATS 2023; selection by the exponential mechanism is ours.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import shift_factor
from jaxdp._core.precision import is_tracing
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import key_for
from jaxdp._core.types import Key, Reals, Vector
from jaxdp._numeric.elementary import round_up
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.calibrate import calibrate
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.noise.gaussian import Gaussian
from jaxdp.solvers import lattice
from jaxdp.solvers.coordinate_descent.host import Records
from jaxdp.solvers.problems import Problem

# Share of mu^2 that selections spend. measured: signs, n = p = 1e4, 10 coefficients: R^2 is .01
# lower with .7
SELECTION_SHARE = 0.5
# Units to a threshold. derived: sums of 2^23 such are exact in float64
_GRID = 2.0**30
# Bits of the uniforms of a selection. derived: whole numbers below 2^62 are differences of float64
_BITS = 62
# Words of a selection. chosen: above the levels of any number of coordinates
_MOST_LEVELS = 64
# What rounding adds to the epsilon of a selection. derived: logarithms of weights, at most 745, by
# 3 ulp, sums by an ulp a level; of numerators and denominators, twice
_ROUNDING = 1e-11


@final
@in_float64
@pytree
class GreedyPlan:
    """Updates of greedy coordinate descent and their guarantee; `plan(order="greedy")` makes it."""

    steps: Vector  # step / M_j
    clip: Vector  # bound on each record's partial derivative
    sensitivities: Vector  # of the clipped mean gradient, between neighbours
    scales: Vector  # deviations of the noise on it
    selection_epsilon: Reals  # of each selection, rounding included
    spent: Drawn | None  # before the first update
    updates: int = static()
    records: int = static()
    relation: str = static()
    release: str = static(default="lattice")

    @property
    def levels(self) -> int:
        """Levels of the tree in which a coordinate is selected."""
        return (self.steps.shape[-1] - 1).bit_length()

    @property
    def sampling_error(self) -> Reals:
        """Sampling error in total variation, that for `spent` included; 1: floating point."""
        before = 0.0 if self.spent is None else self.spent.sampling_error
        selections = 2.0 ** (1 - _BITS) * self.updates * self.levels
        return before + selections + lattice.sampling_error(self.updates, self.release)

    @property
    def guarantee(self) -> Drawn:
        """A `PrivacyLoss`: all selections, all noisy derivatives and `spent`, as sampled."""
        ratio = self.sensitivities[0] / self.scales[0]
        before = None if self.spent is None else self.spent.exact
        exact = _composed(self.selection_epsilon, ratio, self.updates, before)
        return Drawn(exact, self.sampling_error)


def _composed(epsilon: Reals, ratio: Reals, updates: int, spent: Any) -> PrivacyLoss:
    """`updates` selections and Gaussian releases, each chosen by what came before."""
    gaussian = GDP(round_up(ratio * updates**0.5, 4))
    if isinstance(spent, GDP):
        gaussian, spent = gaussian + spent, None
    total = privacy_loss(gaussian) + updates * privacy_loss(ExponentialMechanism(epsilon))
    return total if spent is None else total + privacy_loss(spent)


def planned(
    budget: Budget,
    steps: Vector,
    clips: tuple[Vector, Vector],
    updates: int,
    spent: Drawn | None,
    kept: tuple[int, str, str],
) -> GreedyPlan:
    """The plan of `coordinate_descent.plan` with `order="greedy"`; noise in proportion to C_j.

    clips: thresholds and sensitivities. kept: records, relation, release.
    """
    lattice.require(kept[-1], Gaussian(1.0))
    shaped = GreedyPlan(steps, *clips, clips[1], xp.ones(()), spent, updates, *kept)
    budget = left_for_exact(budget, shaped.sampling_error)
    mu = largest_gdp(budget).mu
    if not bool(np.isfinite(mu) & (mu > 0)):
        raise ValueError(
            f"budget must be one that Gaussian noise can meet, got epsilon {budget.epsilon}, delta "
            f"{budget.delta}"
        )
    before = None if spent is None else spent.exact
    # K(s) of a range of epsilon is about that of a Gaussian of mu = epsilon / 2.
    epsilon = 2.0 * mu * np.sqrt(SELECTION_SHARE / updates)
    ratio = mu * np.sqrt((1.0 - SELECTION_SHARE) / updates)
    factor = calibrate(
        lambda c: _composed(epsilon / c + _ROUNDING, ratio / c, updates, before),
        budget,
        lower=0.5,
        upper=1e3,
    )
    if not bool(np.isfinite(factor)):
        raise ValueError(f"budget must exceed what was spent on scales, got {budget}")
    scales = checks.noise_scale("scales of the noise for this clip", clips[1] / ratio * factor)
    return dataclasses.replace(
        shaped, scales=round_up(scales, 8), selection_epsilon=epsilon / factor + _ROUNDING
    )


def descend(problem: Problem, plan: GreedyPlan, start: Vector, key: Key) -> Vector:
    """theta after the plan's updates, computed on the host."""
    if not checks.all_concrete(problem, plan, start, key) or is_tracing():
        raise ValueError("problem, plan and key of a greedy descent must not be traced or batched")
    theta: Any = np.array(start, dtype=np.float64)
    strength: Any = np.broadcast_to(problem.penalty.strength, theta.shape)
    clip: Any
    steps: Any
    clip, steps = np.asarray(plan.clip), np.asarray(plan.steps)
    shift, grid = shift_factor(plan.relation) * _GRID, _GRID
    with np.errstate(over="ignore", invalid="ignore"):
        # Derivatives of float32 features too are summed in units of float64.
        records = Records(problem, clip, np.float64)
        state = records.state(theta)
        for index in np.arange(plan.updates):
            words, noise_key = _words(key, index)
            units: Any = records.whole_sums(state, grid)
            rate = plan.selection_epsilon / shift
            j = int(selected(np.abs(units), rate, plan.levels, np.asarray(words)))
            ratio = plan.sensitivities[j] / plan.scales[j]
            noise = lattice.added(Gaussian(1.0), plan.scales[j], ratio, noise_key, (), plan.release)
            gradient = noise.to(units[j] * clip[j] / (plan.records * grid))
            step = steps[j]
            value: Any = problem.penalty.proximal(strength[j], theta[j] - step * gradient, step)
            state = records.moved(state, j, value - theta[j])
            theta[j] = value
    return theta


@jax.jit
def _words(key: Key, index: Any) -> tuple[jax.Array, Key]:
    """Random words of a selection, one a level, and the key of the noise after it."""
    select_key, noise_key = jax.random.split(jax.random.fold_in(key_for("greedy", key), index))
    return jax.random.bits(select_key, (_MOST_LEVELS,), dtype=jnp.uint64), noise_key


def selected(scores: Vector, rate: Reals, levels: int, words: jax.Array | np.ndarray) -> Any:
    """An index, with probability in proportion to exp(rate score / 2); see the module."""
    weights = xp.exp(0.5 * rate * (scores - xp.max(scores)))
    sums = [xp.append(weights, xp.zeros(2**levels - weights.size))]
    for _ in range(levels):
        sums.append(xp.sum(sums[-1].reshape(-1, 2), axis=1))
    bits = words >> np.uint64(64 - _BITS)
    index = xp.zeros((), dtype=np.int64)
    for level in reversed(range(levels)):
        left, right = sums[level][2 * index], sums[level][2 * index + 1]
        # The less likely branch: its probability has full relative accuracy.
        share = xp.minimum(left, right) / (left + right)
        is_rare = bits[level] < (share * 2.0**_BITS).astype(np.uint64)
        index = 2 * index + (is_rare == (right <= left))
    return index
