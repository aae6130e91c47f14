"""The ends of every range: empty batches, infinite epsilons."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.design.families import FAMILIES

pytestmark = pytest.mark.float64

NONE = np.zeros((0,))
TWO_BY_NONE = np.zeros((2, 0))


def mechanism(noise, shift=1.0, *sampled):
    return dp.Mechanism(noise, shift, *sampled)


def assert_empty(answer, shape=(0,)):
    for leaf in jax.tree.leaves(answer):
        assert leaf.shape == shape


def test_values_that_shape_a_program():
    assert_empty(dp.Histogram(NONE, (1, 2, 1)).log_delta(1.0, 0.5))
    assert_empty(dp.Histogram(0.5, (1, 2, 1)).log_delta(NONE, 0.5))
    assert_empty(dp.Gaussian(1.0).log_delta(NONE, 0.5))


def test_an_empty_sampling_probability_keeps_its_shape():
    for relation in (None, "add_remove", "replace_one"):
        sampled = dp.Mechanism(dp.Laplace(1.0), 1.0, [], relation)
        assert sampled.sensitivity.shape == (0,)
        assert dp.privacy_loss(sampled).shape == (0,)
        assert_empty(sampled.log_delta(1.0))
        assert_empty(sampled.epsilon(1e-6))
    every = dp.Mechanism(dp.Laplace(1.0), 1.0, np.ones((2, 1)), "replace_one")
    np.testing.assert_array_equal(every.sensitivity, 2.0 * np.ones((2, 1)))


@pytest.mark.parametrize(
    "loss",
    [
        dp.privacy_loss(mechanism(dp.Gaussian(NONE))),
        dp.privacy_loss(mechanism(dp.Gaussian(1.0), NONE, 0.1, "add_remove")),
        dp.privacy_loss(mechanism(dp.Laplace(1.0), 1.0, NONE, "remove")) + dp.PureDP(0.1),
        NONE * dp.privacy_loss(mechanism(dp.DiscreteLaplace(3.0))),
    ],
)
def test_losses(loss):
    assert len(loss) == 0
    for answer in (
        loss.log_delta(1.0), loss.log_delta_error(1.0), loss.delta(1.0), loss.epsilon(1e-6),
        loss.bounds(1.0), loss.renyi(2.0), loss.renyi(np.inf), (3 * loss).delta(1.0),
    ):  # fmt: skip
        assert_empty(answer)
    assert list(loss) == []


def test_empty_arguments_of_a_loss():
    loss = 3 * dp.privacy_loss(mechanism(dp.Laplace([[1.0], [2.0]])))
    assert_empty(loss.log_delta(NONE), (2, 0))
    assert_empty(loss.epsilon(NONE), (2, 0))
    assert_empty(loss.renyi(NONE), (2, 0))
    assert_empty(loss.bounds(NONE), (2, 0))
    assert_empty(loss[:0].tradeoff(0.1), (0, 1))


def test_a_sum_of_no_releases_reveals_nothing():
    loss = dp.privacy_loss(mechanism(dp.Gaussian(TWO_BY_NONE + 1.0)))
    assert_empty(loss.sum(0).log_delta(1.0))
    nothing = loss.sum()
    assert nothing.shape == (2,)
    np.testing.assert_array_equal(nothing.renyi(np.inf), [0.0, 0.0])


@pytest.mark.parametrize("kind", [dp.PureDP, dp.GDP, dp.ExponentialMechanism])
def test_guarantees(kind):
    some = kind(NONE)
    assert_empty(some.log_delta(1.0))
    assert_empty(some.epsilon(1e-6))
    if kind is not dp.ExponentialMechanism:
        for answer in (3 * some, some + some, some.tradeoff(0.1), dp.to_zcdp(some)):
            assert_empty(answer)
        assert_empty(jax.eval_shape(dp.risk.advantage, some))
        assert_empty(jax.eval_shape(lambda: dp.risk.bayes_risk(some, 0.1)))


def test_calibrations():
    assert_empty(dp.largest_gdp(([], 1e-6)))
    budget = dp.Budget(NONE, 1e-6)
    assert_empty(dp.calibrate(lambda s: mechanism(dp.Gaussian(s)), budget))
    composed = dp.calibrate(
        lambda s: 3 * dp.privacy_loss(mechanism(dp.Laplace(1.0), s)), budget, largest=True
    )
    assert_empty(composed)
    for family in ("gaussian", "laplace"):
        assert_empty(dp.fit_noise(family, budget, 1.0))
        assert dp.allocate(family, [1.0, 2.0], budget).shape == (0, 2)
        assert_empty(dp.allocate(family, [], (1.0, 1e-6)))
        assert_empty(dp.allocation_error(family, np.zeros((0, 3))))
    assert_empty(dp.optimal.lower_bound(dp.ApproxDP(NONE, NONE), 1.0))


@pytest.mark.parametrize(
    "family",
    [pytest.param(f, marks=() if f == "truncated_laplace" else pytest.mark.long) for f in FAMILIES],
)
def test_every_family_fits_none(family):
    assert_empty(jax.eval_shape(lambda e: dp.fit_noise(family, (e, 1e-6), 1.0), NONE))


ENDS = np.array([-np.inf, -1e308, 1e308, np.inf])
ENDED_GUARANTEES = [
    (dp.PureDP(1.0), 0.0),
    (dp.PureDP(np.inf), 1.0),
    (dp.ApproxDP(1.0, 1e-6), 1e-6),
    (dp.ApproxDP(1.0, 0.0), 0.0),
    (dp.ApproxDP(np.inf, 0.1), 1.0),
    (dp.ZCDP(0.0, 1.0), 0.0),
    (dp.ZCDP(0.5, 1.0), 0.0),
    (dp.ZCDP(0.0, np.inf), 1.0),
    (dp.RDP(np.array([1.0, 2.0]), np.array([0.5, 1.0])), 0.0),
    (dp.RDP(1.0, 0.5), 1.0),
    (dp.RDP(2.0, np.inf), 1.0),
    (dp.GDP(1.0), 0.0),
    (dp.GDP(np.inf), 1.0),
    (dp.ExponentialMechanism(1.0), 0.0),
]


@pytest.mark.parametrize(("known", "last"), ENDED_GUARANTEES, ids=lambda x: type(x).__name__)
def test_guarantees_at_infinite_epsilons(known, last):
    found = np.asarray(known.delta(ENDS))
    assert found[:2].tolist() == [1.0, 1.0]
    assert last <= found[3] <= found[2] <= last * (1 + 1e-12) + 3e-308
    assert found[3] > 0 or last == 0


@pytest.mark.parametrize(
    ("total", "last"),
    [
        (3 * dp.privacy_loss(dp.ApproxDP(1.0, 0.1)), 0.271),
        (3 * dp.privacy_loss(dp.GDP(1.0)), 0.0),
        (dp.privacy_loss(dp.Mechanism(dp.Laplace(2.0), 1.0, 0.1, "add_remove")), 0.0),
        (dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(1.0, 5.0), 1.0)), np.exp(-5.14506)),
        pytest.param(
            30 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 1.0, 0.1, "add_remove")),
            0.0,
            marks=pytest.mark.long,
        ),
        pytest.param(
            3 * dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(2.0), 1.0)),
            0.0,
            marks=pytest.mark.long,
        ),
    ],
)
def test_losses_at_infinite_epsilons(total, last):
    found = np.asarray(total.delta(ENDS[[0, 3]]))
    np.testing.assert_allclose(found, [1.0, last], rtol=1e-5)
