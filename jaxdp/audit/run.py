"""Audits: a mechanism is run many times on two neighbours, and a test tells the outputs apart.

Half of the outputs choose the test, among scores of an output and thresholds; the other half gives
the bounds, so that no more tests are made than the confidence counts.

A score is one function of a single output: all that it takes besides, a view, comes from the
outputs that choose the test. A score that depends on which neighbour made an output, such as a
distance from the median of that neighbour's own outputs, refutes true claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.random_key import key_or_new
from jaxdp._core.types import Key
from jaxdp.audit.bounds import (
    Event,
    Rates,
    Terms,
    as_claim,
    best_event,
    least_epsilon,
    least_mu,
    rates_of,
    terms_of,
)
from jaxdp.audit.outputs import outputs_of, require_neighbours
from jaxdp.mechanism import Mechanism


class Audit(NamedTuple):
    """Result of an audit.

    epsilon_lower, mu_lower: lower bounds on epsilon at `delta` and on mu of Gaussian DP; both hold
    with probability `confidence`, which is 1 less the rate of false alarms. claimed, claimed_mu:
    the claimed epsilon at `delta` and mu, infinite without a claim. is_refuted: True if a bound
    exceeds the claim, None without a claim. score: the function of an output that the test compares
    with a threshold. finding: what refuted the claim, in words.
    """

    epsilon_lower: float
    mu_lower: float
    delta: float
    confidence: float
    claimed: float
    claimed_mu: float
    is_refuted: bool | None
    score: str
    trials: int
    finding: str


def run(
    mechanism: Any,
    neighbours: Sequence[Any],
    trials: int,
    *,
    delta: float | None = None,
    claim: Any = None,
    confidence: float = 0.95,
    key: Key | None = None,
    chunk: int | None = None,
    progress: bool | None = None,
    low_bits: bool = True,
) -> Audit:
    """A lower confidence bound on epsilon, from running a mechanism on two neighbours.

    Args:
        mechanism: a `Mechanism`, whose releases are audited; a function of (data, key), whose
            output is an array or a tree; or an estimator with `fit`, which is copied.
        neighbours: two data sets that differ; for an estimator, tuples of the arguments of `fit`.
        trials: outputs of either neighbour, 4 or more; half choose the test.
        delta: of the bound on epsilon, fixed before the audit: see docs/audit.md. None: the claim's
            own, or 0.
        claim: a `Budget` or (epsilon, delta), a guarantee, a privacy loss, or an epsilon at
            `delta`; None: a `Mechanism` itself, else no claim. A `GDP`, or Gaussian noise without
            sampling, is tested by its mu as well; the two tests share the rate of false alarms.
        confidence: that the bounds hold: 1 less the rate of false alarms.
        key: of the draws; None takes one from the operating system. It sets what estimators have
            as `random_state`: a fixed one would draw the same noise in every trial.
        chunk: trials that one call makes: the function gets keys (chunk,), as `jax.vmap` maps it
            over them, and returns one row for each key. None: one key, one output.
        progress: a bar of the calls on stderr, of tqdm if installed; None: on a terminal.
        low_bits: False leaves out the score that reads the last floating-point bits, which
            distinguish the data under any floating-point noise.

    Returns:
        An `Audit`. A claim that is not refuted is not proved: the test may be weak.

    Source: split samples and Clopper-Pearson bounds; see `audit.bounds`. `ValueError` for a claim
    without a finite epsilon or mu, equal neighbours, and constant or infinite outputs.

    >>> import jax
    >>> import jaxdp as dp
    >>> found = dp.audit.run(dp.Mechanism(dp.Laplace(1.0), 1.0), (0.0, 1.0), 2000,
    ...     key=jax.random.key(0), progress=False)
    >>> found.is_refuted, found.epsilon_lower > 0.5
    (False, True)
    """
    keys = jax.random.split(key_or_new(key), 2)
    trials = checks.positive_integer("trials", trials)
    if trials < 4:
        raise ValueError(f"trials must be at least 4, got {trials}")
    require_neighbours(neighbours)
    if claim is None and isinstance(mechanism, Mechanism):
        claim = mechanism
    terms = terms_of(as_claim(claim, delta), delta, confidence)
    first, second = (
        outputs_of(mechanism, data, jax.random.split(run_key, trials), chunk, progress)
        for data, run_key in zip(neighbours, keys, strict=True)
    )
    return _audit_of(first, second, terms, low_bits)


def _audit_of(first: np.ndarray, second: np.ndarray, terms: Terms, low_bits: bool) -> Audit:
    """Tests that are chosen on the first half of the outputs, and their bounds from the other."""
    trials, longest = len(first), max(first.shape[1], second.shape[1])
    first, second = (
        np.pad(x, ((0, 0), (0, longest - x.shape[1])), constant_values=np.nan)
        for x in (first, second)
    )
    both = np.concatenate([first, second])
    if np.array_equal(both, np.broadcast_to(both[:1], both.shape), equal_nan=True):
        raise ValueError("mechanism must return different outputs, got one constant output")
    half = trials // 2
    view = view_of(first[:half], second[:half])
    pairs = [scores_of(x, view, low_bits) for x in (first, second)]
    choosing = {name: (pairs[0][name][:half], pairs[1][name][:half]) for name in pairs[0]}
    has_mu = terms.claimed_mu < np.inf
    # Two tests fail together with the probability that one of them has alone.
    alpha = (1.0 - terms.confidence) / (2.0 if has_mu else 1.0)

    def found_by(event: Event) -> tuple[str, Rates]:
        there, other = (scores[event.score][half:] for scores in pairs)
        return event.score, rates_of(event, there, other, alpha)

    def guess(rates: Rates) -> np.ndarray:
        # Where epsilon is 0 throughout, the event with the larger mu is the better guess.
        return least_epsilon(rates, terms.delta) + 1e-3 * least_mu(rates)

    score, rates = found_by(best_event(choosing, alpha, guess))
    of_mu, rates_of_mu = (
        found_by(best_event(choosing, alpha, least_mu)) if has_mu else (score, rates)
    )
    epsilon, mu = float(least_epsilon(rates, terms.delta)), float(least_mu(rates_of_mu))
    proofs = [of_mu] if mu > terms.claimed_mu else []
    proofs += [score] if epsilon > terms.claimed else []
    # A proof that is not of floating point says more.
    score = min(proofs, key=lambda name: name == LOW_BITS, default=score)
    finding = f"refuted by {FAULTS[score]}" if proofs else "not refuted: the test may be weak"
    if not terms.has_claim:
        return Audit(epsilon, mu, *terms, None, score, trials, "no claim to refute")
    return Audit(epsilon, mu, *terms, bool(proofs), score, trials, finding)


# Entries up to which their covariance is used. chosen: a few trials estimate it
_LONGEST = 50
# Score of the last bits of floating point.
LOW_BITS = "low bits"
# Scores, and the likely fault if one refutes a claim.
FAULTS = {
    "length": "the number of entries in an output",
    LOW_BITS: (
        "the last bits of floating point, not by the size of the noise: round and audit again, "
        "or leave that score out with low_bits=False"
    ),
    "repeats": "equal entries in an output",
    "projection": "the values of an output",
    "distance": "the distance of an output from the middle",
    "norm": "the Euclidean norm of an output",
}


def view_of(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, float]:
    """The direction of the largest difference of two neighbours' outputs, and the centre there."""
    direction = _direction(first, second)
    both = np.concatenate([first, second])
    return direction, float(np.median(_along(both, direction)))


