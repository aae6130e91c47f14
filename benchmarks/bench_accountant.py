"""Composed privacy losses: cost a lane, first calls, accuracy by kind, next to dp_accounting.

Inputs are a grid of ordinary DP-SGD settings and runs drawn at random, no lane left out. Accuracy
is asserted before the clock starts: brackets hold the values of
`tests/truth/reference/engine.json`, and dp_accounting's upper bounds are no lower than our lower
ones. CPU seconds are of all threads.
"""

import functools
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import REFERENCE, write_sections
from jaxdp.accountant import evaluate

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "contract"))
ROWS = json.loads((REFERENCE / "engine.json").read_text())
# Runs that dp_accounting is asked for as well: it takes a second for each.
PEERS = 6
FIRST = {
    "sampled Gaussian": "dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.01, 'add_remove')",
    "sampled flipped Huber": "dp.Mechanism(dp.FlippedHuber(2.0, 1.5), 1.0, 0.01, 'remove')",
    "Laplace": "dp.Mechanism(dp.Laplace(5.0), 1.0)",
    "Subbotin": "dp.Mechanism(dp.Subbotin(5.0, 1.5), 1.0)",
    "discrete Gaussian": "dp.Mechanism(dp.DiscreteGaussian(5.0), 1.0)",
    "response": "dp.PureDP(0.1)",
}
# First questions of DP-SGD in a new process.
QUESTIONS = {
    "epsilon": "dp.dpsgd.epsilon(1.0, 1e-6, **run)",
    "delta": "dp.dpsgd.delta(1.0, 1.0, **run)",
    "noise_multiplier": "dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, **run)",
    "tpr_at_fpr": "dp.risk.tpr_at_fpr(1000 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0, "
    "0.01, 'add_remove')), 1e-3)",
}
MANY = """
import jax
jax.config.update("jax_enable_x64", True)
import jaxdp as dp, sys
sys.path.insert(0, "tests/contract")
from compositions import KINDS
import itertools, json
rows = {r["kind"]: r["parameters"] for r in json.load(open("tests/truth/reference/engine.json"))}
kinds = [k for k in KINDS if "replaced" not in k and "sampled" not in k and k not in
         ("removed_gaussian", "added_gaussian", "rarely_hit_gaussian", "two_phases",
          "steps_and_laplaces", "hubers_and_laplace", "laplaces", "guarantees")]
done = 0
for size in (1, 2, 3, 4):
    for some in itertools.combinations(kinds, size):
        if done == 100: break
        loss = sum(KINDS[k](**rows[k]) for k in some)
        float(loss.log_delta(1.0)); float(loss.epsilon(1e-6)); loss.bounds(1.0)
        done += 1
maps = len(open("/proc/self/maps").readlines())
# Not getrusage: that starts from what the parent held.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"compositions": done, "mappings": maps,
                  "gibibytes": int(peak.split()[1]) / 2**20}))
"""


def sampled(scale: Any, q: Any, steps: Any) -> dp.PrivacyLoss:
    return steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "add_remove"))


def cpu(call: Callable[[], Any], repeats: int = 3) -> dict[str, float]:
    """Of the first call, and the least of the others: CPU and wall seconds."""
    times = []
    for _ in range(repeats + 1):
        start, wall = time.process_time(), time.perf_counter()
        jax.block_until_ready(call())
        times.append((time.process_time() - start, time.perf_counter() - wall))
    first, rest = times[0], times[1:]
    return {
        "first_cpu": first[0],
        "cpu": float(np.median([t[0] for t in rest])),
        "wall": float(np.median([t[1] for t in rest])),
    }


def widths(loss: dp.PrivacyLoss, delta: float) -> dict[str, float]:
    """How far apart the bounds on epsilon are, over all lanes."""
    found = evaluate.epsilon(loss.terms, jnp.asarray(delta), loss.both)
    width = np.asarray(found.upper - found.lower)
    width = np.where(np.isnan(width), np.inf, width)
    return {
        "lanes": width.size,
        "within_1e-6": float(np.mean(width <= 1e-6)),
        "within_1e-3": float(np.mean(width <= 1e-3)),
        "median_width": float(np.median(width)),
        "worst_width": float(width.max()),
    }


