"""Optax transformations that follow a plan: clip, sum, add noise."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdp._core import checks
from jaxdp._core.checks import same_length
from jaxdp._core.float64 import as_numpy, draws_in_float64, host_array
from jaxdp._core.namespace import xp
from jaxdp._core.precision import is_tracing
from jaxdp._core.random_key import checked_key, children, key_for, unshared
from jaxdp._core.types import Key
from jaxdp.design.families import scaled
from jaxdp.dpsgd.adaptive_clipping import adapted
from jaxdp.dpsgd.clipping import clipped_sums
from jaxdp.dpsgd.correlated_noise import Memory, no_memory, released
from jaxdp.dpsgd.training_plan import Plan
from jaxdp.solvers import lattice
from jaxdp.solvers.lattice import Added


def clip_groups(plan: Plan) -> optax.GradientTransformation:
    """Optax transformation that clips per-example gradients, group by group, and sums them.

    Args:
        plan: made by `dp.dpsgd.plan`.

    Returns:
        A transformation from leaves (examples, *shape of the parameter) to float64 leaves of the
        parameters' shapes.

    `ValueError` for other shapes: without an axis of examples, the gradient of a batch would count
    as one example a row. A gradient that is not finite, or above 1e154 thresholds, counts as 0.
    Mask examples with gradients of 0. To clip a batch in parts, clip each part, add the sums, then
    apply `add_noise`; without `jax_enable_x64`, add them within `jax.enable_x64(True)`.
    `optax.masked` around it raises `ValueError`: it would pass the gradients of the other
    parameters on as they are. Norms are computed in float64, and entries are truncated towards 0
    to multiples of 2^-30 of the threshold, so sums are exact: one example moves the sum of up to
    4e6 examples by at most its own share, in any order.

    >>> import jax.numpy as jnp
    >>> import jaxdp as dp
    >>> plan = dp.dpsgd.plan((1.0, 1e-5), {"w": jnp.zeros(2)}, clip=1.0, sampling_prob=0.1,
    ...     steps=10, dataset_size=100)
    >>> clipping = dp.dpsgd.clip_groups(plan)
    >>> total, _ = clipping.update({"w": jnp.array([[3.0, 4.0], [0.0, 0.5]])}, clipping.init(None))
    >>> print(total["w"].round(4))
    [0.6 1.3]
    """
    _require_independent_steps(plan)

    @draws_in_float64(keeps_types=True)
    def clipped_sum(updates: Any) -> Any:
        _require_unmasked(updates, plan)
        batch = require_parameters("gradients", updates, plan, ("examples",))
        same_length({name: leaf.shape[0] for name, leaf in batch.items()}, "examples")
        leaves, structure = jax.tree.flatten(updates)
        return jax.tree.unflatten(structure, clipped_sums(plan, leaves))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        return as_numpy(clipped_sum(updates)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


class NoiseState(NamedTuple):
    """The key of the remaining steps, and the number of steps made.

    clips: thresholds of the next step, if they adapt. memory: of correlated noise.
    """

    key: Key
    made: jax.Array
    clips: Any = ()
    memory: tuple[Memory, ...] = ()


def add_noise(plan: Plan, key: Key) -> optax.GradientTransformation:
    """Optax transformation from a sum of clipped gradients to a noisy mean.

    Args:
        plan: made by `dp.dpsgd.plan`.
        key: of the noise: use it for one run, and keep it secret.

    Returns:
        A transformation to (sum + noise) / expected batch. After the plan's last step it raises
        `ValueError`; under `jit` it returns NaN.

    The sum is rounded to the lattice of the noise, see `solvers.lattice`; all entries of a step are
    one release. The mean is rounded to the parameters' precision. A plan with `release="float"`
    uses floating-point noise in float64 (in float32 a normal draw ends at 5.4 deviations, which an
    attacker can see). `ValueError` for other shapes than the parameters'.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import jaxdp as dp
    >>> params = {"w": jnp.zeros(2)}
    >>> plan = dp.dpsgd.plan((1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=10,
    ...     dataset_size=100)
    >>> noising = dp.dpsgd.add_noise(plan, jax.random.key(0))
    >>> mean, state = noising.update(params, noising.init(params))
    >>> mean["w"].shape, int(state.made)
    ((2,), 1)
    """

    _require_independent_steps(plan)
    first = initial_noise(plan, key)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, NoiseState]:
        del params
        if checks.is_concrete(state.made) and int(state.made) >= plan.steps:
            raise ValueError(
                f"updates must end with the plan's {plan.steps} steps, which are made: another one "
                "is not covered; plan for more steps"
            )
        leaves = jax.tree.leaves(updates)
        unshared(state.key, leaves, plan)
        _require_unmasked(updates, plan)
        require_parameters("gradients", updates, plan)
        means, following = noised(plan, leaves, state, plan.steps)
        return jax.tree.unflatten(jax.tree.structure(updates), means), following

    return optax.GradientTransformation(lambda params: first, update)


def initial_noise(plan: Plan, key: Key) -> NoiseState:
    """The state before the first step."""
    key, made = key_for("noise", checked_key(key)), jax.device_put(np.int32(0))
    clips = () if plan.clip_quantile is None else plan.clips
    return NoiseState(key, made, clips, no_memory(plan.column, plan.shapes))


def noise_of_step(plan: Plan, key: Key, clips: Any = ()) -> tuple[Key, list[Added]]:
    """The key of the next step, and the noise of this one: one a group, that of counts last.

    NumPy draws that of a known key.
    """
    plan = plan.at(clips)
    following, now = children(key)
    noise, (scales, sizes) = scaled(plan.family, 1.0), plan.drawn
    # Of a vector of ones, in the norm that the noise counts: of all steps that one gradient moves.
    size = (sum(sizes) * len(plan.column)) ** (1.0 / noise.norm)
    ratio = 1.0 / (plan.noise_multiplier * size)
    return following, lattice.added_to_groups(noise, scales, ratio, now, sizes, plan.release)


@draws_in_float64(keeps_types=True)
def noised(
    plan: Plan,
    sums: list[Any],
    state: NoiseState,
    steps: int | jax.Array,
    drawn: tuple[Key, list[Added]] | None = None,
) -> tuple[list[Any], NoiseState]:
    """The noisy means of `clipped_sums`, leaf by leaf, and the state of the next step.

    steps: of the plan; one program serves plans of any number of them. drawn: `noise_of_step`, if
    it was drawn already.
    """
    if drawn is None:
        drawn = noise_of_step(plan, checked_key(state.key, sums, plan), state.clips)
    (following, groups), first_clips, plan = drawn, plan.clips, plan.at(state.clips)
    is_known = checks.all_concrete(sums, state, steps) and not is_tracing()
    if is_known:
        sums, state = jax.tree.map(host_array, (sums, state))
    if_unfinished = xp.where(state.made < steps, 1.0, np.nan)
    clips, memory = state.clips, []
    if plan.clip_quantile is not None:
        counts, batch = groups[-1].to(sums[-1]), plan.expected_batch
        clips = adapted(plan.clips, first_clips, plan.clip_quantile, counts, batch)
    noisy, ends = [], [0] * len(plan.sizes)
    for index, (group, dtype) in enumerate(zip(plan.members, plan.dtypes, strict=True)):
        start, total = ends[group], sums[index].astype(np.float64)
        ends[group] += total.size
        added = groups[group].part(start, total.shape)
        if state.memory:
            total, past = released(plan.column, total, added, state.memory[index])
            memory.append(past)
        else:
            total = added.to(total)
        noisy.append((if_unfinished * total / plan.expected_batch).astype(jnp.dtype(dtype)))
    result = noisy, NoiseState(following, state.made + np.int32(1), clips, tuple(memory))
    return jax.device_put(result) if is_known else result


def _require_independent_steps(plan: Plan) -> None:
    """`ValueError` for plans whose steps need more than sums and a key."""
    if plan.clip_quantile is not None or len(plan.column) > 1:
        raise ValueError(
            "plan must be without clip_quantile and bands in a loop of your own: dp.dpsgd.train "
            "runs them, with the batches and the counts that they require"
        )


def _require_unmasked(gradients: Any, plan: Plan) -> None:
    """`ValueError` inside of `optax.masked` (not `partition`), which passes masked gradients on."""
    leaves = jax.tree.leaves(gradients, is_leaf=lambda x: isinstance(x, optax.MaskedNode))
    if not any(isinstance(leaf, optax.MaskedNode) for leaf in leaves):
        return
    masks, frame = [], sys._getframe()
    while frame is not None and frame.f_back is not None:
        if frame.f_code.co_qualname.startswith("masked.<locals>.update"):
            masks.append(frame.f_back.f_code.co_qualname)
        frame = frame.f_back
    if not masks or not all(name.startswith("partition.<locals>.") for name in masks):
        found, leaves = len(jax.tree.leaves(gradients)), len(plan.shapes)
        count = "" if found == leaves else f"have the plan's {leaves} leaves, got {found}, and "
        raise ValueError(
            f"gradients must {count}not be masked by optax.masked, which passes the gradients of "
            "the other parameters on without clipping or noise: use optax.partition with "
            "optax.set_to_zero() for them, or differentiate the trained parameters alone"
        )


def require_parameters(
    name: str, tree: Any, plan: Plan, lead: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The leaves by name; `ValueError` unless shapes match the plan after the axes of `lead`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if len(leaves) != len(plan.shapes):
        raise ValueError(
            f"{name} must have the plan's {len(plan.shapes)} leaves, got {len(leaves)}"
        )
    named = {name + jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    for (key, leaf), shape in zip(named.items(), plan.shapes, strict=True):
        found = np.shape(leaf)
        if len(found) != len(lead) + len(shape) or found[len(lead) :] != shape:
            expected = str((*lead, *shape)).replace("'", "")
            owner = ", a gradient an example," if lead else " of its parameter in the plan,"
            raise ValueError(f"{key} must have shape {expected}{owner} got {found}")
    return named
