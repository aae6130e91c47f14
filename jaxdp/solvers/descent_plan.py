"""Everything that privacy depends on, decided before a record is read."""

import warnings
from collections.abc import Callable
from typing import final

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp._pytree import pytree, static
from jaxdp._types import Key, RealLike, Reals, Vector
from jaxdp.allocate import allocation_shape
from jaxdp.guarantee.base import Budget, excess
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.noise.base import Noise, exp_up
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian
from jaxdp.noise.truncated_laplace import TruncatedLaplace
from jaxdp.privacy_loss import PrivacyLoss
from jaxdp.problems import L2, Penalty, Smoothness
from jaxdp.solvers.descent_accounting import (
    ACCOUNTING,
    checked_histogram,
    composed,
    least_factor,
)

ORDERS = ("permutation", "cyclic", "iid")
ALLOCATIONS = ("winid", "spr", "inid", "iid")
NOISES = ("gaussian", "laplace")
ITERATES = ("last", "average")
RELATIONS = {"replace_one": 2.0, "add_remove": 1.0}
_LOG_CONCAVE = (Gaussian, Laplace, FlippedHuber, OffsetGaussian, TruncatedLaplace, Histogram)

Schedule = Callable[[jax.Array], jax.Array]


@final
@pytree
class Plan:
    """A data-independent schedule and what it guarantees. Make it with `plan`."""

    sequence: jax.Array  # (passes, updates a pass), the coordinate of each update
    steps: Vector  # step / M_j
    pace: Reals  # (passes,), by which a pass multiplies the steps
    clip: Vector  # bound on each record's partial derivative
    sensitivities: Vector  # of the clipped mean gradient, between neighbours
    scales: Vector  # by which the noise is multiplied
    noise: Noise
    spent: PureDP | None  # before the first update, on the smoothness
    records: int | None = static()  # that the sensitivities hold for; None without noise
    iterate: str = static()
    relation: str = static()
    accounting: str = static()

    @property
    def visits(self) -> Vector:
        """How often the sequence visits each coordinate."""
        return jnp.zeros_like(self.steps).at[self.sequence.ravel()].add(1.0)

    @property
    def ratios(self) -> Vector:
        """sensitivity / scale of each coordinate's updates; infinite without noise."""
        return self.sensitivities / self.scales

    @property
    def rho(self) -> Reals:
        """sum_k sensitivity_k^2 / (2 scale_k^2) over the updates made: zCDP where Gaussian."""
        return 0.5 * jnp.sum(self.visits * self.ratios**2)

    @property
    def shares(self) -> Vector:
        """Each coordinate's share of `rho`."""
        return 0.5 * self.visits * self.ratios**2 / self.rho

    @property
    def guarantee(self) -> GDP | ZCDP | PrivacyLoss:
        """What all updates cost together, `spent` included; see `descent_accounting.composed`."""
        ratios = self.ratios
        if isinstance(self.noise, Histogram):
            assert self.noise.certificate is not None
            ratios = jnp.full_like(ratios, self.noise.certificate.sensitivity)
        return composed(self.noise, ratios, self.visits, self.spent, self.accounting)

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log delta of all updates together."""
        return self.guarantee.log_delta(epsilon)

    def delta(self, epsilon: RealLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))


def plan(
    budget: Budget,
    *,
    smoothness: Smoothness | RealLike,
    clip: RealLike,
    records: int | None,
    passes: int,
    relation: str,
    step: RealLike | Schedule = 1.0,
    order: str = "permutation",
    updates: int | None = None,
    allocation: str = "winid",
    noise: str | Noise = "gaussian",
    accounting: str = "exact",
    iterate: str = "last",
    penalty: Penalty | None = None,
    spent: PureDP | None = None,
    key: Key | None = None,
) -> Plan:
    """A schedule whose noise meets `budget` for the visits that it makes.

    smoothness: M_j, public or released (a bare array is taken as your word that it is public).
        Steps are step / M_j; `step` may be an optax schedule, a function of the pass from 0 on.
        Values computed from the records raise `ValueError`.
    spent: what `private_smoothness` cost. The noise is calibrated to both together.
    clip: bound on each record's partial derivative: p values, or one number C for
        C_j = C sqrt(M_j / sum M) (Mangold et al., section 5).
    relation: "replace_one": the mean gradient moves by 2 C_j / n; "add_remove": by C_j / n, with
        `records` = n public and fixed in the mean. Required: it doubles the noise. Where n is not
        public the mean is no sum, and neither holds.
    order: "permutation" draws a fresh one each pass, "cyclic" goes in order, "iid" draws with
        replacement; `updates` a pass (p unless given; a permutation's first ones). The draw is
        made here, from `key`, independently of the data; the noise is calibrated to it, so no
        draw overspends, as noise for the expected visits may.
    allocation, with l_j the sensitivity: scale_j^2 proportional to l_j sqrt(M_j + l2) ("winid",
        least noise in the objective; l2 is that of `penalty`), l_j^2 ("spr", Mangold et al.:
        equal cost per update), l_j ("inid", the i.n.i.d. paper: least total variance), 1 ("iid").
    noise: "gaussian", "laplace", or a log-concave noise that is scaled, as FlippedHuber(a, 1.0);
        or an optimised `Histogram`, which is not: it is laid over each update as it was made for
        its sensitivity, and must meet the budget as it is (see `update_budget`).
    accounting: "exact" (GDP for Gaussian noise, the privacy loss for others), or "zcdp".
    iterate: "last", or "average": each pass ends in the mean of its iterates.

    A budget that no noise meets raises `ValueError`; traced, it gets infinite noise. Choosing
    step, clip or passes by looking at results on the records is not covered by `budget`.
    """
    for name, value, choices in (
        ("relation", relation, tuple(RELATIONS)),
        ("order", order, ORDERS),
        ("allocation", allocation, ALLOCATIONS),
        ("accounting", accounting, ACCOUNTING),
        ("iterate", iterate, ITERATES),
    ):
        _check.one_of(name, value, choices)
    curvature = _public_values(smoothness)
    if records is None:
        raise ValueError(
            "records must be the public number of records: where n is private, the mean gradient "
            "is no sum, and no sensitivity holds"
        )
    records, passes = (
        _check.positive_integer("records", records),
        _check.positive_integer("passes", passes),
    )
    steps, pace = _steps(curvature, step, passes)
    thresholds = _thresholds(curvature, clip)
    sensitivities = sensitivities_of(thresholds, records, relation)
    sequence = _sequence(order, passes, len(curvature), updates, key)
    base = _noise(noise)
    shape = _scale_shape(allocation, sensitivities, curvature, penalty)

    def with_scales(scales: Vector) -> Plan:
        return Plan(
            sequence, steps, pace, thresholds, sensitivities, scales, base, spent,
            records, iterate, relation, accounting,
        )  # fmt: skip

    if isinstance(base, Histogram):
        made_for = checked_histogram(base, shape, sensitivities)
        found = with_scales(round_up(sensitivities / made_for, 8))
        if not bool(excess(found.log_delta(budget.epsilon), budget.delta) <= 0):
            raise ValueError(
                f"noise must keep {sequence.size} updates within the budget, got delta "
                f"{float(found.delta(budget.epsilon)):.3g} at epsilon {float(budget.epsilon):g}: "
                "make it for `update_budget`"
            )
        return found
    visits = with_scales(shape).visits
    relative = sensitivities / shape
    factor = least_factor(base, relative, visits, budget, spent, accounting)
    if _check.is_concrete(factor) and not bool(jnp.all(jnp.isfinite(factor))):
        raise ValueError(
            f"budget must be one that {type(base).__name__} noise can meet"
            f"{' beside what was spent' if spent is not None else ''}, got epsilon "
            f"{budget.epsilon}, delta {budget.delta}"
        )
    return with_scales(round_up(shape * factor, 8))


def noiseless_plan(smoothness: Smoothness | RealLike, *, passes: int, step: RealLike = 1.0) -> Plan:
    """Cyclic passes without clipping or noise: NOT PRIVATE, for optima and tests only."""
    values = smoothness.values if isinstance(smoothness, Smoothness) else smoothness
    curvature = _check.positive("smoothness", values)
    unbounded = jnp.full_like(curvature, jnp.inf)
    passes = _check.positive_integer("passes", passes)
    sequence = _sequence("cyclic", passes, len(curvature), None, None)
    return Plan(
        sequence, _check.positive("step", step) / curvature, jnp.ones(passes), unbounded,
        unbounded, jnp.zeros_like(curvature), Gaussian(1.0), None,
        None, "last", "replace_one", "exact",
    )  # fmt: skip


def sensitivities_of(clip: Vector, records: int, relation: str) -> Vector:
    """Of the mean of whole numbers of units, whose product with the unit is rounded in float64."""
    return RELATIONS[relation] * clip / records * (1.0 + 2.0 * records * ULP)


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


def _steps(curvature: Vector, step: RealLike | Schedule, passes: int) -> tuple[Vector, Reals]:
    pace = jnp.ones(passes)
    if callable(step):
        values = jax.vmap(step)(jnp.arange(passes))
        pace, step = _check.positive("step", jnp.broadcast_to(values, (passes,))), 1.0
    step = _check.positive("step", step)
    largest = jnp.max(pace) * step
    if _check.is_concrete(largest) and bool(jnp.any(largest > 1.0)):
        warnings.warn(
            "step > 1 exceeds 1 / M_j: a pass may raise the objective, and the variance grows",
            stacklevel=3,
        )
    return step / curvature, pace


def _thresholds(curvature: Vector, clip: RealLike) -> Vector:
    clip = _check.real("clip", clip, 0.0, float(jnp.finfo(jnp.float64).max), open_lower=True)
    if clip.ndim == 0:
        clip = clip * jnp.sqrt(curvature / jnp.sum(curvature))
    if clip.shape != curvature.shape:
        raise ValueError(f"clip must be a number or have shape {curvature.shape}, got {clip.shape}")
    return clip


def _sequence(
    order: str, passes: int, coordinates: int, updates: int | None, key: Key | None
) -> jax.Array:
    updates = coordinates if updates is None else _check.positive_integer("updates", updates)
    if order == "cyclic":
        return (jnp.arange(passes * updates) % coordinates).reshape(passes, updates)
    if key is None:
        raise ValueError(f"key must be given to draw the sequence of order {order!r}")
    if order == "iid":
        return jax.random.randint(key, (passes, updates), 0, coordinates)
    if updates > coordinates:
        raise ValueError(f"updates must be at most {coordinates} in a permutation, got {updates}")
    keys = jax.random.split(key, passes)
    return jax.vmap(lambda k: jax.random.permutation(k, coordinates))(keys)[:, :updates]


def _noise(noise: str | Noise) -> Noise:
    if isinstance(noise, str):
        _check.one_of("noise", noise, NOISES)
        return Gaussian(1.0) if noise == "gaussian" else Laplace(1.0)
    if not isinstance(noise, _LOG_CONCAVE):
        raise ValueError(
            "noise must be a name, a log-concave noise on the reals (its largest shift is its "
            f"worst) or a Histogram, got {type(noise).__name__}"
        )
    if any(jnp.ndim(leaf) for leaf in jax.tree.leaves(noise)):
        raise ValueError("noise must have scalar parameters: the plan scales it")
    return noise


def _scale_shape(
    allocation: str, sensitivities: Vector, curvature: Vector, penalty: Penalty | None
) -> Vector:
    """Scales up to a factor. Many small updates make any noise Gaussian-like: one rule serves."""
    method = "inid" if allocation == "winid" else allocation
    weights = jnp.ones_like(curvature)
    if allocation == "winid":
        added = penalty.strength if isinstance(penalty, L2) else 0.0
        weights = 1.0 / (curvature + added)
    return allocation_shape("gaussian", sensitivities, weights, jnp.asarray(2.0), method)
