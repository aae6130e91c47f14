"""A budget spread over coordinates of unequal sensitivity: closed forms, and exact accounting.

The delta of a small discrete Gaussian does not always fall as its scale grows (at shift 1 and
epsilon 3 it rises for a third of the scales from 0.3 on): the returned scales satisfy the budget,
larger ones need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Bools, Indices, Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.accountant.composition import Term, Terms
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.calibrate import calibrate, least_of_composition
from jaxdp.design.families import ALLOCATED, CONTINUOUS, MEMBERS, norm_of, scaled
from jaxdp.dominating_pair.additive import Additive
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise

# How scales are spread; see `allocate`.
METHODS = ("inid", "spr", "iid")
# Smaller sensitivities get the noise of this share of the largest. chosen: no power underflows
_LEAST_SHARE = 1e-100
# Least scale on the integers, over the closed form's. chosen: far below it
_NEAREST = 1e-2
# The largest one. chosen: these compose nearly alike
_FARTHEST = 1e2
# Powers k of the shapes that are compared. chosen: the error between two neighbours is flat
_POWERS = (1.0, 1.2, 1.7, 2.0)


@in_float64
def allocate(
    family: str,
    sensitivities: ArrayLike,
    budget: BudgetLike | GDP | PureDP | ZCDP,
    weights: ArrayLike | None = None,
    power: ArrayLike = 2,
    *,
    method: str = "inid",
    counts: ArrayLike | None = None,
) -> Reals:
    """Noise scales, one a coordinate, that keep a budget when all coordinates are released.

    Args:
        family: "gaussian", "laplace", "discrete_gaussian" or "discrete_laplace".
        sensitivities: l_j, (..., K), of the coordinates, all at once; whole for integer noise.
        budget: a `Budget` or (epsilon, delta) of shape (...), epsilon in nats; or a `GDP` for the
            Gaussian, a `ZCDP` for both Gaussians, a `PureDP` for the Laplaces.
        weights: of the coordinates in the error, (..., K), above 0; 1 if None. "inid" only.
        power: of the error that is minimised, above 0.
        method: "inid" minimises sum_j weights_j counts_j E|noise_j|^power. "spr" (scale, perturb,
            rescale): scale_j ~ l_j. "iid": equal scales. For Laplaces at delta > 0 and for your own
            noise, `allocate_exact` does better.
        counts: releases of each coordinate, (..., K), whole; 1 if None.

    Returns:
        The scales, (..., K), rounded up. A zero sensitivity gets scale 0 ("iid" keeps it).

    "inid": scale_j ~ (l_j^2 / weights_j)^(1 / (power + 2)) for the Gaussian, and (l_j /
    weights_j)^(1 / (power + 1)) for the Laplace. Where the joint sensitivity is known to be smaller
    than the norm of the l_j, `fit_noise` at that may do better. The common factor meets
      gaussian: sum_j counts_j l_j^2 / scale_j^2 = mu^2, mu = `largest_gdp(budget).mu` or a GDP's:
                delta is met exactly. mu^2 = 2 rho for a ZCDP, which is met exactly, too;
      laplace:  sum_j counts_j l_j / scale_j = epsilon - 2 log(1 - delta), or a PureDP's epsilon.
                Exact at delta = 0. Else one shift by the sum dominates (`largest_laplace_ratio`),
                and little of delta is used: 2.5e-7 of 1e-6 with three coordinates, less with more.
    On the integers shares are the same and `calibrate` finds the factor by the composed privacy
    loss; a pure discrete Laplace is the Laplace, and the discrete Gaussian of a ZCDP the Gaussian.
    Source: Muthukrishnan & Kalyani, theorems 4 and 5, definition 5; weights are ours.

    >>> import jaxdp as dp
    >>> print(dp.allocate("gaussian", [1.0, 4.0], (1.0, 1e-5)).round(3))
    [ 8.342 16.684]
    """
    checks.one_of("family", family, ALLOCATED)
    checks.one_of("method", method, METHODS)
    if weights is not None and method != "inid":
        raise ValueError(f"weights belong to method 'inid', got method {method!r}")
    budget = budget if isinstance(budget, GDP | ZCDP | PureDP) else as_budget(budget)
    finite = _finite_sensitivities(family, sensitivities)
    weights = checks.positive("weights", 1.0 if weights is None else weights)
    counts = checks.whole("counts", 1.0 if counts is None else counts)
    power = checks.real("power", power, 0.0, open_lower=True)
    level = checks.guard(level_of(family, budget))
    scales = _allocate(norm_of(family), method, finite, level, weights, power, counts)
    on_integers = MEMBERS[family].on_integers
    return _composed(family, scales, finite, counts, budget) if on_integers else scales


def _composed(
    family: str,
    scales: Reals,
    sensitivities: Reals,
    counts: Reals,
    budget: Budget | GDP | PureDP | ZCDP,
) -> Reals:
    """The scales times the least factor with which their exact composition keeps the budget."""
    if not isinstance(budget, Budget):
        return scales
    is_pure = checks.is_concrete(budget.delta) and not np.any(np.asarray(budget.delta))
    if norm_of(family) == 1 and is_pure:
        return scales

    def released(factor: Reals, numbers: tuple[Reals, Reals, Reals]) -> PrivacyLoss:
        scales, sensitivities, counts = numbers
        moves = (sensitivities > 0) & (scales > 0)
        noise = scaled(family, factor[..., None] * xp.where(moves, scales, 1.0))
        mechanism = Mechanism(noise, xp.where(moves, sensitivities, 0.0))
        return (counts * privacy_loss(mechanism)).sum(-1)

    def least(budget: Budget, numbers: tuple[Reals, Reals, Reals]) -> Reals:
        return calibrate(lambda x: released(x, numbers), budget, lower=_NEAREST, upper=_FARTHEST)

    size = np.broadcast_shapes(scales.shape, sensitivities.shape, counts.shape)
    # One by one: what is known stays so.
    every, sizes, times = (xp.broadcast_to(x, size) for x in (scales, sensitivities, counts))
    numbers, shape = (every, sizes, times), scales.shape[:-1]
    factor = least_of_composition(least, released, budget, numbers, shape, trailing=1)
    return xp.where(scales > 0, factor[..., None] * scales, scales)


def _finite_sensitivities(family: str, sensitivities: ArrayLike) -> Reals:
    """Sensitivities with their axis; whole numbers where the noise is on the integers."""
    sensitivities = checks.nonnegative("sensitivities", sensitivities)
    if sensitivities.ndim == 0:
        raise ValueError("sensitivities must have a coordinate axis, got a scalar")
    if MEMBERS[family].on_integers:
        sensitivities = checks.whole("sensitivities", sensitivities)
    return checks.real("sensitivities", sensitivities, 0.0, float(xp.finfo(float).max))


@in_float64(side=0.0)
def allocation_error(
    family: str, scales: ArrayLike, weights: ArrayLike | None = None, power: ArrayLike = 2
) -> Reals:
    """The weighted error of the noise on all coordinates: sum_j weights_j E|noise_j|^power.

    Args:
        family: as in `allocate`.
        scales: of the noises, (..., K), in the query's unit; a scale of 0 adds nothing.
        weights: (..., K), above 0; 1 if None.
        power: above 0; at 2 the squared error.

    Returns:
        The sum over the last axis, in the query's unit to that power.

    >>> import jaxdp as dp
    >>> print(f"{dp.allocation_error('laplace', [1.0, 2.0]):.4f}")
    10.0000
    """
    checks.one_of("family", family, ALLOCATED)
    scales = checks.nonnegative("scales", scales)
    weights = checks.positive("weights", 1.0 if weights is None else weights)
    power = checks.real("power", power, 0.0, open_lower=True)
    silent = scales == 0
    each = scaled(family, xp.where(silent, 1.0, scales)).absolute_moment(power)
    each, weights = xp.broadcast_arrays(xp.where(silent, 0.0, each), weights)
    return xp.sum(weights * each, axis=-1)


def allocation_shape(
    norm: int, sensitivities: Reals, weights: Reals, power: Reals, method: str
) -> Reals:
    """The scales of `allocate` up to their common factor, for a norm of order 1 or 2."""
    if method == "iid":
        return xp.ones_like(sensitivities)
    if method == "spr":
        return sensitivities
    if norm == 2:
        return (sensitivities**2 / weights) ** (1.0 / (power + 2.0))
    return (sensitivities / weights) ** (1.0 / (power + 1.0))


def level_of(family: str, budget: Budget | GDP | PureDP | ZCDP) -> Reals:
    """Total that coordinates share: mu for a Gaussian, sum of shift / scale for a Laplace."""
    norm = norm_of(family)
    match norm, budget:
        case 2, GDP(mu=mu) if family in CONTINUOUS:
            return mu
        case 2, ZCDP(rho=rho):
            return round_up(xp.sqrt(2.0 * rho), -2)
        case 1, PureDP(epsilon_bound=epsilon):
            return epsilon
        case _, Budget():
            return largest_gdp(budget).mu if norm == 2 else largest_laplace_ratio(budget)
    raise ValueError(f"budget of a {family} must be a Budget, got {type(budget).__name__}")


@partial(jitted, static_argnums=(0, 1))
def _allocate(
    norm: int,
    method: str,
    sensitivities: Reals,
    level: Reals,
    weights: Reals,
    power: Reals,
    counts: Reals,
) -> Reals:
    sensitivities, level, weights, power, counts = xp.broadcast_arrays(
        sensitivities, level[..., None], weights, power, counts
    )
    # Units of the largest sensitivity, so that no power of it overflows.
    unit = xp.max(sensitivities, axis=-1, keepdims=True, initial=0.0)
    unit = xp.where(unit == 0, 1.0, unit)
    relative = xp.where(sensitivities == 0, 0.0, xp.maximum(sensitivities / unit, _LEAST_SHARE))
    shape = allocation_shape(norm, relative, weights, power, method)
    safe = xp.where(relative == 0, 1.0, shape)
    parts = counts * (relative / safe) ** (1.0 * norm)
    spent = xp.sum(parts, axis=-1, keepdims=True) ** (1.0 / norm)
    scales = round_up(unit * shape * spent / level, 8)
    silent = xp.zeros_like(scales) if method != "iid" else xp.where(spent == 0, 0.0, scales)
    return xp.where(sensitivities == 0, silent, scales)


@in_float64
def allocate_exact(
    noises: Noise | Sequence[Noise],
    sensitivities: ArrayLike,
    budget: BudgetLike,
    weights: ArrayLike | None = None,
    power: ArrayLike = 2,
) -> Reals:
    """Noise scales of least error, one a coordinate, that keep a budget under exact composition.

    Args:
        noises: T_j, one for all coordinates or one each, of any families: coordinate j is released
            with noise s_j T_j. For Gaussian(1.0) and Laplace(1.0) the s_j are the scales.
        sensitivities: l_j, (K,), of the coordinates.
        budget: one `Budget` or (epsilon, delta), epsilon in nats.
        weights: (K,), above 0; 1 if None.
        power: of the error sum_j weights_j E|s_j T_j|^power that is minimised, above 0.

    Returns:
        The s_j, (K,); infinite where nothing meets the budget; 0 at a zero sensitivity.

    The relative scales are (l_j^k / w_j)^(1 / (power + k)), w_j the weight times E|T_j|^power: the
    closed forms of `allocate` are k = 1, the Laplace's, and k = 2, the Gaussian's. For each of four
    k `calibrate` finds the common factor under exact composition, from the safe side; the k of the
    least error is taken. It was at most 3e-3 above that of scales found by gradient (20 coordinates
    of Laplace, Subbotin and offset Gaussian noise). More than one budget or power: `ValueError`.

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
    weights = xp.broadcast_to(weights, sensitivities.shape)
    if not members:
        return sensitivities
    moves = sensitivities != 0
    unit = xp.where(xp.any(moves), xp.max(sensitivities), 1.0)
    relative = xp.where(moves, sensitivities / unit, 1.0)
    costs = weights * xp.stack([xp.asarray(n.absolute_moment(power)) for n in members])
    # One row for each of the powers.
    is_moved, relative, costs, powers = xp.broadcast_arrays(
        moves, relative, costs, xp.asarray(_POWERS)[:, None]
    )
    query = _Query(_stacked(members), is_moved, relative)
    shapes = (relative**powers / costs) ** (1.0 / (power + powers))
    safe, unsafe = _bracket(query, budget, shapes)

    def released(factors: Reals) -> PrivacyLoss:
        return PrivacyLoss(query.terms(factors[..., None] * shapes))

    factors = calibrate(released, budget, lower=unsafe, upper=safe)
    scales = factors[:, None] * shapes
    error = xp.sum(xp.where(is_moved, costs * scales**power, 0.0), axis=-1)
    best = scales[xp.argmin(xp.where(xp.isnan(error), xp.inf, error))]
    return xp.where(moves, unit * best, 0.0)


