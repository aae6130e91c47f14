"""Sweeps: in memory and streamed, resumed, damaged, by executors and over devices."""

import functools
import itertools
import multiprocessing
import runpy
import shutil
import signal
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import xarray
from processes import process, run

import jaxdp as dp

AXES = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}
sweep = functools.partial(dp.sweep, progress=False)


def product(scale, epsilon):
    return np.asarray(scale) * np.asarray(epsilon)


def log_delta(scale, epsilon):
    return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)


@pytest.fixture(params=["in memory", "streamed"])
def to(request, tmp_path):
    """Where a sweep goes."""
    return None if request.param == "in memory" else tmp_path / "grid.zarr"


@pytest.mark.parametrize("chunk", [4, 25, 1000])
def test_it_is_the_function(to, chunk):
    found = sweep(log_delta, AXES, to, chunk=chunk)
    expected = log_delta(AXES["scale"][:, None], AXES["epsilon"][None, :])
    np.testing.assert_allclose(found["value"], expected, rtol=1e-12)
    assert found["value"].dims == ("scale", "epsilon")
    known = {"function": "log_delta", "precision": "float64", "failures": ""}
    assert known.items() <= found.attrs.items()


FACTOR = 1.0


def of_a_global(scale):
    return next(FACTOR * x for x in [scale])


def of_a_helper(scale):
    return of_a_global(scale)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def times(self, scale):
        return self.factor * scale


def closure(factor):
    return lambda scale: {"a": factor * scale}


MANY, OTHERS = np.zeros(10_000), np.zeros(10_000)
OTHERS[5_000] = 1.0
BOUND = functools.partial(lambda scale, many: scale, many=MANY)
# Another object of a method, other bound values, another source.
TWO_FUNCTIONS = [
    (Scaled(1.0).times, Scaled(2.0).times),
    (closure(3.0), closure(4.0)),
    (lambda scale: scale, product),
    (BOUND, functools.partial(BOUND.func, many=OTHERS)),
]


@pytest.mark.parametrize(("first", "second"), TWO_FUNCTIONS)
def test_a_store_sees_another_function(tmp_path, first, second):
    to = tmp_path / "grid.zarr"
    sweep(first, {"scale": [1.0]}, to)
    with pytest.raises(ValueError, match="another sweep"):
        sweep(second, {"scale": [1.0]}, to)
    sweep(first, {"scale": [1.0]}, to)


@pytest.mark.parametrize("function", [of_a_global, of_a_helper])
def test_a_store_sees_a_changed_global(tmp_path, monkeypatch, function):
    """Also of a function of the module that the function calls."""
    sweep(function, {"scale": [1.0, 2.0]}, tmp_path / "grid.zarr")
    monkeypatch.setitem(of_a_global.__globals__, "FACTOR", 5.0)
    with pytest.raises(ValueError, match="another sweep"):
        sweep(function, {"scale": [1.0, 2.0]}, tmp_path / "grid.zarr")


def test_functions_without_source_text_are_refused_a_store(tmp_path):
    module: dict[str, object] = {"__name__": "of_the_test"}
    exec("def function(scale):\n    return scale", module)
    np.testing.assert_array_equal(sweep(module["function"], {"scale": [1.0]})["value"], [1.0])
    with pytest.raises(ValueError, match="must be in a file or a notebook"):
        sweep(module["function"], {"scale": [1.0]}, tmp_path / "grid.zarr")
    assert list(tmp_path.iterdir()) == []


def picky(scale, epsilon):
    """Fails at one point."""
    if np.any((np.asarray(scale) == 0.5) & (np.asarray(epsilon) == 4.0)):
        raise KeyError("too\nnoisy")
    return np.asarray(scale) * np.exp(np.asarray(epsilon))


def test_points_that_fail_have_a_reason(to):
    found = sweep(picky, AXES, to, chunk=11)
    assert np.argwhere(np.isnan(found["value"].values)).tolist() == [[0, 10]]
    assert np.argwhere(found["status"].values != 1).tolist() == [[0, 10]]
    assert found.attrs["failures"] == "scale=0.5, epsilon=4: KeyError: 'too\\nnoisy'"


