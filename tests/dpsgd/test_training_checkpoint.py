"""A killed training of DP-SGD ends as if it had not been; files that are refused."""

import dataclasses
import stat

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp import dpsgd

KEY = jax.random.key(5)
RECORDS = 12
DATA = np.random.default_rng(0).normal(size=(RECORDS, 2))
FIRST = {"b": jnp.zeros((), dtype=jnp.bfloat16), "w": jnp.zeros(2, dtype=jnp.float32)}


def loss(params, x):
    return jnp.sum((params["w"] + params["b"] - x) ** 2)


@pytest.fixture(scope="module", name="plan")
def _plan():
    """Quick to compile: made for all records, run on a part of them, noise of floating point."""
    known = {"clip": 1.0, "sampling_prob": 1.0, "steps": 5, "records": RECORDS}
    made = dpsgd.plan((1.0, 1e-5), FIRST, release="float", **known)
    return dataclasses.replace(made, sampling_prob=jnp.array(0.5))


def train(plan, path=None, key=KEY, optimizer=None, **named):
    optimizer = optimizer or optax.adam(0.1)
    return dpsgd.train(loss, FIRST, DATA, plan, optimizer, key, part=8, every=2, path=path, **named)


@pytest.mark.parametrize("sampling", [None, dp.sampling.WithoutReplacement(6, RECORDS)])
def test_a_resumed_training_ends_the_same(tmp_path, plan, sampling):
    plan, path, told = dataclasses.replace(plan, sampling=sampling), tmp_path / "run", []

    def dies_late(made, params):
        told.append(made)
        if made == 4:
            raise KeyboardInterrupt

    whole = train(plan)
    with pytest.raises(KeyboardInterrupt):
        train(plan, path, callback=dies_late)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for expected in ([2, 4, 5], [2, 4, 5]):
        resumed = train(plan, path, None, callback=dies_late)
        assert told == expected
        for name, leaf in whole.items():
            assert resumed[name].dtype == leaf.dtype
            np.testing.assert_array_equal(resumed[name], leaf)
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.long
def test_a_key_of_the_operating_system_is_kept(tmp_path, plan):
    first = train(plan, tmp_path / "run", None)
    np.testing.assert_array_equal(train(plan, tmp_path / "run", None)["w"], first["w"])
    assert np.any(train(plan, tmp_path / "other", None)["w"] != first["w"])


def test_other_files_are_refused(tmp_path, plan):
    path = tmp_path / "run"
    train(plan, path)
    other = dataclasses.replace(plan, multiplier=plan.multiplier * 2)
    with pytest.raises(ValueError, match="path must be of this plan"):
        train(other, path)
    with pytest.raises(ValueError, match="key must be the one"):
        train(plan, path, jax.random.key(6))
    with pytest.raises(ValueError, match="optimizer must be the one"):
        train(plan, path, optimizer=optax.sgd(0.1))
    with pytest.raises(ValueError, match="every must"):
        dpsgd.train(loss, FIRST, DATA, plan, optax.sgd(0.1), every=0)
    text = path.read_text()
    for changed in ("", "{}", text.replace('"done": 5', '"done": 4')):
        path.write_text(changed)
        with pytest.raises(ValueError, match="path must be a file of train"):
            train(plan, path)


def test_of_two_that_begin_at_once_one_is_refused(tmp_path, plan):
    path = tmp_path / "run"
    late = dpsgd.checkpoint.Checkpoint(path, plan, None)
    train(plan, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="path must be free"):
        late.reached(FIRST, ())
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
