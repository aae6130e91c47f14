"""The Subbotin's law and guarantees: records, tails, special powers, limits, bad input."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import noise_laws
import numpy as np
import oracle
import pytest
from subbotin_closed_form import POWERS, survival

import jaxdp as dp

pytestmark = pytest.mark.float64


@pytest.mark.parametrize("power", POWERS)
def test_tails_and_their_inverse(power):
    noise, p = dp.Subbotin(1.0, power), mp.mpf(power)
    edge = power ** (1 / power)  # where |t|^p / p = 1
    for t in (-6.0, -1.4, *noise_laws.ulps_around(-edge), -1e-8, 0.0, 1e-300, 0.7, edge, 8.0, 60.0):
        truth = mp.log(survival(mp.mpf(t), p))
        if truth > -1e-40:
            continue
        value = float(noise.log_survival(t))
        assert abs(oracle.relative_error(value, truth)) < 5e-14, t
    u = np.array([1e-300, 1e-100, 1e-16, 1e-3, 0.2, 0.4999999, np.nextafter(0.5, 0), 0.61, 0.999])
    for chance, x in zip(u, np.asarray(noise.quantile(u)), strict=True):
        t = mp.mpf(float(x))
        density = mp.exp(-(abs(t) ** p) / p) * p ** (1 - 1 / p) / (2 * mp.gamma(1 / p))
        error = (survival(-t, p) - mp.mpf(float(chance))) / density
        assert abs(error) < 5e-14 * abs(t), chance
    slope = jax.grad(noise.quantile)(0.2)
    np.testing.assert_allclose(slope, np.exp(-noise.log_density(noise.quantile(0.2))), rtol=1e-13)


@pytest.mark.long
def test_quantile_derivative_in_power():
    for u in (1e-9, 0.3, 0.8):
        slope = jax.grad(lambda p, u=u: dp.Subbotin(1.0, p).quantile(u))(1.7)
        up, down = (float(dp.Subbotin(1.0, 1.7 + h).quantile(u)) for h in (1e-5, -1e-5))
        np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-8)


@pytest.mark.long
def test_zcdp_is_close_to_the_least():
    for power in (1.05, 1.5, 1.9, 1.99):
        for shift in (1e-4, 0.5, 20.0):
            noise, order = dp.Subbotin(1.0, power), 1 + np.logspace(-6, 6, 60)
            least = np.max(np.asarray(noise.renyi(shift, order)) / order)
            xi, rho = noise.zcdp(shift)
            assert xi == 0
            assert least <= rho <= least * (1.005 if power > 1.9 else 1.000002)


def test_guarantees_of_special_powers():
    assert dp.Subbotin(1.0, 3.0).zcdp(1.0)[1] == np.inf
    assert dp.Subbotin(1.0, 3.0).zcdp(0.0)[1] == 0
    np.testing.assert_allclose(dp.Subbotin(2.0, 1.0).zcdp(1.0), dp.Laplace(2.0).zcdp(1.0))
    np.testing.assert_allclose(dp.Subbotin(2.0, 2.0).zcdp(1.0)[1], 0.125, rtol=1e-15)
    assert dp.Subbotin(2.0, 1.0).pure_epsilon(1.0) >= 0.5
    assert dp.Subbotin(2.0, 1.5).pure_epsilon(1.0) == np.inf
    assert dp.Subbotin(2.0, 1.5).sub_gaussian_proxy() == np.inf
    assert dp.Subbotin(2.0, 1.0).structure(1.0) == dp.Laplace(2.0).structure(1.0)


def test_sub_gaussian_proxy():
    t = np.linspace(0.01, 30, 40)
    for power in (2.0, 3.0, 8.0):
        noise = dp.Subbotin(1.0, power)
        x, w = np.polynomial.legendre.leggauss(200)
        x = 60 ** (1 / power) * power * x
        mgf = np.exp(noise.log_density(x)) @ (w[:, None] * np.exp(x[:, None] * t)) * np.ptp(x) / 2
        assert np.all(np.log(mgf) <= noise.sub_gaussian_proxy() * t**2 / 2 * (1 + 1e-3))


def test_draws_of_every_power():
    power = np.array([1.0, 1.2, 2.0, 5.0, 20.0])
    draws = np.asarray(dp.Subbotin(3.0, power).sample(jax.random.key(0), (40_000, 5)))
    for moment in (1.0, 2.0):
        ratio = np.mean(abs(draws) ** moment, axis=0)
        ratio /= dp.Subbotin(3.0, power).absolute_moment(moment)
        np.testing.assert_allclose(ratio, 1, atol=0.06)


def test_bad_powers():
    for power in (0.0, 0.999, -1.0, np.nan, 1e5, np.inf):
        with pytest.raises(ValueError, match="power must lie in"):
            dp.Subbotin(1.0, power)
        traced = jax.jit(lambda p: dp.Subbotin(1.0, p).delta(1.0, 1.0))(power)
        assert np.isnan(traced)
        assert np.isnan(jax.jit(lambda p: dp.Subbotin(1.0, p).renyi(0.0, 2.0))(power))
        replaced = jax.tree.map(lambda _, p=power: jnp.asarray(p), dp.Subbotin(1.0, 1.5))
        assert not replaced.zcdp(1.0)[1] <= 1e300


def test_limits():
    for power in (1.5, 4.0, 1e4):
        noise = dp.Subbotin(1.0, power)
        assert noise.log_delta(1.0, 1e290) > -np.inf
        assert noise.log_delta(1e-300, 0.0) < -600
        assert noise.log_delta(1e300, 1.0) == 0
        assert noise.renyi(0.0, 3.0) == 0
    batch = partial(dp.Subbotin(jnp.ones((2, 1)), jnp.array([1.5, 2.0, 7.0])).log_delta, 0.5)
    assert batch(0.1).shape == (2, 3)


def test_powers_next_to_one():
    """Beyond shift / scale thresholds overflow: a value, near the Laplace's and above it."""
    scale, shift = 1.0, np.array([1.0, 1e-3])[:, None]
    at = np.array([0.0, 0.4, 1 - 1e-15, 1.0, 1 + 1e-15, 1.5, 300.0, 1e8])
    for excess in (2.0**-52, 1e-13, 1e-9, 9e-9, 2.1e-8, 1e-5):
        noise, laplace = dp.Subbotin(scale, 1.0 + excess), dp.Laplace(scale)
        for sign in (1.0, -1.0):
            epsilon = sign * at * shift
            found, known = (np.asarray(n.log_delta(shift, epsilon)) for n in (noise, laplace))
            # The profile itself moves with the power.
            assert np.all(found >= known * (1 + 1e-7 + excess) - 1e-13)
            inside = (at < 0.9) | (sign < 0)
            np.testing.assert_allclose(found[:, inside], known[:, inside], rtol=1e-6 + excess)
            assert sign < 0 or np.all(found[:, at >= 1] < -13.0)
        assert np.all(np.isfinite(noise.renyi(1.0, np.array([1.0, 1.5, 100.0]))))
    assert noise.log_delta(1.0, np.inf) == -np.inf
    # Where the loss exceeds shift / scale at e^5 scales: the tail of e^-148.
    slight = dp.Subbotin(1.0, 1.0 + 2.0**-52).log_delta(1.0, 1.0 + 3e-15)
    assert -1.2e6 < slight < -1e4


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 10])
def test_a_power_next_to_one_composes_as_the_laplace(count):
    near, laplace = (
        count * dp.privacy_loss(dp.Mechanism(noise, 0.7))
        for noise in (dp.Subbotin(1.0, 1.0 + 1e-9), dp.Laplace(1.0))
    )
    for ask in (lambda x: x.epsilon(1e-6), lambda x: x.log_delta(0.3), lambda x: x.log_delta(9.0)):
        assert ask(near) == pytest.approx(float(ask(laplace)), rel=1e-4) or ask(laplace) == -np.inf
    assert near.log_delta(9.0) < -20
