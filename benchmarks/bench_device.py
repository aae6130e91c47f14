"""Cost a lane on an accelerator, beside one core of the CPU that it hangs on.

Every question is asked in the accelerator's process and in one on a single core of the CPU, whose
bounds have to agree before the clocks are read. Inputs are drawn at random over the range that
users have; seconds are wall time, medians, compilation apart. It needs an accelerator, and no peer.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import first_call, medians, write
from jaxdp.accountant import evaluate

REPEATS = 3


def sampled(scale: Any, q: Any, steps: Any) -> dp.PrivacyLoss:
    return steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "add_remove"))


def epsilons(loss: dp.PrivacyLoss, delta: Any) -> Any:
    """Upper and lower bounds."""
    found = evaluate.epsilon(loss.terms, jnp.asarray(delta), loss.both)
    return found.upper, found.lower


def log_deltas(loss: dp.PrivacyLoss, epsilon: Any) -> Any:
    upper = loss.log_delta(epsilon)
    return upper, upper - loss.log_delta_error(epsilon)


def profiles(size: int) -> Callable[[], Any]:
    """log delta of Gaussians: scale in [.3, 30], epsilon in [.01, 10]."""
    rng = np.random.default_rng(3)
    scale = jnp.asarray(10 ** rng.uniform(np.log10(0.3), np.log10(30), size))
    epsilon = jnp.asarray(10 ** rng.uniform(-2, 1, size))
    ask = jax.jit(lambda scale, epsilon: dp.Gaussian(scale).log_delta(1.0, epsilon))
    return lambda: ask(scale, epsilon)


def runs(size: int) -> Callable[[], Any]:
    """epsilon of ordinary DP-SGD runs, inside `jit`."""
    rng = np.random.default_rng(7)
    scale, q = rng.uniform(0.7, 4, size), 10 ** rng.uniform(-3, -1, size)
    steps = np.round(10 ** rng.uniform(2, 4, size))
    ask = jax.jit(lambda *run: epsilons(sampled(*run), 1e-6))
    arrays = tuple(map(jnp.asarray, (scale, q, steps)))
    return lambda: ask(*arrays)


def language_models(size: int) -> Callable[[], Any]:
    """epsilon of trainings that rarely see a record, inside `jit`."""
    rng = np.random.default_rng(11)
    sigma, q = rng.uniform(0.4, 1.6, size), 10 ** rng.uniform(-6.5, -3.3, size)
    steps = np.ceil(10 ** rng.uniform(-1.5, 1.5, size) / q)
    ask = jax.jit(lambda sigma, q, steps, delta: epsilons(sampled(sigma, q, steps), delta))
    arrays = tuple(map(jnp.asarray, (sigma, q, steps, 10 ** rng.uniform(-12, -6, size))))
    return lambda: ask(*arrays)


def grid(_: int) -> Callable[[], Any]:
    """epsilon of a grid of 4,000 known settings."""
    axes = np.geomspace(0.6, 10, 20), np.geomspace(1e-4, 0.2, 10)
    loss = sampled(
        *np.meshgrid(*axes, np.round(np.geomspace(10, 1e5, 20)), indexing="ij"),
    )
    return lambda: epsilons(loss, 1e-5)


def laplaces(size: int) -> Callable[[], Any]:
    """log delta of composed Laplace noise: the general contour, known values."""
    rng = np.random.default_rng(13)
    loss = np.round(10 ** rng.uniform(0.5, 3, size)) * dp.privacy_loss(
        dp.Mechanism(dp.Laplace(rng.uniform(2, 30, size)), 1.0)
    )
    return lambda: log_deltas(loss, 2.0)


QUESTIONS: dict[str, tuple[Callable[[int], Callable[[], Any]], int]] = {
    "gaussian_log_delta": (profiles, 10_000_000),
    "runs_in_jit": (runs, 1024),
    "many_runs_in_jit": (runs, 16_384),
    "language_models_in_jit": (language_models, 1024),
    "grid_of_known_settings": (grid, 4000),
    "laplaces": (laplaces, 64),
}


def measured(name: str) -> tuple[dict[str, float], list[np.ndarray]]:
    make, size = QUESTIONS[name]
    call = make(size)
    row = {"lanes": size, "first_seconds": first_call(call)}
    seconds = medians({name: call}, REPEATS)[name]
    answers = [np.asarray(x) for x in jax.tree.leaves(call())]
    return row | {"seconds": seconds, "lanes_a_second": size / seconds}, answers


def measured_here(names: list[str], folder: str) -> None:
    """Rows and answers of this process's device, to files that the parent reads."""
    for name in names:
        row, answers = measured(name)
        np.savez(Path(folder) / f"{name}.npz", *answers, row=np.array(list(row.items()), object))


def on_one_core(names: list[str], folder: str) -> subprocess.Popen[bytes]:
    core = str(max(os.sched_getaffinity(0)))
    do = f"bench.measured_here({names!r}, {folder!r})"
    code = f"from benchmarks import bench_device as bench\nbench.start()\n{do}"
    command = ["taskset", "-c", core, sys.executable, "-c", code]
    return subprocess.Popen(command, env=os.environ | {"JAX_PLATFORMS": "cpu"})


def start() -> None:
    jax.config.update("jax_enable_x64", True)


def agree(name: str, ours: list[np.ndarray], core: list[np.ndarray]) -> dict[str, Any]:
    """How far the two processes are apart; their brackets have to overlap."""
    if len(ours) == 1:
        difference = np.abs(ours[0] - core[0])
        assert np.all(difference <= 1e-12 * (1.0 + np.abs(core[0]))), name
        return {"largest_difference": float(difference.max())}
    (upper, lower), (core_upper, core_lower) = ours, core
    assert np.all(upper >= core_lower), name
    assert np.all(core_upper >= lower), name
    with np.errstate(invalid="ignore"):  # of infinite values less one another
        apart = np.where(upper == core_upper, 0.0, np.abs(upper - core_upper))
        width = np.where(upper == lower, 0.0, (upper - lower) / (1.0 + np.abs(lower)))
    return {
        "infinite": int(np.sum(upper == np.inf)),
        "infinite_on_the_core": int(np.sum(core_upper == np.inf)),
        "largest_difference": float(np.max(apart)),
        "within_1e-6": float(np.mean(width <= 1e-6)),
        "within_1e-3": float(np.mean(width <= 1e-3)),
    }


def main(names: list[str]) -> dict[str, Any]:
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        other = on_one_core(names, folder)
        ours = {}
        for name in names:
            ours[name] = measured(name)
            print(name, ours[name][0], flush=True)
        if other.wait():
            raise RuntimeError("the process on one core of the CPU failed")
        for name in names:
            with np.load(Path(folder) / f"{name}.npz", allow_pickle=True) as saved:
                core = dict(saved["row"])
                answers = [saved[f"arr_{i}"] for i in range(len(ours[name][1]))]
            row = {"accelerator": ours[name][0], "one_core": core}
            row["times_one_core"] = core["seconds"] / ours[name][0]["seconds"]
            results[name] = row | agree(name, ours[name][1], answers)
    return results


if __name__ == "__main__":
    start()
    write("device", main(sys.argv[1:] or list(QUESTIONS)))
