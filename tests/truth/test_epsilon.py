"""epsilon: finite wherever log delta is, no more than searches and no sampling need."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references
from compilations import counted

import jaxdp as dp
from jaxdp.accountant.inverse import Reading, epsilon_bounds

pytestmark = pytest.mark.float64

_ROWS = references.load("few_hits.json")
# Its values are good to 2e-4.
_BELOW = 3e-4


def few_hits():
    """sigma, q, steps, delta and the true epsilon."""
    names = ("sigma", "q", "steps", "delta", "epsilon")
    return (np.array([row[name] for row in _ROWS["values"]]) for name in names)


def training(sigma, q, steps):
    mechanism = dp.Mechanism(dp.Gaussian(sigma), 1.0, q, relation="remove")
    return steps * dp.privacy_loss(mechanism)


def by_renyi(loss, delta):
    """The least epsilon on a grid that the loss's own Renyi divergences prove."""
    orders = 1.0 + np.exp(np.linspace(-3.0, 8.0, 60))
    divergence = np.asarray(loss[:, None].renyi(orders))
    s = orders - 1.0
    entropy = np.log1p(s) + s * np.log1p(1.0 / s)
    return np.min(divergence - (entropy + np.log(delta)[:, None]) / s, axis=-1)


def test_epsilon_is_no_more_than_the_best_order_proves():
    """30 responses: Renyi divergences in closed form, at every order, and the largest loss."""
    loss, delta = 30 * dp.privacy_loss(dp.PureDP(1.0)), np.array([1e-3, 1e-9, 1e-40, 1e-200])
    found = np.asarray(loss.epsilon(delta))
    s = np.exp(np.linspace(-8.0, 8.0, 20_001))[:, None]
    p = 1 / (1 + np.exp(-1.0))
    cumulant = 30 * (s + np.log(p + (1 - p) * np.exp(-2 * s)))
    each = (cumulant - np.log1p(s) - s * np.log1p(1 / s) - np.log(delta)) / s
    assert np.all(found <= np.minimum(np.min(each, axis=0), 30.0) * (1 + 1e-9))
    assert found[-1] == pytest.approx(30.0, rel=1e-12)
    assert np.all(np.diff(found) >= 0)


@pytest.mark.long
def test_what_meets_a_smaller_delta_meets_a_larger_one():
    """Along a batch of 2 by 5 in which rare hits make brackets wide."""
    sigma, q = np.array([[0.6], [1.0]]), np.array([[1e-5], [1e-8]])
    delta = np.array([1e-9, 1e-3, 1e-6, 1e-12, 1e-30])
    found = np.asarray(training(sigma, q, 1e6).epsilon(delta))
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found[:, np.argsort(delta)], axis=1) <= 0)


def test_few_hits_in_one_batch():
    sigma, q, steps, delta, truth = (np.resize(x, 64) for x in few_hits())
    loss = training(sigma, q, steps)
    found = np.asarray(loss.epsilon(delta))
    assert np.all(found >= truth * (1 - _BELOW))
    assert np.all(found <= 5.0 * truth)


@pytest.mark.long
def test_no_more_than_log_delta_and_renyi_divergences_say():
    sigma, q, steps, delta, _ = (np.resize(x, 64) for x in few_hits())
    loss = training(sigma, q, steps)
    found = np.asarray(loss.epsilon(delta))
    assert np.all(found <= by_renyi(loss, delta) * (1 + 1e-6))
    # No engine is asked at an epsilon at which it would say that delta is met.
    below = np.asarray(loss.log_delta(found * (1 - 1e-3) - 1e-8))
    assert np.all(below >= np.log(delta) - 1e-6)


@pytest.mark.long
def test_other_compositions():
    """Lattices, atoms, infinite losses, several phases: an epsilon that log delta confirms."""
    sampled = dp.privacy_loss(dp.Mechanism(dp.Laplace(0.5), 1.0, 1e-4, relation="remove"))
    losses = (
        30 * dp.privacy_loss(dp.PureDP(1.0)),
        20 * dp.privacy_loss(dp.ApproxDP(0.1, 1e-12)),
        1e4 * sampled,
        training(0.8, 1e-5, 1e4) + training(0.6, 1e-5, 1e3),
    )
    for loss in losses:
        for delta in (1e-5, 1e-10):
            found = float(loss.epsilon(delta))
            assert np.isfinite(found)
            assert float(loss.log_delta(found)) <= np.log(delta) + 1e-5


SIZES = {"dataset_size": 100, "batch_size": 10, "steps": 9}
POISSON = {"sampling_prob": 0.1, "steps": 9}
FIXED = SIZES | {"sampling": "without_replacement"}
TRUNCATED = SIZES | {"sampling": "truncated", "batch_size_limit": 12}
LONG = pytest.mark.long
SCHEMES = [
    (1.0, POISSON, "add_remove", 1),
    (1.0, POISSON, "zero_out", 1),
    (2.0, POISSON, "replace_one", 1),
    (3.0, POISSON, "add_remove", 3),
    (2.0, FIXED, "add_remove", 1),
    pytest.param(2.0, FIXED, "replace_one", 1, marks=LONG),
    pytest.param(2.0, TRUNCATED, "add_remove", 1, marks=LONG),
]


