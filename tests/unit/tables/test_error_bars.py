"""Half widths of sums of noises hold at their level, and not with much room."""

import math

import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.error_bars import NoiseSum, _end, half_width

SCALE = 3.0
NOISES = {
    "gaussian": (dp.Gaussian, False),
    "rounded": (dp.Gaussian, True),
    "rounded laplace": (dp.Laplace, True),
    "laplace": (dp.Laplace, False),
    "discrete gaussian": (dp.DiscreteGaussian, True),
    "discrete laplace": (dp.DiscreteLaplace, True),
}
DRAWS = 20_000


def draws(noise, is_whole, shape):
    random = np.random.default_rng(0)
    if noise.on_integers and float(noise.scale) < 10.0:
        whole = np.arange(-300.0, 301.0)
        law = np.exp(np.asarray(noise.log_density(whole)))
        return random.choice(whole, shape, p=law / law.sum())
    values = np.asarray(noise.quantile(random.random(shape)))
    return np.round(values) if is_whole else values


def sum_of(kind, scale, number):
    cls, is_whole = NOISES[kind]
    return NoiseSum(cls(scale), is_whole, number)


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize(("scale", "number"), [(3.0, 12), (0.6, 4), (5e5, 7)])
def test_the_sum_is_within_its_half_width(kind, scale, number):
    total = sum_of(kind, scale, number)
    found = draws(total.noise, total.is_whole, (number, DRAWS)).sum(0)
    for miss in (0.5, 0.05):
        width = half_width(total, miss)
        missed = np.mean(np.abs(found) > width)
        assert missed <= miss + 4 * math.sqrt(miss / DRAWS), (kind, miss)
        # Whole numbers have steps; else the half width is nearly the quantile.
        nearest = width * 0.985 - total.is_whole
        assert np.mean(np.abs(found) > nearest) >= miss - 4 * math.sqrt(miss / DRAWS), (kind, miss)
        assert width <= _end(total, miss) + 1e-3 * scale


def test_two_whole_noises_have_the_exact_law():
    """P[|X + Y| <= h], summed by hand."""
    noise = dp.DiscreteLaplace(1.5)
    law = np.exp(np.asarray(noise.log_density(np.arange(-80.0, 81.0))))
    both = np.convolve(law, law)
    inside = np.array([both[160 - h : 161 + h].sum() for h in range(60)])
    for miss in (0.3, 0.05, 1e-3, 1e-6):
        exact = int(np.argmax(inside >= 1.0 - miss))
        assert exact <= half_width(NoiseSum(noise, True, 2), miss) <= exact + 1


def test_small_and_large_problems_end():
    for count, miss in ((10**6, 0.05), (3, 1e-11), (10**5, 1e-9)):
        for kind in ("laplace", "discrete laplace", "rounded"):
            total = sum_of(kind, SCALE, count)
            deviation = math.sqrt(total.variance)
            normal = -float(dp.Gaussian(1.0).quantile(0.5 * miss))
            assert 0.999 * normal <= half_width(total, miss) / deviation < 3.0 * normal
