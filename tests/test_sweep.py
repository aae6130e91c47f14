"""Sweeps: in memory, streamed, killed and resumed, in stripes and in other processes."""

import errno
import functools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.sweep.store import Store

AXES = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}
sweep = functools.partial(dp.sweep, progress=False)


def log_delta(scale, epsilon):
    return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)


def product(scale, epsilon):
    return np.asarray(scale) * np.asarray(epsilon)


def bytes_of(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


def test_in_memory_it_is_the_function():
    found = sweep(log_delta, AXES, chunk=25)
    expected = log_delta(AXES["scale"][:, None], AXES["epsilon"][None, :])
    np.testing.assert_allclose(found["value"], expected, rtol=1e-12)
    assert found["value"].dims == ("scale", "epsilon")
    assert found.attrs["precision"] == "float64"
    assert found.attrs["failures"] == []


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
    np.testing.assert_array_equal(sweep(bound, AXES)["value"][:, 0], AXES["scale"] + 1.0)
    factor = 4.0
    with pytest.raises(ValueError, match="another sweep"):
        sweep(closure, AXES, tmp_path / "closure.zarr", chunk=20)


def test_points_that_fail_are_told(tmp_path):
    def picky(scale, epsilon):
        if jnp.any((scale == 0.5) & (epsilon > 3.9)):
            raise ValueError("too noisy")
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(picky, AXES, to, chunk=11)
        assert int(np.isnan(found["value"]).sum()) == 1
        assert found.attrs["failures"] == ["scale=0.5, epsilon=4: ValueError: too noisy"]
    with pytest.raises(ValueError, match="never"):
        sweep(_never, AXES)


def _never(scale, epsilon):
    raise ValueError("never")


KILLED = """
import os, signal, sys, time
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import jaxdp as dp
calls, most = [], int(sys.argv[2])
def work(scale, epsilon):
    calls.append(1)
    if len(calls) > most:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.asarray(scale) * np.asarray(epsilon)
# Functions of its module that a function calls are part of what it is, data of its module are not.
def function(scale, epsilon):
    return work(scale, epsilon)
axes = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}
dp.sweep(function, axes, sys.argv[1], chunk=11, progress=False)
print(len(calls))
"""


def test_killed_sweeps_resume(tmp_path):
    """SIGKILL before the first chunk and in the middle: no chunk again, equal bytes."""

    def run(to: Path, most: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(to), str(most)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    whole, broken = tmp_path / "whole.zarr", tmp_path / "broken.zarr"
    assert run(whole, 99).returncode == 0
    assert run(broken, 0).returncode == -signal.SIGKILL
    assert not broken.exists()
    # One call finds the names of the results, three fill chunks.
    assert run(broken, 4).returncode == -signal.SIGKILL
    assert len(list(broken.glob("scale/.sweep/*.done"))) == 3
    done = run(broken, 99)
    assert (done.returncode, done.stdout.strip()) == (0, "4")
    assert bytes_of(broken) == bytes_of(whole)


RESUMED = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import jaxdp as dp
def helper(scale):
    return scale * float(sys.argv[2])
def function(scale):
    kind = {"b": 1}
    def again(x, n=2):
        return x if n == 0 else again(x, n - 1)
    return again(helper(scale)) if "b" in {"a", "b", "c", "dd"} and kind else scale
def made():
    class Local:
        def __call__(self, scale):
            return scale
    def g(scale, n=2):
        return scale if n == 0 else g(scale, n - 1)
    return g, Local()
for at, what in enumerate((function, *made())):
    dp.sweep(what, {"scale": np.arange(1.0, 9.0)}, f"{sys.argv[1]}{at}.zarr", progress=False)
"""


def test_another_process_resumes_whatever_its_hash_seed(tmp_path):
    """Sets are in another order there, and functions may call themselves or be local objects."""
    for seed in ("1", "17"):
        command = [sys.executable, "-c", RESUMED, str(tmp_path / "grid"), "2"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-500:]


def test_what_a_function_calls_is_part_of_it(tmp_path):
    """Another body of a helper in the function's own module is another sweep."""
    source = "def helper(x):\n    return x {0} 2\ndef function(scale):\n    return helper(scale)\n"
    made = []
    for operator in "+*":
        module: dict[str, object] = {"__name__": "of_the_test"}
        exec(source.format(operator), module)
        made.append(module["function"])
    sweep(made[0], {"scale": [1.0]}, tmp_path / "grid.zarr")
    with pytest.raises(ValueError, match="another sweep"):
        sweep(made[1], {"scale": [1.0]}, tmp_path / "grid.zarr")


def test_functions_that_fail_everywhere_say_so_at_once():
    calls = []

    def broken(scale):
        calls.append(1)
        raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        sweep(broken, {"scale": np.linspace(1.0, 2.0, 2**14)})
    assert len(calls) < 100


def test_a_first_block_that_fails_is_no_dead_sweep(tmp_path):
    def picky(scale, epsilon):
        if jnp.any(scale < 1.0):
            raise ValueError("too small")
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(picky, AXES, to, chunk=11)
        assert np.isnan(found["value"][0]).all()
        assert not np.isnan(found["value"][2:]).any()


def test_only_the_kernel_is_called_on_blocks(tmp_path):
    """No block is worked out twice to learn the results' names."""
    sizes = []

    def counted(scale, epsilon):
        sizes.append(scale.size)
        return scale

    sweep(counted, AXES, tmp_path / "grid.zarr", chunk=77)
    assert sizes == [1, 77]


def test_memory_is_taken_once_a_variable(monkeypatch):
    """Not once a block, which is quadratic in the size of the grid."""
    made, full = [], np.full
    monkeypatch.setattr(np, "full", lambda *args: made.append(1) or full(*args))
    sweep(product, AXES, chunk=7)
    assert len(made) == 1


def test_results_are_labelled(tmp_path):
    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(lambda epsilon: {"log_delta": -epsilon}, {"epsilon": [1.0, 2.0]}, to)
        assert found["epsilon"].attrs["units"] == "nats"
        assert found["log_delta"].attrs["long_name"] == "logarithm of delta"
        assert found.attrs["commit"]


def test_stripes_share_a_store(tmp_path):
    to = tmp_path / "grid.zarr"
    half = sweep(product, AXES, to, chunk=11, stripe=(1, 2))
    assert np.isnan(half["value"][0]).all()
    assert not np.isnan(half["value"][1]).any()
    both = sweep(product, AXES, to, chunk=11, stripe=(0, 2))
    np.testing.assert_array_equal(both["value"], sweep(product, AXES)["value"])


def test_an_executor_does_the_work(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = sweep(product, AXES, tmp_path / "grid.zarr", chunk=20, executor=pool)
    np.testing.assert_array_equal(found["value"], sweep(product, AXES)["value"])
    fork = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pytest.raises(ValueError, match="must not fork"):
        sweep(product, AXES, tmp_path / "forked.zarr", executor=fork)


def test_axes_do_not_travel_with_tasks(tmp_path):
    """They are read from the store: a task is as small for a million points as for ten."""
    sizes = []

    class Weighed(ThreadPoolExecutor):
        def submit(self, call, /, *args, **named):
            sizes.append(len(pickle.dumps((call, args, named))))
            return super().submit(call, *args, **named)

    axes = {"scale": np.linspace(1.0, 2.0, 100_000)}
    with Weighed(1) as pool:
        found = sweep(_same, axes, tmp_path / "grid.zarr", chunk=50_000, executor=pool)
    np.testing.assert_array_equal(found["value"], axes["scale"])
    assert len(sizes) == 2
    assert max(sizes) < 5_000


def _same(scale):
    return scale


def test_a_lost_worker_is_told(tmp_path):
    class Lost(ProcessPoolExecutor):
        def submit(self, *_args, **_named):
            raise BrokenProcessPool("gone")

    pool = Lost(1, mp_context=multiprocessing.get_context("spawn"))
    with pytest.raises(RuntimeError, match=r"0 of 7 chunks done; run the same call again"):
        sweep(product, AXES, tmp_path / "grid.zarr", chunk=11, executor=pool)


def test_a_full_disk_keeps_what_is_done(tmp_path, monkeypatch):
    to, write = tmp_path / "grid.zarr", Store.write
    full = OSError(errno.ENOSPC, "No space left on device")

    class Full:
        def __setitem__(self, *_):
            raise full

    def written(self, number, columns, reasons):
        if number == 3:
            monkeypatch.setattr(self, "_zarr", _Opened(Full()))
        return write(self, number, columns, reasons)

    monkeypatch.setattr(Store, "write", written)
    with pytest.raises(OSError, match="disk is full; 3 of 7 chunks are done") as found:
        sweep(product, AXES, to, chunk=11)
    assert found.value.errno == errno.ENOSPC
    monkeypatch.undo()
    resumed = sweep(product, AXES, to, chunk=11)
    np.testing.assert_array_equal(resumed["value"], sweep(product, AXES)["value"])


class _Opened:
    """Stands for zarr where every array is `array`."""

    def __init__(self, array):
        self.array = array

    def open_group(self, *_args, **_named):
        return {"value": self.array}


def test_eight_devices_are_one(tmp_path):
    code = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import jaxdp as dp
def function(scale, epsilon):
    assert len(scale.sharding.device_set) == int(sys.argv[1])
    return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)
axes = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}
found = dp.sweep(function, axes, chunk=33, progress=False)
last = jax.local_devices()[-1]
def alone(scale, epsilon):
    assert scale.sharding.device_set == {last}
    return scale
dp.sweep(alone, axes, devices=[last], progress=False)
sys.stdout.write(np.asarray(found["value"]).tobytes().hex())
"""
    found = []
    for devices in ("1", "8"):
        environment = {
            **os.environ,
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_PLATFORMS": "cpu",
        }
        command = [sys.executable, "-c", code, devices]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        found.append(np.frombuffer(bytes.fromhex(done.stdout)))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("axes", "named", "message"),
    [
        ({}, {}, "at least one axis"),
        ({"not a name": [1.0]}, {}, "named as arguments"),
        ({"scale": []}, {}, "not empty"),
        ({"scale": [1.0, np.nan]}, {}, "finite"),
        ({"scale": [1.0]}, {"chunk": 0}, "chunk"),
        ({"scale": [1.0]}, {"stripe": (2, 2)}, "stripe"),
        ({"scale": [1.0]}, {"devices": []}, "devices"),
        ({"scale": [1.0]}, {"stripe": (0, 2)}, "to must name a store"),
    ],
)
def test_bad_input(axes, named, message):
    with pytest.raises(ValueError, match=message):
        sweep(lambda scale: scale, axes, **named)


def test_shapes_that_do_not_fit_and_other_folders(tmp_path):
    with pytest.raises(ValueError, match="arguments' shape"):
        sweep(lambda scale, epsilon: 1.0, AXES)
    with pytest.raises(ValueError, match="named as an axis"):
        sweep(lambda scale, epsilon: {"scale": scale}, AXES)
    (tmp_path / "mine.zarr").mkdir()
    with pytest.raises(ValueError, match="new folder"):
        sweep(product, AXES, tmp_path / "mine.zarr")
    sweep(product, AXES, tmp_path / "grid.zarr")
    with pytest.raises(ValueError, match="another sweep"):
        sweep(product, {**AXES, "scale": [1.0]}, tmp_path / "grid.zarr")
