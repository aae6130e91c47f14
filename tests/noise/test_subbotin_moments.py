"""The generating function of the Subbotin's loss against quadrature at many digits."""

import math

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest

import jaxdp as dp


def cumulant(shift: float, z: complex, power: float) -> mp.mpc:
    """log M by quadrature around the tilted mode, at t > 0 for Re z > 0."""
    m, p, w = mp.mpf(shift), mp.mpf(power), mp.mpmathify(z)
    real = mp.re(w)

    def exponent(t, power):
        return power * (abs(t + m) ** p - abs(t) ** p) / p - abs(t) ** p / p

    mode = m / mp.expm1(mp.log1p(1 / real) / (p - 1))
    top = exponent(mode, real)
    width = mp.mpf(1)
    while top - exponent(mode + width, real) > 10:
        width /= 2
    while top - exponent(mode + width, real) < 5:
        width *= 2
    ends = [mode + width * k for k in (-40, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16)]
    cuts = [
        mp.mpf(0),
        -m,
        -m / 2,
        -m - 2,
        -m - 12,
        -m - 50,
        -m - 90,
        *(m * mp.mpf(10) ** k for k in (-1, 0, 1)),
    ]
    points = sorted({t for t in (*ends, *cuts) if -m - 90 <= t <= mode + 16 * width})
    mass = 2 * p ** (1 / p - 1) * mp.gamma(1 / p)
    return mp.log(mp.quad(lambda t: mp.exp(exponent(t, w) - top), points) / mass) + top


def test_generating_function():
    with mp.workdps(34):
        for power, shift, z in (
            (1.01, 0.3, 2.0),
            (1.5, 1e-3, 0.01),
            (1.5, 3.0, 700.0),
            (2.5, 40.0, 1e-3),
            (3.0, 0.2, 1e4),
            (8.0, 1.1, 0.7),
            (20.0, 0.4, 0.4),
            (20.0, 2.0, 55.0),
        ):
            value = float(dp.Subbotin(1.0, power).cgf(shift, z))
            truth = mp.re(cumulant(shift, z, power))
            assert abs(oracle.relative_error(value, truth)) < 1e-13, (power, shift, z)


def test_generating_function_is_small_with_the_shift():
    """K / (z (z + 1)) -> shift^2 Fisher information / 2."""
    for power in (1.5, 2.5, 4.0):
        noise = dp.Subbotin(1.0, power)
        z = jnp.array([1e-6, 1.0, 100.0])
        scaled = noise.cgf(1e-7, z) / (z * (z + 1.0)) / 1e-14
        np.testing.assert_allclose(scaled, 0.5 * noise.fisher_information(), rtol=3e-9)


@pytest.mark.long
def test_generating_function_at_powers_one_and_two():
    z = jnp.array([0.3, 1.0 + 2.0j, -0.7 + 0.1j, 40.0])
    np.testing.assert_allclose(
        dp.Subbotin(0.7, 1.0).cgf(1.1, z), dp.Laplace(0.7).cgf(1.1, z), rtol=1e-14
    )
    np.testing.assert_allclose(
        dp.Subbotin(0.7, 2.0).cgf(1.1, z), dp.Gaussian(0.7).cgf(1.1, z), rtol=1e-14
    )
    gap = dp.Subbotin(0.7, 2.0 + 1e-9).cgf(1.1, z) - dp.Gaussian(0.7).cgf(1.1, z)
    assert np.all(abs(np.expm1(gap)) < 1e-4)
    for power in (1.0 + 1e-9, 1.0 + 1e-4):
        gap = dp.Subbotin(0.7, power).cgf(1.1, z[:3]) - dp.Laplace(0.7).cgf(1.1, z[:3])
        assert np.all(abs(np.expm1(gap)) < 100 * (power - 1.0))


def moment_on_the_line(shift: float, z: complex, power: float, top: float) -> complex:
    """M(z) by 24 points on every panel of at most 6 radians, in extended precision."""
    t = np.concatenate([np.logspace(-14, 2, 500), [0.0]])
    cuts = np.unique(np.concatenate([t, -t, -shift - t, -shift + t]))

    def parts(t):
        cost = abs(t) ** np.longdouble(power) / np.longdouble(power)
        rise = abs(t + np.longdouble(shift)) ** np.longdouble(power) / np.longdouble(power)
        return cost, rise - cost

    cost, loss = parts(cuts.astype(np.longdouble))
    used = np.flatnonzero(z.real * loss - cost > top - 60)
    cuts, loss = (x[used[0] - 1 : used[-1] + 2] for x in (cuts, loss))
    counts = 1 + (abs(z.imag * np.diff(loss)) / 6).astype(int)
    ends = zip(cuts[:-1], cuts[1:], counts, strict=True)
    cuts = np.concatenate([*(np.linspace(a, b, n, endpoint=False) for a, b, n in ends), cuts[-1:]])
    x, weights = np.polynomial.legendre.leggauss(24)
    low, half = cuts[:-1, None], np.diff(cuts.astype(np.longdouble))[:, None] / 2
    cost, loss = parts(low + half * (1 + x))
    value = half * weights * np.exp(z.real * loss - cost - top)
    phase = z.imag * loss
    mass = 2 * power ** (1 / power - 1) * math.gamma(1 / power)
    return complex(np.sum(value * np.cos(phase)), np.sum(value * np.sin(phase))) / mass


@pytest.mark.long
def test_generating_function_far_from_the_real_axis():
    """The error of M(z) / M(Re z): heights of about 20 to 3,000 over the loss's deviation."""
    rows = []
    for power in (1.05, 1.5, 2.2, 4.0, 8.0):
        for shift, tilt in ((0.05, 3.0), (0.3, 0.2), (0.6, 0.1)):
            deviation = shift * float(dp.Subbotin(1.0, power).fisher_information()) ** 0.5
            rows += [(power, shift, tilt + 1j * n / deviation) for n in (20.0, 150.0, 3000.0)]
    power, shift, z = (np.array(x) for x in zip(*rows, strict=True))
    noise = dp.Subbotin(1.0, power)
    top = np.asarray(noise.cgf(shift, np.real(z)))
    value = np.exp(np.asarray(noise.cgf(shift, z)) - top)
    for row, v, t in zip(rows, value, top, strict=True):
        truth = moment_on_the_line(row[1], row[2], row[0], float(t))
        assert abs(v - truth) < 2e-12, (row, abs(truth))


def test_generating_function_that_cannot_be_resolved_is_no_number():
    assert np.isnan(dp.Subbotin(1.0, 4.0).cgf(3.0, -0.3 + 1e4j))
