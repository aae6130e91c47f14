"""A sampled Gaussian whose record is replaced: moments, compositions on a line, and the grid's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.loss.mixture import Mixture
from jaxdp.loss.replaced_gaussian import ReplacedGaussian


def log_moment(c, q, z):
    """A fine rule; the logarithms' scale is taken out. No digits are lost: K is not small here."""
    theta = np.real(z)
    reach = 14.0 + 3.0 * c * (abs(theta) + 1.0)
    x = np.linspace(-reach, reach, 400_001)
    ahead, behind = (
        np.logaddexp(np.log1p(-q), np.log(q) + s * c * x - 0.5 * c * c) for s in (1, -1)
    )
    exponent = (1.0 + z) * ahead - z * behind - 0.5 * x * x
    top = np.real(exponent).max()
    total = np.exp(exponent - top).sum() * (x[1] - x[0]) / np.sqrt(2 * np.pi)
    return np.log(total) + top


@pytest.mark.parametrize(
    ("c", "q", "z"),
    [
        (1.0, 0.3, 1.0),
        (0.5, 0.1, 30.0),
        (2.5, 0.3, 3.0),
        (1.0, 0.01, 10.0),
        (1.0, 0.9, -3.0),
        (1.0, 0.3, 1.0 + 2j),
        (0.5, 0.1, 2.8 + 16j),
        (0.5, 0.1, 2.8 + 60j),
        (2.5, 0.3, 0.5 + 3j),
        (1.0, 0.3, -0.5 + 7j),
        (1.0, 0.3, -2.0 - 3j),
    ],
)
def test_moments(c, q, z):
    found = ReplacedGaussian(dp.Gaussian(1.0 / c), q).cgf(jnp.ones(1), jnp.array([z]))
    np.testing.assert_allclose(np.exp(found[0] - log_moment(c, q, z)), 1.0, atol=3e-11)


def test_small_moments_keep_their_digits():
    """K is q^2 times that of (r+ - r-) / 2 to second order, at q = 1e-6: 1e-12."""
    c, q = 1.0, 1e-6
    z = jnp.array([-0.5, 0.3, 2.0, 5.0])
    found = ReplacedGaussian(dp.Gaussian(1.0 / c), q).cgf(jnp.ones(4), z)
    # Of E[(1 + z) z / 2 (r+ - r-)^2], with E[r+^2] = e^(c^2), E[r+ r-] = e^(-c^2).
    second = 0.5 * z * (1.0 + z) * q**2 * 2.0 * (np.exp(c**2) - np.exp(-(c**2)))
    np.testing.assert_allclose(found, second, rtol=5e-5)
    bound = Mixture(dp.Gaussian(1.0 / c), q, 0.0, True).cgf(jnp.ones(4), z)
    np.testing.assert_allclose(found, bound, rtol=1e-9)
    assert bool(jnp.all(found <= bound))


def loss_of(q, noise_multiplier):
    return dp.privacy_loss(dp.Mechanism(dp.Gaussian(noise_multiplier), 1.0, q, "replace_one"))


def line_sum(q, multiplier, steps, epsilon):
    """delta of a composition, by Poisson's sum along Re z = 1 with many points."""
    c, theta = 1.0 / multiplier, 1.0
    x = np.linspace(-14.0 - 2.0 * c, 14.0 + 8.0 * c, 2_001)
    ahead, behind = (
        np.logaddexp(np.log1p(-q), np.log(q) + s * c * x - 0.5 * c * c) for s in (1, -1)
    )
    law = np.exp((1.0 + theta) * ahead - theta * behind - 0.5 * x * x)
    height = 2.0 * np.pi / 40.0 * np.arange(2_000)
    turned = np.exp(1j * height[:, None] * (ahead - behind)) @ law
    z = theta + 1j * height
    moment = (turned * (x[1] - x[0]) / np.sqrt(2 * np.pi)) ** steps
    summand = np.real(moment * np.exp(-z * epsilon) / (z * (z + 1.0)))
    return (2.0 * summand.sum() - summand[0]) / 40.0


