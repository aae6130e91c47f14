"""Where a training's records lie: on one device or several, in a file, behind a function."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from processes import run

import jaxdp as dp
from jaxdp import dpsgd

pytestmark = pytest.mark.float64

RECORDS = 40
RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(RECORDS, 3)).astype(np.float32), RNG.integers(0, 2, RECORDS)
FIRST = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}


def loss(params, example):
    scores = example[0] @ params["w"] + params["b"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, example[1])


@pytest.fixture(scope="module", name="plan")
def _plan():
    known = {"clip": 1.0, "sampling_prob": 0.5, "steps": 3, "dataset_size": RECORDS}
    return dpsgd.plan(None, FIRST, noise_multiplier=1.0, release="float", **known)


def train(plan, data, **named):
    known = {"part": 7, "progress": False} | named
    return dpsgd.train(loss, FIRST, data, plan, optax.sgd(0.5), jax.random.key(0), **known)


def mapped(tmp_path):
    files = []
    for name, array in (("x", FEATURES), ("y", LABELS)):
        file = np.memmap(tmp_path / name, array.dtype, "w+", shape=array.shape)
        file[:] = array
        file.flush()
        files.append(np.memmap(tmp_path / name, array.dtype, "r", shape=array.shape))
    return tuple(files)


def read(indices):
    return FEATURES[indices], LABELS[indices]


def require_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_all_sources_train_the_same(plan, tmp_path):
    expected = train(plan, (FEATURES, LABELS))
    require_equal(train(plan, mapped(tmp_path)), expected)
    require_equal(train(plan, (mapped(tmp_path)[0], LABELS)), expected)
    require_equal(train(plan, read, records=RECORDS), expected)
    require_equal(train(plan, (FEATURES, LABELS), records=RECORDS), expected)


def test_only_batches_are_read(plan, tmp_path):
    asked = []

    class Watched(np.memmap):
        def __getitem__(self, indices):
            asked.append(np.asarray(indices))
            return super().__getitem__(indices)

    some = dataclasses.replace(plan, sampling=dp.sampling.Poisson(0.1))
    train(some, (mapped(tmp_path)[0].view(Watched), LABELS))
    assert all(indices.shape == (7,) for indices in asked)
    assert len(np.unique(np.concatenate(asked))) < RECORDS / 2


@pytest.mark.parametrize(
    ("data", "records", "why"),
    [
        (read, None, "records"),
        (lambda indices: read(indices[1:]), RECORDS, "data must return one row for each of 7"),
        (lambda indices: (FEATURES[indices], LABELS), RECORDS, r"data\(indices\)"),
        ((FEATURES, LABELS), RECORDS + 1, "records must be the 40 of data"),
    ],
    ids=["none", "short", "uneven", "other"],
)
def test_data_that_do_not_fit(plan, data, records, why):
    with pytest.raises(ValueError, match=why):
        train(plan, data, records=records)
    with pytest.raises(ValueError, match="part must be"):
        train(plan, (FEATURES, LABELS), part=0)


@pytest.mark.parametrize(("shape", "part"), [((2**20,), 16), ((4, 2**18), 48)])
def test_parts_are_smaller_where_gradients_are_large(shape, part):
    """2^24 numbers at a time: of a vector itself, of a dense layer the factors of its gradient."""
    asked = []

    def rows(indices):
        asked.append(len(indices))
        return np.ones((len(indices), 4), np.float32)

    def loss(params, x):
        return jnp.sum(x @ params if params.ndim == 2 else x[0] * params)

    params = jnp.zeros(shape, jnp.float32)
    known = {"sampling_prob": 1.0, "steps": 1, "dataset_size": 32, "release": "float"}
    plan = dpsgd.plan(None, params, noise_multiplier=1.0, clip=1.0, **known)
    key = jax.random.key(0)
    dpsgd.train(loss, params, rows, plan, optax.sgd(0.5), key, records=32, progress=False)
    assert asked[-1] == part


def test_a_training_resumes_from_a_file_or_a_function(plan, tmp_path):
    def stops(made, params):
        raise KeyboardInterrupt

    expected = train(plan, (FEATURES, LABELS))
    maps = mapped(tmp_path)
    for name, data, named in (("map", maps, {}), ("function", read, {"records": RECORDS})):
        path = tmp_path / f"run of {name}"
        with pytest.raises(KeyboardInterrupt):
            train(plan, data, path=path, every=1, callback=stops, **named)
        other = {"map": (maps[0], LABELS[::-1]), "function": lambda i: read(i + 1)}[name]
        with pytest.raises(ValueError, match="data must be the one"):
            train(plan, other, path=path, every=1, **named)
        require_equal(train(plan, data, path=path, every=1, **named), expected)
    # A map is known by its content, as an array is.
    train(plan, (FEATURES, LABELS), path=tmp_path / "run of map", every=1)


DEVICES = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import jaxdp as dp
rng = np.random.default_rng(0)
data = rng.normal(size=(64, 8)).astype(np.float32), rng.integers(0, 3, 64)
first = {
    name: jnp.asarray(rng.normal(size=shape), jnp.float32)
    for name, shape in (("in", (8, 16)), ("out", (16, 3)))
}
def loss(params, example):
    hidden = jnp.tanh(example[0] @ params["in"])
    scores = jax.checkpoint(lambda w, x: x @ w)(params["out"], hidden)
    return optax.softmax_cross_entropy_with_integer_labels(scores, example[1])
plan = dp.dpsgd.plan(
    None, first, noise_multiplier=1.0, clip=1.0, sampling_prob=0.3, steps=3, dataset_size=64,
    release="float",
)
def train(data, params=first, **named):
    key = jax.random.key(0)
    return dp.dpsgd.train(loss, params, data, plan, optax.sgd(0.5), key, progress=False, **named)
one = jax.tree.leaves(train(data))
for kind in (AxisType[name] for name in sys.argv[1:]):
    mesh = jax.make_mesh((4,), ("records",), axis_types=(kind,))
    parts = NamedSharding(mesh, PartitionSpec("records"))
    sharded = tuple(jax.device_put(x, parts) for x in data)
    assert len(sharded[0].sharding.device_set) == 4
    four = jax.tree.leaves(train(sharded))
    print(all(np.array_equal(x, y) for x, y in zip(one, four)))
    whole = NamedSharding(mesh, PartitionSpec())
    everywhere, seen = jax.device_put(first, whole), []
    for records in (sharded, lambda i: jax.device_put((data[0][i], data[1][i]), whole)):
        named = {"records": 64} if callable(records) else {}
        named["callback"] = lambda made, params: seen.extend(jax.tree.leaves(params))
        found = jax.tree.leaves(train(records, everywhere, **named))
        print(all(np.array_equal(x, y) for x, y in zip(one, found)))
        print(all(x.sharding == whole for x in (*found, *seen)))
"""


@pytest.mark.parametrize("kind", ["Explicit", pytest.param("Auto", marks=pytest.mark.long)])
def test_four_devices_train_what_one_does(kind):
    """Bit for bit: sums of clipped gradients are exact in any order."""
    found = run(DEVICES, kind, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert found.split() == ["True"] * 5
