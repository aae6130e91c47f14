"""Everything that privacy depends on, decided before a record is read.

relation: replacing a record moves the mean gradient by 2 C_j / n, adding or removing one by C_j / n
    with n public and fixed in the mean. Neither holds if n is not public.
clip: one number C stands for C_j = C sqrt(M_j / sum M) (Mangold et al., section 5).
order: the sequence is drawn from the key, independently of the data ("greedy": see there), and the
    noise is calibrated to its visits.
allocation, with l_j the sensitivity: scale_j^2 proportional to l_j sqrt(M_j + l2) ("winid", least
    noise in the objective; l2 belongs to the penalty), l_j^2 ("spr", Mangold et al.: equal cost per
    update), l_j ("inid", the i.n.i.d. paper: least total variance), 1 ("iid").
noise: a log-concave one, which is scaled, as FlippedHuber(a, 1.0).

Choosing step, clip or passes by looking at results on the records is not covered by the budget.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import chacha, checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import checked_key, is_known, key_for, words_of
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.allocate import allocation_shape
from jaxdp.design.calibrate import calibrate
from jaxdp.design.families import CONTINUOUS as NOISES
from jaxdp.design.families import scaled
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.drawn import Drawn, as_drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.released import require_drawable
from jaxdp.solvers import lattice
from jaxdp.solvers.coordinate_descent.greedy import GreedyPlan, planned
from jaxdp.solvers.penalties import Penalty
from jaxdp.solvers.problems import Smoothness

# What `plan` takes; see there.
ORDERS = ("permutation", "cyclic", "greedy")
ALLOCATIONS = ("winid", "spr", "inid", "iid")

# Random words of a turn. chosen: few turns sort the coordinates of a plan
_WORDS = 1024

Schedule = Callable[[jax.Array], jax.Array]
# Before the first update: on scales or smoothness, by Laplace or by Gaussian noise.
Spent = PureDP | GDP


@final
@in_float64
@pytree
class Plan:
    """A data-independent schedule and its guarantee, made by `plan`."""

    sequence: jax.Array  # (passes, updates a pass), the coordinate of each update
    steps: Vector  # step / M_j
    pace: Reals  # (passes,), a factor of the steps
    clip: Vector  # bound on each record's partial derivative
    sensitivities: Vector  # of the clipped mean gradient, between neighbours
    scales: Vector  # a factor of the noise
    noise: Noise
    spent: Drawn | None  # before the first update, on the smoothness
    records: int | None = static()  # that the sensitivities hold for; None without noise
    relation: str = static()
    release: str = static(default="lattice")

    @property
    def sampling_error(self) -> Reals:
        """Sampling error in total variation, that for `spent` included; 1: floating point."""
        before = 0.0 if self.spent is None else self.spent.sampling_error
        return before + lattice.sampling_error(self.sequence.size, self.release)

    @property
    def visits(self) -> Vector:
        """Number of times that the sequence visits each coordinate."""
        if checks.is_concrete(self.sequence):  # on the host: each number would be compiled
            counts: Any = np.bincount(np.ravel(self.sequence), minlength=self.steps.shape[-1])
            return counts.astype(np.float64)
        return jnp.zeros_like(self.steps).at[self.sequence.ravel()].add(1.0)

    @property
    def ratios(self) -> Vector:
        """sensitivity / scale of each coordinate's updates; infinite without noise."""
        return self.sensitivities / self.scales

    @property
    def rho(self) -> Reals:
        """sum_k sensitivity_k^2 / (2 scale_k^2) over the updates made: zCDP where Gaussian."""
        return 0.5 * xp.sum(self.visits * self.ratios**2)

    @property
    def guarantee(self) -> Drawn:
        """Guarantee of all updates and `spent`, see `composed`, as sampled."""
        before = None if self.spent is None else self.spent.exact
        exact = composed(self.noise, self.ratios, self.visits, before)
        return Drawn(exact, self.sampling_error)