def scores_of(
    outputs: np.ndarray, view: tuple[np.ndarray, float], low_bits: bool
) -> dict[str, np.ndarray]:
    """Scores of each output by name. Padding is NaN."""
    direction, centre = view
    present, along = ~np.isnan(outputs), _along(outputs, direction)
    ordered = np.sort(outputs, axis=1)
    scores = {
        "length": present.sum(axis=1).astype(float),
        "repeats": (ordered[:, 1:] == ordered[:, :-1]).sum(axis=1).astype(float),
        "projection": along,
        "distance": np.abs(along - centre),
        "norm": np.linalg.norm(np.nan_to_num(outputs), axis=1),
    }
    return scores | ({LOW_BITS: _lowest_bits(outputs)} if low_bits else {})


def _along(outputs: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.nan_to_num(outputs) @ direction


def _direction(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Difference of means over the covariance, or over the variances of long outputs (Fisher)."""
    a, b = (np.nan_to_num(x) for x in (first, second))
    gap = a.mean(axis=0) - b.mean(axis=0)
    spread = 0.5 * (a.var(axis=0) + b.var(axis=0))
    ridge = 1e-12 * spread.mean() + 1e-300
    if 1 < gap.size <= _LONGEST:
        centred = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
        return np.linalg.lstsq(
            centred.T @ centred / len(centred) + ridge * np.eye(gap.size), gap, rcond=None
        )[0]
    return gap / (spread + ridge)


def _lowest_bits(outputs: np.ndarray) -> np.ndarray:
    """Mean exponent of the lowest bit that is set in the doubles of each output."""
    has_bits = np.isfinite(outputs) & (outputs != 0)
    mantissa, exponent = np.frexp(np.where(has_bits, outputs, 1.0))
    digits = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.log2((digits & -digits).astype(float)) - 53.0 + exponent
    return np.where(has_bits, lowest, 0.0).sum(axis=1) / np.maximum(has_bits.sum(axis=1), 1)
