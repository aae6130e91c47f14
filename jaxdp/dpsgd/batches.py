"""Batches as sampling schemes draw them: what is accounted for is what is run."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.random_key import checked_key, key_for
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp.sampling.allocation import BallsInBins, RandomAllocation
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement


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
    return _poisson(checked_key(key), None, sampling_prob, records, size)


def _poisson(
    key: Key, index: jax.Array | int | None, sampling_prob: ArrayLike, records: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    taken = np.flatnonzero(np.asarray(_poisson_mask(key, index, sampling_prob, records)))
    parts = max(1, -(-taken.size // size))
    indices = np.zeros(parts * size, dtype=np.int64)
    indices[: taken.size] = taken
    mask = np.arange(parts * size) < taken.size
    return indices.reshape(parts, size), mask.reshape(parts, size)


def truncated_batch(
    key: Key, records: int, sampling_prob: ArrayLike, batch_size_limit: int
) -> tuple[jax.Array, jax.Array]:
    """A Poisson sample of which at most `batch_size_limit` records are kept, drawn uniformly.

    Args:
        key: of the draw: use it once and keep it secret.
        records: their number, at least 1.
        sampling_prob: with which each is drawn, on its own, in [0, 1].
        batch_size_limit: static; works under `jit`.

    Returns:
        Indices and mask, (batch_size_limit,), in random order. The mask is False where the batch is
        filled up.

    >>> import jax
    >>> import jaxdp as dp
    >>> indices, mask = dp.dpsgd.truncated_batch(jax.random.key(0), 100, 0.5, 20)
    >>> indices.shape, int(mask.sum())
    ((20,), 20)
    """
    records = checks.positive_integer("records", records)
    limit = checks.positive_integer("batch_size_limit", batch_size_limit)
    sampling_prob = checks.probability("sampling_prob", sampling_prob)
    return _truncated(checked_key(key), None, sampling_prob, records, limit)


def fixed_batch(key: Key, records: int, batch_size: int) -> jax.Array:
    """Indices of exactly `batch_size` of `records` records, sampled without replacement.

    Args:
        key: of the sample: use it once and keep it secret.
        records: their number, at least 1; static.
        batch_size: from 1 to `records`; static.

    Returns:
        Indices (batch_size,), distinct. Works under `jit`.

    >>> import jax
    >>> import jaxdp as dp
    >>> indices = dp.dpsgd.fixed_batch(jax.random.key(0), 100, 20)
    >>> len(set(indices.tolist()))
    20
    """
    records = checks.positive_integer("records", records)
    size = checks.positive_integer("batch_size", batch_size)
    if size > records:
        raise ValueError(f"batch_size must lie in [1, records], got {size} of {records}")
    return _fixed(checked_key(key), None, records, size)


def allocated_batches(key: Key, records: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Batches of an epoch: each record joins one of `steps` batches, independently.

    Args:
        key: of the sample: use it once and keep it secret.
        records: their number, at least 1.
        steps: number of batches, at least 1.

    Returns:
        Indices and mask, (steps, size) with the size of the largest batch: no batch is truncated.

    >>> import jax
    >>> import jaxdp as dp
    >>> indices, mask = dp.dpsgd.allocated_batches(jax.random.key(0), 100, 10)
    >>> sorted(indices[mask].tolist()) == list(range(100))
    True
    """
    records = checks.positive_integer("records", records)
    steps = checks.positive_integer("steps", steps)
    return _allocated(checked_key(key), None, records, steps)