@in_float64
def plan(
    budget: BudgetLike,
    *,
    smoothness: Smoothness | ArrayLike,
    clip: ArrayLike,
    records: int,
    passes: int,
    relation: str,
    step: ArrayLike | Schedule = 1.0,
    order: str = "permutation",
    updates: int | None = None,
    allocation: str = "winid",
    noise: str | Noise = "gaussian",
    penalty: Penalty | None = None,
    spent: Drawn | Spent | None = None,
    key: Key | None = None,
    release: str = "lattice",
) -> Plan | GreedyPlan:
    """The schedule of a private coordinate descent, with noise that keeps a budget.

    Args:
        budget: a `Budget` or (epsilon, delta) of the run, epsilon in nats, with the sampling error.
        smoothness: M_j, (p,), public (a bare array is your word for it) or released.
        clip: bound on each record's partial derivative: C_j, (p,), or C, see the module.
        records, passes: their numbers; the number n of records is public and fixed.
        updates: of a pass of greedy descent, p if None; p otherwise.
        relation: what neighbours differ in, "replace_one" or "add_remove".
        step: steps are step / M_j; a number, or a function of the pass, as optax schedules are.
        order: "permutation", "cyclic" or "greedy".
        allocation: of the noise, "winid", "spr", "inid" or "iid"; "winid" uses `penalty`.
        noise: "gaussian", "laplace" or a log-concave noise, which is scaled.
        penalty: the problem's.
        spent: the cost of what was released before, as of the smoothness: a part of the budget.
        key: of the order, which is drawn here.
        release: "lattice", or "float": noise whose last bits leak, for research.

    Returns:
        A `Plan` or `GreedyPlan`. Unmet budgets and smoothness of the records raise `ValueError`.

    >>> import jaxdp as dp
    >>> plan = dp.solvers.coordinate_descent.plan((1.0, 1e-5), smoothness=[1.0, 4.0], clip=1.0,
    ...     records=100, passes=2, relation="replace_one", order="cyclic")
    >>> print(plan.scales.round(4))
    [0.0667 0.1335]
    """
    budget = as_budget(budget)
    records = checks.positive_integer("records", records)
    passes = checks.positive_integer("passes", passes)
    curvature = public_values(smoothness)
    steps, pace = steps_of(curvature, step, passes)
    clips = _clips(curvature, clip, records, relation)
    before, kept = spent and as_drawn(spent), (records, relation, release)
    if order == "greedy":
        if noise != "gaussian" or callable(step):
            raise ValueError("order 'greedy' takes Gaussian noise and one step")
        each = steps.size if updates is None else checks.positive_integer("updates", updates)
        return planned(budget, steps, clips, passes * each, before, kept)
    sequence = sequence_of(order, passes, len(curvature), key)
    base, shape = noise_of(noise, release), scale_shape(allocation, clips[1], curvature, penalty)
    return _calibrated(Plan(sequence, steps, pace, *clips, shape, base, before, *kept), budget)


def _clips(
    curvature: Vector, clip: ArrayLike, records: int, relation: str
) -> tuple[Vector, Vector]:
    """C_j, as given or C sqrt(M_j / sum M), and the sensitivities that follow from them."""
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    clip = checks.real("clip", clip, 0.0, float(np.finfo(np.float64).max), open_lower=True)
    if clip.ndim == 0:
        clip = clip * xp.sqrt(curvature / xp.sum(curvature))
    if clip.shape != curvature.shape:
        raise ValueError(f"clip must be a number or have shape {curvature.shape}, got {clip.shape}")
    clip = checks.noise_scale("clip of each coordinate", clip)
    # A mean of whole numbers of units, whose product with the unit is rounded in float64.
    return clip, shift_factor(relation) * clip / records * (1.0 + 2.0 * records * ULP)


def _calibrated(shaped: Plan, budget: Budget) -> Plan:
    """The plan, whose scales are known up to a factor, with the least that keeps the budget."""
    budget = left_for_exact(budget, shaped.sampling_error)
    base, shape, sensitivities = shaped.noise, shaped.scales, shaped.sensitivities
    ratios, spent = sensitivities / shape, None if shaped.spent is None else shaped.spent.exact
    factor = least_factor(base, ratios, shaped.visits, budget, spent)
    if checks.is_concrete(factor) and not bool(xp.all(xp.isfinite(factor))):
        raise ValueError(
            f"budget must be one that {type(base).__name__} noise can meet"
            f"{' beside the spent budget' if spent is not None else ''}, got epsilon "
            f"{budget.epsilon}, delta {budget.delta}"
        )
    scales = round_up(shape * factor, 8)
    scales = checks.noise_scale("scales of the noise for this clip", scales)
    return dataclasses.replace(shaped, scales=scales)


