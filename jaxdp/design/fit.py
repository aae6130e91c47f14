"""The best member of a noise family for a budget: least error, from the safe side."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.precision import callers_are_wide
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.accountant import evaluate
from jaxdp.accountant.composition import Term
from jaxdp.design.families import Family, kind_of, known, name_of
from jaxdp.design.least_error import Lanes, Residuals, excess_of, least_error
from jaxdp.design.sensitivity import JointSensitivity
from jaxdp.dominating_pair.additive import Additive
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.staircase import Staircase, staircase_split

# Errors of one coordinate that a fit minimises.
OBJECTIVES = ("variance", "mean_absolute")
# Points of the grid while a shape is searched. chosen: its bound is smooth, if not near
_POINTS = 2**12
# Added to both epsilons of a ratio, nats. chosen: its logarithm is finite, and smooth
_LEAST = 1e-3
# Share of a sensitivity that counts for the rounding of scale and shape to float32. derived: the
# truncated Laplace's delta moves by |log delta| 2^-23 of itself, 700 of them; others need less
_ROUNDED = 2.0**-13


@in_float64
def fit_noise(
    family: Family,
    budget: BudgetLike,
    sensitivity: ArrayLike | JointSensitivity,
    count: ArrayLike = 1,
    objective: str = "variance",
) -> Noise:
    """The member of a family of noises with the least error that meets a budget.

    Args:
        family: "gaussian", "laplace", "truncated_laplace", "flipped_huber", "offset_gaussian",
            "subbotin", "staircase", "discrete_gaussian" or "discrete_laplace"; or the class of your
            own noise of one scale.
        budget: a `Budget` or (epsilon, delta) of all releases together, epsilon in nats; batched.
        sensitivity: of one release, which makes `count` coordinates a box; or a `JointSensitivity`,
            where the better of its dominating directions is taken (the Gaussian sees l2 only).
            Noises on the integers need whole numbers.
        count: whole number of releases.
        objective: "variance" or "mean_absolute", E T^2 or E |T| of one coordinate.

    Returns:
        The noise, batched over all arguments, which meets the composed delta as `PrivacyLoss`
        bounds it. Infinite scale where nothing meets the budget (delta
        = 0 for a Gaussian tail or a truncated noise). A discrete Gaussian keeps it as it is found:
        of small ones delta does not always fall as the scale grows.

    For a family with a shape (alpha / gamma of the flipped Huber, offset / scale, power - 1 of the
    Subbotin, bound / scale) the least scale is found for every shape of a grid, then on finer grids
    around the best; the flipped Huber also on its curve count alpha sensitivity = gamma^2 epsilon,
    where its loss has a plateau exactly at epsilon, as one scalar root. In a composition the scale
    is at most 1e-8 of itself above the least one of its shape; in a table of 147 compositions the
    variance was at most 1e-4 of itself above the known optimum. The staircase meets epsilon at
    delta = 0 with `staircase_split`. Inside `jax.jit` the search is one call of
    the host. Where JAX has no float64 there, scale and shape are rounded to float32, so the member
    is that of a sensitivity larger by 1.3e-4 of itself, except on the integers. Arguments that do
    not go together: `ValueError`.

    >>> import jaxdp as dp
    >>> print(f"{dp.fit_noise('laplace', (1.0, 1e-5), 2.0).scale:.4f}")
    2.0000
    """
    budget = as_budget(budget)
    family = known("family", family)
    checks.one_of("objective", objective, OBJECTIVES)
    once = checks.is_concrete(count) and bool(np.all(np.asarray(count) == 1))
    count = checks.whole("count", count, 1.0)
    if not isinstance(sensitivity, JointSensitivity):
        sensitivity = checks.positive("sensitivity", sensitivity)
        sensitivity = _counted(family, sensitivity, (budget, sensitivity, count))
        return _fit(family, objective, budget, sensitivity, count, once)
    return _fit_joint(family, objective, budget, sensitivity, count, once)


def _counted(family: Family, sensitivity: Reals, arguments: Any) -> Reals:
    """The sensitivity that a fit meets: larger where the caller rounds its result to float32."""
    if kind_of(family).on_integers:
        return checks.whole("sensitivity", sensitivity)
    is_kept = callers_are_wide() or checks.all_concrete(arguments)
    return sensitivity if is_kept else sensitivity * (1.0 + _ROUNDED)


def _fit_joint(
    family: Family,
    objective: str,
    budget: Budget,
    joint: JointSensitivity,
    count: Reals,
    once: bool,
) -> Noise:
    """The better of the members for the dominating directions of `joint`."""
    if family == "staircase" or not (isinstance(family, str) or family.log_concave):
        name = name_of(family)
        raise ValueError(f"a joint sensitivity needs log-concave noise, which {name} is not")
    if family == "gaussian":
        size = _counted(family, joint.tightened().l2, (budget, joint, count))
        return _fit(family, objective, budget, size, count, once)
    shifts, counts = joint.dominating()
    shifts = _counted(family, shifts, (budget, joint, count))
    budget = Budget(budget.epsilon[..., None], budget.delta[..., None])
    every = _fit(family, objective, budget, shifts, counts * count[..., None], False)
    error = getattr(every, objective)()
    best = xp.argmin(xp.where(xp.isnan(error), xp.inf, error), axis=-1)[..., None]
    return jax.tree.map(lambda x: xp.take_along_axis(x, best, -1)[..., 0], every)


def _fitted(
    family: Family,
    objective: str,
    budget: Budget,
    shift: Reals,
    count: Reals,
    once: bool,
) -> Noise:
    lanes = Lanes(*xp.broadcast_arrays(budget.epsilon, budget.delta, shift, count))
    if family == "staircase":
        return _fit_staircase(objective, lanes)
    if family == "gaussian":
        mu = largest_gdp(Budget(lanes.epsilon, lanes.delta)).mu
        return Gaussian(round_up(lanes.shift * xp.sqrt(lanes.fold) / mu, 4))
    if family == "laplace" and once:
        ratio = largest_laplace_ratio(Budget(lanes.epsilon, lanes.delta))
        return Laplace(round_up(lanes.shift / ratio, 4))

    return least_error(family, objective, lanes, _OF_ONE if once else _OF_COMPOSITIONS)


def _excess_of_one(noise: Noise, lanes: Lanes) -> Reals:
    """Excess of the log delta of one release."""
    return excess_of(noise.log_delta(lanes.shift, lanes.epsilon), lanes.delta)


def _excess(noise: Noise, lanes: Lanes) -> Reals:
    """Excess of the composed log delta."""
    bounds = evaluate.log_delta(_released(noise, lanes), lanes.epsilon, False)
    return excess_of(bounds.upper, lanes.delta)


def _rough(noise: Noise, lanes: Lanes) -> Reals:
    """Logarithm of epsilon over the budget's, from a small grid."""
    return _ratio(evaluate.grid_epsilon(_released(noise, lanes), lanes.delta, _POINTS), lanes)


