"""Audits: a mechanism is run many times on two neighbours, and a test tells the outputs apart.

Half of the outputs choose the test, among scores of an output and thresholds; the other half gives
the bounds, so that one test is made and its confidence is what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.progress import shown
from jaxdp._core.random_key import checked_key, secure_key
from jaxdp._core.types import Key
from jaxdp.audit.bounds import best_event, least_epsilon, least_mu, rates_of
from jaxdp.guarantee.base import require_both_directions
from jaxdp.mechanism import Mechanism

# Entries up to which their covariance is used. chosen: a few trials estimate it
_LONGEST = 50
# Attributes of a fitted estimator that make its output. chosen: those of scikit-learn and ours
_FITTED = (
    *("coef_", "intercept_", "components_", "explained_variance_", "covariance_", "mean_"),
    *("center_", "scale_", "theta_", "var_", "class_count_", "class_log_prior_"),
    *("feature_log_prob_", "model_"),
)


class Audit(NamedTuple):
    """Result of an audit.

    epsilon_lower, mu_lower: below the true ones with probability `confidence`, which is one less
    the false-alarm rate. claimed: the epsilon that was promised at `delta`. is_refuted: True if
    the lower bound is above it. score: of an output, which the test compares with a threshold.
    """

    epsilon_lower: float
    mu_lower: float
    delta: float
    confidence: float
    claimed: float
    is_refuted: bool
    score: str
    trials: int


def audit(
    mechanism: Any,
    neighbours: Sequence[Any],
    trials: int,
    *,
    delta: float = 0.0,
    claim: Any = None,
    confidence: float = 0.95,
    key: Key | None = None,
    chunk: int | None = None,
    progress: bool | None = None,
) -> Audit:
    """A lower confidence bound on epsilon, from running a mechanism on two neighbours.

    Args:
        mechanism: a `Mechanism`, whose releases are audited; a function of (data, key), whose
            output is an array or a tree; or an estimator with `fit`, a copy of which is fitted.
        neighbours: two data sets; of an estimator, tuples of what `fit` takes.
        trials: outputs of either neighbour, 4 or more; half choose the test.
        delta: at which epsilon is bounded.
        claim: what has `epsilon(delta)`, for both directions, or that epsilon as a number; None:
            the mechanism itself.
        confidence: that the bounds hold: 1 less the rate of false alarms.
        key: of the draws; None takes one from the operating system. It sets what estimators have
            as `random_state`: a fixed one would draw the same noise in every trial.
        chunk: trials that one call makes: the function gets keys (chunk,), as `jax.vmap` maps it
            over them, and its outputs have a leading axis. None: one key, one output.
        progress: a bar of the calls on stderr, of tqdm where that is installed; if None where
            stderr is a terminal.

    Returns:
        An `Audit`. That nothing was refuted proves nothing: the test may be weak.

    Source: split samples and Clopper-Pearson bounds; see `audit.bounds`. Bad arguments raise
    `ValueError`.

    >>> import jax
    >>> import jaxdp as dp
    >>> found = dp.audit(dp.Mechanism(dp.Laplace(1.0), 1.0), (0.0, 1.0), 2000,
    ...     key=jax.random.key(0), progress=False)
    >>> found.is_refuted, found.epsilon_lower > 0.5
    (False, True)
    """
    trials = checks.positive_integer("trials", trials)
    if trials < 4:
        raise ValueError(f"trials must be at least 4, got {trials}")
    if not isinstance(neighbours, Sequence) or len(neighbours) != 2:
        raise ValueError("neighbours must be two data sets")
    delta, level = checked_terms(delta, confidence)
    claimed = claimed_epsilon(mechanism if claim is None else claim, delta)
    keys = jax.random.split(secure_key() if key is None else checked_key(key), 2)
    first, second = (
        _outputs(mechanism, data, jax.random.split(run_key, trials), chunk, progress)
        for data, run_key in zip(neighbours, keys, strict=True)
    )
    return _tested(first, second, (delta, level, claimed))


def _tested(first: np.ndarray, second: np.ndarray, terms: tuple[float, float, float]) -> Audit:
    """A test chosen on the first half of the outputs, and what it finds on the other."""
    delta, level, claimed = terms
    trials, longest = len(first), max(first.shape[1], second.shape[1])
    first, second = (
        np.pad(x, ((0, 0), (0, longest - x.shape[1])), constant_values=np.nan)
        for x in (first, second)
    )
    half = trials // 2
    alpha = 1.0 - level
    direction = _direction(first[:half], second[:half])
    pairs = [_scores(x, direction) for x in (first, second)]
    choosing = {name: (pairs[0][name][:half], pairs[1][name][:half]) for name in pairs[0]}
    event = best_event(choosing, delta, alpha)
    tested = [scores[event.score][half:] for scores in pairs]
    rates = rates_of(event, tested[0], tested[1], alpha)
    epsilon, mu = float(least_epsilon(rates, delta)), float(least_mu(rates))
    return Audit(epsilon, mu, delta, level, claimed, epsilon > claimed, event.score, trials)


def checked_terms(delta: float, confidence: float) -> tuple[float, float]:
    """delta in [0, 1] and confidence in (0, 1)."""
    level = float(checks.probability("confidence", confidence))
    if not 0.0 < level < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {level}")
    return float(checks.probability("delta", delta)), level


def claimed_epsilon(claim: Any, delta: float) -> float:
    """The epsilon that is promised in both directions; infinite where nothing is."""
    if isinstance(claim, int | float):
        return float(checks.real("claim", claim, 0.0))
    require_both_directions(claim)
    promise = getattr(claim, "epsilon", None)
    return float(np.max(np.asarray(promise(delta)))) if callable(promise) else float("inf")


def _outputs(
    mechanism: Any, data: Any, keys: jax.Array, chunk: int | None, progress: bool | None
) -> np.ndarray:
    """The outputs, a flat row each, padded with NaN to one length."""
    trials = len(keys)
    if isinstance(mechanism, Mechanism):
        value = np.asarray(data)
        if mechanism.sensitivity.shape or value.shape:
            raise ValueError("mechanism must be one release of a number: give a function of others")
        spread = jax.tree.map(lambda x: jnp.broadcast_to(x, (trials,)), mechanism)
        values = np.asarray(spread.release(np.full(trials, value), keys[0]).value)
        return values[:, None].astype(float)
    size = 1 if chunk is None else checks.positive_integer("chunk", chunk)
    blocks: list[np.ndarray] = []
    for start in shown(range(0, trials, size), "audit", progress):
        part = keys[start] if chunk is None else keys[start : start + size]
        leaves = jax.tree.leaves(_run_once(mechanism, data, part))
        rows = 1 if chunk is None else len(part)
        flat = [np.asarray(x, dtype=float).reshape(rows, -1) for x in leaves]
        blocks.append(np.hstack([*flat, np.zeros((rows, 0))]))
    padded = np.full((trials, max(1, *(x.shape[1] for x in blocks))), np.nan)
    for index, block in enumerate(blocks):
        padded[index * size : index * size + len(block), : block.shape[1]] = block
    return padded


def _run_once(mechanism: Any, data: Any, key: jax.Array) -> Any:
    if hasattr(mechanism, "fit"):
        fitted = _reseeded(mechanism, key).fit(*data)
        return [getattr(fitted, name) for name in _FITTED if hasattr(fitted, name)]
    if not callable(mechanism):
        raise ValueError(
            "mechanism must be a Mechanism, a function of (data, key) or an estimator, got "
            f"{type(mechanism).__name__}"
        )
    return mechanism(data, key)


def _reseeded(estimator: Any, key: jax.Array) -> Any:
    """A copy whose randomness, and that of its parts, comes from the key."""
    copy = checks.extra("sklearn.base", "learn").clone(estimator)
    names = [name for name in sorted(copy.get_params()) if name.endswith("random_state")]
    seeds = np.asarray(jax.random.bits(key, (len(names),), dtype=np.uint32))
    state_of = checks.extra("sklearn.utils", "learn").check_random_state
    states = {name: state_of(int(s)) for name, s in zip(names, seeds, strict=True)}
    return copy.set_params(**states)


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


def _scores(outputs: np.ndarray, direction: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of each output by name: what may tell neighbours apart. Padding is NaN."""
    present = ~np.isnan(outputs)
    numbers = np.nan_to_num(outputs)
    along = numbers @ direction
    ordered = np.sort(outputs, axis=1)
    return {
        "length": present.sum(axis=1).astype(float),
        "low bits": _lowest_bits(outputs),
        "repeats": (ordered[:, 1:] == ordered[:, :-1]).sum(axis=1).astype(float),
        "projection": along,
        "distance": np.abs(along - np.median(along)),
        "norm": np.linalg.norm(numbers, axis=1),
    }


def _lowest_bits(outputs: np.ndarray) -> np.ndarray:
    """Mean exponent of the lowest bit that is set in the doubles of each output."""
    has_bits = np.isfinite(outputs) & (outputs != 0)
    mantissa, exponent = np.frexp(np.where(has_bits, outputs, 1.0))
    digits = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.log2((digits & -digits).astype(float)) - 53.0 + exponent
    return np.where(has_bits, lowest, 0.0).sum(axis=1) / np.maximum(has_bits.sum(axis=1), 1)
