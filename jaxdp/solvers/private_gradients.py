"""DP-SGD with one clipping threshold and one noise scale a group of parameters, for optax.

Every step sees a Poisson sample. Each example's gradient is clipped to norm C_g in every group g of
d_g parameters, the clipped gradients are summed, each entry of group g gets noise of scale s_g:

    optimizer = optax.chain(clip_groups(plan), add_noise(plan, key), optax.sgd(0.5))

An example moves the whole sum, in units of the scales, by sum_g C_g^2 / s_g^2 = 1 / multiplier^2
(Gaussian) or, in l1, sum_g sqrt(d_g) C_g / s_g = 1 / multiplier (Laplace). What its one-dimensional
worst case costs, sampled, is accounted exactly, see `privacy_loss`; sampling an example or not is
one draw for all groups, so the worst case of the mixture is the mixture of the worst case.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdp._core import checks
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import fresh_key, key_for
from jaxdp._core.types import Key, RealLike, Reals, Vector
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.design.allocate import allocate
from jaxdp.design.calibrate import calibrate
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.mechanism import Mechanism, Relation
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.privacy_loss import PrivacyLoss, privacy_loss

ALLOCATIONS = ("inid", "spr", "iid")
FAMILIES = ("gaussian", "laplace")
GROUPS = ("layer", "leaf", "all")
RELATIONS = ("add_remove", "add", "remove")
# Of a clipped entry, beyond its threshold: 2^22 such entries add up exactly in float64.
_BITS = 31


@final
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

    @property
    def privacy(self) -> PrivacyLoss:
        """Of all steps together."""
        return _composed(
            self.multiplier, self.sampling_prob, self.steps, self.family, self.relation
        )

    @property
    def total_variance(self) -> Reals:
        """Of the noise on all entries of a sum."""
        unit = 1.0 if self.family == "gaussian" else 2.0
        return unit * jnp.sum(jnp.array(self.sizes) * self.scales**2)


def plan(
    budget: BudgetLike,
    params: Any,
    *,
    clip: RealLike,
    sampling_prob: RealLike,
    steps: int,
    records: int,
    groups: Any = "layer",
    allocation: str = "inid",
    noise: str = "gaussian",
    relation: Relation = "add_remove",
) -> Plan:
    """Noise for `steps` steps that together keep `budget`.

    params: the parameters, or their shapes. groups: "layer" (leaves that share all but the last
    key), "leaf", "all" (one group: global clipping), or a tree of labels like `params`.
    clip: the norm C of all groups together, each getting C / sqrt(groups) (flat), or one a group,
    in the order in which their labels first appear.
    allocation: "inid" is the least total variance, s_g^2 ~ C_g / sqrt(d_g) for the Gaussian and
    s_g^3 ~ C_g / sqrt(d_g) for the Laplace; "spr" takes s_g ~ C_g, "iid" equal scales.
    records: public, roughly how many there are: the noisy sum is divided by records sampling_prob.
    Calibrating compiles for some seconds, once a family.
    Source: Muthukrishnan & Kalyani, section VI-C; Abadi et al., CCS 2016; He et al., ICLR 2023.
    """
    budget = as_budget(budget)
    for name, value, choices in (
        ("allocation", allocation, ALLOCATIONS),
        ("noise", noise, FAMILIES),
        ("relation", relation, RELATIONS),
    ):
        checks.one_of(name, value, choices)
    members, sizes = _groups(params, groups)
    clips = checks.real("clip", clip, 0.0, 1e150, open_lower=True)
    if clips.ndim == 0:
        clips = jnp.full(len(sizes), clips / np.sqrt(len(sizes)))
    if clips.shape != (len(sizes),):
        raise ValueError(f"clip must be a number or one a group, {len(sizes)}, got {clips.shape}")
    clips = checks.noise_scale("clip of each group", clips)
    sampling_prob = checks.real("sampling_prob", sampling_prob, 0.0, 1.0, open_lower=True)
    steps = checks.positive_integer("steps", steps)
    records = checks.positive_integer("records", records)
    multiplier = _calibrated(budget, sampling_prob, jnp.asarray(1.0 * steps), noise, relation)
    if not bool(jnp.isfinite(multiplier)):
        raise ValueError(f"budget cannot be met by {noise} noise: it would be infinite")
    unit = _unit_scales(clips, sizes, allocation, noise)
    leaves = jax.tree.leaves(params)
    return Plan(
        clips,
        checks.noise_scale("scales for this clip and budget", round_up(multiplier * unit, 8)),
        multiplier,
        sampling_prob,
        records * sampling_prob,
        members,
        sizes,
        tuple(tuple(leaf.shape) for leaf in leaves),
        tuple(str(jnp.dtype(leaf.dtype)) for leaf in leaves),
        steps,
        noise,
        relation,
    )


def clip_groups(plan: Plan) -> optax.GradientTransformation:
    """Per-example gradients, leaves (examples, *shape of the parameter), to their clipped sum.

    Other shapes raise `ValueError`: without its axis of examples a batch's own gradient would pass
    as one example a row. A gradient that is not finite, or beyond 1e154 thresholds, counts as 0.
    Examples are masked by gradients of 0. The sum of several parts of a batch is that of the batch:
    clip the parts, add, then `add_noise`. Norms are those of float64, whatever the gradients'
    precision, and entries are cut towards 0 to multiples of 2^-30 of the threshold, so that sums
    are exact: one example moves the sum of up to 4e6 by no more than its own share, in any order.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        leaves, structure = jax.tree.flatten(updates)
        _require_shapes(leaves, plan, examples=True)
        squares = [jnp.zeros(leaves[0].shape[0]) for _ in plan.sizes]
        for leaf, group in zip(leaves, plan.members, strict=True):
            # Units of the threshold: no norm near it under- or overflows.
            flat = leaf.reshape(leaf.shape[0], -1).astype(jnp.float64) / plan.clips[group]
            squares[group] += jnp.sum(flat**2, axis=1)
        factors = []
        for square, size in zip(squares, plan.sizes, strict=True):
            # Less by more than the rounding of a sum of `size` squares, its root and quotients.
            margin = 1.0 - (size + 16.0) * ULP
            factor = jnp.minimum(1.0, margin / jnp.sqrt(square))
            factors.append(jnp.where(jnp.isfinite(square), factor, 0.0))
        units = jnp.ldexp(1.0, jnp.frexp(plan.clips)[1] - _BITS)
        sums = []
        for leaf, group in zip(leaves, plan.members, strict=True):
            rows = _rows(factors[group], leaf)
            clipped = jnp.where(rows > 0, leaf.astype(jnp.float64), 0.0) * rows
            whole = jnp.trunc(clipped / units[group])
            sums.append(jnp.sum(whole, axis=0) * units[group])
        return jax.tree.unflatten(structure, sums), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


