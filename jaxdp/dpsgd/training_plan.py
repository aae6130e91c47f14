"""Thresholds and noise scales of every group of parameters, for the budget of all steps."""

from __future__ import annotations

import dataclasses
from typing import Any, Unpack, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import WITH_OR_WITHOUT, Relation
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals, Vector
from jaxdp._numeric.elementary import round_up
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.allocate import allocate
from jaxdp.design.calibrate import calibrate_from
from jaxdp.design.families import CONTINUOUS as FAMILIES
from jaxdp.design.families import MEMBERS, norm_of, scaled
from jaxdp.dpsgd.adaptive_clipping import checked_quantile, count_scale, gradient_factor
from jaxdp.dpsgd.arguments import with_names
from jaxdp.dpsgd.correlated_noise import coefficients, taking_turns
from jaxdp.dpsgd.phase import Phase, Schedule, Training, training_of
from jaxdp.dpsgd.queries import expected_factor, needs_no_noise
from jaxdp.dpsgd.statement import Statement, statement_of
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.mechanism import Mechanism
from jaxdp.sampling.base import Scheme
from jaxdp.solvers import lattice

# Arguments of `plan`.
ALLOCATIONS = ("inid", "spr", "iid")
GROUPS = ("layer", "leaf", "all")
# Least noise multiplier, that of a budget that needs no noise. chosen: sums stay on their lattice
_LEAST = 1e-2
# Delta of a pure budget over its sampling error. derived: `Drawn.epsilon` uses up to half of delta
# for the error, and rounding
_SHARE_OF_ERROR = 2.0 + 1e-9


@final
@in_float64
@pytree
class Plan:
    """Thresholds, noise scales and the guarantee of `steps` steps of DP-SGD; made by `plan`."""

    clips: Vector  # bound on the l2 norm of an example's gradient, one a group
    scales: Vector  # scale of the noise on each entry of the sum, one a group
    noise_multiplier: Reals  # noise of the worst one-dimensional release, at sensitivity 1
    sampling: Scheme
    expected_batch: Reals  # divisor of the noisy sum
    members: tuple[int, ...] = static(repr=False)  # the group of each leaf of the parameters
    sizes: tuple[int, ...] = static(repr=False)  # number of parameters d_g of each group
    shapes: tuple[tuple[int, ...], ...] = static(repr=False)  # of the leaves of the parameters
    dtypes: tuple[str, ...] = static(repr=False)  # of the leaves of the parameters
    steps: int = static()
    family: str = static()
    relation: Relation = static()
    group_size: int = static(default=1)
    release: str = static(default="lattice")
    delta: float = static(default=1e-6)  # of the budget, at which `statement` states epsilon
    clip_quantile: float | None = static(default=None)  # that thresholds follow; None: fixed
    column: tuple[float, ...] = static(default=(1.0,))  # of the matrix of correlated noise

    @property
    def guarantee(self) -> Drawn:
        """Guarantee of all steps together: their `PrivacyLoss`, and the sampling error."""
        return Drawn(self._loss(self.noise_multiplier), self.sampling_error)

    @property
    def sampling_error(self) -> Reals:
        """Total variation between the drawn noise and its distribution; 1 for floating point."""
        return lattice.sampling_error(self.steps * sum(self.drawn[1]), self.release)

    @property
    def drawn(self) -> tuple[Vector, tuple[int, ...]]:
        """Scales of the noise of a step and their numbers of entries, those of counts last."""
        if self.clip_quantile is None:
            return self.scales, self.sizes
        groups = len(self.sizes)
        scale = round_up(self.noise_multiplier * count_scale(self.family, groups), 8)
        return xp.append(self.scales, scale), (*self.sizes, groups)

    @property
    def column_norm(self) -> float:
        """Norm of a column of the matrix of correlated noise, 1 without it; rounded up."""
        return float(round_up(xp.asarray(sum(c**2 for c in self.column) ** 0.5), 4))

    def at(self, clips: Vector | tuple[()]) -> Plan:
        """The plan with other thresholds and scales in proportion; with () itself."""
        if isinstance(clips, tuple):
            return self
        scales = round_up(self.scales * (clips / self.clips), 8)
        return dataclasses.replace(self, clips=clips, scales=scales)

    def statement(self, delta: ArrayLike | None = None) -> Statement:
        """The privacy statement of all steps at `delta`, the plan's own by default.

        See `dp.dpsgd.statement`. A plan of a noise multiplier has a delta of 1e-6.
        """
        phase = Phase(self.noise_multiplier, sampling=self.sampling, steps=self.steps)
        kind = MEMBERS[self.family]
        noise = "noise" if kind.norm == 2 else f"{kind.__name__} noise"
        noise = f"correlated {noise}" if len(self.column) > 1 else noise
        noise = (
            noise if self.clip_quantile is None else f"{noise} (of gradients and counts together)"
        )
        training = training_of(
            None, {"phases": phase, "relation": self.relation, "group_size": self.group_size}
        )
        at = self.delta if delta is None else delta
        return statement_of(training, self.guarantee, at, noise)

    def _loss(self, noise_multiplier: Reals) -> PrivacyLoss:
        """The exact privacy loss of all steps."""
        mechanism = Mechanism(
            scaled(self.family, noise_multiplier),
            1.0,
            sampling=self.sampling,
            relation=self.relation,
            group_size=self.group_size,
        )
        return self.sampling.releases(xp.asarray(1.0 * self.steps)) * privacy_loss(mechanism)


