"""Poisson-sampled releases: high-precision values, both directions, extremes, inverses."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64

NOISES = {
    "subsampled_gaussian": lambda p: dp.Gaussian(p["sigma"]),
    "subsampled_laplace": lambda p: dp.Laplace(p["beta"]),
}


def mechanism(row):
    params, direction = row["params"], row["quantity"].split("_")[-1]
    noise = NOISES[row["mechanism"]](params)
    return dp.Mechanism(noise, row["inputs"].get("Delta", 1.0), params["q"], direction)


@pytest.mark.parametrize("direction", ["add", "remove"])
def test_reference_deltas_of_one_release(direction):
    for row in records("subsampled_gaussian", f"ln_delta_{direction}"):
        value = float(mechanism(row).log_delta(row["inputs"]["eps"]))
        truth = expected(row)
        assert 0 <= mp.mpf(value) - truth <= 1e-12 * (1 + abs(truth)), row["id"]


@pytest.mark.parametrize("family", NOISES)
@pytest.mark.parametrize("direction", ["add", "remove"])
def test_reference_compositions(family, direction):
    rows = records(family, f"ln_delta_kfold_{direction}")
    assert rows
    for row in rows:
        total = row["inputs"]["K"] * dp.privacy_loss(mechanism(row))
        epsilon = row["inputs"]["eps"]
        value, error = (float(f(epsilon)) for f in (total.log_delta, total.log_delta_error))
        assert 0 <= mp.mpf(value) - expected(row) <= error, (row["id"], error)
        # Below e^-700 there is a Chernoff bound for Gaussians, and what lies beyond the last node.
        wide = np.inf if family == "subsampled_gaussian" else 1.0
        assert error <= (1e-3 if expected(row) > -600 else wide), (row["id"], error)


def test_the_worse_direction_is_reported():
    losses = {
        relation: 50 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, relation))
        for relation in ("add", "remove", "add_remove")
    }
    epsilon = jnp.array([-1.0, 0.0, 0.3, 2.0])
    add, remove, both = (losses[r].log_delta(epsilon) for r in ("add", "remove", "add_remove"))
    np.testing.assert_allclose(both, jnp.maximum(add, remove), rtol=1e-12)
    # delta(-e) of one direction and delta(e) of the other are two views of one pair.
    e = 0.7
    forward, backward = losses["remove"].delta(e), losses["add"].delta(-e)
    np.testing.assert_allclose(backward, 1 - np.exp(-e) + np.exp(-e) * forward, rtol=1e-9)


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


# Every one takes a second or two.
@settings(max_examples=10)
@given(
    log_q=st.floats(-8, -0.1),
    log_scale=st.floats(-2.5, 5.5),
    log_count=st.floats(0, 9),
    epsilon=st.one_of(st.floats(-50, 50), st.floats(50, 1e4)),
)
def test_never_nan_and_never_below_no_mechanism(log_q, log_scale, log_count, epsilon):
    release = dp.Mechanism(dp.Gaussian(10.0**log_scale), 1.0, 10.0**log_q, "add_remove")
    value = float((float(round(10**log_count)) * dp.privacy_loss(release)).log_delta(epsilon))
    floor = np.log(-np.expm1(epsilon)) if epsilon < -1e-12 else -np.inf
    assert value <= 0
    assert value >= floor - 1e-9


@pytest.mark.parametrize("lanes", [[0, 3, 4], pytest.param([1, 2], marks=pytest.mark.long)])
def test_calibrations_end_on_the_safe_side(lanes):
    def loss(scale, q, n):
        return n * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "add_remove"))

    # The first three have few hits: what is reported is wide.
    q = np.array([1.7925624766942227e-05, 0.0011072699031456543, 5.48427961737126e-05, 0.02, 0.01])
    count = np.array([5358.0, 15.0, 579.0, 500.0, 1000.0])
    epsilon = np.array([1.27, 0.744, 0.0915, 1.0, 2.0])
    delta = np.array([2.5e-4, 1.17e-10, 2.4e-14, 1e-5, 1e-6])
    less = np.array([1e-3, 1e-3, 1e-3, 1e-3, 1e-8])
    q, count, epsilon, delta, less = (x[lanes] for x in (q, count, epsilon, delta, less))
    scale = np.asarray(dp.calibrate(lambda s: loss(s, q, count), dp.Budget(epsilon, delta)))
    assert np.all(loss(scale, q, count).delta(epsilon) <= delta)
    assert np.all(loss(scale * (1 - less), q, count).delta(epsilon) > delta)


def test_bad_input():
    gaussian = dp.Gaussian(1.0)
    for bad in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match="sampling_prob must lie in"):
            dp.Mechanism(gaussian, 1.0, bad, "add")
    with pytest.raises(ValueError, match="relation must be one of"):
        dp.Mechanism(gaussian, 1.0, 0.5)
    one, other = (dp.privacy_loss(dp.Mechanism(gaussian, 1.0, 0.5, r)) for r in ("add", "remove"))
    with pytest.raises(ValueError, match="cannot compose relation"):
        one + other
    with pytest.raises(ValueError, match="relation must be 'add_remove'"):
        one.tradeoff(0.1)
    broken = jax.jit(lambda q: dp.Mechanism(gaussian, 1.0, q, "add").log_delta(1.0))(2.0)
    assert bool(jnp.isnan(broken))


def test_large_noise_and_small_samples():
    """The cumulant is a wall right above the saddle, and its integrand has a far second mode."""
    scale = jnp.array([24.852929026691598, 58.24010023347158, 37.54694913592388, 9.290810272001684])
    q = jnp.array([0.003526619728394771, 0.0014232029317250974, 2.165640010364973e-05, 0.0683])
    epsilon = jnp.array([0.019922735903511055, 0.0025242473170854957, 0.0003617775228989988, 0.055])
    one = dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove"))
    loss = jnp.array([794.0, 946.0, 336182.0, 7.0]) * one
    delta, (lower, upper) = loss.delta(epsilon), loss.bounds(epsilon)
    assert bool(jnp.all((lower <= delta) & (delta <= upper)))
    assert bool(jnp.all(upper - lower < 0.1 * delta))


def test_the_worse_epsilon_of_every_run():
    """Whatever the order in which lanes and directions are worked off."""
    size, rng = 70, np.random.default_rng(3)
    q, scale = 10 ** rng.uniform(-3, -0.5, size), rng.uniform(0.7, 5.0, size)
    steps = np.round(10 ** rng.uniform(0.5, 2.5, size) / q)
    delta = jnp.asarray(10 ** rng.uniform(-12, -3, size))

    def loss(relation):
        release = dp.Mechanism(dp.Gaussian(jnp.asarray(scale)), 1.0, jnp.asarray(q), relation)
        return jnp.asarray(steps) * dp.privacy_loss(release)

    epsilon = loss("add_remove").epsilon(delta)
    worse = jnp.maximum(loss("add").epsilon(delta), loss("remove").epsilon(delta))
    np.testing.assert_allclose(epsilon, worse, rtol=1e-9)
    gap = loss("add_remove").log_delta(epsilon) - jnp.log(delta)
    # Of two brackets, each within 1e-6.
    assert bool(jnp.all((gap <= 3e-6) & (gap > -1e-5)))


@pytest.mark.parametrize(
    ("scale", "q", "steps", "epsilon", "theta", "error"),
    [
        (5.066, 3.34e-4, 106849.0, 0.27, 320.0, 2e-5),
        (11.989, 1.203e-4, 53828.0, 0.0276, 2300.0, 5e-3),
    ],
)
def test_tails_beyond_which_one_hit_would_dominate(scale, q, steps, epsilon, theta, error):
    """Against a sum over 26,368 nodes, which cancels: no line along which it does not is near."""
    # Exact, as its rounding would count 1e5 times.
    step, ratio = 2.0**-6, 1 / scale
    x = step * np.arange(-12 * 64, 400 * 64)
    loss = np.logaddexp(np.log1p(-q), np.log(q) + ratio * x - 0.5 * ratio**2)
    weight = np.exp((1 + theta) * loss - 0.5 * x * x) * step / np.sqrt(2 * np.pi)
    height = 0.004 * theta * np.arange(1500)
    turned = np.array([np.sum(weight * np.exp(1j * t * loss)) for t in height])
    z = theta + 1j * height
    summand = np.real(np.exp(steps * np.log(turned) - z * epsilon) / (z * (z + 1)))
    truth = np.log((2 * summand.sum() - summand[0]) * height[1] / (2 * np.pi))
    release = dp.Mechanism(dp.Gaussian(scale), 1.0, q, "add_remove")
    value = float((steps * dp.privacy_loss(release)).log_delta(epsilon))
    assert abs(value - truth) < error


@pytest.mark.parametrize("relation", ["add", "remove"])
def test_a_batch_in_which_all_records_take_part(relation):
    """A sampling probability of 1 in a batch: the Gaussian's own, where log(1 - q) is infinite."""
    epsilon = jnp.array([5.2, 21.0, 750.0])
    scale = jnp.array([1.0, 0.4, 0.05])
    sampled = dp.Mechanism(dp.Gaussian(scale), 1.0, jnp.ones(3), relation)
    value = (3 * dp.privacy_loss(sampled)).log_delta(epsilon)
    truth = dp.Gaussian(scale / np.sqrt(3.0)).log_delta(1.0, epsilon)
    assert bool(jnp.all((value >= truth - 1e-13) & (value < truth + 1e-9)))


@pytest.mark.parametrize(("q", "steps"), [(1e-8, 1000.0), (1e-3, 10.0)])
def test_no_more_is_lost_than_the_chance_of_a_hit(q, steps):
    scale = jnp.array([0.005, 0.007, 0.01, 0.0125])
    total = steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove"))
    chance = np.log(-np.expm1(steps * np.log1p(-q)))
    found = np.asarray(total.log_delta(1.0))
    assert np.all(found <= chance + 1e-12)
    assert np.all(found >= chance - 1e-9)  # such noise hides no hit
