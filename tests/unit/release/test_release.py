"""Releases from a lattice: guarantee, rounding and shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp

GAUSSIAN = dp.Mechanism(dp.Gaussian(3.0), 1.0)
NOISES = {
    "gaussian": dp.Gaussian(3.0),
    "laplace": dp.Laplace(2.0),
    "flipped_huber": dp.FlippedHuber(1.0, 2.0),
    "offset_gaussian": dp.OffsetGaussian(1.0, 2.0),
    "truncated_laplace": dp.TruncatedLaplace(2.0, 3.0),
    "histogram": dp.Histogram(0.5, [1, 2, 4, 8, 4, 2, 1], atom=0.01),
    "discrete_gaussian": dp.DiscreteGaussian(3.0),
    "discrete_laplace": dp.DiscreteLaplace(2.0),
    "discrete_histogram": dp.DiscreteHistogram([1, 2, 4, 2, 1]),
}


# Drawn as the flipped Huber is.
DEAR = ("offset_gaussian",)


@pytest.mark.float64
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in DEAR else ()) for n in NOISES]
)
def test_moments_and_guarantee(name):
    noise = NOISES[name]
    whole = name.startswith("discrete")
    shape = (20_000,)
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), noise)
    scalar = name in ("gaussian", "laplace", "discrete_laplace")
    mechanism = dp.Mechanism(noise if scalar else batch, jnp.ones(() if scalar else shape))
    value = np.full(shape, 7) if whole else np.full(shape, 7.3)
    released = mechanism.release(value, jax.random.key(2))
    drawn = np.asarray(released.value) - value
    deviation = float(np.sqrt(noise.variance()))
    assert abs(drawn.mean()) < 6 * deviation / np.sqrt(drawn.size)
    assert abs(drawn.std() / deviation - 1) < 0.05
    assert released.value.dtype == (jnp.int64 if whole else jnp.float64)
    one = dp.Mechanism(noise, 1.0).release(7 if whole else 7.3, jax.random.key(2))
    for epsilon in (0.0, 0.4, 2.0):
        exact = dp.Mechanism(noise, 1.0).log_delta(epsilon)
        assert one.log_delta(epsilon) >= exact
    inside = np.abs(drawn) <= np.asarray(released.half_width(0.9))
    assert inside.mean() > 0.89


def test_rounding_is_in_the_sensitivity():
    """Neighbours that are one apart round to multiples that are at most this far apart."""
    released = GAUSSIAN.release(np.zeros(10**4), jax.random.key(0))
    fine = 2.0**-31
    assert released.granularity == fine
    assert released.mechanism.sensitivity >= 1.0 + 100.0 * fine
    assert released.mechanism.sensitivity < 1.0 + 100.1 * fine
    assert GAUSSIAN.release(5, jax.random.key(0)).mechanism.sensitivity == 1.0
    assert released.sampling_error >= 10**4 * 2.0**-66
    assert released.delta(1.0) > GAUSSIAN.delta(1.0)


def test_epsilon_is_one_that_delta_meets():
    released = GAUSSIAN.release(1.5, jax.random.key(0))
    for delta in (1e-3, 1e-9, 1e-15):
        assert released.delta(released.epsilon(delta)) <= delta
    assert released.epsilon(1e-25) == jnp.inf


def test_coarse_outputs_are_multiples_and_cost_nothing():
    released = GAUSSIAN.release(np.full(100, 10.3), jax.random.key(0), granularity=0.25)
    assert (released.value * 4 == jnp.round(released.value * 4)).all()
    fine = GAUSSIAN.release(np.full(100, 10.3), jax.random.key(0))
    assert (abs(released.value - fine.value) <= 0.125).all()
    assert released.mechanism.sensitivity == fine.mechanism.sensitivity


@pytest.mark.float64
def test_trees_keys_and_transformations():
    tree = {"a": jnp.ones((2, 3), jnp.float32), "b": jnp.zeros(4)}
    released = GAUSSIAN.release(tree)
    assert jax.tree.map(jnp.shape, released.value) == {"a": (2, 3), "b": (4,)}
    assert released.is_secure_key
    key = jax.random.key(3)
    eager = dp.release(GAUSSIAN, [1.0, 2.0], key)
    assert not eager.is_secure_key
    traced = jax.jit(lambda k, x: dp.release(GAUSSIAN, x, k).value)(key, jnp.asarray([1.0, 2.0]))
    np.testing.assert_array_equal(traced, eager.value)
    assert (GAUSSIAN.release(np.zeros(9)).value != GAUSSIAN.release(np.zeros(9)).value).all()


def test_laplaces_cover_vectors_and_trees_in_the_sum_of_absolute_values():
    tree = {"a": np.full((2, 3), 7), "b": np.zeros(4, dtype=int)}
    counts = dp.Mechanism(dp.DiscreteLaplace(2.0), 1.0).release(tree, jax.random.key(1))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), counts.value) == {
        "a": ((2, 3), jnp.int64),
        "b": ((4,), jnp.int64),
    }
    assert counts.mechanism.sensitivity == 1.0
    reals = jax.tree.map(lambda x: x + 0.3, tree)
    sums = dp.Mechanism(dp.Laplace(2.0), 1.0).release(reals, jax.random.key(1))
    # Ten entries are each rounded by a step of 2^-31 at most, between neighbours.
    assert 1.0 + 10 * 2.0**-31 <= sums.mechanism.sensitivity < 1.0 + 10.1 * 2.0**-31
    assert sums.half_width(0.9) == dp.Laplace(2.0).quantile(0.95) + sums.granularity


def test_bad_traced_numbers_let_nothing_of_the_value_out():
    """Far values are clipped, and what is no number is 0."""
    key = jax.random.key(0)

    @jax.jit
    def release(scale, value, key):
        return dp.Mechanism(dp.Gaussian(scale), 1.0).release(value, key).value

    for scale in (jnp.nan, -1.0, jnp.inf):
        assert not abs(release(jnp.asarray(scale), jnp.asarray(7.0), key) - 7.0) < 1e-3
    three = jnp.asarray(3.0)
    assert release(three, jnp.asarray(jnp.nan), key) == release(three, jnp.asarray(0.0), key)
    assert abs(release(three, jnp.asarray(jnp.inf), key)) < 1e10
    with pytest.raises(ValueError, match="alpha must be at least"):
        dp.Mechanism(dp.FlippedHuber(0.0, 1.0), 1.0).release(1.0, key)


@pytest.mark.float64
@pytest.mark.parametrize("noise", ["gaussian", "discrete_laplace"])
def test_whole_numbers_of_any_size_are_clipped_before_they_are_cast(noise):
    """Neighbours stay neighbours: 2^63 - 1 and 2^63 as what lies 2^61 or 2^53 from 0."""
    mechanism, key = dp.Mechanism(NOISES[noise], 1.0), jax.random.key(3)
    end = 2.0**61 if noise == "discrete_laplace" else min(2.0**53, 2.0**61 * 2.0**-32 * 2.0)
    many = [np.uint64(2**63 - 1), np.uint64(2**63), np.uint64(2**64 - 1), 2**63, 2**64, 10**30]
    one = mechanism.release(2**63 - 1, key).value
    assert one == pytest.approx(end, rel=1e-6)
    for value in (*many, jnp.uint64(2**63), np.array(2**63, np.uint64), np.int64(2**63 - 1)):
        assert mechanism.release(value, key).value == one, value
    wide = dp.Mechanism(dp.Gaussian(2.0**33), 1.0)
    assert wide.release(2**53, key).value == wide.release(2**60, key).value
    for value in (-(2**63), np.int64(-(2**63)), -(2**64)):
        assert mechanism.release(value, key).value == pytest.approx(-end, rel=1e-6), value
    if noise == "gaussian":
        traced = jax.jit(lambda v, k: mechanism.release(v, k).value)
        assert traced(jnp.uint64(2**63), key) == traced(jnp.uint64(2**63 - 1), key) == one
    # Below, nothing is moved.
    assert abs(mechanism.release(np.uint64(2**29), key).value - 2.0**29) < 100
    for dtype in (np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64):
        assert mechanism.release(dtype(7), key).value == mechanism.release(7, key).value


def test_lists_and_trees_of_large_whole_numbers_are_clipped_too():
    gaussian, key = dp.Mechanism(dp.Gaussian(3.0), 1.0), jax.random.key(3)
    laplace = dp.Mechanism(dp.DiscreteLaplace(2.0), 1.0)
    near = np.asarray(laplace.release([2**61, -(2**61), 5], key).value)
    for values in ([2**63, -(2**63), 5], [2**64, -(10**30), 5], [2**62, -(2**62), 5]):
        assert np.array_equal(laplace.release(values, key).value, near)
    assert near.dtype == np.int64
    assert abs(near[2] - 5) < 100
    tree = gaussian.release({"a": 2**70, "b": [2**63, 1.5]}, key).value
    assert float(tree["a"]) == pytest.approx(2.0**29 * 4.0, rel=1.0)
    assert abs(float(tree["b"][1]) - 1.5) < 100


@pytest.mark.skipif(np.finfo(np.longdouble).bits == 64, reason="it is float64 here")
def test_a_longdouble_is_refused_rather_than_rounded():
    with pytest.raises(ValueError, match="value must be float64 or narrower"):
        dp.release(GAUSSIAN, np.longdouble(1.0))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dp.release(dp.Gaussian(1.0), 1.0), "."),  # pyright: ignore
        (lambda: dp.release(GAUSSIAN, 1.0, key=3), "."),  # pyright: ignore
        (lambda: dp.release(GAUSSIAN, np.nan), "value must"),
        (lambda: dp.release(GAUSSIAN, np.inf), "value must be finite"),
        (lambda: dp.release(GAUSSIAN, "a"), "value must"),
        (lambda: dp.release(GAUSSIAN, [1.0, "a"]), "value must"),
        (lambda: dp.release(GAUSSIAN, 1.0, granularity=0.3), "granularity must be a power of two"),
        (lambda: dp.release(GAUSSIAN, 1.0, granularity=2.0**-60), "granularity must be at least"),
        (lambda: dp.release(GAUSSIAN, []), "value must"),
        (lambda: dp.Mechanism(dp.DiscreteGaussian(1.0), 1.0).release(0.5), "whole numbers"),
        (
            lambda: dp.Mechanism(dp.Staircase(1.0, 1.0, 0.4), 1.0).release(0.5),
            "noise must be one of Gau",
        ),
        (lambda: dp.Mechanism(dp.Gaussian(jnp.inf), 1.0).release(0.5), "finite scale"),
        (lambda: dp.Mechanism(dp.FlippedHuber(1.0, 1.0), 1.0).release([1.0, 2.0]), "batch"),
        (
            lambda: dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, "add_remove").release(0.5),
            "sampling_prob must be 1",
        ),
    ],
)
def test_bad_arguments_are_refused(call, said):
    with pytest.raises((TypeError, ValueError), match=said):
        call()


@pytest.mark.parametrize(
    "noise", [dp.DiscreteGaussian(2.0), dp.TruncatedLaplace(1.0, 5.0), dp.Gaussian(3.0)]
)
def test_one_noise_covers_disjoint_cells(noise):
    """A record moves one entry: its guarantee covers all, and each has its noise."""
    mechanism = dp.Mechanism(noise, 1.0)
    counts = np.arange(2000)
    released = dp.release(mechanism, counts, jax.random.key(0), disjoint=True)
    errors = np.asarray(released.value) - counts
    assert np.var(errors) == pytest.approx(float(noise.variance()), rel=0.2)
    assert abs(np.corrcoef(errors[1:], errors[:-1])[0, 1]) < 0.1
    alone = dp.release(mechanism, 3, jax.random.key(0))
    assert released.mechanism.sensitivity == alone.mechanism.sensitivity
    assert released.sampling_error == pytest.approx(2000 * float(alone.sampling_error))
    with pytest.raises(ValueError, match="disjoint must be False with a batch"):
        dp.release(dp.Mechanism(noise, [1.0, 1.0]), counts, disjoint=True)
