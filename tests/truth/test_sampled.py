"""Poisson-sampled releases: closed forms in every direction, ends, batches, inverses."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import expected, records

import jaxdp as dp
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.public_coin import PublicCoin

pytestmark = pytest.mark.float64


def training(sigma, q, steps=1.0, relation="add_remove"):
    mechanism = dp.Mechanism(dp.Gaussian(sigma), 1.0, sampling_prob=q, relation=relation)
    return steps * dp.privacy_loss(mechanism)


@pytest.mark.parametrize("direction", ["add", "remove"])
def test_reference_deltas_of_one_release(direction):
    for row in records("subsampled_gaussian", f"ln_delta_{direction}"):
        params, inputs = row["params"], row["inputs"]
        noise, shift = dp.Gaussian(params["sigma"]), inputs.get("Delta", 1.0)
        release = dp.Mechanism(noise, shift, params["q"], direction)
        truth = expected(row)
        above = mp.mpf(float(release.log_delta(inputs["eps"]))) - truth
        assert 0 <= above <= 1e-12 * (1 + abs(truth)), row["id"]


def removed(q, c, epsilon):
    """delta of one sampled Gaussian of ratio c."""
    x = mp.log((mp.expm1(epsilon) + q) / q) / c + c / 2
    return (1 - q) * mp.ncdf(-x) + q * mp.ncdf(c - x) - mp.exp(epsilon) * mp.ncdf(-x)


def added(q, c, epsilon):
    x = mp.log((mp.exp(-epsilon) - 1 + q) / q) / c + c / 2
    return mp.ncdf(x) - mp.exp(epsilon) * ((1 - q) * mp.ncdf(x) + q * mp.ncdf(x - c))


def replaced(q, c, epsilon):
    """The threshold solves a quadratic equation in e^(cx)."""
    growth = mp.exp(epsilon)
    hit, spare = q * mp.exp(-c * c / 2), (1 - q) * (1 - growth)
    x = mp.log((-spare + mp.sqrt(spare**2 + 4 * hit * hit * growth)) / (2 * hit)) / c
    here, away = ((1 - q) * mp.ncdf(-x) + q * mp.ncdf(side * c - x) for side in (1, -1))
    return here - growth * away


EXACT = {"remove": removed, "add": added, "replace_one": replaced}


def check_release(relation, q, scale, epsilon):
    """How far log delta is above the truth, which is at least 0 and at most what is stated."""
    loss = training(scale, q, relation=relation)
    found, error = np.asarray(loss.log_delta(epsilon)), np.asarray(loss.log_delta_error(epsilon))
    with mp.workdps(120):
        lanes = zip(q, 1 / np.frompyfunc(mp.mpf, 1, 1)(scale), epsilon, strict=True)
        truth = [mp.log(EXACT[relation](mp.mpf(a), c, mp.mpf(b))) for a, c, b in lanes]
        above = np.array([float(mp.mpf(v) - t) for v, t in zip(found, truth, strict=True)])
    truth = np.array(truth, float)
    assert np.all(above >= -1e-14), above
    assert np.all(above <= error), above - error
    assert np.all(above < 1e-13 / q + 1e-11 * np.abs(truth) + 2e-10), above
    return error


RATES = (0.3, 1e-3, 1e-4, 1e-6, 1e-8, 1e-9, 1e-12)
# Of the sampling probability: where the loss of an added record ends is about 1.
SHARES = (0.0, 0.1, 0.5, 0.99, 0.999999)


@pytest.mark.parametrize("relation", EXACT)
@pytest.mark.parametrize("scale", [1.3, 1e5])
def test_truth_lies_between(relation, scale):
    q, share = (x.ravel() for x in np.meshgrid(RATES, SHARES))
    # The smallest losses are those of wide noise.
    epsilon = share * (q if relation == "add" and scale < 2 else q / scale)
    error = check_release(relation, q, np.full(q.size, scale), epsilon)
    assert np.max(error[share < 0.9]) < 2e-10


@pytest.mark.parametrize("relation", ["remove", "replace_one"])
def test_large_losses_of_one_release(relation):
    q, epsilon = (
        x.ravel() for x in np.meshgrid([0.01, 0.3, 0.999, 1e-4], [0.0, 1e-3, 0.5, 3.0, 20.0, 100.0])
    )
    check_release(relation, q, np.tile([1.0, 0.5, 0.2, 2.0], 6), epsilon)


@pytest.mark.parametrize("noise", [dp.Gaussian(0.8), dp.FlippedHuber(0.7, 0.6), dp.Laplace(0.5)])
def test_no_pair_of_contributions_tells_more(noise):
    """The densities of a thousand pairs of contributions up to the sensitivity, integrated."""
    rng = np.random.default_rng(5)
    x = np.linspace(-14.0, 14.0, 28001)
    density = np.exp(np.asarray(noise.log_density(x)))
    q, contributions = 0.2, rng.uniform(-1.0, 1.0, (25, 2))
    epsilon = np.array([-0.4, 0.0, 0.1, 0.5])
    worst = dp.Mechanism(noise, 1.0, q, "replace_one").delta(epsilon)
    for a, b in contributions:
        p, r = (
            (1 - q) * density + q * np.exp(np.asarray(noise.log_density(x - m))) for m in (a, b)
        )
        for e, bound in zip(epsilon, np.asarray(worst), strict=True):
            told = np.trapezoid(np.maximum(p - np.exp(e) * r, 0.0), x)
            assert told <= bound * (1 + 1e-6) + 1e-9


def test_sampling_everything_is_no_sampling():
    whole = dp.Mechanism(dp.Gaussian(2.0), 1.0)
    always = dp.Mechanism(dp.Gaussian(2.0), 1.0, 1.0, "add_remove")
    assert always.sampling is None
    assert not always.sampled
    assert always.log_delta(1.0) == whole.log_delta(1.0)
    nearly = dp.Mechanism(dp.Gaussian(2.0), 1.0, 1.0 - 1e-12, "add_remove")
    np.testing.assert_allclose(nearly.log_delta(1.0), whole.log_delta(1.0), rtol=1e-10)
    replaced = dp.Mechanism(dp.Gaussian(1.0), 1.0, relation="replace_one")
    np.testing.assert_allclose(replaced.delta(1.0), 0.50986166005467, rtol=1e-13)


@pytest.mark.parametrize(
    ("relation", "shift"), [("add", 1.0), ("remove", 1.0), ("replace_one", 2.0)]
)
def test_a_batch_in_which_all_records_take_part(relation, shift):
    """A sampling probability of 1 in a batch: the Gaussian's own, where log(1 - q) is infinite."""
    epsilon, scale = np.array([5.2, 21.0, 750.0]), shift * np.array([1.0, 0.4, 0.05])
    value = np.asarray(training(scale, np.ones(3), 3.0, relation).log_delta(epsilon))
    truth = np.asarray(dp.Gaussian(scale / np.sqrt(3.0)).log_delta(shift, epsilon))
    assert np.all((value >= truth - 1e-13) & (value < truth + 1e-9)), value - truth