@in_float64
def noiseless_plan(smoothness: Smoothness | ArrayLike, *, passes: int) -> Plan:
    """Cyclic passes without clipping or noise: NOT PRIVATE, for optima and tests only.

    Args:
        smoothness: M_j, (p,), of any origin.
        passes: number of passes, with steps 1 / M_j.

    Returns:
        A `Plan` with scales of 0 and thresholds of infinity.

    >>> import jaxdp as dp
    >>> print(dp.solvers.coordinate_descent.noiseless_plan([1.0, 4.0], passes=2).steps)
    [1.   0.25]
    """
    values = smoothness.values if isinstance(smoothness, Smoothness) else smoothness
    curvature = checks.positive("smoothness", values)
    unbounded = xp.full_like(curvature, xp.inf)
    passes = checks.positive_integer("passes", passes)
    sequence = sequence_of("cyclic", passes, len(curvature), None)
    noise = xp.zeros_like(curvature), Gaussian(1.0)
    return Plan(
        sequence,
        1.0 / curvature,
        xp.ones(passes),
        unbounded,
        unbounded,
        *noise,
        None,
        None,
        "replace_one",
    )


def public_values(smoothness: Smoothness | ArrayLike) -> Vector:
    """M_j, unless it was computed from the records."""
    if isinstance(smoothness, Smoothness) and smoothness.origin == "records":
        raise ValueError(
            "smoothness was computed from the records and would leak them: use "
            "bounded_smoothness, or .as_public() if the values are public"
        )
    values = smoothness.values if isinstance(smoothness, Smoothness) else smoothness
    curvature = checks.positive("smoothness", values)
    if curvature.ndim != 1:
        raise ValueError(f"smoothness must have shape (p,), got {curvature.shape}")
    return curvature


def steps_of(curvature: Vector, step: ArrayLike | Schedule, passes: int) -> tuple[Vector, Reals]:
    """step / M_j, and what each pass multiplies it with."""
    pace = xp.ones(passes)
    if callable(step):
        indices: Any = np.arange(passes)
        values = [step(index) for index in indices]
        pace, step = checks.positive("step", xp.stack(values)), 1.0
    step = checks.positive("step", step)
    largest = xp.max(pace) * step
    if checks.is_concrete(largest) and bool(np.any(np.asarray(largest) > 1.0)):
        warnings.warn(
            "step > 1 exceeds 1 / M_j: a pass may raise the objective, and the variance grows",
            stacklevel=3,
        )
    return step / curvature, pace


def sequence_of(order: str, passes: int, coordinates: int, key: Key | None) -> Any:
    """The coordinate of each update, (passes, coordinates)."""
    checks.one_of("order", order, ORDERS)
    if order == "cyclic":
        return np.tile(np.arange(coordinates), (passes, 1))
    if key is None:
        raise ValueError(f"key must be given to sample the sequence of order {order!r}")
    words = _words(checked_key(key), passes * coordinates).reshape(passes, coordinates)
    # A stable sort: equal words, if any, make the same order by either library.
    return xp.argsort(words, axis=1, stable=True)


@jax.jit
def _part(key: Key, turn: jax.Array) -> jax.Array:
    """Random words of one turn."""
    return jax.random.bits(jax.random.fold_in(key_for("order", key), turn), (_WORDS,), jnp.uint64)