def test_functions_that_fail_everywhere_say_so_at_once():
    calls = []

    def broken(scale):
        calls.append(1)
        raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        sweep(broken, {"scale": np.linspace(1.0, 2.0, 2**14)})
    assert len(calls) < 100


def test_more_failures_than_have_their_reason_stored(to):
    """A first block that fails does not end the sweep."""

    def seldom(scale):
        if np.any(np.asarray(scale) < 120.0):
            raise ValueError("too little")
        return scale

    found = sweep(seldom, {"scale": np.arange(128.0)}, to, chunk=64)
    np.testing.assert_array_equal(found["status"], [*[2] * 120, *[1] * 8])
    assert np.isnan(found["value"][:120]).all()
    assert len(found.attrs["failures"].splitlines()) == 100


def test_each_block_is_computed_once(to):
    """A point alone gives the results' names."""
    sizes = []

    def counted(scale, epsilon):
        sizes.append(scale.size)
        return scale

    sweep(counted, AXES, to, chunk=77)
    assert sizes == [1, 77]


@pytest.mark.parametrize(
    ("function", "axes", "named", "message"),
    [
        (product, {}, {}, "at least one axis"),
        (product, {"not a name": [1.0]}, {}, "named as arguments"),
        (product, {"status": [1.0]}, {}, "not status"),
        (product, {"scale": []}, {}, "not empty"),
        (product, {"scale": [1.0, np.nan]}, {}, "finite"),
        (product, {"scale": [1.0]}, {"chunk": 0}, "chunk"),
        (lambda scale: 1.0, {"scale": [1.0]}, {}, "arguments' shape"),
        (lambda scale: {"scale": scale}, {"scale": [1.0]}, {}, "named as an axis or status"),
        (lambda scale: {"status": scale}, {"scale": [1.0]}, {}, "named as an axis or status"),
    ],
)
def test_bad_input_and_results_that_do_not_fit(function, axes, named, message):
    with pytest.raises(ValueError, match=message):
        sweep(function, axes, **named)


def test_other_folders(tmp_path):
    (tmp_path / "mine.zarr").mkdir()
    with pytest.raises(ValueError, match="new folder"):
        sweep(product, AXES, tmp_path / "mine.zarr")
    sweep(product, AXES, tmp_path / "grid.zarr")
    with pytest.raises(ValueError, match="another sweep"):
        sweep(product, {**AXES, "scale": [1.0]}, tmp_path / "grid.zarr")
    with pytest.raises(ValueError, match="another sweep"):
        sweep(product, AXES, tmp_path / "grid.zarr", chunk=7)


def contents(store):
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


KILLED = """
import os, signal, sys
import numpy as np
import jaxdp as dp
def work(scale, epsilon):
    calls.append(1)
    if len(calls) > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return np.asarray(scale) * np.asarray(epsilon)
calls = []
axes = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}
dp.sweep(work, axes, sys.argv[1], chunk=11, progress=False)
"""


def test_killed_sweeps_resume(tmp_path, monkeypatch):
    """SIGKILL in the middle of another process: no chunk is computed again."""
    script, broken = tmp_path / "script.py", tmp_path / "broken.zarr"
    script.write_text(KILLED)
    # One call finds the names of the results, three fill chunks.
    assert process(script, broken, 4).returncode == -signal.SIGKILL
    half = xarray.open_zarr(broken, consolidated=False)
    np.testing.assert_array_equal(half["status"].sum("epsilon"), [11, 11, 11, 0, 0, 0, 0])
    monkeypatch.setattr(sys, "argv", ["", str(broken), "99"])
    assert len(runpy.run_path(str(script))["calls"]) == 4
    found = xarray.open_zarr(broken, consolidated=False)["value"]
    np.testing.assert_array_equal(found, found["scale"] * found["epsilon"])


