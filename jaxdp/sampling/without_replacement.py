"""Batches of a fixed size, drawn anew for every release, without replacement."""

from __future__ import annotations

import math
from typing import final

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import ADD_REMOVE, RELATIONS
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log1m
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.fixed_batch import FixedBatch
from jaxdp.dominating_pair.poisson import Poisson as PoissonPair
from jaxdp.dominating_pair.sampled_group import SampledGroup
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import MOST_RECORDS, Pairs, Release, Scheme, require_known
from jaxdp.sampling.poisson import require_few
from jaxdp.sampling.truncated import zeroed_in_full_batch


@final
@in_float64
@pytree
class WithoutReplacement(Scheme):
    """Exactly `batch_size` of `dataset_size` records, drawn uniformly, anew in every release.

    Args:
        batch_size: records of a batch, the same for both neighbours.
        dataset_size: records of the larger of two neighbours, public.

    A record takes another's place, so that the sum moves by two sensitivities. Relations:
    "add_remove", "add", "remove" of any noise, attained; "replace_one" and "zero_out" of the
    Gaussian. "replace_one" is certain by the envelope `FixedBatch`; its composition is not
    attained: the worst attack that is known is the composition of "remove", a lower bound. Groups
    of up to 128 records under "add_remove", "add", "remove", for the Gaussian.
    Source: Zhu, Dong & Wang, AISTATS 2022, theorem 11; Balle, Barthe & Gaboardi, NeurIPS 2018.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.WithoutReplacement(256, 60_000)
    >>> step = dp.Mechanism(dp.Gaussian(1.1), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{(3516 * dp.privacy_loss(step)).epsilon(1e-5):.4f}")
    7.8170
    """

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

    def require(self, release: Release) -> None:
        """See `Scheme.require`."""
        require_known(self, release, RELATIONS, groups=ADD_REMOVE, any_noise=ADD_REMOVE)
        require_few(release)

    def pairs(self, release: Release) -> Pairs:
        """One pair a release; see `Scheme.pairs`."""
        return ((self._pair(release), 1),)

    def _pair(self, release: Release) -> DominatingPair:
        batch, size = xp.broadcast_arrays(self.batch_size, self.dataset_size)
        rate = checks.guard(batch / size, 1.0)
        shift = 2.0 * release.sensitivity
        if release.group_size > 1:
            return _group(release, batch, size)
        if release.relation == "replace_one":
            return FixedBatch(release.noise, shift, rate)
        if release.relation == "zero_out":
            return zeroed_in_full_batch(release, rate)
        return PoissonPair(Additive(release.noise, shift), rate, xp.zeros(()))


def _group(release: Release, batch: Reals, size: Reals) -> SampledGroup:
    """Hypergeometrically many records of a group take others' places."""
    k = release.group_size
    shares = [_log_hypergeometric(j, k, batch, size) for j in range(k + 1)]
    assert isinstance(release.noise, Gaussian)
    return SampledGroup(release.noise, 2.0 * release.sensitivity, shares)


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
