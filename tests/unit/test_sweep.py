"""Sweeps: in memory and streamed, resumed, damaged, by executors and over devices."""

import functools
import itertools
import multiprocessing
import pickle
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
import xarray
from matplotlib import pyplot
from processes import process, run

import jaxdp as dp

matplotlib.use("Agg")

AXES = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}
sweep = functools.partial(dp.sweep, progress=False)


def product(scale, epsilon):
    return np.asarray(scale) * np.asarray(epsilon)


def log_delta(scale, epsilon):
    return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)


def test_in_memory_it_is_the_function():
    found = sweep(log_delta, AXES, chunk=25)
    expected = log_delta(AXES["scale"][:, None], AXES["epsilon"][None, :])
    np.testing.assert_allclose(found["value"], expected, rtol=1e-12)
    assert found["value"].dims == ("scale", "epsilon")
    assert found.attrs == {"function": "log_delta", "precision": "float64", "failures": ""}


@pytest.mark.parametrize("chunk", [1, 4, 11, 30, 77, 1000])
def test_every_way_to_cut_it_gives_the_same(chunk, tmp_path):
    expected = product(AXES["scale"][:, None], AXES["epsilon"][None, :])
    np.testing.assert_array_equal(sweep(product, AXES, chunk=chunk)["value"], expected)
    stored = sweep(product, AXES, tmp_path / "grid.zarr", chunk=chunk)
    np.testing.assert_array_equal(stored["value"], expected)


def test_functions_of_all_kinds(tmp_path):
    factor = 3.0

    def closure(scale, epsilon):
        return {"a": factor * scale, "b": epsilon}

    found = sweep(closure, AXES, tmp_path / "closure.zarr", chunk=20)
    np.testing.assert_array_equal(found["a"][:, 0], 3.0 * AXES["scale"])
    np.testing.assert_array_equal(found["b"][0], AXES["epsilon"])
    bound = functools.partial(lambda scale, epsilon, extra: scale + extra, extra=1.0)
    found = sweep(bound, AXES)
    np.testing.assert_array_equal(found["value"][:, 0], AXES["scale"] + 1.0)
    assert found.attrs["extra"] == 1.0
    factor = 4.0
    with pytest.raises(ValueError, match="another sweep"):
        sweep(closure, AXES, tmp_path / "closure.zarr", chunk=20)


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


@pytest.mark.parametrize("function", [of_a_global, of_a_helper])
def test_a_store_sees_a_changed_global(tmp_path, monkeypatch, function):
    """Also of a function of the module that the function calls."""
    sweep(function, {"scale": [1.0, 2.0]}, tmp_path / "grid.zarr")
    monkeypatch.setitem(of_a_global.__globals__, "FACTOR", 5.0)
    with pytest.raises(ValueError, match="another sweep"):
        sweep(function, {"scale": [1.0, 2.0]}, tmp_path / "grid.zarr")


def test_a_store_sees_another_function(tmp_path):
    """Another source, other bound values, another object of a method, other versions."""
    many = np.zeros(10_000)
    other = many.copy()
    other[5_000] = 1.0
    calls = [
        Scaled(1.0).times,
        Scaled(2.0).times,
        lambda scale: scale,
        lambda scale: scale + 1.0,
        functools.partial(lambda scale, many: scale, many=many),
        functools.partial(lambda scale, many: scale, many=other),
    ]
    sweep(calls[0], {"scale": [1.0]}, tmp_path / "grid.zarr")
    known = (tmp_path / "grid.zarr" / "zarr.json").read_text()
    for call in calls[1:]:
        with pytest.raises(ValueError, match="another sweep"):
            sweep(call, {"scale": [1.0]}, tmp_path / "grid.zarr")
    (tmp_path / "grid.zarr" / "zarr.json").write_text(known)
    sweep(Scaled(1.0).times, {"scale": [1.0]}, tmp_path / "grid.zarr")


def test_functions_without_source_text_are_refused_a_store(tmp_path):
    module: dict[str, object] = {"__name__": "of_the_test"}
    exec("def function(scale):\n    return scale", module)
    np.testing.assert_array_equal(sweep(module["function"], {"scale": [1.0]})["value"], [1.0])
    with pytest.raises(ValueError, match="has no source text"):
        sweep(module["function"], {"scale": [1.0]}, tmp_path / "grid.zarr")
    assert list(tmp_path.iterdir()) == []


