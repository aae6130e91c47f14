"""No answer exceeds the bound of all Renyi orders, nor rises with epsilon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant import inverse

# Excess of an answer over a bound that it may have: the stated error of most engines.
CLOSE = 1e-6
EXCESSES = np.exp(np.linspace(-12.0, 10.0, 160))  # orders, less 1
ENTROPY = np.log1p(EXCESSES) + EXCESSES * np.log1p(1.0 / EXCESSES)


def released(noise, shift=1.0, **sampling):
    return dp.privacy_loss(dp.Mechanism(noise, shift, **sampling))


def renyi_log_delta(loss, epsilon):
    """The least bound over the orders, from `PrivacyLoss.renyi` alone."""
    cumulant = EXCESSES * np.asarray(loss.renyi(1.0 + EXCESSES))
    values = (cumulant - ENTROPY)[:, None] - EXCESSES[:, None] * epsilon
    return np.minimum(np.nanmin(values, axis=0), 0.0)


def renyi_epsilon(loss, delta):
    cumulant = EXCESSES * np.asarray(loss.renyi(1.0 + EXCESSES))
    return np.maximum(np.nanmin((cumulant - ENTROPY - np.log(delta)) / EXCESSES), 0.0)


def epsilons_of(loss, count, least=-1e4):
    """From 0 to where log delta is about `least`."""
    cumulant = EXCESSES * np.asarray(loss.renyi(1.0 + EXCESSES))
    largest = np.nanmin((cumulant - least) / EXCESSES)
    return np.append(0.0, largest * np.geomspace(1e-3, 1.0, count - 1))


def check(loss, epsilon):
    values, bounds = np.asarray(loss.log_delta(epsilon)), renyi_log_delta(loss, epsilon)
    assert np.all(values <= bounds + CLOSE * (1.0 + 1e-3 * np.abs(bounds))), (values - bounds).max()
    with np.errstate(invalid="ignore"):  # of two log deltas of -inf
        assert not np.any(np.diff(values) > 0), values


def test_two_discrete_gaussians_far_out():
    loss = 2.0 * released(dp.DiscreteGaussian(20.0))
    values = np.asarray(loss.log_delta(jnp.array([1.0, 2.0, 3.0, 4.0])))
    # Truth by a convolution of 60 digits: -910 and -1610 at the last ones.
    assert np.all(np.abs(values - [-108.4, -409.34, -910.0, -1610.0]) < 5.0)
    # An epsilon alone has no neighbours in a batch.
    assert float(loss.log_delta(3.0)) <= renyi_log_delta(loss, np.array([3.0]))[0] + CLOSE


def test_many_discrete_laplaces_far_out():
    loss = 31845.0 * released(dp.DiscreteLaplace(16.04), 2.0)
    assert -53.8 < float(loss.log_delta(458.83)) < -50.9


def test_an_epsilon_where_no_grid_resolves_delta():
    loss = 2.0 * released(dp.DiscreteGaussian(20.0))
    assert float(loss.epsilon(1e-300)) <= renyi_epsilon(loss, 1e-300) + CLOSE


def test_infinite_losses_far_out():
    """The finite losses' moments serve where no order has a divergence."""
    noisy = 3.0 * released(dp.DiscreteGaussian(20.0))
    loss = noisy + dp.privacy_loss(dp.ApproxDP(0.1, 1e-200))
    values = np.asarray(loss.log_delta(jnp.array([3.0, 6.0])))
    np.testing.assert_allclose(values, np.log(1e-200), rtol=1e-9)


@pytest.mark.long
def test_traced_bounds_and_their_slopes():
    def log_delta(scale, epsilon):
        return (2.0 * released(dp.DiscreteGaussian(scale))).log_delta(epsilon)

    value, slope = jax.jit(jax.value_and_grad(log_delta, 1))(20.0, 3.0)
    assert -910.0 <= float(value) < -905.0
    step = 1e-3
    low, high = (float(log_delta(20.0, 3.0 + x)) for x in (-step, step))
    np.testing.assert_allclose(float(slope), (high - low) / (2.0 * step), rtol=1e-4)


def test_equal_epsilons_keep_their_own_slopes():
    def lowered(upper):
        return inverse.falling(upper, jnp.array([1.0, 1.0, 2.0]), (0,))

    np.testing.assert_array_equal(lowered(jnp.array([-2.0, -2.0, -1.0])), [-2.0, -2.0, -2.0])
    slopes = jax.jacobian(lowered)(jnp.array([-2.0, -2.0, -3.0]))
    np.testing.assert_array_equal(slopes, np.eye(3))
