"""Confidence bounds on a test's rates between two neighbours, and on epsilon from them.

An event has probability P and Q under the neighbours. (epsilon, delta) holds only if
P <= e^epsilon Q + delta, GDP(mu) only if Phi^-1(P) - Phi^-1(Q) <= mu; a lower bound on P and an
upper one on Q give lower bounds on epsilon and mu. Source: Clopper & Pearson, Biometrika 1934;
Nasr et al., Tight auditing of differentially private machine learning, USENIX Security 2023.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core import checks
from jaxdp.accountant.composition import is_gaussian, ratios_of
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.guarantee.base import Budget, as_budget, require_both_directions
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.mechanism import Mechanism

# Thresholds that are tried, as shares of all scores. chosen: dense in both tails
_TAIL = np.geomspace(1e-4, 0.5, 40)
_SHARES = np.concatenate([[0.0], _TAIL, 1.0 - _TAIL, [1.0]])
# Needed outputs that are shown. chosen: no file has more
_MOST_OUTPUTS = 5e14


class Event(NamedTuple):
    """score >= threshold (sign 1) or score <= threshold (sign -1), of one score of an output."""

    score: str
    threshold: float
    sign: int
    of_first: bool  # it is likelier under the first neighbour


class Rates(NamedTuple):
    """Lower bound on the event's probability under one neighbour, upper one under the other."""

    lower: np.ndarray
    upper: np.ndarray


def clopper_pearson(hits: Sequence[Any], trials: Sequence[int], alpha: float) -> Rates:
    """Bounds from counts of the event under either neighbour; each fails with alpha / 2 at most."""
    special = importlib.import_module("scipy.special")  # of JAX's own dependencies
    true_hits, false_hits = (np.asarray(counts, float) for counts in hits)
    count, false_count = trials
    lower = special.betaincinv(np.maximum(true_hits, 0.5), count - true_hits + 1.0, 0.5 * alpha)
    room = np.maximum(false_count - false_hits, 0.5)
    upper = special.betaincinv(false_hits + 1.0, room, 1.0 - 0.5 * alpha)
    lower = np.where(true_hits > 0, lower, 0.0)
    return Rates(lower, np.where(false_hits < false_count, upper, 1.0))


def least_epsilon(rates: Rates, delta: float) -> np.ndarray:
    """log((P - delta) / Q) of the bounds, and 0 where that is less."""
    excess = np.maximum(rates.lower - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(excess / rates.upper), 0.0))


def least_mu(rates: Rates) -> np.ndarray:
    """Phi^-1(P) - Phi^-1(Q) of the bounds, and 0 where that is less."""
    special = importlib.import_module("scipy.special")
    return np.asarray(np.maximum(special.ndtri(rates.lower) - special.ndtri(rates.upper), 0.0))


def best_event(
    scores: dict[str, tuple[np.ndarray, np.ndarray]],
    alpha: float,
    bound: Callable[[Rates], np.ndarray],
) -> Event:
    """The event whose `bound` from its rates is the largest, of all scores and thresholds."""
    best_value, event = -1.0, Event("none", np.inf, 1, True)
    for name, (first, second) in scores.items():
        sizes = (len(first), len(second))
        grid = np.unique(np.quantile(np.concatenate([first, second]), _SHARES, method="nearest"))
        for sign in (1, -1):
            counts = [
                len(values) - np.searchsorted(np.sort(sign * values), sign * grid)
                for values in (first, second)
            ]
            for of_first in (True, False):
                order = 1 if of_first else -1
                value = bound(clopper_pearson(counts[::order], sizes[::order], alpha))
                index = int(np.argmax(value))
                if value[index] > best_value:
                    best_value = float(value[index])
                    event = Event(name, float(grid[index]), sign, of_first)
    return event


def rates_of(event: Event, first: np.ndarray, second: np.ndarray, alpha: float) -> Rates:
    """Bounds on the rates of a fixed event, from outputs that it was not chosen on."""
    counts = [
        np.asarray((event.sign * x >= event.sign * event.threshold).sum()) for x in (first, second)
    ]
    order = 1 if event.of_first else -1
    return clopper_pearson(counts[::order], (len(first), len(second))[::order], alpha)


