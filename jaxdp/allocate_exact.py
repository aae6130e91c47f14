"""A budget over coordinates of any noises, under exact accounting: scales by gradient."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxdp import _check
from jaxdp._numeric.bracket import excess, last_feasible_quick
from jaxdp._types import Bools, Index, RealLike, Reals
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.guarantee.laplace_sum import largest_laplace_ratio
from jaxdp.loss.base import Term, Terms
from jaxdp.loss.contour import FINAL, Limits, in_lanes
from jaxdp.loss.truncated import as_loss
from jaxdp.noise.base import Noise

# While the shape is searched.
_SEARCH = (1e-6, 2048)
_LEARNING_RATE = 0.05
_SLACK = 4e-12


def allocate_exact(
    noises: Noise | Sequence[Noise],
    sensitivities: RealLike,
    budget: BudgetLike,
    weights: RealLike | None = None,
    power: RealLike = 2,
    *,
    steps: int = 60,
) -> Reals:
    """Scales s_j, one a coordinate, with the least sum_j weights_j E|s_j T_j|^power in the budget.

    Coordinate j moves by at most sensitivities_j and is released with noise s_j T_j, T_j drawn
    from `noises` (one for all, or one each: the families may differ; for Gaussian(1.0) and
    Laplace(1.0) the s_j are the scales). The composition is accounted exactly (`privacy_loss`),
    so what `allocate` loses to the bound of its corollary is won back.

    The relative scales start from the better of the closed forms of `allocate`, the Gaussian's and
    the Laplace's (power laws in l_j^2 / w_j and l_j / w_j), and move by Adam on the logarithm of
    the error; for each of them the common factor is the least that meets the budget, so no step
    leaves it, and the best of all is returned, from the safe side. Never worse than its start.
    Shapes: sensitivities, weights (K,); budget scalar; result (K,); infinite where nothing meets
    the budget. A zero sensitivity gets scale 0.
    """
    budget = as_budget(budget)
    sensitivities = _check.nonnegative("sensitivities", sensitivities)
    if sensitivities.ndim != 1:
        raise ValueError(f"sensitivities must have shape (K,), got {sensitivities.shape}")
    each = (noises,) * sensitivities.shape[0] if isinstance(noises, Noise) else tuple(noises)
    if len(each) != sensitivities.shape[0]:
        raise ValueError(f"noises must be one or {sensitivities.shape[0]}, got {len(each)}")
    weights = _check.positive("weights", 1.0 if weights is None else weights)
    power = _check.real("power", power, 0.0, open_lower=True)
    if budget.epsilon.ndim or budget.delta.ndim or power.ndim:
        raise ValueError("budget and power must be scalars: use jax.vmap for more of them")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    weights = jnp.broadcast_to(weights, sensitivities.shape)
    return _allocate(each, sensitivities, budget, weights, power, steps)


@partial(jax.jit, static_argnums=5)
def _allocate(
    noises: tuple[Noise, ...],
    sensitivities: Reals,
    budget: Budget,
    weights: Reals,
    power: Reals,
    steps: int,
) -> Reals:
    moves = sensitivities > 0
    unit = jnp.max(sensitivities)
    relative = jnp.where(moves, sensitivities / unit, 1.0)
    groups = _groups(noises)
    costs = weights * jnp.stack([jnp.asarray(n.absolute_moment(power)) for n in noises])

    def terms(scales: Reals) -> Terms:
        shifts = jnp.where(moves, relative, 0.0) / scales
        return tuple(
            Term(
                as_loss(stacked),
                shifts[jnp.array(index)],
                jnp.where(moves[jnp.array(index)], 1.0, 0.0),
            )
            for stacked, index in groups
        )

    def factor(log_shape: Reals, limits: Limits) -> Reals:
        def residual(common: Reals) -> Reals:
            found = in_lanes(terms(common * jnp.exp(log_shape)), budget.epsilon, limits)
            return excess(found.upper, budget.delta)

        largest = largest_gdp(budget).mu, largest_laplace_ratio(budget)
        spread = jnp.sum(jnp.where(moves, relative * jnp.exp(-log_shape), 0.0))
        safe = 1e3 * spread / jnp.maximum(jnp.minimum(*largest), 1e-30)
        unsafe = 1e-4 * spread / jnp.maximum(*largest) / relative.size
        slack = _SLACK * (1.0 + jnp.abs(jnp.log(jnp.where(budget.delta == 0, 1.0, budget.delta))))
        return last_feasible_quick(residual, safe, unsafe, slack)

    def log_error(log_shape: Reals) -> Reals:
        common = factor(log_shape, _SEARCH)
        shares = jnp.where(moves, costs * jnp.exp(power * log_shape), 0.0)
        return jnp.log(jnp.sum(shares)) + power * jnp.log(common)

    # The optima under a bound on sum_j (l_j / s_j)^2, and under one on sum_j l_j / s_j.
    starts = jnp.stack([jnp.log(relative**k / costs) / (power + k) for k in (2.0, 1.0)])
    optimiser = optax.adam(optax.cosine_decay_schedule(_LEARNING_RATE, steps))

    def step(state: tuple, index: Index) -> tuple[tuple, None]:
        shape, memory, best, least = state
        value, slope = jax.value_and_grad(log_error)(shape)
        slope = jnp.where(jnp.isfinite(slope) & moves, slope, 0.0)
        better: Bools = value < least
        best, least = jnp.where(better, shape, best), jnp.where(better, value, least)
        updates, moved = optimiser.update(slope, memory)
        # Both starts are looked at before the better one is left.
        looking = index < 2
        memory = jax.tree.map(lambda old, new: jnp.where(looking, old, new), memory, moved)
        start = jnp.where(index == 0, starts[1], best)
        shape = jnp.where(looking, start, shape + jnp.asarray(updates))
        return (shape, memory, best, least), None

    first = (starts[0], optimiser.init(starts[0]), starts[0], jnp.asarray(jnp.inf))
    best = lax.scan(step, first, jnp.arange(steps + 2))[0][2]
    shapes = jnp.concatenate([starts, best[None]])
    factors = lax.map(lambda shape: factor(shape, FINAL), shapes)
    errors = jnp.sum(jnp.where(moves[None], costs[None] * jnp.exp(power * shapes), 0.0), axis=-1)
    chosen = jnp.argmin(errors * factors**power)
    scales = unit * factors[chosen] * jnp.exp(shapes[chosen])
    return jnp.where(moves, scales, 0.0)


def _groups(noises: tuple[Noise, ...]) -> list[tuple[Noise, list[int]]]:
    """Noises of one type stacked along their last axis, with their coordinates."""
    kinds: dict[object, list[int]] = {}
    for index, noise in enumerate(noises):
        kinds.setdefault(jax.tree.structure(noise), []).append(index)
    return [
        (jax.tree.map(lambda *x: jnp.stack(x), *(noises[i] for i in index)), index)
        for index in kinds.values()
    ]
