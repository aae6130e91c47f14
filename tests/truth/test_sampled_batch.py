"""Batches of sampled Gaussians: one answer in every size, in jit, mapped and differentiated."""

import jax.numpy as jnp
import numpy as np
import pytest
import scheme_oracle
from compositions import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.public_coin import PublicCoin

pytestmark = pytest.mark.float64


def language_models(rng, size):
    """Noise multipliers, rates, steps and deltas of trainings that rarely see a record."""
    sigma, q = rng.uniform(0.4, 1.6, size), 10 ** rng.uniform(-6.5, -3.3, size)
    steps = np.ceil(10 ** rng.uniform(-1.5, 1.5, size) / q)
    return sigma, q, steps, 10 ** rng.uniform(-12, -6, size)


def ordinary_runs(rng, size):
    sigma, q = rng.uniform(0.7, 4.0, size), 10 ** rng.uniform(-3, -1, size)
    return sigma, q, np.ceil(10 ** rng.uniform(2, 4, size)), np.full(size, 1e-6)


def training(sigma, q, steps, relation="add_remove"):
    return steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(sigma), 1.0, q, relation=relation))


def least_log_delta(loss, epsilon):
    return np.asarray(loss.log_delta(epsilon)) - np.asarray(loss.log_delta_error(epsilon))


def certified(loss, delta, epsilon, share):
    """Lanes whose delta is provably above `delta` a share of 1 + epsilon below epsilon."""
    return least_log_delta(loss, epsilon - share * (1 + epsilon)) > np.log(delta)


@pytest.mark.parametrize(
    ("runs", "seed", "size", "shares"),
    [
        (ordinary_runs, 0, 96, {1e-6: 0.98, 1e-4: 1.0}),
        pytest.param(language_models, 1, 32, {1e-5: 0.85, 1e-3: 0.95}, marks=pytest.mark.long),
    ],
)
def test_epsilon_is_hardly_above_the_least(runs, seed, size, shares):
    sigma, q, steps, delta = runs(np.random.default_rng(seed), size)
    loss = training(sigma, q, steps)
    epsilon = np.asarray(loss.epsilon(delta))
    assert np.all(np.isfinite(epsilon))
    assert np.all(least_log_delta(loss, epsilon) <= np.log(delta) * (1 - 1e-9))
    for share, lanes in shares.items():
        assert np.mean(certified(loss, delta, epsilon, share)) >= lanes


def asked_of():
    """Noise multipliers, probabilities, steps and deltas of eight trainings."""
    rng = np.random.default_rng(3)
    settings_of = zip(language_models(rng, 3), ordinary_runs(rng, 5), strict=True)
    return [np.concatenate(x) for x in settings_of]


def check_is_together(found, asked):
    together = training(*asked[:3]).epsilon(asked[3])
    np.testing.assert_allclose(found, together, rtol=2e-6, atol=2e-6)
    assert np.all(least_log_delta(training(*asked[:3]), found) <= np.log(asked[3]) * (1 - 1e-9))


def test_alone_and_in_batches_the_same():
    asked = asked_of()
    alone = np.array([float(training(*x[:3]).epsilon(x[3])) for x in zip(*asked, strict=True)])
    check_is_together(alone, asked)
    many = training(*(np.tile(x, 12) for x in asked[:3])).epsilon(np.tile(asked[3], 12))
    check_is_together(np.asarray(many)[:8], asked)


@given(st.floats(0.5, 5.0), st.floats(1e-4, 0.9), st.integers(10, 10_000), st.floats(1e-9, 1e-2))
@settings(max_examples=6, deadline=None)
def test_log_delta_at_epsilon_is_delta(sigma, q, steps, delta):
    loss = training(sigma, q, float(steps))
    epsilon = float(loss.epsilon(delta))
    if epsilon > 0:
        assert least_log_delta(loss, epsilon) <= np.log(delta) * (1 - 1e-9)
        assert loss.log_delta(epsilon * (1 - 1e-3)) >= np.log(delta)


def test_equal_phases_are_one():
    whole = training(1.1, 0.01, 3000.0)
    parts = training(1.1, 0.01, 1000.0) + training(1.1 * (1 + 1e-12), 0.01, 2000.0)
    np.testing.assert_allclose(parts.epsilon(1e-6), whole.epsilon(1e-6), rtol=2e-6)


