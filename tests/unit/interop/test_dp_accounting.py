"""The dp_accounting-shaped accountant against dp_accounting; its events, relations and errors."""

import math

import numpy as np
import pytest

import jaxdp as dp

dp_accounting = pytest.importorskip("dp_accounting")
pld = pytest.importorskip("dp_accounting.pld")
contract = pytest.importorskip("dp_accounting.privacy_accountant_test")

ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
SPECIAL = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
GAUSSIAN, LAPLACE = dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent
DISCRETE = dp_accounting.dp_event.DiscreteLaplaceDpEvent
POISSON, REPEATED = dp_accounting.PoissonSampledDpEvent, dp_accounting.SelfComposedDpEvent
FIXED = dp_accounting.SampledWithoutReplacementDpEvent
TRUNCATED = dp_accounting.TruncatedSubsampledGaussianDpEvent


def accountant(relation=ADD_OR_REMOVE):
    return dp.interop.dp_accounting.Accountant(relation)


class TestContract(contract.PrivacyAccountantTest):
    """What dp_accounting asks of every accountant."""

    __unittest_skip__ = False

    def _make_test_accountants(self):
        return [accountant(), accountant(REPLACE), accountant(SPECIAL)]


PIPELINES = [
    (ADD_OR_REMOVE, REPEATED(POISSON(0.01, GAUSSIAN(1.0)), 1000)),
    pytest.param(ADD_OR_REMOVE, REPEATED(LAPLACE(5.0), 20), marks=pytest.mark.long),
    pytest.param(ADD_OR_REMOVE, REPEATED(POISSON(0.1, LAPLACE(2.0)), 30), marks=pytest.mark.long),
    (REPLACE, dp_accounting.ComposedDpEvent([GAUSSIAN(5.0), REPEATED(GAUSSIAN(4.0), 3)])),
    (REPLACE, REPEATED(POISSON(0.01, GAUSSIAN(1.0)), 1000)),
    pytest.param(ADD_OR_REMOVE, DISCRETE(0.5, 1), marks=pytest.mark.long),
]


@pytest.mark.parametrize(("relation", "event"), PIPELINES)
def test_agrees_with_dp_accounting(relation, event):
    """To three steps of its own grid, which are 1e-3."""
    mine, theirs = accountant(relation).compose(event), pld.PLDAccountant(relation).compose(event)
    for delta in (1e-3, 1e-5):
        near, far = mine.get_epsilon(delta), theirs.get_epsilon(delta)
        assert abs(near - far) < 3e-3 * max(1.0, far), (delta, near, far)
    epsilon = theirs.get_epsilon(1e-4)
    above = mine.get_delta(0.7 * epsilon) / theirs.get_delta(0.7 * epsilon) - 1
    sampled_laplace = event == REPEATED(POISSON(0.1, LAPLACE(2.0)), 30)
    # Sampled Laplaces keep their atoms in the sum: their bound is a wide one.
    assert -1e-3 < above < (0.03 if sampled_laplace else 1e-3)


def test_equal_events_are_counted():
    """A hundred calls are one term, and the ledger is dp_accounting's."""
    many = accountant()
    for _ in range(100):
        many.compose(POISSON(0.01, GAUSSIAN(1.0)))
    loss = many.privacy_loss()
    assert len(loss.terms) == 1
    np.testing.assert_array_equal(loss.terms[0].count, [100.0])
    at_once = accountant().compose(POISSON(0.01, GAUSSIAN(1.0)), 100)
    assert many.get_delta(1.0) == at_once.get_delta(1.0)
    assert many.ledger == at_once.ledger


def test_nested_samples_and_gaussians_merge():
    twice = accountant().compose(POISSON(0.2, REPEATED(GAUSSIAN(2.0), 4)))
    once = accountant().compose(POISSON(0.2, GAUSSIAN(1.0)))
    np.testing.assert_allclose(twice.get_delta(0.5), once.get_delta(0.5), rtol=1e-12)
    for relation in (ADD_OR_REMOVE, REPLACE):
        nested = accountant(relation).compose(POISSON(0.5, POISSON(0.4, GAUSSIAN(1.0))))
        plain = accountant(relation).compose(POISSON(0.2, GAUSSIAN(1.0)))
        np.testing.assert_allclose(nested.get_delta(0.5), plain.get_delta(0.5), rtol=1e-12)
    whole = accountant(REPLACE).compose(POISSON(1.0, GAUSSIAN(2.0)), 4)
    np.testing.assert_allclose(whole.get_epsilon(1e-5), dp.GDP(2.0).epsilon(1e-5), rtol=1e-10)
    assert accountant().compose(POISSON(0.0, GAUSSIAN(0.0))).get_epsilon(1e-9) == 0
    assert accountant().compose(GAUSSIAN(0.0)).get_delta(3.0) == 1


CUT, BATCH = dp.sampling.TruncatedPoisson(0.02, 25, 1000), dp.sampling.WithoutReplacement(20, 1000)


@pytest.mark.parametrize(
    ("relation", "name", "event", "scheme"),
    [
        (ADD_OR_REMOVE, "add_remove", TRUNCATED(1000, 0.02, 25, 1.2), CUT),
        (REPLACE, "replace_one", TRUNCATED(1000, 0.02, 25, 1.2), CUT),
        (SPECIAL, "zero_out", TRUNCATED(1000, 0.02, 25, 1.2), CUT),
        (ADD_OR_REMOVE, "add_remove", FIXED(1000, 20, GAUSSIAN(1.2)), BATCH),
    ],
)
def test_events_name_schemes(relation, name, event, scheme):
    mechanism = dp.Mechanism(dp.Gaussian(1.2), 1.0, sampling=scheme, relation=name)
    found = accountant(relation).compose(event).get_delta(0.5)
    assert found == pytest.approx(float(mechanism.delta(0.5)), rel=1e-9)