class NoiseState(NamedTuple):
    """The key of the steps that are left, and how many were made."""

    key: Key
    made: jax.Array


def add_noise(plan: Plan, key: Key) -> optax.GradientTransformation:
    """A sum of clipped gradients to a noisy mean: (sum + noise) / expected batch.

    After the plan's last step it returns NaN: more would not be covered. The noise is drawn in
    float64 (in float32 a normal draw ends at 5.4 deviations, which can be seen); the mean is
    rounded to the parameters' precision. Use `key` for one run, and keep it secret.
    """

    def init(params: Any) -> NoiseState:
        del params
        return NoiseState(key_for("noise", key), jnp.zeros((), dtype=jnp.int64))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, NoiseState]:
        del params
        leaves, structure = jax.tree.flatten(updates)
        _require_shapes(leaves, plan, examples=False)
        following, now = jax.random.split(state.key)
        draw = jax.random.normal if plan.family == "gaussian" else jax.random.laplace
        left = jnp.where(state.made < plan.steps, 1.0, jnp.nan)
        noisy = []
        keys = jax.random.split(now, len(leaves))
        for leaf, group, dtype, each in zip(leaves, plan.members, plan.dtypes, keys, strict=True):
            total = leaf + plan.scales[group] * draw(each, leaf.shape, dtype=jnp.float64)
            noisy.append((left * total / plan.expected_batch).astype(dtype))
        return jax.tree.unflatten(structure, noisy), NoiseState(following, state.made + 1)

    return optax.GradientTransformation(init, update)


