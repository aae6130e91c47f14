"""Solvers to audit, each on a few records of which one is replaced, or is not there."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import jaxdp as dp
from benchmarks._tools.audited import Case, Cases
from benchmarks.reproductions import sufficient_statistics
from jaxdp.solvers import (
    L1,
    Problem,
    coordinate_descent,
    covariance,
    glm,
    naive_bayes,
    scaling,
)

DELTA = 1e-2
BUDGET = (2.0, DELTA)
TRIALS = 4000
# Of solvers that work on the host, one call a trial.
HOST_TRIALS = 1000


def in_one_program(release: Callable[..., Any], plan: Any) -> Callable[[Any, Any], Any]:
    """The releases of many keys; the plan's numbers are constants, which JAX does not round."""
    return jax.jit(jax.vmap(lambda data, key: release(data, plan, key), (None, 0)))


def problem(loss: str, values: tuple[float, float]) -> Problem:
    """Three records that pull nowhere, and one with a feature and a target."""
    features = np.array([[0.0], [0.0], [0.0], [values[0]]])
    targets = np.array([0.0, 1.0, 0.0, values[1]])
    classes = [0, 1] if loss == "logistic" else None
    return glm(features, targets, loss=loss, penalty=L1(1e-2), classes=classes)


def descent(loss: str, noise: str | dp.own.Noise, relation: str) -> Case:
    """Three updates, small enough for the gradient to stay at its threshold."""
    plan = coordinate_descent.plan(
        BUDGET,
        smoothness=[1.0],
        clip=1.0,
        records=4,
        passes=3,
        relation=relation,
        step=1e-3,
        order="cyclic",
        noise=noise,
    )
    mechanism = in_one_program(coordinate_descent.run, plan)
    there = (1.0, 9.0) if loss == "squared" else (9.0, 1.0)
    other = (there[0], -9.0 if loss == "squared" else 0.0)
    pair = problem(loss, there), problem(loss, other if relation == "replace_one" else (0.0, 0.0))
    return Case(mechanism, pair, plan.guarantee, DELTA, TRIALS, TRIALS)


def greedy_descent(relation: str) -> Case:
    """Two updates of one of two coordinates; the last record pulls the first."""
    plan = coordinate_descent.plan(
        BUDGET,
        smoothness=[1.0, 1.0],
        clip=[1.0, 1.0],
        records=4,
        passes=1,
        relation=relation,
        step=0.1,
        order="greedy",
    )

    def mechanism(data: Problem, key: jax.Array) -> Any:
        return coordinate_descent.run(data, plan, key)

    def data(last: tuple[float, float]) -> Problem:
        features = np.array([[0.0, 0.0]] * 3 + [[last[0], 0.0]])
        return glm(features, np.array([0.0, 1.0, 0.0, last[1]]), loss="squared", penalty=L1(1e-2))

    pair = data((1.0, 9.0)), data((1.0, -9.0) if relation == "replace_one" else (0.0, 0.0))
    return Case(mechanism, pair, plan.guarantee, DELTA, HOST_TRIALS)


def moment(relation: str) -> Case:
    plan = covariance.plan(BUDGET, dimension=2, records=2, relation=relation)
    mechanism = in_one_program(covariance.release, plan)
    other = [0.0, 1.0] if relation == "replace_one" else [0.0, 0.0]
    pair = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0], other])
    return Case(mechanism, pair, dp.GDP(plan.ratio), DELTA, TRIALS, TRIALS)


def moments_lasso() -> Case:
    known = {"row_bound": 2.0**0.5, "relation": "replace_one"}

    def mechanism(targets, keys):
        x, y = np.ones((2, 1)), np.asarray(targets)
        draw = lambda key: sufficient_statistics.lasso(x, y, 1e-3, BUDGET, key, **known)[0]  # noqa: E731
        return jax.vmap(draw)(keys)

    return Case(mechanism, ([0.0, 1.0], [0.0, -1.0]), BUDGET[0], DELTA, TRIALS, TRIALS)


def centres(spent: Any) -> Case:
    ends = np.array([-1.0]), np.array([1.0])

    def mechanism(value, key):
        values = np.array([[0.0], [0.0], [value]])
        return scaling.release(values, *ends, spent, key, relation="replace_one")

    return Case(mechanism, (1.0, -1.0), spent, DELTA, HOST_TRIALS)


def bayes(noise: str, relation: str) -> Case:
    """A categorical column and one of numbers; the last record changes its class and all else."""
    plan = naive_bayes.plan(
        BUDGET, classes=2, categories=[2, 0], relation=relation, noise=noise, levels=16
    )
    records = np.array([[0.0, 0.0], [1.0, 0.0]] * 10 + [[0.0, 1.0], [1.0, -1.0]])
    labels = np.array([0, 1] * 10 + [0, 1])
    first, other = [*range(20), 20], [*range(20), 21]

    def mechanism(rows, key):
        return naive_bayes.release(records[rows], labels[rows], plan, key)

    pair = (first, other if relation == "replace_one" else first[:-1])
    return Case(mechanism, pair, plan.guarantee, DELTA, HOST_TRIALS)


SOLVERS: Cases = {
    "coordinate descent, lasso": partial(descent, "squared", "gaussian", "replace_one"),
    "coordinate descent, lasso, record added": partial(
        descent, "squared", "gaussian", "add_remove"
    ),
    "coordinate descent, lasso, Laplace": partial(descent, "squared", "laplace", "replace_one"),
    "coordinate descent, lasso, flipped Huber": partial(
        descent, "squared", dp.FlippedHuber(0.5, 1.0), "replace_one"
    ),
    "coordinate descent, logistic": partial(descent, "logistic", "gaussian", "replace_one"),
    "coordinate descent, logistic, record added": partial(
        descent, "logistic", "gaussian", "add_remove"
    ),
    "greedy coordinate descent": partial(greedy_descent, "replace_one"),
    "greedy coordinate descent, record added": partial(greedy_descent, "add_remove"),
    "covariance": partial(moment, "replace_one"),
    "covariance, record added": partial(moment, "add_remove"),
    "sufficient statistics": moments_lasso,
    "scaling, Gaussian": partial(centres, dp.GDP(1.0)),
    "scaling, Laplace": partial(centres, dp.PureDP(2.0)),
    "naive Bayes, Gaussian": partial(bayes, "gaussian", "replace_one"),
    "naive Bayes, Gaussian, record added": partial(bayes, "gaussian", "add_remove"),
    "naive Bayes, Laplace": partial(bayes, "laplace", "replace_one"),
}
