"""Divergences of the Subbotin against quadrature at many digits."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle

import jaxdp as dp


def cumulant(shift: float, z: float, power: float) -> mp.mpf:
    """log M by quadrature around the tilted mode, at t > 0 for z > 0."""
    m, p, w = mp.mpf(shift), mp.mpf(power), mp.mpf(z)

    def exponent(t):
        return w * (abs(t + m) ** p - abs(t) ** p) / p - abs(t) ** p / p

    mode = m / mp.expm1(mp.log1p(1 / w) / (p - 1))
    top = exponent(mode)
    width = mp.mpf(1)
    while top - exponent(mode + width) > 10:
        width /= 2
    while top - exponent(mode + width) < 5:
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
    return mp.log(mp.quad(lambda t: mp.exp(exponent(t) - top), points) / mass) + top


def test_divergences():
    with mp.workdps(34):
        for power, shift, order in (
            (1.01, 0.3, 3.0),
            (1.5, 1e-3, 1.01),
            (1.5, 3.0, 701.0),
            (2.5, 40.0, 1.001),
            (3.0, 0.2, 1e4),
            (8.0, 1.1, 1.7),
            (20.0, 0.4, 1.4),
            (20.0, 2.0, 56.0),
        ):
            value = float(dp.Subbotin(1.0, power).renyi(shift, order))
            excess = mp.mpf(order) - 1
            truth = cumulant(shift, excess, power) / excess
            assert abs(oracle.relative_error(value, truth)) < 1e-13, (power, shift, order)


def test_divergences_of_large_powers_are_upper_bounds():
    with mp.workdps(34):
        for power, shift, order in ((60.0, 0.4, 1.4), (100.0, 0.3, 2.0), (100.0, 1.2, 5.0)):
            value = float(dp.Subbotin(1.0, power).renyi(shift, order))
            truth = cumulant(shift, mp.mpf(order) - 1, power) / (mp.mpf(order) - 1)
            assert 0 <= oracle.relative_error(value, truth) < 4e-10, (power, shift, order)


def test_divergence_is_small_with_the_shift():
    """Over the order it tends to shift^2 Fisher information / 2."""
    order = jnp.array([1.000001, 2.0, 101.0])
    for power in (1.5, 2.5, 4.0):
        noise = dp.Subbotin(1.0, power)
        scaled = noise.renyi(1e-7, order) / order / 1e-14
        np.testing.assert_allclose(scaled, 0.5 * noise.fisher_information(), rtol=3e-9)
