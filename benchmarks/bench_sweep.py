"""What a sweep costs beside the bare kernel: points per second, peak memory, resuming.

The Gaussian profile over scale in [0.3, 30] x epsilon in [0, 8], in memory and streamed; epsilons
of DP-SGD over noise multiplier in [0.7, 4] x steps in [100, 10,000]. Every size in a process of its
own, and its peak memory in another that only streams.
"""

import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import medians, write

PROFILE_POINTS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
EPSILON_POINTS = (1_000, 10_000)
# What `dp.sweep` takes where nothing is said.
CHUNK = 2**16
# Of each measurement, whose median is told. chosen: an odd few
REPEATS = 3


def log_delta(scale: Any, epsilon: Any) -> Any:
    """The kernel of the profile."""
    return dp.Gaussian(scale).log_delta(1.0, epsilon)


def training_epsilon(noise_multiplier: Any, steps: Any) -> Any:
    """The kernel of DP-SGD."""
    return dp.dpsgd.epsilon(noise_multiplier, 1e-6, sampling_prob=0.01, steps=np.round(steps))


def axes_of(kind: str, points: int) -> dict[str, np.ndarray]:
    """Axes whose product has about so many points."""
    side = round(points**0.5)
    if kind == "profile":
        return {"scale": np.geomspace(0.3, 30, side), "epsilon": np.linspace(0, 8, points // side)}
    steps = np.geomspace(100, 10_000, points // side)
    return {"noise_multiplier": np.linspace(0.7, 4, side), "steps": steps}


def measure(kind: str, points: int) -> dict[str, float]:
    """One size: the bare kernel on one block after the other, in memory, streamed, and again.

    The kernel gets its blocks as a sweep makes them, and all three are warm.
    """
    function = log_delta if kind == "profile" else training_epsilon
    axes = axes_of(kind, points)
    (first, some), (second, others) = axes.items()
    count, rows = some.size * others.size, max(1, CHUNK // others.size)

    def bare() -> None:
        for start in range(0, some.size, rows):
            part = some[start : start + rows]
            block = {first: np.repeat(part, others.size), second: np.tile(others, part.size)}
            jax.block_until_ready(function(**jax.device_put(block)))

    with tempfile.TemporaryDirectory() as folder:
        places = (Path(folder) / f"{number}.zarr" for number in itertools.count())

        def streamed(to: Path | None = None) -> None:
            dp.sweep(function, axes, to or next(places), progress=False)

        calls = {
            "bare": bare,
            "in_memory": lambda: dp.sweep(function, axes, progress=False),
            "streamed": streamed,
        }
        seconds = medians(calls, REPEATS)
        done = Path(folder) / "0.zarr"
        start = time.perf_counter()
        streamed(done)
        again = time.perf_counter() - start
    return {
        "points": count,
        "points_per_second": count / seconds["streamed"],
        "of_the_bare_kernel_in_memory": seconds["bare"] / seconds["in_memory"],
        "of_the_bare_kernel_streamed": seconds["bare"] / seconds["streamed"],
        "seconds_to_find_it_done": again,
    }


def peak_memory(kind: str, points: int) -> dict[str, float]:
    """Of a process that does nothing but stream one sweep."""
    function = log_delta if kind == "profile" else training_epsilon
    with tempfile.TemporaryDirectory() as folder:
        dp.sweep(function, axes_of(kind, points), Path(folder) / "grid.zarr", progress=False)
    return {"peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def main() -> None:
    """Every size, each in its own process."""
    results: dict[str, Any] = {}
    for kind, sizes in (("profile", PROFILE_POINTS), ("dpsgd_epsilon", EPSILON_POINTS)):
        for points in sizes:
            found = results[f"{kind}_{points}"] = {}
            for what in MEASURES:
                command = [sys.executable, "-m", "benchmarks.bench_sweep", what, kind, str(points)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found.update(json.loads(done.stdout))
            print(kind, results[f"{kind}_{points}"])
    write("sweep", results)


MEASURES = {"time": measure, "memory": peak_memory}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if len(sys.argv) > 1:
        print(json.dumps(MEASURES[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
    else:
        main()
