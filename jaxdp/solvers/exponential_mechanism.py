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
"""

from __future__ import annotations

from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp._numeric.elementary import log1p, round_up
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.noise.base import exp_up
from jaxdp.solvers.problems import L2, Problem

RELATIONS = ("replace_one", "add_remove")
# Each try is accepted with probability exp(-0.35) at least: 256 fail together once in 1e135.
_TRIES = 256
_CHAINS = 4
# Of a chain: no machine makes more, and an int64 holds them. chosen
_MOST_STEPS = 1e15


@final
@pytree
class Plan:
    """Temperature, regularisation and length of the chain, decided before a record is read.

    `exact` holds for a draw from the density itself. The chain's law is within `total_variation`
    of it, whatever the records, which adds (1 + e^epsilon) total_variation to delta: `log_delta`
    has both. Left out: rounding, that of the 64-bit noise included.
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

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log delta of the chain's last state: the exact draw's, and what the chain adds."""
        epsilon = checks.real("epsilon", epsilon)
        added = jnp.logaddexp(0.0, epsilon) + jnp.log(checks.guard(self.total_variation))
        return jnp.minimum(round_up(jnp.logaddexp(self.exact.log_delta(epsilon), added), -8), 0.0)

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))


class NotPrivateDiagnostics(NamedTuple):
    """Diagnostics of four chains, the released one first, over second halves. NOT PRIVATE."""

    r_hat: Vector  # (d,): of four means and variances; near 1 where the chains agree
    tries: Reals  # proposals per step; the plan expects less than 1.5
    objective: Reals  # (4,): F at the end, to compare with `Plan.excess_risk`


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

    With r = mu n / (2 G) the optimum is l + m = max(l, sqrt(2 d) / (r R)), k = r^2 (l + m): without
    a penalty the bound is 2 sqrt(2 d) G R / (mu n). Starting at 0, KL after N steps is at most W^2
    / (2 eta) (1 + k (l + m) eta)^(2 - 2 N), W = G / (l + m) + sqrt(d / (k (l + m))), and total
    variation the root of half of it. N grows with L / (l + m), hence with n. A chain of more than
    1e15 steps: `ValueError`.

    >>> import jaxdp as dp
    >>> plan = dp.solvers.exponential_mechanism.plan(
    ...     (1.0, 1e-5), dimension=2, records=100, radius=1.0, relation="replace_one")
    >>> print(f"{plan.excess_risk:.4f}")
    0.1492
    """
    budget = as_budget(budget)
    checks.one_of("relation", relation, RELATIONS)
    dimension = checks.positive_integer("dimension", dimension)
    records = checks.positive_integer("records", records)
    radius = checks.real("radius", radius, 0.0, 1e100, open_lower=True)
    bound = checks.real("row_bound", row_bound, 0.0, 1e100, open_lower=True)
    share = checks.real("approximation_share", approximation_share, 0.0, 0.5, open_lower=True)
    strength = jnp.zeros(()) if penalty is None else penalty.strength
    if strength.ndim != 0:
        raise ValueError(f"penalty.strength must be one number, got shape {strength.shape}")
    variation = share * budget.delta / (1.0 + jnp.exp(budget.epsilon))
    mu = largest_gdp(Budget(budget.epsilon, budget.delta * (1.0 - share) * (1.0 - 1e-12))).mu
    if not bool((mu > 0) & (variation > 0)):
        raise ValueError(f"budget must have delta > 0 and a finite noise, got {budget}")
    # Downwards, so that rounding never exceeds mu.
    replaced = 2.0 if relation == "replace_one" else 1.0
    root = mu * records / (replaced * bound) * (1.0 - 1e-14)
    curvature = jnp.maximum(strength, jnp.sqrt(2.0 * dimension) / (root * radius))
    temperature = root**2 * curvature
    convexity, smoothness = temperature * curvature, 0.25 * bound**2
    # f is below its tangent plus a form of trace <= L in x x^T / 4: a step of any dimension is
    # accepted with probability exp(-k L eta / 2) from the exact centre.
    eta = 0.5 / (temperature * smoothness)
    eta = checks.noise_scale("step of the chain for this row_bound and radius", eta)
    # Of a proposal, the least noise that the chain draws.
    checks.noise_scale("variance for this row_bound and penalty", 1.0 / (1.0 / eta + convexity))
    start = bound / curvature + jnp.sqrt(dimension / convexity)
    needed = _steps_needed(start, variation, eta, convexity)
    # The centre begins within G / (2 L) of its fixed point and halves that each time: until it
    # costs a tenth in the exponent of the acceptance, whose rest is at most 1/4.
    refinements = jnp.log(temperature * bound**2 / (0.8 * smoothness)) / jnp.log(4.0)
    regularisation = curvature - strength
    return Plan(
        temperature,
        strength,
        regularisation,
        bound,
        eta,
        1 + jnp.ceil(jnp.maximum(needed, 1.0)).astype(jnp.int64),
        jnp.ceil(jnp.maximum(refinements, 1.0)).astype(jnp.int64),
        variation,
        dimension / temperature + 0.5 * regularisation * radius**2,
        GDP(mu),
        dimension,
        records,
        relation,
    )


