"""Temperature, regularisation and length of the chain, for a budget."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log1p
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers.penalties import L2

# Most steps of a chain. chosen: no machine makes more, and an int64 holds them
_MOST_STEPS = 1e15


@final
@in_float64
@pytree
class Plan:
    """Temperature, regularisation and length of the chain, decided before a record is read.

    `exact` holds for a draw from the density itself. For any records, the chain's law is within
    `total_variation` of it, which adds (1 + e^epsilon) total_variation to delta; `guarantee`
    includes both. Rounding is not included, nor is the rounding of the 64-bit noise.
    """

    temperature: Reals  # k
    strength: Reals  # l, of the penalty
    regularisation: Reals  # m
    row_bound: Reals
    step: Reals  # eta
    steps: jax.Array
    refinements: jax.Array  # of the centre of the proposal
    total_variation: Reals
    excess_risk: Reals  # the bound d/k + m R^2 / 2, of the exact draw
    exact: GDP
    dimension: int = static()
    records: int = static()
    relation: str = static()

    @property
    def guarantee(self) -> Drawn:
        """Guarantee of the chain's last state, its distance from the exact density included."""
        return Drawn(self.exact, self.total_variation)


@in_float64
def plan(
    budget: BudgetLike,
    *,
    dimension: int,
    records: int,
    radius: ArrayLike,
    relation: str,
    row_bound: ArrayLike = 1.0,
    penalty: L2 | None = None,
    approximation_share: ArrayLike = 1e-3,
) -> Plan:
    """Temperature, regularisation and chain of a private logistic regression that keep a budget.

    Args:
        budget: a `Budget` or (epsilon, delta), epsilon in nats, delta > 0.
        dimension, records: d and n, public.
        radius: R, of the ball that the model is compared with; public. The density lives on all of
            R^d.
        relation: "replace_one", or "add_remove" with `records` fixed in the mean.
        row_bound: longer rows are shortened to it; then G = row_bound and L = row_bound^2 / 4.
        penalty: the problem's own, an `L2` with one strength, or None.
        approximation_share: of delta, spent on the distance of the chain from its limit, in (0,
            0.5].

    Returns:
        A `Plan`: the k and m of least d/k + m R^2 / 2, and a chain that is long enough.

    A delta of 0, and a chain of more than 1e15 steps: `ValueError`. The package has the formulas.

    >>> import jaxdp as dp
    >>> plan = dp.solvers.exponential_mechanism.plan(
    ...     (1.0, 1e-5), dimension=2, records=100, radius=1.0, relation="replace_one")
    >>> print(f"{plan.excess_risk:.4f}")
    0.1492
    """
    budget = as_budget(budget)
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    dimension = checks.positive_integer("dimension", dimension)
    records = checks.positive_integer("records", records)
    radius = checks.real("radius", radius, 0.0, 1e100, open_lower=True)
    bound = checks.real("row_bound", row_bound, 0.0, 1e100, open_lower=True)
    mu, variation = _split(budget, approximation_share)
    strength = _strength(penalty)
    # Downwards, so that rounding never exceeds mu.
    root = mu * records / (shift_factor(relation) * bound) * (1.0 - 1e-14)
    curvature = jnp.maximum(strength, jnp.sqrt(2.0 * dimension) / (root * radius))
    temperature, regularisation = root**2 * curvature, curvature - strength
    chain = _chain(temperature, curvature, bound, dimension, variation)
    risk = dimension / temperature + 0.5 * regularisation * radius**2
    density = temperature, strength, regularisation
    return Plan(*density, bound, *chain, variation, risk, GDP(mu), dimension, records, relation)


def _split(budget: Budget, share: ArrayLike) -> tuple[Reals, Reals]:
    """mu of the exact draw, and the total variation of the chain, that keep the budget together."""
    share = checks.real("approximation_share", share, 0.0, 0.5, open_lower=True)
    variation = share * budget.delta / (1.0 + jnp.exp(budget.epsilon))
    mu = largest_gdp(Budget(budget.epsilon, budget.delta * (1.0 - share) * (1.0 - 1e-12))).mu
    if not bool((mu > 0) & (variation > 0)):
        raise ValueError(f"budget must have delta > 0 and a finite noise, got {budget}")
    return mu, variation


def _strength(penalty: L2 | None) -> Reals:
    strength = jnp.zeros(()) if penalty is None else penalty.strength
    if strength.ndim != 0:
        raise ValueError(f"penalty.strength must be one number, got shape {strength.shape}")
    return strength


def _chain(
    temperature: Reals, curvature: Reals, bound: Reals, dimension: int, variation: Reals
) -> tuple[Reals, jax.Array, jax.Array]:
    """eta, the number of steps, and the refinements of the proposal's centre in each step."""
    convexity, smoothness = temperature * curvature, 0.25 * bound**2
    # f is below its tangent plus a form of trace <= L in x x^T / 4: a step of any dimension is
    # accepted with probability exp(-k L eta / 2) from the exact centre.
    eta = 0.5 / (temperature * smoothness)
    eta = checks.noise_scale("step of the chain for this row_bound and radius", eta)
    # The proposal's noise is the least that the chain draws.
    checks.noise_scale("variance for this row_bound and penalty", 1.0 / (1.0 / eta + convexity))
    start = bound / curvature + jnp.sqrt(dimension / convexity)
    needed = _steps_needed(start, variation, eta, convexity)
    # The centre begins within G / (2 L) of its fixed point and halves that each time: until it
    # costs a tenth in the exponent of the acceptance, whose rest is at most 1/4.
    refinements = jnp.log(temperature * bound**2 / (0.8 * smoothness)) / jnp.log(4.0)
    return (
        eta,
        1 + jnp.ceil(jnp.maximum(needed, 1.0)).astype(jnp.int64),
        jnp.ceil(jnp.maximum(refinements, 1.0)).astype(jnp.int64),
    )


def _steps_needed(start: Reals, variation: Reals, eta: Reals, convexity: Reals) -> Reals:
    """Steps until a chain from this distance is within `variation` of its limit."""
    # No square in the logarithm: it may underflow.
    squared = 2.0 * (jnp.log(start) - jnp.log(variation)) - jnp.log(4.0 * eta)
    needed = squared / (2.0 * log1p(convexity * eta))
    if not bool(needed < _MOST_STEPS):
        raise ValueError(
            f"row_bound times radius must be smaller, or penalty larger: the chain needs "
            f"{float(needed):.3g} steps, and takes at most {_MOST_STEPS:g}"
        )
    return needed