UNKNOWN = dp_accounting.UnsupportedEventError


@pytest.mark.parametrize(
    ("relation", "event", "error", "why"),
    [
        (REPLACE, POISSON(0.1, REPEATED(LAPLACE(1.0), 2)), UNKNOWN, "must hold one LaplaceDpEvent"),
        (REPLACE, POISSON(0.1, DISCRETE(0.5, 1)), UNKNOWN, "must hold one LaplaceDpEvent"),
        (SPECIAL, dp_accounting.dp_event.ZCDpEvent(1.0), UNKNOWN, "ZCDpEvent is not one of"),
        (SPECIAL, GAUSSIAN(-1.0), ValueError, "noise_multiplier must lie in"),
        (SPECIAL, GAUSSIAN(math.nan), ValueError, "noise_multiplier must lie in"),
        (SPECIAL, POISSON(1.5, GAUSSIAN(1.0)), ValueError, "sampling_probability must lie in"),
        (SPECIAL, TRUNCATED(1000, 1.5, 25, 1.2), ValueError, "sampling_prob"),
        (SPECIAL, REPEATED(GAUSSIAN(1.0), -2), ValueError, "count must be whole"),
    ],
)
def test_what_is_refused_says_why(relation, event, error, why):
    one = accountant(relation)
    assert not one.supports(event)
    with pytest.raises(error, match=why):
        one.compose(event)
    with pytest.raises(ValueError, match="count must be whole"):
        one.compose(GAUSSIAN(1.0), -1)
    assert one.get_epsilon(1e-6) == 0


@pytest.mark.long
def test_sampled_discrete_laplace():
    """The direct composition, also of a sample of a sample."""
    one = accountant().compose(POISSON(0.5, POISSON(0.2, DISCRETE(0.5, 2))), 100)
    step = dp.Mechanism(dp.DiscreteLaplace(2.0), 2.0, 0.1, "add_remove")
    expected = (100 * dp.privacy_loss(step)).epsilon(1e-4)
    # Both are upper bounds, of one tilt and another: their stated error is 3e-6.
    np.testing.assert_allclose(one.get_epsilon(1e-4), expected, rtol=1e-6)
    whole = accountant().compose(POISSON(1.0, DISCRETE(0.5, 2)))
    np.testing.assert_allclose(whole.get_epsilon(0.0), 1.0, rtol=1e-9)


def test_bad_targets():
    one = accountant().compose(GAUSSIAN(1.0))
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="target_delta"):
            one.get_epsilon(bad)
    with pytest.raises(ValueError, match="target_epsilon"):
        one.get_delta(-1.0)


def test_jax_privacy_takes_the_accountant():
    """Skipped where jax_privacy is missing: the configuration of docs/coming_from.md."""
    accounting = pytest.importorskip("jax_privacy.accounting")

    class JaxdpConfig(accounting.DpAccountantConfig):
        def create_accountant(self):
            return accountant()

    params = accounting.DpParams(
        noise_multipliers=1.0, num_samples=60_000, batch_size=600, delta=1e-6
    )
    theirs = accounting.DpsgdTrainingAccountant(JaxdpConfig())
    sizes = {"dataset_size": 60_000, "batch_size": 600, "steps": 1000}
    expected = dp.dpsgd.epsilon(1.0, 1e-6, **sizes)
    np.testing.assert_allclose(theirs.compute_epsilon(1000, params), expected, rtol=1e-9)


NON_PRIVATE = dp_accounting.NonPrivateDpEvent()


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE, SPECIAL])
@pytest.mark.parametrize(
    ("event", "probability"),
    [
        (POISSON(1e-9, NON_PRIVATE), 1e-9),
        (REPEATED(POISSON(1e-9, NON_PRIVATE), 3), 3e-9),
        (POISSON(1e-3, POISSON(1e-6, NON_PRIVATE)), 1e-9),
        (POISSON(0.5, REPEATED(POISSON(1e-9, NON_PRIVATE), 4)), 2e-9),
        (POISSON(1e-9, dp_accounting.ComposedDpEvent([GAUSSIAN(1.0), NON_PRIVATE])), 1e-9),
        (FIXED(10**9, 2, NON_PRIVATE), 2e-9),
    ],
)
def test_a_sample_of_a_non_private_event(event, probability, relation):
    """All is lost with the probability that the record is in it, and nothing else."""
    one = accountant(relation).compose(event)
    assert one.get_epsilon(1e-6) == 0
    for epsilon in (0.0, 50.0):
        np.testing.assert_allclose(one.get_delta(epsilon), probability, rtol=1e-8)
        assert one.get_delta(epsilon) >= probability * (1 - 1e-8)
    assert one.get_epsilon(0.5 * probability) == math.inf


def test_a_non_private_event_is_non_private_in_every_sample_of_all():
    for event in (POISSON(1.0, NON_PRIVATE), FIXED(3, 3, NON_PRIVATE), GAUSSIAN(0.0)):
        assert accountant().compose(event).get_delta(9.0) == 1


def test_no_records_are_no_release():
    for relation in (ADD_OR_REMOVE, REPLACE, SPECIAL):
        for event in (
            FIXED(1000, 0, GAUSSIAN(1.0)),
            FIXED(0, 0, NON_PRIVATE),
            TRUNCATED(1000, 0.1, 0, 1.0),
            TRUNCATED(0, 0.1, 5, 1.0),
        ):
            one = accountant(relation).compose(event)
            assert one.get_epsilon(0.0) == one.get_delta(0.0) == 0
    with pytest.raises(ValueError, match="batch_size must lie in"):
        accountant().compose(FIXED(10, 11, GAUSSIAN(1.0)))
