"""Differentially private coordinate descent (Mangold, Bellet, Salmon & Tommasi, ICML 2022).

`plan` decides everything that privacy depends on, before a record is read: the sequence of
coordinates, steps, thresholds and noise scales, calibrated to the visits that the sequence makes.
`run` follows a plan: theta_j <- prox(theta_j - step_j (clipped mean gradient_j + noise_j)).
"""

import warnings
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp import _check
from jaxdp._numeric.bracket import last_feasible
from jaxdp._numeric.elementary import round_up
from jaxdp._pytree import pytree, static
from jaxdp._types import Key, RealLike, Reals, Vector
from jaxdp.allocate import allocation_shape
from jaxdp.guarantee.base import Budget, excess, rounding_slack
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.laplace_sum import log_delta_of_laplaces
from jaxdp.noise.base import exp_up
from jaxdp.problems import L2, Penalty, Problem, Smoothness

ORDERS = ("permutation", "cyclic", "iid")
ALLOCATIONS = ("spr", "inid", "weighted", "iid")
NOISES = ("gaussian", "laplace")
ITERATES = ("last", "average")
_REPLACED = {"replace_one": 2.0, "add_remove": 1.0}


@final
@pytree
class Plan:
    """A data-independent schedule and what it guarantees. Make it with `plan`."""

    sequence: jax.Array  # (passes, updates a pass), the coordinate of each update
    steps: Vector
    clip: Vector  # bound on each record's partial derivative
    sensitivities: Vector  # of the clipped mean gradient, between neighbours
    scales: Vector  # of the noise on it
    records: int | None = static()  # that the sensitivities hold for; None without noise
    noise: str = static()
    iterate: str = static()
    relation: str = static()

    @property
    def visits(self) -> Vector:
        """How often the sequence visits each coordinate."""
        return jnp.zeros_like(self.steps).at[self.sequence.ravel()].add(1.0)

    @property
    def ratios(self) -> Vector:
        """sensitivity / scale of each update; infinite without noise."""
        return self.sensitivities / self.scales

    @property
    def rho(self) -> Reals:
        """sum_k sensitivity_k^2 / (2 scale_k^2) over the updates made: zCDP where Gaussian."""
        return 0.5 * jnp.sum(self.visits * self.ratios**2)

    @property
    def shares(self) -> Vector:
        """Each coordinate's share of `rho`."""
        return 0.5 * self.visits * self.ratios**2 / self.rho

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log delta of all updates together: exact GDP, or `log_delta_of_laplaces`."""
        if self.noise == "gaussian":
            return GDP(round_up(jnp.sqrt(2.0 * self.rho), 4)).log_delta(epsilon)
        epsilon = _check.real("epsilon", epsilon)
        shape = (*epsilon.shape, self.steps.shape[0])
        ratios, visits = (jnp.broadcast_to(a, shape) for a in (self.ratios, self.visits))
        return log_delta_of_laplaces(ratios, visits, epsilon)

    def delta(self, epsilon: RealLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))


class NotPrivateTrace(NamedTuple):
    """F after each pass, computed from the records without noise. NOT PRIVATE: never publish it."""

    objective: Reals


def plan(
    budget: Budget,
    *,
    smoothness: Smoothness | RealLike,
    clip: RealLike,
    records: int,
    passes: int,
    relation: str,
    step: RealLike = 1.0,
    order: str = "permutation",
    allocation: str = "spr",
    noise: str = "gaussian",
    iterate: str = "last",
    penalty: Penalty | None = None,
    key: Key | None = None,
) -> Plan:
    """A schedule of passes * p updates whose noise meets `budget` for the visits that it makes.

    smoothness: M_j, public or released (a bare array is taken as your word that it is public).
        Steps are step / M_j. Values computed from the records raise `ValueError`.
    clip: bound on each record's partial derivative: p values, or one number C for
        C_j = C sqrt(M_j / sum M) (Mangold et al., section 5).
    relation: "replace_one": the mean gradient moves by 2 C_j / n; "add_remove": by C_j / n, with
        `records` = n public and fixed in the mean. Required: it doubles the noise.
    order: "permutation" draws a fresh one each pass, "cyclic" goes in order, "iid" draws with
        replacement. The draw is made here, from `key`, independently of the data; the noise is
        calibrated to it, so no draw overspends, as noise for the expected visits may.
    allocation, with l_j the sensitivity: scale_j^2 proportional to l_j^2 ("spr", equal cost per
        update), l_j ("inid", least total variance), l_j sqrt(M_j + l2) ("weighted", least noise in
        the objective; l2 is that of `penalty`), 1 ("iid").
    noise: "gaussian" is accounted exactly (GDP), "laplace" by `log_delta_of_laplaces`.
    iterate: "last", or "average": each pass ends in the mean of its iterates.

    Choosing step, clip or passes by looking at results on the records is not covered by `budget`.
    """
    for name, value, choices in (
        ("relation", relation, tuple(_REPLACED)),
        ("order", order, ORDERS),
        ("allocation", allocation, ALLOCATIONS),
        ("noise", noise, NOISES),
        ("iterate", iterate, ITERATES),
    ):
        _check.one_of(name, value, choices)
    curvature = _public_values(smoothness)
    steps, thresholds = _steps_and_clip(curvature, step, clip)
    records = _positive_integer("records", records)
    sensitivities = _REPLACED[relation] * thresholds / records
    sequence = _sequence(order, _positive_integer("passes", passes), len(curvature), key)
    unit = jnp.ones_like(steps)
    names = records, noise, iterate, relation
    draft = Plan(sequence, steps, thresholds, sensitivities, unit, *names)
    shape = _scale_shape(allocation, sensitivities, curvature, penalty)
    calibrated = _gaussian_scales if noise == "gaussian" else _laplace_scales
    scales = round_up(shape * calibrated(draft, shape, budget), 8)
    return Plan(sequence, steps, thresholds, sensitivities, scales, *names)


def noiseless_plan(smoothness: Smoothness | RealLike, *, passes: int, step: RealLike = 1.0) -> Plan:
    """Cyclic passes without clipping or noise: NOT PRIVATE, for optima and tests only."""
    values = smoothness.values if isinstance(smoothness, Smoothness) else smoothness
    curvature = _check.positive("smoothness", values)
    unbounded = jnp.full_like(curvature, jnp.inf)
    sequence = _sequence("cyclic", _positive_integer("passes", passes), len(curvature), None)
    steps = _check.positive("step", step) / curvature
    silent = jnp.zeros_like(curvature)
    names = None, "gaussian", "last", "replace_one"
    return Plan(sequence, steps, unbounded, unbounded, silent, *names)


def run(
    problem: Problem, plan: Plan, key: Key, *, trace: bool = False
) -> Vector | tuple[Vector, NotPrivateTrace]:
    """theta, of shape (p,), started at 0; with `trace`, also F after each pass, NOT PRIVATE.

    Only theta is covered by the plan's guarantee. `key` draws the noise: use it once, keep it
    secret, and give the plan another. In float32 the mean of the clipped gradients is rounded,
    which, like the rounding of the noise, is outside the guarantee: experiment in float32, and
    take float64, the default of `glm`, for what must hold.

    Batches over keys, plans and problems by `jax.vmap`; on a CPU `jax.lax.map` over long
    chains is faster, since one chain's state stays in cache. Time is linear in passes * p * n.
    """
    _check.require_float64()
    if plan.steps.shape[-1] != problem.design.shape[-2]:
        raise ValueError(
            f"plan has {plan.steps.shape[-1]} coordinates, problem {problem.design.shape[-2]}"
        )
    if plan.records not in (None, problem.design.shape[-1]):
        raise ValueError(
            f"plan is for {plan.records} records, problem has {problem.design.shape[-1]}: its "
            "noise would not fit"
        )
    theta, objective = _run(problem, plan, key, trace)
    return theta if objective is None else (theta, NotPrivateTrace(objective))


@jax.jit(static_argnames="trace")
def _run(problem: Problem, plan: Plan, key: Key, trace: bool) -> tuple[Vector, Reals | None]:
    draw = jax.random.normal if plan.noise == "gaussian" else jax.random.laplace
    unit = draw(key, plan.sequence.shape, dtype=jnp.float64)
    dtype = problem.design.dtype
    # Rounding a threshold up to the data's precision would exceed the sensitivity.
    clip = jnp.nextafter(plan.clip.astype(dtype), jnp.zeros((), dtype))
    strength = jnp.broadcast_to(problem.penalty.strength, plan.steps.shape)

    def update(carry, inputs):
        theta, state, total = carry
        coordinate, noise = inputs
        row, bound, step = (a[coordinate] for a in (problem.design, clip, plan.steps))
        partial = jnp.clip(row * problem.slope(state), -bound, bound)
        gradient = jnp.mean(partial).astype(jnp.float64) + plan.scales[coordinate] * noise
        point = theta[coordinate] - step * gradient
        moved = problem.penalty.proximal(strength[coordinate], point, step)
        state = state + (moved - theta[coordinate]).astype(dtype) * row
        theta = theta.at[coordinate].set(moved)
        return (theta, state, total + theta), None

    def one_pass(carry, inputs):
        (theta, state, total), _ = lax.scan(update, (*carry, jnp.zeros_like(plan.steps)), inputs)
        if plan.iterate == "average":
            theta = total / plan.sequence.shape[1]
            state = problem.state(theta)
        return (theta, state), problem.objective_at(state, theta) if trace else None

    start = jnp.zeros_like(plan.steps), problem.offset
    (theta, _), objective = lax.scan(one_pass, start, (plan.sequence, unit))
    return theta, objective


def _public_values(smoothness: Smoothness | RealLike) -> Vector:
    if isinstance(smoothness, Smoothness) and smoothness.origin == "records":
        raise ValueError(
            "smoothness was computed from the records and would leak them: use "
            "bounded_smoothness, private_smoothness, or .as_public() if the values are public"
        )
    values = smoothness.values if isinstance(smoothness, Smoothness) else smoothness
    curvature = _check.positive("smoothness", values)
    if curvature.ndim != 1:
        raise ValueError(f"smoothness must have shape (p,), got {curvature.shape}")
    return curvature


def _steps_and_clip(curvature: Vector, step: RealLike, clip: RealLike) -> tuple[Vector, Vector]:
    step = _check.positive("step", step)
    if _check.is_concrete(step) and bool(jnp.any(step > 1.0)):
        warnings.warn(
            "step > 1 exceeds 1 / M_j: a pass may raise the objective, and the variance grows",
            stacklevel=3,
        )
    clip = _check.real("clip", clip, 0.0, float(jnp.finfo(jnp.float64).max), open_lower=True)
    if clip.ndim == 0:
        clip = clip * jnp.sqrt(curvature / jnp.sum(curvature))
    if clip.shape != curvature.shape:
        raise ValueError(f"clip must be a number or have shape {curvature.shape}, got {clip.shape}")
    return step / curvature, clip


def _sequence(order: str, passes: int, coordinates: int, key: Key | None) -> jax.Array:
    if order == "cyclic":
        return jnp.tile(jnp.arange(coordinates), (passes, 1))
    if key is None:
        raise ValueError(f"key must be given to draw the sequence of order {order!r}")
    if order == "iid":
        return jax.random.randint(key, (passes, coordinates), 0, coordinates)
    keys = jax.random.split(key, passes)
    return jax.vmap(lambda k: jax.random.permutation(k, coordinates))(keys)


def _scale_shape(
    allocation: str, sensitivities: Vector, curvature: Vector, penalty: Penalty | None
) -> Vector:
    """Scales up to a factor. Many small updates make any noise Gaussian-like: one rule serves."""
    method = "inid" if allocation == "weighted" else allocation
    weights = jnp.ones_like(curvature)
    if allocation == "weighted":
        added = penalty.strength if isinstance(penalty, L2) else 0.0
        weights = 1.0 / (curvature + added)
    return allocation_shape("gaussian", sensitivities, weights, jnp.asarray(2.0), method)


def _gaussian_scales(draft: Plan, shape: Vector, budget: Budget) -> Reals:
    spent = jnp.sqrt(jnp.sum(draft.visits * (draft.sensitivities / shape) ** 2))
    return spent / largest_gdp(budget).mu


def _laplace_scales(draft: Plan, shape: Vector, budget: Budget) -> Reals:
    relative = draft.sensitivities / shape
    epsilon, delta = jnp.broadcast_arrays(budget.epsilon, budget.delta)

    def residual(factor: Reals) -> Reals:
        log_delta = log_delta_of_laplaces(relative / factor, draft.visits, epsilon)
        return excess(log_delta, delta)

    zero = jnp.minimum(delta, 0.0)
    total = jnp.sum(draft.visits * relative)
    safe, unsafe = 1e15 * total + zero, 1e-15 * total + zero
    return last_feasible(residual, safe, unsafe, rounding_slack(delta))


def _positive_integer(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)