class Terms(NamedTuple):
    """delta and confidence of an audit, and the epsilon and the mu that were claimed."""

    delta: float
    confidence: float
    claimed: float
    claimed_mu: float

    @property
    def has_claim(self) -> bool:
        """True if there is a claim to refute."""
        return min(self.claimed, self.claimed_mu) < np.inf

    @property
    def alpha(self) -> float:
        """Rate of false alarms of a test: two tests fail together as often as one does alone."""
        return (1.0 - self.confidence) / (2.0 if self.claimed_mu < np.inf else 1.0)


def require_trials(terms: Terms, first: int, second: int) -> None:
    """`ValueError` if no test on so many outputs could exceed the claim, or 0 without one.

    n outputs that an event tells apart give P = a^(1/n) and Q = 1 - P with a = alpha / 2. The
    claimed epsilon is exceeded if -log P < log(1 + (1 - delta) / (e^epsilon + delta)), mu if
    P > Phi(mu / 2).
    """
    special = importlib.import_module("scipy.special")
    claimed = terms.claimed if terms.has_claim else 0.0
    sizes = (first - first // 2, second - second // 2)  # of the halves that give the bounds
    extreme = [
        clopper_pearson((sizes[::order][0], 0), sizes[::order], terms.alpha) for order in (1, -1)
    ]
    for rates in extreme:
        if least_epsilon(rates, terms.delta) > claimed or least_mu(rates) > terms.claimed_mu:
            return
    with np.errstate(over="ignore"):
        of_epsilon = np.log1p((1.0 - terms.delta) / (np.exp(claimed) + terms.delta))
    largest = max(of_epsilon, -special.log_ndtr(0.5 * terms.claimed_mu))
    least = -np.log(0.5 * terms.alpha) / largest if largest else np.inf
    needed = f"{2 * math.floor(least) + 1:,}" if least < _MOST_OUTPUTS else "more than 1e15"
    what = "refute the claim" if terms.has_claim else "give a bound above 0"
    raise ValueError(
        f"there must be at least {needed} outputs of either data set, got {first:,} and "
        f"{second:,}: fewer cannot {what}, whatever they are"
    )


def as_claim(claim: Any, delta: float | None) -> Any:
    """The claim as an object with `epsilon(delta)`; else `ValueError`.

    A number is an epsilon at `delta`; a `Budget` or a pair is an `ApproxDP`.
    """
    if isinstance(claim, Real | np.number) and not isinstance(claim, bool):
        return ApproxDP(checks.real("claim", float(claim), 0.0), delta or 0.0)
    if isinstance(claim, Budget | tuple):
        pair = as_budget(claim, "claim")
        return ApproxDP(pair.epsilon, pair.delta)
    return claim


def terms_of(claim: Any, delta: float | None, confidence: float) -> Terms:
    """Terms of an audit: without a claim at delta 0 by default, else of `as_claim`.

    A claim without a finite epsilon at a delta below 1, and without a finite mu: `ValueError`.
    """
    level = float(checks.probability("confidence", confidence))
    if not 0.0 < level < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {level}")
    at = None if delta is None else float(checks.probability("delta", delta))
    if claim is None:
        return Terms(at or 0.0, level, np.inf, np.inf)
    mu = claimed_mu(claim)
    if mu < np.inf:
        require_both_directions(claim)
        at = at or 0.0
        return Terms(at, level, _number(claim.epsilon(at)), mu)
    budget = as_budget(claim, "claim", at)
    epsilon, at = _number(budget.epsilon), _number(budget.delta)
    if not (epsilon < np.inf and at < 1.0):
        raise ValueError(
            f"claim must promise a finite epsilon at a delta below 1, got epsilon {epsilon} at "
            f"delta {at}: nothing could refute it"
        )
    return Terms(at, level, epsilon, np.inf)


def _number(value: Any) -> float:
    if np.size(value) != 1:
        raise ValueError(f"claim must be one claim, got a batch of shape {np.shape(value)}")
    return float(np.asarray(value).item())


def claimed_mu(claim: Any) -> float:
    """The mu that is promised by a GDP, or by Gaussian noise without sampling; else infinite."""
    loss = privacy_loss(claim) if isinstance(claim, GDP | Mechanism) else claim
    if not isinstance(loss, PrivacyLoss) or not all(map(is_gaussian, loss.terms)):
        return float("inf")
    squares = [np.sum(term.count * ratios_of(term) ** 2, axis=-1) for term in loss.terms]
    return float(np.sqrt(np.max(np.asarray(sum(squares)))))
