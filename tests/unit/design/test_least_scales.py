"""No plan has noise of a scale that floating-point arithmetic takes for 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from benchmarks.reproductions import sufficient_statistics
from jaxdp import dpsgd
from jaxdp._core import checks
from jaxdp.solvers import (
    coordinate_descent,
    covariance,
    naive_bayes,
)

BUDGET = dp.Budget(1.0, 1e-6)
KEY = jax.random.key(0)
ONE = {"relation": "replace_one"}


def moments(**other):
    return covariance.plan(BUDGET, **{"dimension": 3, "records": 10**6, **ONE, **other})


def descent(budget=BUDGET, **other):
    known = {"smoothness": np.ones(3), "records": 10, "passes": 1, "order": "cyclic"}
    return coordinate_descent.plan(budget, **known, **ONE, **other)


TINY = {
    "covariance": lambda: moments(row_bound=1e-152),
    "lasso": lambda: sufficient_statistics.lasso(
        np.ones((4, 1)), np.ones(4), 0.1, BUDGET, KEY, row_bound=1e-152, **ONE
    ),
    "gradients": lambda: dpsgd.plan(
        BUDGET, {"w": jnp.zeros(5)}, clip=1e-308, sampling_prob=0.1, steps=1, dataset_size=10
    ),
    "descent": lambda: descent(clip=1e-308),
    "descent, subnormal": lambda: descent(dp.Budget(np.inf, 0.5), clip=1e-290, allocation="spr"),
}


@pytest.mark.parametrize("name", TINY)
def test_a_plan_whose_noise_underflows_is_refused(name):
    with pytest.raises(ValueError, match=r"(scale|clip).* must lie in \[2.00417e-292"):
        TINY[name]()


def test_plans_that_no_argument_makes_so_small_check_as_well(monkeypatch):
    """A record moves counts by 1."""
    monkeypatch.setattr(naive_bayes, "allocate", lambda *_, **__: jnp.array([1.0, 1e-308]))
    with pytest.raises(ValueError, match="scale of the noise must lie"):
        naive_bayes.plan(BUDGET, classes=2, categories=(3, 0), relation="add_remove")


@pytest.mark.float64
def test_a_traced_scale_becomes_nan_and_an_infinite_one_is_legal():
    scales = jnp.array([0.0, 1e-320, 1e-300, 1e-291, jnp.inf, jnp.nan, -1.0])
    found = jax.jit(lambda x: checks.noise_scale("scale", x))(scales)
    np.testing.assert_array_equal(np.isnan(found), [True, True, True, False, False, True, True])
    delta = jax.jit(lambda clip: descent(clip=clip).guarantee.delta(1.0))(1e-308)
    assert not delta <= 1.0
