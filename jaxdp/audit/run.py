"""Audits: a mechanism is run many times on two neighbours, and a test tells the outputs apart.

Half of the outputs choose the test, among scores of an output and thresholds; the other half gives
the bounds, so that no more tests are made than the confidence counts.

A score is one function of a single output: all that it takes besides, a `View`, comes from the
outputs that choose the test. A score that depends on which neighbour made an output, such as a
distance from the median of that neighbour's own outputs, refutes true claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from jaxdp._core import checks
from jaxdp._core.random_key import key_or_new
from jaxdp._core.types import Key
from jaxdp.audit.confidence import (
    Event,
    Rates,
    Terms,
    as_claim,
    best_event,
    least_epsilon,
    least_mu,
    rates_of,
    require_trials,
    terms_of,
)
from jaxdp.audit.outputs import outputs_of, pair_of, require_neighbours
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

    Source: split samples and Clopper-Pearson bounds; see `audit.confidence`. `ValueError` for a
    claim without a finite epsilon or mu, equal neighbours, and constant or infinite outputs.

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
    claim = mechanism if claim is None and isinstance(mechanism, Mechanism) else claim
    terms = terms_of(as_claim(claim, delta), delta, confidence)
    pair = (
        outputs_of(mechanism, data, jax.random.split(run_key, trials), chunk, progress)
        for data, run_key in zip(neighbours, keys, strict=True)
    )
    choosing, testing = zip(*(np.split(x, [trials // 2]) for x in pair), strict=True)
    return _audit_of(choosing, testing, terms, low_bits)


def of_outputs(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    delta: float | None = None,
    claim: Any = None,
    confidence: float = 0.95,
    key: Key | None = None,
    low_bits: bool = False,
) -> Audit:
    """A lower confidence bound on epsilon, from outputs that were made elsewhere.

    Args:
        first, second: outputs on two neighbouring data sets, (trials,) numbers or (trials, size)
            rows, one from each run; encode categories one-hot. They can differ in number.
        delta, claim, confidence: as in `run`; no claim by default.
        key: of the random half that chooses the test, so that sorted outputs do no harm; None
            takes one from the operating system.
        low_bits: True adds the score that reads the last floating-point bits; see `run`. They are
            those of the mechanism only if its outputs were stored with all of their digits.

    Returns:
        An `Audit`; its `trials` are those of the shorter argument. A claim that is not refuted is
        not proved.

    Row i of both can share randomness, as from one seed: it is in the same half of both. A run
    without an output must have a number of its own: leaving it out can refute a true claim.
    `ValueError` for outputs that are not finite, constant or twice the same, and where so few could
    refute nothing.

    >>> import jax
    >>> import numpy as np
    >>> import jaxdp as dp
    >>> noise = np.random.default_rng(0).laplace(0.0, 0.5, (2, 2000))
    >>> found = dp.audit.of_outputs(noise[0], noise[1] + 1.0, claim=dp.PureDP(1.0),
    ...     key=jax.random.key(0))
    >>> found.finding
    'refuted by the values of an output'
    """
    terms = terms_of(as_claim(claim, delta), delta, confidence)
    pair = pair_of(first, second)
    sizes = [len(outputs) for outputs in pair]
    require_trials(terms, *sizes)
    words = np.asarray(jax.random.key_data(key_or_new(key)))
    order = np.random.default_rng(words).permutation(max(sizes))
    # One order of all rows, cut where the shorter argument has its half.
    cut = np.flatnonzero(order < min(sizes))[min(sizes) // 2]
    halves = (order[:cut], order[cut:])
    choosing, testing = ([x[rows[rows < len(x)]] for x in pair] for rows in halves)
    return _audit_of(choosing, testing, terms, low_bits)


def _audit_of(
    choosing: Sequence[np.ndarray], testing: Sequence[np.ndarray], terms: Terms, low_bits: bool
) -> Audit:
    """Tests that are chosen on some outputs of both neighbours, and their bounds from others."""
    halves = (*choosing, *testing)
    longest = max(x.shape[1] for x in halves)
    halves = [
        np.pad(x, ((0, 0), (0, longest - x.shape[1])), constant_values=np.nan) for x in halves
    ]
    both = np.concatenate(halves)
    if np.array_equal(both, np.broadcast_to(both[:1], both.shape), equal_nan=True):
        raise ValueError("outputs must differ, got one constant output")
    view = view_of(*halves[:2])
    scores = [scores_of(x, view, low_bits) for x in halves]
    chosen = {name: (scores[0][name], scores[1][name]) for name in scores[0]}
    has_mu, alpha = terms.claimed_mu < np.inf, terms.alpha

    def found_by(event: Event) -> tuple[str, Rates]:
        there, other = (half[event.score] for half in scores[2:])
        return event.score, rates_of(event, there, other, alpha)

    def guess(rates: Rates) -> np.ndarray:
        # Where epsilon is 0 throughout, the event with the larger mu is the better guess.
        return least_epsilon(rates, terms.delta) + 1e-3 * least_mu(rates)

    score, rates = found_by(best_event(chosen, alpha, guess))
    of_mu, rates_of_mu = found_by(best_event(chosen, alpha, least_mu)) if has_mu else (score, rates)
    epsilon, mu = float(least_epsilon(rates, terms.delta)), float(least_mu(rates_of_mu))
    proofs = [of_mu] if mu > terms.claimed_mu else []
    proofs += [score] if epsilon > terms.claimed else []
    # A proof that is not of floating point says more.
    score = min(proofs, key=lambda name: name == LOW_BITS, default=score)
    finding = f"refuted by {FAULTS[score]}" if proofs else "not refuted: the test may be weak"
    trials = min(len(x) + len(y) for x, y in zip(choosing, testing, strict=True))
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


class View(NamedTuple):
    """Direction along which outputs are projected, and the centre of distances there."""

    direction: np.ndarray
    centre: float


def view_of(first: np.ndarray, second: np.ndarray) -> View:
    """The view with the largest difference between the outputs of two neighbours."""
    direction = _direction(first, second)
    both = np.concatenate([first, second])
    return View(direction, float(np.median(_along(both, direction))))


def scores_of(outputs: np.ndarray, view: View, low_bits: bool) -> dict[str, np.ndarray]:
    """Scores of each output by name. Padding is NaN."""
    present = ~np.isnan(outputs)
    along = _along(outputs, view.direction)
    ordered = np.sort(outputs, axis=1)
    with np.errstate(over="ignore"):  # infinite scores are the largest
        distance = np.abs(along - view.centre)
        norm = np.linalg.norm(np.nan_to_num(outputs), axis=1)
    scores = {
        "length": present.sum(axis=1).astype(float),
        "repeats": (ordered[:, 1:] == ordered[:, :-1]).sum(axis=1).astype(float),
        "projection": along,
        "distance": distance,
        "norm": norm,
    }
    return scores | ({LOW_BITS: _lowest_bits(outputs)} if low_bits else {})


def _along(outputs: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.nan_to_num(outputs) @ direction


def _direction(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Difference of means over the covariance, or over the variances of long outputs (Fisher)."""
    if first.shape[1] == 1:
        return np.ones(1)  # numbers of any size keep their order
    a, b = (np.nan_to_num(x) for x in (first, second))
    gap = a.mean(axis=0) - b.mean(axis=0)
    spread = 0.5 * (a.var(axis=0) + b.var(axis=0))
    ridge = 1e-12 * spread.mean() + 1e-300
    if gap.size <= _LONGEST:
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