@with_names
@in_float64
def plan(
    budget: BudgetLike | None,
    params: Any,
    *,
    clip: ArrayLike,
    noise_multiplier: ArrayLike | None = None,
    groups: Any = "layer",
    allocation: str = "inid",
    noise: str = "gaussian",
    release: str = "lattice",
    clip_quantile: float | None = None,
    bands: int = 1,
    **schedule: Unpack[Schedule],
) -> Plan:
    """Clipping thresholds and noise scales of DP-SGD for a budget or a noise multiplier.

    Args:
        budget: a `Budget` or (epsilon, delta) of all steps, epsilon in nats, which includes the
            sampling error of the noise; None with a noise multiplier. A budget that needs no noise,
            such as an infinite epsilon, gets a multiplier of 0.01.
        params: the parameters, or their shapes.
        clip: the norm C of all groups together, C / sqrt(groups) for each group; or one norm a
            group, in the order of the first appearance of their labels.
        noise_multiplier: noise over the clipping norm, instead of a budget.
        groups: "layer" (leaves that share all but the last key), "leaf", "all" (one group: global
            clipping), or a tree of labels like `params`.
        allocation: "inid" has the least total variance, s_g^2 ~ C_g / sqrt(d_g) for the Gaussian
            and s_g^3 ~ C_g / sqrt(d_g) for the Laplace; "spr" takes s_g ~ C_g, "iid" equal scales.
        noise: "gaussian" or "laplace".
        release: "lattice", or "float": noise whose last bits leak, for research.
        clip_quantile: in (0, 1); thresholds begin at `clip` and follow this quantile of norms.
        bands: the number of consecutive steps with correlated noise, which is smaller in sums of
            steps. The records form `bands` groups, which take turns; Poisson samples alone.
        schedule: as in `epsilon`, one concrete number each, without phases. dataset_size is
            required, roughly and public: the noisy sum is divided by the expected batch size.
            relation: "add_remove", "add", "remove" or "zero_out".

    Returns:
        A `Plan`. `ValueError` for a budget that no noise satisfies.
    Source: Muthukrishnan & Kalyani, section VI-C; Abadi et al., CCS 2016; He et al., ICLR 2023.

    >>> import jax.numpy as jnp
    >>> import jaxdp as dp
    >>> plan = dp.dpsgd.plan((1.0, 1e-5), {"w": jnp.zeros(2)}, clip=1.0, dataset_size=100,
    ...     batch_size=10, epochs=1)
    >>> print(f"{plan.noise_multiplier:.4f}")
    1.7406
    """
    if (budget is None) == (noise_multiplier is None):
        raise ValueError("give either budget or noise_multiplier, and None for the other")
    checks.one_of("allocation", allocation, ALLOCATIONS)
    training = _training_of(noise_multiplier, noise, dict(schedule))
    training = taking_turns(training, bands, noise)
    members, sizes = groups_of(params, groups)
    clips, leaves = clips_of(clip, len(sizes)), (members, sizes, *leaves_of(params))
    made = _uncalibrated(training, schedule.get("dataset_size"), clips, leaves, noise, release)
    known = checked_quantile(clip_quantile, bands), coefficients(bands, made.expected_batch)
    made = dataclasses.replace(made, clip_quantile=known[0], column=known[1])
    made = made if budget is None else _with_budget(as_budget(budget), made)
    return _with_scales(made, allocation)


def _training_of(
    noise_multiplier: ArrayLike | None, noise: str, options: dict[str, Any]
) -> Training:
    """A training of one phase, without a dataset_size that only divides the sums of a plan."""
    checks.one_of("noise", noise, FAMILIES)
    if options.get("phases") is not None:
        raise ValueError("phases must not be given: a plan has equal steps")
    if all(options.get(name) is None for name in ("batch_size", "batch_size_limit")):
        options.pop("dataset_size", None)
    training = training_of(1.0 if noise_multiplier is None else noise_multiplier, options)
    checks.one_of("relation", training.relation, WITH_OR_WITHOUT)
    return training


def _uncalibrated(
    training: Training, records: Any, clips: Vector, leaves: Any, family: str, release: str
) -> Plan:
    """The plan of a training of one phase, without scales."""
    records = checks.positive_integer("dataset_size", records)
    lattice.require(release, scaled(family, 1.0))
    (phase,), relation, group_size = training
    steps = checks.positive_integer("steps", phase.steps)
    rate = checks.real("sampling_prob", phase.sampling_prob, 0.0, 1.0, open_lower=True)
    arrays = clips, clips, phase.noise_multiplier, phase.sampling, records * rate
    members, sizes, shapes, dtypes = leaves
    return Plan(
        *arrays, members, sizes, shapes, dtypes, steps, family, relation, group_size, release
    )


