"""Batches as sampling schemes draw them: what is accounted for is what is run."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.random_key import key_for
from jaxdp._core.types import ArrayLike, Key
from jaxdp.sampling.allocation import BallsInBins, RandomAllocation
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement


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
    drawing, ordering = jax.random.split(key_for("sample", key))
    is_drawn = jax.random.uniform(drawing, (records,), dtype=jnp.float64) < sampling_prob
    # A uniform order of the records that were drawn, before all others.
    order = jnp.argsort(jnp.where(is_drawn, _uniform(ordering, records), 2.0))
    index = jnp.pad(order[:limit], (0, max(limit - records, 0)))
    return index, is_drawn[index] & (jnp.arange(limit) < records)


def fixed_batch(key: Key, records: int, batch_size: int) -> jax.Array:
    """Indices of exactly `batch_size` of `records` records, drawn without replacement.

    The key as in `truncated_batch`; both sizes are static, and it works under `jit`.

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
    return jnp.argsort(_uniform(key_for("sample", key), records))[:size]


def allocated_batches(key: Key, records: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Records that each join one of `steps` batches, drawn on its own: an epoch, or all of them.

    The key as in `truncated_batch`.

    Returns:
        Indices and mask, (steps, size) with the size of the largest batch: none is cut.

    >>> import jax
    >>> import jaxdp as dp
    >>> indices, mask = dp.dpsgd.allocated_batches(jax.random.key(0), 100, 10)
    >>> sorted(indices[mask].tolist()) == list(range(100))
    True
    """
    records = checks.positive_integer("records", records)
    steps = checks.positive_integer("steps", steps)
    bins = np.asarray(jax.random.randint(key_for("sample", key), (records,), 0, steps))
    counts = np.bincount(bins, minlength=steps)
    order = np.argsort(bins, kind="stable")
    size = max(int(counts.max()), 1)
    mask = np.arange(size)[None] < counts[:, None]
    indices = np.zeros((steps, size), dtype=np.int64)
    indices[mask] = order
    return indices, mask


def batches_of(
    scheme: Scheme, key: Key, records: int, steps: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices and mask of every step of a training; `ValueError` for another number of records.

    The key as in `truncated_batch`; every step, or epoch, draws with its own.
    """
    require_records(scheme, records)
    keys = (jax.random.fold_in(key, index) for index in range(steps))
    if isinstance(scheme, TruncatedPoisson):
        limit = int(scheme.batch_size_limit)
        for step_key in keys:
            indices, mask = truncated_batch(step_key, records, scheme.sampling_prob, limit)
            yield np.asarray(indices), np.asarray(mask)
    elif isinstance(scheme, WithoutReplacement):
        for step_key in keys:
            indices = np.asarray(fixed_batch(step_key, records, int(scheme.batch_size)))
            yield indices, np.ones(indices.shape, bool)
    elif isinstance(scheme, RandomAllocation | BallsInBins):
        is_fixed = isinstance(scheme, BallsInBins)
        for index in range(steps // scheme.steps):
            epoch = jax.random.fold_in(key, 0 if is_fixed else index)
            yield from zip(*allocated_batches(epoch, records, scheme.steps), strict=True)
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


def _uniform(key: Key, records: int) -> jax.Array:
    return jax.random.uniform(key, (records,), dtype=jnp.float64)
