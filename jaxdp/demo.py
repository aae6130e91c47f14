"""The main job on real input: sweeps, calibrated i.n.i.d. noise, two private regressions.

`main` prints it, in 80 columns, and leaves a picture and a JSON file of every number printed.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import datasets, dpsgd, plot
from jaxdp._core import checks
from jaxdp._core.files import write_atomically
from jaxdp._core.precision import opened
from jaxdp.design.allocate import METHODS, allocate, allocation_error
from jaxdp.guarantee.base import Budget
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.solvers import coordinate_descent
from jaxdp.solvers.penalties import L1, L2, Penalty
from jaxdp.solvers.problems import Problem, coordinate_smoothness, glm
from jaxdp.sweep import sweep

# Points of each axis of the sweep of a Gaussian, trainings of DP-SGD, seeds of each regression, its
# passes over the records, and its budget. chosen: half a minute in all
SIDE = 1000
TRAININGS = 32
SEEDS = 10
PASSES = 50
EPSILON = 1.0


class Training(NamedTuple):
    """A regression and, for each allocation, its (step, clip / sqrt(sum M))."""

    data: str
    loss: str
    penalty: Penalty
    settings: dict[str, tuple[float, float]]
    scaled: bool = False  # features by their greatest magnitude, targets centred


def trainings() -> tuple[Training, Training]:
    """Real data where they can be read, with the published settings; else the bundled sets."""
    if datasets.available("california_housing") and datasets.available("electricity"):
        lasso = {"iid": (0.0215, 0.56), "spr": (0.464, 1.78), "inid": (0.215, 1.78)}
        logistic = {"iid": (0.316, 1.31), "spr": (1.0, 2.57), "inid": (1.0, 2.57)}
        return (
            Training("california_housing", "squared", L1(0.1), lasso),
            Training("electricity", "logistic", L2(1 / 45312), logistic),
        )
    small: dict[str, tuple[float, float]] = dict.fromkeys(("iid", "spr", "inid"), (0.02, 1.0))
    return (
        Training("diabetes", "squared", L1(0.02), small, scaled=True),
        Training("breast_cancer", "logistic", L2(0.01), small, scaled=True),
    )


def main(out: Path, say: Callable[[str], None] = print, *, progress: bool = True) -> dict[str, Any]:
    """Run the four parts, write `out`/demo.png and `out`/demo.json, return the numbers."""
    pyplot = checks.extra("matplotlib.pyplot", "plot")
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    say("[1/4] sweeps: one Gaussian answer, and DP-SGD at delta = 1e-6")
    report: dict[str, Any] = {"sweep": sweeps(say, progress)}
    say("[2/4] noise for 20 coordinates of unequal sensitivity, delta = 1e-6")
    report["allocation"] = allocation(say)
    say(f"[3/4] private coordinate descent, epsilon = {EPSILON:g}, delta = 1/n^2, {PASSES} passes")
    report["training"] = []
    for job, panel in zip(trainings(), axes[1:], strict=True):
        numbers, curves = train(job, say)
        report["training"].append(numbers)
        plot.training(curves, f"{job.data}: diagnostic, not private", ax=panel)
    say("      Smoothness, steps and thresholds are taken as public, and the errors are")
    say("      evaluation: computed from the records, they are not private output.")
    say("[4/4] picture and numbers")
    equal = {
        "Gaussian, variance 2": Mechanism(Gaussian(np.sqrt(2.0)), 1.0),
        "Laplace, variance 2": Mechanism(Laplace(1.0), 1.0),
    }
    plot.profile(equal, np.linspace(0.0, 8.0, 400), ax=axes[0])
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    pyplot.close(figure)
    write_atomically(out / "demo.png", drawn.getvalue())
    report["seconds"] = time.perf_counter() - started
    write_atomically(out / "demo.json", json.dumps(report, indent=1) + "\n")
    say(f"      {out / 'demo.png'} and {out / 'demo.json'}, {report['seconds']:.1f} s in all")
    return report


def sweeps(say: Callable[[str], None], progress: bool) -> dict[str, Any]:
    """A million deltas and a thousand epsilons of DP-SGD, each over a grid of two axes."""

    def log_delta(scale: jax.Array, epsilon: jax.Array) -> jax.Array:
        return Gaussian(scale).log_delta(1.0, epsilon)

    def epsilon(noise_multiplier: jax.Array, steps: jax.Array) -> jax.Array:
        return dpsgd.epsilon(noise_multiplier, 1e-6, sampling_prob=0.01, steps=steps)

    scales, epsilons = np.geomspace(0.3, 30.0, SIDE), np.geomspace(0.01, 10.0, SIDE)
    noises = np.linspace(0.7, 4.0, TRAININGS)
    steps = np.round(np.geomspace(100, 10_000, TRAININGS))
    rows = {}
    for function, axes, chunk in (
        (log_delta, {"scale": scales, "epsilon": epsilons}, 2**16),
        (epsilon, {"noise_multiplier": noises, "steps": steps}, 2**7),
    ):
        start, name = time.perf_counter(), function.__name__
        values = sweep(function, axes, chunk=chunk, progress=progress)["value"].values
        seconds = time.perf_counter() - start
        least, greatest = float(values.min()), float(values.max())
        rows[name] = {"points": values.size, "seconds": seconds}
        rows[name] |= {"least": least, "greatest": greatest}
        line = f"      {name:<10}{values.size:9,} points in {seconds:5.1f} s, "
        say(f"{line}{least:.4g} to {greatest:.4g}")
    return rows


def allocation(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Gaussian against Laplace, equal against unequal scales, three profiles."""
    say("      profile     noise    scales     least  greatest squared error     gain")
    rows = []
    index = np.arange(1.0, 21.0)
    profiles = {"linear": index, "quadratic": index**2, "exponential": np.exp(-index)}
    for profile, sizes in profiles.items():
        sensitivities = sizes / np.linalg.norm(sizes)
        for family in ("gaussian", "laplace"):
            scales = {
                method: allocate(family, sensitivities, Budget(EPSILON, 1e-6), method=method)
                for method in METHODS
            }
            errors = {method: float(allocation_error(family, x)) for method, x in scales.items()}
            for method, error in errors.items():
                gain = round(10 * float(np.log10(errors["iid"] / error)), 12) + 0.0  # no minus zero
                row = {"profile": profile, "family": family, "method": method}
                rows.append(row | {"squared_error": error, "gain_db": gain})
                least, greatest = float(scales[method].min()), float(scales[method].max())
                say(
                    f"      {profile:<12}{family:<9}{method:<6}{least:10.3g}{greatest:10.4g}"
                    f"{error:14.6g}{gain:+6.2f} dB"
                )
    return rows


