"""The discrete Laplace against records, a 50-digit closed form and sums over the lattice."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from noise_laws import ulps_around
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64

GENERATOR = np.random.default_rng(21)


def real_part(w) -> mp.mpf:
    return mp.mpf(mp.re(w))


def log_delta(scale, shift, epsilon) -> mp.mpf:
    """The best of the thresholds around the optimum: -inf where delta is 0."""
    b, n, e = mp.mpf(scale), int(shift), mp.mpf(epsilon)
    with mp.workdps(60 + int(min(n / b + abs(e), 6000) / 2)):
        q, size = mp.exp(-1 / b), abs(e)
        if e >= 0 and size * b >= n:
            return -mp.inf
        nearest = max(int(mp.floor((n - size * b - 1) / 2)), 0)
        thresholds = range(max(nearest - 1, 0), min(nearest + 3, n))
        candidates = [(q ** (1 + j) + mp.exp(size) * q ** (n - j)) / (1 + q) for j in thresholds]
        complement = min([mp.mpf(1), *candidates]) * mp.exp(min(e, 0))
        return mp.log1p(-complement) if complement < 0.5 else mp.log(1 - complement)


def check(scale: float, shift: float, epsilon: np.ndarray) -> None:
    value = np.asarray(dp.DiscreteLaplace(scale).log_delta(shift, epsilon))
    for e, v in zip(epsilon, value, strict=True):
        truth = log_delta(scale, shift, float(e))
        oracle.check_upper_bound(float(v), truth, (scale, shift, e))


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 7.3, 1e4, 1e9])
def test_delta_around_every_kink(scale):
    for shift in (1.0, 2.0, 3.0, 8.0, float(round(scale) + 1)):
        kinks = [(shift - 2 * k) / scale for k in range(int(min(shift, 8)) // 2 + 1)]
        around = [e for kink in kinks for e in (*ulps_around(kink), *ulps_around(-kink))]
        check(scale, shift, np.array(around))


def test_delta_over_wide_ranges():
    for _ in range(60):
        scale = 10 ** GENERATOR.uniform(-2, 9)
        shift = float(max(1, round(scale * 10 ** GENERATOR.uniform(-3, 2.5))))
        ratio = shift / scale
        near = ratio * (1 + GENERATOR.normal(size=4) * 10 ** GENERATOR.uniform(-17, 0, size=4))
        wide = 10 ** GENERATOR.uniform(-6, 2, size=3)
        epsilon = np.array([*near, *wide, 0.0, GENERATOR.uniform() * ratio])
        check(scale, shift, np.concatenate([epsilon, -epsilon]))


def test_epsilon_derivative_on_both_sides_of_each_kink():
    for scale, shift in ((1.0, 3.0), (0.3, 4.0), (7.5, 2.0)):
        slope = jax.grad(partial(dp.DiscreteLaplace(scale).log_delta, shift))
        exact = partial(log_delta, scale, shift)
        for k in range(int(shift) // 2 + 1):
            for kink in ((shift - 2 * k) / scale, -(shift - 2 * k) / scale):
                for side in (-1, 1):
                    at = kink + side * 1e-7
                    if exact(at) == -mp.inf:
                        assert slope(at) == 0
                        continue
                    truth = mp.diff(exact, at, h=mp.mpf(10) ** -20)
                    np.testing.assert_allclose(float(slope(at)), float(truth), rtol=1e-8)


def test_composition_record():
    """The K-fold delta from the characteristic function: K losses on one lattice."""
    for row in records("discrete_laplace", "ln_delta_kfold"):
        scale, inputs = row["params"]["b"], row["inputs"]
        shift, count = inputs["Delta"], inputs["K"]
        # Shift 1: the loss is +-1 / scale.
        size = 2 * shift * count + 1
        turns, up = 2j * np.pi * np.fft.fftfreq(size), 1 / (1 + np.exp(-1 / scale))
        characteristic = (up * np.exp(turns) + (1 - up) * np.exp(-turns)) ** count
        masses = np.fft.fftshift(np.fft.fft(characteristic).real / size)
        losses = np.arange(-shift * count, shift * count + 1) / scale
        gain = -np.expm1(np.minimum(inputs["eps"] - losses, 0.0))
        np.testing.assert_allclose(np.log(masses @ gain), float(expected(row)), rtol=1e-13)
        loss = float(count) * dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(scale), float(shift)))
        error = float(loss.log_delta(inputs["eps"])) - float(expected(row))
        assert -1e-13 <= error < 1e-9, row["id"]


def test_moments():
    for scale in (0.01, 0.05, 0.3, 0.999, 1.0, 1.3, 7.5, 1e3, 1e9):
        noise, b = dp.DiscreteLaplace(scale), mp.mpf(scale)
        variance, mean = 1 / (2 * mp.sinh(1 / (2 * b)) ** 2), 1 / mp.sinh(1 / b)
        assert abs(oracle.relative_error(float(noise.variance()), real_part(variance))) < 1e-14
        assert abs(oracle.relative_error(float(noise.mean_absolute()), real_part(mean))) < 1e-14
        for power in (0.01, 0.5, 3.5, 10.0):
            q = mp.exp(-1 / b)
            if scale < 0.5:
                series = mp.fsum(k ** mp.mpf(power) * q**k for k in range(1, 120))
            else:
                series = mp.polylog(-mp.mpf(power), q)
            value = float(noise.absolute_moment(power))
            truth = real_part(2 * mp.tanh(1 / (2 * b)) * series)
            assert abs(oracle.relative_error(value, truth)) < 3e-14, (scale, power)
    assert dp.DiscreteLaplace(2.0).absolute_moment(0.0) == 1
    assert dp.DiscreteLaplace(2.0).absolute_moment(-0.5) == jnp.inf


def test_moment_derivatives():
    for scale in (0.3, 0.99, 1.01, 40.0):
        truth = mp.diff(lambda b: 1 / (2 * mp.sinh(1 / (2 * b)) ** 2), scale)
        slope = jax.grad(lambda b: dp.DiscreteLaplace(b).variance())(scale)
        np.testing.assert_allclose(float(slope), float(truth), rtol=1e-12)


def test_quantile_is_the_least_whole_number():
    for scale in (0.01, 0.3, 1.7, 1e3, 1e9):
        q = mp.exp(-1 / mp.mpf(scale))
        u = [*10 ** GENERATOR.uniform(-300, -0.31, 30), *GENERATOR.uniform(size=30)]
        u = np.array([*u, 1e-300, 0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1), 1 - 1e-12])
        for chance, k in zip(u, np.asarray(dp.DiscreteLaplace(scale).quantile(u)), strict=True):

            def below(k, q=q):
                return 1 - q ** (k + 1) / (1 + q) if k >= 0 else q**-k / (1 + q)

            assert below(int(k)) >= chance * (1 - mp.mpf(1e-14))
            assert below(int(k) - 1) < chance * (1 + mp.mpf(1e-14))


def generating(scale, shift, w):
    """log E[exp(w L)], as a sum over the lattice whose tails are geometric."""
    with mp.workdps(80):
        b = mp.mpf(scale)
        q = mp.exp(-1 / b)
        middle = mp.fsum(q**j * mp.exp(w * (shift - 2 * j) / b) for j in range(1, shift))
        ends = (mp.exp(w * shift / b) + q**shift * mp.exp(-w * shift / b)) / (1 - q)
        return mp.log((1 - q) / (1 + q) * (ends + middle))


def test_divergences():
    for _ in range(80):
        scale = 10 ** GENERATOR.uniform(-2, 7)
        shift = max(1, round(min(10 ** GENERATOR.uniform(0, 2), 300 * scale)))
        order = 1.0 + 10 ** GENERATOR.uniform(-6, 4)
        value = float(dp.DiscreteLaplace(scale).renyi(float(shift), order))
        with mp.workdps(80):
            truth = generating(scale, shift, mp.mpf(order) - 1) / (mp.mpf(order) - 1)
        assert abs(oracle.relative_error(value, truth)) < 1e-13, (scale, shift, order)


def test_zcdp_is_the_kullback_leibler_divergence():
    for scale in (0.01, 0.3, 1.0, 7.5, 1e3, 1e9):
        for shift in (1, 2, 7, 1000):
            x = 1 / mp.mpf(scale)
            truth = shift * x - (1 - mp.exp(-shift * x)) * x / mp.sinh(x)
            rho = float(dp.DiscreteLaplace(scale).zcdp(float(shift))[1])
            assert 0 <= oracle.relative_error(rho, real_part(truth)) < 1e-13
    law = oracle.discrete_laplace(2.0)
    direct = mp.fsum(
        p * (law.log_weight(mp.mpf(k)) - law.log_weight(mp.mpf(k + 3)))
        for k, p in law.masses.items()
    )
    rho = float(dp.DiscreteLaplace(2.0).zcdp(3.0)[1])
    assert abs(oracle.relative_error(rho, real_part(direct))) < 1e-13
    for scale, shift in ((0.5, 2.0), (3.0, 1.0), (50.0, 200.0)):
        noise, order = dp.DiscreteLaplace(scale), 1 + np.logspace(-6, 4, 200)
        assert np.all(noise.renyi(shift, order) <= noise.zcdp(shift)[1] * order * (1 + 1e-13))


def test_limits():
    assert dp.DiscreteLaplace(1e308).log_delta(1.0, 0.0) > -np.inf
    assert dp.DiscreteLaplace(jnp.inf).zcdp(3.0)[1] == 0
    assert dp.DiscreteLaplace(jnp.inf).pure_epsilon(3.0) == 0
    assert dp.DiscreteLaplace(jnp.inf).renyi(3.0, 3.0) == 0
    assert dp.DiscreteLaplace(1.0).pure_epsilon(3.0) >= 3
    assert dp.DiscreteLaplace(1.0).delta(3.0, 3.0) == 0
    assert dp.DiscreteLaplace(1.0).delta(3.0, np.nextafter(3.0, 0)) > 0
