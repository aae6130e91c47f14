"""Small problems and plans of coordinate descent."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from jaxdp import datasets
from jaxdp.solvers import L1, glm
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers.coordinate_descent.run import drawn, in_a_row
from jaxdp.solvers.lattice import Added

BUDGET = dp.Budget(1.0, 1e-6)
KEY = jax.random.key(7)


def problem(dtype=jnp.float64, intercept=False, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, size=(300, 3))
    targets = features @ np.array([1.0, 0.0, -2.0]) + 0.5 + 0.1 * rng.normal(size=300)
    return glm(
        features,
        targets,
        loss="squared",
        penalty=L1(0.01),
        intercept=intercept,
        dtype=dtype,
    )


def plan(**kwargs):
    """For `problem`."""
    known = {"smoothness": np.ones(3), "records": 300, "passes": 6, "step": 0.5, "key": KEY}
    return make_plan(**(known | kwargs))


def draw(made, key):
    """The noise of every update and the step of its lattice, (passes, updates)."""
    noises, shape = drawn(in_a_row(made), key), made.sequence.shape
    return Added(*(np.ravel(x)[: made.sequence.size].reshape(shape) for x in noises))


SMOOTHNESS = np.array([0.5, 1.0, 4.0, 0.1, 30.0])


def make_plan(**kwargs):
    arguments = {
        "smoothness": SMOOTHNESS,
        "clip": 2.0,
        "records": 1000,
        "passes": 7,
        "relation": "replace_one",
        "key": jax.random.key(1),
    }
    return cd.plan(kwargs.pop("budget", BUDGET), **(arguments | kwargs))


def standardised(name):
    data = datasets.load(name)
    features = (data.features - data.features.mean(axis=0)) / data.features.std(axis=0)
    return features, data.targets