def test_compositions_by_another_sum():
    for q, multiplier, steps in ((0.01, 1.0, 1000), (0.1, 2.0, 100), (0.3, 1.0, 10)):
        truth = np.log(line_sum(q, multiplier, steps, 0.5))
        value = float((steps * loss_of(q, multiplier)).log_delta(0.5))
        assert truth - 1e-11 <= value <= truth + 2e-10


@pytest.mark.long
def test_compositions_lie_inside_the_grid():
    q = jnp.array([0.01, 0.1, 0.001, 0.3, 0.5])
    multiplier = jnp.array([1.0, 2.0, 0.8, 0.5, 1e3])
    steps = jnp.array([1000.0, 100.0, 10_000.0, 3.0, 10_000.0])
    loss = steps * loss_of(q, multiplier)
    for epsilon in (0.5, 2.0):
        lower, upper = (np.log(x) for x in loss.bounds(epsilon))
        value = loss.log_delta(epsilon)
        assert np.all((lower - 1e-12 <= value) & (value <= upper + 1e-12))
        sharp = np.asarray(loss.log_delta_error(epsilon)) < 2e-10
        assert sharp.sum() >= 4


def test_always_hit_it_is_a_gaussian_at_twice_the_sensitivity():
    loss = 3 * loss_of(jnp.array([1.0, 0.5]), 2.0)
    whole = 3 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 2.0))
    np.testing.assert_allclose(loss.log_delta(1.0)[0], whole.log_delta(1.0), atol=1e-9)
    assert loss.log_delta(1.0)[1] < loss.log_delta(1.0)[0]
    slope = jax.grad(lambda q: ReplacedGaussian(dp.Gaussian(2.0), q).cgf(1.0, 1.5))
    np.testing.assert_allclose(slope(1.0), slope(1.0 - 1e-7), rtol=1e-5)


def test_epsilon_ends_on_the_safe_side():
    loss, delta = 1000 * loss_of(0.01, 1.0), jnp.array([1e-5, 1e-10, 1e-100])
    epsilon = loss.epsilon(delta)
    reported = loss.log_delta(epsilon)
    assert np.all((reported <= np.log(delta)) & (reported > np.log(delta) - 1e-7))


@pytest.mark.long
def test_derivatives():
    def log_delta(q, multiplier):
        return (1000 * loss_of(q, multiplier)).log_delta(2.0)

    slopes = jax.grad(log_delta, (0, 1))(0.01, 1.0)
    for k, slope in enumerate(slopes):
        at = np.array([0.01, 1.0])
        step = 1e-5 * at[k] * (np.arange(2) == k)
        rise = (log_delta(*(at + step)) - log_delta(*(at - step))) / (2e-5 * at[k])
        np.testing.assert_allclose(slope, rise, rtol=1e-7)


@pytest.mark.long
def test_where_few_are_hit_the_grid_is_asked():
    loss = 1000 * loss_of(1e-5, 0.7)
    lower, upper = (float(jnp.log(x)) for x in loss.bounds(1.0))
    concrete, traced = loss.log_delta(1.0), jax.jit(loss.log_delta)(1.0)
    for value in (concrete, traced):
        assert lower <= value <= upper + 1e-12


@pytest.mark.long
def test_hits_that_are_told_apart():
    """Narrow noise: |phi| comes back up in between."""
    for q, multiplier, steps, epsilon in (
        (1e-3, 0.05, 1000, 10.0),
        (0.01, 0.02, 50, 3.0),
        (0.01, 0.1, 200, 30.0),
        (0.05, 0.06, 40, 300.0),
    ):
        loss = steps * loss_of(q, multiplier)
        lower, upper = (float(jnp.log(x)) for x in loss.bounds(epsilon))
        assert lower - 1e-9 <= loss.log_delta(epsilon) <= upper + 1e-9