def _unit_scales(clips: Vector, sizes: tuple[int, ...], allocation: str, noise: str) -> Vector:
    """Scales at multiplier 1."""
    counts = xp.array(sizes, dtype=xp.float64)
    norm = norm_of(noise)
    if norm == 2:
        shifts, level = clips, GDP(1.0)
    else:
        shifts, level = xp.sqrt(counts) * clips, PureDP(1.0)
    if allocation == "inid":
        return allocate(noise, shifts, level, weights=counts)
    shape = clips if allocation == "spr" else xp.ones_like(clips)
    relative = shifts / shape
    return round_up(shape * xp.linalg.norm(relative, norm), 8)


def _with_scales(plan: Plan, allocation: str) -> Plan:
    """The plan with scales for its noise multiplier."""
    unit_scales = _unit_scales(plan.clips, plan.sizes, allocation, plan.family) * plan.column_norm
    if plan.clip_quantile is not None:
        unit_scales = unit_scales * gradient_factor(plan.family)
    scales = round_up(plan.noise_multiplier * unit_scales, 12)
    scales = checks.noise_scale("scales for this clip and budget", scales)
    return dataclasses.replace(plan, scales=scales)


def _with_budget(budget: Budget, plan: Plan) -> Plan:
    """The plan with the least noise multiplier that satisfies the budget, and with its delta."""
    exact = left_for_exact(budget, plan.sampling_error)
    loss = plan._loss(xp.asarray(_LEAST))
    if bool((budget.delta >= 1.0) | needs_no_noise(exact, loss)):
        multiplier = xp.asarray(_LEAST)
        return dataclasses.replace(plan, noise_multiplier=multiplier, delta=float(budget.delta))
    # The central limit of Gaussian steps, which is close for other noise; a pure budget has none.
    phases = (Phase(1.0, sampling=plan.sampling, steps=plan.steps),)
    guess = None if float(exact.delta) == 0 else expected_factor(exact, phases)
    multiplier = calibrate_from(guess, plan._loss, exact, lower=_LEAST, upper=1e7)
    if not bool(xp.isfinite(multiplier)):
        raise ValueError(f"budget cannot be met by {plan.family} noise: it would be infinite")
    plan, delta = dataclasses.replace(plan, noise_multiplier=multiplier), float(budget.delta)
    if delta == 0:
        # That of the sampling error, at the epsilon of a pure budget.
        with_error = _SHARE_OF_ERROR * float(plan.guarantee.delta(budget.epsilon))
        delta = with_error if with_error < 1 else 0.0
    return dataclasses.replace(plan, delta=delta)


def require_floating(name: str, tree: Any) -> None:
    """`ValueError` for a leaf that a gradient cannot move."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not jnp.issubdtype(_dtype(leaf), jnp.floating):
            raise ValueError(
                f"{name}{jax.tree_util.keystr(path)} must contain floating-point numbers, got "
                f"{_dtype(leaf)}: convert it, or do not train it"
            )


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)


def leaves_of(params: Any) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Shapes and precisions of the parameters."""
    leaves = jax.tree.leaves(params)
    return tuple(map(np.shape, leaves)), tuple(str(jnp.dtype(_dtype(leaf))) for leaf in leaves)


def groups_of(params: Any, groups: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The group of each leaf, and the number of parameters of each group."""
    require_floating("params", params)
    paths, structure = jax.tree_util.tree_flatten_with_path(params)
    if not paths:
        raise ValueError("params must have at least one leaf")
    if isinstance(groups, str):
        checks.one_of("groups", groups, GROUPS)
        keep = {"layer": -1, "leaf": None, "all": 0}[groups]
        labels = [str(path[:keep]) for path, _ in paths]
    else:
        labels = jax.tree.leaves(groups)
        if jax.tree.structure(groups) != structure:
            raise ValueError("groups must be a tree of labels with the structure of params")
    order = list(dict.fromkeys(labels))
    members = tuple(order.index(label) for label in labels)
    sizes = [0] * len(order)
    for group, (_, leaf) in zip(members, paths, strict=True):
        sizes[group] += int(np.prod(np.shape(leaf)))
    return members, tuple(sizes)


def clips_of(clip: ArrayLike, groups: int) -> Vector:
    """The threshold of each group."""
    clips = checks.real("clip", clip, 0.0, 1e150, open_lower=True)
    if clips.ndim == 0:
        clips = xp.full(groups, clips / np.sqrt(groups))
    if clips.shape != (groups,):
        raise ValueError(f"clip must be one number, or one per group, {groups}, got {clips.shape}")
    return checks.noise_scale("clip of each group", clips)
