"""Poisson samples that are cut to a limit, as batches of a static shape need."""

from __future__ import annotations

from typing import NamedTuple, final

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import ADD_REMOVE, RELATIONS
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.binomial import log_binomial_tails
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.fixed_batch import FixedBatch
from jaxdp.dominating_pair.gaussian_mixture import GaussianMixture
from jaxdp.dominating_pair.poisson import Poisson as PoissonPair
from jaxdp.dominating_pair.public_coin import PublicCoin
from jaxdp.dominating_pair.replaced import Replaced
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import MOST_RECORDS, Pairs, Release, Scheme, require_known

# log of the probability of a full batch, at least. derived: less is no double
_LEAST_LOG_FULL = -690.0
# By how much log probabilities are rounded up, times their size. measured: they err by 1e-13
_ROUNDED = 1e-12


class Fullness(NamedTuple):
    """Probabilities that the others alone fill a batch, and of the record then; rounded up."""

    log_full: Reals  # log P[Bin(n - 1, q) >= B]
    log_not_full: Reals
    rate: Reals  # of the record to be in the batch, in another's place, given that it is full


@final
@in_float64
@pytree
class TruncatedPoisson(Scheme):
    """A Poisson sample of which at most `batch_size_limit` records are kept, drawn uniformly.

    Args:
        sampling_prob: with which every record is drawn, on its own.
        batch_size_limit: records that a batch holds at most; filling it up changes nothing.
        dataset_size: records of the larger of two neighbours, public. A data set of n has
            neighbours of n - 1 and of n + 1: ask for n and for n + 1, the worse counts.

    Where the others fill the batch the record comes in another's place, and the sum moves by two
    sensitivities: a limit near the mean is ruinous, 1.25 times the mean costs nothing
    (`dp.dpsgd.batch_size_limit`). Divide by the expected size, not by the one that is kept.
    Relations: "add_remove", "add", "remove" of any noise; "zero_out" and "replace_one" of the
    Gaussian. No groups. Not for Renyi accounting: the rare full batch rules high orders.
    Source: section 5.2 of Google's Privacy Loss Distributions for the two cases; the rates are
    ours, exact, and so is the pair of "replace_one", which is tighter than the published one.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.TruncatedPoisson(256 / 60_000, 300, 60_000)
    >>> step = dp.Mechanism(dp.Gaussian(1.1), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{(3516 * dp.privacy_loss(step)).epsilon(1e-5):.4f}")
    2.3853
    """

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

    def fullness(self) -> Fullness:
        """Probability of a full batch, and the rate of the record there."""
        q = checks.guard(self.sampling_prob, 1.0)
        return _fullness(*xp.broadcast_arrays(q, self.batch_size_limit, self.dataset_size))

    def require(self, release: Release) -> None:
        """See `Scheme.require`."""
        require_known(self, release, RELATIONS, any_noise=ADD_REMOVE)

    def pairs(self, release: Release) -> Pairs:
        """A public coin between a batch that is not full and one that is; see `Scheme.pairs`."""
        noise, shift = release.noise, release.sensitivity
        full, q, zero = self.fullness(), self.sampling_prob, xp.zeros(())
        not_full: DominatingPair = PoissonPair(Additive(noise, shift), q, zero)
        if release.relation == "replace_one":
            not_full = Replaced(noise, shift, q)
            cut = FixedBatch(noise, 2.0 * shift, full.rate)
        elif release.relation == "zero_out":
            cut = zeroed_in_full_batch(release, full.rate)
        else:
            cut = PoissonPair(Additive(noise, 2.0 * shift), full.rate, zero)
        shares = full.log_not_full, full.log_full
        shape = xp.broadcast_shapes(*(xp.shape(x) for x in (*shares, shift)))
        return ((PublicCoin((not_full, cut), [xp.broadcast_to(s, shape) for s in shares]), 1),)


def zeroed_in_full_batch(release: Release, rate: Reals) -> GaussianMixture:
    """A record that is zeroed takes another's place: two sensitivities against one, opposite.

    Source: arXiv:2508.15089, a theorem; loose.
    """
    assert isinstance(release.noise, Gaussian)
    zero = xp.zeros_like(release.sensitivity)
    logs = xp.log1p(-rate), xp.log(xp.where(rate > 0, rate, 1.0))
    logs = logs[0], xp.where(rate > 0, logs[1], -xp.inf)
    up, down = (zero, 2.0 * release.sensitivity), (zero, release.sensitivity)
    return GaussianMixture.of_logs(up, logs, release.noise.scale, down, logs)


@jitted
def _fullness(q: Reals, limit: Reals, size: Reals) -> Fullness:
    """tau = P[Bin(n - 1, q) >= B] and q' = (B / n) P[Bin(n, q) > B] / tau.

    q' = E[q B / (M + 1) | M >= B] of M others that are drawn.
    """
    log_full, log_not_full = log_binomial_tails(size - 1.0, limit, q)
    log_beyond = log_binomial_tails(size, limit + 1.0, q)[0]
    impossible = limit > size - 1.0
    log_ratio = xp.where(impossible, 0.0, log_beyond - log_full)
    rate = xp.where(limit < size, limit / size, 1.0) * xp.exp(log_ratio)
    rounding = _ROUNDED * (1.0 + xp.where(impossible, 0.0, xp.abs(log_full)))
    rate = xp.minimum(rate * (1.0 + rounding), 1.0)
    log_full = xp.maximum(log_full, _LEAST_LOG_FULL) * (1.0 - _ROUNDED) + _ROUNDED
    log_full = xp.where(impossible, -xp.inf, xp.minimum(log_full, 0.0))
    log_not_full = xp.minimum(log_not_full * (1.0 - _ROUNDED), 0.0)
    log_not_full = xp.where(impossible, 0.0, xp.maximum(log_not_full, _LEAST_LOG_FULL))
    rate = xp.where(impossible, 0.0, xp.where(q == 0, 0.0, rate))
    return Fullness(log_full, log_not_full, xp.where(xp.isnan(q + limit + size), xp.nan, rate))