def _words(key: Key, count: int) -> Any:
    """Random words that order the coordinates, by NumPy or by one program for any `count`."""
    turns = np.arange(-(-count // _WORDS), dtype=np.uint32)
    if is_known(key):
        keys = chacha.child(words_of(key_for("order", key)), turns)
        return chacha.known_bits(keys, (_WORDS,)).ravel()[:count]
    if checks.is_concrete(key):
        return np.concatenate([np.asarray(_part(key, turn)) for turn in turns])[:count]
    return lax.map(lambda turn: _part(key, turn), turns).reshape(-1)[:count]


def noise_of(noise: str | Noise, release: str) -> Noise:
    """The noise that the scales multiply, one that can be drawn as `release` says."""
    if isinstance(noise, str):
        return noise_of(scaled(checks.one_of("noise", noise, NOISES), 1.0), release)
    require_drawable(noise, exact=True, reals=True)
    if not noise.log_concave:
        raise ValueError(
            f"noise must be log-concave, so that its largest shift is its worst, got "
            f"{type(noise).__name__}"
        )
    if any(jnp.ndim(leaf) for leaf in jax.tree.leaves(noise)):
        raise ValueError("noise must have scalar parameters: the plan scales it")
    lattice.require(release, noise)
    return noise


def scale_shape(
    allocation: str, sensitivities: Vector, curvature: Vector, penalty: Penalty | None
) -> Vector:
    """Scales up to a factor. Many small updates make any noise Gaussian-like: one rule serves."""
    method = (
        "inid" if checks.one_of("allocation", allocation, ALLOCATIONS) == "winid" else allocation
    )
    weights = xp.ones_like(curvature)
    if allocation == "winid":
        added = 0.0 if penalty is None else penalty.curvature
        weights = 1.0 / (curvature + added)
    return allocation_shape(2, sensitivities, weights, xp.asarray(2.0), method)


def composed(
    noise: Noise, ratios: Vector, visits: Vector, spent: Spent | None
) -> GDP | PrivacyLoss:
    """The guarantee of `visits[j]` updates of ratio sensitivity / scale = `ratios[j]`, and `spent`.

    Each update is a function of the records and of earlier updates, so that adaptive composition
    holds. Shifts below the largest are covered: the noise is log-concave. Returns a GDP for
    Gaussians and a `PrivacyLoss` otherwise. Shapes: ratios (..., p), visits (p,); the result is
    batched like ratios without its last axis.
    """
    if isinstance(noise, Gaussian):
        squares = xp.sum(visits * (ratios / noise.scale) ** 2, axis=-1)
        gdp = GDP(round_up(xp.sqrt(squares), 4 + visits.size))
        if spent is None or isinstance(spent, GDP):
            return gdp if spent is None else gdp + spent
        total = privacy_loss(gdp)
    else:
        total = (visits * privacy_loss(Mechanism(noise, ratios))).sum(axis=-1)
    return total if spent is None else total + privacy_loss(spent)


def least_factor(
    noise: Noise,
    relative: Vector,
    visits: Vector,
    budget: Budget,
    spent: Spent | None,
) -> Reals:
    """The least c with composed(noise, relative / c, ...) within the budget; inf where none is."""
    if isinstance(noise, Gaussian) and not isinstance(spent, PureDP):
        squares = xp.sum(visits * (relative / noise.scale) ** 2)
        # By more than the sum, and `composed`, round.
        mu, needed = largest_gdp(budget).mu, round_up(xp.sqrt(squares), 16 + visits.size)
        if spent is None:
            return needed / mu
        mu_left = mu * (1.0 - 8.0 * ULP) - spent.mu
        return needed / (xp.sqrt(xp.maximum(mu_left, 0.0)) * xp.sqrt(mu + spent.mu))
    safe, unsafe = _bracket(noise, relative, visits, budget)

    def total(factor: Reals) -> GDP | PrivacyLoss:
        return composed(noise, relative / factor[..., None], visits, spent)

    return calibrate(total, budget, lower=unsafe, upper=safe)


def _bracket(noise: Noise, relative: Vector, visits: Vector, budget: Budget) -> tuple[Reals, Reals]:
    """A c with which, by a Gaussian or a Laplace as wide, the budget is met; one far below."""
    unit = xp.sqrt(noise.variance())
    smallest = xp.sqrt(xp.sum(visits * relative**2)) / unit
    largest = xp.sum(visits * relative) / unit
    rates = largest_gdp(budget).mu, largest_laplace_ratio(budget)
    usable = [xp.where(rate > 0, rate, xp.inf) for rate in rates]
    safe = xp.maximum(1e4 * largest / xp.minimum(*usable), smallest)
    return safe, 1e-4 * smallest / xp.maximum(xp.maximum(*rates), 1.0)
