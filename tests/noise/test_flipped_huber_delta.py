"""The flipped Huber's delta: published values, every regime at its boundaries, misprints."""

import jax
import mpmath as mp
import numpy as np
import oracle
import pytest
from closed_forms import (
    flipped_huber_log_delta,
)
from references import expected, records

import jaxdp as dp


def check(noise, shift, epsilon):
    """One value against the closed form."""
    alpha, gamma = float(noise.alpha), float(noise.gamma)
    truth, regime = flipped_huber_log_delta(alpha, gamma, shift, epsilon)
    value = float(noise.log_delta(shift, epsilon))
    oracle.check_upper_bound(value, truth, (alpha, gamma, shift, epsilon, regime))


def test_the_design_on_the_plateau():
    """alpha shift = gamma^2 epsilon: the best variance for the budget, and the budget is met.

    An ulp past it delta is larger by a part in 1e7: half of the mass lies on the plateau.
    """
    roots = {
        (row["inputs"]["eps"], row["inputs"]["delta"]): expected(row)
        for row in records("flipped_huber", "plateau_a")
    }
    for (epsilon, delta), root in roots.items():
        a = float(root)
        noise = dp.FlippedHuber(a * a / epsilon * (1 - 1e-15), a / epsilon)
        log_delta = float(noise.log_delta(1.0, epsilon))
        assert abs(log_delta / np.log(float(delta)) - 1) < 1e-12
        for ulps in (-4, -1, 0, 1, 4):
            check(
                dp.FlippedHuber(a * a / epsilon * (1 + ulps * 2.0**-52), a / epsilon), 1.0, epsilon
            )
    for row in records("flipped_huber", "plateau_var"):
        key = row["inputs"]["eps"], row["inputs"]["delta"]
        if key in roots:
            a = float(roots[key])
            value = float(dp.FlippedHuber(a * a / key[0], a / key[0]).variance())
            assert abs(oracle.relative_error(value, expected(row))) < 1e-13
    found = records("flipped_huber", "plateau_ln_delta")
    assert all(
        abs(expected(row) / mp.log(mp.mpf(row["inputs"]["delta"])) - 1) < 1e-15 for row in found
    )


@pytest.mark.long
def test_derivatives_in_alpha():
    def log_delta(a, e):
        return dp.FlippedHuber(a, 1.0).log_delta(1.0, e)

    slope = jax.jit(jax.grad(log_delta))
    curvature = jax.jit(jax.grad(slope))
    h = 1e-5
    for a, epsilon in ((2.0, 0.3), (2.0, 2.2), (0.7, 0.4), (0.7, 1.1), (0.3, 0.1), (0.3, 2.0)):
        up, down = log_delta(a + h, epsilon), log_delta(a - h, epsilon)
        np.testing.assert_allclose(slope(a, epsilon), (up - down) / (2 * h), rtol=1e-8)
        numeric = (slope(a + h, epsilon) - slope(a - h, epsilon)) / (2 * h)
        np.testing.assert_allclose(curvature(a, epsilon), numeric, rtol=1e-8)
    assert slope(0.0, 1.0) == 0
    assert np.isfinite(curvature(0.0, 1.0))


def test_the_printed_fourth_regime_loses_every_digit():
    """delta = 1/2 - c (1 - exp(-a u)) - ..., as printed: nothing is left of it here."""
    a, shift, epsilon = 40.0, 0.025, 1.0001

    def printed(a, shift, epsilon):
        kappa = 2 * (1 - mp.exp(-a * a)) / a
        kappa += mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) * mp.erfc(a / mp.sqrt(2))
        u = a - shift + mp.sqrt(2 * (epsilon - a * shift))
        weight = mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) / kappa
        tail = weight * mp.erfc((u + shift) / mp.sqrt(2)) / 2
        return mp.mpf(1) / 2 - (1 - mp.exp(-a * u)) / (a * kappa) - mp.exp(epsilon) * tail

    arguments = [mp.mpf(v) for v in (a, shift, epsilon)]
    with mp.workdps(16):
        assert printed(*arguments) <= 0
    with mp.workdps(122):
        assert printed(*arguments) < 0
    noise = dp.FlippedHuber(a, 1.0)
    assert flipped_huber_log_delta(a, 1.0, shift, epsilon)[1] == 4
    check(noise, shift, epsilon)


def test_the_printed_normaliser_overflows():
    """omega = kappa exp(alpha^2 / 2 gamma^2) is beyond every double for alpha > 37.7 gamma."""
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(38.0**2 / 2))
    noise = dp.FlippedHuber(38.0, 1.0)
    check(noise, 1.0, 38.0)
    check(noise, 0.01, 3.0)
    assert np.isfinite(noise.log_density(100.0))
    np.testing.assert_allclose(noise.variance(), 2 / 38.0**2, rtol=1e-13)
