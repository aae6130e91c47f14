"""Losses from masses or their logarithms, as small as any: what is missing is infinite."""

import math
from fractions import Fraction

import jax
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp


def coins(number):
    return [math.comb(number, k) for k in range(number + 1)]


def logs_of(weights):
    logs = np.array([math.log(x) - math.log(sum(weights)) for x in weights])
    return logs - np.log(np.sum(np.exp(logs)))


def moved(weights, relation="add_remove"):
    """The loss of these chances against the same, one place apart."""
    logs = logs_of(weights)
    none = [-np.inf]
    return dp.PrivacyLoss.from_log_pmf(np.append(logs, none), np.append(none, logs), relation)


def delta(weights, epsilon):
    """The worse direction of a shift by 1, to 30 digits."""
    p, q = [*weights, 0], [0, *weights]
    with mp.workdps(30):
        ratio = mp.exp(mp.mpf(epsilon))
        sides = ((p, q), (q, p))
        return max(
            sum(max(a - ratio * b, 0) for a, b in zip(x, y, strict=True)) for x, y in sides
        ) / sum(weights)


@pytest.mark.parametrize("number", [401, 2000])
def test_coins(number):
    """Masses down to 2^-2000, by logarithms that are 1e-11 off."""
    weights = coins(number)
    for epsilon in (0.0, 0.1, 0.3):
        truth = delta(weights, epsilon)
        found = mp.mpf(float(moved(weights).delta(epsilon)))
        assert truth * (1 - 1e-11) <= found <= truth * (1 + mp.mpf(10) ** -9)
    if number == 2000:
        assert float(moved(weights).epsilon(1e-12)) == pytest.approx(0.2842005, abs=1e-6)


def test_the_middle_of_an_even_number_of_weights():
    """Values from -n to n - 1."""
    noise = dp.DiscreteHistogram([1, 2, 3, 4])
    assert noise.support == 2
    found = np.exp(np.asarray(noise.log_density(np.arange(-2.0, 3.0))))
    np.testing.assert_allclose(found, [0.1, 0.2, 0.3, 0.4, 0.0], rtol=1e-15)
    drawn = np.asarray(noise.sample(jax.random.key(1), (200,)))
    assert set(drawn.tolist()) == {-2.0, -1.0, 0.0, 1.0}
    skewed = [1, 2, 3, 4]
    for epsilon in (0.0, 0.5, 1.0):
        truth = delta(skewed, epsilon)
        found = float(dp.Mechanism(noise, 1.0).delta(epsilon))
        assert truth <= found <= truth * (1 + mp.mpf(10) ** -9)
        assert float(moved(skewed).delta(epsilon)) == pytest.approx(found, rel=1e-12)


def test_what_rounding_explains_is_none():
    """Masses of a law that is pure, as doubles that miss 1 by an ulp of the smallest."""
    third = float(np.float64(1) / 3)
    for p in ([third] * 3, [0.1] * 10, [0.25, 0.75]):
        assert abs(1 - sum(map(Fraction, p))) <= Fraction(2) ** -53
        assert (1000 * dp.PrivacyLoss.from_pmf(np.zeros(len(p)), p, p)).log_delta(1.0) == -math.inf
    for count in (3, 10, 49):
        logs = np.full(count, -math.log(count))
        loss = dp.PrivacyLoss.from_log_pmf(logs, logs)
        assert float((1000 * loss).log_delta(1.0)) == -math.inf
        assert dp.PrivacyLoss.from_json(loss.to_json()).to_json() == loss.to_json()


# A few ulps of 1, what was dropped once, and more.
LACKS = (1.2e-16, 2.2e-16, 4e-16, 8.9e-16, 1.1e-15, 3e-13, 1e-9, 1e-3, 0.5)


