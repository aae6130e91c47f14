"""Kinds of release with their parameters, counted, and the loss of many of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.neighbours import Relation
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.dominating_pair.gaussian_mixture import GaussianMixture
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
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement

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
# Prefixes of kinds of release. chosen: distinct; the relation, or the number of sizes, follows
TRUNCATED = "truncated_"
FIXED = "fixed_"
MIXTURE = "mixture_"


class Release(NamedTuple):
    """One kind of release with its parameters: what is equal is counted, not listed."""

    kind: str
    parameters: tuple[Any, ...]


# An event that costs nothing, and one that costs everything.
NOTHING = Release("nothing", ())
EVERYTHING = Release("everything", ())


def everything_of(rate: float) -> Release:
    """A release that costs everything, of a sample that holds the record with this probability.

    Whatever the sampling scheme, two neighbours' outputs differ at most that often.
    """
    return EVERYTHING if rate >= 1 else Release("approximate", (0.0, rate))


def zcdp_of(counts: dict[Release, float]) -> ZCDP:
    """Total zCDP of the events that state zCDP, rounded up."""
    stated = [(n, *r.parameters) for r, n in counts.items() if r.kind == STATED_ZCDP]
    numbers, xi, rho = np.array(stated or [(0.0, 0.0, 0.0)]).T
    round_up = 1.0 + 4e-16 * (2.0 + numbers.size)
    return ZCDP(float(numbers @ xi) * round_up, float(numbers @ rho) * round_up)


def loss_of(counts: dict[Release, float]) -> PrivacyLoss:
    """The loss of counted releases of all kinds: one batch for every kind, summed."""
    kinds: dict[str, list[tuple[float, ...]]] = {}
    for release, count in counts.items():
        kinds.setdefault(release.kind, []).append((count, *release.parameters))
    losses = [_loss_of_kind(kind, *np.array(rows).T) for kind, rows in kinds.items()]
    return functools.reduce(operator.add, losses)


def _loss_of_kind(kind: str, numbers: np.ndarray, *columns: np.ndarray) -> PrivacyLoss:
    """The loss of all releases of one kind, whose parameters are columns."""
    if kind == "gaussian":
        # Gaussians compose to one: upwards, by what the square root and the sum lose.
        size = np.sqrt(np.sum(numbers * (columns[1] / columns[0]) ** 2))
        return privacy_loss(GDP(size * (1.0 + 4e-16 * (2.0 + numbers.size))))
    if kind.startswith(MIXTURE):
        count = int(kind.removeprefix(MIXTURE))
        scale, sizes, shares = columns[0], columns[1 : 1 + count], columns[1 + count :]
        pair = GaussianMixture(list(sizes), list(shares), scale)
        return (numbers * privacy_loss(pair, "add_remove")).sum()
    loss = _scheme_loss(kind, *columns)
    return (numbers * (loss or privacy_loss(_KINDS[kind](*columns)))).sum()


def _scheme_loss(kind: str, scale: np.ndarray, *columns: np.ndarray) -> PrivacyLoss | None:
    """The loss of one release by a sampling scheme, batched; None for another kind."""
    for start, scheme in ((TRUNCATED, TruncatedPoisson), (FIXED, WithoutReplacement)):
        if kind.startswith(start):
            relation: Any = kind.removeprefix(start)
            mechanism = Mechanism(
                Gaussian(scale), 1.0, sampling=scheme(*columns), relation=relation
            )
            loss = privacy_loss(mechanism)
            # A record that adds nothing is the special one: both directions count.
            return PrivacyLoss(loss.terms, "add_remove") if relation == "zero_out" else loss
    return None


def _sampled(noise: Callable[[Any], Any], relation: Relation, scale: Any, prob: Any) -> Mechanism:
    return Mechanism(noise(scale), 1.0, prob, relation)


def _discrete_laplace(scale: Any) -> DiscreteLaplace:
    return DiscreteLaplace((1.0 - 4e-16) / scale)


# One release of each kind, from its parameters.
_KINDS: dict[str, Callable[..., Any]] = {
    "laplace": lambda scale, shift: Mechanism(Laplace(scale), shift),
    "discrete_gaussian": lambda scale, shift: Mechanism(DiscreteGaussian(scale), shift),
    "discrete_laplace": lambda scale, shift: Mechanism(_discrete_laplace(scale), shift),
    "sampled_discrete_laplace": lambda scale, shift, prob: Mechanism(
        _discrete_laplace(scale), shift, prob, "add_remove"
    ),
    **{kind: functools.partial(_sampled, *how) for kind, how in SAMPLED.items()},
    "response": RandomisedResponse,
    "pure": PureDP,
    "approximate": ApproxDP,
    "exponential": ExponentialMechanism,
}
