"""Sweeps in several processes: killed and resumed, in stripes, by executors, over devices."""

import functools
import multiprocessing
import pickle
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
from processes import process, run

import jaxdp as dp

AXES = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}


sweep = functools.partial(dp.sweep, progress=False)


def product(scale, epsilon):
    return np.asarray(scale) * np.asarray(epsilon)


def bytes_of(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


KILLED = """
import itertools, os, signal, sys, time
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import jaxdp as dp
calls = itertools.count(1)
def work(scale, epsilon):
    if next(calls) > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return np.asarray(scale) * np.asarray(epsilon)
# Functions and plain values of its module that a function names are part of what it is.
def function(scale, epsilon):
    return work(scale, epsilon)
axes = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}
dp.sweep(function, axes, sys.argv[1], chunk=11, progress=False)
print(next(calls) - 1)
"""


def devices_of_the_host(count):
    return {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}",
        "JAX_PLATFORMS": "cpu",
    }


def test_killed_sweeps_resume(tmp_path):
    """SIGKILL before the first chunk and in the middle: no chunk again, equal bytes."""
    whole, broken = tmp_path / "whole.zarr", tmp_path / "broken.zarr"
    run(KILLED, whole, 99)
    assert process("-c", KILLED, broken, 0).returncode == -signal.SIGKILL
    assert not broken.exists()
    # One call finds the names of the results, three fill chunks.
    assert process("-c", KILLED, broken, 4).returncode == -signal.SIGKILL
    assert len(list(broken.glob("scale/.sweep/*.done"))) == 3
    assert run(KILLED, broken, 99).strip() == "4"
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


@pytest.mark.long
def test_another_process_resumes_whatever_its_hash_seed(tmp_path):
    """Sets are in another order there, and functions may call themselves or be local objects."""
    for seed in ("1", "17"):
        run(RESUMED, tmp_path / "grid", "2", PYTHONHASHSEED=seed)


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


@pytest.mark.long
def test_eight_devices_are_one():
    """Every block is on one device, what a composition computes too; the digits are the same."""
    code = """
import sys
import threading
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxdp as dp
devices = jax.local_devices()
together, used = threading.Barrier(len(devices), timeout=60), []
def function(scale, epsilon):
    assert len(scale.sharding.device_set) == 1
    # What comes from the host, as a composition's tables do.
    placed = jnp.zeros(3) + 1.0
    assert placed.sharding.device_set == scale.sharding.device_set
    if scale.size > 1:
        used.extend(scale.sharding.device_set)
        together.wait()
    return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)
axes = {"scale": np.linspace(0.5, 3.0, 8), "epsilon": np.linspace(0.0, 4.0, 11)}
found = dp.sweep(function, axes, chunk=11, progress=False)
assert set(used) == set(devices), used
def alone(scale, epsilon):
    assert scale.sharding.device_set == {devices[-1]}
    assert (jnp.zeros(3) + 1.0).sharding.device_set == {devices[-1]}
    return scale
dp.sweep(alone, axes, devices=devices[-1:], progress=False)
sys.stdout.write(np.asarray(found["value"]).tobytes().hex())
"""
    found = []
    for devices in ("1", "8"):
        found.append(np.frombuffer(bytes.fromhex(run(code, **devices_of_the_host(devices)))))
    np.testing.assert_array_equal(*found)


@pytest.mark.long
def test_failures_and_settings_beside_devices():
    """An error in one thread is the call's, failures are told, and x64 of one thread is kept."""
    code = """
import jax
import jax.numpy as jnp
import numpy as np
import jaxdp as dp
axes = {"scale": np.arange(8.0)}
def picky(scale):
    assert scale.dtype == jnp.float64
    if jnp.any(scale == 5.0):
        raise ValueError("five")
    return scale
with jax.enable_x64(True):
    found = dp.sweep(picky, axes, chunk=2, progress=False)
jax.config.update("jax_enable_x64", True)
again = dp.sweep(picky, axes, chunk=2, progress=False)
assert found.identical(again)
assert again.attrs["failures"] == "scale=5: ValueError: five", again.attrs
def wrong(scale):
    return scale if scale.size == 1 else scale[:1]
try:
    dp.sweep(wrong, axes, chunk=2, progress=False)
except ValueError as error:
    assert "arguments' shape" in str(error)
else:
    raise AssertionError("no error")
"""
    run(code, **devices_of_the_host("2"))
