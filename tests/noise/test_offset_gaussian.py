"""The offset-symmetric Gaussian: published values, its boundary, limits, bad input."""

import itertools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from closed_forms import offset_gaussian_cumulant, offset_gaussian_log_delta

import jaxdp as dp


def check(noise, shift, epsilon):
    truth = offset_gaussian_log_delta(float(noise.offset), float(noise.scale), shift, epsilon)
    value = float(noise.log_delta(shift, epsilon))
    if truth > -1e-300:
        assert truth <= value <= 0
    else:
        error = oracle.relative_error(value, truth)
        assert 0 <= error < 1e-12, (noise, shift, epsilon, error)


def test_the_boundary_and_an_ulp_to_either_side():
    for h, ratio in itertools.product((1e-6, 0.1, 1.0, 7.0, 300.0), (1e-9, 1e-3, 0.4, 3.0, 50.0)):
        scale = 0.7
        noise, shift = dp.OffsetGaussian(h * scale, scale), ratio * scale
        d = mp.mpf(shift) / mp.mpf(scale)
        boundary = float(d * (d / 2 + mp.mpf(h * scale) / mp.mpf(scale)))
        for epsilon in (np.nextafter(boundary, 0), boundary, np.nextafter(boundary, np.inf)):
            check(noise, shift, float(epsilon))
            check(noise, shift, -float(epsilon))


@pytest.mark.parametrize(("reach", "count"), [((-6, 1.5, -10, 1.5), 250), ((-1, 5, -2, 6), 150)])
def test_wide_ranges(reach, count):
    rng = np.random.default_rng(6)
    scale = 10 ** rng.uniform(-3, 3, count)
    offset = scale * 10 ** rng.uniform(reach[0], reach[1], count)
    shift = scale * 10 ** rng.uniform(reach[2], reach[3], count)
    log_ratio = rng.uniform(-3, 2, count)
    epsilon = rng.choice([-1, 1], count) * 10**log_ratio * shift * (shift + offset) / scale**2
    for *pair, m, e in zip(offset, scale, shift, epsilon, strict=True):
        check(dp.OffsetGaussian(*pair), float(m), float(e))


def test_one_minus_delta_keeps_its_digits():
    rng = np.random.default_rng(6)
    h = 10 ** rng.uniform(-3, 2, 100)
    shift = np.minimum(rng.uniform(1, 73, 100), rng.uniform(0, 1300, 100) / h)
    epsilon = rng.uniform(0, 0.3, 100) * shift * (shift + h) * rng.choice([-1, 1], 100)
    for x, m, e in zip(h, shift, epsilon, strict=True):
        check(dp.OffsetGaussian(float(x), 1.0), float(m), float(e))


def test_derivatives_on_both_sides_of_the_boundary():
    def log_delta(h, m, e):
        return dp.OffsetGaussian(h, 1.0).log_delta(m, e)

    slopes = jax.jit(jax.grad(log_delta, (0, 1, 2)))
    for h, shift in ((1.5, 0.5), (0.2, 0.05), (2.0, 3.0), (6.0, 0.3)):
        for side in (-1, 1):
            point = [h, shift, shift * (shift / 2 + h) * (1 + side * 1e-5)]
            for k in range(3):
                step = mp.mpf(10) ** -12 * point[k]
                ends = [
                    [mp.mpf(v) + s * step * (i == k) for i, v in enumerate(point)] for s in (1, -1)
                ]
                with mp.workdps(60):
                    up, down = (offset_gaussian_log_delta(x, mp.mpf(1), m, e) for x, m, e in ends)
                    truth = (up - down) / (2 * step)
                error = oracle.relative_error(float(slopes(*point)[k]), truth)
                assert abs(error) < 1e-9, (h, shift, side, k)
    # The loss has no atom, so the slope in epsilon does not jump.
    below, above = (float(slopes(1.5, 0.5, 0.875 + s)[2]) for s in (-1e-12, 1e-12))
    np.testing.assert_allclose(below, above, rtol=1e-10)


