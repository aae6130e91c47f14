"""Draws of whole numbers: their law, decided in float64 or with 32 digits, and its error."""

import dataclasses

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.random_key import secure_key
from jaxdp._numeric.double_double import Double
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.whole_draws import WholeLaw

pytestmark = pytest.mark.float64  # of internal kernels, in arrays of JAX

ONE = jnp.ones(())
# About 6 deviations of a chi-square statistic.
DEVIATIONS = 6.0


def law(kind, scale, alpha=1.0, gamma=1.0, bound=None):
    limit = None if bound is None else jnp.asarray(bound)
    return WholeLaw(kind, jnp.asarray(scale), jnp.asarray(alpha), jnp.asarray(gamma), limit)


def masses(law, numbers):
    n, s = np.abs(numbers), float(law.scale)
    if law.kind == "normal":
        h = n**2 / (2 * s * s)
    elif law.kind == "exponential":
        h = n / s
    elif law.kind == "concave":
        h = -np.asarray(law.noise.log_density(n * float(law.fine)))
    else:
        a, g = float(law.alpha), float(law.gamma)
        start = a if law.kind == "huber" else 0.0
        h = n * a / g**2 + np.maximum(n - start, 0) ** 2 / (2 * g * g)
    mass = np.exp(-h) * (n <= (np.inf if law.bound is None else float(law.bound)))
    return mass / mass.sum()


LAWS = {
    "narrow": law("normal", 0.4),
    "normal": law("normal", 3.7),
    "exponential": law("exponential", 2.5),
    "steep": law("exponential", 0.3),
    "huber": law("huber", 9.0 / 4.0, 4.0, 3.0),
    "offset": law("offset", 9.0 / 4.0, 4.0, 3.0),
    "truncated": law("exponential", 2.5, bound=3.0),
    "none but 0": law("exponential", 2.5, bound=0.0),
    "any concave": whole_draws.law_of(dp.Subbotin(4.0, 3.0), "concave", 0.5 * ONE),
}


@pytest.mark.parametrize("name", LAWS)
def test_frequencies_are_those_of_the_law(name):
    drawn = np.asarray(whole_draws.draw(jax.random.key(5), LAWS[name], (200_000,)))
    numbers = np.arange(-400, 401)
    expected = masses(LAWS[name], numbers) * drawn.size
    likely = expected > 20
    counts = np.array([(drawn == n).sum() for n in numbers[likely]])
    statistic = ((counts - expected[likely]) ** 2 / expected[likely]).sum()
    freedom = likely.sum()
    assert statistic < freedom + DEVIATIONS * np.sqrt(2 * freedom)
    assert abs(drawn.size - counts.sum()) < expected[~likely].sum() * 2 + 40


def test_a_density_above_the_one_that_dominates_draws_no_number():
    """As of a noise that claims to be log-concave: nothing is drawn from another law."""
    given, size = LAWS["any concave"], (200_000,)
    narrow = dataclasses.replace(given, scale=0.25 * given.scale)
    assert jnp.isnan(whole_draws.draw(jax.random.key(0), narrow, size)).any()
    bad = jax.tree.map(lambda x: jnp.nan * x, given.noise)
    none = whole_draws.draw(jax.random.key(0), dataclasses.replace(given, noise=bad), size)
    assert jnp.isnan(none).all()


def test_a_batch_of_laws_draws_each_its_own():
    scales = jnp.asarray([2.0, 50.0, 2.0**33])[:, None] * jnp.ones((1, 4000))
    drawn = whole_draws.draw(jax.random.key(1), law("normal", scales), scales.shape)
    deviation = np.std(np.asarray(drawn / scales), axis=1)
    assert (abs(deviation - 1) < 0.06).all()
    assert (drawn == jnp.round(drawn)).all()


def test_bad_scales_draw_nothing():
    for scale in (jnp.nan, -1.0, 0.0, jnp.inf):
        assert jnp.isnan(whole_draws.draw(jax.random.key(0), law("normal", scale), (3,))).all()
    for bound in (jnp.nan, -1.0):
        given = law("exponential", 2.5, bound=bound)
        assert jnp.isnan(whole_draws.draw(jax.random.key(0), given, (3,))).all()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["normal", "exponential", "huber", "offset"])
