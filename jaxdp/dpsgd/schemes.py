"""Sampling schemes of DP-SGD by name; shuffling, which is refused with numbers."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import Relation
from jaxdp._core.samplings import SAMPLINGS
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.mills import log_normal_survival
from jaxdp.composition.privacy_loss import privacy_loss
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.allocation import BallsInBins, RandomAllocation
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement

# Of which a step is a release by itself; the others allocate records to the steps of an epoch.
SAMPLED_BY_STEP = SAMPLINGS[:3]
# Asked for by many, and no bound that is any good is known.
SHUFFLED = ("shuffled", "shuffle")
# Thresholds of the attack on shuffled batches, in noise multipliers. chosen: the best lies inside
_THRESHOLDS = np.linspace(-6.0, 14.0, 801)
# Halvings of a search over epsilon. chosen: to 1e-12
_HALVINGS = 60


def scheme_of(
    sampling: str,
    rate: Reals,
    dataset_size: ArrayLike | None,
    batch_size: ArrayLike | None,
    batch_size_limit: ArrayLike | None,
    steps: Reals,
    epochs: ArrayLike | None,
) -> tuple[Scheme | None, Reals, Reals]:
    """The scheme of a name, None for Poisson, how many releases of it there are, and the steps.

    Where records are allocated to the steps of an epoch, epochs are whole.
    """
    checks.one_of("sampling", sampling, SAMPLINGS)
    if (batch_size_limit is not None) != (sampling == "truncated"):
        raise ValueError(
            "batch_size_limit must be given with sampling='truncated', and only there, got "
            f"batch_size_limit={batch_size_limit}, sampling={sampling!r}"
        )
    if sampling == "poisson":
        return None, steps, steps
    if sampling == "truncated":
        assert batch_size_limit is not None
        return (
            TruncatedPoisson(rate, batch_size_limit, _required_size(sampling, dataset_size)),
            steps,
            steps,
        )
    if sampling == "without_replacement":
        size = _required_size(sampling, dataset_size)
        if batch_size is None:
            raise ValueError("batch_size must be given with sampling='without_replacement'")
        batch = checks.whole("batch_size", batch_size, 1.0)
        return WithoutReplacement(batch, size), steps, steps
    bins = _bins(rate)
    passes = _epochs(steps, bins) if epochs is None else checks.whole("epochs", epochs, 1.0)
    if sampling == "random_allocation":
        return RandomAllocation(bins), passes, passes * bins
    return BallsInBins(bins, passes), xp.ones_like(passes), passes * bins


def refuse_shuffled(*numbers: ArrayLike) -> NoReturn:
    """ValueError for shuffled fixed batches, with what is known of one training.

    Args:
        numbers: none, or the noise multiplier, the rate, the steps, and the delta of the question.
    """
    bounds = ""
    if numbers and checks.all_concrete(*numbers) and all(np.size(x) == 1 for x in numbers):
        scale, q, count, delta = (float(np.asarray(x).item()) for x in numbers)
        if q > 0 and count >= 1 and 0 < delta < 1:
            size = max(math.floor(1.0 / q), 1)
            passes = math.ceil(count / size)
            lower, upper = shuffled_bounds(scale, delta, steps_per_epoch=size, epochs=passes)
            bounds = (
                f" (at delta {delta:g} epsilon is no less than {lower:.4g} after one pass, "
                f"and certainly at most {upper:.4g})"
            )
    raise ValueError(
        f"sampling must not be shuffled fixed batches, of which no useful bound is known{bounds}; "
        "`dp.dpsgd.shuffled_bounds` says what is. Run 'random_allocation' (each record joins one "
        "random step of every epoch) or 'truncated' instead"
    )


def _required_size(sampling: str, dataset_size: ArrayLike | None) -> ArrayLike:
    if dataset_size is None:
        raise ValueError(f"dataset_size must be given with sampling={sampling!r}: it is public")
    return dataset_size


def _bins(rate: Reals) -> int:
    """The steps of an epoch, one known number."""
    if not checks.is_concrete(rate) or np.size(rate) != 1 or not float(np.asarray(rate).item()) > 0:
        raise ValueError(
            "the steps of an epoch must be one known number where records are allocated to them"
        )
    return math.ceil(1.0 / float(np.asarray(rate).item()) * (1.0 - 1e-9))


def _epochs(steps: Reals, bins: int) -> Reals:
    epochs = steps / bins
    if checks.is_concrete(epochs) and bool(np.any(np.asarray(epochs) != np.round(epochs))):
        raise ValueError(
            f"steps must be whole epochs of {bins} steps where records are allocated, got {steps}"
        )
    return xp.where(epochs == xp.round(epochs), xp.maximum(epochs, 1.0), xp.nan)


@in_float64
def batch_size_limit(
    noise_multiplier: ArrayLike,
    *,
    dataset_size: int,
    batch_size: ArrayLike,
    steps: int,
    delta: ArrayLike = 1e-6,
    excess: ArrayLike = 0.01,
    relation: Relation = "add_remove",
) -> int:
    """The least limit of a truncated Poisson batch that costs at most `excess` of epsilon.

    Args:
        noise_multiplier, dataset_size, batch_size, steps, relation: of the training, one known
            number each; batch_size is the mean, dataset_size the larger of two neighbours.
        delta: at which epsilons are compared.
        excess: epsilon may be larger than without a limit by this share of it, above 0.

    Returns:
        A whole number, by bisection: epsilon falls as the limit rises.

    >>> import jaxdp as dp
    >>> dp.dpsgd.batch_size_limit(1.1, dataset_size=60_000, batch_size=256, steps=3516, delta=1e-5)
    324
    """
    excess = float(checks.real("excess", excess, 0.0, open_lower=True))
    size = checks.positive_integer("dataset_size", dataset_size)
    mean = float(checks.positive("batch_size", batch_size))
    rate = float(checks.probability("batch_size / dataset_size", mean / size))
    noise = Gaussian(noise_multiplier)

    def epsilon_of(scheme: Scheme | None) -> float:
        prob = rate if scheme is None else 1.0
        mechanism = Mechanism(noise, 1.0, prob, relation, sampling=scheme)
        return float((steps * privacy_loss(mechanism)).epsilon(delta))

    largest = epsilon_of(None) * (1.0 + excess)
    low, high = max(math.floor(mean) - 1, 0), math.ceil(mean + 12.0 * math.sqrt(mean) + 12.0)
    high = min(high, size)
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon_of(TruncatedPoisson(rate, middle, size)) <= largest:
            high = middle
        else:
            low = middle
    return high


def steps_of_a_group(steps: int, bands: int) -> int:
    """Steps that one record may take part in under a banded matrix mechanism: ceil(steps / bands).

    Args:
        steps: of the training.
        bands: of the strategy matrix, which are the groups of records as well.

    Returns:
        A whole number.

    With a lower-triangular C of `bands` bands and columns of norm 1, and records cut into `bands`
    groups beforehand, step i sampling from group i mod bands alone (cyclic Poisson), the training
    is that of so many steps on one group: `Phase(noise_multiplier, sampling_prob=..., steps=...)`
    with the probability within the group; cut batches with dataset_size the largest group's, under
    "zero_out". Source: Choquette-Choo et al., arXiv:2306.08153, theorem 4.

    >>> import jaxdp as dp
    >>> dp.dpsgd.steps_of_a_group(1000, 16)
    63
    """
    steps, bands = checks.positive_integer("steps", steps), checks.positive_integer("bands", bands)
    return -(-steps // bands)


@in_float64
def shuffled_bounds(
    noise_multiplier: ArrayLike, delta: ArrayLike, *, steps_per_epoch: int, epochs: int = 1
) -> tuple[float, float]:
    """Bounds on epsilon of shuffled, disjoint batches: no less than, and certainly at most.

    Args:
        noise_multiplier, delta: of the training; one known number each.
        steps_per_epoch: batches of a pass over the data.
        epochs: passes.

    Returns:
        (lower, upper): lower is that of one pass, by an attack on the largest of its noisy sums;
        upper takes the batches for known ("zero_out": sqrt(epochs) / noise_multiplier as GDP).
        They are far apart: no training should run so.

    Source: Chua et al., arXiv:2403.17673, for the attack.

    >>> import jaxdp as dp
    >>> lower, upper = dp.dpsgd.shuffled_bounds(1.1, 1e-5, steps_per_epoch=234, epochs=16)
    >>> print(f"{lower:.3f} {upper:.3f}")
    2.980 21.461
    """
    scale = float(checks.positive("noise_multiplier", noise_multiplier))
    target = float(checks.probability("delta", delta))
    steps = checks.positive_integer("steps_per_epoch", steps_per_epoch)
    cuts = xp.asarray(_THRESHOLDS)

    def log_below(mean: float) -> Reals:
        """log P[the largest of all sums <= C], one of which has this mean."""
        log_others = log_normal_survival(-cuts) * (steps - 1.0)
        return log_normal_survival(-(cuts - mean / scale)) + log_others

    p, q = (-np.expm1(np.asarray(log_below(mean))) for mean in (2.0, 1.0))
    low, high = 0.0, 1e4
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        attacked = float(np.max(p - np.exp(min(middle, 700.0)) * q))
        low, high = (middle, high) if attacked > target else (low, middle)
    upper = float(GDP(math.sqrt(checks.positive_integer("epochs", epochs)) / scale).epsilon(target))
    return low, upper
