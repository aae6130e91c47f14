"""Linear and logistic regression: scores, coverage of intervals, memory and CPU time of a fit.

`python -m benchmarks.bench_regressions [SECTION ...]` writes results/regressions.json. Memory is
the peak of the second fit of a process of its own, above its data and programs; times are CPU
seconds of this fit, and of the first, which compiles. 1e5 features are fitted once, in 9 GiB.
"""

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import environment, write_sections
from jaxdp import datasets

# Bytes of data from which one fit is measured, which compiles.
LARGE = 2**31
SEEDS = {0.1: 16, 1.0: 8, 10.0: 8}
# n, p, type and estimator of measured fits; the large ones once.
FITS = {
    "moments": (200_000, 50, "float64", {"solver": "moments"}),
    "coordinate_descent": (200_000, 50, "float64", {"solver": "coordinate_descent"}),
    "coordinate_descent, float32": (200_000, 50, "float32", {"solver": "coordinate_descent"}),
    "logistic": (200_000, 50, "float64", None),
    "a million records, moments": (1_000_000, 50, "float64", {"solver": "moments"}),
    "a million records, coordinate_descent": (
        1_000_000,
        50,
        "float64",
        {"solver": "coordinate_descent"},
    ),
    "a million records, logistic": (1_000_000, 50, "float64", None),
    "1e5 features": (10_000, 100_000, "float32", {}),
}


def scores(model: Any, features: Any, targets: Any, seeds: int) -> dict[str, float]:
    found = [model.fit(features, targets).score(features, targets) for _ in range(seeds)]
    return {"mean": float(np.mean(found)), "least": float(min(found)), "most": float(max(found))}


def r_squared() -> Any:
    """California, as a whole: delta 1 / n^2; `inf`: least squares on the same clipped columns."""
    data = datasets.load("california_housing")
    x, y = data.features, data.targets
    rows: dict[str, Any] = {}
    standard = np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3, 3)
    centred = np.clip((y - y.mean()) / y.std(), -3, 3)
    for name, features, targets, bounds, target_bounds in (
        ("standardised", standard, centred, (-3, 3), (-3, 3)),
        ("raw", x, y, (x.min(axis=0), x.max(axis=0)), (y.min(), y.max())),
    ):
        model: Any = None
        for epsilon, seeds in SEEDS.items():
            model = dp.DPLinearRegression(
                epsilon=epsilon,
                delta=float(len(y)) ** -2,
                feature_bounds=bounds,
                target_bounds=target_bounds,
            )
            rows[f"{name}, epsilon {epsilon:g}"] = scores(model, features, targets, seeds)
        # On the columns as the last fit clipped them.
        low, high = np.asarray(model.feature_range_)
        clipped = np.column_stack([np.clip(features, low, high), np.ones(len(y))])
        rest = targets - clipped @ np.linalg.lstsq(clipped, targets)[0]
        rows[f"{name}, no privacy"] = {"mean": float(1.0 - rest.var() / targets.var())}
    return rows


def signs(size: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Signs, and targets of which ten of them explain 95 %; float32."""
    rng = np.random.default_rng(seed)
    x = np.empty((size, features), np.float32)
    for start in range(0, size, 500):
        rows = x[start : start + 500]
        rows[:] = 2 * rng.integers(0, 2, rows.shape, dtype=np.int8) - 1
    y = x[:, :10].sum(axis=1) + rng.normal(size=size) * (10 * 0.05 / 0.95) ** 0.5
    return x, np.clip(y, -12, 12)


def greedy() -> Any:
    rows = {}
    for size, epsilon, seeds in ((10_000, 0.3, 1), (6_000, 0.3, 3), (6_000, 1.0, 3)):
        x, y = signs(size, size)
        model = dp.DPLinearRegression(
            epsilon=epsilon,
            delta=float(size) ** -2,
            feature_bounds=(-1, 1),
            target_bounds=(-12, 12),
        )
        found = scores(model, x, y, seeds)
        rows[f"n = p = {size}, epsilon {epsilon:g}"] = found | {"solver": model.solver_}
    return rows


def coverage() -> Any:
    """Share of intervals that hold the coefficient: 400 data sets, p = 3, epsilon 3."""
    truth, inside = np.array([0.5, 0.0, -0.25]), []
    rng = np.random.default_rng(0)
    for _ in range(400):
        x = rng.uniform(-3, 3, size=(2000, 3))
        y = x @ truth + 0.5 * rng.normal(size=2000)
        model: Any = dp.DPLinearRegression(
            epsilon=3.0,
            delta=1e-6,
            feature_bounds=(-3, 3),
            target_bounds=(-5, 5),
            solver="moments",
        ).fit(x, y)
        low, high = np.transpose(model.coef_interval_)
        inside.append((low <= truth) & (truth <= high))
    shares = np.mean(inside, axis=0)
    return {"fits": 400, "least": float(shares.min()), "most": float(shares.max())}


def fits() -> Any:
    rows = {}
    for name in FITS:
        out = subprocess.run(
            [sys.executable, "-m", "benchmarks.bench_regressions", "--fit", name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        rows[name] = json.loads(out.splitlines()[-1])
        print(name, rows[name], flush=True)
    return rows | {"environment": environment()}


def fit(name: str) -> dict[str, Any]:
    """Memory and CPU time of one kind of fit, in this process."""
    size, features, dtype, arguments = FITS[name]
    x, y, bound = (*signs(size, features), 1.0) if features > 1000 else normal(size, features)
    x = x.astype(dtype, copy=False)
    known: dict[str, Any] = {"epsilon": 1.0, "delta": float(size) ** -2}
    known["feature_bounds"] = (-bound, bound)

    def once() -> Any:
        if arguments is None:
            return dp.DPLogisticRegression(**known).fit(x, y > 0)
        return dp.DPLinearRegression(**known, **arguments, target_bounds=(-12, 12)).fit(x, y)

    first = None
    if x.nbytes < LARGE:
        start = time.process_time()
        once()
        first = time.process_time() - start
    Path("/proc/self/clear_refs").write_text("5")
    before, start = memory("VmRSS"), time.process_time()
    model = once()
    seconds, peak = time.process_time() - start, memory("VmHWM")
    return {
        "records": size,
        "features": features,
        "dtype": dtype,
        "solver": getattr(model, "solver_", "coordinate_descent"),
        "passes": int(model.n_iter_),
        "score": float(model.score(x[:5000], (y > 0 if arguments is None else y)[:5000])),
        "first_cpu_seconds": first,
        "cpu_seconds": seconds,
        "peak_gib": peak / 2**30,
        "above_the_data": (peak - before) / x.nbytes,
    }


def normal(size: int, features: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Normal features within 3, and targets of which they explain a half."""
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(size=(size, features)), -3.0, 3.0)
    weights = rng.normal(size=features) / features**0.5
    return x, np.clip(x @ weights + rng.normal(size=size), -12, 12), 3.0


def memory(field: str) -> float:
    """Bytes of a field of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--fit"]:
        print(json.dumps(fit(sys.argv[2])))
    else:
        sections = {"r_squared": r_squared, "greedy": greedy, "coverage": coverage, "fits": fits}
        write_sections("regressions", sections, sys.argv[1:])