@opened()
def train(
    job: Training, say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Relative errors of each allocation over fresh seeds, against the non-private optimum."""
    data = datasets.load(job.data)
    features, targets = data.features, data.targets
    if job.scaled:
        features = features / np.abs(features).max(axis=0)
        if job.loss == "squared":
            targets = (targets - targets.mean()) / targets.std()
    exact = glm(features, targets, loss=job.loss, penalty=job.penalty)
    best = float(exact.objective(jnp.asarray(_optimum(job, features, targets))))
    records, coordinates = features.shape
    name = "LASSO" if job.loss == "squared" else "logistic regression"
    say(f"      {name}, {job.data} {records:,} x {coordinates}, optimum {best:.7f}")
    problem = glm(features, targets, loss=job.loss, penalty=job.penalty, dtype=jnp.float32)
    # Arrays of NumPy would become constants of the program, which take minutes to compile.
    problem = jax.tree.map(jnp.asarray, problem)
    found: dict[str, dict[str, float]] = {}
    curves = {}
    for method, (step, clip) in job.settings.items():
        objective, rho = _chains(problem, records, method, step, clip)
        curves[method] = np.asarray(objective) / best - 1.0
        final = curves[method][:, -1]
        error, deviation = float(final.mean()), float(final.std(ddof=1) / np.sqrt(SEEDS))
        found[method] = {"relative_error": error, "standard_error": deviation, "rho": rho}
        below = found["iid"]["relative_error"] / error
        say(
            f"        {method:<5} error {error:.4f} +- {deviation:.4f} ({below:.2f} x below iid), "
            f"rho {rho:.6f}"
        )
    return {"data": job.data, "optimum": best, "allocations": found}, curves


@opened()  # One program in float64 throughout compiles faster than parts of one.
def _chains(
    problem: Problem, records: int, method: str, step: float, clip: float
) -> tuple[jax.Array, float]:
    """The objective after each pass, (SEEDS, PASSES), and the rho that the plans spend."""
    curvature = coordinate_smoothness(problem).as_public()
    keys = jax.vmap(jax.random.split)(jax.random.split(jax.random.key(0), SEEDS))
    plans: list[Any] = [
        coordinate_descent.plan(
            Budget(EPSILON, float(records) ** -2),
            smoothness=curvature,
            clip=clip * float(jnp.sqrt(jnp.sum(curvature.values))),
            records=records,
            passes=PASSES,
            relation="replace_one",
            step=step,
            allocation=method,
            key=order,
        )
        for order in keys[:, 0]
    ]

    def chain(inputs: tuple[Any, jax.Array]) -> jax.Array:
        _, trace = coordinate_descent.run(problem, *inputs, trace=True)
        return trace.objective

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *plans)
    return jax.lax.map(chain, (stacked, keys[:, 1])), float(plans[0].rho)


def _optimum(job: Training, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    models = checks.extra("sklearn.linear_model", "learn")
    strength = float(job.penalty.strength)
    known: dict[str, Any] = {"fit_intercept": False, "tol": 1e-10}
    if job.loss == "squared":
        model = models.Lasso(alpha=strength, max_iter=100_000, **known)
    else:
        weight = 1.0 / (strength * len(targets))
        model = models.LogisticRegression(C=weight, solver="newton-cholesky", **known)
    return np.ravel(model.fit(features, targets).coef_)
