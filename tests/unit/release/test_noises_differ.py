"""One key draws a noise of its own for each leaf, group and step."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core import random_key

KEY = jax.random.key(0)
# Entries of each leaf. chosen: correlations of independent draws are below .6, at 5 deviations
SIZE = 64
LEAVES = {
    "first": {"w": np.zeros((8, 8)), "b": np.zeros(SIZE)},
    "second": {"w": np.zeros((4, 16)), "b": np.zeros(SIZE)},
}


def require_different(noises):
    """No two vectors share an entry, or are of one draw at two scales."""
    vectors = [np.ravel(np.asarray(noise, dtype=np.float64)) for noise in noises]
    assert len(vectors) > 1
    for one, other in itertools.combinations(vectors, 2):
        assert not np.isin(one, other).any()
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.6
        assert abs(np.corrcoef(np.abs(one), np.abs(other))[0, 1]) < 0.6


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("groups", ["leaf", "layer", "all"])
def test_leaves_groups_and_steps_of_a_training(noise, groups):
    """Scales differ, and are equal in one group."""
    clip = {"leaf": [1.0, 1.0, 3.0, 0.2], "layer": [1.0, 3.0], "all": 1.0}[groups]
    plan = dp.dpsgd.plan(
        None,
        LEAVES,
        noise_multiplier=1.0,
        clip=jnp.asarray(clip),
        groups=groups,
        noise=noise,
        sampling_prob=0.1,
        steps=3,
        dataset_size=100,
    )
    noising = dp.dpsgd.add_noise(plan, KEY)
    state, step, found = noising.init(LEAVES), jax.jit(noising.update), []
    for _ in range(3):
        noisy, state = step(LEAVES, state)
        found += jax.tree.leaves(noisy)
    require_different(found)
    unit = 1.0 if noise == "gaussian" else 2.0**0.5
    for leaf, group in enumerate(plan.members):
        deviation = unit * float(plan.scales[group] / plan.expected_batch)
        assert np.std(found[leaf::4]) == pytest.approx(deviation, rel=0.4)


@pytest.mark.parametrize("noise", [dp.Gaussian(2.0), dp.Laplace(2.0)])
def test_leaves_of_a_release(noise):
    require_different(jax.tree.leaves(dp.release(dp.Mechanism(noise, 1.0), LEAVES, KEY).value))


def test_entries_of_a_release():
    drawn = np.asarray(dp.release(dp.Mechanism(dp.Gaussian(2.0), 1.0), np.zeros(4096), KEY).value)
    assert np.unique(drawn).size == drawn.size


def test_keys_are_256_bits_of_the_operating_system(monkeypatch):
    """Also of what draws without a key."""
    asked = []

    def known(count):
        asked.append(count)
        return bytes(range(len(asked), len(asked) + count))

    monkeypatch.setattr(random_key.os, "urandom", known)
    keys = [dp.secure_key() for _ in range(3)]
    for index, key in enumerate(keys):
        words = np.asarray(jax.random.key_data(key))
        assert words.tobytes() == bytes(range(index + 1, index + 33))
    plan = {"epsilon": 1.0, "delta": 1e-6, "release": [{"statistic": "count"}]}
    dp.release(dp.Mechanism(dp.DiscreteLaplace(2.0), 1.0), 0)
    dp.tables.release({"a": [1, 2]}, dp.tables.plan(plan))
    assert asked == [32] * 5


def test_draws_depend_on_every_bit_of_a_key(monkeypatch):
    """Of a key of 32 zero bytes, and of each with one bit set."""

    def seeds():
        yield bytes(32)
        for place in range(256):
            yield (1 << place).to_bytes(32, "little")

    bits = seeds()
    monkeypatch.setattr(random_key.os, "urandom", lambda count: next(bits)[:count])
    keys = jnp.stack([dp.secure_key() for _ in range(257)])
    for derived in (lambda k: k, jax.random.split, lambda k: jax.random.fold_in(k, 7)):
        drawn = np.asarray(jax.vmap(lambda k, f=derived: bits_of(f(k)))(keys))
        assert np.unique(drawn, axis=0).shape == (257, 4)


def bits_of(key):
    return jax.random.bits(key.reshape(-1)[0], (4,))
