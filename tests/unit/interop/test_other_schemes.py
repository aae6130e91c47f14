"""Schemes as dp_accounting's events and jax_privacy's strategies name them."""

import dataclasses
import enum

import dp_accounting
import jax
import numpy as np
import pytest

import jaxdp as dp

Events, Relations = dp_accounting.dp_event, dp_accounting.NeighboringRelation
RELATION = {
    Relations.ADD_OR_REMOVE_ONE: "add_remove",
    Relations.REPLACE_ONE: "replace_one",
    Relations.REPLACE_SPECIAL: "zero_out",
}


def composed(event, relation=Relations.ADD_OR_REMOVE_ONE, count=1):
    accountant = dp.interop.dp_accounting.Accountant(relation)
    accountant.compose(event, count)
    return accountant


@pytest.mark.parametrize("relation", RELATION)
def test_a_truncated_sample(relation):
    event = Events.TruncatedSubsampledGaussianDpEvent(1000, 0.02, 25, 1.2)
    scheme = dp.sampling.TruncatedPoisson(0.02, 25, 1000)
    mechanism = dp.Mechanism(dp.Gaussian(1.2), 1.0, sampling=scheme, relation=RELATION[relation])
    found = composed(event, relation).get_delta(0.5)
    assert found == pytest.approx(float(mechanism.delta(0.5)), rel=1e-9)


def test_a_sample_without_replacement():
    event = Events.SampledWithoutReplacementDpEvent(1000, 20, Events.GaussianDpEvent(1.2))
    scheme = dp.sampling.WithoutReplacement(20, 1000)
    mechanism = dp.Mechanism(dp.Gaussian(1.2), 1.0, sampling=scheme, relation="add_remove")
    assert composed(event).get_delta(0.5) == pytest.approx(float(mechanism.delta(0.5)), rel=1e-9)


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="sampling_prob"):
        composed(Events.TruncatedSubsampledGaussianDpEvent(1000, 1.5, 25, 1.2))


S = dp.sampling
loss_of = dp.interop.jax_privacy.loss_from_strategy


class PartitionType(enum.Enum):
    INDEPENDENT = enum.auto()
    EQUAL_SPLIT = enum.auto()


@dataclasses.dataclass(frozen=True)
class CyclicPoissonSampling:
    sampling_prob: float
    iterations: int
    truncated_batch_size: int | None = None
    cycle_length: int = 1
    partition_type: PartitionType = PartitionType.EQUAL_SPLIT


@dataclasses.dataclass(frozen=True)
class BallsInBinsSampling:
    iterations: int
    cycle_length: int


@dataclasses.dataclass(frozen=True)
class RandomAllocationSampling:
    iterations: int
    total_participations: int
    cycle_length: int = 1


@dataclasses.dataclass(frozen=True)
class FixedBatchSampling:
    batch_size: int
    iterations: int
    replace: bool = False


class BMinSepSampling:
    pass


INDEPENDENT = PartitionType.INDEPENDENT


def plain(scheme, count, relation="add_remove"):
    mechanism = dp.Mechanism(dp.Gaussian(1.2), 1.0, sampling=scheme, relation=relation)
    return count * dp.privacy_loss(mechanism)


Cyclic, Bins, Allocated = CyclicPoissonSampling, BallsInBinsSampling, RandomAllocationSampling
# What runs, the scheme and how often it is released, relation, and size of the data set.
STRATEGIES = [
    (Cyclic(0.01, 100), S.Poisson(0.01), 100, "add_remove", None),
    (Cyclic(0.2, 100, None, 16, INDEPENDENT), S.Poisson(0.2), 7, "add_remove", None),
    (Cyclic(0.2, 100, None, 16), S.Poisson(0.2), 7, "replace_one", None),
    (Cyclic(0.02, 100, 25), S.TruncatedPoisson(0.02, 25, 1000), 100, "add_remove", 1000),
    (Cyclic(0.2, 100, 25, 16), S.TruncatedPoisson(0.2, 25, 62), 7, "zero_out", 1000),
    (Bins(100, 25), S.BallsInBins(25, 4), 1, "add_remove", None),
    (Bins(101, 25), S.BallsInBins(25, 5), 1, "zero_out", None),
    (Allocated(100, 4), S.RandomAllocation(100, 4), 1, "add_remove", None),
    (Allocated(101, 4, 10), S.RandomAllocation(10, 4), 1, "zero_out", None),
    (FixedBatchSampling(20, 100), S.WithoutReplacement(20, 1000), 100, "replace_one", 1000),
]


@pytest.mark.parametrize(("strategy", "scheme", "count", "relation", "size"), STRATEGIES)
def test_a_strategy_is_the_scheme_that_it_runs(strategy, scheme, count, relation, size):
    found = loss_of(strategy, 1.2, relation, dataset_size=size)
    same = plain(scheme, count, relation)
    assert jax.tree.structure(found) == jax.tree.structure(same)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bins_that_are_passed_unequally_often_are_bounded_from_above():
    """The truth lies between the epochs that all bins have and those that some have."""
    fewer, found = (loss_of(BallsInBinsSampling(n, 25), 1.2) for n in (100, 101))
    assert float(found.delta(1.0)) > float(fewer.delta(1.0))
    assert float(found.delta(1.0)) == float(loss_of(BallsInBinsSampling(125, 25), 1.2).delta(1.0))


@pytest.mark.parametrize(
    ("strategy", "relation", "words"),
    [
        (BMinSepSampling(), "add_remove", "strategy must be one of .* got BMinSepSampling"),
        (CyclicPoissonSampling(0.1, 9, None, 3), "add_remove", "must be INDEPENDENT"),
        (RandomAllocationSampling(9, 1, 3), "remove", "must be INDEPENDENT"),
        (CyclicPoissonSampling(0.1, 9, 5, 3, INDEPENDENT), "zero_out", "must be EQUAL_SPLIT"),
        (CyclicPoissonSampling(0.1, 9, 5), "add_remove", "dataset_size must be given"),
        (CyclicPoissonSampling(1.5, 9), "add_remove", "sampling_prob"),
        (FixedBatchSampling(5, 9), "add_remove", "dataset_size must be given"),
        (FixedBatchSampling(5, 9, True), "add_remove", "replace must be False"),
        (BallsInBinsSampling(9, 3), "replace_one", "relation must be one of"),
        (BallsInBinsSampling(0, 3), "add_remove", "iterations must be a positive integer"),
        (RandomAllocationSampling(9, 10), "add_remove", "selected"),
    ],
)
def test_what_is_not_known_is_refused(strategy, relation, words):
    with pytest.raises(ValueError, match=words):
        loss_of(strategy, 1.2, relation)


def test_the_strategies_of_jax_privacy_itself():
    """Skipped where jax_privacy is missing."""
    theirs = pytest.importorskip("jax_privacy.batch_selection")
    bins = theirs.BallsInBinsSampling(iterations=100, cycle_length=25)
    assert float(loss_of(bins, 1.2).delta(1.0)) == float(plain(S.BallsInBins(25, 4), 1).delta(1.0))
    cyclic = theirs.CyclicPoissonSampling(sampling_prob=0.01, iterations=100)
    assert float(loss_of(cyclic, 1.2).delta(0.1)) == float(plain(S.Poisson(0.01), 100).delta(0.1))