def picky(scale, epsilon):
    """Fails at one point."""
    if np.any((np.asarray(scale) == 0.5) & (np.asarray(epsilon) == 4.0)):
        raise KeyError("too\nnoisy")
    return np.asarray(scale) * np.exp(np.asarray(epsilon))


def test_points_that_fail_have_a_reason(tmp_path):
    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(picky, AXES, to, chunk=11)
        assert np.argwhere(np.isnan(found["value"].values)).tolist() == [[0, 10]]
        assert np.argwhere(found["status"].values != 1).tolist() == [[0, 10]]
        assert found.attrs["failures"] == "scale=0.5, epsilon=4: KeyError: 'too\\nnoisy'"
    assert found["status"].attrs["flag_meanings"] == "not_done done failed"


def test_functions_that_fail_everywhere_say_so_at_once():
    calls = []

    def broken(scale):
        calls.append(1)
        raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        sweep(broken, {"scale": np.linspace(1.0, 2.0, 2**14)})
    assert len(calls) < 100


def test_a_first_block_that_fails_does_not_end_the_sweep(tmp_path):
    def no_small_ones(scale, epsilon):
        if jnp.any(scale < 1.0):
            raise ValueError("too small")
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(no_small_ones, AXES, to, chunk=11)
        assert np.isnan(found["value"][0]).all()
        assert not np.isnan(found["value"][2:]).any()


def test_more_failures_than_have_their_reason_stored(tmp_path):
    def often(scale):
        if np.any(np.asarray(scale) > 1.0):
            raise ValueError("too much")
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(often, {"scale": np.arange(300.0)}, to, chunk=150)
        np.testing.assert_array_equal(found["status"], [1, 1, *[2] * 298])
        assert len(found.attrs["failures"].splitlines()) == 100


def test_each_block_is_computed_once(tmp_path):
    """A point alone gives the results' names."""
    sizes = []

    def counted(scale, epsilon):
        sizes.append(scale.size)
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        sweep(counted, AXES, to, chunk=77)
        assert sizes == [1, 77]
        sizes.clear()


def test_results_are_labelled(tmp_path):
    """With units where there are any: a picture has brackets for these alone."""
    for to in (None, tmp_path / "grid.zarr"):
        axes = {"epsilon": [1.0, 2.0], "steps": [1.0]}
        found = sweep(lambda epsilon, steps: {"log_delta": -epsilon}, axes, to)
        assert found["epsilon"].attrs["units"] == found["log_delta"].attrs["units"] == "nats"
        assert found["steps"].attrs == {"long_name": "steps"}
    line = sweep(lambda steps: 2 * steps, {"steps": [1.0, 2.0]})["value"].plot()[0]
    assert line.axes.get_xlabel() == "steps"
    pyplot.close("all")


@pytest.mark.parametrize(
    ("axes", "named", "message"),
    [
        ({}, {}, "at least one axis"),
        ({"not a name": [1.0]}, {}, "named as arguments"),
        ({"status": [1.0]}, {}, "not status"),
        ({"scale": []}, {}, "not empty"),
        ({"scale": [1.0, np.nan]}, {}, "finite"),
        ({"scale": [1.0]}, {"chunk": 0}, "chunk"),
    ],
)
def test_bad_input(axes, named, message):
    with pytest.raises(ValueError, match=message):
        sweep(lambda scale: scale, axes, **named)


