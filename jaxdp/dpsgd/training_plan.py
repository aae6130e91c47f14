"""Thresholds and noise scales of every group of parameters, for the budget of all steps."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.neighbours import WITH_OR_WITHOUT, Relation
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals, Vector
from jaxdp._numeric.elementary import round_up
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.allocate import allocate
from jaxdp.design.calibrate import calibrate
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.sampling.allocation import BallsInBins, RandomAllocation
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement
from jaxdp.solvers import lattice

# What `plan` takes; see there.
ALLOCATIONS = ("inid", "spr", "iid")
FAMILIES = ("gaussian", "laplace")
GROUPS = ("layer", "leaf", "all")


@final
@in_float64
@pytree
class Plan:
    """Thresholds, scales and what a run of `steps` steps guarantees. Make it with `plan`."""

    clips: Vector  # of the groups: bound on the l2 norm of an example's gradient
    scales: Vector  # of the noise on each entry of the sum
    multiplier: Reals  # of the worst one-dimensional release, at sensitivity 1
    sampling_prob: Reals
    expected_batch: Reals  # what the noisy sum is divided by
    members: tuple[int, ...] = static()  # the group of each leaf of the parameters
    sizes: tuple[int, ...] = static()  # d_g
    shapes: tuple[tuple[int, ...], ...] = static()  # of the leaves of the parameters
    dtypes: tuple[str, ...] = static()  # of the leaves of the parameters
    steps: int = static()
    family: str = static()
    relation: Relation = static()
    sampling: Scheme | None = None  # None: Poisson
    release: str = static(default="lattice")

    @property
    def privacy(self) -> Drawn:
        """Guarantee of all steps together: their `PrivacyLoss`, and what draws add."""
        sampling = self.sampling_prob, self.sampling
        exact = _composed(self.multiplier, sampling, self.steps, self.family, self.relation)
        return Drawn(exact, self.sampling_error)

    @property
    def sampling_error(self) -> Reals:
        """Total variation that draws are off by; 1: floating point."""
        return lattice.sampling_error(self.steps * sum(self.sizes), self.release)

    @property
    def total_variance(self) -> Reals:
        """Total variance of the noise on all entries of a sum."""
        unit = 1.0 if self.family == "gaussian" else 2.0
        return unit * jnp.sum(jnp.array(self.sizes) * self.scales**2)


@in_float64
def plan(
    budget: BudgetLike,
    params: Any,
    *,
    clip: ArrayLike,
    sampling_prob: ArrayLike | None = None,
    sampling: Scheme | None = None,
    steps: int,
    records: int,
    groups: Any = "layer",
    allocation: str = "inid",
    noise: str = "gaussian",
    relation: Relation = "add_remove",
    release: str = "lattice",
) -> Plan:
    """Clipping thresholds and noise scales of DP-SGD that keep a budget for all steps.

    Args:
        budget: a `Budget` or (epsilon, delta) of all steps, epsilon in nats, draws' error included.
        params: the parameters, or their shapes.
        clip: the norm C of all groups together, each getting C / sqrt(groups) (flat), or one a
            group, in the order in which their labels first appear.
        sampling_prob: with which every step takes each record, in (0, 1].
        sampling: instead, the scheme by which `train` draws batches; steps make whole epochs.
        steps: how many.
        records: public, roughly how many: the noisy sum is divided by records sampling_prob.
        groups: "layer" (leaves that share all but the last key), "leaf", "all" (one group: global
            clipping), or a tree of labels like `params`.
        allocation: "inid" is the least total variance, s_g^2 ~ C_g / sqrt(d_g) for the Gaussian and
            s_g^3 ~ C_g / sqrt(d_g) for the Laplace; "spr" takes s_g ~ C_g, "iid" equal scales.
        noise: "gaussian" or "laplace".
        relation: "add_remove", "add", "remove" or "zero_out".
        release: "lattice", or "float": noise whose last bits leak, for research.

    Returns:
        A `Plan`.

    Compiles for some seconds. A budget that no noise meets: `ValueError`.
    Source: Muthukrishnan & Kalyani, section VI-C; Abadi et al., CCS 2016; He et al., ICLR 2023.

    >>> import jax.numpy as jnp
    >>> import jaxdp as dp
    >>> plan = dp.dpsgd.plan((1.0, 1e-5), {"w": jnp.zeros(2)}, clip=1.0, sampling_prob=0.1,
    ...     steps=10, records=100)
    >>> print(f"{plan.multiplier:.4f}")
    1.7406
    """
    budget = as_budget(budget)
    _check_choices(allocation, noise, relation)
    lattice.require(release, noise_of(noise))
    members, sizes = _groups(params, groups)
    clips = _clips(clip, len(sizes))
    steps, records = (checks.positive_integer(*x) for x in (("steps", steps), ("records", records)))
    rate = _rate(sampling_prob, sampling, steps)
    budget = left_for_exact(budget, lattice.sampling_error(steps * sum(sizes), release))
    multiplier = _calibrated(budget, (rate, sampling), jnp.asarray(1.0 * steps), noise, relation)
    scales = round_up(multiplier * _unit_scales(clips, sizes, allocation, noise), 8)
    scales = checks.noise_scale("scales for this clip and budget", scales)
    values = clips, scales, multiplier, rate, records * rate, members, sizes, *_leaves(params)
    return Plan(*values, steps, noise, relation, sampling, release)


def _rate(sampling_prob: ArrayLike | None, sampling: Scheme | None, steps: int) -> Reals:
    """The share of the records that a batch holds on average, a truncated one before its cut."""
    if (sampling_prob is None) == (sampling is None):
        raise ValueError("give either sampling_prob or sampling")
    if isinstance(sampling, TruncatedPoisson):
        sampling_prob = sampling.sampling_prob
    elif isinstance(sampling, WithoutReplacement):
        sampling_prob = sampling.batch_size / sampling.dataset_size
    elif isinstance(sampling, RandomAllocation | BallsInBins):
        epochs = steps // sampling.steps
        fits = steps == epochs * sampling.steps
        if isinstance(sampling, BallsInBins):
            fits = fits and float(sampling.epochs) == epochs
        if not fits or (isinstance(sampling, RandomAllocation) and sampling.selected > 1):
            raise ValueError(
                f"steps must be all epochs of {sampling.steps} steps, one for each record, got "
                f"{steps}"
            )
        sampling_prob = 1.0 / sampling.steps
    elif sampling_prob is None:
        raise ValueError(f"sampling must be a scheme of dp.sampling, got {sampling!r}")
    return checks.real("sampling_prob", sampling_prob, 0.0, 1.0, open_lower=True)


def _check_choices(allocation: str, noise: str, relation: str) -> None:
    checks.one_of("allocation", allocation, ALLOCATIONS)
    checks.one_of("noise", noise, FAMILIES)
    checks.one_of("relation", relation, WITH_OR_WITHOUT)


def _clips(clip: ArrayLike, groups: int) -> Vector:
    """The threshold of each group."""
    clips = checks.real("clip", clip, 0.0, 1e150, open_lower=True)
    if clips.ndim == 0:
        clips = jnp.full(groups, clips / np.sqrt(groups))
    if clips.shape != (groups,):
        raise ValueError(f"clip must be a number or one a group, {groups}, got {clips.shape}")
    return checks.noise_scale("clip of each group", clips)


def require_floating(name: str, tree: Any) -> None:
    """`ValueError` for a leaf that a gradient cannot move."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not jnp.issubdtype(_dtype(leaf), jnp.floating):
            raise ValueError(
                f"{name}{jax.tree_util.keystr(path)} must be of floating-point numbers, got "
                f"{_dtype(leaf)}: convert it, or leave it out of what is trained"
            )


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)


