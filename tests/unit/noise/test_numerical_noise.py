"""A noise of a user's own, and pairs of finite laws: what they compose to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp


@dp.own.pytree
class Plain(dp.own.NumericalNoise):
    """A Laplace by its density and its survival function alone."""

    scale: jax.Array

    def _log_density(self, x):
        return -jnp.abs(x) / self.scale - jnp.log(2.0 * self.scale)

    def _log_survival(self, x):
        y = x / self.scale
        below = jnp.log1p(-0.5 * jnp.exp(jnp.minimum(y, 0.0)))
        return jnp.where(y > 0, -y - jnp.log(2.0), below)

    def kinks(self):
        return (jnp.zeros(()),)


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


PLAIN, KNOWN = Plain(jnp.array(2.0)), dp.Laplace(2.0)


@pytest.mark.long
def test_one_release_is_that_of_the_closed_form():
    epsilon = jnp.array([-0.4, -0.1, 0.0, 0.2, 0.45])
    found, truth = (noise.log_delta(1.0, epsilon) for noise in (PLAIN, KNOWN))
    assert bool(jnp.all(found >= truth - 1e-14))
    np.testing.assert_allclose(found, truth, rtol=1e-11, atol=1e-11)
    for power in (1.0, 2.0, 3.5):
        np.testing.assert_allclose(
            PLAIN.absolute_moment(power), KNOWN.absolute_moment(power), rtol=1e-11
        )
    u = jnp.array([1e-9, 0.2, 0.5, 0.9])
    np.testing.assert_allclose(PLAIN.quantile(u), KNOWN.quantile(u), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(PLAIN.fisher_information(), 0.25, rtol=1e-11)
    draws = PLAIN.sample(jax.random.key(3), (20_000,))
    np.testing.assert_allclose(jnp.mean(jnp.abs(draws)), 2.0, rtol=0.05)


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


def test_finite_laws_are_those_of_the_response():
    often, rarely = 0.576116884765829, 0.2119415576170855
    law = [-1.0, 0.0, 1.0], [rarely, rarely, often], [often, rarely, rarely]
    found = 10 * dp.PrivacyLoss.from_pmf(*law)
    known = 10 * dp.privacy_loss(dp.RandomisedResponse(epsilon=1.0, categories=3))
    epsilon = jnp.array([0.3, 2.0, 5.5])
    np.testing.assert_allclose(found.log_delta(epsilon), known.log_delta(epsilon), atol=1e-4)
    # A tenth of P, and nothing of Q, is where the other has nothing.
    some = dp.PrivacyLoss.from_pmf([0.0], [0.9], [0.9])
    np.testing.assert_allclose((2 * some).delta(3.0), 1 - 0.9**2, rtol=1e-9)
    for bad, name in (
        (([0.0, 1.0], [0.5, 0.5], [0.5, 0.5]), "log"),
        (([0.0], [0.5, 0.5], [0.5, 0.5]), "length"),
        (([0.0], [1.5], [1.5]), "add up"),
        (([0.0], [0.0], [0.0]), "positive"),
    ):
        with pytest.raises(ValueError, match=name):
            dp.PrivacyLoss.from_pmf(*bad)


@dp.own.pytree
class Normal(dp.own.NumericalNoise):
    """A Gaussian of scale 1 by its formulas: no largest loss."""

    mean: jax.Array

    def _log_density(self, x):
        return -0.5 * (x - self.mean) ** 2 - 0.5 * np.log(2 * np.pi)

    def _log_survival(self, x):
        return jax.scipy.special.log_ndtr(self.mean - x)

    def kinks(self):
        return ()


def test_divergences_of_huge_orders_without_a_largest_loss():
    """The difference of two log densities is rounded by many nats, their slopes are not."""
    order = 1.0 + np.sort(10.0 ** np.random.default_rng(0).uniform(-3, 20, 300))
    for shift in (1.0, 0.01, 1e-6):
        value = np.asarray(Normal(jnp.array(0.0)).renyi(shift, order))
        error = value / (0.5 * order * shift**2) - 1
        assert np.all((error >= 0) & (error <= 4e-8)), (shift, order[np.argmin(error)], error)