def test_shapes_that_do_not_fit_and_other_folders(tmp_path):
    with pytest.raises(ValueError, match="arguments' shape"):
        sweep(lambda scale, epsilon: 1.0, AXES)
    for name in ("scale", "status"):
        with pytest.raises(ValueError, match="named as an axis or status"):
            sweep(lambda scale, epsilon, name=name: {name: scale}, AXES)
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
import itertools, os, signal, sys
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
print(len(calls))
"""


def test_killed_sweeps_resume(tmp_path):
    """SIGKILL before the first chunk and in the middle: no chunk again, equal bytes."""
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    whole, broken = tmp_path / "whole.zarr", tmp_path / "broken.zarr"
    assert process(script, whole, 99, PYTHONHASHSEED="1").stdout.strip() == "8"
    assert process(script, broken, 0).returncode == -signal.SIGKILL
    assert not broken.exists()
    # One call finds the names of the results, three fill chunks.
    assert process(script, broken, 4, PYTHONHASHSEED="1").returncode == -signal.SIGKILL
    half = xarray.open_zarr(broken, consolidated=False)
    np.testing.assert_array_equal(half["status"].sum("epsilon"), [11, 11, 11, 0, 0, 0, 0])
    assert process(script, broken, 99, PYTHONHASHSEED="2").stdout.strip() == "4"
    assert contents(broken) == contents(whole)


CHUNKS = [f"{name}/c/{i}/0" for name in ("value", "status") for i in range(7)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    to = tmp_path_factory.mktemp("whole") / "grid.zarr"
    sweep(picky, AXES, to, chunk=11)
    return to


@pytest.mark.parametrize("damage", ["flipped", "cut", "deleted"])
def test_damaged_chunks_are_computed_again(whole, tmp_path, damage):
    """And no other one, whatever is damaged: results, status, or an axis."""
    for place in (*CHUNKS[::3], "scale/c/0", "epsilon/c/0"):
        to = tmp_path / place.replace("/", "") / "grid.zarr"
        shutil.copytree(whole, to)
        content = bytearray((to / place).read_bytes())
        content[-7] ^= 1
        (to / place).write_bytes(content[: len(content) // 2] if damage == "cut" else content)
        if damage == "deleted":
            (to / place).unlink()
        found = sweep(picky, AXES, to, chunk=11)
        again = xarray.open_zarr(to, consolidated=False)
        xarray.testing.assert_identical(again.load(), found.load())
        assert contents(to) == contents(whole), place


def test_a_plain_reader_sees_no_wrong_number(whole, tmp_path):
    """Zarr's own checksum finds it, without the sweep."""
    shutil.copytree(whole, tmp_path / "grid.zarr")
    chunk = tmp_path / "grid.zarr" / CHUNKS[0]
    content = bytearray(chunk.read_bytes())
    content[-7] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        xarray.open_zarr(tmp_path / "grid.zarr", consolidated=False).load()


def test_damaged_metadata_is_an_error(whole, tmp_path):
    for number, (place, content) in enumerate(
        itertools.product(("zarr.json", "value/zarr.json"), (b"", b"[" * 10_000, b"{}", b"0"))
    ):
        to = tmp_path / f"{number}.zarr"
        shutil.copytree(whole, to)
        (to / place).write_bytes(content)
        with pytest.raises(ValueError, match="to must be a new folder or this sweep's"):
            sweep(picky, AXES, to, chunk=11)


def test_sweeps_are_written_as_netcdf(tmp_path):
    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(picky, AXES, to)
        found.to_netcdf(tmp_path / "grid.nc", engine="scipy")
        with xarray.open_dataset(tmp_path / "grid.nc", engine="scipy") as again:
            np.testing.assert_array_equal(again["value"], found["value"])
            assert again.attrs["failures"] == found.attrs["failures"]


def test_an_executor_does_the_work(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        for to in (None, tmp_path / "grid.zarr"):
            found = sweep(picky, AXES, to, chunk=20, executor=pool)
            xarray.testing.assert_equal(found.load(), sweep(picky, AXES))
    fork = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pytest.raises(ValueError, match="must not fork"):
        sweep(product, AXES, executor=fork)


def test_long_axes_do_not_travel_with_tasks(tmp_path):
    sizes = []

    class Weighed(ThreadPoolExecutor):
        def submit(self, call, /, *args, **named):
            sizes.append(len(pickle.dumps((call, args, named))))
            return super().submit(call, *args, **named)

    axes = {"scale": np.linspace(1.0, 2.0, 100_000), "epsilon": [1.0]}
    with Weighed(1) as pool:
        found = sweep(product, axes, chunk=500, executor=pool)
    np.testing.assert_array_equal(found["value"][:, 0], axes["scale"])
    assert len(sizes) == 200
    assert max(sizes) < 8_000


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