def _near(noise: Noise, lanes: Lanes) -> Reals:
    """Logarithm of epsilon over the budget's."""
    return _ratio(evaluate.epsilon(_released(noise, lanes), lanes.delta, False).upper, lanes)


def _released(noise: Noise, lanes: Lanes) -> tuple[Term]:
    noise, shift, count = jax.tree.map(lambda x: x[..., None], (noise, lanes.shift, lanes.fold))
    return (Term(Additive(noise, shift), count),)


def _ratio(epsilon: Reals, lanes: Lanes) -> Reals:
    return xp.log((epsilon + _LEAST) / (lanes.epsilon + _LEAST))


_OF_ONE = Residuals(_excess_of_one, _excess_of_one)
_OF_COMPOSITIONS = Residuals(_excess, _rough, _near)
_fit = jitted(_fitted, (0, 1, 5))


def _fit_staircase(objective: str, lanes: Lanes) -> Noise:
    """Pure: the loss of `count` releases is at most epsilon."""
    epsilon = lanes.epsilon / lanes.fold * (1.0 - 4e-16)
    usable = epsilon > 0
    epsilon = xp.where(usable, epsilon, 1.0)
    shift = xp.where(usable, lanes.shift, xp.inf)
    return Staircase(epsilon, shift, staircase_split(epsilon, objective))
