"""The general contour: atoms that are smoothed, and lanes of one program that go on alone."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.dominating_pair.poisson import Poisson


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
    loss = count * dp.privacy_loss(pair)
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    assert value - error <= exact <= value
    assert error < 1e-3


@pytest.mark.long
def test_lanes_that_need_more_go_on_alone_in_one_program():
    """Three releases go to the grid, hundreds end with the contour; both in one batch."""
    scale = jnp.linspace(1.0, 8.0, 9)
    count = jnp.where(jnp.arange(9) == 3, 3.0, 200.0)

    def log_delta(scale, count):
        return (count * dp.privacy_loss(dp.Mechanism(dp.Laplace(scale), 1.0))).log_delta(0.3)

    known = np.asarray(log_delta(scale, count))
    traced = np.asarray(jax.jit(log_delta)(scale, count))
    np.testing.assert_allclose(traced, known, rtol=1e-10, atol=1e-12)
    total = jax.jit(jax.grad(lambda scale: jnp.sum(log_delta(scale, count))))(scale)
    along = jax.jit(lambda scale, way: jax.jvp(lambda x: log_delta(x, count), (scale,), (way,))[1])
    np.testing.assert_allclose(along(scale, jnp.ones(9)), total, rtol=1e-12)
    step = 1e-4
    difference = (log_delta(scale + step, count) - log_delta(scale - step, count)) / (2 * step)
    np.testing.assert_allclose(total, difference, rtol=1e-3, atol=1e-6)