def ordinary_grid() -> dict[str, Any]:
    axes = np.geomspace(0.6, 10, 20), np.geomspace(1e-4, 0.2, 10)
    scale, q, steps = np.meshgrid(*axes, np.round(np.geomspace(10, 1e5, 20)), indexing="ij")
    loss = sampled(scale, q, steps)
    return widths(loss, 1e-5) | cpu(lambda: loss.epsilon(1e-5))


def random_runs() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    scale, q = rng.uniform(0.7, 4, 1024), 10 ** rng.uniform(-3, -1, 1024)
    steps = np.round(10 ** rng.uniform(2, 4, 1024))
    loss = sampled(scale, q, steps)
    row: dict[str, Any] = widths(loss, 1e-6) | cpu(lambda: loss.epsilon(1e-6))

    @jax.jit
    def inside(scale: Any, q: Any, steps: Any) -> Any:
        return sampled(scale, q, steps).epsilon(1e-6)

    within = cpu(lambda: inside(scale, q, steps))
    row |= {f"inside_jit_{name}": value for name, value in within.items()}
    lower = np.asarray(evaluate.epsilon(loss.terms, jnp.asarray(1e-6), True).lower)
    accounting = importlib.import_module("dp_accounting")
    pld = importlib.import_module("dp_accounting.pld")
    start = time.process_time()
    for i in rng.choice(1024, PEERS, replace=False):
        peer = pld.PLDAccountant(value_discretization_interval=1e-4)
        event = accounting.GaussianDpEvent(float(scale[i]))
        peer.compose(accounting.PoissonSampledDpEvent(float(q[i]), event), int(steps[i]))
        assert peer.get_epsilon(1e-6) >= lower[i]
    row["dp_accounting_1e-4_cpu_a_run"] = (time.process_time() - start) / PEERS
    row["ratio"] = row["dp_accounting_1e-4_cpu_a_run"] / (row["cpu"] / 1024)
    return row


def of_language_models(sigma: Any, q: Any, steps: Any, delta: Any) -> dict[str, Any]:
    loss = sampled(sigma, q, steps)
    found = evaluate.epsilon(loss.terms, jnp.asarray(delta), loss.both)
    upper, lower = np.asarray(found.upper), np.asarray(found.lower)
    width = (upper - lower) / (1.0 + upper)
    return {
        "lanes": width.size,
        "infinite": int(np.sum(~np.isfinite(upper))),
        "within_1e-3": float(np.mean(width <= 1e-3)),
        "within_1e-5": float(np.mean(width <= 1e-5)),
    }


def language_models() -> dict[str, Any]:
    """Trainings that rarely see a record: drawn at random, and those of `few_hits.json`."""
    rng = np.random.default_rng(11)
    sigma, q = rng.uniform(0.4, 1.6, 1024), 10 ** rng.uniform(-6.5, -3.3, 1024)
    steps = np.ceil(10 ** rng.uniform(-1.5, 1.5, 1024) / q)
    delta = 10 ** rng.uniform(-12, -6, 1024)
    rows = json.loads((REFERENCE / "few_hits.json").read_text())["values"]
    columns = (np.array([r[k] for r in rows]) for k in ("sigma", "q", "steps", "delta", "epsilon"))
    *known, truth = columns
    found = 1.0 * np.asarray(training(*known[:3]).epsilon(known[3]))
    assert np.all(found >= truth * (1.0 - 3e-4))
    row = of_language_models(sigma, q, steps, delta)
    clock = cpu(lambda: sampled(sigma, q, steps).epsilon(delta), 1)
    return row | clock | {"few_hits": of_language_models(*known)}


def training(sigma: Any, q: Any, steps: Any) -> dp.PrivacyLoss:
    return steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(sigma), 1.0, q, "remove"))


def two_phases() -> dict[str, float]:
    """64 lanes of two phases of sampled Gaussians."""
    scale = np.geomspace(0.8, 4.0, 64)
    loss = sampled(scale, 0.01, 1000.0) + sampled(1.5 * scale, 0.02, 500.0)
    return widths(loss, 1e-6) | cpu(lambda: loss.epsilon(1e-6))


