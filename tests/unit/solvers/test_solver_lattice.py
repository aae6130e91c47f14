"""Noise from a lattice for solvers: what comes out, what rounding costs, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import counted

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp._core import chacha
from jaxdp.noise.kernels import whole_draws
from jaxdp.solvers import lattice

pytestmark = pytest.mark.float64  # of internal kernels, in arrays of JAX

KEY = jax.random.key(4)
NOISES = (
    dp.Gaussian(1.3),
    dp.Laplace(0.7),
    dp.FlippedHuber(0.5, 1.0),
    dp.Histogram(1.0, [1, 2, 1]),
)


def cells(value, step):
    """Steps in a value, which must be whole."""
    count = np.asarray(value) / np.asarray(step)
    np.testing.assert_array_equal(count, np.round(count))
    return count


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: type(n).__name__)
def test_low_bits_do_not_depend_on_the_value(noise):
    """Both parities of the cell come up half the time, for neighbours whose own bits differ."""
    scales = jnp.array([0.3, 5.0])[:, None]
    found = lattice.added(noise, scales, jnp.asarray(0.1), KEY, (2, 4000))
    for value in (0.0, 0.1, 1.0 / 3.0, 1e-30):
        odd = cells(found.to(jnp.full((2, 4000), value)), found.step) % 2
        assert abs(odd.mean() - 0.5) < 6 * 0.5 / np.sqrt(8000)
    noise_cells = cells(found.noise, found.step)
    np.testing.assert_array_equal(
        cells(found.to(jnp.asarray(0.1)), found.step) - noise_cells,
        np.round(0.1 / np.asarray(found.step)) + 0 * noise_cells,
    )
    deviation = np.asarray(found.noise).std(axis=1) / np.sqrt(float(noise.variance()))
    np.testing.assert_allclose(deviation, scales[:, 0], rtol=0.1)
    assert (np.log2(np.asarray(found.step)) % 1 == 0).all()
    assert (found.step <= 2.0**-37 * lattice.unit_of(noise) * scales).all()


def test_the_noise_is_wider_by_what_rounding_moves(monkeypatch):
    """With it, the sensitivity and a step an entry, over the drawn scale, are what is accounted."""
    drawn = []

    def nothing(noise, fine, key, shape):
        drawn.append(fine)
        return np.zeros(shape)

    monkeypatch.setattr(lattice, "drawn", nothing)
    for scale in (0.7, 1.0, 1e200, 1e-200):
        for ratio in (1e-9, 1e-3, 1.0):
            scale, ratio = jnp.asarray(scale), jnp.asarray(ratio)
            step = lattice.added(dp.Gaussian(1.0), scale, ratio / 30.0, KEY, (900,)).step
            wide = step / drawn[-1]
            assert (ratio * scale + 30.0 * step) / wide <= ratio
            assert wide <= scale * (1.0 + 1e-14 + 30.0 * 2.0**-37 / ratio)


def test_rounding_is_to_the_nearest_and_far_values_are_left():
    found = lattice.added(dp.Gaussian(1.0), jnp.ones(()), jnp.ones(()), KEY, ())
    silent = found._replace(noise=jnp.zeros(()))
    assert abs(silent.to(jnp.asarray(0.3)) - 0.3) <= 0.5 * found.step
    for far in (1e6 / 3.0, 1e18 / 3.0, 1e280):
        assert abs(silent.to(jnp.asarray(far)) - far) <= 0.5 * found.step
        cells(silent.to(jnp.asarray(far)), found.step)
    # Halves go to the even one: neighbours that are a step apart are never two apart.
    halves = (jnp.arange(-4.0, 5.0) + 0.5) * found.step
    assert (jnp.diff(silent.to(halves)) <= 2 * found.step).all()


def test_no_scale_is_no_noise_and_a_bad_one_lets_nothing_out():
    none = lattice.added(dp.Gaussian(1.0), jnp.zeros(()), jnp.asarray(jnp.inf), KEY, (3,))
    np.testing.assert_array_equal(none.to(jnp.asarray(0.1)), np.full(3, 0.1))

    @jax.jit
    def release(scale):
        return lattice.added(dp.Laplace(1.0), scale, jnp.ones(()), KEY, (3,)).to(jnp.zeros(()))

    for scale in (jnp.nan, -1.0, jnp.inf):
        assert jnp.isnan(release(jnp.asarray(scale))).all()


def test_floating_point_noise_is_that_of_sample():
    noise = dp.OffsetGaussian(1.0, 1.0)
    found = lattice.added(noise, jnp.asarray(2.0), jnp.ones(()), KEY, (5,), "float")
    np.testing.assert_array_equal(found.to(jnp.asarray(0.1)), 0.1 + 2.0 * noise.sample(KEY, (5,)))
    assert lattice.sampling_error(3, "float") == 1
    assert 3 * 2.0**-74 <= lattice.sampling_error(3, "lattice") < 3 * 2.0**-73
    with pytest.raises(ValueError, match="release must be one of lattice, float"):
        lattice.require("fixed", NOISES[0])
    with pytest.raises(ValueError, match="noise must be one of Gaussian"):
        lattice.require("lattice", dp.Subbotin(1.0, 1.5))


def test_a_batch_draws_what_each_would():
    def draw(key, scale):
        return lattice.added(dp.Gaussian(1.0), scale, jnp.ones(()), key, (40,)).noise

    keys, scales = jax.random.split(KEY, 3), jnp.array([0.1, 2.0, 3.0])
    together = jax.vmap(draw)(keys, scales)
    each = [jax.jit(draw)(*pair) for pair in zip(keys, scales, strict=True)]
    np.testing.assert_array_equal(together, each)


def sgd_plan():
    """Of five parameters in a group, one step, noise of scale .7."""
    bounds, one = jnp.array([0.7]), jnp.ones(())
    group = ((0,), (5,), ((5,),), ("float64",))
    return dpsgd.Plan(bounds, bounds, one, one, one, *group, 1, "gaussian", "add")


def test_a_noisy_sum_is_on_a_lattice_whatever_the_sum():
    """The last bits of each entry are those of whole noise, of which one key draws the same."""
    made, rng = sgd_plan(), np.random.default_rng(0)
    noising = dpsgd.add_noise(made, KEY)
    step = 2.0 ** (-1 - 37)
    sums = [np.zeros(5), *rng.normal(size=(3, 5)), 1e4 * rng.normal(size=5)]
    cells = []
    for total in sums:
        mean, _ = noising.update(jnp.asarray(total), noising.init(None))
        cell = np.asarray(mean) * float(made.expected_batch) / step
        np.testing.assert_array_equal(cell, np.round(cell))
        cells.append(cell - np.round(total / step))
    for other in cells[1:]:
        np.testing.assert_array_equal(other, cells[0])
    assert made.sampling_error < 5 * 2.0**-73


SECURE = jax.random.key(3, impl=chacha.IMPLEMENTATION)


def noise_of_groups(key):
    """Of two groups, of other scales."""
    scales = np.array([1.0, 2.7])
    return [x.noise for x in lattice.added_to_groups(dp.Gaussian(1.0), scales, 0.1, key, (90, 300))]


def test_few_known_draws_compile_nothing_and_a_row_is_drawn_again(monkeypatch):
    with counted() as compiled:
        few = noise_of_groups(SECURE)
    assert compiled == []
    decided = whole_draws._first_turns
    monkeypatch.setattr(whole_draws, "_first_turns", lambda *x: np.full_like(decided(*x), np.inf))
    np.testing.assert_array_equal(np.concatenate(noise_of_groups(SECURE)), np.concatenate(few))


@pytest.mark.long
@pytest.mark.parametrize("key", [SECURE, KEY], ids=["secure", "threefry"])
def test_noise_of_a_known_key_is_that_of_the_program(key, monkeypatch):
    """Drawn by NumPy, and in the program of many."""
    few, traced = noise_of_groups(key), jax.jit(noise_of_groups)(key)
    monkeypatch.setattr(whole_draws, "_MANY", 1)
    for found in (few, noise_of_groups(key)):
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(traced))


@pytest.mark.parametrize("family", dpsgd.FAMILIES)
def test_floating_point_noise_is_asked_for_by_name(family):
    made = sgd_plan()
    for name, value in (("family", family), ("release", "float")):
        object.__setattr__(made, name, value)
    assert made.sampling_error == 1
    noising = dpsgd.add_noise(made, KEY)
    state = noising.init(None)
    now = jax.random.split(state.key)[1]
    draw = jax.random.normal if family == "gaussian" else jax.random.laplace
    expected = 3.0 + made.scales[0] * draw(now, (5,), dtype=jnp.float64)
    mean, _ = noising.update(jnp.full(5, 3.0), state)
    np.testing.assert_array_equal(mean, expected / made.expected_batch)


@pytest.mark.long
def test_an_accelerator_draws_the_same_from_several_keys_at_a_time(monkeypatch):
    keys, fine = jax.random.split(jax.random.key(4), 3), jnp.full(3, 2.0**-30)
    draw = lattice._drawn.__wrapped__  # without its program
    one_by_one = draw(dp.Gaussian(1.0), keys, fine, 64)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(lattice, "_KEYS", 2)
    np.testing.assert_array_equal(draw(dp.Gaussian(1.0), keys, fine, 64), one_by_one)
