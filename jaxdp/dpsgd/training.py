"""The loop of a training: sample, clip, add up, add noise, step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdp._core import checks
from jaxdp._core.compilation import require_outside_traces
from jaxdp._core.progress import shown
from jaxdp._core.random_key import ONE_KEY, checked_key, key_for
from jaxdp._core.records import records_of_tree
from jaxdp._core.types import ArrayLike, Key
from jaxdp.dpsgd.batches import batches_of, require_records
from jaxdp.dpsgd.checkpoint import Checkpoint
from jaxdp.dpsgd.training_plan import Plan
from jaxdp.dpsgd.transformations import (
    add_noise,
    by_example,
    clip_groups,
    require_parameters,
)


def poisson_batch(
    key: Key, records: int, sampling_prob: ArrayLike, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """A Poisson sample of records, cut into parts of one size.

    Args:
        key: of the draw: use it once and keep it secret, as who was sampled is not public.
        records: their number, at least 1.
        sampling_prob: with which each is taken, on its own, in [0, 1].
        size: of a part.

    Returns:
        Indices and mask, (parts, size). As many parts as the sample needs, at least one: no sample
        is cut. The mask is False where a part is filled up.

    >>> import jax
    >>> import jaxdp as dp
    >>> indices, mask = dp.dpsgd.poisson_batch(jax.random.key(0), 8, 1.0, 5)
    >>> indices.shape, int(mask.sum())
    ((2, 5), 8)
    """
    records = checks.positive_integer("records", records)
    size = checks.positive_integer("size", size)
    sampling_prob = checks.probability("sampling_prob", sampling_prob)
    uniform = jax.random.uniform(key_for("sample", key), (records,))
    index = np.flatnonzero(np.asarray(uniform < sampling_prob))
    parts = max(1, -(-index.size // size))
    indices = np.zeros(parts * size, dtype=np.int64)
    indices[: index.size] = index
    mask = np.arange(parts * size) < index.size
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
    every: int = 100,
    callback: Callable[[int, Any], object] | None = None,
    path: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Any:
    """The parameters after a training by DP-SGD: sample, clip, add up, add noise, step.

    Args:
        loss: loss(params, example) of one example, a tree like `data` without its leading axis.
        params: the first ones.
        data: a tree of arrays whose leading axis is that of the records, as many in each.
        plan: made by `dp.dpsgd.plan`.
        optimizer: of optax, for the noisy mean gradient.
        key: of samples and noise; None draws one from the operating system.
        part: how many per-example gradients are held at once.
        every, callback: callback(steps made, params) after each `every` steps and the last one.
        path: of a file that is replaced then. Where it exists, the training goes on from it and
            ends the same, bit for bit. It holds the key: keep it as the records are kept.
        progress: a bar of tqdm on stderr, if that is installed; None: on a terminal.

    Returns:
        The parameters. Only they and those of callbacks are covered by `plan.privacy`, which holds
        under adding or removing a record whatever their number, unless the scheme says it.

    Arrays of different lengths, no records, parameters that the plan was not made for, and a file
    of another plan or key raise `ValueError`, before anything is drawn.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import optax
    >>> import jaxdp as dp
    >>> params, data = {"w": jnp.zeros(2)}, jnp.ones((100, 2))
    >>> plan = dp.dpsgd.plan((1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=10,
    ...     records=100)
    >>> def loss(params, x):
    ...     return jnp.sum((params["w"] - x) ** 2)
    >>> key = jax.random.key(0)
    >>> dp.dpsgd.train(loss, params, data, plan, optax.sgd(0.1), key)["w"].shape
    (2,)
    """
    _check_order(loss, plan, optimizer)
    require_outside_traces("train", ONE_KEY)
    key = None if key is None else checked_key(key)
    course = _Course(part, checks.positive_integer("every", every), callback, progress)
    return _run(loss, params, data, plan, optimizer, Checkpoint(path, plan, key), course)


class _Course(NamedTuple):
    """Settings of a training beside its steps, as the arguments of `train`."""

    part: int
    every: int
    callback: Callable[[int, Any], object] | None
    progress: bool | None


def _run(
    loss: Callable[[Any, Any], jax.Array],
    params: Any,
    data: Any,
    plan: Plan,
    optimizer: optax.GradientTransformation,
    file: Checkpoint,
    course: _Course,
) -> Any:
    """The parameters after the steps that the file leaves to make."""
    require_parameters("params", params, plan)
    records = records_of_tree("data", data)
    if plan.sampling is not None:
        require_records(plan.sampling, records)
    part_sum = _part_sum(loss, clip_groups(plan))
    private = optax.chain(add_noise(plan, jax.random.fold_in(file.key, 0)), optimizer)
    step, sampling = _step(private), jax.random.fold_in(file.key, 1)
    n_done, params, state = file.reached(params, private.init(params))
    batches = _batches(plan, sampling, records, course.part, n_done)
    steps = shown(range(n_done + 1, plan.steps + 1), "steps", course.progress)
    for made, batch in zip(steps, batches, strict=True):
        sums = [part_sum(params, data, *part) for part in zip(*batch, strict=True)]
        params, state = step(params, state, jax.tree.map(lambda *x: sum(x[1:], x[0]), *sums))
        if made % course.every == 0 or made == plan.steps:
            file.write(made, params, state)
            if course.callback is not None:
                course.callback(made, params)
    return params


def _batches(
    plan: Plan, key: Key, records: int, part: int, n_done: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices and masks of every step from `n_done` on, (parts, part)."""
    if plan.sampling is None:
        for index in range(n_done, plan.steps):
            step_key = jax.random.fold_in(key, index)
            yield poisson_batch(step_key, records, plan.sampling_prob, part)
        return
    batches = batches_of(plan.sampling, key, records, plan.steps)
    for indices, mask in islice(batches, n_done, None):
        spare = -indices.size % part
        filled = np.pad(indices, (0, spare)), np.pad(mask, (0, spare))
        yield filled[0].reshape(-1, part), filled[1].reshape(-1, part)


def _check_order(loss: Any, plan: Any, optimizer: Any) -> None:
    """Each argument is of its kind."""
    for name, value, fits, kind in (
        ("loss", loss, callable(loss), "a function of (params, example)"),
        ("plan", plan, isinstance(plan, Plan), "a Plan, made by dp.dpsgd.plan"),
        ("optimizer", optimizer, hasattr(optimizer, "update"), "a transformation of optax"),
    ):
        if not fits:
            raise ValueError(
                f"{name} must be {kind}, got {type(value).__name__}: the order is "
                "train(loss, params, data, plan, optimizer, key)"
            )


def _part_sum(loss: Callable[[Any, Any], jax.Array], clipping: optax.GradientTransformation) -> Any:
    """Sum of the clipped gradients of some records, those that the mask takes."""

    @jax.jit
    def part_sum(params: Any, data: Any, indices: jax.Array, mask: jax.Array) -> Any:
        examples = jax.tree.map(lambda x: x[indices], data)
        gradients = jax.vmap(jax.grad(loss), (None, 0))(params, examples)
        gradients = jax.tree.map(lambda g: jnp.where(by_example(mask, g), g, 0.0), gradients)
        return clipping.update(gradients, optax.EmptyState())[0]

    return part_sum


def _step(private: optax.GradientTransformation) -> Any:
    """Parameters and state after a step from a sum of clipped gradients."""

    @jax.jit
    def step(params: Any, state: Any, total: Any) -> tuple[Any, Any]:
        updates, state = private.update(total, state, params)
        return optax.apply_updates(params, updates), state

    return step
