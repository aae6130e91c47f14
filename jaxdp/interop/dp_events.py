"""Releases of dp_accounting's events, as kinds with parameters, and the loss of many."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core import checks
from jaxdp.dominating_pair.known_guarantee import RandomisedResponse
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.mechanism import Mechanism, Relation
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.privacy_loss import PrivacyLoss, privacy_loss

# Events that some versions of dp_accounting lack.
_STATED = {
    "ExponentialMechanismDpEvent": ("exponential", ("epsilon",)),
    "EpsilonDeltaDpEvent": ("approximate", ("epsilon", "delta")),
}
# What keeps to stated Renyi divergences and has no worst loss.
STATED_ZCDP = "zcdp"
# Poisson samples of noise at a sensitivity of 1: the noise, and what becomes of a record.
_SAMPLED: dict[str, tuple[type[Gaussian] | type[Laplace], Relation]] = {
    "sampled_gaussian": (Gaussian, "add_remove"),
    "sampled_laplace": (Laplace, "add_remove"),
    "replaced_gaussian": (Gaussian, "replace_one"),
    "replaced_laplace": (Laplace, "replace_one"),
}


class Release(NamedTuple):
    """One kind of release with its parameters: what is equal is counted, not listed."""

    kind: str
    parameters: tuple[float, ...]


# An event that costs nothing, and one that costs everything.
NOTHING = Release("nothing", ())
EVERYTHING = Release("everything", ())


class UnsupportedError(Exception):
    """An event that cannot be accounted for, and why."""

    def __init__(self, event: Any, reason: str):
        super().__init__(reason)
        self.event, self.reason = event, reason


def collect(
    package: Any, relation: Any, event: Any, count: int, found: dict[Release, float]
) -> None:
    """The releases of `event`, `count` times, added to `found`."""
    if not (count >= 0 and float(count).is_integer()):
        raise UnsupportedError(event, f"The count must be whole and not negative, got {count}.")
    events = package.dp_event
    if isinstance(event, events.SelfComposedDpEvent):
        # The count of the event is looked at on its own: two negative ones are no count.
        inner: dict[Release, float] = {}
        collect(package, relation, event.event, event.count, inner)
        for release, often in inner.items():
            found[release] = found.get(release, 0.0) + count * often
        return
    if isinstance(event, events.PoissonSampledDpEvent) and event.sampling_probability == 1:
        collect(package, relation, event.event, count, found)
        return
    if isinstance(event, events.ComposedDpEvent):
        for part in event.events:
            collect(package, relation, part, count, found)
        return
    try:
        release = _release_of(package, relation, event)
    except ValueError as error:
        raise UnsupportedError(event, f"Bad parameters: {error}.") from error
    if release != NOTHING and count > 0:
        found[release] = found.get(release, 0.0) + count


def _release_of(package: Any, relation: Any, event: Any) -> Release:
    """One event that is no composition; bad parameters raise `ValueError`."""
    events, relations = package.dp_event, package.NeighboringRelation
    moves = 2.0 if relation == relations.REPLACE_ONE else 1.0
    if isinstance(event, events.NoOpDpEvent):
        return NOTHING
    if isinstance(event, events.NonPrivateDpEvent):
        return EVERYTHING
    if isinstance(event, events.GaussianDpEvent):
        return _noisy("gaussian", event.noise_multiplier, moves)
    if isinstance(event, events.LaplaceDpEvent):
        return _noisy("laplace", event.noise_multiplier, moves)
    if isinstance(event, events.DiscreteLaplaceDpEvent):
        parameter = _number("noise_parameter", event.noise_parameter, math.inf)
        sensitivity = float(checks.whole("sensitivity", event.sensitivity)) * moves
        if sensitivity == 0 or parameter == math.inf:
            return NOTHING
        return Release("discrete_laplace", (parameter, sensitivity)) if parameter else EVERYTHING
    if isinstance(event, events.RandomizedResponseDpEvent):
        if relation == relations.ADD_OR_REMOVE_ONE:
            raise UnsupportedError(
                event,
                "RandomizedResponseDpEvent needs REPLACE_ONE or REPLACE_SPECIAL: it says nothing "
                "of an answer that is left out.",
            )
        return _response(event, relation == relations.REPLACE_ONE)
    if isinstance(event, events.ZCDpEvent):
        xi, rho = (_number(name, getattr(event, name), math.inf) for name in ("xi", "rho"))
        if math.inf in (xi, rho):
            return EVERYTHING
        return Release(STATED_ZCDP, (xi, rho)) if max(xi, rho) > 0 else NOTHING
    if isinstance(event, events.PoissonSampledDpEvent):
        return _sampled(package, relation, event)
    for name, (kind, parameters) in _STATED.items():
        if isinstance(event, getattr(events, name, ())):
            values = [_number(key, getattr(event, key), math.inf) for key in parameters]
            for key, value in zip(parameters, values, strict=True):
                checks.real(key, value, 0.0, 1.0 if key == "delta" else math.inf)
            return Release(kind, tuple(values))
    raise UnsupportedError(
        event, f"{type(event).__name__} is not one of the events whose exact loss is known."
    )


def _number(name: str, value: Any, upper: float) -> float:
    return float(checks.real(name, value, 0.0, upper))


def _noisy(kind: str, noise_multiplier: Any, moves: float) -> Release:
    scale = _number("noise_multiplier", noise_multiplier, math.inf)
    if scale == 0:
        return EVERYTHING
    return NOTHING if scale == math.inf else Release(kind, (scale, moves))


def _response(event: Any, replaced: bool) -> Release:
    p = _number("noise_parameter", event.noise_parameter, 1.0)
    buckets = float(checks.whole("num_buckets", event.num_buckets, 1.0))
    if buckets == 1 or p == 1:
        return NOTHING
    if p == 0:
        return EVERYTHING
    if replaced:
        # log((1 - p + p / k) / (p / k)), rounded up.
        bound = math.log1p(buckets * (1.0 - p) / p) * (1.0 + 1e-15)
        return Release("response", (bound, buckets)) if buckets > 2 else Release("pure", (bound,))
    # To or from the uniform law: the larger of its two losses.
    special = max(math.log1p((buckets - 1.0) * (1.0 - p)), -math.log(p))
    return Release("pure", (special * (1.0 + 1e-15),))


def _sampled(package: Any, relation: Any, event: Any) -> Release:
    """A Poisson sample of one noise, or of Gaussians, which together are one Gaussian."""
    rate = _number("sampling_probability", event.sampling_probability, 1.0)
    inner: dict[Release, float] = {}
    collect(package, relation, event.event, 1, inner)
    if rate == 0 or not inner:
        return NOTHING
    if EVERYTHING in inner:
        return EVERYTHING
    kinds = {release.kind for release in inner}
    how = "replaced" if relation == package.NeighboringRelation.REPLACE_ONE else "sampled"
    if kinds == {"gaussian"}:
        ratio = math.sqrt(sum(n / r.parameters[0] ** 2 for r, n in inner.items()))
        scale = next(iter(inner)).parameters[0]
        if sum(inner.values()) > 1:
            scale = (1.0 - 1e-15) / ratio
        return Release(f"{how}_gaussian", (scale, rate))
    alone = sum(inner.values()) == 1
    release = next(iter(inner))
    if alone and kinds == {"laplace"}:
        return Release(f"{how}_laplace", (release.parameters[0], rate))
    if alone and kinds == {"discrete_laplace"} and how == "sampled":
        return Release("sampled_discrete_laplace", (*release.parameters, rate))
    if alone and release.kind in (*_SAMPLED, "sampled_discrete_laplace"):
        both = min(rate * release.parameters[-1] * (1.0 + 1e-15), 1.0)
        return Release(release.kind, (*release.parameters[:-1], both))
    raise UnsupportedError(
        event,
        "A PoissonSampledDpEvent must hold one LaplaceDpEvent, GaussianDpEvents alone, or where "
        "no record is replaced one DiscreteLaplaceDpEvent: the loss of a sample of "
        f"{', '.join(sorted(kinds))} is not known.",
    )


def zcdp_of(counts: dict[Release, float]) -> ZCDP:
    """Total zCDP of the events that state zCDP, rounded up."""
    stated = [(n, *r.parameters) for r, n in counts.items() if r.kind == STATED_ZCDP]
    often, xi, rho = np.array(stated).T
    up = 1.0 + 4e-16 * (2.0 + often.size)
    return ZCDP(float(often @ xi) * up, float(often @ rho) * up)


def loss_of(counts: dict[Release, float]) -> PrivacyLoss:
    """One batch for every kind, summed."""
    kinds: dict[str, list[tuple[float, ...]]] = {}
    for release, often in counts.items():
        kinds.setdefault(release.kind, []).append((often, *release.parameters))
    losses = [_loss_of_kind(kind, *np.array(rows).T) for kind, rows in kinds.items()]
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    return total


def _loss_of_kind(kind: str, often: np.ndarray, first: np.ndarray, *second: np.ndarray):
    if kind == "gaussian":
        # Gaussians compose to one: upwards, by what the square root and the sum lose.
        size = np.sqrt(np.sum(often * (second[0] / first) ** 2))
        return privacy_loss(GDP(size * (1.0 + 4e-16 * (2.0 + often.size))))
    if kind == "laplace":
        one = privacy_loss(Mechanism(Laplace(first), second[0]))
    elif kind == "discrete_laplace":
        one = privacy_loss(Mechanism(DiscreteLaplace((1.0 - 4e-16) / first), second[0]))
    elif kind in _SAMPLED:
        noise, relation = _SAMPLED[kind]
        one = privacy_loss(Mechanism(noise(first), 1.0, second[0], relation))
    elif kind == "sampled_discrete_laplace":
        noise = DiscreteLaplace((1.0 - 4e-16) / first)
        one = privacy_loss(Mechanism(noise, second[0], second[1], "add_remove"))
    elif kind == "response":
        one = privacy_loss(RandomisedResponse(first, second[0]))
    elif kind == "pure":
        one = privacy_loss(PureDP(first))
    elif kind == "approximate":
        one = privacy_loss(ApproxDP(first, second[0]))
    else:
        one = privacy_loss(ExponentialMechanism(first))
    return (often * one).sum()
