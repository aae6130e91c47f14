"""Releases of dp_accounting's events, as kinds with parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.interop.releases import (
    EVERYTHING,
    NOTHING,
    SAMPLED,
    SELECTED,
    STATED_ZCDP,
    Release,
    everything_of,
)
from jaxdp.interop.scheme_events import mixture_release, scheme_event

# Events that some versions of dp_accounting lack.
_STATED = {
    "ExponentialMechanismDpEvent": ("exponential", ("epsilon",)),
    "EpsilonDeltaDpEvent": ("approximate", ("epsilon", "delta")),
    "PermuteAndFlipDpEvent": ("pure", ("epsilon",)),
}
# Sensitivities of a mixture at most. chosen: no quotient overflows
_LARGEST = 1e150
_MOST_RUNS = 1e200  # runs of a selection, on average, at most. chosen: far from overflow
_LARGEST_SHAPE = 1e6  # shape of their number, at most. chosen: the eta of `repeat_and_select`
# By how much its probabilities may miss 1. chosen: far above the rounding of a sum
_WHOLE = 1e-9


class UnsupportedError(Exception):
    """An event that cannot be accounted for, and why."""

    def __init__(self, event: Any, reason: str):
        super().__init__(reason)
        self.event, self.reason = event, reason


def collect(
    package: Any, relation: Any, event: Any, count: int, counts: dict[Release, float]
) -> None:
    """Add `count` times the releases of `event` to `counts`; `ValueError` for bad parameters."""
    if not (count >= 0 and float(count).is_integer()):
        raise ValueError(f"count must be whole and not negative, got {count}")
    events = package.dp_event
    if isinstance(event, events.SelfComposedDpEvent):
        # The count of the event is looked at on its own: two negative ones are no count.
        inner: dict[Release, float] = {}
        collect(package, relation, event.event, event.count, inner)
        for release, repeats in inner.items():
            counts[release] = counts.get(release, 0.0) + count * repeats
        return
    if isinstance(event, events.PoissonSampledDpEvent) and event.sampling_probability == 1:
        collect(package, relation, event.event, count, counts)
        return
    if _is_one_run(events, event):
        collect(package, relation, event.event, count, counts)
        return
    if isinstance(event, events.ComposedDpEvent):
        for part in event.events:
            collect(package, relation, part, count, counts)
        return
    release = _release_of(package, relation, event)
    if release != NOTHING and count > 0:
        counts[release] = counts.get(release, 0.0) + count


def _is_one_run(events: Any, event: Any) -> bool:
    """True of the best of exactly one run: a truncated negative binomial number of mean 1."""
    if not isinstance(event, getattr(events, "RepeatAndSelectDpEvent", ())):
        return False
    return event.mean == 1 and 0 <= event.shape <= _LARGEST_SHAPE


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
                "neighboring_relation must be `REPLACE_ONE` or `REPLACE_SPECIAL` for "
                "RandomizedResponseDpEvent: it says nothing of an answer that is left out.",
            )
        return _response(event, relation == relations.REPLACE_ONE)
    if isinstance(event, events.ZCDpEvent):
        xi, rho = (_number(name, getattr(event, name), math.inf) for name in ("xi", "rho"))
        if math.inf in (xi, rho):
            return EVERYTHING
        return Release(STATED_ZCDP, (xi, rho)) if max(xi, rho) > 0 else NOTHING
    if isinstance(event, events.PoissonSampledDpEvent):
        return _sampled(package, relation, event)
    if isinstance(event, getattr(events, "MixtureOfGaussiansDpEvent", ())):
        return _mixture(event, replaced=relation == relations.REPLACE_ONE)
    if isinstance(event, getattr(events, "RepeatAndSelectDpEvent", ())):
        return _selected(package, relation, event)
    scheme_release = scheme_event(package, relation, event)
    if scheme_release is not None:
        return scheme_release
    if isinstance(event, getattr(events, "DiscreteGaussianDpEvent", ())):
        return _discrete_gaussian(event, moves)
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


def _discrete_gaussian(event: Any, moves: float) -> Release:
    """Noise on the integers: exact in one dimension; its zCDP in several, or where unknown.

    Of sensitivity s in l2 and parameter sigma that is s^2 / (2 sigma^2) in every dimension.
    Source: Canonne, Kamath & Steinke, NeurIPS 2020, theorem 4 and its multivariate corollary.
    """
    sigma = _number("sigma", event.sigma, math.inf)
    if event.dimension == 1:
        sensitivity = float(checks.whole("sensitivity", event.sensitivity)) * moves
    else:
        if event.dimension is not None:
            checks.positive_integer("dimension", event.dimension)
        sensitivity = _number("sensitivity", event.sensitivity, _LARGEST) * moves
    if sensitivity == 0 or sigma == math.inf:
        return NOTHING
    if sigma == 0:
        return EVERYTHING
    if event.dimension == 1:
        return Release("discrete_gaussian", (sigma, sensitivity))
    rho = 0.5 * (sensitivity / sigma) ** 2 * (1.0 + 1e-15)
    return Release(STATED_ZCDP, (0.0, rho)) if rho < math.inf else EVERYTHING


def _mixture(event: Any, *, replaced: bool) -> Release:
    """N(0, s^2), and with probability p N(c, s^2): a Poisson sample of a Gaussian."""
    if replaced:
        raise UnsupportedError(
            event,
            "neighboring_relation must be `ADD_OR_REMOVE_ONE` or `REPLACE_SPECIAL` for "
            "MixtureOfGaussiansDpEvent: it says nothing of a record that is replaced.",
        )
    deviation = _number("standard_deviation", event.standard_deviation, math.inf)
    sizes = np.asarray(checks.real("sensitivities", event.sensitivities, 0.0, _LARGEST))
    shares = np.asarray(checks.probability("sampling_probs", event.sampling_probs))
    if sizes.ndim != 1 or sizes.shape != shares.shape or abs(shares.sum() - 1.0) > _WHOLE:
        raise ValueError(
            f"sampling_probs must be one a sensitivity, {sizes.shape}, and add up to 1, got "
            f"{event.sampling_probs}"
        )
    shifts = {float(size) for size, share in zip(sizes, shares, strict=True) if share > 0} - {0.0}
    if not shifts or deviation == math.inf:
        return NOTHING
    # Upwards, as are sums of shares that do not quite add up to 1.
    zero_share = float(shares[sizes == 0].sum())
    share = min(max(float(shares[sizes > 0].sum()), 1.0 - zero_share) * (1.0 + 1e-15), 1.0)
    if deviation == 0:
        return EVERYTHING
    if len(shifts) > 1:
        return mixture_release(deviation, sizes, shares)
    multiplier = deviation / shifts.pop() * (1.0 - 1e-15)
    if share == 1:
        return Release("gaussian", (multiplier, 1.0))
    return Release("sampled_gaussian", (multiplier, share))


def _selected(package: Any, relation: Any, event: Any) -> Release:
    """The best of a random number of runs: `shape` is the eta of `repeat_and_select`."""
    poisson = event.shape == math.inf
    mean = checks.real("mean", event.mean, 0.0 if poisson else 1.0, _MOST_RUNS, open_lower=poisson)
    shape = math.inf if poisson else checks.real("shape", event.shape, 0.0, _LARGEST_SHAPE)
    inner: dict[Release, float] = {}
    collect(package, relation, event.event, 1, inner)
    if EVERYTHING in inner:
        return EVERYTHING
    run = frozenset(inner.items())
    return Release(SELECTED, (float(mean), float(shape), run)) if inner else NOTHING


def _holds_non_private(package: Any, event: Any) -> bool:
    """True if the event is or holds a NonPrivateDpEvent."""
    if isinstance(event, package.dp_event.NonPrivateDpEvent):
        return True
    parts = getattr(event, "events", None) or [getattr(event, "event", None)]
    return any(part is not None and _holds_non_private(package, part) for part in parts)


def _sampled(package: Any, relation: Any, event: Any) -> Release:
    """A Poisson sample of one noise, or of Gaussians, which together are one Gaussian."""
    rate = _number("sampling_probability", event.sampling_probability, 1.0)
    inner: dict[Release, float] = {}
    collect(package, relation, event.event, 1, inner)
    if rate == 0 or not inner:
        return NOTHING
    if EVERYTHING in inner:
        # dp_accounting takes noise of scale 0 for non-private even in a sample: delta is 1.
        return everything_of(rate) if _holds_non_private(package, event) else EVERYTHING
    kinds = {release.kind for release in inner}
    if kinds == {"approximate"} and all(release.parameters[0] == 0 for release in inner):
        with np.errstate(divide="ignore"):
            missed = sum(n * np.log1p(-release.parameters[1]) for release, n in inner.items())
        return everything_of(float(-np.expm1(missed)) * rate * (1.0 + 1e-14))
    prefix = "replaced" if relation == package.NeighboringRelation.REPLACE_ONE else "sampled"
    if kinds == {"gaussian"}:
        ratio = math.sqrt(sum(n / r.parameters[0] ** 2 for r, n in inner.items()))
        scale = next(iter(inner)).parameters[0]
        if sum(inner.values()) > 1:
            scale = (1.0 - 1e-15) / ratio
        return Release(f"{prefix}_gaussian", (scale, rate))
    is_single = sum(inner.values()) == 1
    release = next(iter(inner))
    if is_single and kinds == {"laplace"}:
        return Release(f"{prefix}_laplace", (release.parameters[0], rate))
    if is_single and kinds == {"discrete_laplace"} and prefix == "sampled":
        return Release("sampled_discrete_laplace", (*release.parameters, rate))
    if is_single and release.kind in (*SAMPLED, "sampled_discrete_laplace"):
        joint_rate = min(rate * release.parameters[-1] * (1.0 + 1e-15), 1.0)
        return Release(release.kind, (*release.parameters[:-1], joint_rate))
    raise UnsupportedError(
        event,
        "A PoissonSampledDpEvent must hold one LaplaceDpEvent, GaussianDpEvents alone, or where "
        "no record is replaced one DiscreteLaplaceDpEvent: the loss of a sample of "
        f"{', '.join(sorted(kinds))} is not known.",
    )
