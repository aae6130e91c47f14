"""The loop of a training: sample, clip, add up, add noise, step."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdp._core import checks
from jaxdp._core.precision import in_callers_setting, opened, require_outside_traces
from jaxdp._core.progress import shown
from jaxdp._core.random_key import ONE_KEY, checked_key, fold_in
from jaxdp._core.types import Key
from jaxdp.dpsgd.checkpoint import Checkpoint, fingerprints
from jaxdp.dpsgd.clipping import clipped_sums
from jaxdp.dpsgd.dense_layers import gradients_of
from jaxdp.dpsgd.programs import shared_jit
from jaxdp.dpsgd.records import Records, on_device, placed_as, records_of
from jaxdp.dpsgd.training_plan import Plan, require_floating
from jaxdp.dpsgd.transformations import (
    NoiseState,
    initial_noise,
    noise_of_step,
    noised,
    require_parameters,
)
from jaxdp.sampling.base import in_parts

# Examples at a time, about. measured: benchmarks/bench_training.py
_PART = 256
# Parts have a multiple of it as many examples. chosen: above the examples added up at a time
_PADDING = 16
# Entries of per-example gradients in memory at once, about. chosen: 64 MiB in float32
_ENTRIES = 2**24


def train(
    loss: Callable[[Any, Any], jax.Array],
    params: Any,
    data: Any,
    plan: Plan,
    optimizer: optax.GradientTransformation,
    key: Key | None = None,
    *,
    part: int | None = None,
    every: int = 100,
    callback: Callable[..., object] | None = None,
    path: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    records: int | None = None,
) -> Any:
    """The parameters after a training by DP-SGD: sample, clip, add up, add noise, step.

    Args:
        loss: loss(params, example) for one example, a tree like `data` without its leading axis.
        params: the initial parameters; on a mesh of devices, the result has the same placement.
        data: a tree of arrays with a common leading axis of records; `np.memmap` arrays are read
            batch by batch. Or a function of indices that returns such a tree, one row an index.
        plan, optimizer: made by `dp.dpsgd.plan`; of optax, for the noisy mean gradient.
        key: of samples and noise; None: of the operating system.
        part: number of gradients in memory at once; None: by the batch, up to about 2^24 numbers.
        every, callback: callback(steps made, params) after each `every` steps and the last one,
            with a third argument if thresholds adapt: those of the next step.
        path: of a checkpoint file. If it exists, the training resumes from it and ends the same,
            bit for bit. It holds the key: protect it as you do the records.
        progress: a bar of tqdm on stderr, if installed; None: on a terminal.
        records: number of records, if data is a function.

    Returns:
        The parameters. `plan.guarantee` covers them and the parameters of callbacks. It holds for
        any number of records unless the scheme requires a public size.

    `ValueError`, before anything is drawn, for arrays of different lengths, no records, parameters
    of another plan or type, calls inside of `jit` or `vmap`, and a file of another training.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import optax
    >>> import jaxdp as dp
    >>> params, data = {"w": jnp.zeros(2)}, jnp.ones((100, 2))
    >>> plan = dp.dpsgd.plan((1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=10,
    ...     dataset_size=100)
    >>> def loss(params, x):
    ...     return jnp.sum((params["w"] - x) ** 2)
    >>> dp.dpsgd.train(loss, params, data, plan, optax.sgd(0.1), jax.random.key(0))["w"].shape
    (2,)
    """
    _check_order(loss, plan, optimizer)
    require_outside_traces("train", ONE_KEY)
    require_parameters("params", params, plan)
    key = None if key is None else checked_key(key)
    part = None if part is None else checks.positive_integer("part", part)
    options = _Options(part, checks.positive_integer("every", every), callback, progress)
    read = records_of(data, records)
    with opened():
        return _run(loss, params, read, plan, optimizer, Checkpoint(path, plan, key), options)


class _Options(NamedTuple):
    """Settings of a training beside its steps, as the arguments of `train`."""

    part: int | None
    every: int
    callback: Callable[..., object] | None
    progress: bool | None


def _run(
    loss: Callable[[Any, Any], jax.Array],
    params: Any,
    records: Records,
    plan: Plan,
    optimizer: optax.GradientTransformation,
    file: Checkpoint,
    options: _Options,
) -> Any:
    """The parameters after the steps that the file leaves to make."""
    # Arguments of programs: numbers would be compiled into them.
    known, plan = plan, jax.tree.map(jax.device_put, plan)
    require_floating("params", params)
    # Arrays have the types that the caller's setting gives.
    init, update = in_callers_setting(optimizer.init), in_callers_setting(optimizer.update)
    optimizer = optax.GradientTransformation(init, update)
    given, loss, params = params, in_callers_setting(loss), in_callers_setting(on_device)(params)
    read = in_callers_setting(lambda indices: on_device(records.read(indices)))
    batch_of = plan.sampling.draw(fold_in(file.key, 1), records.number)
    noise = initial_noise(plan, fold_in(file.key, 0))
    first = noise, _initial(optimizer, params)

    def inputs() -> dict[str, str]:
        example = jax.tree.map(lambda rows: rows[0], read(np.zeros(1, int)))
        return fingerprints(loss, params, example, records.digest(), optimizer)

    n_done, found, state = file.reached(params, first, inputs)
    params = placed_as(params, found)
    shapes = plan.shapes if plan.clip_quantile is None else (*plan.shapes, np.shape(plan.clips))
    zero = jax.device_put([np.zeros(shape) for shape in shapes])
    part_sum, step = _part_sum(loss, plan), _step(plan, optimizer)
    steps = jax.device_put(plan.steps)
    part = options.part or _part_of(float(plan.expected_batch), _entries(loss, params, read, plan))
    for made in shown(range(n_done + 1, plan.steps + 1), "steps", options.progress):
        total = zero
        for indices, mask in zip(*in_parts(batch_of(made - 1), part), strict=True):
            total = part_sum(total, params, read(indices), mask, state[0].clips)
        # On the host, while the device adds up: a sampler within the step takes 3 s to compile.
        clips = () if plan.clip_quantile is None else np.asarray(state[0].clips)
        drawn = jax.device_put(noise_of_step(known, state[0].key, clips))
        params, state = step(params, state, total, steps, drawn)
        if made % options.every == 0 or made == plan.steps:
            file.write(made, params, state)
            if options.callback is not None:
                adapted = () if plan.clip_quantile is None else (np.asarray(state[0].clips),)
                in_callers_setting(options.callback)(made, placed_as(given, params), *adapted)
    return placed_as(given, params)


def _initial(optimizer: optax.GradientTransformation, params: Any) -> Any:
    """The optimiser's first state; `ValueError` if it would add noise of its own."""

    def is_noise(node: Any) -> bool:
        return isinstance(node, NoiseState)

    state = optimizer.init(params)
    if any(map(is_noise, jax.tree.leaves(state, is_leaf=is_noise))):
        raise ValueError("optimizer must be without add_noise: train adds the noise of the plan")
    return state


def _check_order(loss: Any, plan: Any, optimizer: Any) -> None:
    """`ValueError` unless each argument is of its kind."""
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


def _part_sum(loss: Callable[[Any, Any], jax.Array], plan: Plan) -> Any:
    """A sum, and the clipped gradients of some more records, those that the mask takes."""

    def part_sum(total: Any, params: Any, examples: Any, mask: jax.Array, clips: Any) -> Any:
        sums = clipped_sums(plan.at(clips), gradients_of(loss, params, examples), mask)
        return jax.tree.map(jnp.add, total, sums)

    return shared_jit(part_sum)


def _entries(loss: Callable[[Any, Any], jax.Array], params: Any, read: Any, plan: Plan) -> int:
    """Numbers of an example's gradient that are in memory: fewer than parameters with factors."""
    entries = sum(plan.sizes)
    if entries * _PART <= _ENTRIES:
        return entries
    found = jax.eval_shape(partial(gradients_of, loss), params, read(np.zeros(1, int)))
    return sum(leaf.size for leaf in jax.tree.leaves(found))


def _part_of(expected: float, entries: int) -> int:
    """Number of examples at a time: few parts hold most batches, and are padded by little."""
    most = max(1, _ENTRIES // max(1, entries))
    if most < _PADDING:
        return 2 ** (most.bit_length() - 1)
    parts = max(1, round(expected / min(_PART, most)))
    likely = expected + 2.0 * math.sqrt(expected)
    size = _PADDING * math.ceil(likely / (parts * _PADDING))
    return min(size, _PADDING * (most // _PADDING))


def _step(plan: Plan, optimizer: optax.GradientTransformation) -> Any:
    """Parameters and state after a step from a sum of clipped gradients."""

    def step(
        params: Any, state: tuple[NoiseState, Any], total: Any, steps: Any, drawn: Any
    ) -> tuple[Any, Any]:
        means, noise = noised(plan, total, state[0], steps, drawn)
        mean = jax.tree.unflatten(jax.tree.structure(params), means)
        updates, of_optimizer = optimizer.update(mean, state[1], params)
        return in_callers_setting(optax.apply_updates)(params, updates), (noise, of_optimizer)

    return shared_jit(step)
