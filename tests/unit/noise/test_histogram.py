"""Histogram noise beyond the contract: atoms, odd and uneven cells, the worst of all shifts."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import jaxdp as dp
from jaxdp.dominating_pair.finite import worst_of_shifts
from jaxdp.optimal.exact import exact_delta, exp_below, whole_weights

ODD = (1, 3, 0, 9, 30, 9, 0, 3, 1)
UNEVEN = (0, 5, 20, 3, 9, 2, 1, 0)


def truth(weights, atom, ratio, epsilon):
    """delta at one shift of `ratio` cells (signed), from the masses of overlapping pieces."""
    x, total = math.exp(epsilon), sum(weights) + atom
    cuts = sorted({Fraction(j) for j in range(len(weights) + 1)})
    cuts = sorted({*cuts, *(c + ratio for c in cuts)})

    def height(place):
        cell = math.floor(place)
        return weights[cell] if 0 <= cell < len(weights) else 0

    gaps = (
        (b - a) * max(height((a + b) / 2) - x * height((a + b) / 2 - ratio), 0)
        for a, b in itertools.pairwise(cuts)
    )
    return (float(sum(gaps)) + atom) / total


def worst_truth(weights, atom, ratio, epsilon):
    part = {Fraction(k) for k in range(1, math.floor(ratio) + 1)} | {Fraction(ratio)}
    values = (truth(weights, atom, s * r, epsilon) for r in part for s in (1, -1))
    return max(*values, -math.expm1(min(epsilon, 0.0)))


@pytest.mark.parametrize("weights", [ODD, UNEVEN], ids=["odd", "uneven"])
@pytest.mark.parametrize("atom", [0.0, 0.25])
def test_delta_is_the_worst_over_smaller_shifts_and_both_signs(weights, atom):
    noise = dp.Histogram(0.5, np.array(weights, float), atom)
    whole, held = noise.weights, noise.atom_weight
    for ratio, epsilon in itertools.product((0.25, 1.0, 2.5, 3.0, 20.0), (-1.0, 0.0, 0.3, 2.0)):
        expected = worst_truth(whole, held, Fraction(ratio), epsilon)
        found = float(noise.delta(0.5 * ratio, epsilon))
        assert expected * (1 - 1e-15) <= found <= expected * (1 + 1e-12) + 1e-14
    assert noise.delta(0.0, 0.0) == 0
    assert float(noise.delta(1e-300, 0.0)) == pytest.approx(max(atom, 1e-300), rel=0.9)


def test_the_profile_of_float_weights_is_never_below_the_rational_one():
    noise = dp.optimal.noise(dp.Budget(1.0, 0.2), resolution=9)
    weights = np.array(noise.weights)
    for epsilon in (0.3, 1.0, 1.7):
        exact = exact_delta(weights, noise.atom_weight, 9, epsilon)
        found = Fraction(float(noise.delta(1.0, epsilon)))
        assert exact <= found <= exact * Fraction(1 + 1e-11)


@pytest.mark.parametrize("weights", [ODD, UNEVEN], ids=["odd", "uneven"])
def test_moments_survival_quantile_and_draws_with_an_atom(weights):
    noise = dp.Histogram(0.5, np.array(weights, float), 0.25)
    n, share = len(weights), 0.75 / sum(weights)
    ends = 0.5 * (np.arange(n + 1) - n / 2)
    for power in (1.0, 2.0, 3.5):
        cells = [
            2 * w * share * np.diff(np.sign(e) * abs(e) ** (power + 1))[0] / (power + 1)
            for w, e in zip(weights, np.stack([ends[:-1], ends[1:]], 1), strict=True)
        ]
        np.testing.assert_allclose(noise.absolute_moment(power), sum(cells), rtol=1e-11)
    below = np.cumsum(np.append(0.0, weights)) * share
    x = np.linspace(ends[0] - 1, ends[-1] + 1, 400)
    above = 1 - np.interp(x, ends, below) - 0.25 * (x >= 0)
    np.testing.assert_allclose(np.exp(noise.log_survival(x)), above, rtol=1e-10, atol=1e-12)
    u = np.linspace(0.001, 0.999, 333)
    back = 1 - np.exp(np.asarray(noise.log_survival(noise.quantile(u))))
    at_zero = np.asarray(noise.quantile(u)) == 0
    assert at_zero.any()
    np.testing.assert_allclose(back[~at_zero], u[~at_zero], atol=1e-10)
    draws = np.asarray(jax.jit(lambda k: noise.sample(k, (100_000,)))(jax.random.key(1)))
    zeros = (draws == 0).sum()
    assert stats.binomtest(int(zeros), draws.size, 0.25).pvalue > 1e-6
    moving = draws[draws != 0]
    # Where the law does not move, kstest is exact.
    assert stats.kstest(moving, lambda t: np.interp(t, ends, below) / 0.75).pvalue > 1e-6


def test_the_worst_loss_of_designed_noise_is_that_of_the_largest_shift():
    """Nothing is lost by a hull of all shifts: four releases, against one shift four times."""
    noise = dp.optimal.noise(dp.Budget(1.0, 0.05), resolution=6)
    loss = worst_of_shifts(noise, 1.0)
    hull = [*zip(loss.losses, loss.masses, strict=True), (math.inf, loss.infinite)]
    largest = list(_atoms(noise, 6))
    hull, largest = ([(x + y, p * q) for x, p in one for y, q in one] for one in (hull, largest))
    for epsilon in (0.5, 2.0, 4.0):
        least = _composed(largest, largest, epsilon)
        assert least * (1 - 1e-12) <= _composed(hull, hull, epsilon) <= 1.0001 * least


@pytest.mark.parametrize("unit", [1, 3**200])
def test_draws_hit_the_ends_of_every_cell(monkeypatch, unit):
    """128 bits pick a cell with its weight's chance, whatever the size of the weights."""
    noise = dp.DiscreteHistogram([w * unit for w in (3, 0, 5, 1, 0)])
    ends = [(x << 128) // 9 for x in (3, 8)]
    bits = [0, ends[0] - 1, ends[0], ends[1] - 1, ends[1], 2**128 - 2]
    words = np.array([[x >> 64 for x in bits], [x & (2**64 - 1) for x in bits]], dtype=np.uint64)
    monkeypatch.setattr(jax.random, "bits", lambda *_, **__: jnp.asarray(words))
    draws = np.asarray(noise.sample(jax.random.key(0), (6,)))
    np.testing.assert_array_equal(draws, [-2, -2, 0, 0, 1, 1])


def test_a_pair_that_is_kept_holds_nothing_of_a_trace():
    histogram = dp.DiscreteHistogram([5.0, 3.0, 2.0, 1.0])
    with jax.checking_leaks():
        traced = jax.jit(lambda epsilon: dp.Mechanism(histogram, 2.0).delta(epsilon))(0.5)
    assert traced == pytest.approx(float(dp.Mechanism(histogram, 2.0).delta(0.5)), rel=1e-12)


def test_compositions_bound_every_sequence_of_shifts():
    """Against all pairs of shifts, atom by atom: releases may move by different amounts."""
    noise = dp.Histogram(0.5, np.array(ODD, float), 0.1)
    single = [dict(_atoms(noise, k)) for k in (-4, -3, -2, -1, 1, 2, 3, 4)]
    total = 2 * dp.privacy_loss(dp.Mechanism(noise, 2.0))
    loss = worst_of_shifts(noise, 2.0)
    worst = [*zip(loss.losses, loss.masses, strict=True), (math.inf, loss.infinite)]
    for epsilon in (0.0, 0.7, 1.5, 3.0):
        pairs = max(_composed(a.items(), b.items(), epsilon) for a in single for b in single)
        upper = float(total.delta(epsilon))
        assert pairs <= upper * (1 + 1e-14)
        assert upper == pytest.approx(_composed(worst, worst, epsilon), rel=1e-3)
    with pytest.raises(ValueError, match="one concrete number"):
        dp.privacy_loss(dp.Mechanism(noise, jnp.ones(3)))


def _atoms(noise, k):
    n = len(noise.weights)
    masses = {}
    for i, w in enumerate(noise.weights):
        other = noise.weights[i - k] if 0 <= i - k < n else 0
        if w:
            value = math.log(w / other) if other else math.inf
            masses[value] = masses.get(value, 0.0) + w / noise.total
    masses[math.inf] = masses.get(math.inf, 0.0) + noise.atom
    yield from masses.items()


def _composed(a, b, epsilon):
    (x, p), (y, q) = (np.array(list(one)).T for one in (a, b))
    total = np.add.outer(x, y)
    above = total > epsilon
    return np.sum(np.outer(p, q)[above] * -np.expm1(epsilon - total[above]))


def test_exact_arithmetic():
    with mp.workdps(60):
        gap = 1 - mp.mpf(exp_below(1.0).numerator) / exp_below(1.0).denominator / mp.e
        assert 0 < gap < 1e-28
    assert exp_below(3.0) < Fraction(math.exp(3.0)) * (1 + Fraction(1, 10**15))
    masses = np.random.default_rng(0).random(101)
    whole = whole_weights(masses)
    assert whole.sum() == 2**40
    np.testing.assert_allclose(whole / 2**40, masses / masses.sum(), atol=2**-40)


def test_bad_input():
    for weights in ([], [[1.0]], [-1.0, 2.0], [np.nan, 1.0], [0.0, 0.0], ["a"]):
        with pytest.raises(ValueError, match="weights must"):
            dp.Histogram(1.0, np.array(weights))
    with pytest.raises(ValueError, match="atom must lie in"):
        dp.Histogram(1.0, [1.0], atom=1.0)
    with pytest.raises(ValueError, match="before tracing"):
        jax.jit(lambda w: dp.Histogram(1.0, w).delta(1.0, 1.0))(jnp.ones(3))