def test_refined_decisions_agree_with_fast_ones(kind):
    """Where float64 decides, 32 digits decide the same."""
    given = law(kind, 2.0**33 * 1.7, 2.0**33, 2.0**33 * np.sqrt(1.7))
    if kind in ("huber", "offset"):
        given = law(kind, float(given.gamma**2 / given.alpha) * (1 + 1e-15), 2.0**33, given.gamma)
    k1, k2, k3 = jax.random.split(jax.random.key(3), 3)
    size = jnp.full(500, jnp.ceil(0.5 * given.scale))
    block = jnp.asarray(np.random.default_rng(0).integers(0, 9, 500), jnp.float64)
    place = jnp.floor(jax.random.uniform(k1, (500,)) * size)
    bits = jnp.floor(jax.random.uniform(k2, (500,)) * 2.0**32) * 2.0**-32
    chance = jnp.exp(-whole_draws.exponent(given, block, place, size))
    certain = jnp.abs(bits - chance) > 1e-8
    # A block of its own pick, so that it stays.
    pick = jnp.asarray(whole_draws._thresholds(given.proposal)[0])
    middle = jnp.concatenate([jnp.zeros(1, jnp.int32), pick])[block.astype(int)] + 1
    sign = jnp.ones(500)
    parts = whole_draws._Parts(sign, middle, bits, place, size, fair=sign > 0)
    again, taken = whole_draws._refined(k3, given, parts)
    np.testing.assert_array_equal(again, block)
    np.testing.assert_array_equal(taken[certain], (bits < chance)[certain])


def test_the_precise_exponential_is_right_to_1e_27():
    high = jnp.asarray([1e-9, 0.3, 1.0, 5.7, 33.3, 90.0, 150.0])
    value = jax.jit(lambda x: whole_draws.exp_pair(Double(x, 1e-18 * x)))(high)
    with mp.workdps(60):
        for x, a, b in zip(high.tolist(), value.high.tolist(), value.low.tolist(), strict=True):
            exact = mp.exp(-(mp.mpf(x) + mp.mpf(1e-18 * x)))
            assert abs(mp.mpf(a) + mp.mpf(b) - exact) < mp.mpf(10) ** -27


@pytest.mark.parametrize("proposal", ["normal", "exponential"])
def test_thresholds_are_right_to_95_bits(proposal):
    highs, lows = whole_draws._thresholds(proposal)
    with mp.workdps(60):
        weights = [
            mp.exp(-(mp.mpf(k) ** 2) / 8 if proposal == "normal" else -mp.mpf(k) / 2)
            for k in range(400)
        ]
        total = mp.fsum(weights)
        for k, (high, low) in enumerate(zip(highs.tolist(), lows.tolist(), strict=True)):
            exact = mp.fsum(weights[: k + 1]) / total
            stored = mp.mpf(high * 2**64 + low) / mp.mpf(2) ** 95
            assert abs(stored - exact) < mp.mpf(2) ** -93


@pytest.mark.parametrize("kind", ["normal", "exponential"])
@pytest.mark.parametrize("scale", [4, 16])
def test_the_midpoint_error_is_below_its_bound(kind, scale):
    """Total variation between masses at points and of cells, in 40 digits: below 1 / s^2."""
    with mp.workdps(40):
        s = mp.mpf(scale)
        reach = range(-14 * scale if kind == "normal" else -60 * scale, 1)
        if kind == "normal":
            point = [mp.exp(-(n * n) / (2 * s * s)) for n in reach]
            cell = [mp.ncdf((n + mp.mpf(0.5)) / s) - mp.ncdf((n - mp.mpf(0.5)) / s) for n in reach]
        else:
            point = [mp.exp(n / s) for n in reach]
            cell = [mp.exp(n / s) * mp.sinh(1 / (2 * s)) for n in reach]
            cell[-1] = 1 - mp.exp(-1 / (2 * s))
        total = 2 * mp.fsum(point[:-1]) + point[-1]
        gaps = [abs(p / total - c) for p, c in zip(point, cell, strict=True)]
        assert mp.fsum(gaps[:-1]) + gaps[-1] / 2 < 1 / s**2


def test_places_are_uniform_and_below():
    drawn = np.asarray(whole_draws.uniform_below(secure_key(), jnp.asarray(7.0), (70_000,)))
    counts = np.bincount(drawn.astype(int), minlength=7)
    assert counts.size == 7
    assert abs(counts - 10_000).max() < 600
