"""A budget over coordinates of any noises, under exact accounting: scales by gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import optax

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import for_traces, lax, xp
from jaxdp._core.types import ArrayLike, Bools, Index, Indices, Reals
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.contour.chernoff import smooth_log_delta
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.design.calibrate import calibrate
from jaxdp.dominating_pair.additive import Additive
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.noise.base import Noise

# Step of Adam, at first, in logarithms of scales. chosen: it falls to 0 over the steps
_LEARNING_RATE = 0.05
# Steps of the common factor alone, of each start. chosen: it moves by up to e a step
_SETTLING = 16
# How far, in logarithms, a common factor may be from the budget's to be compared. chosen: its
# error is as near
_NEAR = 1e-3
# log delta nearer to 0 only says that there is too little noise. chosen: delta above 0.99
_LEAST_LOG = -1e-2


@in_float64
def allocate_exact(
    noises: Noise | Sequence[Noise],
    sensitivities: ArrayLike,
    budget: BudgetLike,
    weights: ArrayLike | None = None,
    power: ArrayLike = 2,
    *,
    steps: int = 60,
) -> Reals:
    """Noise scales of least error, one a coordinate, that keep a budget under exact composition.

    Args:
        noises: T_j, one for all coordinates or one each, of any families: coordinate j is released
            with noise s_j T_j. For Gaussian(1.0) and Laplace(1.0) the s_j are the scales.
        sensitivities: l_j, (K,), of the coordinates.
        budget: one `Budget` or (epsilon, delta), epsilon in nats.
        weights: (K,), above 0; 1 if None.
        power: of the error sum_j weights_j E|s_j T_j|^power that is minimised, above 0.
        steps: of the search, at least 1.

    Returns:
        The s_j, (K,); infinite where nothing meets the budget; 0 at a zero sensitivity.

    The relative scales start from the better closed form of `allocate`, the Gaussian's or the
    Laplace's (power laws in l_j^2 / w_j and l_j / w_j), and move by Adam on the logarithm of the
    error, with the surrogate min over s > 0 of exp(K(s) - s epsilon) / (s (1 + s)) for delta. Its
    optimum is near the true one, where the error is flat (2.5e-4 above the least for 20 Laplaces).
    `calibrate` then finds the common factor of the best step under exact composition, from the safe
    side. More than one budget or power: `ValueError`.

    >>> import jaxdp as dp
    >>> print(dp.allocate_exact(dp.Gaussian(1.0), [1.0, 4.0], (1.0, 1e-5)).round(3))
    [ 8.342 16.684]
    """
    budget = as_budget(budget)
    sensitivities = checks.nonnegative("sensitivities", sensitivities)
    members = _one_each(noises, sensitivities)
    weights = checks.positive("weights", 1.0 if weights is None else weights)
    power = checks.real("power", power, 0.0, open_lower=True)
    if budget.epsilon.ndim or budget.delta.ndim or power.ndim:
        raise ValueError("budget and power must be scalars: use jax.vmap for more of them")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    weights = xp.broadcast_to(weights, sensitivities.shape)
    if not members:
        return sensitivities
    moves = sensitivities != 0
    unit = xp.where(xp.any(moves), xp.max(sensitivities), 1.0)
    query = _Query(_stacked(members), moves, xp.where(moves, sensitivities / unit, 1.0))
    costs = weights * xp.stack([xp.asarray(n.absolute_moment(power)) for n in members])
    shape = _shape(query, budget, costs, power, steps)
    safe, unsafe = _bracket(query, budget, shape)

    def released(common: Reals) -> PrivacyLoss:
        return PrivacyLoss(query.terms(common[..., None] * xp.exp(shape)))

    factor = calibrate(released, budget, lower=unsafe, upper=safe)
    return xp.where(moves, unit * factor * xp.exp(shape), 0.0)


def _one_each(noises: Noise | Sequence[Noise], sensitivities: Reals) -> tuple[Noise, ...]:
    """The noise of every coordinate."""
    if sensitivities.ndim != 1:
        raise ValueError(f"sensitivities must have shape (K,), got {sensitivities.shape}")
    members = (noises,) * sensitivities.shape[0] if isinstance(noises, Noise) else tuple(noises)
    if len(members) != sensitivities.shape[0]:
        raise ValueError(f"noises must be one or {sensitivities.shape[0]}, got {len(members)}")
    return members


class _Query(NamedTuple):
    """Query: (K,) sensitivities in units of the largest, and which of them are not 0."""

    groups: tuple[tuple[Noise, Indices], ...]  # noises of one type, stacked, with coordinates
    moves: Bools
    relative: Reals

    def terms(self, scales: Reals) -> Terms:
        """The composition of all coordinates at scales (..., K)."""
        moves, relative, scales = xp.broadcast_arrays(self.moves, self.relative, scales)
        shifts, counts = xp.where(moves, relative / scales, 0.0), xp.where(moves, 1.0, 0.0)
        return tuple(
            Term(Additive(noise, shifts[..., index]), counts[..., index])
            for noise, index in self.groups
        )


@jitted
def _bracket(query: _Query, budget: Budget, log_shape: Reals) -> tuple[Reals, Reals]:
    """A common factor that is surely enough, and one that is surely not."""
    mu, ratio = largest_gdp(budget).mu, largest_laplace_ratio(budget)
    spread = xp.sum(xp.where(query.moves, query.relative * xp.exp(-log_shape), 0.0))
    spread = xp.where(spread == 0, 1.0, spread)
    safe = 1e3 * spread / xp.maximum(xp.minimum(mu, ratio), 1e-30)
    return safe, 1e-4 * spread / xp.maximum(mu, ratio) / query.relative.size


def _searched(query: _Query, budget: Budget, costs: Reals, power: Reals, steps: int) -> Reals:
    """log of the relative scales: the best of both starts and of all steps.

    Every step moves the common factor by Newton's method to where the smooth delta is the budget's,
    and the shape by Adam along it: a single evaluation of both.
    """
    moves = query.moves
    log_delta = xp.log(budget.delta)

    def smooth(log_scales: Reals) -> Reals:
        return smooth_log_delta(query.terms(xp.exp(log_scales)), budget.epsilon)

    def log_error(log_scales: Reals) -> Reals:
        return xp.log(xp.sum(xp.where(moves, costs * xp.exp(power * log_scales), 0.0)))

    # The optima under a bound on sum_j (l_j / s_j)^2, and under one on sum_j l_j / s_j.
    starts = xp.stack([xp.log(query.relative**k / costs) / (power + k) for k in (2.0, 1.0)])
    optimiser = optax.adam(optax.cosine_decay_schedule(_LEARNING_RATE, steps))

    def step(state: tuple[Reals, Any, Reals, Reals], index: Index):
        """Log scales, the optimiser's memory, and the best scales so far with their error."""
        log_scales, memory, best, least = state
        value, slope = jax.value_and_grad(smooth)(log_scales)
        falls = xp.sum(slope)
        # log(-log delta) is nearly linear in the logarithm of a common factor.
        shift = xp.log(log_delta / value) * value / falls
        shift = xp.where((value < _LEAST_LOG) & xp.isfinite(shift), shift, 1.0)
        log_scales = log_scales + xp.clip(shift, -1.0, 1.0)
        error, rise = jax.value_and_grad(log_error)(log_scales)
        downhill = rise - power * slope / falls
        downhill = xp.where(xp.isfinite(downhill) & moves, downhill, 0.0)
        is_better: Bools = (error < least) & (xp.abs(shift) < _NEAR)
        best = xp.where(is_better, log_scales, best)
        least = xp.where(is_better, error, least)
        updates, memory_after = optimiser.update(downhill, memory)
        # Both starts settle before the better one is left.
        settling = index < 2 * _SETTLING - 1
        memory = jax.tree.map(lambda a, b: xp.where(settling, a, b), memory, memory_after)
        following = xp.where(settling, log_scales, log_scales + xp.asarray(updates))
        following = xp.where(index == _SETTLING - 1, starts[1], following)
        following = xp.where(index == 2 * _SETTLING - 1, best, following)
        return (following, memory, best, least), None

    first = starts[0], optimiser.init(starts[0]), starts[1], xp.asarray(xp.inf)
    with for_traces():  # its derivatives and optax are JAX's
        return lax.scan(step, first, xp.arange(steps + 2 * _SETTLING))[0][2]


_shape = jitted(_searched, 4)


def _stacked(noises: tuple[Noise, ...]) -> tuple[tuple[Noise, Indices], ...]:
    """Noises of one type stacked along their last axis, with their coordinates."""
    kinds: dict[object, list[int]] = {}
    for index, noise in enumerate(noises):
        kinds.setdefault(jax.tree.structure(noise), []).append(index)
    return tuple(
        (jax.tree.map(lambda *x: xp.stack(x), *(noises[i] for i in index)), xp.array(index))
        for index in kinds.values()
    )
