"""A budget over coordinates of any noises, under exact accounting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Bools, Indices, Reals
from jaxdp.accountant.composition import Term, Terms
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.design.calibrate import calibrate
from jaxdp.dominating_pair.additive import Additive
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.noise.base import Noise

# Powers k of the shapes that are compared. chosen: the error between two neighbours is flat
_POWERS = (1.0, 1.2, 1.7, 2.0)


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
