"""An accountant with the interface of Google's dp_accounting, on exact privacy losses.

`Accountant` is made when it is first asked for, because its base class is dp_accounting's own.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from jaxdp import _check
from jaxdp._types import RealLike
from jaxdp.exponential import ExponentialMechanism
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
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
# Poisson samples: the noise, and what becomes of a record.
_SAMPLED: dict[str, tuple[type[Gaussian] | type[Laplace], Relation]] = {
    "sampled_gaussian": (Gaussian, "add_remove"),
    "sampled_laplace": (Laplace, "add_remove"),
    "replaced_gaussian": (Gaussian, "replace_one"),
    "replaced_laplace": (Laplace, "replace_one"),
}


class _Release(NamedTuple):
    """One kind of release with its parameters: what is equal is counted, not listed."""

    kind: str
    parameters: tuple[float, ...]


_NOTHING = _Release("nothing", ())
_EVERYTHING = _Release("everything", ())


class _UnsupportedError(Exception):
    """An event that cannot be accounted for, and why."""

    def __init__(self, event: Any, reason: str):
        super().__init__(reason)
        self.event, self.reason = event, reason


def __getattr__(name: str) -> Any:
    if name == "Accountant":
        return _accountant()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _accountant() -> type:
    package = _check.extra("dp_accounting", "interop")
    relations = package.NeighboringRelation
    details = package.PrivacyAccountant.CompositionErrorDetails

    class Accountant(package.PrivacyAccountant):
        """A `dp_accounting.PrivacyAccountant` whose epsilon and delta are upper bounds.

        Events: NoOp, NonPrivate, Gaussian, Laplace, DiscreteLaplace, RandomizedResponse, what says
        epsilon (and delta) of itself where dp_accounting has it (the exponential mechanism by its
        bounded range), Poisson samples of a Laplace or of Gaussians, and compositions of all of
        these. Any other is unsupported, and the error says which and why.

        Relations: REPLACE_ONE moves a query by twice what adding or removing moves it; of Poisson
        samples see `Mechanism`. REPLACE_SPECIAL replaces by a record that adds nothing
        to a query. RandomizedResponse needs one of the two, and is taken for the worst mechanism
        of its largest loss: exact for two buckets under REPLACE_ONE, an upper bound else. A stated
        epsilon is taken to hold for the relation of the accountant.

        epsilon in nats; accuracy as in `PrivacyLoss.log_delta`. Bad parameters make an event
        unsupported; bad targets raise `ValueError`.
        """

        def __init__(self, neighboring_relation: Any = relations.ADD_OR_REMOVE_ONE):
            super().__init__(neighboring_relation)
            self._counts: dict[_Release, float] = {}

        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            found: dict[_Release, float] = {}
            try:
                _collect(package, self.neighboring_relation, event, count, found)
            except _UnsupportedError as error:
                return details(invalid_event=error.event, error_message=error.reason)
            if do_compose:
                for release, often in found.items():
                    self._counts[release] = self._counts.get(release, 0.0) + often
            return None

        def privacy_loss(self) -> PrivacyLoss:
            """The privacy loss of all that was composed; raises `ValueError` if it has none."""
            if _EVERYTHING in self._counts:
                raise ValueError("a NonPrivateDpEvent was composed: its loss is infinite")
            if not self._counts:
                raise ValueError("nothing was composed: there is no loss")
            return _loss_of(self._counts)

        def get_epsilon(self, target_delta: RealLike) -> float:
            """The least epsilon >= 0 that has been shown at `target_delta`, in [0, 1]."""
            delta = _check.probability("target_delta", target_delta)
            if _EVERYTHING in self._counts:
                return math.inf
            return float(self.privacy_loss().epsilon(delta)) if self._counts else 0.0

        def get_delta(self, target_epsilon: RealLike) -> float:
            """The least delta that has been shown at `target_epsilon` >= 0."""
            epsilon = _check.real("target_epsilon", target_epsilon, 0.0)
            if _EVERYTHING in self._counts:
                return 1.0
            return float(self.privacy_loss().delta(epsilon)) if self._counts else 0.0

    Accountant.__module__, Accountant.__qualname__ = __name__, "Accountant"
    return Accountant


def _collect(
    package: Any, relation: Any, event: Any, count: int, found: dict[_Release, float]
) -> None:
    """The releases of `event`, `count` times, added to `found`."""
    if not (count >= 0 and float(count).is_integer()):
        raise _UnsupportedError(event, f"The count must be whole and not negative, got {count}.")
    events = package.dp_event
    if isinstance(event, events.SelfComposedDpEvent):
        # The count of the event is looked at on its own: two negative ones are no count.
        inner: dict[_Release, float] = {}
        _collect(package, relation, event.event, event.count, inner)
        for release, often in inner.items():
            found[release] = found.get(release, 0.0) + count * often
        return
    if isinstance(event, events.PoissonSampledDpEvent) and event.sampling_probability == 1:
        _collect(package, relation, event.event, count, found)
        return
    if isinstance(event, events.ComposedDpEvent):
        for part in event.events:
            _collect(package, relation, part, count, found)
        return
    try:
        release = _release_of(package, relation, event)
    except ValueError as error:
        raise _UnsupportedError(event, f"Bad parameters: {error}.") from error
    if release != _NOTHING and count > 0:
        found[release] = found.get(release, 0.0) + count


def _release_of(package: Any, relation: Any, event: Any) -> _Release:
    """One event that is no composition; bad parameters raise `ValueError`."""
    events, relations = package.dp_event, package.NeighboringRelation
    moves = 2.0 if relation == relations.REPLACE_ONE else 1.0
    if isinstance(event, events.NoOpDpEvent):
        return _NOTHING
    if isinstance(event, events.NonPrivateDpEvent):
        return _EVERYTHING
    if isinstance(event, events.GaussianDpEvent):
        return _noisy("gaussian", event.noise_multiplier, moves)
    if isinstance(event, events.LaplaceDpEvent):
        return _noisy("laplace", event.noise_multiplier, moves)
    if isinstance(event, events.DiscreteLaplaceDpEvent):
        parameter = _number("noise_parameter", event.noise_parameter, math.inf)
        sensitivity = float(_check.whole("sensitivity", event.sensitivity)) * moves
        if sensitivity == 0 or parameter == math.inf:
            return _NOTHING
        return _Release("discrete_laplace", (parameter, sensitivity)) if parameter else _EVERYTHING
    if isinstance(event, events.RandomizedResponseDpEvent):
        if relation == relations.ADD_OR_REMOVE_ONE:
            raise _UnsupportedError(
                event,
                "RandomizedResponseDpEvent needs REPLACE_ONE or REPLACE_SPECIAL: it says nothing "
                "of an answer that is left out.",
            )
        return _response(event, relation == relations.REPLACE_ONE)
    if isinstance(event, events.PoissonSampledDpEvent):
        return _sampled(package, relation, event)
    for name, (kind, parameters) in _STATED.items():
        if isinstance(event, getattr(events, name, ())):
            values = [_number(key, getattr(event, key), math.inf) for key in parameters]
            for key, value in zip(parameters, values, strict=True):
                _check.real(key, value, 0.0, 1.0 if key == "delta" else math.inf)
            return _Release(kind, tuple(values))
    raise _UnsupportedError(
        event, f"{type(event).__name__} is not one of the events whose exact loss is known."
    )


def _number(name: str, value: Any, upper: float) -> float:
    return float(_check.real(name, value, 0.0, upper))


def _noisy(kind: str, noise_multiplier: Any, moves: float) -> _Release:
    scale = _number("noise_multiplier", noise_multiplier, math.inf)
    if scale == 0:
        return _EVERYTHING
    return _NOTHING if scale == math.inf else _Release(kind, (scale, moves))


def _response(event: Any, replaced: bool) -> _Release:
    p = _number("noise_parameter", event.noise_parameter, 1.0)
    buckets = float(_check.whole("num_buckets", event.num_buckets, 1.0))
    if buckets == 1 or p == 1:
        return _NOTHING
    if p == 0:
        return _EVERYTHING
    # log((1 - p + p / k) / (p / k)); to or from the uniform law the larger of its two losses.
    between = math.log1p(buckets * (1.0 - p) / p)
    special = max(math.log1p((buckets - 1.0) * (1.0 - p)), -math.log(p))
    return _Release("pure", ((between if replaced else special) * (1.0 + 1e-15),))


def _sampled(package: Any, relation: Any, event: Any) -> _Release:
    """A Poisson sample of a Laplace or of Gaussians, which together are one Gaussian."""
    rate = _number("sampling_probability", event.sampling_probability, 1.0)
    inner: dict[_Release, float] = {}
    _collect(package, relation, event.event, 1, inner)
    if rate == 0 or not inner:
        return _NOTHING
    if _EVERYTHING in inner:
        return _EVERYTHING
    kinds = {release.kind for release in inner}
    how = "replaced" if relation == package.NeighboringRelation.REPLACE_ONE else "sampled"
    if kinds == {"gaussian"}:
        ratio = math.sqrt(sum(n / r.parameters[0] ** 2 for r, n in inner.items()))
        scale = next(iter(inner)).parameters[0]
        if sum(inner.values()) > 1:
            scale = (1.0 - 1e-15) / ratio
        return _Release(f"{how}_gaussian", (scale, rate))
    alone = sum(inner.values()) == 1
    release = next(iter(inner))
    if alone and kinds == {"laplace"}:
        return _Release(f"{how}_laplace", (release.parameters[0], rate))
    if alone and release.kind in _SAMPLED:
        both = min(rate * release.parameters[1] * (1.0 + 1e-15), 1.0)
        return _Release(release.kind, (release.parameters[0], both))
    raise _UnsupportedError(
        event,
        "A PoissonSampledDpEvent must hold one LaplaceDpEvent, or GaussianDpEvents alone: the loss "
        f"of a sample of {', '.join(sorted(kinds))} is not known.",
    )


def _loss_of(counts: dict[_Release, float]) -> PrivacyLoss:
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
    elif kind == "pure":
        one = privacy_loss(PureDP(first))
    elif kind == "approximate":
        one = privacy_loss(ApproxDP(first, second[0]))
    else:
        one = privacy_loss(ExponentialMechanism(first))
    return (often * one).sum()
