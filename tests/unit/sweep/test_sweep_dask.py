"""Sweeps on a Dask cluster: a worker killed in mid-run, and what the workers compile."""

import functools
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import jaxdp as dp

distributed = pytest.importorskip("distributed")

# The cluster's own sockets and loops are closed after the test's end.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]
AXES = {"scale": np.linspace(0.5, 3.0, 40), "epsilon": np.linspace(0.0, 4.0, 50)}
CHUNK = 100
WORKERS = 2
# Before a wait is given up. chosen: a worker starts in a few seconds
PATIENCE = 120.0


def listen() -> None:
    """Count this process' compilations from here on, in its environment."""
    import jax

    os.environ["COMPILATIONS"] = "0"

    def heard(event: str, _duration: float, **_named: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            os.environ["COMPILATIONS"] = str(int(os.environ["COMPILATIONS"]) + 1)

    jax.monitoring.register_event_duration_secs_listener(heard)


def compilations() -> int:
    return int(os.environ["COMPILATIONS"])


def slow_kernel(until=None):
    """A function that compiles one program of its own, and takes a moment over a block.

    until: a file for which the blocks of large scales wait.
    """
    import jax
    import jax.numpy as jnp

    kernel = jax.jit(lambda scale, epsilon: jnp.sin(scale) * jnp.exp(-epsilon))

    def function(scale, epsilon):
        time.sleep(0.1)
        while until is not None and scale.max() > 2.0 and not until.exists():
            time.sleep(0.01)
        return kernel(scale, epsilon)

    return function


@pytest.fixture
def client():
    named = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**named) as cluster, distributed.Client(cluster) as found:
        yield found


def test_one_compilation_a_worker(client, tmp_path):
    client.run(listen)
    swept = dp.sweep(
        slow_kernel(),
        AXES,
        tmp_path / "grid.zarr",
        chunk=CHUNK,
        executor=client.get_executor(),
        progress=False,
    )
    assert list(client.run(compilations).values()) == [1] * WORKERS
    expected = np.sin(AXES["scale"])[:, None] * np.exp(-AXES["epsilon"])[None, :]
    np.testing.assert_allclose(swept["value"], expected, rtol=1e-14)


def test_a_killed_worker_changes_nothing(client, tmp_path):
    done, broken, whole = (tmp_path / name for name in ("done", "broken.zarr", "whole.zarr"))
    run = functools.partial(dp.sweep, slow_kernel(done), AXES, chunk=CHUNK, progress=False)
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + PATIENCE
        while len(list(broken.glob("scale/.sweep/*.done"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)
        killed.append(len(list(broken.glob("scale/.sweep/*.done"))))
        done.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    run(to=broken, executor=client.get_executor())
    killer.join()
    assert 3 <= killed[0] < 20
    run(to=whole)
    assert contents(broken) == contents(whole)


def test_workers_that_die_every_time_are_told(client, tmp_path):
    here = os.getpid()

    def deadly(scale):
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return scale

    with pytest.raises(RuntimeError, match="0 of 2 chunks done; run the same call again"):
        dp.sweep(
            deadly,
            {"scale": np.arange(1.0, 9.0)},
            tmp_path / "grid.zarr",
            chunk=4,
            executor=client.get_executor(),
            progress=False,
        )


def contents(store: Path) -> dict[str, bytes]:
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in files}
