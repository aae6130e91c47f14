"""The error that a composition states of its log delta: a bound on the true one."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.dominating_pair.poisson import Poisson

pytestmark = pytest.mark.float64


def loss_of(noise, shift=1.0, *sampled):
    return dp.privacy_loss(dp.Mechanism(noise, shift, *sampled))


def stated(loss, epsilon):
    """log delta and the least that it may be."""
    value, error = (np.asarray(f(epsilon)) for f in (loss.log_delta, loss.log_delta_error))
    assert np.all(error >= 0)
    return value, value - error


@pytest.mark.parametrize(("count", "scale"), [(2, 0.7), (1000, 30.0), (10**9, 2e4)])
def test_gaussians(count, scale):
    epsilon = jnp.array([-3.0, -0.1, 0.0, 0.3, 2.0, 9.0, 40.0])
    upper, lower = stated(count * loss_of(dp.Gaussian(scale)), epsilon)
    truth = np.asarray(dp.Gaussian(scale / np.sqrt(count)).log_delta(1.0, epsilon))
    rounding = 1e-14 * (1 + np.abs(truth))
    assert np.all(upper >= truth - rounding)
    assert np.all(lower <= truth + rounding)
    assert np.all(upper - lower < 1e-8)
    assert np.min(truth) < -150


@pytest.mark.long
def test_where_the_bound_is_wide_it_says_so():
    """Beside a Gaussian so wide that it hides no atom no sum settles: the grid bounds the error."""
    laplaces = 20 * loss_of(dp.Laplace(10.0))
    epsilon = jnp.array([0.0, 0.2, 0.5, 0.9])
    upper, lower = stated(laplaces + loss_of(dp.Gaussian(1e9)), epsilon)
    alone = np.asarray(laplaces.log_delta(epsilon))
    assert np.all(upper >= alone - 2e-10)
    # The Gaussian moves a loss by 1e-9.
    assert np.all(lower <= alone + 1e-7)
    assert 1e-9 < np.max(upper - lower) < 1e-1


@pytest.mark.long
def test_right_below_the_largest_loss():
    """There the rounding of the losses, 5e-11, is most of what is left."""
    loss, bound = 100 * dp.privacy_loss(dp.PureDP(0.1)), 0.1
    epsilon = jnp.array([10.0, 10.0 - 1e-14, 10.0 - 1e-12, 10.0 - 1e-9, 10.0 - 1e-8])
    upper, lower = stated(loss, epsilon)
    with mp.workdps(40):
        mass = (1 + mp.exp(-mp.mpf(bound))) ** -100
        gaps = [100 * mp.mpf(bound) - mp.mpf(float(e)) for e in epsilon]
        truth = np.array([float(mp.log(-mass * mp.expm1(-gap))) for gap in gaps])
    assert np.all(upper >= truth - 1e-12)
    assert np.all(lower <= truth + 1e-12)
    assert upper[-2] - lower[-2] < 0.1
    assert upper[-1] - lower[-1] < 1e-3
    assert upper[0] - lower[0] > 1


def test_one_release_and_the_ends():
    loss = loss_of(dp.Laplace(2.0))
    value, least = stated(loss, jnp.array([-2.0, 0.3, 0.5]))
    assert value[2] == -np.inf
    assert float(loss.log_delta_error(0.5)) == 0.0
    assert np.all(value[:2] - least[:2] <= 1e-11)
    leaky = 3 * dp.privacy_loss(dp.ApproxDP(0.1, 1e-3))
    value, least = stated(leaky, jnp.array([0.0, 1.0]))
    assert float(value[1]) == pytest.approx(np.log1p(-((1 - 1e-3) ** 3)), abs=1e-12)
    assert np.all(value - least < 1e-9)


def of_binomial(epsilon_of_one, q, count, epsilon):
    """log delta of sampled answers with two outcomes: a sum over how often the first came."""
    with mp.workdps(40):
        truthful = 1 / (1 + mp.exp(-mp.mpf(epsilon_of_one)))
        without = 1 - truthful
        share = mp.mpf(q)
        hit = share * truthful + (1 - share) * without
        losses = mp.log(hit / without), mp.log((1 - hit) / truthful)

        def term(k):
            loss = k * losses[0] + (count - k) * losses[1]
            if loss <= epsilon:
                return mp.mpf(0)
            ways = mp.binomial(count, k) * hit**k * (1 - hit) ** (count - k)
            return ways * -mp.expm1(epsilon - loss)

        return float(mp.log(mp.fsum(term(k) for k in range(count + 1))))


@pytest.mark.parametrize(
    ("one", "q", "count", "epsilon"),
    [(1.0, 0.02, 400, 0.8), (3.0, 1e-3, 2000, 0.5), (0.3, 0.3, 150, 1.5), (6.0, 1e-4, 900, 2.0)],
)
def test_smoothed_atoms_only_raise_delta(one, q, count, epsilon):
    exact = of_binomial(one, q, count, epsilon)
    pair = Poisson(dp.RandomisedResponse(one, 2.0), jnp.asarray(q), jnp.zeros(()))
    loss = count * dp.privacy_loss(pair, "remove")
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    assert value - error <= exact <= value
    assert error < 1e-3
