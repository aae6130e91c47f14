"""Noise on the integers of given chances, and the best of it for counts."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import references
from scipy import stats

import jaxdp as dp
from jaxdp.dominating_pair.finite import Finite, worst_of_shifts
from jaxdp.optimal.exact import exact_delta

pytestmark = pytest.mark.float64

WEIGHTS = (1, 2, 5, 11, 30, 11, 5, 2, 1)
ROWS = references.load("optimal_noise.json")
COUNTS = [r for r in ROWS if r["quantity"].startswith("optimal integer-valued noise")]
UNEVEN = (4, 1, 9, 3, 0)


def law(weights):
    half = len(weights) // 2
    return oracle.Lattice(lambda k: oracle.mp.log(weights[int(k) + half]), reach=half)


def test_it_is_the_law_of_its_weights():
    noise, truth = dp.DiscreteHistogram(WEIGHTS), law(WEIGHTS)
    for k in range(-4, 5):
        assert float(noise.log_density(k)) == pytest.approx(float(truth.log_density(k)), abs=1e-14)
        for x in (k, k + 0.5):
            above = float(truth.survival(x))
            assert float(jnp.exp(noise.log_survival(x))) == pytest.approx(above, rel=1e-14)
    assert noise.log_density(0.5) == noise.log_density(7) == -np.inf
    u = np.array([0.0, 1 / 68, 0.02, 0.5, 0.9, 1.0])
    np.testing.assert_array_equal(noise.quantile(u), [-4, -4, -3, 0, 2, 4])
    for power in (1.0, 2.0, 3.5):
        value = float(truth.expectation(lambda t, power=power: abs(t) ** power))
        assert float(noise.absolute_moment(power)) == pytest.approx(value, rel=1e-13)
    assert noise.absolute_moment(-0.5) == np.inf
    draws = np.asarray(jax.jit(lambda key: noise.sample(key, (100_000,)))(jax.random.key(2)))
    counts = np.array([(draws == k).sum() for k in range(-4, 5)])
    assert stats.chisquare(counts, np.array(WEIGHTS) / 68 * draws.size).pvalue > 1e-6


@pytest.mark.parametrize("weights", [WEIGHTS, UNEVEN])
def test_delta_is_the_worst_of_all_whole_shifts(weights):
    noise, half = dp.DiscreteHistogram(weights), len(weights) // 2

    def one(k, epsilon):
        mass = dict(zip(range(-half, half + 1), weights, strict=True))
        gaps = (p - math.exp(epsilon) * mass.get(i - k, 0) for i, p in mass.items())
        return sum(g for g in gaps if g > 0) / sum(weights)

    for shift in (0, 1, 2, 9):
        for epsilon in (-1.0, 0.0, 0.4, 2.0):
            worst = max(one(k, epsilon) for k in range(-shift, shift + 1))
            found = float(noise.delta(shift, epsilon))
            assert worst * (1 - 1e-15) <= found <= worst * (1 + 1e-12) + 1e-13
    with pytest.raises(ValueError, match="shift must be whole"):
        noise.log_delta(0.5, 1.0)
    assert not jax.jit(noise.delta)(0.5, 1.0) <= 1
    assert not jax.jit(noise.delta)(1.0, np.nan) <= 1
    assert noise.renyi(1.0, 2.0) == np.inf
    assert noise.zcdp(1.0)[1] == noise.pure_epsilon(1.0) == np.inf
    assert noise.zcdp(0.0)[1] == 0


def coins(count):
    """Weights of the sum of so many fair coins."""
    return [math.comb(count, k) for k in range(count + 1)]


@pytest.mark.parametrize(("count", "known"), [(400, 0.66493), (2000, 0.28420)])
def test_whole_weights_of_any_size_are_exact(count, known):
    """Of 2,000 coins the least mass is e^-1386, and no double."""
    weights = coins(count)
    noise = dp.DiscreteHistogram(weights)
    mechanism, total = dp.Mechanism(noise, 1.0), sum(weights)
    assert noise.weights == tuple(weights)
    for epsilon in (0.0, 0.1, known):
        x = Fraction(math.exp(epsilon))
        exact = sum(max(a - x * b, 0) for a, b in zip(weights, [0, *weights[:-1]], strict=True))
        for found in (mechanism.delta(epsilon), noise.delta(1.0, epsilon)):
            share = exact / total
            assert share * (1 - Fraction(1, 10**14)) <= Fraction(float(found))
            assert float(found) <= float(share) * (1 + 1e-11) + 2e-15
    assert float(mechanism.epsilon(1e-12)) == pytest.approx(known, abs=1e-5)
    loss = dp.privacy_loss(mechanism)
    assert float(loss.epsilon(1e-12)) == mechanism.epsilon(1e-12)
    stored = dp.PrivacyLoss.from_json(loss.to_json())
    assert stored.epsilon(1e-12) == loss.epsilon(1e-12)
    # Where every output is impossible under the other law only e^-700 is left.
    assert -count * math.log(2) <= float(mechanism.log_delta(1e4)) <= max(-count * 0.693, -704.0)
    assert float(noise.variance()) == pytest.approx(count / 4, rel=1e-13)
    values = dp.release(mechanism, np.zeros(4000, int), jax.random.key(0), disjoint=True).value
    assert np.var(np.asarray(values)) == pytest.approx(count / 4, rel=0.1)


def test_float_weights_are_exact():
    weights = np.append(stats.norm.pdf(np.arange(-30.0, 31.0)), [1e-300, 3e-310])
    noise = dp.DiscreteHistogram(weights)
    unit = Fraction(noise.weights[30]) / Fraction(weights[30])
    assert all(
        w == Fraction(x) * unit for w, x in zip(noise.weights, weights.tolist(), strict=True)
    )
    assert dp.DiscreteHistogram([0.25, 0.5, 0.25]).weights == (1, 2, 1)
    assert dp.DiscreteHistogram([Fraction(1, 3), 1, Fraction(1, 3)]).weights == (1, 3, 1)
    cells = dp.Histogram(1.0, [0.25, 0.5, 0.25], 0.75)
    assert (cells.weights, cells.atom_weight, cells.atom) == ((1, 2, 1), 12, 0.75)
    cells = dp.Histogram(1.0, [1.0, 2.0**-60], 0.1)
    assert cells.weights[0] == cells.weights[1] * 2**60
    assert cells.atom == 0.1


@pytest.mark.parametrize("shift", [1.0, 3.0, 50.0, 150.0])
@pytest.mark.parametrize(
    "kind",
    [
        dp.DiscreteHistogram,
        lambda weights: dp.Histogram(1.0, weights, 0.01),
        lambda _: dp.Histogram(0.7, UNEVEN, 0.1),
    ],
)
def test_a_mechanism_has_the_profile_of_its_loss(kind, shift):
    """Which is that of one pair of finite laws, whose worst shifts are found once."""
    mechanism = dp.Mechanism(kind(coins(100)), shift)
    loss = dp.privacy_loss(mechanism)
    (term,) = loss.terms
    assert isinstance(term.pair, Finite)
    epsilon = np.array([-1.0, 0.0, 0.3, 2.0])
    found, known = mechanism.log_delta(epsilon), loss.log_delta(epsilon)
    np.testing.assert_allclose(found, known, rtol=1e-12, atol=2e-14)
    delta = np.array([0.3, 0.02, 1e-9])
    np.testing.assert_allclose(mechanism.epsilon(delta), loss.epsilon(delta), rtol=1e-12)
    nothing = worst_of_shifts(mechanism.noise, 0.0)
    assert (nothing.losses, nothing.masses, nothing.infinite) == ((0.0,), (1.0,), 0.0)


@pytest.mark.parametrize("row", COUNTS, ids=lambda r: f"{r['inputs']['eps']}")
def test_the_best_noise_for_counts(row):
    inputs = row["inputs"]
    noise = dp.optimal.integer_noise(dp.Budget(inputs["eps"], inputs["delta"]))
    made = noise.certificate
    assert made.loss_upper == pytest.approx(row["expected"], abs=2e-6)
    assert 0 <= made.loss_upper - made.loss_lower < 1e-6
    assert made.loss_upper == pytest.approx(float(noise.mean_absolute()), rel=1e-12)
    exact = exact_delta(np.array(noise.weights), 0, 1, inputs["eps"])
    assert exact <= Fraction(made.deltas[0]) <= Fraction(inputs["delta"])
    density = dp.optimal.noise(dp.Budget(inputs["eps"], inputs["delta"])).certificate
    assert made.loss_upper < density.loss_lower


def test_other_sensitivities_losses_and_little_time():
    budget = dp.Budget(1.0, 0.1)
    wide = dp.optimal.integer_noise(budget, 3, "l2")
    assert float(wide.variance()) == pytest.approx(wide.certificate.loss_upper, rel=1e-12)
    assert float(wide.delta(3, 1.0)) <= 0.1
    own = dp.optimal.integer_noise(budget, 3, lambda x: x * x)
    assert own.certificate.loss_upper == pytest.approx(wide.certificate.loss_upper, rel=1e-7)
    # At once, and all the same private, bracketed and said to be so.
    stopped = dp.optimal.integer_noise(budget, 30, seconds=1e-6).certificate
    assert not stopped.complete
    assert stopped.deltas[0] <= 0.1
    assert 0 <= stopped.loss_lower < stopped.loss_upper


def test_bad_input():
    with pytest.raises(ValueError, match="sensitivity must be a positive integer"):
        dp.optimal.integer_noise(dp.Budget(1.0, 0.1), 0)
    with pytest.raises(ValueError, match="support must be longer"):
        dp.optimal.integer_noise(dp.Budget(1.0, 0.001), support=1)
