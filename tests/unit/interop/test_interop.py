"""The dp_accounting-shaped accountant against dp_accounting, and Opacus histories."""

import functools
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
DISCRETE, ZCDP = dp_accounting.dp_event.DiscreteLaplaceDpEvent, dp_accounting.dp_event.ZCDpEvent
POISSON, REPEATED = dp_accounting.PoissonSampledDpEvent, dp_accounting.SelfComposedDpEvent


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
    (REPLACE, dp_accounting.RandomizedResponseDpEvent(0.5, 2)),
    (REPLACE, REPEATED(POISSON(0.01, GAUSSIAN(1.0)), 1000)),
    # dp_accounting 0.6 takes a repeated randomised response for one: as a list.
    (REPLACE, dp_accounting.ComposedDpEvent([dp_accounting.RandomizedResponseDpEvent(0.7, 5)] * 4)),
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
    """A thousand calls are one term, and the ledger is dp_accounting's."""
    many = accountant()
    for _ in range(1000):
        many.compose(POISSON(0.01, GAUSSIAN(1.0)))
    loss = many.privacy_loss()
    assert len(loss.terms) == 1
    np.testing.assert_array_equal(loss.terms[0].count, [1000.0])
    at_once = accountant().compose(POISSON(0.01, GAUSSIAN(1.0)), 1000)
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


@pytest.mark.parametrize(
    ("relation", "event", "why"),
    [
        (REPLACE, POISSON(0.1, REPEATED(LAPLACE(1.0), 2)), "must hold one LaplaceDpEvent"),
        (ADD_OR_REMOVE, POISSON(0.1, REPEATED(LAPLACE(1.0), 2)), "must hold one LaplaceDpEvent"),
        (
            ADD_OR_REMOVE,
            dp_accounting.RandomizedResponseDpEvent(0.5, 2),
            "must be `REPLACE_ONE` or `REPLACE_SPECIAL`",
        ),
        (REPLACE, POISSON(0.1, DISCRETE(0.5, 1)), "must hold one LaplaceDpEvent"),
        (ADD_OR_REMOVE, POISSON(0.1, ZCDP(1.0)), "must hold one LaplaceDpEvent"),
        (
            ADD_OR_REMOVE,
            dp_accounting.dp_event.SingleEpochTreeAggregationDpEvent(1.0, 8),
            "requires the relation REPLACE_SPECIAL or REPLACE_ONE: its exact loss",
        ),
    ],
)
def test_what_is_unsupported_says_why(relation, event, why):
    one = accountant(relation)
    assert not one.supports(event)
    with pytest.raises(dp_accounting.UnsupportedEventError, match=why):
        one.compose(event)
    assert one.get_epsilon(1e-6) == 0


def test_randomised_response():
    """By its three losses where an answer is replaced, else bounded by its largest loss."""
    one = accountant(REPLACE).compose(dp_accounting.RandomizedResponseDpEvent(0.3, 10))
    np.testing.assert_allclose(one.get_epsilon(0.0), 3.1918471524802814, rtol=1e-10)
    special = accountant(SPECIAL).compose(dp_accounting.RandomizedResponseDpEvent(0.3, 10))
    np.testing.assert_allclose(special.get_epsilon(0.0), 1.9878743481543455, rtol=1e-10)


def test_randomised_response_over_many_values_composes_exactly():
    """In exact arithmetic on its three losses: -b, 0 and b, seven times."""
    p, k, often = 0.6, 4, 7
    up = (1 - p) + p / k
    down = p / k
    bound = math.log(up / down)
    law = np.array([down, 1 - up - down, up])
    masses = functools.reduce(np.convolve, [law] * often)
    losses = bound * np.arange(-often, often + 1)
    expected = np.sum(masses * np.maximum(-np.expm1(2.0 - losses), 0.0))
    one = accountant(REPLACE).compose(dp_accounting.RandomizedResponseDpEvent(p, k), often)
    np.testing.assert_allclose(one.get_delta(2.0), expected, rtol=1e-9)


def test_zcdp_is_composed_by_its_divergences():
    stated = accountant().compose(ZCDP(0.1, 0.2), 3).compose(ZCDP(0.05))
    bound = dp.ZCDP(0.6, 0.35)
    np.testing.assert_allclose(stated.get_epsilon(1e-6), bound.epsilon(1e-6), rtol=1e-12)
    np.testing.assert_allclose(stated.get_delta(3.0), bound.delta(3.0), rtol=1e-12)
    with pytest.raises(ValueError, match="has no loss"):
        stated.privacy_loss()
    # A Gaussian of multiplier 2 is 1/8-zCDP: here its own divergences are added.
    mixed = accountant().compose(ZCDP(0.1)).compose(GAUSSIAN(2.0))
    both = dp.ZCDP(0.0, 0.225)
    assert both.epsilon(1e-6) <= mixed.get_epsilon(1e-6) < 1.001 * both.epsilon(1e-6)
    assert accountant().compose(ZCDP(0.0)).get_epsilon(1e-6) == 0
    assert accountant().compose(ZCDP(math.inf)).get_epsilon(1e-6) == math.inf


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


def test_opacus_history():
    history = [(1.0, 0.01, 400), (1.0, 0.01, 600), (2.0, 0.02, 10)]
    loss = dp.interop.opacus.loss_from_history(history)
    assert loss.relation == "add_remove"
    np.testing.assert_array_equal(loss.terms[0].count, [1000.0, 10.0])
    first = dp.interop.opacus.loss_from_history(history[:2])
    # The high-precision value of the design notes of this accountant's engine.
    np.testing.assert_allclose(first.delta(1.0), 2.61242e-3, rtol=1e-5)
    for bad in ([], [(1.0, 0.1)], [(-0.1, 0.1, 1)], [(1.0, 1.1, 1)], [(1.0, 0.1, 1.5)], ["abc"]):
        with pytest.raises(ValueError, match="history"):
            dp.interop.opacus.loss_from_history(bad)