CHUNKS = [f"{name}/c/{i}/0" for name in ("value", "status") for i in range(7)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    to = tmp_path_factory.mktemp("whole") / "grid.zarr"
    sweep(picky, AXES, to, chunk=11)
    return to


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damaged_chunks_are_computed_again(whole, tmp_path, damage):
    """And no other one, whatever is damaged: results, status, or an axis.

    A plain reader sees no wrong number: Zarr's own checksum finds it, without the sweep.
    """
    for place in (*CHUNKS[::3], "scale/c/0", "epsilon/c/0"):
        to = tmp_path / place.replace("/", "") / "grid.zarr"
        shutil.copytree(whole, to)
        content = bytearray((to / place).read_bytes())
        content[-7] ^= 1
        (to / place).write_bytes(content[: len(content) // 2] if damage == "cut" else content)
        with pytest.raises((ValueError, RuntimeError)):
            xarray.open_zarr(to, consolidated=False).load()
        found = sweep(picky, AXES, to, chunk=11)
        again = xarray.open_zarr(to, consolidated=False)
        xarray.testing.assert_identical(again.load(), found.load())
        assert contents(to) == contents(whole), place


def test_damaged_metadata_is_an_error(whole, tmp_path):
    for number, (place, content) in enumerate(
        itertools.product(("zarr.json", "value/zarr.json"), (b"", b"[" * 10_000, b"{}", b"0"))
    ):
        to = tmp_path / f"{number}.zarr"
        shutil.copytree(whole, to)
        (to / place).write_bytes(content)
        with pytest.raises(ValueError, match="to must be a new folder or this sweep's"):
            sweep(picky, AXES, to, chunk=11)


def test_an_executor_does_the_work(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = sweep(picky, AXES, tmp_path / "grid.zarr", chunk=20, executor=pool)
        xarray.testing.assert_equal(found.load(), sweep(picky, AXES))
    fork = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pytest.raises(ValueError, match="must not fork"):
        sweep(product, AXES, executor=fork)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_does_the_work(tmp_path):
    distributed = pytest.importorskip("distributed")
    named = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**named) as cluster, distributed.Client(cluster) as client:
        pool = client.get_executor()
        found = sweep(picky, AXES, tmp_path / "grid.zarr", chunk=11, executor=pool)
    xarray.testing.assert_equal(found.load(), sweep(picky, AXES))


DEVICES = """
import sys, threading
import jax
import jax.numpy as jnp
import numpy as np
import jaxdp as dp
devices = jax.local_devices()
together, used = threading.Barrier(len(devices), timeout=60), []
def function(scale, epsilon):
    assert scale.dtype == jnp.float64 and len(scale.sharding.device_set) == 1
    if scale.size > 1:
        # What comes from the host, as a composition's tables do.
        assert (jnp.zeros(3) + 1.0).sharding.device_set == scale.sharding.device_set
        used.extend(scale.sharding.device_set)
        together.wait()
    return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)
axes = {"scale": np.linspace(0.5, 3.0, 8), "epsilon": np.linspace(0.0, 4.0, 11)}
found = dp.sweep(function, axes, chunk=11, progress=False)
assert set(used) == set(devices), used
def wrong(scale):
    return scale if scale.size == 1 else scale[:1]
try:
    dp.sweep(wrong, {"scale": np.arange(8.0)}, chunk=2, progress=False)
except ValueError as error:
    assert "arguments' shape" in str(error)
else:
    raise AssertionError("no error")
sys.stdout.write(np.asarray(found["value"]).tobytes().hex())
"""


@pytest.mark.long
def test_eight_devices_are_one():
    """Every block is on one device, what a composition computes too; the digits are the same."""
    found = []
    for count in ("1", "8"):
        flags = f"--xla_force_host_platform_device_count={count}"
        hexadecimal = run(DEVICES, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
        found.append(np.frombuffer(bytes.fromhex(hexadecimal)))
    np.testing.assert_array_equal(*found)
