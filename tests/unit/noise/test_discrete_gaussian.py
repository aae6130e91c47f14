"""The discrete Gaussian against records and sums over the lattice at 60 digits."""

import functools
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

GENERATOR = np.random.default_rng(17)


def tail(n: int, scale: float) -> mp.mpf:
    """sum over k >= n >= 0 of exp(-k^2 / (2 s^2)): term by term, or Euler-Maclaurin's series."""
    s = mp.mpf(scale)
    top = mp.exp(-(mp.mpf(n) ** 2) / (2 * s * s))
    if scale < 60 or n / s**2 > 0.3:
        total, i, term = mp.mpf(0), 0, mp.mpf(1)
        while term > mp.mpf(10) ** -45 * total:
            term = mp.exp(-i * (2 * mp.mpf(n) + i) / (2 * s * s))
            total, i = total + term, i + 1
        return top * total
    x = mp.mpf(n) / s
    total = s * mp.sqrt(mp.pi / 2) * mp.erfc(x / mp.sqrt(2)) / top + mp.mpf(1) / 2
    before, value = mp.mpf(1), x
    for k in range(1, 40):
        if k % 2:
            total += mp.bernoulli(k + 1) / mp.factorial(k + 1) * s**-k * value
        before, value = value, x * value - k * before
    return top * total


@functools.cache
def mass(scale: float) -> mp.mpf:
    return 2 * tail(0, scale) - 1


def log_delta(scale: float, shift: float, epsilon: float) -> mp.mpf:
    with mp.workdps(60):
        s, d, e = mp.mpf(scale), int(shift), abs(mp.mpf(epsilon))
        m = int(mp.floor(e * s * s / d - mp.mpf(d) / 2)) + 1
        near = tail(abs(m) + (m <= 0), scale) / mass(scale)
        far = mp.exp(e) * tail(m + d, scale) / mass(scale)
        upper, lower = (near, 1 - near) if m > 0 else (1 - near, near)
        delta, complement = upper - far, lower + far
        if epsilon < 0:
            delta, complement = 1 - mp.exp(-e) * complement, mp.exp(-e) * complement
        return mp.log1p(-complement) if complement < 0.5 else mp.log(delta)


def check(scale, shift, epsilon):
    value = np.asarray(dp.DiscreteGaussian(scale).log_delta(shift, epsilon))
    for s, d, e, v in zip(scale, shift, epsilon, value, strict=True):
        truth = log_delta(float(s), float(d), float(e))
        oracle.check_upper_bound(float(v), truth, (s, d, e))


@pytest.mark.long
def test_delta_around_every_kink():
    """Up to scales of 1e7; at 10 the sums end and the series begin, as at k / scale^2 = 0.4."""
    points = []
    for scale in (0.06, 0.3, 0.8, 1.0, 7.5, *ulps_around(10.0), 23.0, 1e3, 1e7):
        for shift in (1.0, 2.0, 5.0, float(round(3 * scale) + 1)):
            for k in (-1, 0, 1, int(scale), int(0.4 * scale**2)):
                kink = (2 * k + shift) * shift / (2 * scale**2)
                if 0 < kink < 600:
                    points += [(scale, shift, e) for e in ulps_around(kink)]
                    points += [(scale, shift, -kink)]
    rows = np.array(points)[GENERATOR.permutation(len(points))[:450]]
    check(*rows.T)


@pytest.mark.long
def test_delta_over_wide_ranges():
    count = 500
    scale = np.exp(GENERATOR.uniform(np.log(0.05), np.log(1e8), count))
    narrow = np.exp(GENERATOR.uniform(np.log(0.05), np.log(200), count))
    scale = np.where(GENERATOR.random(count) < 0.5, narrow, scale)
    wide = np.round(scale * np.exp(GENERATOR.uniform(-8, 2, count)))
    shift = np.maximum(1, np.where(GENERATOR.random(count) < 0.5, wide, count % 5))
    u = scale * np.exp(GENERATOR.uniform(-5, 3, count))
    u = np.where(GENERATOR.random(count) < 0.3, -GENERATOR.random(count) * shift / 2, u)
    epsilon = np.maximum((2 * u + shift) * shift / (2 * scale**2), 0)
    epsilon *= GENERATOR.choice([1, 1, 1, -1], count)
    kept = abs(epsilon) < 1e4
    check(scale[kept], shift[kept], epsilon[kept])


