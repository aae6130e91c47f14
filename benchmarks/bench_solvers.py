"""How long is a chain of 50 passes of DP coordinate descent, and a grid of them?

California (LASSO, n = 20,640) and Electricity (logistic, n = 45,312), p = 8: 400 updates, next to
a NumPy loop and to diffprivlib's logistic regression (`JAXDP_PEER_PYTHON`: an interpreter that has
it). What the chains reach is in `reproductions/solvers.py`.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from benchmarks._tools import regressions
from benchmarks._tools.measure import NO_PEER, PEER, ask_peer, first_call, medians, write
from benchmarks._tools.regressions import REGRESSIONS, Regression
from jaxdp.solvers import coordinate_descent
from jaxdp.solvers.coordinate_descent.run import drawn as noise_of
from jaxdp.solvers.coordinate_descent.run import in_a_row

# Seconds: the design's numbers for one core of the machine that they were set on.
CHAIN_TARGETS = {"squared": 0.005, "logistic": 0.028}
GRID_TARGET, MEMORY_TARGET = 30.0, 600e6
JOBS = (REGRESSIONS[0], REGRESSIONS[3])


def numpy_chain(
    problem: dp.solvers.Problem, plan: coordinate_descent.Plan, drawn: np.ndarray
) -> np.ndarray:
    """The same algorithm and noise as a plain loop; the mean is not rounded to a grid."""
    design, state = np.asarray(problem.design), np.array(problem.offset)
    clip, steps = np.asarray(plan.clip), np.asarray(plan.steps)
    strength, is_l1 = float(problem.penalty.strength), isinstance(problem.penalty, dp.solvers.L1)
    theta = np.zeros(len(steps))
    sequence = np.asarray(plan.sequence).ravel()
    for j, noise in zip(sequence, drawn.ravel(), strict=True):
        slope = state if problem.loss == "squared" else -1.0 / (1.0 + np.exp(state))
        partial = np.clip(design[j] * slope, -clip[j], clip[j])
        point = theta[j] - steps[j] * (partial.mean() + noise)
        if is_l1:
            moved = np.sign(point) * max(abs(point) - strength * steps[j], 0.0)
        else:
            moved = point / (1.0 + strength * steps[j])
        state = state + design.dtype.type(moved - theta[j]) * design[j]
        theta[j] = moved
    return theta


def chain(job: Regression) -> dict[str, Any]:
    key = jax.random.key(1)
    exact = job.problem()
    batch = regressions.plans(exact, jax.random.split(key, 1), *job.settings["winid"])
    plan = jax.tree.map(lambda x: x[0], batch)
    drawn = np.asarray(noise_of(in_a_row(plan), key).noise)
    drawn = drawn[: plan.sequence.size].reshape(plan.sequence.shape)
    result: dict[str, Any] = {"problem": job.name, "updates": int(plan.sequence.size)}
    reference = numpy_chain(exact, plan, drawn)
    for dtype in ("float32", "float64"):
        problem = job.problem(dtype)

        def ours(problem=problem):
            return coordinate_descent.run(problem, plan, key)

        compile_seconds = first_call(ours)
        error = float(np.abs(np.asarray(ours()) - reference).max() / np.abs(reference).max())
        assert error < (1e-3 if dtype == "float32" else 1e-7), error
        seconds = medians(
            {"jaxdp": ours, "numpy": lambda p=problem: numpy_chain(p, plan, drawn)}, repeats=21
        )
        result[dtype] = {
            "seconds": seconds["jaxdp"],
            "least_seconds": least(ours, 60),
            "numpy_seconds": seconds["numpy"],
            "ratio_to_numpy": seconds["numpy"] / seconds["jaxdp"],
            "microseconds_per_update": 1e6 * seconds["jaxdp"] / plan.sequence.size,
            "first_call_seconds": compile_seconds,
            "theta_error_against_numpy": error,
        }
    result["target_seconds_float32"] = CHAIN_TARGETS[job.loss]
    keys = jax.random.split(key, 32)
    made, single = regressions.plans(exact, keys, *job.settings["winid"]), job.problem("float32")
    batch_seconds = medians(
        {
            str(chunk): lambda c=chunk: regressions.chains(single, made, keys, chunk=c)
            for chunk in (1, 4, 16, 32)
        },
        repeats=3,
    )
    result["seconds_per_chain_by_chunk"] = {k: v / 32 for k, v in batch_seconds.items()}
    return result


def least(call: Callable[[], Any], repeats: int) -> float:
    """The best of many: what the machine does when others leave it alone."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def grid() -> dict[str, Any]:
    """10 steps x 100 thresholds x 5 seeds of the LASSO, plans included."""
    problem = JOBS[0].problem("float32")
    steps, clips, seeds = np.meshgrid(
        np.logspace(-2, 1, 10), np.logspace(-1, 1.5, 100), np.arange(5), indexing="ij"
    )
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds.ravel()))
    start, busy = time.perf_counter(), time.process_time()
    made = regressions.plans(problem, keys, steps.ravel(), clips.ravel())
    theta = np.asarray(regressions.chains(problem, made, keys))
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    objective = np.asarray(jax.lax.map(problem.objective, jnp.asarray(theta)))
    best = objective.reshape(10, 100, 5).mean(axis=2)
    at = np.unravel_index(np.nanargmin(best), best.shape)
    return {
        "chains": len(keys),
        "seconds": seconds,
        "processor_seconds": busy,
        "target_seconds": GRID_TARGET,
        "not_finite": int(np.isnan(objective).sum()),
        "best_step": float(steps[*at, 0]),
        "best_clip": float(clips[*at, 0]),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
        "target_bytes": MEMORY_TARGET,
    }


def in_a_process_of_its_own() -> dict[str, Any]:
    """`grid`, where the peak of the memory is its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_solvers", "grid"], capture_output=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def peer() -> list[dict[str, Any]] | str:
    """diffprivlib, epsilon = 1 and delta = 0: objective perturbation, rows clipped to a norm."""
    if PEER is None:
        return NO_PEER
    rows = []
    for job, norms in ((REGRESSIONS[3], (2.0, 4.0, 7.6)), (REGRESSIONS[4], (2.0, 4.0, 8.0))):
        features, labels = job.arrays()
        best = regressions.optimum(job)
        for norm in norms:
            found = ask_peer(
                "logistic",
                features=features,
                labels=labels,
                epsilon=1.0,
                norm=norm,
                strength=job.penalty.strength,
                seeds=20,
            )
            errors = np.array(found["objectives"]) / best - 1.0
            row = {"problem": job.name, "data_norm": norm, "seconds": found["seconds"]}
            rows.append(row | regressions.summary(errors))
    return rows


def main() -> None:
    if sys.argv[1:] == ["grid"]:
        print(json.dumps(grid()))
        return
    chains = [chain(job) for job in JOBS]
    write("solvers", {"chains": chains, "grid": in_a_process_of_its_own(), "diffprivlib": peer()})


if __name__ == "__main__":
    main()
