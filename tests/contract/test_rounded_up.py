"""What a guarantee states is no less than its formula in exact rationals."""

from fractions import Fraction

import numpy as np
import pytest

import jaxdp as dp

COUNT = 60
DRAWN = np.random.default_rng(5)
VALUES = DRAWN.uniform(0.01, 3.0, (3, COUNT))
POWERS = 2.0 ** DRAWN.integers(-6, 7, (2, COUNT))
NUMBERS = DRAWN.integers(1, 60, COUNT)


def fractions(values):
    return [Fraction(float(x)) for x in values]


def assert_rounded_up(found, exact, power=1, ulps=8):
    """No result lies below the exact value, none far above, and what is a double stays one."""
    for each, true in zip(fractions(found), exact, strict=True):
        assert true <= each**power <= true * (1 + Fraction(ulps * power, 2**52))


@pytest.mark.parametrize("scales", [POWERS, VALUES[1:], (POWERS[0], VALUES[1])])
def test_above_threshold(scales):
    for answers in (1, 3, 8, 21):
        found = dp.above_threshold(
            VALUES[0], threshold_scale=scales[0], query_scale=scales[1], answers=answers
        ).epsilon_bound
        shift, threshold, query = map(fractions, (VALUES[0], *scales))
        parts = zip(shift, threshold, query, strict=True)
        assert_rounded_up(found, [d / b + 2 * answers * d / q for d, b, q in parts])


def test_exact_values_stay_as_they_are():
    known = {"threshold_scale": 4.0, "query_scale": 8.0}
    assert float(dp.above_threshold(1.0, **known).epsilon_bound) == 0.5
    assert float(dp.above_threshold(3.0, **known, answers=5).epsilon_bound) == 4.5
    assert float(dp.above_threshold(0.0, **known).epsilon_bound) == 0.0
    assert (
        float(dp.above_threshold(1e-300, threshold_scale=1e10, query_scale=8.0).epsilon_bound) > 0
    )
    assert float(dp.Mechanism(dp.Gaussian(2.0), 3.0).zcdp().rho) == 1.125


def test_rho_of_gaussians():
    """Of one release, and of groups, whose sensitivity is a product."""
    shift, scale = map(fractions, VALUES[:2])
    found = dp.Mechanism(dp.Gaussian(VALUES[1]), VALUES[0]).zcdp().rho
    assert_rounded_up(found, [(d / b) ** 2 / 2 for d, b in zip(shift, scale, strict=True)])
    for size in (3, 7):
        known = {"relation": "replace_one", "group_size": size}
        whole = dp.Mechanism(dp.Gaussian(VALUES[1]), VALUES[0], **known)
        exact = [(2 * size * d / b) ** 2 / 2 for d, b in zip(shift, scale, strict=True)]
        assert_rounded_up(whole.zcdp().rho, exact)
        assert_rounded_up(whole.sensitivity, [2 * size * d for d in shift])


def test_mu_of_trees():
    for steps in (1, 2, 5, 100):
        depth = (steps - 1).bit_length() + 1
        exact = [depth / x**2 for x in fractions(VALUES[0])]
        assert_rounded_up(dp.GDP.of_tree(steps, VALUES[0]).mu, exact, power=2)


def test_sums_and_multiples_of_guarantees():
    """Epsilon, delta, mu and rho add up, or their squares do."""
    a, b = map(fractions, VALUES[:2])
    small, other = VALUES[0] / 100, VALUES[1] / 100
    pairs, times = list(zip(a, b, strict=True)), [int(k) for k in NUMBERS]
    pure, gauss = dp.PureDP(VALUES[0]), dp.GDP(VALUES[0])
    assert_rounded_up((pure + dp.PureDP(VALUES[1])).epsilon_bound, [x + y for x, y in pairs])
    assert_rounded_up(
        (NUMBERS * pure).epsilon_bound, [k * x for k, x in zip(times, a, strict=True)]
    )
    assert_rounded_up((gauss + dp.GDP(VALUES[1])).mu, [x**2 + y**2 for x, y in pairs], 2)
    exact = [k * x**2 for k, x in zip(times, a, strict=True)]
    assert_rounded_up((NUMBERS * gauss).mu, exact, 2)
    assert_rounded_up(
        (NUMBERS * dp.ZCDP(0.0, VALUES[0])).rho, [k * x for k, x in zip(times, a, strict=True)]
    )
    both = (dp.ApproxDP(1.0, small) + dp.ApproxDP(1.0, other)).delta_bound
    exact = [1 - (1 - x) * (1 - y) for x, y in zip(fractions(small), fractions(other), strict=True)]
    assert_rounded_up(both, exact)
    many = (NUMBERS * dp.ApproxDP(1.0, small)).delta_bound
    exact = [1 - (1 - x) ** k for k, x in zip(times, fractions(small), strict=True)]
    assert_rounded_up(many, exact, ulps=32)
