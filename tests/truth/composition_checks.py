"""What a composition must keep next to an independent truth."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from jaxdp.accountant.batch import Batch


def loss_of(noise, shift=1.0, *sampled):
    return dp.privacy_loss(dp.Mechanism(noise, shift, *sampled))


def batch(loss, values):
    """A lane for each value."""
    terms = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], len(values), 0), loss.terms)
    return Batch(terms, np.asarray(values, float))


def check(loss, epsilon, truth, width):
    """Never below the truth, nor above it by more than is stated, which is less than `width`."""
    epsilon, truth = jnp.atleast_1d(epsilon), np.atleast_1d(truth)
    value, error = (np.asarray(f(epsilon)) for f in (loss.log_delta, loss.log_delta_error))
    slack = 1e-13 * (1.0 + np.abs(np.where(truth > -np.inf, truth, 0.0)))
    assert np.all(value >= truth - slack), (value, truth)
    assert np.all(value - error <= truth + slack), (value, truth, error)
    assert np.all(error < width), error