# Every one takes a second or two.
@pytest.mark.long
@settings(max_examples=10)
@given(
    log_q=st.floats(-8, -0.1),
    log_scale=st.floats(-2.5, 5.5),
    log_count=st.floats(0, 9),
    epsilon=st.one_of(st.floats(-50, 50), st.floats(50, 1e4)),
)
def test_never_nan_and_never_below_no_mechanism(log_q, log_scale, log_count, epsilon):
    loss = training(10.0**log_scale, 10.0**log_q, float(round(10**log_count)))
    floor = np.log(-np.expm1(epsilon)) if epsilon < -1e-12 else -np.inf
    assert floor - 1e-9 <= float(loss.log_delta(epsilon)) <= 0


def test_no_more_is_lost_than_the_chance_of_a_hit():
    """Such noise hides no hit; an added record is told by none, which has a largest loss."""
    scale = np.array([0.005, 0.0125])
    q, steps = np.array([[1e-8], [1e-3]]), np.array([[1000.0], [10.0]])
    chance = np.log(-np.expm1(steps * np.log1p(-q)))
    found = np.asarray(training(scale, q, steps, "remove").log_delta(1.0))
    assert np.all((found <= chance + 1e-12) & (found >= chance - 1e-9)), found - chance
    epsilon = training(np.full(1, 0.02), 0.01, 10.0, "add").epsilon(1e-6)
    np.testing.assert_allclose(epsilon, -10 * np.log1p(-0.01) + np.log1p(-1e-6), rtol=1e-8)


def test_bad_input():
    gaussian = dp.Gaussian(1.0)
    for bad in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match="sampling_prob must lie in"):
            dp.Mechanism(gaussian, 1.0, bad, "add")
    with pytest.raises(ValueError, match="relation must be one of"):
        dp.Mechanism(gaussian, 1.0, 0.5)
    one, other = (training(1.0, 0.5, relation=r) for r in ("add", "remove"))
    with pytest.raises(ValueError, match="cannot compose relation"):
        one + other
    broken = jax.jit(lambda q: dp.Mechanism(gaussian, 1.0, q, "add").log_delta(1.0))(2.0)
    assert bool(jnp.isnan(broken))


