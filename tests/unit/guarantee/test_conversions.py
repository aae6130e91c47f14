"""Every conversion between guarantees is safe, and the least that is."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from differences import check_gradient
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, LEAST

import jaxdp as dp


@given(st.floats(1e-6, 30), st.floats(1.0001, 1e4))
def test_pure_to_zcdp_bounds_every_order(epsilon, order):
    """The divergence of randomised response, which no PureDP mechanism exceeds, and rho meets."""
    rho = float(dp.to_zcdp(dp.PureDP(epsilon)).rho)
    assert rho <= epsilon**2 / 2 * (1 + 1e-12)
    with mp.workdps(40):
        s = mp.mpf(order) - mp.mpf(1) / 2
        half = mp.mpf(epsilon) / 2
        divergence = (mp.log(mp.cosh(s * epsilon)) - mp.log(mp.cosh(half))) / (mp.mpf(order) - 1)
    assert divergence <= mp.mpf(order) * mp.mpf(rho)
    kullback_leibler = epsilon * np.tanh(epsilon / 2)
    np.testing.assert_allclose(rho, kullback_leibler, rtol=1e-13)


@given(st.floats(1e-6, 30), st.floats(1.000001, 1e4))
def test_laplace_zcdp_is_the_least_rho(ratio, order):
    """Below r^2 / 2, above every order's divergence, and met at order 1."""
    noise = dp.Laplace(1.0)
    rho = float(noise.zcdp(ratio)[1])
    assert rho <= ratio**2 / 2 * (1 + 1e-12)
    assert float(noise.renyi(ratio, order)) <= order * rho * (1 + 1e-13)
    np.testing.assert_allclose(float(noise.renyi(ratio, 1 + 1e-9)), rho, rtol=1e-6)


def test_conversions_between_kinds():
    gdp = dp.GDP(0.4)
    np.testing.assert_allclose(dp.to_zcdp(gdp).rho, 0.08, rtol=1e-15)
    assert dp.to_pure(dp.ApproxDP(1.0, 0.0)).epsilon_bound == 1.0
    assert dp.to_pure(dp.ApproxDP(1.0, 1e-9)).epsilon_bound == np.inf
    for kind in KINDS:
        converters = {dp.PureDP: dp.to_pure, dp.ZCDP: dp.to_zcdp, dp.GDP: dp.to_gdp}
        if type(kind) in converters:
            assert converters[type(kind)](kind) is kind
    for convert, kind in (
        (dp.to_pure, dp.GDP(1.0)),
        (dp.to_pure, dp.ZCDP(0.0, 1.0)),
        (dp.to_zcdp, dp.ApproxDP(1.0, 0.1)),
        (dp.to_gdp, dp.ApproxDP(1.0, 0.1)),
        (dp.to_gdp, dp.ZCDP(0.0, 1.0)),
    ):
        with pytest.raises(TypeError):
            convert(kind)


@given(st.floats(0, 8), st.floats(1e-14, 0.9), st.floats(0.05, 1.0))
def test_largest_gdp_is_safe_and_tight(epsilon, delta, power):
    target = float(np.float64(delta) ** (1 + 20 * (1 - power)))
    mu = float(dp.largest_gdp(dp.Budget(epsilon, target)).mu)
    truth = mp.exp(oracle.gaussian_log_delta(mu, epsilon))
    assert truth <= mp.mpf(target)
    assert mp.exp(oracle.gaussian_log_delta(mu * (1 + 1e-10), epsilon)) > mp.mpf(target)


@pytest.mark.long
def test_largest_gdp_is_batched_and_differentiable():
    budget = dp.Budget(jnp.array([[0.1], [1.0]]), jnp.array([1e-9, 1e-3, 0.0]))
    mu = dp.largest_gdp(budget).mu
    assert mu.shape == (2, 3)
    assert np.all(mu[:, 2] == 0)

    def level(epsilon, delta):
        return dp.largest_gdp(dp.Budget(epsilon, delta)).mu

    check_gradient(level, (1.0, 1e-3))
    bad = jax.vmap(level)(jnp.array([1.0, jnp.nan, 1.0]), jnp.array([jnp.nan, 0.1, -0.1]))
    assert np.all(np.asarray(bad) == 0)


def test_a_subnormal_budget_is_met():
    """Where it is known; a compiled kernel takes it for zero."""
    assert dp.largest_gdp(dp.Budget(0.0, 5e-324)).mu <= 1e-300
    largest = dp.largest_gdp(dp.Budget(1.0, 1e-310))
    assert largest.log_delta(1.0) <= np.log(1e-310) or largest.mu == 0
    assert dp.PureDP(1.0).epsilon(1e-310) >= 1.0


def test_conversions_do_not_underflow():
    for small in (1e-160, 1e-300):
        assert dp.to_zcdp(dp.GDP(small)).rho >= LEAST
        assert dp.to_zcdp(dp.PureDP(small)).rho >= LEAST
        assert np.all(dp.to_rdp(dp.GDP(small), [1.5, 2.0]).value >= LEAST)
        assert np.all(dp.to_rdp(dp.PureDP(small), [1.5, 2.0]).value >= LEAST)
        assert dp.to_gdp(dp.PureDP(small)).mu >= small


@given(st.floats(-300, 4))
def test_pure_to_gdp_is_the_least_mu_rounded_up(exponent):
    epsilon = 10.0**exponent
    mu = float(dp.to_gdp(dp.PureDP(epsilon)).mu)
    error = oracle.relative_error(mu, oracle.mu_of_pure(epsilon))
    assert 0 <= error < 3e-15, epsilon


@pytest.mark.float64
def test_pure_to_gdp_beyond_every_search():
    mu = dp.to_gdp(dp.PureDP(np.array([0.0, 1e300, 1.7e308, np.inf]))).mu
    assert mu[0] == 0
    assert np.all(mu[1:3] >= 2 * np.sqrt(2) * np.sqrt([1e300, 1.7e308]))
    assert mu[3] == np.inf
    slope = jax.grad(lambda e: dp.to_gdp(dp.PureDP(e)).mu)(2.0)
    numeric = (oracle.mu_of_pure(2.0 + 1e-6) - oracle.mu_of_pure(2.0 - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope, float(numeric), rtol=1e-9)
