"""The regularised exponential mechanism for logistic regression: one draw is the private model.

theta ~ exp(-k (f(theta) + (l + m) |theta|^2 / 2)), f the mean loss of n records, G-Lipschitz in
each record and L-smooth, l the strength of the problem's own L2 penalty. Replacing a record adds a
2 G k / n-Lipschitz function to a k (l + m)-strongly convex one, so the draw is
GDP(2 G sqrt(k) / (n sqrt(l + m))); with n public and fixed, adding or removing one costs half.
E F(theta) - min F over |theta| <= R is at most d/k + m R^2 / 2, F = f + l |theta|^2 / 2.
Source: Gopi, Lee & Liu, Private convex optimization via exponential mechanism, COLT 2022.

The draw is made by the proximal sampler: y ~ N(theta, eta I), then theta from the density
proportional to exp(-potential - |theta - y|^2 / (2 eta)), by rejection. That step is exact wherever
the proposal is centred: f lies above its tangent at any z, and the Gaussian under the tangent is
the proposal, accepted with probability exp(-k (f(x) - f(z) - f'(z) (x - z))).
Source: Lee, Shen & Tian, COLT 2021; its rate under a log-Sobolev inequality: Chen, Chewi, Salim &
Wibisono, Improved analysis for a proximal algorithm for sampling, COLT 2022.

With r = mu n / (2 G) the optimum is l + m = max(l, sqrt(2 d) / (r R)), k = r^2 (l + m): without
a penalty the bound is 2 sqrt(2 d) G R / (mu n). Starting at 0, KL after N steps is at most W^2
/ (2 eta) (1 + k (l + m) eta)^(2 - 2 N), W = G / (l + m) + sqrt(d / (k (l + m))), and total
variation the root of half of it. N grows with L / (l + m), hence with n.
"""

from __future__ import annotations

import dataclasses
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64, in_float64
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp._numeric.elementary import log1p
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.solvers.covariance import shortened
from jaxdp.solvers.penalties import L2
from jaxdp.solvers.problems import Problem, padded

# Share of delta for the distance of the chain from its limit. chosen: steps grow with its logarithm
_SHARE = 1e-3
# Most steps of a chain. chosen: no machine makes more, and an int64 holds them
_MOST_STEPS = 1e15
# Proposals of a step at most. derived: each is accepted with probability exp(-0.35) at least, so
# that 256 fail together once in 1e135
_TRIES = 256


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
    mu, variation = _split(budget)
    strength = jnp.zeros(()) if penalty is None else penalty.strength
    if strength.ndim != 0:
        raise ValueError(f"penalty.strength must be one number, got shape {strength.shape}")
    # Downwards, so that rounding never exceeds mu.
    root = mu * records / (shift_factor(relation) * bound) * (1.0 - 1e-14)
    curvature = jnp.maximum(strength, jnp.sqrt(2.0 * dimension) / (root * radius))
    temperature, regularisation = root**2 * curvature, curvature - strength
    chain = _chain(temperature, curvature, bound, dimension, variation)
    risk = dimension / temperature + 0.5 * regularisation * radius**2
    density = temperature, strength, regularisation
    return Plan(*density, bound, *chain, variation, risk, GDP(mu), dimension, records, relation)


def _split(budget: Budget) -> tuple[Reals, Reals]:
    """mu of the exact draw, and the total variation of the chain, that keep the budget together."""
    variation = _SHARE * budget.delta / (1.0 + jnp.exp(budget.epsilon))
    mu = largest_gdp(Budget(budget.epsilon, budget.delta * (1.0 - _SHARE) * (1.0 - 1e-12))).mu
    if not bool((mu > 0) & (variation > 0)):
        raise ValueError(f"budget must have delta > 0 and a finite noise, got {budget}")
    return mu, variation


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


