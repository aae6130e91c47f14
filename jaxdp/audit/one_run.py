"""Audits in one run: many canaries, each in the data by a fair coin, and guesses.

There are m canaries and G guesses, of them c right. Let p_t be the probability of t right ones, and
f the trade-off function of a mechanism, symmetric. A canary that is flipped makes a right guess
wrong, so that for every set T of numbers

    sum_T p_t t / m <= 1 - f(sum_T p_(t - 1) (G - t + 1) / m).

With T = {i, ..., G}, for i from c down, this bounds the mass of all p_t from below in terms of P(c
or more are right); if the bound exceeds 1, that probability is too small for the claim. There is no
composition over the canaries. Source: Mahloujifar, Melis & Chaudhuri, Auditing f-differential
privacy in one run, ICML 2025.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.precision import opened
from jaxdp._core.random_key import key_or_new
from jaxdp._core.types import Key
from jaxdp.audit.confidence import Terms, as_claim, terms_of
from jaxdp.guarantee.pure import ApproxDP

# Maps a rate of right guesses to the least rate of wrong ones at the flipped canary: f(1 - rate).
Curve = Callable[[float], float]

# Default share of guesses. measured: for Gaussian scores at mu from 0.5 to 2 and 500 to 10,000
# canaries, mu is within 20 % of the best share's
_SHARE = 0.1
# Epsilons of a claim's tangent lines, over its epsilon at delta 1e-3. chosen: lines this dense
# approximate a trade-off function closely
_LINES = np.linspace(0.0, 2.0, 33)
# Probability at which coins are no longer taken for fair. chosen: no fair coins are ever refused
_UNFAIR = 1e-12
# Slack of a sum of rates. derived: far above the rounding of 1e6 steps
_ROUNDING = 1e-9
# Width of epsilon or mu at the end of bisection. chosen: four digits
_CLOSE = 1e-4
# The largest epsilon or mu that is tried. chosen
_LARGEST = 64.0


class OneRunAudit(NamedTuple):
    """Result of an audit in one run.

    epsilon_lower, mu_lower: the least epsilon at `delta`, and the least mu of GDP, that are not
    refuted as f-DP. Each is below the true one with probability `confidence`, which is one less the
    rate of false alarms. claimed: the epsilon that was promised at `delta`. is_refuted: True if the
    claim's trade-off function is refuted, None without a claim. correct: right guesses, of
    `guesses` at `canaries`.
    """

    epsilon_lower: float
    mu_lower: float
    delta: float
    confidence: float
    claimed: float
    is_refuted: bool | None
    correct: int
    guesses: int
    canaries: int


def one_run(
    training: Any,
    canaries: Any,
    *,
    delta: float | None = None,
    claim: Any = None,
    guesses: int | None = None,
    confidence: float = 0.95,
    key: Key | None = None,
) -> OneRunAudit:
    """Lower confidence bounds on epsilon and mu from one training with many canaries.

    Args:
        training: a function of (included, key) that trains with the canaries that `included`,
            bools, (canaries,), takes, and returns a score of each, (canaries,), larger where it
            was likelier taken, finite and not all equal. Scores may use all canaries and what the
            training publishes, but not `included`. Or the scores of a training that was made.
        canaries: their number; with scores, which of them were included, bools, (canaries,), each
            by a fair coin of its own before the training. One more or less makes the neighbours of
            the claim, or one that is replaced, where `training` takes one of two for each.
        delta: of the bounds on epsilon; None: the claim's own, or 0.
        claim: a `Budget` or (epsilon, delta), a guarantee, a privacy loss, or an epsilon at
            `delta`; None: no claim.
        guesses: at the canaries of the largest and of the smallest scores, half each, decided
            before the run; None: a tenth of the canaries.
        confidence: that each bound holds: 1 less the rate of false alarms.
        key: of the coins and of the training; None takes one from the operating system.

    Returns:
        A `OneRunAudit`. A claim that is not refuted is not proved: the test may be weak.

    One run cannot distinguish a mechanism from one that reveals all canaries at once with a
    probability of 1 - confidence or less, so bounds stay below the truth for any number of
    canaries; bounds on epsilon are 0 unless `canaries` times `delta` is well below that. Source:
    see the module. Constant, infinite or misshapen scores, and other bad arguments: `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> def training(included, key):
    ...     return included + jax.random.normal(key, included.shape)
    >>> found = dp.audit.one_run(training, 4000, claim=dp.GDP(1.0), delta=1e-5,
    ...     key=jax.random.key(0))
    >>> found.is_refuted, found.mu_lower > 0.5
    (False, True)
    """
    keys = jax.random.split(key_or_new(key), 2)
    known = None if callable(training) else _included(canaries)
    canaries = checks.positive_integer("canaries", canaries) if known is None else known.size
    count = max(1, round(_SHARE * canaries)) if guesses is None else guesses
    if checks.positive_integer("guesses", count) > canaries:
        raise ValueError(f"guesses must lie in [1, canaries], got {guesses} of {canaries}")
    claim = as_claim(claim, delta)
    terms = terms_of(claim, delta, confidence)
    curve = _curve_of(claim, terms) if terms.has_claim else None
    included = _coins(keys[0], canaries) if known is None else known
    counts = _correct(_scores(training, included, keys[1]), included, count), count, canaries
    refutes = partial(is_refuted, counts=counts, alpha=1.0 - terms.confidence)
    epsilon = _largest(lambda e: refutes(approximate(e, terms.delta)))
    mu = _largest(lambda x: refutes(gaussian(x)))
    return OneRunAudit(epsilon, mu, *terms[:3], None if curve is None else refutes(curve), *counts)


def _scores(training: Any, included: np.ndarray, key: Key) -> np.ndarray:
    """Scores of the canaries from one training: finite, not all equal."""
    canaries = included.size
    made = training(included.copy(), key) if callable(training) else training
    scores = np.asarray(made, dtype=float)
    if scores.shape != included.shape or not np.isfinite(scores).all():
        raise ValueError(
            f"training must return a finite number a canary, ({canaries},), and no NaN"
        )
    if canaries > 1 and np.ptp(scores) == 0:
        raise ValueError("training must return different scores, got one constant score")
    return scores


def _included(canaries: Any) -> np.ndarray:
    """Which canaries a training took that is over; `ValueError` unless bools as of fair coins."""
    known = np.asarray(canaries)
    if known.ndim != 1 or known.dtype != bool or not known.size:
        raise ValueError(
            "canaries must be bools, (canaries,), which say of each score if its canary was "
            f"included, beside an array of scores, got {known.dtype} of shape {known.shape}"
        )
    # Hoeffding's inequality.
    if 2.0 * (known.mean() - 0.5) ** 2 * known.size > -np.log(0.5 * _UNFAIR):
        raise ValueError(
            f"canaries must be included by fair coins, got {known.sum():,} of {known.size:,} "
            "included"
        )
    return known


@opened()
def _coins(key: jax.Array, count: int) -> np.ndarray:
    return np.array(jax.random.bernoulli(key, 0.5, (count,)))


def _correct(scores: np.ndarray, included: np.ndarray, guesses: int) -> int:
    """Right guesses: the largest scores are taken for included, the smallest for left out."""
    order = np.argsort(scores, kind="stable")
    largest, smallest = order[len(order) - (guesses + 1) // 2 :], order[: guesses // 2]
    return int(included[largest].sum() + (~included[smallest]).sum())


def is_refuted(curve: Curve, counts: tuple[int, int, int], alpha: float) -> bool:
    """True if so many right guesses are less likely than alpha (right, guesses, canaries)."""
    correct, guesses, canaries = counts
    p_right, p_wrong = alpha * correct / canaries, alpha * (guesses - correct) / canaries
    p_guess = guesses / canaries * (1.0 + _ROUNDING)
    for count in range(correct - 1, -1, -1):
        needed = max(p_wrong, curve(p_right))
        p_right += count / (guesses - count) * (needed - p_wrong)
        p_wrong = needed
        if p_right + p_wrong > p_guess:
            return True
    return False


def gaussian(mu: float) -> Curve:
    """Curve of GDP(mu)."""
    special = importlib.import_module("scipy.special")
    return lambda rate: float(special.ndtr(special.ndtri(rate) - mu))


def approximate(epsilon: float, delta: float) -> Curve:
    """Curve of (epsilon, delta)-DP."""
    ratio = float(np.exp(epsilon))
    return lambda rate: max(0.0, (rate - delta) / ratio, 1.0 - delta - ratio * (1.0 - rate))


def _curve_of(claim: Any, terms: Terms) -> Curve:
    """Curve that is claimed, from below: of a mu its own, else the highest of some lines."""
    if isinstance(claim, ApproxDP):
        return approximate(float(claim.epsilon_bound), float(claim.delta_bound))
    if terms.claimed_mu < np.inf:
        return gaussian(terms.claimed_mu)
    near = float(np.asarray(claim.epsilon(1e-3)).item())
    lines = near * _LINES if near < np.inf else ()
    epsilons = np.unique(np.append(lines, terms.claimed))
    deltas, ratios = np.asarray(claim.delta(epsilons)), np.exp(epsilons)

    def highest(rate: float) -> float:
        lines = (rate - deltas) / ratios, 1.0 - deltas - ratios * (1.0 - rate)
        return max(0.0, float(np.max(lines)))

    return highest


def _largest(refuted: Callable[[float], bool]) -> float:
    """The largest value that is refuted, from below; 0 if none is."""
    if not refuted(0.0):
        return 0.0
    lower, upper = 0.0, 1.0
    while upper < _LARGEST and refuted(upper):
        lower, upper = upper, 2.0 * upper
    while upper - lower > _CLOSE:
        middle = 0.5 * (lower + upper)
        lower, upper = (middle, upper) if refuted(middle) else (lower, middle)
    return lower