@pytest.mark.parametrize(("shift", "scheme", "relation", "group"), SCHEMES)
def test_no_scheme_costs_more_than_its_gaussian(shift, scheme, relation, group):
    loss = dp.dpsgd.Phase(0.5, **scheme).loss(relation, group)
    whole = dp.GDP(shift * 3 / 0.5)
    delta, epsilon = np.array([1e-5, 1e-12]), np.array([1.0, 50.0, 1000.0])
    assert np.all(loss.epsilon(delta) <= whole.epsilon(delta) * (1 + 1e-12))
    assert np.all(loss.log_delta(epsilon) <= whole.log_delta(epsilon) * (1 - 1e-11))


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "hits"),
    [
        (1e-3, 0.5, 10, 10),
        pytest.param(1e-6, 0.5, 10, 10, marks=pytest.mark.long),
        pytest.param(1e-3, 0.01, 1000, 20, marks=pytest.mark.long),
    ],
)
def test_epsilon_of_noise_far_below_the_sensitivity(noise, rate, steps, hits):
    """An engine alone reports 1.8e-6 more of the second, and infinity of the third.

    That many hits have a probability above 5e-4: delta is far above 1e-5 up to half their mu^2.
    """
    epsilon = dp.dpsgd.epsilon(noise, 1e-5, sampling_prob=rate, steps=steps)
    assert epsilon <= dp.GDP(np.sqrt(steps) / noise).epsilon(1e-5) * (1 + 1e-12)
    assert epsilon >= 0.5 * hits / noise**2


def test_a_noise_multiplier_is_the_least():
    known = {"sampling_prob": 0.01, "steps": 1000}
    least = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, **known)
    delta = dp.dpsgd.delta(jnp.stack([least, least * (1.0 - 1e-6)]), 1.0, **known)
    assert delta[0] <= 1e-6 < delta[1]


def schedule(epochs):
    accountant = dp.dpsgd.Accountant()
    accountant.load_state_dict(
        {"mechanism": "jaxdp", "history": [(2 * 0.99**epoch, 0.01, 10) for epoch in range(epochs)]}
    )
    return accountant


def test_a_schedule_that_grows_compiles_nothing():
    with counted() as programs:
        epsilons = [schedule(epochs).get_epsilon(1e-6) for epochs in (2, 3, 7)][1:]
    assert not programs
    assert 0.134 < epsilons[0] < 0.135
    assert 0.201 < epsilons[1] < 0.202


def test_a_tradeoff_outside_of_traces_is_that_of_the_search_inside():
    loss = 1000 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.01, "add_remove"))
    rate = dp.risk.tpr_at_fpr(loss, 1e-3)
    # At any epsilon tpr <= delta + e^epsilon fpr.
    # 120 epsilons 2e-6 apart bracket the least such bound within 4e-15.
    np.testing.assert_allclose(rate, 0.00406844788114, atol=1e-10)
    assert rate >= 0.00406844788114


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(
            lambda: 5 * dp.privacy_loss(dp.PureDP(0.5)), id="kinks", marks=pytest.mark.long
        ),
        pytest.param(
            lambda: 4 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 1.0)), id="Gaussian"
        ),
    ],
)
def test_tradeoffs_of_known_compositions_are_below_and_near(loss):
    loss = loss()
    rates = np.array([0.0, 1e-12, 1e-3, 0.2, 0.5, 0.9, 1.0])
    near = np.asarray(loss.tradeoff(rates))
    searched = np.asarray(dp.risk.tradeoff_of_profile(loss.log_delta, rates))
    np.testing.assert_allclose(near, searched, atol=1e-9)
    np.testing.assert_array_equal(jax.jit(loss.tradeoff)(rates), near)
    one = loss.tradeoff(0.2)
    np.testing.assert_allclose(one, near[3], atol=1e-9)


def test_lanes_of_an_inverse_do_not_wait_for_each_other():
    """A search that is done does not move while its neighbours go on."""
    goal, power = np.array([-0.3, -3.0, -30.0, -50.0]), np.array([1.0, 0.5, 2.0, 1.3])

    def bounds(at):
        def read(epsilon):
            upper = -(epsilon ** power[at])
            return Reading(upper - 0.5 * epsilon - 0.1, upper, np.full_like(epsilon, np.nan))

        first, most = np.full(goal[at].shape, 0.5), np.full(goal[at].shape, 1e3)
        with np.errstate(all="ignore"):
            return np.stack(epsilon_bounds(read, goal[at], first, most))

    alone = np.concatenate([bounds(slice(i, i + 1)) for i in range(goal.size)], axis=-1)
    np.testing.assert_array_equal(bounds(slice(None)), alone)