def test_large_noise_and_small_samples():
    """The cumulant is a wall right above the saddle, and its integrand has a far second mode."""
    scale = np.array([24.852929026691598, 58.24010023347158, 37.54694913592388, 9.290810272001684])
    q = np.array([0.003526619728394771, 0.0014232029317250974, 2.165640010364973e-05, 0.0683])
    epsilon = np.array([0.019922735903511055, 0.0025242473170854957, 0.0003617775228989988, 0.055])
    loss = training(scale, q, np.array([794.0, 946.0, 336182.0, 7.0]), "remove")
    delta, (lower, upper) = loss.delta(epsilon), loss.bounds(epsilon)
    assert np.all((lower <= delta) & (delta <= upper))
    assert np.all(upper - lower < 0.1 * delta)


@pytest.mark.long
def test_hits_of_replaced_records_that_are_told_apart():
    """Narrow noise: |phi| comes back up in between."""
    for q, multiplier, steps, epsilon in (
        (1e-3, 0.05, 1000, 10.0),
        (0.01, 0.02, 50, 3.0),
        (0.01, 0.1, 200, 30.0),
        (0.05, 0.06, 40, 300.0),
    ):
        loss = training(multiplier, q, steps, "replace_one")
        lower, upper = loss.bounds(epsilon)
        assert lower * (1 - 1e-9) <= loss.delta(epsilon) <= upper * (1 + 1e-9)


def test_the_worse_direction_of_every_run():
    """Whatever the order in which lanes and directions are worked off."""
    size, rng = 70, np.random.default_rng(3)
    q, scale = 10 ** rng.uniform(-3, -0.5, size), rng.uniform(0.7, 5.0, size)
    steps = np.round(10 ** rng.uniform(0.5, 2.5, size) / q)
    delta = 10 ** rng.uniform(-12, -3, size)
    both, add, remove = (training(scale, q, steps, r) for r in ("add_remove", "add", "remove"))
    epsilon = np.asarray(both.epsilon(delta))
    np.testing.assert_allclose(epsilon, np.maximum(add.epsilon(delta), remove.epsilon(delta)), 1e-9)
    found, each = both.log_delta(epsilon), [x.log_delta(epsilon) for x in (add, remove)]
    np.testing.assert_allclose(found, np.maximum(each[0], each[1]), rtol=1e-9)
    # Of two brackets, each within 1e-6.
    gap = np.asarray(found) - np.log(delta)
    assert np.all((gap <= 3e-6) & (gap > -1e-5))
    # delta(-e) of one direction and delta(e) of the other are two views of one pair.
    forward, backward = remove[:8].delta(0.7), add[:8].delta(-0.7)
    np.testing.assert_allclose(backward, 1 - np.exp(-0.7) * (1 - np.asarray(forward)), rtol=1e-9)


def language_models(rng, size):
    """Noise multipliers, rates, steps and deltas of trainings that rarely see a record."""
    sigma, q = rng.uniform(0.4, 1.6, size), 10 ** rng.uniform(-6.5, -3.3, size)
    steps = np.ceil(10 ** rng.uniform(-1.5, 1.5, size) / q)
    return sigma, q, steps, 10 ** rng.uniform(-12, -6, size)


def ordinary_runs(rng, size):
    sigma, q = rng.uniform(0.7, 4.0, size), 10 ** rng.uniform(-3, -1, size)
    return sigma, q, np.ceil(10 ** rng.uniform(2, 4, size)), np.full(size, 1e-6)


def least_log_delta(loss, epsilon):
    return np.asarray(loss.log_delta(epsilon)) - np.asarray(loss.log_delta_error(epsilon))


@pytest.mark.parametrize(
    ("runs", "seed", "size", "shares"),
    [
        (ordinary_runs, 0, 96, {1e-6: 0.98, 1e-4: 1.0}),
        pytest.param(language_models, 1, 32, {1e-5: 0.85, 1e-3: 0.95}, marks=pytest.mark.long),
    ],
)
def test_epsilon_is_hardly_above_the_least(runs, seed, size, shares):
    """A share of 1 + epsilon below it, delta is provably above what is requested."""
    sigma, q, steps, delta = runs(np.random.default_rng(seed), size)
    loss = training(sigma, q, steps)
    epsilon = np.asarray(loss.epsilon(delta))
    assert np.all(np.isfinite(epsilon))
    assert np.all(least_log_delta(loss, epsilon) <= np.log(delta) * (1 - 1e-9))
    for share, lanes in shares.items():
        below = least_log_delta(loss, epsilon - share * (1 + epsilon))
        assert np.mean(below > np.log(delta)) >= lanes


