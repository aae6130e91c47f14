"""Compositions of truncated Laplace noise, sampled or not: losses that may be infinite."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp

pytestmark = pytest.mark.float64


def loss_of(scale, bound, shift=1.0, *sampled):
    return dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(scale, bound), shift, *sampled))


def test_a_shift_that_the_bound_does_not_show():
    """Some losses are infinite all the same, and are not forgotten."""
    for scale, bound, shift in ((1.0, 3.0, 1e-300), (0.01, 3.0, 1e-4), (1e6, 1.0, 1e-5)):
        x, r = mp.mpf(bound) / mp.mpf(scale), mp.mpf(shift) / mp.mpf(scale)
        with mp.workdps(50):
            truth = mp.log1p(-mp.expm1(r) / (2 * mp.expm1(x)))
        found = float(dp.TruncatedLaplace(scale, bound).structure(shift).log_finite)
        assert -1e-12 < (found - truth) / -truth <= 1e-15
    assert loss_of(1.0, 3.0, 1e-300).log_delta(0.2) > -700.0


@pytest.mark.parametrize(
    ("count", "scale", "bound", "sampled"),
    [(30, 2.0, 5.0, ()), (2, 1.0, 4.0, (0.05, "remove"))],
)
def test_infinite_losses_remain(count, scale, bound, sampled):
    loss = count * loss_of(scale, bound, 1.0, *sampled)
    with mp.workdps(30):
        once = mp.expm1(1 / mp.mpf(scale)) / (2 * mp.expm1(bound / mp.mpf(scale)))
        infinite = float(1 - (1 - (sampled or (1,))[0] * once) ** count)
    assert float(loss.log_delta(20.0)) == pytest.approx(np.log(infinite), abs=1e-13)
    np.testing.assert_allclose(loss.bounds(20.0), infinite, rtol=1e-12)
    assert loss.epsilon(0.5 * infinite) == np.inf
    assert 0 < float(loss.epsilon(1.5 * infinite)) < 15.0
    assert loss.renyi(2.0) == np.inf


def test_supports_that_do_not_meet():
    nothing = 2 * loss_of(1.0, 0.4)
    assert float(nothing.log_delta(3.0)) == 0.0
    assert float(nothing.bounds(3.0)[0]) > 1 - 1e-12
    for bound in (5.0, np.inf):
        loss = 3 * loss_of(2.0, bound, jnp.array([np.inf, 1.0]))
        assert float(loss.delta(0.3)[0]) == 1.0


@pytest.mark.parametrize("sampled", [(), pytest.param((0.1, "add_remove"), marks=pytest.mark.long)])
def test_no_bound_is_a_laplace(sampled):
    whole = 3 * dp.privacy_loss(dp.Mechanism(dp.Laplace(2.0), 1.0, *sampled))
    cut, epsilon = 3 * loss_of(2.0, np.inf, 1.0, *sampled), jnp.array([0.0, 0.1, 1.2])
    np.testing.assert_allclose(cut.log_delta(epsilon), whole.log_delta(epsilon), atol=1e-6)


@pytest.mark.long
def test_fitted_noise_of_two_coordinates():
    budget = dp.Budget(1.0, 1e-3)
    noise = dp.fit_noise("truncated_laplace", budget, 1.0, count=2)
    assert float((2 * dp.privacy_loss(dp.Mechanism(noise, 1.0))).delta(1.0)) <= 1e-3
    laplace = dp.fit_noise("laplace", budget, 1.0, count=2)
    assert float(noise.variance()) < float(laplace.variance())