def _allocated(
    key: Key, index: jax.Array | int | None, records: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    bins = np.asarray(_bins(key, index, records, steps))
    counts = np.bincount(bins, minlength=steps)
    order = np.argsort(bins, kind="stable")
    size = max(int(counts.max()), 1)
    mask = np.arange(size)[None] < counts[:, None]
    indices = np.zeros((steps, size), dtype=np.int64)
    indices[mask] = order
    return indices, mask


def parts_of_batches(
    scheme: Scheme | None,
    key: Key,
    records: int,
    sampling_prob: ArrayLike,
    part: int,
    steps: range,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices and masks of these steps of a training, (parts, part); no scheme is Poisson.

    The key as in `truncated_batch`; every step, or epoch, draws with a child of its own.
    """
    if scheme is None:
        for index in steps:
            yield _poisson(key, index, sampling_prob, records, part)
        return
    for indices, mask in islice(_batches(scheme, key, records, steps.stop), steps.start, None):
        spare = -indices.size % part
        filled = np.pad(indices, (0, spare)), np.pad(mask, (0, spare))
        yield filled[0].reshape(-1, part), filled[1].reshape(-1, part)


def _batches(
    scheme: Scheme, key: Key, records: int, steps: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices and mask of every step of a training."""
    if isinstance(scheme, TruncatedPoisson):
        limit = int(scheme.batch_size_limit)
        for index in range(steps):
            indices, mask = _truncated(key, index, scheme.sampling_prob, records, limit)
            yield np.asarray(indices), np.asarray(mask)
    elif isinstance(scheme, WithoutReplacement):
        for index in range(steps):
            indices = np.asarray(_fixed(key, index, records, int(scheme.batch_size)))
            yield indices, np.ones(indices.shape, bool)
    elif isinstance(scheme, RandomAllocation | BallsInBins):
        is_fixed = isinstance(scheme, BallsInBins)
        for index in range(steps // scheme.steps):
            epoch = _allocated(key, 0 if is_fixed else index, records, scheme.steps)
            yield from zip(*epoch, strict=True)
    else:
        raise ValueError(f"sampling must be a scheme of dp.sampling, got {type(scheme).__name__}")


def require_records(scheme: Scheme, records: int) -> None:
    """ValueError unless the data set is one of the two neighbours that the scheme speaks of."""
    if isinstance(scheme, TruncatedPoisson | WithoutReplacement):
        size = int(scheme.dataset_size)
        if records not in (size - 1, size):
            raise ValueError(
                f"data must hold dataset_size records, {size}, or one less, got {records}: its "
                "size is public"
            )


# A step's key is the child of `key` with its `index`, which is derived where numbers are drawn: one
# program a step. With None it is `key` itself.
@functools.partial(jax.jit, static_argnums=3)
def _poisson_mask(
    key: Key, index: jax.Array | int | None, sampling_prob: Reals, records: int
) -> jax.Array:
    """True for the records that a Poisson sample takes."""
    return jax.random.uniform(_of_step(key, index), (records,), dtype=jnp.float64) < sampling_prob


@functools.partial(jax.jit, static_argnums=(3, 4))
def _truncated(
    key: Key, index: jax.Array | int | None, sampling_prob: Reals, records: int, limit: int
) -> tuple[jax.Array, jax.Array]:
    drawing, ordering = jax.random.split(_of_step(key, index))
    is_drawn = jax.random.uniform(drawing, (records,), dtype=jnp.float64) < sampling_prob
    # A uniform order of the records that were drawn, before all others.
    order = jnp.argsort(jnp.where(is_drawn, _uniform(ordering, records), 2.0))
    place = jnp.pad(order[:limit], (0, max(limit - records, 0)))
    return place, is_drawn[place] & (jnp.arange(limit) < records)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _fixed(key: Key, index: jax.Array | int | None, records: int, size: int) -> jax.Array:
    return jnp.argsort(_uniform(_of_step(key, index), records))[:size]


@functools.partial(jax.jit, static_argnums=(2, 3))
def _bins(key: Key, index: jax.Array | int | None, records: int, steps: int) -> jax.Array:
    return jax.random.randint(_of_step(key, index), (records,), 0, steps)


def _of_step(key: Key, index: jax.Array | int | None) -> Key:
    return key_for("sample", key if index is None else jax.random.fold_in(key, index))


def _uniform(key: Key, records: int) -> jax.Array:
    return jax.random.uniform(key, (records,), dtype=jnp.float64)
