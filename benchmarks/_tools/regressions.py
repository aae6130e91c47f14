"""The regressions of the published experiments: data, optimum, tuned hyper-parameters."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from jaxdp import datasets
from jaxdp.solvers import coordinate_descent

_OPTIMA: dict[str, float] = {}


class Regression(NamedTuple):
    """One problem, its optimum, and per allocation (step, clip / sqrt(sum M))."""

    name: str
    data: str
    scaling: str  # "raw", "standard" (targets of a LASSO centred) or "minmax"
    penalty: Any
    passes_to_optimum: int
    published_optimum: float | None
    settings: dict[str, tuple[float, float]]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        data = datasets.load(self.data)
        features, targets = data.features, data.targets
        if self.scaling == "standard":
            features = (features - features.mean(axis=0)) / features.std(axis=0)
            if self.loss == "squared":
                targets = targets - targets.mean()
        elif self.scaling == "minmax":
            low, high = features.min(axis=0), features.max(axis=0)
            features = (features - low) / (high - low)
        return features, targets

    @property
    def loss(self) -> str:
        return "squared" if self.data == "california_housing" else "logistic"

    def problem(self, dtype: str = "float64") -> dp.solvers.Problem:
        features, targets = self.arrays()
        return dp.solvers.glm(features, targets, loss=self.loss, penalty=self.penalty, dtype=dtype)


TUNED = {"iid": (0.0215, 0.56), "spr": (0.464, 1.78), "inid": (0.215, 1.78), "winid": (0.464, 1.78)}
SAME = ("iid", "spr", "inid", "winid")
CALIFORNIA, ELECTRICITY = "california_housing", "electricity"
REGRESSIONS = (
    Regression(
        "California raw, l1 0.1", CALIFORNIA, "raw", dp.solvers.L1(0.1), 20_000, 0.3668935216, TUNED
    ),
    Regression(
        "California standardised, l1 0.1",
        CALIFORNIA,
        "standard",
        dp.solvers.L1(0.1),
        300,
        0.4193644937,
        dict.fromkeys(SAME, (0.1, 3.16)),
    ),
    Regression(
        "California min-max, l1 0.05",
        CALIFORNIA,
        "minmax",
        dp.solvers.L1(0.05),
        20_000,
        None,
        dict.fromkeys(SAME, (0.316, 2.78)),
    ),
    Regression(
        "Electricity raw, l2 1/n",
        ELECTRICITY,
        "raw",
        dp.solvers.L2(1 / 45312),
        3000,
        0.5568569454,
        {"iid": (0.316, 1.31)} | dict.fromkeys(("spr", "inid", "winid"), (1.0, 2.57)),
    ),
    Regression(
        "Electricity standardised, l2 1/n",
        ELECTRICITY,
        "standard",
        dp.solvers.L2(1 / 45312),
        2000,
        0.5101816652,
        dict.fromkeys(SAME, (1.0, 2.57)),
    ),
)


def budget_of(problem: dp.solvers.Problem) -> dp.Budget:
    """epsilon = 1, delta = 1 / n^2: that of the papers."""
    return dp.Budget(1.0, float(problem.design.shape[1]) ** -2)


def optimum(job: Regression) -> float:
    """F at the end of noiseless passes. NOT PRIVATE."""
    if job.name not in _OPTIMA:
        problem = job.problem()
        curvature = dp.solvers.coordinate_smoothness(problem)
        plan = coordinate_descent.noiseless_plan(curvature, passes=job.passes_to_optimum)
        theta = coordinate_descent.run(problem, plan, jax.random.key(0))
        _OPTIMA[job.name] = float(problem.objective(jnp.asarray(theta)))
    return _OPTIMA[job.name]


def plans(
    problem: dp.solvers.Problem, keys: jax.Array, step, clip, passes: int = 50, **arguments: Any
) -> coordinate_descent.Plan:
    """One plan a key (steps and clips may be one a key), smoothness taken as public."""
    curvature = dp.solvers.coordinate_smoothness(problem).as_public()
    total = jnp.sqrt(jnp.sum(curvature.values))
    steps, clips = (jnp.broadcast_to(jnp.asarray(a, float), keys.shape[:1]) for a in (step, clip))

    def one(key: jax.Array, step: jax.Array, clip: jax.Array) -> Any:
        return coordinate_descent.plan(
            budget_of(problem),
            smoothness=curvature,
            clip=clip * total,
            records=problem.design.shape[1],
            passes=passes,
            relation="replace_one",
            step=step,
            key=key,
            penalty=problem.penalty,
            **arguments,
        )

    return jax.jit(jax.vmap(one))(keys, steps, clips)


@functools.partial(jax.jit, static_argnames="chunk")
def chains(
    problem: dp.solvers.Problem, made: coordinate_descent.Plan, keys: jax.Array, chunk: int = 1
) -> jax.Array:
    """theta of each plan and key, `chunk` at a time: with one, a state stays in a CPU's cache."""

    def chain(pair: tuple[coordinate_descent.Plan, jax.Array]) -> Any:
        return coordinate_descent.run(problem, *pair)

    return jax.lax.map(chain, (made, keys), batch_size=None if chunk == 1 else chunk)


def relative_errors(
    problem: dp.solvers.Problem, best: float, made: coordinate_descent.Plan, keys: jax.Array
) -> np.ndarray:
    """F / F* - 1 of each chain. Evaluation, NOT PRIVATE."""
    theta = chains(problem, made, keys)
    return np.asarray(jax.lax.map(problem.objective, theta)) / best - 1.0


def summary(errors: np.ndarray) -> dict[str, float]:
    """Mean and its standard error."""
    return {
        "mean": float(errors.mean()),
        "standard_error": float(errors.std(ddof=1) / np.sqrt(len(errors))),
    }
