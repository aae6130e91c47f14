"""Dominating pairs of a user's own: what engines may ask them, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.replaced import Replaced


@dp.pytree
class Household(dp.DominatingPair):
    """Two records, each sampled with `sampling_prob`: one release of either, or of both."""

    scale: jax.Array
    sampling_prob: jax.Array
    added: jax.Array

    def _pair(self):
        either = 1.0 - (1.0 - self.sampling_prob) ** 2
        return Poisson(Additive(dp.Gaussian(self.scale), 2.0), either, self.added)

    def log_delta(self, epsilon):
        return self._pair().log_delta(epsilon)

    def law(self):
        return self._pair().law()

    def singularities(self):
        return self._pair().singularities()

    def reversed(self):
        return Household(self.scale, self.sampling_prob, 1.0 - self.added)

    def renyi(self, order):
        return self._pair().renyi(order)


def test_a_field_of_a_known_name_says_nothing():
    """Of two records, each taken with q, some release touches one with 1 - (1 - q)^(2 n)."""
    pair = Household(jnp.array(0.1), jnp.array(0.01), jnp.array(0.0))
    found = float((10 * dp.privacy_loss(pair)).delta(1.0))
    assert found >= 1.0 - 0.99**20 - 1e-4
    assert found == pytest.approx(1.0 - 0.99**20, abs=2e-3)


@pytest.mark.parametrize(
    ("pair", "hit"),
    [
        (Additive(dp.Gaussian(0.1), 1.0), 1.0),
        (Household(jnp.array(0.1), jnp.array(0.01), jnp.array(1.0)), 1.0),
        (Poisson(Additive(dp.Gaussian(0.1), 1.0), 0.01, 1.0), 0.01),
        (Poisson(Poisson(Additive(dp.Gaussian(0.1), 1.0), 0.3, 0.0), 0.01, 0.0), 0.003),
        (Replaced(dp.Gaussian(0.1), 1.0, 0.01), 0.01),
        (Poisson(Additive(dp.Gaussian(0.1), 1.0), 0.0, 0.0), 0.0),
    ],
)
def test_a_release_that_touches_no_record_tells_nothing(pair, hit):
    """delta(0) is at most the probability of a hit, in both directions."""
    for one in (pair, pair.reversed()):
        np.testing.assert_allclose(jnp.exp(one.log_hit()), hit, rtol=1e-14)
        assert float(one.log_delta(0.0)) <= float(one.log_hit()) + 1e-14