@pytest.mark.parametrize("lacks", LACKS)
def test_missing_mass_counts_in_every_release(lacks):
    """In the direction whose first law lacks it; beyond all finite losses nothing else is left."""
    p, q = [0.25, 0.75 - lacks], [0.75, 0.25]
    losses = np.array([math.log(a / b) for a, b in zip(p, q, strict=True)])
    lacking = 1 - sum(map(Fraction, p))
    assert lacking > 0
    full = dp.PrivacyLoss.from_pmf(losses, p, q, "add")
    assert float((1000 * full).log_delta(1200.0)) == -math.inf
    ways = [("remove", losses, p, q), ("add_remove", losses, p, q), ("add", -losses, q, p)]
    for number in (1, 7, 1000, 10**6):
        with mp.workdps(40):
            share = mp.mpf(lacking.numerator) / lacking.denominator
            truth = mp.log(-mp.expm1(number * mp.log1p(-share)))
        for relation, loss, first, second in ways:
            each = dp.PrivacyLoss.from_pmf(loss, first, second, relation)
            found = float((number * each).log_delta(1.2 * number))
            assert truth <= mp.mpf(found) <= truth + 1e-13 * (1 + abs(truth)), relation
    if lacks > 1e-10:  # more than the logarithms' rounding
        for relation in ("remove", "add_remove"):
            delta = float(dp.PrivacyLoss.from_log_pmf(np.log(p), np.log(q), relation).delta(5.0))
            assert float(lacking) * (1 - 1e-15) <= delta <= float(lacking) * (1 + 1e-3)


def test_outcomes_of_one_side_are_infinite_losses():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.25, 0.75])
    with np.errstate(divide="ignore"):
        logs = np.log(p), np.log(q)
    for relation, truth in (("remove", 0.5), ("add", 0.75), ("add_remove", 0.75)):
        assert float(dp.PrivacyLoss.from_log_pmf(*logs, relation).delta(3.0)) == pytest.approx(
            truth
        )
    apart = dp.PrivacyLoss.from_log_pmf([0.0, -np.inf], [-np.inf, 0.0])
    assert float(apart.delta(50.0)) == 1.0


def test_masses_without_a_normal_number_raise_delta_alone():
    tiny = 1e-310
    p, q = np.array([0.5, 0.5, tiny]), np.array([0.25, 0.75, 2 * tiny])
    both = [(p, q), (q, p)]
    for first, second in both:
        loss = dp.PrivacyLoss.from_pmf(np.log(first) - np.log(second), first, second)
        truth = max(sum(max(a - b, 0.0) for a, b in zip(x, y, strict=True)) for x, y in both)
        assert truth <= float(loss.delta(0.0)) <= truth * (1 + 1e-12)
        assert 0.0 < float(loss.delta(5.0)) < 1e-300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.0, 0.0], [0.0, -1.0]), "add up to at most 1"),
        (([math.nan], [0.0]), "log_masses_p must lie in"),
        (([0.0], [0.0, -1.0]), "vectors of one length"),
        (([], []), "vectors of one length"),
        (([[0.0]], [[0.0]]), "vectors of one length"),
        (([math.inf], [0.0]), "log_masses_p must lie in"),
    ],
)
def test_bad_log_masses(arguments, words):
    with pytest.raises(ValueError, match=words):
        dp.PrivacyLoss.from_log_pmf(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.0], [0.5, 0.5], [0.5, 0.5]), "vectors of one length"),
        (([0.0], [1.5], [1.5]), "add up to at most 1"),
        (([0.0, 0.0], [1.0, 0.0], [0.5, 0.5]), r"got masses_p\[1\] = 0.0: .* from_log_pmf"),
        (([0.0, 0.0], [0.5, 0.5], [1.0, 0.0]), r"got masses_q\[1\] = 0.0: .* from_log_pmf"),
    ],
)
def test_bad_masses(arguments, words):
    with pytest.raises(ValueError, match=words):
        dp.PrivacyLoss.from_pmf(*arguments)
