"""Shuffled batches of a fixed size, for which no useful bound is known."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike
from jaxdp._numeric.mills import log_normal_survival
from jaxdp.dpsgd.arguments import with_names
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.sampling.base import TrainingSizes

# Names under which it is requested.
SHUFFLED = ("shuffled", "shuffle")
# Thresholds of the attack on shuffled batches, in noise multipliers. chosen: the best lies inside
_THRESHOLDS = np.linspace(-6.0, 14.0, 801)
# Passes that the attack counts. chosen: 801 thresholds of as many counts in a second
_MOST_ATTACKS = 1000
# Relative distance of a number of batches from a whole one that is rounding. derived: of 1 / rate
_WHOLE = 1e-12
# Ends of counts to which the last pass adds none or one. derived
_BOTH = (0, 1), (1, 0)
# Halvings of a search over epsilon. chosen: to 1e-12
_HALVINGS = 60


def refuse_shuffled(*numbers: ArrayLike) -> NoReturn:
    """`ValueError`, with the bounds at a noise multiplier, rate, steps and delta if given."""
    bounds = ""
    if numbers and checks.all_concrete(*numbers) and all(np.size(x) == 1 for x in numbers):
        scale, rate, steps, delta = (float(np.asarray(x).item()) for x in numbers)
        if rate > 0 and steps >= 1 and 0 < delta < 1:
            lower, upper = _bounds(scale, rate, steps, delta)
            bounds = (
                f" (at delta {delta:g} epsilon is at least {lower:.4g} and at most {upper:.4g})"
            )
    raise ValueError(
        "sampling must not be 'shuffled': for shuffled batches of a fixed size no useful bound is "
        f"known{bounds}; see dp.dpsgd.shuffled_bounds. Train with sampling='random_allocation' "
        "(each record joins one random step of every epoch) or 'truncated' instead"
    )


@with_names
@in_float64(side=(-1.0, 1.0))
def shuffled_bounds(
    noise_multiplier: ArrayLike,
    delta: ArrayLike = 1e-6,
    *,
    dataset_size: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    epochs: ArrayLike | None = None,
    sampling_prob: ArrayLike | None = None,
    steps: ArrayLike | None = None,
) -> tuple[float, float]:
    """Lower and upper bound on epsilon of shuffled, disjoint batches of a fixed size.

    Args:
        noise_multiplier, delta, dataset_size, batch_size, epochs, sampling_prob, steps: as in
            `epsilon`; one concrete number each.

    Returns:
        (lower, upper). The lower bound is an attack that counts the passes whose largest noisy sum
        is above a threshold (1,000 whole ones at most, and a last part); the upper one takes the
        batches for public ("zero_out": GDP with mu = sqrt(passes) / noise_multiplier). They are far
        apart: do not train so.

    If the batch size does not divide the data, a loader keeps the last, smaller batch of a pass or
    drops it, and with it the record in a part of the passes. Both bounds hold for both loaders.

    Source: Chua et al., arXiv:2403.17673, for the attack.

    >>> import jaxdp as dp
    >>> lower, upper = dp.dpsgd.shuffled_bounds(1.1, 1e-5, dataset_size=60_000, batch_size=256,
    ...     epochs=15)
    >>> print(f"{lower:.3f} {upper:.3f}")
    4.301 21.461
    """
    scale = float(checks.positive("noise_multiplier", noise_multiplier))
    target = float(checks.probability("delta", delta))
    sizes = TrainingSizes.given(dataset_size, batch_size, sampling_prob, None, epochs, steps)
    return _bounds(scale, float(sizes.rate), float(sizes.steps), target)


def _bounds(scale: float, rate: float, steps: float, delta: float) -> tuple[float, float]:
    """Bounds for loaders that drop the last batch of a pass and that keep it."""
    exact = 1.0 / rate
    # A whole number of batches is one in spite of its rounding.
    batches = float(round(exact)) if abs(exact - round(exact)) <= _WHOLE * exact else exact
    dropping, keeping = max(math.floor(batches), 1), math.ceil(batches)
    lower = min(_attacked(scale, size, batches, steps, delta) for size in {dropping, keeping})
    passes = math.ceil(steps / dropping)
    return lower, float(GDP(math.sqrt(passes) / scale).epsilon(delta))


def _attacked(scale: float, size: int, batches: float, steps: float, delta: float) -> float:
    """The largest epsilon that an attack on passes of `size` batches refutes.

    The data fill `batches` batches: fewer than a pass has where the last one is smaller, more where
    a part of the data is dropped.
    """
    cuts = xp.asarray(_THRESHOLDS)
    log_nothing = log_normal_survival(-cuts)
    passes, rest = divmod(steps, size)

    def log_below(mean: float, released: float) -> np.ndarray:
        """log P[the largest of all sums <= C] if one has this mean, where it is released."""
        share = min(released / batches, 1.0)
        log_shifted = log_normal_survival(-(cuts - mean / scale))
        with np.errstate(divide="ignore"):
            one = np.logaddexp(np.log(share) + log_shifted, np.log1p(-share) + log_nothing)
        return np.asarray(one + (released - 1.0) * log_nothing)

    def log_counts(mean: float) -> np.ndarray:
        whole = _log_of_counts(log_below(mean, float(size)), int(min(passes, _MOST_ATTACKS)))
        last = _log_of_counts(log_below(mean, rest), 1)
        padded = (np.pad(whole, ((0, 0), ends), constant_values=-np.inf) for ends in _BOTH)
        return np.logaddexp(*(x + y[:, None] for x, y in zip(padded, last.T, strict=True)))

    log_p, log_q = log_counts(2.0), log_counts(1.0)
    low, high = 0.0, 1e4
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        with np.errstate(invalid="ignore"):
            ratio = np.minimum(middle + log_q - log_p, 0.0)
        gain = np.where(log_p > -np.inf, np.exp(log_p) * -np.expm1(ratio), 0.0)
        low, high = (middle, high) if np.max(np.sum(gain, axis=-1)) > delta else (low, middle)
    return low


def _log_of_counts(log_below: np.ndarray, passes: int) -> np.ndarray:
    """log P[k of the passes have a sum above C], k = 0, 1, .., by C."""
    k = np.arange(passes + 1.0)
    log_factorials = np.array([math.lgamma(i + 1.0) for i in k])
    log_ways = log_factorials[-1] - log_factorials - log_factorials[::-1]
    log_above = np.log(np.maximum(-np.expm1(log_below), 1e-300))
    return log_ways + k * log_above[:, None] + (passes - k) * np.maximum(log_below, -690.0)[:, None]