def test_alone_and_in_batches_the_same():
    rng = np.random.default_rng(3)
    pairs = zip(language_models(rng, 2), ordinary_runs(rng, 2), strict=True)
    *of, delta = (np.concatenate(x) for x in pairs)
    together = training(*of).epsilon(delta)
    alone = [float(training(*x[:3]).epsilon(x[3])) for x in zip(*of, delta, strict=True)]
    many = training(*(np.tile(x, 12) for x in of)).epsilon(np.tile(delta, 12))
    for found in (np.array(alone), np.asarray(many)[:4]):
        np.testing.assert_allclose(found, together, rtol=2e-6, atol=2e-6)
        assert np.all(least_log_delta(training(*of), found) <= np.log(delta) * (1 - 1e-9))


@pytest.mark.parametrize("lanes", [[3, 5], pytest.param([0, 1, 2, 4], marks=pytest.mark.long)])
def test_calibrations_end_on_the_safe_side(lanes):
    """Single releases are answered by their profile: the engine sees a part of the lanes."""
    # The first three have few hits: what is reported is wide.
    q = np.array([1.7925624766942227e-05, 0.0011, 5.48427961737126e-05, 0.02, 0.01, 0.01])[lanes]
    count = np.array([5358.0, 15.0, 579.0, 500.0, 1000.0, 1.0])[lanes]
    epsilon = np.array([1.27, 0.744, 0.0915, 1.0, 2.0, 1.0])[lanes]
    delta = np.array([2.5e-4, 1.17e-10, 2.4e-14, 1e-5, 1e-6, 1e-6])[lanes]
    less = np.array([1e-3, 1e-3, 1e-3, 1e-3, 1e-8, 1e-8])[lanes]
    scale = np.asarray(dp.calibrate(lambda s: training(s, q, count), dp.Budget(epsilon, delta)))
    assert np.all(training(scale, q, count).delta(epsilon) <= delta)
    assert np.all(training(scale * (1 - less), q, count).delta(epsilon) > delta)
    last = [float(x[-1]) for x in (q, count, epsilon, delta)]
    alone = dp.calibrate(lambda s: training(s, *last[:2]), dp.Budget(*last[2:]))
    np.testing.assert_allclose(scale[-1], alone, rtol=2e-6)


def test_equal_phases_are_one_and_sampling_all_is_a_gaussian():
    whole = training(1.1, 0.01, 3000.0)
    parts = training(1.1, 0.01, 1000.0) + training(1.1 * (1 + 1e-12), 0.01, 2000.0)
    np.testing.assert_allclose(parts.epsilon(1e-6), whole.epsilon(1e-6), rtol=2e-6)
    some, noise = training(1.0, 0.01, 500.0), dp.privacy_loss(dp.Mechanism(dp.Gaussian(5.0), 1.0))
    beside, sampled = some + 7 * noise, some + training(5.0, 1.0, 7.0)
    np.testing.assert_allclose(beside.epsilon(1e-6), sampled.epsilon(1e-6), rtol=2e-6)
    assert beside.epsilon(1e-6) > some.epsilon(1e-6)


def coin(first, second, share):
    """100 releases, each by one of two pairs that a public coin chooses."""
    pairs = [Poisson(Additive(dp.Gaussian(1.0), jnp.ones(())), *each) for each in (first, second)]
    return 100 * dp.privacy_loss(PublicCoin(pairs, [jnp.log(share), jnp.log(share)]))


@pytest.mark.long
def test_a_coin_that_decides_the_direction_costs_a_hit_at_most():
    loss = coin((0.01, 0.0), (0.01, 1.0), 0.5)
    assert loss.log_delta(0.1) <= np.log(1 - 0.99**100) * (1 - 1e-12)
    lower, _ = loss.bounds(0.1)
    assert lower <= loss.delta(0.1)


def test_shares_that_miss_one_are_refused():
    with pytest.raises(ValueError, match="add up"):
        coin((0.01, 0.0), (0.02, 0.0), 0.25).log_delta(0.1)
