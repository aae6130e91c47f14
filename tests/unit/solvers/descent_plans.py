"""Plans of coordinate descent, and the data that they are tried on."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp import datasets
from jaxdp.solvers import coordinate_descent as cd

BUDGET = dp.Budget(1.0, 1e-6)
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


real_data = pytest.mark.skipif(
    not (datasets.available("california_housing") and datasets.available("electricity")),
    reason="needs the California and Electricity data, see jaxdp.datasets",
)
