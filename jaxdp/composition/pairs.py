"""The dominating pair of one release, from its mechanism or its guarantee.

Every array of a pair has a last axis of 1, along which releases compose.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import Relation
from jaxdp._core.types import Reals
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.finite import worst_of_shifts
from jaxdp.dominating_pair.known_guarantee import BoundedRange, Response
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.replaced import Replaced
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.mechanism import Mechanism, directions
from jaxdp.noise.base import Noise
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.sampling.base import Pairs, Release, pairs_of


def pair_of(
    release: Mechanism | Guarantee | ExponentialMechanism | DominatingPair,
) -> tuple[DominatingPair, Relation | None]:
    """The dominating pair of a release, and its relation: the worse of two directions if it has."""
    if isinstance(release, DominatingPair):
        return _expanded(release), None
    if not isinstance(release, Mechanism):
        return _worst_of(release), None
    if release.sampling is not None:
        raise TypeError("a release of a scheme may be several pairs: use releases_of")
    sampling_prob = release.sampling_prob[..., None]
    if release.relation == "replace_one":
        noise, shift = _expanded((release.noise, release.sensitivity))
        return Replaced(noise, shift, sampling_prob), release.relation
    pair = _added_to(release.noise, release.sensitivity)
    if release.sampled:
        pair = Poisson(pair, sampling_prob, directions(release.relation)[0])
    return pair, release.relation


def releases_of(
    release: Mechanism | Guarantee | ExponentialMechanism | DominatingPair,
) -> tuple[Pairs, Relation | None]:
    """The dominating pairs that compose a release with their counts, and its relation."""
    if not isinstance(release, Mechanism) or release.sampling is None:
        pair, relation = pair_of(release)
        return ((pair, 1),), relation
    assert release.relation is not None
    scheme, noise, sensitivity = _expanded((release.sampling, release.noise, release.sensitivity))
    expanded = Release(noise, sensitivity, release.relation, release.group_size)
    return pairs_of(scheme, expanded), release.relation


def _added_to(noise: Noise, sensitivity: Reals) -> DominatingPair:
    """The pair of a release that is not sampled."""
    if not isinstance(noise, Histogram | DiscreteHistogram):
        return Additive(*_expanded((noise, sensitivity)))
    parameters = (*jax.tree.leaves(noise), sensitivity)
    if not all(checks.is_concrete(x) and xp.ndim(x) == 0 for x in parameters):
        raise ValueError(
            "the width and the sensitivity of a Histogram must be one concrete number each: "
            "compose its releases by n * loss and a + b"
        )
    return worst_of_shifts(noise, float(sensitivity))


def _worst_of(guarantee: Guarantee | ExponentialMechanism) -> DominatingPair:
    """The pair of the worst mechanism that keeps a guarantee."""
    guarantee = _expanded(guarantee)
    if isinstance(guarantee, GDP):
        return Additive(Gaussian(1.0), guarantee.mu)
    if isinstance(guarantee, PureDP):
        return Response(guarantee.epsilon_bound, 0.0)
    if isinstance(guarantee, ApproxDP):
        return Response(guarantee.epsilon_bound, guarantee.delta_bound)
    if isinstance(guarantee, ExponentialMechanism):
        return BoundedRange(guarantee.epsilon_bound)
    raise TypeError(
        f"{type(guarantee).__name__} has no worst mechanism: compose it as it is, or convert it"
    )


@jitted
def _expanded(tree: Any) -> Any:
    """Every array with a last axis of 1, along which releases compose."""
    return jax.tree.map(lambda x: xp.asarray(x)[..., None], tree)
