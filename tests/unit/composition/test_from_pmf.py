"""Mass that a pair of finite laws lacks lies at infinity, in every one of n releases."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.dominating_pair.finite import finite_pair

NUMBERS = (1, 7, 1000, 10**6)
# A few ulps of 1, what was dropped once, and more.
LACKS = (1.2e-16, 2.2e-16, 4e-16, 8.9e-16, 1.1e-15, 3e-13, 1e-9)


def law(lacks_p, lacks_q=0.0):
    """Losses log(1/3) and log(3), but for what is missing."""
    p, q = [0.25, 0.75 - lacks_p], [0.75, 0.25 - lacks_q]
    return [math.log(a / b) for a, b in zip(p, q, strict=True)], p, q


def log_of_one(lacking, number):
    """log of the probability that one of so many losses is infinite, to 40 digits."""
    with mp.workdps(40):
        share = mp.mpf(lacking.numerator) / lacking.denominator
        return mp.log(-mp.expm1(number * mp.log1p(-share)))


@pytest.mark.parametrize("lacks", LACKS)
def test_missing_mass_counts_in_every_release(lacks):
    losses, p, q = law(lacks)
    lacking = 1 - sum(map(Fraction, p))
    assert lacking > 0
    each = dp.PrivacyLoss.from_pmf(losses, p, q)
    for number in NUMBERS:
        # Beyond all finite losses only infinite ones are left.
        found = float((number * each).log_delta(1.2 * number))
        truth = log_of_one(lacking, number)
        assert truth <= mp.mpf(found) <= truth + 1e-13 * (1 + abs(truth))


def test_what_rounding_explains_is_none():
    """Masses of a law that is pure, as doubles that miss 1 by an ulp of the smallest."""
    third = float(np.float64(1) / 3)
    for p in ([third] * 3, [0.1] * 10, [0.25, 0.75]):
        losses = np.zeros(len(p))
        assert abs(1 - sum(map(Fraction, p))) <= Fraction(2) ** -53
        assert float((1000 * dp.PrivacyLoss.from_pmf(losses, p, p)).log_delta(1.0)) == -math.inf


def test_the_exchanged_pair_has_what_q_lacks():
    losses, p, q = law(0.0, 8.9e-16)
    each = dp.PrivacyLoss.from_pmf(losses, p, q)
    lacking = 1 - sum(map(Fraction, q))
    assert float((1000 * each).log_delta(1200.0)) == -math.inf
    exchanged = dp.privacy_loss(finite_pair(losses, p, q).reversed())
    for number in NUMBERS:
        found = mp.mpf(float((number * exchanged).log_delta(1.2 * number)))
        truth = log_of_one(lacking, number)
        assert truth <= found <= truth + 1e-13 * (1 + abs(truth))


def test_bounds_hold_on_both_sides():
    losses, p, q = law(8.9e-16)
    each = dp.PrivacyLoss.from_pmf(losses, p, q)
    lacking = 1 - sum(map(Fraction, p))
    for number in (2, 1000):
        lower, upper = (float(x) for x in (number * each).bounds(1.2 * number))
        truth = float(mp.exp(log_of_one(lacking, number)))
        assert truth * (1 - 1e-12) <= lower <= truth <= upper <= truth * (1 + 1e-12)
