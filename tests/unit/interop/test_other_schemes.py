"""Schemes as dp_accounting's events name them."""

import dp_accounting
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