def _leaves(params: Any) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Shapes and precisions of the parameters."""
    leaves = jax.tree.leaves(params)
    return tuple(map(np.shape, leaves)), tuple(str(jnp.dtype(_dtype(leaf))) for leaf in leaves)


def _groups(params: Any, groups: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The group of each leaf, and how many parameters each group has."""
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


def _unit_scales(clips: Vector, sizes: tuple[int, ...], allocation: str, noise: str) -> Vector:
    """Scales at multiplier 1."""
    counts = jnp.array(sizes, dtype=jnp.float64)
    if noise == "gaussian":
        shifts, level = clips, GDP(1.0)
    else:
        shifts, level = jnp.sqrt(counts) * clips, PureDP(1.0)
    if allocation == "inid":
        return allocate(noise, shifts, level, weights=counts)
    shape = clips if allocation == "spr" else jnp.ones_like(clips)
    relative = shifts / shape
    size = jnp.linalg.norm(relative) if noise == "gaussian" else jnp.sum(relative)
    return round_up(shape * size, 8)


def noise_of(family: str, scale: ArrayLike = 1.0) -> Gaussian | Laplace:
    """The noise of a family."""
    return Gaussian(scale) if family == "gaussian" else Laplace(scale)


def _composed(
    multiplier: Reals,
    drawn: tuple[Reals, Scheme | None],
    steps: ArrayLike,
    family: str,
    relation: Relation,
) -> PrivacyLoss:
    noise = noise_of(family, multiplier)
    prob, sampling = drawn
    if sampling is None:
        return steps * privacy_loss(Mechanism(noise, 1.0, prob, relation))
    once = privacy_loss(Mechanism(noise, 1.0, sampling=sampling, relation=relation))
    if isinstance(sampling, BallsInBins):
        return once
    if isinstance(sampling, RandomAllocation):
        return jnp.asarray(steps) / sampling.steps * once
    return steps * once


def _calibrated(
    budget: Budget,
    sampling: tuple[Reals, Scheme | None],
    steps: Reals,
    family: str,
    relation: Relation,
) -> Reals:
    def build(multiplier: Reals) -> PrivacyLoss:
        return _composed(multiplier, sampling, steps, family, relation)

    multiplier = calibrate(build, budget, lower=1e-2, upper=1e7)
    if not bool(jnp.isfinite(multiplier)):
        raise ValueError(f"budget cannot be met by {family} noise: it would be infinite")
    return multiplier
