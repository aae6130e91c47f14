"""Optax transformations that follow a plan: clip, sum, add noise; and the loop of a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdp._core import checks
from jaxdp._core.random_key import fresh_key, key_for
from jaxdp._core.types import ArrayLike, Key
from jaxdp._numeric.elementary import ULP
from jaxdp.solvers.dp_sgd.plan import Plan

# Bits of a clipped entry below its threshold. derived: 2^22 such entries add up exactly.
_BITS = 31


def clip_groups(plan: Plan) -> optax.GradientTransformation:
    """Optax transformation that clips per-example gradients, group by group, and sums them.

    Args:
        plan: made by `dp_sgd.plan`.

    Returns:
        A transformation from leaves (examples, *shape of the parameter) to leaves of the
        parameters' shapes.

    Other shapes raise `ValueError`: without its axis of examples a batch's own gradient would pass
    as one example a row. A gradient that is not finite, or beyond 1e154 thresholds, counts as 0.
    Examples are masked by gradients of 0. The sum of several parts of a batch is that of the batch:
    clip the parts, add, then `add_noise`. Norms are those of float64, whatever the gradients'
    precision, and entries are cut towards 0 to multiples of 2^-30 of the threshold, so that sums
    are exact: one example moves the sum of up to 4e6 by no more than its own share, in any order.

    >>> import jax.numpy as jnp
    >>> import jaxdp as dp
    >>> plan = dp.solvers.dp_sgd.plan((1.0, 1e-5), {"w": jnp.zeros(2)}, clip=1.0, sampling_prob=0.1,
    ...     steps=10, records=100)
    >>> clipping = dp.solvers.dp_sgd.clip_groups(plan)
    >>> total, _ = clipping.update({"w": jnp.array([[3.0, 4.0], [0.0, 0.5]])}, clipping.init(None))
    >>> print(total["w"].round(4))
    [0.6 1.3]
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
    """Optax transformation from a sum of clipped gradients to a noisy mean.

    Args:
        plan: made by `dp_sgd.plan`.
        key: of the noise: use it for one run, and keep it secret.

    Returns:
        A transformation to (sum + noise) / expected batch; NaN after the plan's last step: more
        would not be covered.

    The noise is drawn in float64 (in float32 a normal draw ends at 5.4 deviations, which can be
    seen); the mean is rounded to the parameters' precision. Other shapes than the parameters':
    `ValueError`.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import jaxdp as dp
    >>> params = {"w": jnp.zeros(2)}
    >>> plan = dp.solvers.dp_sgd.plan((1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=10,
    ...     records=100)
    >>> noising = dp.solvers.dp_sgd.add_noise(plan, jax.random.key(0))
    >>> mean, state = noising.update(params, noising.init(params))
    >>> mean["w"].shape, int(state.made)
    ((2,), 1)
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
    key: Key, records: int, sampling_prob: ArrayLike, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """A Poisson sample of records, cut into parts of one size.

    Args:
        key: of the draw: use it once and keep it secret, as who was sampled is not public.
        records: their number.
        sampling_prob: with which each is taken, on its own, in [0, 1].
        size: of a part.

    Returns:
        Indices and mask, (parts, size). As many parts as the sample needs, at least one: no sample
        is cut. The mask is False where a part is filled up.

    >>> import jax
    >>> import jaxdp as dp
    >>> indices, mask = dp.solvers.dp_sgd.poisson_batch(jax.random.key(0), 8, 1.0, 5)
    >>> indices.shape, int(mask.sum())
    ((2, 5), 8)
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
    """The parameters after a training by DP-SGD: sample, clip, add up, add noise, step.

    Args:
        loss: loss(params, example) of one example, a tree like `data` without its leading axis.
        params: the first ones.
        data: a tree of arrays whose leading axis is that of the records.
        plan: made by `dp_sgd.plan`.
        optimizer: of optax, for the noisy mean gradient.
        key: of samples and noise; None draws one from the operating system.
        part: how many per-example gradients are held at once.

    Returns:
        The parameters. Only they are covered by `plan.privacy`, which holds under adding or
        removing a record whatever the number of records.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import optax
    >>> import jaxdp as dp
    >>> params = {"w": jnp.zeros(2)}
    >>> plan = dp.solvers.dp_sgd.plan((1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=10,
    ...     records=100)
    >>> def loss(params, x):
    ...     return jnp.sum((params["w"] - x) ** 2)
    >>> data, key = jnp.ones((100, 2)), jax.random.key(0)
    >>> trained = dp.solvers.dp_sgd.train(loss, params, data, plan, optax.sgd(0.1), key)
    >>> trained["w"].shape
    (2,)
    """
    records = len(jax.tree.leaves(data)[0])
    key = fresh_key() if key is None else key
    part_sum = _part_sum(loss, clip_groups(plan))
    private = optax.chain(add_noise(plan, jax.random.fold_in(key, 0)), optimizer)
    step, sampling = _step(private), jax.random.fold_in(key, 1)
    state = private.init(params)
    for index in range(plan.steps):
        batch = poisson_batch(
            jax.random.fold_in(sampling, index), records, plan.sampling_prob, part
        )
        sums = [part_sum(params, data, *each) for each in zip(*batch, strict=True)]
        params, state = step(params, state, jax.tree.map(lambda *x: sum(x[1:], x[0]), *sums))
    return params


def _part_sum(loss: Callable[[Any, Any], jax.Array], clipping: optax.GradientTransformation) -> Any:
    """Sum of the clipped gradients of some records, those that the mask takes."""

    @jax.jit
    def part_sum(params: Any, data: Any, indices: jax.Array, mask: jax.Array) -> Any:
        examples = jax.tree.map(lambda x: x[indices], data)
        gradients = jax.vmap(jax.grad(loss), (None, 0))(params, examples)
        gradients = jax.tree.map(lambda g: jnp.where(_rows(mask, g), g, 0.0), gradients)
        return clipping.update(gradients, optax.EmptyState())[0]

    return part_sum


def _step(private: optax.GradientTransformation) -> Any:
    """Parameters and state after a step from a sum of clipped gradients."""

    @jax.jit
    def step(params: Any, state: Any, total: Any) -> tuple[Any, Any]:
        updates, state = private.update(total, state, params)
        return optax.apply_updates(params, updates), state

    return step


def _rows(values: jax.Array, leaf: jax.Array) -> jax.Array:
    """One value an example, broadcast over the rest of `leaf`."""
    return values.reshape(-1, *(1,) * (leaf.ndim - 1))


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
