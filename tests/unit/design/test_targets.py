"""Noise for an attack risk, or for a rho: closed forms, never too little noise, bad input."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

import jaxdp as dp
from jaxdp.risk import Rate

RHO = 0.1
TRAINING = {"sampling_prob": 0.01, "steps": 1000}


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
    by_advantage = training(dp.dpsgd.noise_multiplier(0.0, 0.1, **TRAINING))
    assert 0.1 * (1 - 1e-6) <= float(dp.risk.advantage(by_advantage)) <= 0.1 * (1 + 1e-9)
    by_rate = training(dp.dpsgd.noise_multiplier(tpr=0.05, fpr=0.01, **TRAINING))
    assert 0.05 * (1 - 1e-5) <= float(dp.risk.tpr_at_fpr(by_rate, 0.01)) <= 0.05 * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.float64
def test_traced_risks_give_the_same():
    scale = jax.jit(lambda a: dp.calibrate(gaussian, (0.0, a)))(0.1)
    np.testing.assert_allclose(scale, dp.calibrate(gaussian, (0.0, 0.1)), rtol=1e-12)
    assert np.isinf(jax.jit(lambda x: dp.calibrate(gaussian, Rate(x, 0.5)))(0.1))


def test_bad_targets_are_refused():
    for tpr, fpr in ((0.01, 0.05), (0.5, 0.5), (1.0, 0.5), (0.5, 0.0)):
        with pytest.raises(ValueError, match="tpr must lie above fpr"):
            Rate(tpr, fpr)
    for target in ({}, {"epsilon": 1.0, "fpr": 0.1}, {"tpr": 0.1}):
        with pytest.raises(ValueError, match="noise_multiplier takes either"):
            dp.dpsgd.noise_multiplier(**target, **TRAINING)


def discrete(scale):
    return dp.Mechanism(dp.DiscreteGaussian(scale), 3.0)


@pytest.mark.parametrize(
    ("build", "exact"),
    [
        (discrete, 3.0 / np.sqrt(2 * RHO)),
        (lambda s: dp.GDP(1.0 / s), 1.0 / np.sqrt(2 * RHO)),
        (lambda s: 100 * dp.Mechanism(dp.Gaussian(s), 1.0).zcdp(), 10.0 / np.sqrt(2 * RHO)),
        (lambda s: dp.Mechanism(dp.Laplace(s), 1.0), None),
        (lambda s: dp.PureDP(1.0 / s), None),
    ],
)
def test_the_least_scale_has_the_rho_and_no_more(build, exact):
    scale = float(dp.calibrate(build, dp.ZCDP(0.0, RHO)))
    found = dp.to_zcdp(build(scale))
    assert RHO * (1 - 1e-13) < found.rho <= RHO
    assert found.xi == 0
    if exact is not None:
        assert exact * (1 - 1e-15) <= scale <= exact * (1 + 1e-13)


def test_both_ends_of_the_curve_count():
    """(xi, rho) is implied if rho is, and if xi + rho is."""
    target = dp.ZCDP(0.05, RHO)
    by_slope = dp.calibrate(lambda s: dp.ZCDP(0.0, 1.0 / s), target)
    by_start = dp.calibrate(lambda s: dp.ZCDP(1.0 / s, 0.01), target)
    np.testing.assert_allclose([by_slope, by_start], [1.0 / RHO, 1.0 / 0.14], rtol=1e-12)
    assert np.isinf(dp.calibrate(discrete, dp.ZCDP(1.0, 0.0)))


@pytest.mark.float64
def test_batches_traces_derivatives_and_the_largest_parameter():
    budgets = dp.ZCDP(0.0, np.array([RHO, 0.4]))
    np.testing.assert_allclose(
        dp.calibrate(discrete, budgets), 3.0 / np.sqrt(2 * budgets.rho), rtol=1e-13
    )

    def scale(rho):
        return dp.calibrate(discrete, dp.ZCDP(0.0, rho))

    np.testing.assert_allclose(jax.jit(scale)(RHO), scale(RHO), rtol=1e-13)
    np.testing.assert_allclose(jax.grad(scale)(RHO), -scale(RHO) / (2 * RHO), rtol=1e-9)
    steps = dp.calibrate(lambda n: n * dp.GDP(0.03), dp.ZCDP(0.0, RHO), largest=True, whole=True)
    assert steps == np.floor(RHO / (0.5 * 0.03**2))
    rho = dp.calibrate(lambda r: dp.ZCDP(0.0, r), (1.0, 1e-6), largest=True)
    assert 1e-6 * (1 - 1e-9) < dp.ZCDP(0.0, rho).delta(1.0) <= 1e-6


def test_a_composed_loss_is_answered_with_the_way():
    with pytest.raises(TypeError, match="add the to_zcdp of its mechanisms"):
        dp.calibrate(lambda s: dp.privacy_loss(discrete(s)), dp.ZCDP(0.0, RHO))


@pytest.mark.parametrize("family", ["gaussian", "discrete_gaussian"])
def test_allocated_scales_have_the_rho(family):
    shifts, counts = np.array([1.0, 4.0, 0.0, 7.0]), np.array([1, 2, 1, 3])
    scales = np.asarray(dp.allocate(family, shifts, dp.ZCDP(0.3, RHO), counts=counts))
    moves = shifts > 0
    rho = 0.5 * np.sum(counts[moves] * (shifts[moves] / scales[moves]) ** 2)
    assert RHO * (1 - 1e-13) < rho <= RHO
    equal = dp.allocate("gaussian", shifts, dp.GDP(np.sqrt(2 * RHO)), counts=counts)
    np.testing.assert_allclose(scales, equal, rtol=1e-13)
    with pytest.raises(ValueError, match="budget of a laplace must be a Budget, got ZCDP"):
        dp.allocate("laplace", shifts, dp.ZCDP(0.0, RHO))
