"""The slope of Mills' ratio against mpmath."""

import jax
import mpmath as mp
import numpy as np

from jaxdp._numeric.mills import mills_slope


def test_mills_slope():
    rng = np.random.default_rng(5)
    t = 10 ** rng.uniform(-12, 6, 200)
    ratio, slope = (np.asarray(v) for v in jax.jit(mills_slope)(t))
    with mp.workdps(60):
        for point, r, s in zip(t, ratio, slope, strict=True):
            x = mp.mpf(float(point))
            truth = mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))
            assert abs(mp.mpf(float(r)) / truth - 1) < 8e-15
            assert abs(mp.mpf(float(s)) / (1 - x * truth) - 1) < 8e-15
