"""The flipped Huber's law: published values, its limits, its moments, misprints, bad input."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from references import expected, records

import jaxdp as dp


def noise_of(row):
    return dp.FlippedHuber(row["params"]["alpha"], row["params"]["gamma"])


def test_reference_normaliser():
    for row in records("flipped_huber", "omega"):
        noise = noise_of(row)
        a = mp.mpf(float(noise.alpha)) / mp.mpf(float(noise.gamma))
        truth = a * a / 2 - mp.log(expected(row)) - mp.log(mp.mpf(float(noise.gamma)))
        assert abs(oracle.relative_error(float(noise.log_density(0.0)), truth)) < 1e-14


def test_reference_quantile():
    for row in records("flipped_huber", "isf"):
        p = float(row["inputs"]["p"])
        if p == 0:  # 1e-1000 is no double
            continue
        value = -float(noise_of(row).quantile(p))
        # The decimal rates are not doubles: near 1/2 that moves the result.
        tolerance = 1e-12 if p == 0.5001 else 1e-13
        assert abs(oracle.relative_error(value, expected(row))) < tolerance, row["id"]
    for row in records("flipped_huber", "ln_tradeoff"):
        noise, inputs = noise_of(row), row["inputs"]
        threshold = -noise.quantile(float(inputs["alpha_err"])) - inputs["Delta"]
        value = float(noise.log_survival(-threshold))
        assert abs(oracle.relative_error(value, expected(row))) < 1e-10, row["id"]


def test_fisher_information_times_variance():
    """From 1, the Gaussian's, to 2, the Laplace's."""
    noise = dp.FlippedHuber(np.logspace(-4, 4, 50), 1.0)
    product = np.asarray(noise.variance() * noise.fisher_information())
    assert np.all(np.diff(product) > -1e-14)
    np.testing.assert_allclose(product[[0, -1]], [1, 2], rtol=1e-7)
    one = dp.FlippedHuber(1.0, 1.0)
    assert abs(one.variance() * one.fisher_information() - 1.2526) < 5e-5


def test_quantile_inverts_survival():
    rng = np.random.default_rng(5)
    u = np.concatenate([10 ** rng.uniform(-300, -0.31, 200), [0.5, 0.5 - 1e-9, 0.5 + 1e-14]])
    for a in (1e-7, 0.3, 2.0, 5.5, 30.0, 1e4):
        noise = dp.FlippedHuber(a * 3.0, 3.0)
        log_survival = np.asarray(noise.log_survival(-noise.quantile(u)))
        np.testing.assert_allclose(log_survival, np.log(u), rtol=1e-13)


@pytest.mark.parametrize("power", [-0.9, 0.0, 0.5, 3.0, 20.0])
def test_moments_at_any_power(power):
    for a in (0.0, 1e-3, 0.8, 1.2, 7.0, 200.0):
        alpha = mp.mpf(a)
        n = mp.mpf(power) + 1
        kappa = 2 * mp.sqrt(2 * mp.pi) * mp.exp(-(alpha**2) / 2) * mp.erfc(alpha / mp.sqrt(2)) / 2
        tail = mp.exp(-(alpha**2) / 2) * 2 ** (n / 2 - 1) * mp.gammainc(n / 2, alpha**2 / 2)
        centre = mp.mpf(0)
        if a:
            kappa += -2 * mp.expm1(-alpha * alpha) / alpha
            centre = mp.gammainc(n, 0, alpha**2) / alpha**n
        value = float(dp.FlippedHuber(a, 1.0).absolute_moment(power))
        assert abs(oracle.relative_error(value, 2 * (centre + tail) / kappa)) < 2e-13, (a, power)


def test_huber_density_as_printed_is_not_continuous():
    """Huber's tail is exp(-alpha (|t| - alpha / 2)); ours flips it, and is continuous."""
    alpha = 1.3
    inside = np.exp(-(alpha**2) / 2)
    np.testing.assert_allclose(inside, np.exp(-alpha * (alpha - alpha / 2)), rtol=1e-15)
    noise = dp.FlippedHuber(alpha, 0.8)
    left, right = np.asarray(noise.log_density(np.array([alpha, np.nextafter(alpha, 2)])))
    np.testing.assert_allclose(left, right, rtol=1e-15)


def test_bad_input():
    traced = jax.jit(lambda alpha: dp.FlippedHuber(alpha, 1.0).delta(1.0, 1.0))
    for bad in (-1.0, np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match=r"alpha must lie in \[0, "):
            dp.FlippedHuber(bad, 1.0)
        assert np.isnan(traced(bad))
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=r"gamma must lie in \(0, inf\]"):
            dp.FlippedHuber(1.0, bad)
    leaves = jax.tree.map(
        lambda _: jnp.array(jnp.nan, dtype=jnp.float64), dp.FlippedHuber(1.0, 1.0)
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
    assert np.isnan(dp.FlippedHuber(1e200, 1.0).delta(1.0, 1.0))
    assert dp.FlippedHuber(1.0, 1.0).renyi(np.inf, 2.0) == np.inf