def test_quantile_inverts_survival():
    rng = np.random.default_rng(6)
    u = np.concatenate([10 ** rng.uniform(-300, -0.31, 200), [0.5, 0.5 - 1e-9, 0.5 + 1e-14]])
    for h in (0.0, 1e-7, 0.3, 5.5, 1e4):
        noise = dp.OffsetGaussian(h * 3.0, 3.0)
        log_survival = np.asarray(noise.log_survival(-noise.quantile(u)))
        np.testing.assert_allclose(log_survival, np.log(u), rtol=1e-13)
    near = dp.OffsetGaussian(2.0, 1.0).quantile(0.5 - 1e-12)
    density = float(jnp.exp(dp.OffsetGaussian(2.0, 1.0).log_density(0.0)))
    np.testing.assert_allclose(near, -(0.5 - (0.5 - 1e-12)) / density, rtol=1e-11)


@pytest.mark.parametrize("power", [-0.9, 0.0, 0.5, 3.0, 20.0, 90.0])
def test_moments_at_any_power(power):
    for h in (0.0, 1e-3, 0.8, 7.0, 200.0):
        x = mp.mpf(h)

        def integral(p, x=x):
            # A parabolic cylinder function, by Tricomi's U.
            return (
                mp.gamma(p + 1)
                * mp.mpf(2) ** (-(p + 1) / 2)
                * mp.hyperu((p + 1) / 2, mp.mpf(1) / 2, x * x / 2)
            )

        truth = integral(mp.mpf(power)) / integral(mp.mpf(0))
        value = float(dp.OffsetGaussian(h, 1.0).absolute_moment(power))
        assert abs(oracle.relative_error(value, truth)) < 2e-13, (h, power)


@pytest.mark.parametrize("h", [0.1, 1.0, 3.0])
def test_small_shifts_and_orders(h):
    for shift, z in itertools.product((1e-7, 1e-2, 1.5), (2.0**-20, 0.3, 8.0)):
        digits, excess = int(200 + ((2 * z + 1) * h) ** 2 * 0.3), mp.mpf(1.0 + z) - 1
        truth = offset_gaussian_cumulant(h, shift, excess, digits).real / excess
        value = float(dp.OffsetGaussian(h, 1.0).renyi(shift, 1.0 + z))
        assert abs(oracle.relative_error(value, truth)) < 1e-13, (h, shift, z)


@pytest.mark.parametrize(("h", "shift", "z"), [(0.3, 0.2, 1e4), (20.0, 0.5, 300.0)])
def test_high_orders(h, shift, z):
    truth = offset_gaussian_cumulant(h, shift, z, 400).real / z
    value = float(dp.OffsetGaussian(h, 1.0).renyi(shift, 1.0 + z))
    assert abs(oracle.relative_error(value, truth)) < 1e-13


def test_zcdp_is_tight():
    for h, shift in ((1.0, 0.5), (0.01, 1.0), (3.0, 0.1), (30.0, 0.01), (1.0, 40.0)):
        noise = dp.OffsetGaussian(h, 1.0)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 6, 600)
        excess = np.asarray(noise.renyi(shift, order)) - rho * order
        assert xi >= excess.max()
        assert xi <= h * shift * (1 + 1e-14)
        assert xi <= excess.max() * 1.01
        assert 0 <= rho * 2 / shift**2 - 1 < 1e-14


def test_bad_input():
    traced = jax.jit(lambda offset: dp.OffsetGaussian(offset, 1.0).delta(1.0, 1.0))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"offset must lie in \[0, "):
            dp.OffsetGaussian(bad, 1.0)
        assert np.isnan(traced(bad))
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=r"scale must lie in \(0, inf\]"):
            dp.OffsetGaussian(1.0, bad)
    leaves = jax.tree.map(
        lambda _: jnp.array(jnp.nan, dtype=jnp.float64), dp.OffsetGaussian(1.0, 1.0)
    )
    for value in (
        *leaves.zcdp(1.0),
        *leaves.structure(1.0).singularities.atoms,
        leaves.pure_epsilon(1.0),
        leaves.sub_gaussian_proxy(),
        leaves.renyi(1.0, 2.0),
        leaves.variance(),
        leaves.quantile(0.3),
        leaves.log_survival(0.3),
        leaves.fisher_information(),
    ):
        assert np.isnan(value)
    assert np.isnan(dp.OffsetGaussian(1e200, 1.0).delta(1.0, 1.0))
    assert dp.OffsetGaussian(1.0, 1.0).renyi(np.inf, 2.0) == np.inf