def _one_each(noises: Noise | Sequence[Noise], sensitivities: Reals) -> tuple[Noise, ...]:
    """The noise of every coordinate."""
    if sensitivities.ndim != 1:
        raise ValueError(f"sensitivities must have shape (K,), got {sensitivities.shape}")
    members = (noises,) * sensitivities.shape[0] if isinstance(noises, Noise) else tuple(noises)
    if len(members) != sensitivities.shape[0]:
        raise ValueError(f"noises must be one or {sensitivities.shape[0]}, got {len(members)}")
    return members


class _Query(NamedTuple):
    """Query: (..., K) sensitivities in units of the largest, and which of them are not 0."""

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
def _bracket(query: _Query, budget: Budget, shapes: Reals) -> tuple[Reals, Reals]:
    """A common factor of each shape that is surely enough, and one that is surely not."""
    mu, ratio = largest_gdp(budget).mu, largest_laplace_ratio(budget)
    spread = xp.sum(xp.where(query.moves, query.relative / shapes, 0.0), axis=-1)
    spread = xp.where(spread == 0, 1.0, spread)
    safe = 1e3 * spread / xp.maximum(xp.minimum(mu, ratio), 1e-30)
    return safe, 1e-4 * spread / xp.maximum(mu, ratio) / query.relative.shape[-1]


def _stacked(noises: tuple[Noise, ...]) -> tuple[tuple[Noise, Indices], ...]:
    """Noises of one type stacked along their last axis, with their coordinates."""
    kinds: dict[object, list[int]] = {}
    for index, noise in enumerate(noises):
        kinds.setdefault(jax.tree.structure(noise), []).append(index)
    return tuple(
        (jax.tree.map(lambda *x: xp.stack(x), *(noises[i] for i in index)), xp.array(index))
        for index in kinds.values()
    )