def test_delta_far_out():
    check(np.array([1.0, 0.5, 40.0, 1e6]), np.ones(4), np.array([3e3, 1e4, 20.0, 3e-4]))


@pytest.mark.float64
@pytest.mark.long
def test_derivatives_on_both_sides_of_each_kink():
    step = mp.mpf(10) ** -20
    gradient = jax.jit(
        jax.grad(lambda s, d, e: dp.DiscreteGaussian(s).log_delta(d, e), argnums=(0, 2))
    )
    for scale, shift in ((0.5, 1.0), (1.3, 3.0), (30.0, 4.0)):
        for k in (-1, 0, 2):
            kink = (2 * k + shift) * shift / (2 * scale**2)
            for at in (kink - 1e-7, kink + 1e-7, -kink - 1e-7, -kink + 1e-7):
                by_scale, by_epsilon = gradient(scale, shift, at)
                truth = mp.diff(partial(log_delta, scale, shift), at, h=step)
                np.testing.assert_allclose(by_epsilon, float(truth), rtol=1e-9, atol=1e-300)
                truth = mp.diff(partial(log_delta, shift=shift, epsilon=at), mp.mpf(scale), h=step)
                np.testing.assert_allclose(by_scale, float(truth), rtol=1e-9, atol=1e-300)