def noise_multipliers() -> dict[str, Any]:
    """One, and for 128 budgets."""
    budgets = np.geomspace(0.3, 8.0, 128)

    def ask(epsilon: Any) -> Any:
        return dp.dpsgd.noise_multiplier(epsilon=epsilon, delta=1e-6, sampling_prob=0.01, steps=1e3)

    return {"one": cpu(lambda: ask(1.0)), "128": cpu(lambda: ask(budgets), 1)}


def first_questions() -> dict[str, float]:
    rows = {}
    for name, call in QUESTIONS.items():
        code = (
            "import time, jax\njax.config.update('jax_enable_x64', True)\nimport jaxdp as dp\n"
            "run = {'sampling_prob': 0.01, 'steps': 1000}\nstart = time.process_time()\n"
            f"float({call})\nprint(time.process_time() - start)"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        rows[name] = float(done.stdout)
    return rows


def first_calls() -> dict[str, Any]:
    rows = {}
    for name, mechanism in FIRST.items():
        code = (
            "import time, jax\njax.config.update('jax_enable_x64', True)\nimport jaxdp as dp\n"
            f"loss = 10 * dp.privacy_loss({mechanism})\nstart = time.process_time()\n"
            "float(loss.log_delta(1.0))\nprint(time.process_time() - start)\n"
            "float(loss.epsilon(1e-6))\nprint(time.process_time() - start)\n"
            "print(len(open('/proc/self/maps').readlines()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        )
        log_delta, both, mappings = map(float, done.stdout.split())
        rows[name] = {
            "log_delta_cpu": log_delta,
            "epsilon_cpu": both - log_delta,
            "mappings": mappings,
        }
    return rows


def many_compositions() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", MANY], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr[-500:]}


def kinds() -> dict[str, Any]:
    """Every frozen value: no bound on the wrong side; how far above, how wide, how long."""
    compositions: Any = importlib.import_module("compositions")
    result = {}
    for kind, build in compositions.KINDS.items():
        rows = [row for row in ROWS if row["kind"] == kind]
        names = rows[0]["parameters"]
        columns = {k: jnp.array([[row["parameters"][k]] for row in rows]) for k in names}
        epsilon = jnp.array([row["epsilon"] for row in rows])
        frozen = np.array([row["log_delta"] for row in rows])
        stated = np.array([row["log_delta_error"] for row in rows], dtype=float)
        stated = np.where(np.isnan(stated), np.inf, stated)
        loss = build(**columns)
        upper, error = (
            np.asarray(loss.log_delta(epsilon)),
            np.asarray(loss.log_delta_error(epsilon)),
        )
        assert np.all(upper - error <= frozen), kind
        assert np.all(frozen - stated <= upper), kind
        above = upper - frozen
        result[kind] = {
            "values": above.size,
            "above_frozen_median": float(np.median(above)),
            "above_frozen_90th": float(np.quantile(above, 0.9)),
            "above_frozen_worst": float(above.max()),
            "error_median": float(np.median(error)),
            "error_90th": float(np.quantile(error, 0.9)),
            "unknown_error": int(np.sum(np.isinf(error))),
            "cpu_a_value": cpu(functools.partial(loss.log_delta, epsilon), 1)["cpu"] / above.size,
        }
    return result


def curve() -> dict[str, float]:
    """epsilon after each of 10,000 steps."""
    loss = sampled(1.0, 0.01, np.arange(1.0, 10_001.0))
    return cpu(lambda: loss.epsilon(1e-6), 1)


SECTIONS: dict[str, Callable[[], Any]] = {
    "ordinary_grid": ordinary_grid,
    "random_runs": random_runs,
    "language_models": language_models,
    "two_phases": two_phases,
    "noise_multipliers": noise_multipliers,
    "curve_of_10000_steps": curve,
    "first_questions": first_questions,
    "first_calls": first_calls,
    "kinds": kinds,
    "many_compositions": many_compositions,
}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    # Sections may be named on the command line; the last two take minutes.
    write_sections("accountant", SECTIONS, sys.argv[1:])
