"""Faddeeva's function against mpmath."""

import jax
import mpmath as mp
import numpy as np

from jaxdp._numeric.faddeeva import faddeeva


def test_faddeeva_function():
    rng = np.random.default_rng(5)
    z = np.concatenate(
        [
            rng.uniform(-7, 7, 60) + 1j * rng.uniform(0, 7, 60),
            rng.uniform(-8, 8, 60) + 1j * 10 ** rng.uniform(-20, 0, 60),
            rng.uniform(-8, 8, 40) + 0j,
            10 ** rng.uniform(-9, 12, 40) * np.exp(1j * rng.uniform(0, np.pi, 40)),
        ]
    )
    values = np.asarray(jax.jit(faddeeva)(z))
    with mp.workdps(40):
        for point, value in zip(z, values, strict=True):
            exact = mp.mpc(point)
            if abs(point) > 300:
                terms = (mp.fac2(2 * k - 1) / (2 * exact**2) ** k for k in range(12))
                truth = 1j / (mp.sqrt(mp.pi) * exact) * mp.fsum(terms)
            else:
                truth = mp.exp(-(exact**2)) * mp.erfc(-1j * exact)
            assert abs(value / truth - 1) < 2e-15, point