def _steps_needed(start: Reals, variation: Reals, eta: Reals, convexity: Reals) -> Reals:
    """Steps until a chain that begins so far away is within `variation` of its limit."""
    # No square in the logarithm: it may underflow.
    squared = 2.0 * (jnp.log(start) - jnp.log(variation)) - jnp.log(4.0 * eta)
    needed = squared / (2.0 * log1p(convexity * eta))
    if not bool(needed < _MOST_STEPS):
        raise ValueError(
            f"row_bound times radius must be smaller, or penalty larger: the chain needs "
            f"{float(needed):.3g} steps, and takes at most {_MOST_STEPS:g}"
        )
    return needed


def sample(
    problem: Problem, plan: Plan, key: Key, *, diagnostics: bool = False
) -> Vector | tuple[Vector, NotPrivateDiagnostics]:
    """The private model: the last state of the plan's chain, started at 0.

    Args:
        problem: logistic, made by `glm` with the plan's penalty; the squared loss is not Lipschitz.
            Rows longer than `row_bound` are shortened.
        plan: made by `exponential_mechanism.plan`.
        key: of everything that is drawn: use it once and keep it secret.
        diagnostics: run three more chains, which are not covered.

    Returns:
        theta, (d,); with `diagnostics` also `NotPrivateDiagnostics`. NaN where a step accepts none
        of 256 proposals: not once in 1e100 runs.

    Time is linear in steps * n * d. A problem that the plan was not made for: `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> solver, penalty = dp.solvers.exponential_mechanism, dp.L2(0.5)
    >>> problem = dp.glm([[0.5], [-0.5]], [1, 0], loss="logistic", penalty=penalty)
    >>> plan = solver.plan((1.0, 1e-5), dimension=1, records=2, radius=1.0, relation="replace_one",
    ...     penalty=penalty)
    >>> solver.sample(problem, plan, jax.random.key(0)).shape
    (1,)
    """
    checks.require_float64()
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
    keys = jax.random.split(key, _CHAINS if diagnostics else 1)
    ends, means, variances, tries, objective = _chains(problem.design, plan, keys)
    if not diagnostics:
        return ends[0]
    length = (plan.steps + 1) // 2
    between, within = length * jnp.var(means, axis=0, ddof=1), jnp.mean(variances, axis=0)
    r_hat = jnp.sqrt((length - 1.0) / length + between / (length * within))
    return ends[0], NotPrivateDiagnostics(r_hat, jnp.mean(tries), objective)


@jax.jit
def _chains(design: jax.Array, plan: Plan, keys: jax.Array) -> tuple[Reals, ...]:
    """Ends, means and variances of second halves, tries per step, F at the end; chains first."""
    rows = design.astype(jnp.float64)
    norms = jnp.linalg.norm(rows, axis=0)
    factors = jnp.where(norms > plan.row_bound, plan.row_bound / norms * (1.0 - 1e-14), 1.0)
    rows = rows * factors[None]
    curvature = plan.strength + plan.regularisation
    precision = 1.0 / plan.step + plan.temperature * curvature

    def value(theta: Vector) -> Reals:
        return jnp.mean(jnp.logaddexp(0.0, -(theta @ rows)))

    def gradient(theta: Vector) -> Vector:
        return -(rows @ jax.nn.sigmoid(-(theta @ rows))) / plan.records

    def one_step(index: jax.Array, carry: tuple) -> tuple:
        theta, key, tries, total, squares = carry
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
        x, accepted, count = lax.while_loop(rejected, attempt, start)
        theta = jnp.where(accepted, x, jnp.nan)
        late = jnp.where(index >= plan.steps // 2, theta, 0.0)
        return theta, key, tries + count, total + late, squares + late**2

    def chain(key: Key) -> tuple[Reals, ...]:
        zero = jnp.zeros(plan.dimension)
        start = zero, key, jnp.zeros((), dtype=jnp.int64), zero, zero
        theta, _, tries, total, squares = lax.fori_loop(0, plan.steps, one_step, start)
        length = plan.steps - plan.steps // 2
        mean = total / length
        variance = (squares - length * mean**2) / (length - 1.0)
        risk = value(theta) + 0.5 * plan.strength * jnp.sum(theta**2)
        return theta, mean, variance, tries / plan.steps, risk

    return jax.vmap(chain)(keys)
