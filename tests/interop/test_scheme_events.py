"""Events of other schemes are the mechanisms that they name."""

import dp_accounting
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


def test_a_mixture_of_several_sensitivities():
    event = Events.MixtureOfGaussiansDpEvent(1.0, [0.0, 2.0, 1.0], [0.7, 0.1, 0.2])
    pair = dp.GaussianMixture([0.0, 1.0, 2.0], [0.7, 0.2, 0.1], 1.0)
    found = composed(event).get_delta(0.5)
    truth = max(float(p.delta(0.5)) for p in (dp.privacy_loss(pair, "add_remove"),))
    assert found == pytest.approx(truth, rel=1e-9)


def test_a_tree():
    event = Events.SingleEpochTreeAggregationDpEvent(5.0, [3, 8])
    found = composed(event, Relations.REPLACE_SPECIAL).get_epsilon(1e-5)
    assert found == pytest.approx(float(dp.GDP(np.sqrt(4) / 5.0).epsilon(1e-5)), rel=1e-9)


def test_bad_parameters_are_refused():
    event = Events.TruncatedSubsampledGaussianDpEvent(1000, 1.5, 25, 1.2)
    with pytest.raises(ValueError, match="sampling_prob"):
        composed(event)