@draws_in_float64
def sample(problem: Problem, plan: Plan, key: Key) -> Vector:
    """The private model: the last state of the plan's chain, started at 0.

    Args:
        problem: logistic, made by `glm` with the plan's penalty; the squared loss is not Lipschitz.
            Rows longer than `row_bound` are shortened.
        plan: made by `exponential_mechanism.plan`.
        key: of everything that is drawn: use it once and keep it secret.

    Returns:
        theta, (d,). NaN where a step accepts none of 256 proposals: not once in 1e100 runs.

    Time is linear in steps * n * d. A problem that the plan was not made for: `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> solver, penalty = dp.solvers.exponential_mechanism, dp.solvers.L2(0.5)
    >>> problem = dp.solvers.glm([[0.5], [-0.5]], [1, 0], loss="logistic", penalty=penalty)
    >>> plan = solver.plan((1.0, 1e-5), dimension=1, records=2, radius=1.0, relation="replace_one",
    ...     penalty=penalty)
    >>> solver.sample(problem, plan, jax.random.key(0)).shape
    (1,)
    """
    key = checked_key(key, problem, plan)
    if problem.loss != "logistic":
        raise ValueError(f"problem must be logistic, got {problem.loss!r}: not Lipschitz")
    if problem.design.shape != (plan.dimension, plan.records):
        raise ValueError(
            f"plan is for {plan.records} records of {plan.dimension} features, problem has "
            f"{problem.design.shape[::-1]}"
        )
    strength = problem.penalty.strength
    if not (isinstance(problem.penalty, L2) and np.array_equal(strength, plan.strength)):
        raise ValueError(f"problem.penalty must be the plan's, L2({plan.strength})")
    # Their number as an argument: in the plan each would be compiled.
    records, plan = np.int64(plan.records), dataclasses.replace(plan, records=0)
    return _end_of_chain(padded(problem).design, plan, records, jax.random.split(key, 1)[0])


@jax.jit
def _end_of_chain(design: jax.Array, plan: Plan, records: jax.Array, key: Key) -> Vector:
    """The end of a chain; the first `records` of `design` count."""
    rows = shortened(design.astype(jnp.float64).T, plan.row_bound).T
    is_record = jnp.arange(rows.shape[1]) < records
    curvature = plan.strength + plan.regularisation
    precision = 1.0 / plan.step + plan.temperature * curvature

    def value(theta: Vector) -> Reals:
        return jnp.mean(jnp.logaddexp(0.0, -(theta @ rows)), where=is_record)

    def gradient(theta: Vector) -> Vector:
        return -(rows @ jax.nn.sigmoid(-(theta @ rows))) / records

    def one_step(_: jax.Array, carry: tuple) -> tuple:
        theta, key = carry
        key, forward, proposals = jax.random.split(key, 3)
        noise = jax.random.normal(forward, theta.shape, dtype=jnp.float64)
        y = theta + jnp.sqrt(plan.step) * noise

        def centre(tangent: Vector) -> Vector:
            return (y / plan.step - plan.temperature * gradient(tangent)) / precision

        z = lax.fori_loop(0, plan.refinements, lambda _, z: centre(z), y / (plan.step * precision))
        middle, slope, low = centre(z), gradient(z), value(z)

        def attempt(state: tuple) -> tuple:
            _, _, count = state
            move, accept = jax.random.split(jax.random.fold_in(proposals, count))
            step = jax.random.normal(move, theta.shape, dtype=jnp.float64)
            x = middle + step / jnp.sqrt(precision)
            gap = plan.temperature * (value(x) - low - slope @ (x - z))
            return x, -jax.random.exponential(accept, dtype=jnp.float64) < -gap, count + 1

        def rejected(state: tuple) -> jax.Array:
            return ~state[1] & (state[2] < _TRIES)

        start = theta, jnp.zeros((), dtype=bool), jnp.zeros((), dtype=jnp.int64)
        x, accepted, _ = lax.while_loop(rejected, attempt, start)
        return jnp.where(accepted, x, jnp.nan), key

    start = jnp.zeros(plan.dimension), key
    return lax.fori_loop(0, plan.steps, one_step, start)[0]
