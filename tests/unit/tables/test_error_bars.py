"""Half widths of sums of noises hold at their level, and not with much room."""

import math

import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.error_bars import Term, _end, half_width

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


def draws(noise, is_whole, shape, seed=0):
    values = np.asarray(noise.quantile(np.random.default_rng(seed).random(shape)))
    return np.round(values) if is_whole else values


def terms_of(kind, parts):
    cls, is_whole = NOISES[kind]
    return [Term(cls(scale), is_whole, weight, count) for scale, weight, count in parts]


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize(
    "parts",
    [
        [(3.0, 1.0, 12)],
        [(0.6, 1.0, 4)],
        [(3.0, 0.7, 2), (3.0, 0.1, 9), (8.0, 0.31, 1)],
        [(5e5, 1.0, 7)],
    ],
)
def test_the_sum_is_within_its_half_width(kind, parts):
    terms = terms_of(kind, parts)
    total = sum(
        t.weight * draws(t.noise, t.is_whole, (t.count, DRAWS), i).sum(0)
        for i, t in enumerate(terms)
    )
    for miss in (0.5, 0.05):
        width = half_width(terms, miss)
        missed = np.mean(np.abs(total) > width)
        assert missed <= miss + 4 * math.sqrt(miss / DRAWS), (kind, miss)
        # Whole numbers have steps; else the half width is nearly the quantile.
        nearest = width * 0.985 - (parts[0][1] if terms[0].is_whole else 0.0)
        assert np.mean(np.abs(total) > nearest) >= miss - 4 * math.sqrt(miss / DRAWS), (kind, miss)
        assert width <= _end(terms, miss) + 1e-3 * parts[0][0]


def test_gaussians_add_variances():
    terms = [Term(dp.Gaussian(2.0), False, 1.5, 4), Term(dp.Gaussian(1.0), False, -0.0, 3)]
    assert half_width(terms, 0.05) == pytest.approx(6.0 * 1.959964, rel=1e-5)


def test_two_whole_noises_have_the_exact_law():
    """P[|X + Y| <= h], summed by hand."""
    noise = dp.DiscreteLaplace(1.5)
    law = {k: math.exp(float(noise.log_density(float(k)))) for k in range(-80, 81)}
    for miss in (0.3, 0.05, 1e-3, 1e-6):
        inside = dict.fromkeys(range(60), 0.0)
        for x, p in law.items():
            for y, q in law.items():
                for h in range(abs(x + y), 60):
                    inside[h] += p * q
        exact = min(h for h, p in inside.items() if p >= 1.0 - miss)
        assert exact <= half_width([Term(noise, True, 1.0, 2)], miss) <= exact + 1


def test_small_and_large_problems_end():
    for count, miss in ((10**6, 0.05), (3, 1e-11), (10**5, 1e-9)):
        for kind in ("laplace", "discrete laplace", "rounded"):
            terms = terms_of(kind, [(SCALE, 1.0, count)])
            deviation = math.sqrt(sum(t.variance for t in terms))
            normal = -float(dp.Gaussian(1.0).quantile(0.5 * miss))
            assert 0.999 * normal <= half_width(terms, miss) / deviation < 3.0 * normal
