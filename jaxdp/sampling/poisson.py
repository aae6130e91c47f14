"""Poisson sampling: every record takes part on its own."""

from __future__ import annotations

import math
from typing import final

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import RELATIONS
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log1m, log_probability
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.gaussian_mixture import GaussianMixture
from jaxdp.dominating_pair.poisson import Poisson as PoissonPair
from jaxdp.dominating_pair.replaced import Replaced, require_log_concave
from jaxdp.dominating_pair.sampled_group import SampledGroup
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import Pairs, Release, Scheme, require_known

# Records of a user at most. chosen: each is a component, and brackets stay settled
MOST_RECORDS = 128


@final
@in_float64
@pytree
class Poisson(Scheme):
    """Every record takes part with probability `sampling_prob`, on its own: batches of any size.

    Relations: all; of "zero_out" what of "add_remove" is known. Groups of up to 128 records of one
    user, each sampled on its own, for Gaussian noise: binomial mixtures, tight.

    >>> import jaxdp as dp
    >>> step = dp.Mechanism(dp.Gaussian(1.0), 1.0, sampling=dp.sampling.Poisson(0.01),
    ...                     relation="add_remove", group_size=4)
    >>> print(f"{(100 * dp.privacy_loss(step)).epsilon(1e-6):.4f}")
    3.9930
    """

    sampling_prob: Reals

    def __init__(self, sampling_prob: ArrayLike):
        prob = checks.probability("sampling_prob", sampling_prob, lift=True)
        assign(self, sampling_prob=prob)

    def require(self, release: Release) -> None:
        """See `Scheme.require`."""
        require_known(self, release, RELATIONS, groups=RELATIONS, any_noise=RELATIONS)
        require_few(release)
        if release.relation == "replace_one":
            require_log_concave(release.noise)

    def pairs(self, release: Release) -> Pairs:
        """One pair a release; see `Scheme.pairs`."""
        return ((self._pair(release), 1),)

    def _pair(self, release: Release) -> DominatingPair:
        replaced, q = release.relation == "replace_one", self.sampling_prob
        if release.group_size > 1:
            return binomial_group(release, checks.guard(q, 1.0), replaced=replaced)
        if replaced:
            return Replaced(release.noise, release.sensitivity, q)
        return PoissonPair(Additive(release.noise, release.sensitivity), q, xp.zeros(()))


def require_few(release: Release) -> None:
    """ValueError for a user of too many records."""
    if release.group_size > MOST_RECORDS:
        raise ValueError(f"group_size must lie in [1, {MOST_RECORDS}], got {release.group_size}")


def binomial_group(release: Release, q: Reals, *, replaced: bool) -> DominatingPair:
    """Binomially many records of a group take part: on one side, or on both if it is replaced."""
    size = release.group_size
    log_hit, log_miss = log_probability(q), log1m(q)

    def log_share(k: int) -> Reals:
        # 0 log 0 is 0 here.
        hits = xp.zeros_like(q) if k == 0 else k * log_hit
        misses = xp.zeros_like(q) if k == size else (size - k) * log_miss
        return math.log(math.comb(size, k)) + hits + misses

    means = tuple(k * release.sensitivity for k in range(size + 1))
    shares = tuple(log_share(k) for k in range(size + 1))
    assert isinstance(release.noise, Gaussian)
    if not replaced:
        return SampledGroup(release.noise, release.sensitivity, shares)
    return GaussianMixture.of_logs(means, shares, release.noise.scale, means, shares)