def test_a_release_that_samples_all_is_a_gaussian():
    noise = dp.privacy_loss(dp.Mechanism(dp.Gaussian(5.0), 1.0))
    beside = training(1.0, 0.01, 500.0) + 7 * noise
    whole = training(1.0, 0.01, 500.0) + training(5.0, 1.0, 7.0)
    np.testing.assert_allclose(beside.epsilon(1e-6), whole.epsilon(1e-6), rtol=2e-6)
    assert beside.epsilon(1e-6) > training(1.0, 0.01, 500.0).epsilon(1e-6)


@pytest.mark.long
def test_far_away_nothing_is_claimed_below():
    """log delta is far below what doubles hold."""
    loss = training(100.0, 0.01, 1000.0)
    assert least_log_delta(loss, 1.0) <= loss.log_delta(1.0) < -1e4


def test_single_releases_beside_many_are_calibrated():
    """One release is asked of its profile, so that the kernel sees a part of the lanes."""
    counts = jnp.array([1.0, 1000.0, 1.0, 50.0])
    least = dp.calibrate(lambda scale: training(scale, 0.01, counts), (1.0, 1e-6))
    alone = [
        float(dp.calibrate(lambda scale, n=n: training(scale, 0.01, n), (1.0, 1e-6)))
        for n in (1.0, 1000.0)
    ]
    np.testing.assert_allclose(least[:2], alone, rtol=2e-6)
    assert least[0] == least[2] < least[3] < least[1]


# Of the frozen values' sizes: both directions, by an oracle that shares nothing with the library.
TRUE = {
    "truncated_poisson": {"sampling_prob": 0.02, "limit": 25},
    "without_replacement": {"batch": 20},
    "group": {"sampling_prob": 0.03},
}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k == "group" else pytest.mark.long) for k in TRUE]
)
def test_epsilon_of_schemes_is_the_least(kind):
    scale, count, delta = np.array([1.2, 3.0]), np.array([20.0, 1000.0]), 1e-6
    loss = KINDS[kind](scale=scale, count=count, **TRUE[kind])
    epsilon = np.asarray(loss.epsilon(delta))
    for s, n, e in zip(scale, count, epsilon, strict=True):
        at = TRUE[kind] | {"scale": s, "count": n}
        assert scheme_oracle.log_delta(kind, at, e) <= np.log(delta) + scheme_oracle.NOISE
        assert scheme_oracle.log_delta(kind, at, e - 1e-5 * (1 + e)) > np.log(delta)


def test_noise_that_hides_nothing_is_told_by_hits_alone():
    """No hit in ten steps: the loss is 10 log(1 / (1 - q)), and infinitely negative otherwise."""
    epsilon = training(np.full(1, 0.02), 0.01, 10.0, "add").epsilon(1e-6)
    largest = -10 * np.log1p(-0.01)
    np.testing.assert_allclose(epsilon, largest + np.log1p(-1e-6), rtol=1e-8)


@pytest.mark.long
def test_a_coin_that_decides_the_direction_costs_a_hit_at_most():
    whole = Additive(dp.Gaussian(1.0), jnp.ones(()))
    pairs = [Poisson(whole, 0.01, added) for added in (0.0, 1.0)]
    loss = 100 * dp.privacy_loss(PublicCoin(pairs, [jnp.log(0.5), jnp.log(0.5)]))
    assert loss.log_delta(0.1) <= np.log(1 - 0.99**100) * (1 - 1e-12)
    lower, _ = loss.bounds(0.1)
    assert lower <= loss.delta(0.1)


def test_shares_that_miss_one_are_refused():
    whole = Additive(dp.Gaussian(1.0), jnp.ones(()))
    pairs = [Poisson(whole, 0.01, 0.0), Poisson(whole, 0.02, 0.0)]
    loss = 100 * dp.privacy_loss(PublicCoin(pairs, [jnp.log(0.25), jnp.log(0.25)]))
    with pytest.raises(ValueError, match="add up"):
        loss.log_delta(0.1)
