"""Noises of a user's own: what they compose to, and divergences that are hard to find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_noises import Twin

import jaxdp as dp


@dp.own.pytree
class Unmarked(dp.own.NumericalNoise):
    """A flipped Huber that does not tell its kinks at +-alpha: tilted, it may have two tops."""

    alpha: jax.Array

    def _log_density(self, x):
        return dp.FlippedHuber(self.alpha, 1.0).log_density(x)

    def _log_survival(self, x):
        return dp.FlippedHuber(self.alpha, 1.0).log_survival(x)

    def kinks(self):
        return (jnp.zeros(()),)


KNOWN = dp.Laplace(2.0)
PLAIN = Twin(KNOWN)


@pytest.mark.long
def test_divergences_of_two_tops():
    """Level near order 56: one at 0, one at 28."""
    order = 1.0 + jnp.linspace(0.9, 1.1, 21) * 57.6
    found = Unmarked(jnp.array(12.0)).renyi(0.5, order)
    np.testing.assert_allclose(found, dp.FlippedHuber(12.0, 1.0).renyi(0.5, order), rtol=1e-8)
    np.testing.assert_allclose(PLAIN.renyi(1.0, order), KNOWN.renyi(1.0, order), rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("sampled", [(), (0.1, "remove"), (0.1, "add_remove")])
def test_it_composes(sampled):
    losses = [10 * dp.privacy_loss(dp.Mechanism(x, 1.0, *sampled)) for x in (PLAIN, KNOWN)]
    epsilon = jnp.array([0.05, 0.3])
    found, truth = (loss.log_delta(epsilon) for loss in losses)
    errors = [loss.log_delta_error(epsilon) for loss in losses]
    assert bool(jnp.all(found - errors[0] <= truth)) & bool(jnp.all(truth - errors[1] <= found))
    # That there are atoms it does not know.
    np.testing.assert_allclose(found, truth, atol=0.02)


def test_divergences_of_huge_orders_without_a_largest_loss():
    """The difference of two log densities is rounded by many nats, their slopes are not."""
    order = 1.0 + np.sort(10.0 ** np.random.default_rng(0).uniform(-3, 20, 300))
    for shift in (1.0, 0.01, 1e-6):
        value = np.asarray(Twin(dp.Gaussian(1.0)).renyi(shift, order))
        error = value / (0.5 * order * shift**2) - 1
        assert np.all((error >= 0) & (error <= 4e-8)), (shift, order[np.argmin(error)], error)