def poisson_batch(
    key: Key, records: int, sampling_prob: RealLike, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices and mask, (parts, size), of a sample that takes each record with `sampling_prob`.

    As many parts as the sample needs, at least one: no sample is cut. The mask is False where a
    part is filled up. Use the key once and keep it secret: who was sampled is not public.
    """
    size = checks.positive_integer("size", size)
    sampling_prob = checks.probability("sampling_prob", sampling_prob)
    uniform = jax.random.uniform(key_for("sample", key), (records,))
    taken = np.flatnonzero(np.asarray(uniform < sampling_prob))
    parts = max(1, -(-taken.size // size))
    indices = np.zeros(parts * size, dtype=np.int64)
    indices[: taken.size] = taken
    mask = np.arange(parts * size) < taken.size
    return indices.reshape(parts, size), mask.reshape(parts, size)


def train(
    loss: Callable[[Any, Any], jax.Array],
    params: Any,
    data: Any,
    plan: Plan,
    optimizer: optax.GradientTransformation,
    key: Key | None = None,
    *,
    part: int = 256,
) -> Any:
    """Parameters after the plan's steps: sample, clip, add up, add noise, `optimizer`.

    loss(params, example): of one example, a tree like `data` without its leading axis (records).
    part: how many per-example gradients are held at once. key: of samples and noise; None draws one
    from the operating system. Only what is returned is covered by
    `plan.privacy`, which holds under adding or removing a record whatever the number of records.
    """
    records = len(jax.tree.leaves(data)[0])
    key = fresh_key() if key is None else key
    clipping = clip_groups(plan)
    private = optax.chain(add_noise(plan, jax.random.fold_in(key, 0)), optimizer)
    sampling = jax.random.fold_in(key, 1)

    @jax.jit
    def part_sum(params: Any, data: Any, indices: jax.Array, mask: jax.Array) -> Any:
        examples = jax.tree.map(lambda x: x[indices], data)
        gradients = jax.vmap(jax.grad(loss), (None, 0))(params, examples)
        gradients = jax.tree.map(lambda g: jnp.where(_rows(mask, g), g, 0.0), gradients)
        return clipping.update(gradients, optax.EmptyState())[0]

    @jax.jit
    def step(params: Any, state: Any, total: Any) -> tuple[Any, Any]:
        updates, state = private.update(total, state, params)
        return optax.apply_updates(params, updates), state

    state = private.init(params)
    for index in range(plan.steps):
        batch = poisson_batch(
            jax.random.fold_in(sampling, index), records, plan.sampling_prob, part
        )
        sums = [part_sum(params, data, *each) for each in zip(*batch, strict=True)]
        params, state = step(params, state, jax.tree.map(lambda *x: sum(x[1:], x[0]), *sums))
    return params


def _rows(values: jax.Array, leaf: jax.Array) -> jax.Array:
    """One value an example, broadcast over the rest of `leaf`."""
    return values.reshape(-1, *(1,) * (leaf.ndim - 1))


def _groups(params: Any, groups: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The group of each leaf, and how many parameters each group has."""
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
        sizes[group] += int(np.prod(leaf.shape))
    return members, tuple(sizes)


def _unit_scales(clips: Vector, sizes: tuple[int, ...], allocation: str, noise: str) -> Vector:
    """Scales at multiplier 1."""
    counts = jnp.array(sizes, dtype=jnp.float64)
    if noise == "gaussian":
        moved, level = clips, GDP(1.0)
    else:
        moved, level = jnp.sqrt(counts) * clips, PureDP(1.0)
    if allocation == "inid":
        return allocate(noise, moved, level, weights=counts)
    shape = clips if allocation == "spr" else jnp.ones_like(clips)
    relative = moved / shape
    size = jnp.linalg.norm(relative) if noise == "gaussian" else jnp.sum(relative)
    return round_up(shape * size, 8)


def _composed(
    multiplier: Reals, sampling_prob: Reals, steps: RealLike, family: str, relation: Relation
) -> PrivacyLoss:
    noise = Gaussian(multiplier) if family == "gaussian" else Laplace(multiplier)
    return steps * privacy_loss(Mechanism(noise, 1.0, sampling_prob, relation))


def _calibrated(
    budget: Budget, sampling_prob: Reals, steps: Reals, family: str, relation: Relation
) -> Reals:
    def build(multiplier: Reals) -> PrivacyLoss:
        return _composed(multiplier, sampling_prob, steps, family, relation)

    return calibrate(build, budget, lower=1e-2, upper=1e7)


def _require_shapes(leaves: list[Any], plan: Plan, *, examples: bool) -> None:
    """The gradients are those of the plan's parameters, with a first axis of `examples` or not."""
    if len(leaves) != len(plan.shapes):
        raise ValueError(f"gradients must have {len(plan.shapes)} leaves, got {len(leaves)}")
    lead = tuple(leaves[0].shape[:1]) or ("examples",) if examples else ()
    for leaf, shape in zip(leaves, plan.shapes, strict=True):
        if tuple(leaf.shape) != (*lead, *shape):
            raise ValueError(
                f"gradients must have the shape {shape} of their parameter"
                f"{' after one axis of examples, the same for all' if examples else ''}, got "
                f"{leaf.shape}"
            )
