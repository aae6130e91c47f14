"""What a sweep costs beside the bare kernel: points per second, peak memory, resuming.

The Gaussian profile over scale in [0.3, 30] x epsilon in [0, 8], in memory and streamed; epsilons
of DP-SGD over noise multiplier in [0.7, 4] x steps in [100, 10,000]. Every size in a process of its
own, so that the peak is its own.
"""

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
from common import write

import jaxdp as dp

PROFILE_POINTS = (10_000, 100_000, 1_000_000, 10_000_000)
EPSILON_POINTS = (1_000, 10_000)


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
    """One size: the bare kernel on one block after the other, in memory, streamed, and again."""
    function = log_delta if kind == "profile" else training_epsilon
    axes = axes_of(kind, points)
    dp.sweep(function, axes, progress=False)
    spread = [x.ravel() for x in np.meshgrid(*axes.values(), indexing="ij")]
    size = min(2**16, spread[0].size)
    start = time.perf_counter()
    for at in range(0, spread[0].size - size + 1, size):
        block = {name: x[at : at + size] for name, x in zip(axes, spread, strict=True)}
        jax.block_until_ready(function(**block))
    bare = (time.perf_counter() - start) / (spread[0].size // size * size)
    count = spread[0].size
    del spread
    start = time.perf_counter()
    dp.sweep(function, axes, progress=False)
    memory = (time.perf_counter() - start) / count
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        dp.sweep(function, axes, Path(folder) / "grid.zarr", progress=False)
        streamed = (time.perf_counter() - start) / count
        start = time.perf_counter()
        dp.sweep(function, axes, Path(folder) / "grid.zarr", progress=False)
        again = time.perf_counter() - start
    return {
        "points": count,
        "points_per_second": 1.0 / streamed,
        "of_the_bare_kernel_in_memory": bare / memory,
        "of_the_bare_kernel_streamed": bare / streamed,
        "seconds_to_find_it_done": again,
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Every size, each in its own process."""
    results: dict[str, Any] = {}
    for kind, sizes in (("profile", PROFILE_POINTS), ("dpsgd_epsilon", EPSILON_POINTS)):
        for points in sizes:
            command = [sys.executable, __file__, kind, str(points)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results[f"{kind}_{points}"] = json.loads(done.stdout)
            print(kind, results[f"{kind}_{points}"])
    write("sweep", results)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
