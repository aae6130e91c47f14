"""Losses with few values are their atoms, whatever the scale, alone and sampled."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.poisson import Poisson

pytestmark = pytest.mark.float64

NOISES = {
    "discrete_laplace": (dp.DiscreteLaplace(0.4), 3.0, 4),
    "wide_discrete_laplace": (dp.DiscreteLaplace(300.0), 2.0, 3),
    "laplace_of_a_wide_shift": (dp.DiscreteLaplace(700.0), 1400.0, 1401),
    "staircase": (dp.Staircase(0.5, 1.0, 0.3), 1.0, 3),
    "staircase_between_steps": (dp.Staircase(0.3, 1.0, 0.9), 2.7, 7),
    "staircase_of_a_wide_shift": (dp.Staircase(0.05, 1.0, 0.45), 20.0, 41),
}


def atoms_of(pair):
    law = pair.law()
    loss, mass = np.asarray(law.loss), np.exp(np.asarray(law.log_mass))
    np.testing.assert_array_equal(law.check[0], law.loss)
    np.testing.assert_array_equal(law.check[1], law.log_mass)
    assert float(law.log_left_out) == -np.inf
    return loss[mass > 0], mass[mass > 0]


def log_delta_of(loss, mass, epsilon):
    return np.log(np.sum(mass * -np.expm1(np.minimum(epsilon - loss, 0.0))))


@pytest.mark.parametrize("name", NOISES)
def test_the_law_is_its_atoms(name):
    noise, shift, number = NOISES[name]
    loss, mass = atoms_of(Additive(noise, shift))
    assert loss.size == number
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=0, atol=1e-15)
    for share in (-0.4, 0.0, 0.3, 0.8, 0.97):
        epsilon = share * loss.max()
        truth = float(noise.log_delta(shift, epsilon))
        np.testing.assert_allclose(log_delta_of(loss, mass, epsilon), truth, rtol=0, atol=1e-11)
    for order in (1.5, 3.0, 40.0):
        top = (order - 1.0) * loss.max()
        moment = top + np.log(np.sum(mass * np.exp((order - 1.0) * loss - top)))
        np.testing.assert_allclose(moment / (order - 1.0), noise.renyi(shift, order), rtol=1e-10)


@pytest.mark.parametrize("name", NOISES)
def test_a_sampled_law_is_as_many_atoms(name):
    noise, shift, number = NOISES[name]
    pair = Poisson(Additive(noise, shift), 0.1, 0.0)
    assert np.sum(np.asarray(pair.law().log_mass) > -np.inf) == number
    loss, mass = atoms_of(Additive(noise, shift))
    mixed, under_q = np.log1p(0.1 * np.expm1(loss)), mass * np.exp(-loss)
    for order in (1.5, 2.5):  # between whole orders
        truth = np.log(np.sum(under_q * np.exp(order * mixed))) / (order - 1.0)
        np.testing.assert_allclose(pair.renyi(order), truth, rtol=1e-9)


@pytest.mark.long
def test_more_atoms_than_nodes_are_bounded():
    """Groups of atoms: the second rule differs by more than the first one's error."""
    noise, shift = dp.DiscreteLaplace(2e4), 1e4
    law = Additive(noise, shift).law()
    rules = [
        (np.asarray(x), np.exp(np.asarray(m))) for x, m in ((law.loss, law.log_mass), law.check)
    ]
    for order in (1.5, 3.0, 40.0):
        first, second = (np.log(np.sum(m * np.exp((order - 1.0) * x))) for x, m in rules)
        truth = (order - 1.0) * float(noise.renyi(shift, order))
        assert abs(first - truth) < abs(first - second) < 1e-2
    many = 100.0 * dp.privacy_loss(dp.Mechanism(noise, shift, 0.1, "remove"))
    same = 100.0 * dp.privacy_loss(dp.Mechanism(dp.Laplace(2.0), 1.0, 0.1, "remove"))
    np.testing.assert_allclose(many.epsilon(1e-6), same.epsilon(1e-6), rtol=1e-3)


@pytest.mark.parametrize("scale", [40.0, 1000.0])
def test_wide_discrete_gaussians_by_nodes_that_stand_for_several(scale):
    law = Additive(dp.DiscreteGaussian(scale), 3.0).law()
    for _, log_mass in ((law.loss, law.log_mass), law.check):
        np.testing.assert_allclose(np.sum(np.exp(log_mass)), 1.0, rtol=0, atol=1e-13)
    for loss, log_mass in ((law.loss, law.log_mass), law.check):
        for tilt in (0.5, 3.0, 2.0 * scale):  # moves the law by as many times 3
            value = np.log(np.sum(np.exp(np.asarray(log_mass + tilt * loss))))
            truth = 0.5 * tilt * (tilt + 1.0) * (3.0 / scale) ** 2
            np.testing.assert_allclose(value, truth, rtol=1e-11, atol=1e-13)


def test_sampled_discrete_laplaces_are_randomised_responses():
    """10,000 releases at q = .1: the losses are those of responses, and so is epsilon."""
    scale = jnp.array([3.0, 100.0])
    sampled = dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(scale), 1.0, 0.1, "remove"))
    values = np.asarray((10_000.0 * sampled).epsilon(1e-6))
    np.testing.assert_allclose(values, [20.91145, 0.3968246], rtol=1e-5)
    beside = 10_000.0 * dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(10.0), 1.0))
    beside = beside + dp.privacy_loss(dp.Mechanism(dp.Gaussian(10.0), 1.0))
    epsilon = beside.epsilon(1e-6)
    np.testing.assert_allclose(epsilon, 96.5804, rtol=1e-5)
    assert float(beside.log_delta(epsilon)) <= np.log(1e-6) + 6e-7
