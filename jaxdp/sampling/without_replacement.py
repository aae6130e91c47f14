"""Batches of a fixed size, drawn anew for every release, without replacement."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import ADD_REMOVE, RELATIONS, Relation
from jaxdp._core.precision import opened
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp._numeric.elementary import log1m
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.gaussian_mixture import SampledGroup
from jaxdp.dominating_pair.poisson import Poisson as PoissonPair
from jaxdp.dominating_pair.replaced import FixedBatch
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import (
    MOST_RECORDS,
    Batch,
    Known,
    Pairs,
    SamplingStatement,
    Scheme,
    TrainingSizes,
    require_neighbour_size,
    step_key,
)
from jaxdp.sampling.truncated import zeroed_in_full_batch


@final
@pytree
class WithoutReplacement(Scheme):
    """Exactly `batch_size` of `dataset_size` records, drawn uniformly, anew in every release.

    Args:
        batch_size: number of records in a batch, the same for both neighbours.
        dataset_size: public number of records of the larger of two neighbours.

    A record takes another's place, so the sum moves by two sensitivities. "add_remove", "add" and
    "remove" support any noise, and the bound is attained; "replace_one" and "zero_out" support the
    Gaussian. "replace_one" is bounded by the envelope `FixedBatch`, whose composition is not
    attained: the worst known attack is the composition of "remove", a lower bound. Groups of up to
    128 records are supported for the Gaussian under "add_remove", "add" and "remove".
    Source: Zhu, Dong & Wang, AISTATS 2022, theorem 11; Balle, Barthe & Gaboardi, NeurIPS 2018.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.WithoutReplacement(256, 60_000)
    >>> step = dp.Mechanism(dp.Gaussian(1.1), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{(3516 * dp.privacy_loss(step)).epsilon(1e-5):.4f}")
    7.8170
    """

    known = Known(RELATIONS, groups=ADD_REMOVE, any_noise=ADD_REMOVE)
    batch_size: Reals
    dataset_size: Reals

    def __init__(self, batch_size: ArrayLike, dataset_size: ArrayLike):
        batch = checks.whole("batch_size", batch_size, 1.0)
        size = checks.whole("dataset_size", dataset_size, 1.0, MOST_RECORDS)
        if checks.all_concrete(batch, size) and not bool(xp.all(batch <= size)):
            raise ValueError(
                f"batch_size must lie in [1, dataset_size], got {batch_size} of {dataset_size}"
            )
        assign(self, batch_size=batch, dataset_size=size)

    @classmethod
    def of(cls, training: TrainingSizes) -> tuple[Scheme, Reals]:
        """See `Scheme.of`."""
        size = training.public_size("without_replacement")
        if training.batch_size is None:
            raise ValueError("batch_size must be given with sampling='without_replacement'")
        return cls(training.batch_size, size), training.steps

    def pairs(self, noise: Noise, sensitivity: Reals, relation: Relation, group_size: int) -> Pairs:
        """One pair a release; see `Scheme.pairs`."""
        rate, shift = checks.guard(self.rate, 1.0), 2.0 * sensitivity
        pair: DominatingPair
        if group_size > 1:
            pair = self._group(noise, shift, group_size)
        elif relation == "replace_one":
            pair = FixedBatch(noise, shift, rate)
        elif relation == "zero_out":
            pair = zeroed_in_full_batch(noise, sensitivity, rate)
        else:
            pair = PoissonPair(Additive(noise, shift), rate, xp.zeros(()))
        return ((pair, 1),)

    def _group(self, noise: Noise, shift: Reals, size: int) -> SampledGroup:
        """Hypergeometrically many records of a group take others' places."""
        assert isinstance(noise, Gaussian)
        sizes = xp.broadcast_arrays(self.batch_size, self.dataset_size)
        shares = [_log_hypergeometric(j, size, *sizes) for j in range(size + 1)]
        return SampledGroup(noise, shift, shares)

    @property
    def rate(self) -> Reals:
        """See `Scheme.rate`."""
        return self.batch_size / self.dataset_size

    def draw(self, key: Key, records: int) -> Callable[[int], Batch]:
        """See `Scheme.draw`."""
        require_neighbour_size(self.dataset_size, records)
        size = int(self.batch_size)

        def batch(index: int) -> Batch:
            indices = np.asarray(_fixed(key, index, records, size))
            return indices, np.ones(indices.shape, bool)

        return batch

    def statement(self) -> SamplingStatement:
        """See `Scheme.statement`."""
        batch, size = (float(np.asarray(x).item()) for x in (self.batch_size, self.dataset_size))
        return SamplingStatement(
            f"exactly {batch:,.0f} of {size:,.0f} records are drawn without replacement",
            (
                "every batch is drawn anew from all records: not by cutting one shuffled pass",
                "the batch size is fixed, and the size of the data set is public",
            ),
        )


@opened()
@functools.partial(jax.jit, static_argnums=(2, 3))
def _fixed(key: Key, index: jax.Array | int, records: int, size: int) -> jax.Array:
    rank = jax.random.uniform(step_key(key, index), (records,), dtype=jnp.float64)
    return jnp.argsort(rank)[:size]


def _log_hypergeometric(j: int, k: int, batch: Reals, size: Reals) -> Reals:
    """log of C(b, j) C(n - b, k - j) / C(n, k): falling factorials of k factors in all.

    That is C(k, j) times the probability that given j of k draws lie among b of n.
    """
    shape = xp.broadcast_shapes(xp.shape(batch), xp.shape(size))
    value = xp.full(shape, math.log(math.comb(k, j)))
    for i in range(k):
        among = xp.maximum(size - i, 1.0)
        # Of those beyond j the share that is not drawn, which may be close to 1.
        share = (batch - i) / among if i < j else 1.0 - (batch - j) / among
        near = log1m((batch - j) / among) if i >= j else xp.log(xp.where(share > 0, share, 1.0))
        value = value + xp.where(share > 0, near, -xp.inf)
    return value
