"""A budget spread over coordinates of unequal sensitivity: the closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.design.allocate_exact import allocate_exact
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.laplace_sum import largest_laplace_ratio
from jaxdp.guarantee.pure import PureDP
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

FAMILIES = ("gaussian", "laplace")
METHODS = ("inid", "spr", "iid")
# Smaller sensitivities get the noise of this share of the largest: no power of it underflows.
_LEAST_SHARE = 1e-100


def allocate(
    family: str,
    sensitivities: ArrayLike,
    budget: BudgetLike | GDP | PureDP,
    weights: ArrayLike | None = None,
    power: ArrayLike = 2,
    *,
    method: str = "inid",
    counts: ArrayLike | None = None,
) -> Reals:
    """Scales, one per coordinate, that keep the budget when all coordinates are released.

    With sensitivities l_j, each coordinate released counts_j times (1 unless given):

    gaussian: sum_j counts_j l_j^2 / scale_j^2 = mu^2, mu = `largest_gdp(budget).mu` or a GDP's:
              delta is met exactly;
    laplace:  sum_j counts_j l_j / scale_j = epsilon - 2 log(1 - delta), or a PureDP's epsilon.
              Exact at delta = 0. Else one shift by the sum dominates (`largest_laplace_ratio`),
              and little of delta is used: 2.5e-7 of 1e-6 with three coordinates, less with more.

    "inid" minimises sum_j weights_j counts_j E|noise_j|^power: scale_j proportional to
    (l_j^2 / weights_j)^(1 / (power + 2)) for the Gaussian, (l_j / weights_j)^(1 / (power + 1)) for
    the Laplace. "spr" (scale, perturb, rescale) takes scale_j proportional to l_j, "iid" equal
    scales on all coordinates. "exact" is "inid" where that is exact, and `allocate_exact` for
    Laplaces at delta > 0 (one budget, no counts): the least error that exact composition allows,
    after some 15 s of compiling. "inid" wins over the other two for coordinates that can all reach
    their bounds at once; a query whose joint sensitivity is known to be smaller than the norm of
    the l_j may do better with `fit_noise` at that joint sensitivity.

    Shapes: sensitivities, weights, counts (..., K); budget (...); result (..., K). A zero
    sensitivity gets scale 0, no noise ("iid" keeps it). The scales are rounded up, by 1e-15.
    Source: Muthukrishnan & Kalyani, theorems 4 and 5, definition 5; weights are ours.
    """
    budget = as_budget(budget) if isinstance(budget, tuple) else budget
    checks.one_of("family", family, FAMILIES)
    checks.one_of("method", method, (*METHODS, "exact"))
    if weights is not None and method not in ("inid", "exact"):
        raise ValueError(f"weights belong to methods 'inid' and 'exact', got method {method!r}")
    if method == "exact":
        if family == "laplace" and isinstance(budget, Budget) and not _is_pure(budget):
            if counts is not None:
                raise ValueError("counts must be None with method 'exact': list the coordinates")
            return allocate_exact(Laplace(1.0), sensitivities, budget, weights, power)
        method = "inid"
    sensitivities = checks.nonnegative("sensitivities", sensitivities)
    if sensitivities.ndim == 0:
        raise ValueError("sensitivities must have a coordinate axis, got a scalar")
    finite = checks.real("sensitivities", sensitivities, 0.0, float(jnp.finfo(float).max))
    weights = checks.positive("weights", 1.0 if weights is None else weights)
    counts = checks.whole("counts", 1.0 if counts is None else counts)
    power = checks.real("power", power, 0.0, open_lower=True)
    level = checks.guard(_level(family, budget))
    return _allocate(family, method, finite, level, weights, power, counts)


def _is_pure(budget: Budget) -> bool:
    """True if delta is known to be 0."""
    return checks.is_concrete(budget.delta) and not np.any(np.asarray(budget.delta))


def allocation_error(
    family: str, scales: ArrayLike, weights: ArrayLike | None = None, power: ArrayLike = 2
) -> Reals:
    """sum_j weights_j E|noise_j|^power over the last axis: at power 2 the squared error.

    A scale of 0 adds nothing.
    """
    checks.one_of("family", family, FAMILIES)
    scales = checks.nonnegative("scales", scales)
    weights = checks.positive("weights", 1.0 if weights is None else weights)
    power = checks.real("power", power, 0.0, open_lower=True)
    unit = (Gaussian if family == "gaussian" else Laplace)(1.0).absolute_moment(power)
    scales, weights, power, unit = jnp.broadcast_arrays(scales, weights, power, unit)
    return jnp.sum(weights * unit * scales**power, axis=-1)


def allocation_shape(
    family: str, sensitivities: Reals, weights: Reals, power: Reals, method: str
) -> Reals:
    """The scales of `allocate` up to their common factor."""
    if method == "iid":
        return jnp.ones_like(sensitivities)
    if method == "spr":
        return sensitivities
    if family == "gaussian":
        return (sensitivities**2 / weights) ** (1.0 / (power + 2.0))
    return (sensitivities / weights) ** (1.0 / (power + 1.0))


def _level(family: str, budget: Budget | GDP | PureDP) -> Reals:
    """Total that coordinates share: mu for the Gaussian, sum of shift / scale for the Laplace."""
    if family == "gaussian" and isinstance(budget, GDP):
        return budget.mu
    if family == "laplace" and isinstance(budget, PureDP):
        return budget.epsilon_bound
    if not isinstance(budget, Budget):
        raise ValueError(f"budget of a {family} must be a Budget, got {type(budget).__name__}")
    if family == "gaussian":
        return largest_gdp(budget).mu
    return largest_laplace_ratio(budget)


@jax.jit(static_argnums=(0, 1))
def _allocate(
    family: str,
    method: str,
    sensitivities: Reals,
    level: Reals,
    weights: Reals,
    power: Reals,
    counts: Reals,
) -> Reals:
    sensitivities, level, weights, power, counts = jnp.broadcast_arrays(
        sensitivities, level[..., None], weights, power, counts
    )
    # Units of the largest sensitivity, so that no power of it overflows.
    unit = jnp.max(sensitivities, axis=-1, keepdims=True, initial=0.0)
    unit = jnp.where(unit == 0, 1.0, unit)
    relative = jnp.where(sensitivities == 0, 0.0, jnp.maximum(sensitivities / unit, _LEAST_SHARE))
    shape = allocation_shape(family, relative, weights, power, method)
    safe = jnp.where(relative == 0, 1.0, shape)
    norm = 2.0 if family == "gaussian" else 1.0
    spent = jnp.sum(counts * (relative / safe) ** norm, axis=-1, keepdims=True) ** (1.0 / norm)
    scales = round_up(unit * shape * spent / level, 8)
    silent = jnp.zeros_like(scales) if method != "iid" else jnp.where(spent == 0, 0.0, scales)
    return jnp.where(sensitivities == 0, silent, scales)
