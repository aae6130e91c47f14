"""Greedy coordinate descent on quasi-sparse logistic regressions (Mangold et al., AISTATS 2023).

The figure of their section 5 on the synthetic data sets "log1" and "log2": F / F* - 1 against the
passes over the data, at (1, 1/n^2). Assumed, where the text was not at hand: normal features,
labels sign(x w + noise of deviation .3), log-normal w of deviation 1 and 2, l2 of 1e-3, their
constants of Laplace noise. Every method is tuned without a charge to the budget, as published.

A greedy update is a pass, as all derivatives are computed. Instead of their DP-SGD: full batches
with exact composition. "published noise": report noisy max and Laplace noise, whose scales are
8 C_j sqrt(T log(1/delta)) / (n epsilon). Smoothness is public, as published: NOT PRIVATE.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import write
from benchmarks._tools.regressions import budget_of, summary
from jaxdp.solvers import Problem, coordinate_descent, coordinate_smoothness

RECORDS, COORDINATES, RIDGE, NOISE = 1000, 100, 1e-3, 0.3
DEVIATIONS = {"log1": 1.0, "log2": 2.0}
SEEDS = 5
UPDATES, PASSES = (1, 2, 4, 8, 16, 32, 64), (1, 2, 5, 10, 20)
CLIPS, STEPS = (0.25, 0.5, 1.0, 2.0), (0.1, 0.3, 1.0, 3.0, 10.0)


def problem_of(deviation: float) -> tuple[Problem, np.ndarray, np.ndarray]:
    """The problem, its features and signs."""
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0.0, deviation, COORDINATES)
    features = rng.normal(size=(RECORDS, COORDINATES))
    signs = np.sign(features @ weights + NOISE * rng.normal(size=RECORDS))
    penalty = dp.solvers.L2(RIDGE)
    return dp.solvers.glm(features, signs > 0, loss="logistic", penalty=penalty), features, signs


def by_coordinates(problem: Problem, order: str) -> Callable[..., np.ndarray]:
    """Descent of the package, with exact composition."""
    curvature = coordinate_smoothness(problem).as_public()
    root = float(np.sqrt(np.sum(curvature.values)))

    @cache
    def unit(length: int, seed: int) -> Any:
        """The plan of thresholds and steps of 1; a greedy one has no order to draw."""
        counts: Any = {"passes": 1, "updates": length} if order == "greedy" else {"passes": length}
        return coordinate_descent.plan(
            budget_of(problem),
            smoothness=curvature,
            clip=root,
            records=RECORDS,
            relation="replace_one",
            order=order,
            key=jax.random.key(seed),
            penalty=problem.penalty,
            **counts,
        )

    def run(length: int, clip: float, step: float, seed: int) -> np.ndarray:
        plan = unit(length, 0 if order == "greedy" else seed)
        scaled = {name: clip * getattr(plan, name) for name in ("clip", "sensitivities", "scales")}
        plan = dataclasses.replace(plan, steps=step * plan.steps, **scaled)
        return np.asarray(coordinate_descent.run(problem, plan, jax.random.key(100 + seed)))

    return run


def shares(features: np.ndarray, signs: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Derivatives of each record's loss, (n, p)."""
    margins = signs * (features @ theta)
    return -(signs / (1.0 + np.exp(margins)))[:, None] * features


def published(problem: Problem, features: np.ndarray, signs: np.ndarray) -> Callable[..., Any]:
    """Greedy descent as published: noisy maximum, Laplace noise, constants of the theorem."""
    curvature = np.asarray(coordinate_smoothness(problem).values)
    budget = budget_of(problem)

    def run(length: int, clip: float, step: float, seed: int) -> np.ndarray:
        rng, theta = np.random.default_rng(seed), np.zeros(COORDINATES)
        bounds = clip * np.sqrt(curvature)
        root = np.sqrt(length * np.log(1.0 / float(budget.delta)))
        scales = 8.0 * bounds * root / (RECORDS * float(budget.epsilon))
        for _ in range(length):
            mean = np.clip(shares(features, signs, theta), -bounds, bounds).mean(axis=0)
            noisy = np.abs(mean + rng.laplace(size=COORDINATES) * scales) / np.sqrt(curvature)
            j = int(np.argmax(noisy))
            moved = theta[j] - step / curvature[j] * (mean[j] + rng.laplace() * scales[j])
            theta[j] = moved / (1.0 + step / curvature[j] * RIDGE)
        return theta

    return run


def full_batches(problem: Problem, features: np.ndarray, signs: np.ndarray) -> Callable[..., Any]:
    """Gradient descent on all records, clipped by norm, with exact composition."""
    mu = float(dp.largest_gdp(budget_of(problem)).mu)

    def run(length: int, clip: float, step: float, seed: int) -> np.ndarray:
        rng, theta = np.random.default_rng(seed), np.zeros(COORDINATES)
        bound = clip * COORDINATES**0.5 / 4
        scale = 2.0 * bound * length**0.5 / (RECORDS * mu)
        for _ in range(length):
            each = shares(features, signs, theta)
            norms = np.linalg.norm(each, axis=1, keepdims=True)
            mean = (each * np.minimum(1.0, bound / norms)).mean(axis=0)
            moved = theta - step * (mean + scale * rng.normal(size=COORDINATES))
            theta = moved / (1.0 + step * RIDGE)
        return theta

    return run


def objective(problem: Problem, theta: Any) -> float:
    return float(problem.objective(theta))


def curve(run: Callable[..., Any], problem: Problem, best: float, lengths: Any) -> list[Any]:
    """The smallest mean error of the grid at each length."""
    rows = []
    for length in lengths:
        found = []
        for clip in CLIPS:
            for step in STEPS:
                thetas = [run(length, clip, step, seed) for seed in range(SEEDS)]
                errors = np.array([objective(problem, x) for x in thetas]) / best - 1.0
                found.append({"passes": length, "clip": clip, "step": step, **summary(errors)})
        rows.append(min(found, key=lambda row: row["mean"]))
    return rows


def measured(deviation: float) -> dict[str, Any]:
    """All methods on one problem."""
    problem, features, signs = problem_of(deviation)
    plan = coordinate_descent.noiseless_plan(coordinate_smoothness(problem), passes=1000)
    best = objective(problem, coordinate_descent.run(problem, plan, jax.random.key(0)))
    methods = {
        "greedy": (by_coordinates(problem, "greedy"), UPDATES),
        "greedy, published noise": (published(problem, features, signs), UPDATES),
        "random coordinates": (by_coordinates(problem, "iid"), PASSES),
        "full batches": (full_batches(problem, features, signs), UPDATES),
    }
    start = objective(problem, np.zeros(COORDINATES)) / best - 1.0
    rows = {name: curve(run, problem, best, lengths) for name, (run, lengths) in methods.items()}
    return {"optimum": best, "at zero": start, "methods": rows}


if __name__ == "__main__":
    write("greedy_reproduced", {name: measured(x) for name, x in DEVIATIONS.items()})
