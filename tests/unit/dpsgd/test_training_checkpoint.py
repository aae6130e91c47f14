"""A killed training of DP-SGD ends as if it had not been; files that are refused."""

import dataclasses
import os
import signal
import stat
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp._core.files import sealed, unsealed, write_atomically
from jaxdp.dpsgd.checkpoint import _FORMAT

KEY = jax.random.key(5)
RECORDS = 12
DATA = np.random.default_rng(0).normal(size=(RECORDS, 2))
FIRST = {"b": jnp.zeros((), dtype=jnp.bfloat16), "w": jnp.zeros(2, dtype=jnp.float32)}


def loss(params, x):
    return jnp.sum((params["w"] + params["b"] - x) ** 2)


@pytest.fixture(scope="module", name="plan")
def _plan():
    """Quick to compile: made for all records, run on a part of them, noise of floating point."""
    known = {"clip": 1.0, "sampling_prob": 1.0, "steps": 5, "dataset_size": RECORDS}
    made = dpsgd.plan((1.0, 1e-5), FIRST, release="float", **known)
    return dataclasses.replace(made, sampling=dp.sampling.Poisson(0.5))


def train(plan, path=None, key=KEY, optimizer=None, loss=loss, params=FIRST, data=DATA, **named):
    optimizer = optimizer or optax.adam(0.1)
    return dpsgd.train(
        loss, params, data, plan, optimizer, key, part=8, every=2, path=path, **named
    )


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"sampling": dp.sampling.WithoutReplacement(6, RECORDS), "sampling_prob": None},
        {"clip_quantile": 0.5},
        {"bands": 2},
    ],
    ids=str,
)
def test_a_resumed_training_ends_the_same(tmp_path, named):
    known = {"sampling_prob": 0.5, "steps": 5, "dataset_size": RECORDS, "release": "float"}
    plan = dpsgd.plan(None, FIRST, noise_multiplier=1.0, clip=1.0, **(known | named))
    path, told = tmp_path / "run", []

    def dies_late(made, *_):
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
    assert np.all(train(plan, key=jax.random.key(6))["w"] != whole["w"])
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.long
def test_a_key_of_the_operating_system_is_kept(tmp_path, plan):
    first = train(plan, tmp_path / "run", None)
    np.testing.assert_array_equal(train(plan, tmp_path / "run", None)["w"], first["w"])
    assert np.any(train(plan, tmp_path / "other", None)["w"] != first["w"])


def test_other_files_are_refused(tmp_path, plan):
    path = tmp_path / "run"
    train(plan, path)
    other = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * 2)
    with pytest.raises(ValueError, match="path must be of this plan"):
        train(other, path)
    with pytest.raises(ValueError, match="key must be the one"):
        train(plan, path, jax.random.key(6))
    with pytest.raises(ValueError, match="optimizer must be the one"):
        train(plan, path, optimizer=optax.sgd(0.1))
    others = {
        "data": {"data": DATA + 1e-9},
        "loss": {"loss": lambda params, x: 2.0 * loss(params, x)},
        "params": {"params": FIRST | {"w": jnp.ones(2, dtype=jnp.float32)}},
        "optimizer": {"optimizer": optax.adam(0.2)},
    }
    for name, named in others.items():
        with pytest.raises(ValueError, match=f"{name} must be the one that .* was started with"):
            train(plan, path, **named)
    with pytest.raises(ValueError, match="every must"):
        dpsgd.train(loss, FIRST, DATA, plan, optax.sgd(0.1), every=0)
    text = path.read_text()
    for changed in ("", "{}", text.replace('"done": 5', '"done": 4')):
        path.write_text(changed)
        with pytest.raises(ValueError, match="path must be a file of train"):
            train(plan, path)


def test_a_learning_rate_in_the_optimisers_state_is_compared(tmp_path, plan):
    def optimizer(rate):
        return optax.inject_hyperparams(optax.sgd)(learning_rate=rate)

    train(plan, tmp_path / "run", optimizer=optimizer(0.1))
    train(plan, tmp_path / "run", optimizer=optimizer(0.1))
    with pytest.raises(ValueError, match="optimizer must be the one"):
        train(plan, tmp_path / "run", optimizer=optimizer(0.2))


def test_of_another_version_of_jax_functions_are_not_compared(tmp_path, plan):
    path = tmp_path / "run"
    trained = train(plan, path)
    body = unsealed(_FORMAT, path.read_text())
    body["inputs"]["jax"] = "0.9.9"
    path.write_text(sealed(_FORMAT, body))
    again = train(plan, path, optimizer=optax.adam(0.2))
    np.testing.assert_array_equal(again["w"], trained["w"])
    with pytest.raises(ValueError, match="data must be the one"):
        train(plan, path, data=DATA + 1.0)


def _has_unnamed_files(folder):
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600))
    except (AttributeError, OSError):
        return False
    return os.path.exists("/proc/self/fd")


def test_a_kill_leaves_no_empty_file_and_nothing_beside(tmp_path, plan):
    """Within the first write, then within another one, as a killed process leaves the folder."""
    path = tmp_path / "run"
    killed = (
        "import os, signal, sys\n"
        "from jaxdp._core.files import write_atomically\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(sys.argv[1], 'the key', mode=0o600, replaces=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, path], check=False)
    assert done.returncode == -signal.SIGKILL
    # Where a file can have no name while it is written, nothing at all is left.
    left = [each.name for each in tmp_path.iterdir()]
    assert left == [] if _has_unnamed_files(tmp_path) else "run" not in left
    first = train(plan, path)
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    (tmp_path / f".run.{'0' * 32}").write_text("the key")
    (tmp_path / ".run.mine").write_text("another's")
    np.testing.assert_array_equal(train(plan, path)["w"], first["w"])
    assert sorted(each.name for each in tmp_path.iterdir()) == [".run.mine", "run"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_takes_no_place_that_is_taken(tmp_path, monkeypatch, has_links):
    link = os.link

    def refuse(source, target, **named):
        if not named:
            raise PermissionError("no links here")
        link(source, target, **named)

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "new"
    write_atomically(path, "first", replaces=False)
    with pytest.raises(FileExistsError):
        write_atomically(path, "second", replaces=False)
    assert path.read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


def test_of_two_that_begin_at_once_one_is_refused(tmp_path, plan):
    path = tmp_path / "run"
    late = dpsgd.checkpoint.Checkpoint(path, plan, None)
    train(plan, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="path must be free"):
        late.reached(FIRST, ())
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
