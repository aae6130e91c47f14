"""Privacy loss of the batch selection strategies of jax_privacy."""

from __future__ import annotations

from typing import Any

from jaxdp._core import checks
from jaxdp._core.neighbours import ADD_REMOVE, Relation
from jaxdp._core.types import ArrayLike
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.allocation import BallsInBins, RandomAllocation
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.poisson import Poisson
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement


def loss_from_strategy(
    strategy: Any,
    noise_multiplier: ArrayLike,
    relation: Relation = "add_remove",
    *,
    dataset_size: int | None = None,
) -> PrivacyLoss:
    """The privacy loss of all iterations of a sampling strategy of jax_privacy.

    Args:
        strategy: a CyclicPoissonSampling, BallsInBinsSampling, RandomAllocationSampling or
            FixedBatchSampling, recognised by the name of its class: jax_privacy need not be
            installed.
        noise_multiplier: independent Gaussian noise of every iteration over the clipping norm.
        relation: as in `Mechanism`.
        dataset_size: public size of the larger of two neighbours; required for batches that are
            truncated or of a fixed size.

    Returns:
        The loss of the group with the most iterations, if `cycle_length` splits the records into
        groups: ceil(iterations / cycle_length) steps of a cyclic Poisson sample, as many epochs of
        balls in bins; random allocation to the fewest steps of a group.

    `ValueError` for groups of equal size (`partition_type`) under "add_remove", since one record
    changes them; for truncated batches from groups of random size; and for other strategies, such
    as sampling with replacement.

    >>> import jaxdp as dp
    >>> class BallsInBinsSampling:
    ...     iterations, cycle_length = 3525, 235
    >>> loss = dp.interop.jax_privacy.loss_from_strategy(BallsInBinsSampling(), 1.1)
    >>> print(f"{loss.epsilon(1e-5):.2f}")
    15.10
    """
    scheme, count = _scheme_of(strategy, relation, dataset_size)
    noise = Gaussian(noise_multiplier)
    return count * privacy_loss(Mechanism(noise, 1.0, sampling=scheme, relation=relation))


def _scheme_of(strategy: Any, relation: str, size: int | None) -> tuple[Scheme, int]:
    """The scheme, and the number of its releases that one record may take part in."""
    match type(strategy).__name__:
        case "CyclicPoissonSampling":
            groups, equal = _groups(strategy, relation)
            steps, rate = -(-_whole(strategy, "iterations") // groups), strategy.sampling_prob
            if (limit := strategy.truncated_batch_size) is None:
                return Poisson(rate), steps
            if not equal:
                raise ValueError(
                    "partition_type must be EQUAL_SPLIT where batches of groups are cut"
                )
            return TruncatedPoisson(rate, limit, _required_size(size) // groups), steps
        case "BallsInBinsSampling":
            bins = _whole(strategy, "cycle_length")
            return BallsInBins(bins, -(-_whole(strategy, "iterations") // bins)), 1
        case "RandomAllocationSampling":
            # The fewest steps of a group bound the others, in which some steps are public.
            steps = _whole(strategy, "iterations") // _groups(strategy, relation)[0]
            return RandomAllocation(steps, _whole(strategy, "total_participations")), 1
        case "FixedBatchSampling":
            if strategy.replace:
                raise ValueError(
                    "replace must be False: no pair is known of samples with replacement"
                )
            batch = _whole(strategy, "batch_size")
            return WithoutReplacement(batch, _required_size(size)), _whole(strategy, "iterations")
        case name:
            raise ValueError(
                "strategy must be one of CyclicPoissonSampling, BallsInBinsSampling, "
                f"RandomAllocationSampling, FixedBatchSampling, got {name}"
            )


def _groups(strategy: Any, relation: str) -> tuple[int, bool]:
    """Into how many groups records are cut, and whether their sizes are known."""
    count = _whole(strategy, "cycle_length") if hasattr(strategy, "cycle_length") else 1
    independent = getattr(getattr(strategy, "partition_type", None), "name", "") == "INDEPENDENT"
    if count > 1 and not independent and relation in ADD_REMOVE:
        raise ValueError(
            f"partition_type must be INDEPENDENT under {relation!r} with cycle_length {count}: "
            "groups of equal size change with a record more or less"
        )
    return count, count == 1 or not independent


def _whole(strategy: Any, name: str) -> int:
    return checks.positive_integer(name, getattr(strategy, name))


def _required_size(size: int | None) -> int:
    if size is None:
        raise ValueError("dataset_size must be given where batches are cut or of one size")
    return checks.positive_integer("dataset_size", size)
