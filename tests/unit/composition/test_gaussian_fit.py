"""mu with regret: exact for Gaussians, never too small, and near the least of both."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

import jaxdp as dp


def sampled(scale, rate, steps):
    mechanism = dp.Mechanism(dp.Gaussian(scale), 1.0, rate, relation="add_remove")
    return steps * dp.privacy_loss(mechanism)


LOSSES = {
    "many steps": sampled(9.4, 0.328, 2000),
    "few hits": sampled(0.6, 0.001, 3000),
    "laplace": dp.privacy_loss(dp.Mechanism(dp.Laplace(1.0), 1.0)),
    "pure": dp.privacy_loss(dp.PureDP(1.0)),
    "whole": dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(3.0), 2.0)),
}


def test_gaussians_are_exact():
    assert dp.gdp_with_regret(dp.GDP(1.3)) == (1.3, 0.0)
    loss = 100 * dp.privacy_loss(dp.Mechanism(dp.Gaussian([20.0, 40.0]), 1.0)) + dp.GDP(1.2)
    mu, regret = dp.gdp_with_regret(loss)
    exact = np.hypot([0.5, 0.25], 1.2)
    assert np.all((mu >= exact) & (mu <= exact * (1 + 1e-14)))
    np.testing.assert_array_equal(regret, 0.0)


@pytest.mark.parametrize(
    ("name", "delta"), [*((name, 1e-10) for name in LOSSES), ("few hits", 1e-5)]
)
def test_both_numbers_are_safe_and_near_the_least(name, delta):
    loss = LOSSES[name]
    mu, regret = map(float, dp.gdp_with_regret(loss, delta))
    shares = np.random.default_rng(0).uniform(0.0, 1.0, 200)
    shares[:2] = 0.0, 1.0
    epsilon = float(loss.epsilon(delta)) * shares
    lost, allowed = (np.asarray(x.delta(epsilon)) for x in (loss, dp.GDP(mu)))
    assert np.all(lost <= allowed * (1 + 1e-9))
    least = np.max(np.asarray(dp.largest_gdp((epsilon, lost)).mu))
    assert least * (1 - 1e-9) <= mu <= 1.0005 * least
    difference = np.max((allowed - lost) / (1.0 + np.exp(epsilon)))
    assert difference <= regret <= difference + 5e-4
    fpr = np.array([1e-9, 1e-4, 0.03, 0.3, 0.9])
    assert np.all(loss.tradeoff(fpr) >= dp.GDP(mu).tradeoff(fpr) - delta - 1e-10)


def test_closed_forms_of_pure_privacy():
    """The corner of randomised response rules mu; the difference there is that of the rates."""
    mu, regret = map(float, dp.gdp_with_regret(dp.PureDP(1.0)))
    rate = 1.0 / (1.0 + np.e)
    assert mu == pytest.approx(-2.0 * norm.ppf(rate), rel=2e-12)
    assert mu >= -2.0 * norm.ppf(rate)
    epsilon = np.linspace(0.0, 12.0, 12_001)  # with the corner, at 1
    gaussian = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    pure = np.maximum(1.0 - rate * (1.0 + np.exp(epsilon)), 0.0)
    largest = np.max((gaussian - pure) / (1.0 + np.exp(epsilon)))
    assert largest * (1 - 1e-9) <= regret <= largest + 1e-6


@pytest.mark.long
def test_batches_traces_and_bad_input():
    losses = sampled(np.array([1.0, 2.0]), 0.01, 100)
    mu, regret = dp.gdp_with_regret(losses, np.array([[1e-10], [1e-6]]))
    assert mu.shape == regret.shape == (2, 2)
    alone = dp.gdp_with_regret(losses[1], 1e-6)
    np.testing.assert_allclose((mu[1, 1], regret[1, 1]), alone, rtol=1e-6)
    laplace = dp.Mechanism(dp.Laplace(1.0), 1.0)
    traced = jax.jit(lambda d: dp.gdp_with_regret(laplace, d))(1e-6)
    np.testing.assert_allclose(traced, dp.gdp_with_regret(laplace, 1e-6), rtol=1e-6)
    mu, regret = dp.gdp_with_regret(dp.ApproxDP(1.0, 1e-3), 1e-6)
    assert mu == np.inf
    risk = 0.5 * (1.0 - float(dp.ApproxDP(1.0, 1e-3).delta(0.0)))
    assert risk * (1 - 1e-12) <= regret <= risk + 1e-3
    for delta in (0.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="delta must lie in"):
            dp.gdp_with_regret(laplace, delta)
    with pytest.raises(ValueError, match="points must be a whole number"):
        dp.gdp_with_regret(laplace, points=2)
    with pytest.raises(TypeError, match=r"dp\.gdp_with_regret\(loss\)"):
        dp.to_gdp(losses)
