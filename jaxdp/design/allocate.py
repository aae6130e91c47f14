"""A budget spread over coordinates of unequal sensitivity: the closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.design.allocate_exact import allocate_exact
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.largest_laplace_ratio import largest_laplace_ratio
from jaxdp.guarantee.pure import PureDP
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

# Noises with a closed form, and how scales are spread; see `allocate`.
FAMILIES = ("gaussian", "laplace")
METHODS = ("inid", "spr", "iid")
# Smaller sensitivities get the noise of this share of the largest. chosen: no power underflows
_LEAST_SHARE = 1e-100


@in_float64
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
    """Noise scales, one a coordinate, that keep a budget when all coordinates are released.

    Args:
        family: "gaussian" or "laplace".
        sensitivities: l_j, (..., K), by which each coordinate moves; all at once.
        budget: a `Budget` or (epsilon, delta) of shape (...), epsilon in nats; also a `GDP` for the
            Gaussian, a `PureDP` for the Laplace.
        weights: of the coordinates in the error, (..., K), above 0; 1 if None. "inid" and "exact"
            only.
        power: of the error that is minimised, above 0.
        method: "inid" minimises sum_j weights_j counts_j E|noise_j|^power. "spr" (scale, perturb,
            rescale): scale_j ~ l_j. "iid": equal scales. "exact": `allocate_exact` for Laplaces at
            delta > 0 (one budget, no counts), after some 15 s of compiling; else "inid", exact
            itself.
        counts: releases of each coordinate, (..., K), whole; 1 if None.

    Returns:
        The scales, (..., K), rounded up by 1e-15. A zero sensitivity gets scale 0 ("iid" keeps it).

    "inid": scale_j ~ (l_j^2 / weights_j)^(1 / (power + 2)) for the Gaussian, and (l_j /
    weights_j)^(1 / (power + 1)) for the Laplace. It wins over "spr" and "iid" for coordinates that
    can all reach their bounds at once; where their joint sensitivity is known to be smaller than
    the norm of the l_j, `fit_noise` at that may do better. The common factor meets
      gaussian: sum_j counts_j l_j^2 / scale_j^2 = mu^2, mu = `largest_gdp(budget).mu` or a GDP's:
                delta is met exactly;
      laplace:  sum_j counts_j l_j / scale_j = epsilon - 2 log(1 - delta), or a PureDP's epsilon.
                Exact at delta = 0. Else one shift by the sum dominates (`largest_laplace_ratio`),
                and little of delta is used: 2.5e-7 of 1e-6 with three coordinates, less with more.
    Source: Muthukrishnan & Kalyani, theorems 4 and 5, definition 5; weights are ours.

    >>> import jaxdp as dp
    >>> print(dp.allocate("gaussian", [1.0, 4.0], (1.0, 1e-5)).round(3))
    [ 8.342 16.684]
    """
    budget = as_budget(budget) if isinstance(budget, tuple) else budget
    _check_choices(family, method, weights)
    if method == "exact":
        if family == "laplace" and isinstance(budget, Budget) and not _is_pure(budget):
            if counts is not None:
                raise ValueError("counts must be None with method 'exact': list the coordinates")
            return allocate_exact(Laplace(1.0), sensitivities, budget, weights, power)
        method = "inid"
    finite = _finite_sensitivities(sensitivities)
    weights = checks.positive("weights", 1.0 if weights is None else weights)
    counts = checks.whole("counts", 1.0 if counts is None else counts)
    power = checks.real("power", power, 0.0, open_lower=True)
    level = checks.guard(_level(family, budget))
    return _allocate(family, method, finite, level, weights, power, counts)


def _check_choices(family: str, method: str, weights: ArrayLike | None) -> None:
    checks.one_of("family", family, FAMILIES)
    checks.one_of("method", method, (*METHODS, "exact"))
    if weights is not None and method not in ("inid", "exact"):
        raise ValueError(f"weights belong to methods 'inid' and 'exact', got method {method!r}")


def _finite_sensitivities(sensitivities: ArrayLike) -> Reals:
    sensitivities = checks.nonnegative("sensitivities", sensitivities)
    if sensitivities.ndim == 0:
        raise ValueError("sensitivities must have a coordinate axis, got a scalar")
    return checks.real("sensitivities", sensitivities, 0.0, float(jnp.finfo(float).max))


def _is_pure(budget: Budget) -> bool:
    """True if delta is known to be 0."""
    return checks.is_concrete(budget.delta) and not np.any(np.asarray(budget.delta))


@in_float64
def allocation_error(
    family: str, scales: ArrayLike, weights: ArrayLike | None = None, power: ArrayLike = 2
) -> Reals:
    """The weighted error of the noise on all coordinates: sum_j weights_j E|noise_j|^power.

    Args:
        family: "gaussian" or "laplace".
        scales: of the noises, (..., K), in the query's unit; a scale of 0 adds nothing.
        weights: (..., K), above 0; 1 if None.
        power: above 0; at 2 the squared error.

    Returns:
        The sum over the last axis, in the query's unit to that power.

    >>> import jaxdp as dp
    >>> print(f"{dp.allocation_error('laplace', [1.0, 2.0]):.4f}")
    10.0000
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
