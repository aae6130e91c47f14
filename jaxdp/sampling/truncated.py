"""Poisson samples that are cut to a limit, as batches of a static shape need."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import ADD_REMOVE, RELATIONS, Relation
from jaxdp._core.precision import opened
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp._numeric.binomial import log_binomial_tails
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.gaussian_mixture import GaussianMixture
from jaxdp.dominating_pair.poisson import Poisson as PoissonPair
from jaxdp.dominating_pair.public_coin import PublicCoin
from jaxdp.dominating_pair.replaced import FixedBatch, Replaced
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

# Least log probability of a full batch. derived: less is no double
_LEAST_LOG_FULL = -690.0
# Relative margin of log probabilities. measured: their errors are at most 1e-13
_MARGIN = 1e-12


@final
@pytree
class TruncatedPoisson(Scheme):
    """A Poisson sample, reduced to `batch_size_limit` records by a uniform choice if it is larger.

    Args:
        sampling_prob: probability of each record to be sampled, independently.
        batch_size_limit: largest number of records in a batch; padding changes nothing.
        dataset_size: public number of records of the larger of two neighbours. A data set of n
            records has neighbours of n - 1 and of n + 1: evaluate n and n + 1, and report the
            worse.

    If the other records fill the batch, the record displaces one of them and the sum moves by two
    sensitivities. A limit near the mean is ruinous, and 1.25 times the mean costs nothing. Divide
    sums by the expected size, not by the realised one.
    "add_remove", "add" and "remove" support any noise; "zero_out" and "replace_one" the Gaussian.
    Groups are not supported. Do not use Renyi accounting: rare full batches dominate high orders.
    Source: section 5.2 of Google's Privacy Loss Distributions for the two cases. The rates, which
    are exact, and the pair of "replace_one", which is tighter than the published one, are ours.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.TruncatedPoisson(256 / 60_000, 300, 60_000)
    >>> step = dp.Mechanism(dp.Gaussian(1.1), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{(3516 * dp.privacy_loss(step)).epsilon(1e-5):.4f}")
    2.3853
    """

    known = Known(RELATIONS, any_noise=ADD_REMOVE)
    sampling_prob: Reals
    batch_size_limit: Reals
    dataset_size: Reals

    def __init__(
        self, sampling_prob: ArrayLike, batch_size_limit: ArrayLike, dataset_size: ArrayLike
    ):
        prob = checks.probability("sampling_prob", sampling_prob, lift=True)
        limit = checks.whole("batch_size_limit", batch_size_limit, 1.0)
        size = checks.whole("dataset_size", dataset_size, 1.0, MOST_RECORDS)
        assign(self, sampling_prob=prob, batch_size_limit=limit, dataset_size=size)

    @classmethod
    def of(cls, training: TrainingSizes) -> tuple[Scheme, Reals]:
        """See `Scheme.of`."""
        assert training.batch_size_limit is not None
        size = training.public_size("truncated")
        return cls(training.rate, training.batch_size_limit, size), training.steps

    def pairs(self, noise: Noise, sensitivity: Reals, relation: Relation, group_size: int) -> Pairs:
        """A public coin between a batch that is not full and one that is; see `Scheme.pairs`."""
        q, zero = self.sampling_prob, xp.zeros(())
        sizes = checks.guard(q, 1.0), self.batch_size_limit, self.dataset_size
        log_full, log_not_full, rate = _full_batch(*xp.broadcast_arrays(*sizes))
        not_full: DominatingPair = PoissonPair(Additive(noise, sensitivity), q, zero)
        if relation == "replace_one":
            not_full = Replaced(noise, sensitivity, q)
            displaced = FixedBatch(noise, 2.0 * sensitivity, rate)
        elif relation == "zero_out":
            displaced = zeroed_in_full_batch(noise, sensitivity, rate)
        else:
            displaced = PoissonPair(Additive(noise, 2.0 * sensitivity), rate, zero)
        shares = log_not_full, log_full
        shape = xp.broadcast_shapes(*(xp.shape(x) for x in (*shares, sensitivity)))
        coin = PublicCoin((not_full, displaced), [xp.broadcast_to(s, shape) for s in shares])
        return ((coin, 1),)

    @property
    def rate(self) -> Reals:
        """See `Scheme.rate`: before the truncation."""
        return self.sampling_prob

    def draw(self, key: Key, records: int) -> Callable[[int], Batch]:
        """See `Scheme.draw`."""
        require_neighbour_size(self.dataset_size, records)
        limit = int(self.batch_size_limit)

        def batch(index: int) -> Batch:
            indices, mask = _truncated(key, index, self.sampling_prob, records, limit)
            return np.asarray(indices), np.asarray(mask)

        return batch

    def statement(self) -> SamplingStatement:
        """See `Scheme.statement`."""
        q, limit, size = (
            float(np.asarray(x).item())
            for x in (self.sampling_prob, self.batch_size_limit, self.dataset_size)
        )
        return SamplingStatement(
            f"each of {size:,.0f} records is drawn with probability {q:g}, independently, and at "
            f"most {limit:,.0f} of them, uniformly, are kept (truncated Poisson)",
            (
                "every batch is a Poisson sample drawn anew, cut by a uniform choice where it is "
                "larger than the limit, and never filled up with other records",
                "the size of the data set, the larger of two neighbours', is public",
            ),
        )


def zeroed_in_full_batch(noise: Noise, sensitivity: Reals, rate: Reals) -> GaussianMixture:
    """The pair of a zeroed record that displaces another: shifts of 2 and -1 sensitivities.

    Source: arXiv:2508.15089, a theorem; loose.
    """
    assert isinstance(noise, Gaussian)
    zero = xp.zeros_like(sensitivity)
    log_rate = xp.where(rate > 0, xp.log(xp.where(rate > 0, rate, 1.0)), -xp.inf)
    logs = xp.log1p(-rate), log_rate
    up, down = (zero, 2.0 * sensitivity), (zero, sensitivity)
    return GaussianMixture.from_fields(up, logs, down, logs, noise.scale)


@opened()
@functools.partial(jax.jit, static_argnums=(3, 4))
def _truncated(
    key: Key, index: jax.Array | int, sampling_prob: Reals, records: int, limit: int
) -> tuple[jax.Array, jax.Array]:
    drawing, ordering = jax.random.split(step_key(key, index))
    is_drawn = jax.random.uniform(drawing, (records,), dtype=jnp.float64) < sampling_prob
    rank = jax.random.uniform(ordering, (records,), dtype=jnp.float64)
    # A uniform order of the records that were drawn, before all others.
    order = jnp.argsort(jnp.where(is_drawn, rank, 2.0))
    place = jnp.pad(order[:limit], (0, max(limit - records, 0)))
    return place, is_drawn[place] & (jnp.arange(limit) < records)


@jitted
def _full_batch(q: Reals, limit: Reals, size: Reals) -> tuple[Reals, Reals, Reals]:
    """Upper bounds on log tau, log(1 - tau) and q', with tau the probability of a full batch.

    tau = P[M >= B], where M ~ Bin(n - 1, q) is the number of other records that are sampled. In a
    full batch the record displaces another one with probability q' = E[q B / (M + 1) | M >= B] =
    (B / n) P[Bin(n, q) > B] / tau.
    """
    log_full, log_not_full = log_binomial_tails(size - 1.0, limit, q)
    log_beyond = log_binomial_tails(size, limit + 1.0, q)[0]
    impossible = limit > size - 1.0
    log_ratio = xp.where(impossible, 0.0, log_beyond - log_full)
    rate = xp.where(limit < size, limit / size, 1.0) * xp.exp(log_ratio)
    rounding = _MARGIN * (1.0 + xp.where(impossible, 0.0, xp.abs(log_full)))
    rate = xp.minimum(rate * (1.0 + rounding), 1.0)
    log_full = xp.maximum(log_full, _LEAST_LOG_FULL) * (1.0 - _MARGIN) + _MARGIN
    log_full = xp.where(impossible, -xp.inf, xp.minimum(log_full, 0.0))
    log_not_full = xp.minimum(log_not_full * (1.0 - _MARGIN), 0.0)
    log_not_full = xp.where(impossible, 0.0, xp.maximum(log_not_full, _LEAST_LOG_FULL))
    rate = xp.where(impossible | (q == 0), 0.0, rate)
    return log_full, log_not_full, xp.where(xp.isnan(q + limit + size), xp.nan, rate)
