"""Searches that end early, and brackets that are wide enough, give what the whole way gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import counted

import jaxdp as dp
from jaxdp.composition import bounded_range
from jaxdp.guarantee.tradeoff import tradeoff_line


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
    np.testing.assert_allclose(rate, 0.00406844788158, atol=1e-10)
    assert rate >= 0.00406844788158 - 1e-13


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
    inside = np.asarray(jax.jit(loss.tradeoff)(rates))
    np.testing.assert_allclose(near, inside, atol=1e-9)
    rough = functools.partial(bounded_range.rough_log_delta, loss.terms, loss.both)
    picture = tradeoff_line(rough, rates)
    assert np.all(picture <= inside + 1e-9)
    np.testing.assert_allclose(picture, inside, atol=6e-3)
    one = loss.tradeoff(0.2)
    np.testing.assert_allclose(one, near[3], atol=1e-9)
