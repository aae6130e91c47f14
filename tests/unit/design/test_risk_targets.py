"""Noise for an attack risk: closed forms of Gaussians, the risk of the result, bad input."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

import jaxdp as dp
from jaxdp.risk import Rate


def gaussian(scale):
    return dp.Mechanism(dp.Gaussian(scale), 1.0)


def training(scale):
    mechanism = dp.Mechanism(dp.Gaussian(scale), 1.0, sampling_prob=0.01, relation="add_remove")
    return 1000 * dp.privacy_loss(mechanism)


@pytest.mark.parametrize("value", [0.01, 0.1, 0.7])
def test_scale_for_an_advantage_is_that_of_the_closed_form(value):
    scale = float(dp.calibrate(gaussian, (0.0, value)))
    exact = 0.5 / norm.ppf(0.5 + 0.5 * value)
    assert exact * (1 - 1e-14) <= scale <= exact * (1 + 1e-9)
    assert dp.risk.advantage(gaussian(scale)) <= value * (1 + 1e-12)


def test_scale_for_a_rate_is_that_of_the_closed_form():
    tpr, fpr = np.array([0.02, 0.05, 0.9, 0.3]), np.array([0.01, 1e-4, 0.5, 0.2])
    scale = np.asarray(dp.calibrate(gaussian, Rate(tpr, fpr)))
    exact = 1.0 / (norm.ppf(tpr) - norm.ppf(fpr))
    assert np.all(scale >= exact * (1 - 1e-12))
    np.testing.assert_allclose(scale, exact, rtol=1e-6)


def test_largest_sensitivity_for_a_rate():
    largest = dp.calibrate(
        lambda shift: dp.Mechanism(dp.Gaussian(1.0), shift), Rate(0.05, 0.01), largest=True
    )
    exact = norm.ppf(0.05) - norm.ppf(0.01)
    assert exact * (1 - 1e-6) <= float(largest) <= exact * (1 + 1e-12)


def test_noise_of_a_training_keeps_the_risk_and_no_less_would():
    by_advantage = dp.calibrate(training, (0.0, 0.1))
    assert 0.1 * (1 - 1e-6) <= float(dp.risk.advantage(training(by_advantage))) <= 0.1 * (1 + 1e-9)
    found = float(dp.risk.tpr_at_fpr(training(dp.calibrate(training, Rate(0.05, 0.01))), 0.01))
    assert 0.05 * (1 - 1e-5) <= found <= 0.05 * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.float64
def test_traced_targets_give_the_same():
    scale = jax.jit(lambda a: dp.calibrate(gaussian, (0.0, a)))(0.1)
    np.testing.assert_allclose(scale, dp.calibrate(gaussian, (0.0, 0.1)), rtol=1e-12)
    assert np.isinf(jax.jit(lambda x: dp.calibrate(gaussian, Rate(x, 0.5)))(0.1))


def test_bad_targets_are_refused():
    for tpr, fpr in ((0.01, 0.05), (0.5, 0.5), (1.0, 0.5), (0.5, 0.0)):
        with pytest.raises(ValueError, match="tpr must lie above fpr"):
            Rate(tpr, fpr)
