"""Kinds of release with their parameters, counted, and the loss of many of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.neighbours import Relation
from jaxdp.composition.privacy_loss import privacy_loss
from jaxdp.dominating_pair.known_guarantee import RandomisedResponse
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

# What keeps to stated Renyi divergences and has no worst loss.
STATED_ZCDP = "zcdp"
# The best of a random number of runs: (mean, shape, frozenset of (release, count) of one run).
SELECTED = "selected"
# Poisson samples of noise at a sensitivity of 1: the noise, and what becomes of a record.
SAMPLED: dict[str, tuple[type[Gaussian] | type[Laplace], Relation]] = {
    "sampled_gaussian": (Gaussian, "add_remove"),
    "sampled_laplace": (Laplace, "add_remove"),
    "replaced_gaussian": (Gaussian, "replace_one"),
    "replaced_laplace": (Laplace, "replace_one"),
}


class Release(NamedTuple):
    """One kind of release with its parameters: what is equal is counted, not listed."""

    kind: str
    parameters: tuple[Any, ...]


# An event that costs nothing, and one that costs everything.
NOTHING = Release("nothing", ())
EVERYTHING = Release("everything", ())


def zcdp_of(counts: dict[Release, float]) -> ZCDP:
    """Total zCDP of the events that state zCDP, rounded up."""
    stated = [(n, *r.parameters) for r, n in counts.items() if r.kind == STATED_ZCDP]
    numbers, xi, rho = np.array(stated or [(0.0, 0.0, 0.0)]).T
    round_up = 1.0 + 4e-16 * (2.0 + numbers.size)
    return ZCDP(float(numbers @ xi) * round_up, float(numbers @ rho) * round_up)


def loss_of_kind(kind: str, numbers: np.ndarray, first: np.ndarray, *second: np.ndarray):
    """The loss of all releases of one kind, whose parameters are columns."""
    if kind == "gaussian":
        # Gaussians compose to one: upwards, by what the square root and the sum lose.
        size = np.sqrt(np.sum(numbers * (second[0] / first) ** 2))
        return privacy_loss(GDP(size * (1.0 + 4e-16 * (2.0 + numbers.size))))
    if kind == "laplace":
        loss = privacy_loss(Mechanism(Laplace(first), second[0]))
    elif kind == "discrete_gaussian":
        loss = privacy_loss(Mechanism(DiscreteGaussian(first), second[0]))
    elif kind == "discrete_laplace":
        loss = privacy_loss(Mechanism(DiscreteLaplace((1.0 - 4e-16) / first), second[0]))
    elif kind in SAMPLED:
        noise, relation = SAMPLED[kind]
        loss = privacy_loss(Mechanism(noise(first), 1.0, second[0], relation))
    elif kind == "sampled_discrete_laplace":
        noise = DiscreteLaplace((1.0 - 4e-16) / first)
        loss = privacy_loss(Mechanism(noise, second[0], second[1], "add_remove"))
    elif kind == "response":
        loss = privacy_loss(RandomisedResponse(first, second[0]))
    elif kind == "pure":
        loss = privacy_loss(PureDP(first))
    elif kind == "approximate":
        loss = privacy_loss(ApproxDP(first, second[0]))
    else:
        loss = privacy_loss(ExponentialMechanism(first))
    return (numbers * loss).sum()
