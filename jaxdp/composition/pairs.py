"""The dominating pair of one release, from its mechanism or its guarantee.

Every array of a pair has a last axis of 1, along which releases compose.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxdp._core.compilation import jitted
from jaxdp._core.neighbours import Relation
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.finite import adds_histogram, with_worst_shifts
from jaxdp.dominating_pair.known_guarantee import BoundedRange, Response
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise, expanded
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import Pairs

_expanded = jitted(expanded)


def pairs_of(
    release: Mechanism | Guarantee | ExponentialMechanism | DominatingPair,
) -> tuple[Pairs, Relation | None]:
    """The dominating pairs that compose a release, with counts, and its relation."""
    one: Any = _expanded(release)
    if isinstance(one, Mechanism):
        return tuple((_composable(pair), count) for pair, count in one.pairs()), one.relation
    pair = one if isinstance(one, DominatingPair) else _worst_of(one)
    return ((pair, 1),), None


def _composable(pair: DominatingPair) -> DominatingPair:
    """The pair, with the worst of all shifts of each histogram."""
    found = with_worst_shifts(pair)
    if any(map(adds_histogram, jax.tree.leaves(found, is_leaf=adds_histogram))):
        raise ValueError(
            "the width and the sensitivity of a Histogram must be one concrete number each: "
            "compose its releases by n * loss and a + b"
        )
    return found


def _worst_of(guarantee: Guarantee | ExponentialMechanism) -> DominatingPair:
    """The pair of the worst mechanism that satisfies a guarantee."""
    if isinstance(guarantee, GDP):
        return Additive(Gaussian(1.0), guarantee.mu)
    if isinstance(guarantee, PureDP):
        return Response(guarantee.epsilon_bound, 0.0)
    if isinstance(guarantee, ApproxDP):
        return Response(guarantee.epsilon_bound, guarantee.delta_bound)
    if isinstance(guarantee, ExponentialMechanism):
        return BoundedRange(guarantee.epsilon_bound)
    name = type(guarantee).__name__
    hint = ""
    if isinstance(guarantee, Noise):
        hint = f": write dp.Mechanism({name}(...), sensitivity)"
    elif hasattr(guarantee, "log_delta"):
        hint = ": compose it by + and * as it is"
    raise TypeError(
        "mechanism must be a Mechanism, an ExponentialMechanism, a PureDP, ApproxDP or GDP, or a "
        f"dominating pair, got {name}{hint}"
    )
