"""What a composition must keep next to an independent truth."""

import jax.numpy as jnp
import numpy as np

import jaxdp as dp


def loss_of(noise, shift=1.0, *sampled):
    return dp.privacy_loss(dp.Mechanism(noise, shift, *sampled))


def check(loss, epsilon, truth, width):
    """Never below the truth, nor above it by more than is stated, which is less than `width`."""
    epsilon, truth = jnp.atleast_1d(epsilon), np.atleast_1d(truth)
    value, error = (np.asarray(f(epsilon)) for f in (loss.log_delta, loss.log_delta_error))
    slack = 1e-13 * (1.0 + np.abs(np.where(truth > -np.inf, truth, 0.0)))
    assert np.all(value >= truth - slack), (value, truth)
    assert np.all(value - error <= truth + slack), (value, truth, error)
    assert np.all(error < width), error