def test_composition_records():
    """The K-fold delta from the characteristic function: the sum of K draws is on the lattice."""
    for row in records("discrete_gaussian", "ln_delta_kfold"):
        scale, inputs = row["params"]["sigma"], row["inputs"]
        shift, count = inputs["Delta"], inputs["K"]
        size = 2 * int(9 * scale * np.sqrt(count) + count) + 1
        noise, draws = dp.DiscreteGaussian(scale), np.arange(-(size // 2), size // 2 + 1)
        one = np.fft.ifftshift(np.exp(np.asarray(noise.log_density(1.0 * draws))))
        masses = np.fft.fftshift(np.fft.ifft(np.fft.fft(one) ** count).real)
        losses = (2 * draws + shift * count) * shift / (2 * scale**2)
        gain = -np.expm1(np.minimum(inputs["eps"] - losses, 0.0))
        np.testing.assert_allclose(np.log(masses @ gain), float(expected(row)), rtol=1e-9)
        loss = float(count) * dp.privacy_loss(dp.Mechanism(noise, float(shift)))
        error = float(loss.log_delta(inputs["eps"])) - float(expected(row))
        assert -1e-13 <= error < 1e-9, row["id"]


def generating(scale: float, shift: int, w: mp.mpf) -> mp.mpf:
    """log E[exp(w L)]."""
    s, d = mp.mpf(scale), mp.mpf(shift)
    middle = int(mp.nint(w * d))
    reach = int(16 * scale + 16)
    terms = (
        mp.exp(-(mp.mpf(k) ** 2) / (2 * s * s) + w * (2 * k + d) * d / (2 * s * s))
        for k in range(middle - reach, middle + reach + 1)
    )
    return mp.log(mp.fsum(terms) / mass(scale))


def test_divergences():
    for _ in range(60):
        scale = float(GENERATOR.choice([0.1, 0.3, *ulps_around(0.8), 1.0, 3.0, 9.0]))
        shift = int(GENERATOR.integers(1, 6))
        noise, z = dp.DiscreteGaussian(scale), 10 ** GENERATOR.uniform(-6, 3)
        value, excess = float(noise.renyi(float(shift), 1.0 + z)), mp.mpf(1.0 + z) - 1
        truth = generating(scale, shift, excess) / excess
        assert abs(oracle.relative_error(value, truth)) < 2e-14, (scale, shift, z)


def test_moments():
    for scale in (0.05, 0.3, 0.8, 1.0, *ulps_around(10.0), 11.0, 1e3, 1e8):
        noise, s = dp.DiscreteGaussian(scale), mp.mpf(scale)
        for power in (0.3, 1.0, 2.0, 3.5, 6.0):
            if scale < 12:
                terms = (k ** mp.mpf(power) * mp.exp(-k * k / (2 * s * s)) for k in range(1, 250))
                truth = 2 * mp.fsum(terms) / mass(scale)
            else:
                p = mp.mpf(power)
                truth = s ** (p + 1) * 2 ** ((p + 1) / 2) * mp.gamma((p + 1) / 2)
                for j in range(12):
                    factor = (-1 / (2 * s * s)) ** j / mp.factorial(j)
                    truth += 2 * factor * mp.zeta(-p - 2 * j)
                truth /= mass(scale)
            value = float(noise.absolute_moment(power))
            assert abs(oracle.relative_error(value, truth)) < 5e-14, (scale, power)
    assert dp.DiscreteGaussian(2.0).absolute_moment(0.0) == 1
    assert dp.DiscreteGaussian(2.0).absolute_moment(-0.5) == jnp.inf


def test_tails():
    for scale in (0.06, 0.5, 7.5, *ulps_around(10.0), 300.0, 1e7):
        noise = dp.DiscreteGaussian(scale)
        for ratio in (0.0, 0.3, 4.0, 38.0, 1e3):
            n = round(ratio * scale)
            for x in (float(n), n + 0.5, -float(n)):
                least = int(np.floor(x)) + 1
                truth = mp.log(tail(least, scale) / mass(scale)) if least > 0 else None
                if truth is None:
                    truth = mp.log1p(-tail(1 - least, scale) / mass(scale))
                if truth > -1e-290:
                    continue
                value = float(noise.log_survival(x))
                assert abs(oracle.relative_error(value, truth)) < 1e-13, (scale, x)


def test_quantile_is_the_least_whole_number():
    for scale in (0.06, 0.3, 1.7, 1e3, 1e7):
        u = [*10 ** GENERATOR.uniform(-300, -0.31, 20), *GENERATOR.uniform(size=20)]
        u = np.array([*u, 1e-300, 0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1), 1 - 1e-12])
        quantiles = np.asarray(dp.DiscreteGaussian(scale).quantile(u))
        for chance, k in zip(u, quantiles, strict=True):

            def below(k, scale=scale):
                side = tail(k + 1 if k >= 0 else -k, scale) / mass(scale)
                return 1 - side if k >= 0 else side

            slack = mp.mpf(1e-14) * (1 - mp.log(min(chance, 1 - chance)))
            assert below(int(k)) >= chance * (1 - slack)
            assert below(int(k) - 1) < chance * (1 + slack)


def test_limits():
    for scale in (1e-200, 1e-3, 1.0, 1e120, 1e308):
        noise = dp.DiscreteGaussian(scale)
        assert noise.log_delta(1.0, 0.0) > -np.inf
        assert noise.log_delta(1.0, 1e280) > -np.inf
        assert noise.log_delta(1.0, 1e-3) <= 0
        assert noise.log_delta(1e200, 1.0) <= 0
    assert dp.DiscreteGaussian(1e-200).delta(1.0, 1e6) == 1
    assert dp.DiscreteGaussian(jnp.inf).zcdp(3.0)[1] == 0
    assert dp.DiscreteGaussian(jnp.inf).renyi(3.0, 3.0) == 0
    assert dp.DiscreteGaussian(2.0).sub_gaussian_proxy() >= 4
    assert dp.DiscreteGaussian(2.0).fisher_information() == np.inf
