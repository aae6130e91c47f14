"""The flipped Huber's law: published values, its limits, its moments, misprints, bad input."""

import mpmath as mp
import numpy as np
import oracle
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


def test_huber_density_as_printed_is_not_continuous():
    """Huber's tail is exp(-alpha (|t| - alpha / 2)); ours flips it, and is continuous."""
    alpha = 1.3
    inside = np.exp(-(alpha**2) / 2)
    np.testing.assert_allclose(inside, np.exp(-alpha * (alpha - alpha / 2)), rtol=1e-15)
    noise = dp.FlippedHuber(alpha, 0.8)
    left, right = np.asarray(noise.log_density(np.array([alpha, np.nextafter(alpha, 2)])))
    np.testing.assert_allclose(left, right, rtol=1e-15)
