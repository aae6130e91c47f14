"""Plans state what their draws are off by, once, and keep their budgets with it.

The error is raised to where it shows.
"""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp.guarantee.drawn import Drawn
from jaxdp.solvers import coordinate_descent, covariance, lattice, naive_bayes

BUDGET, EACH = (1.0, 1e-3), 2.0**-20
KNOWN = {"records": 1000, "relation": "replace_one"}
DESCENT = {"smoothness": np.ones(2), "clip": 1.0, "passes": 2, "order": "cyclic"}


def descent(**other):
    return coordinate_descent.plan(BUDGET, **DESCENT, **KNOWN, **other).guarantee


PLANS = {
    "covariance": lambda: covariance.plan(BUDGET, dimension=2, **KNOWN).guarantee,
    "descent": descent,
    "descent, zcdp": lambda: descent(accounting="zcdp"),
    "dp_sgd": lambda: (
        dpsgd.plan(
            BUDGET, {"w": jnp.zeros(2)}, clip=1.0, sampling_prob=1.0, steps=2, dataset_size=100
        ).guarantee
    ),
    "naive_bayes": lambda: (
        naive_bayes.plan(BUDGET, classes=2, categories=[3, 0], relation="add_remove").guarantee
    ),
}


@pytest.fixture
def large_errors(monkeypatch):
    """Errors of 2^-20 a draw, in what is stated; draws themselves are as ever."""
    of_bayes = importlib.import_module("jaxdp.solvers.naive_bayes.plan")
    monkeypatch.setattr(lattice, "sampling_error", lambda draws, _: jnp.asarray(draws * EACH))
    monkeypatch.setattr(of_bayes, "whole_noise_error", lambda _, draws: jnp.asarray(draws * EACH))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_keeps_its_budget_with_the_draws_error(name, large_errors):
    drawn = PLANS[name]()
    assert EACH < drawn.sampling_error < 64 * EACH
    exact, lost = float(drawn.exact.delta(1.0)), (1.0 + np.e) * float(drawn.sampling_error)
    np.testing.assert_allclose([drawn.delta(1.0), exact + lost], 1e-3, rtol=1e-6)
    assert drawn.delta(1.0) <= 1e-3


def test_what_was_spent_before_has_errors_of_its_own(large_errors):
    alone, before = descent(), Drawn(dp.GDP(0.01), 1e-6)
    both = descent(spent=before)
    np.testing.assert_allclose(both.sampling_error, alone.sampling_error + 1e-6, rtol=1e-12)
    assert 1e-3 * (1.0 - 1e-6) < both.delta(1.0) <= 1e-3


def test_budgets_that_draws_do_not_keep_are_refused():
    for budget in ((60.0, 1e-6), (1.0, 1e-22)):
        with pytest.raises(ValueError, match="to cover the sampling error"):
            covariance.plan(budget, dimension=2, **KNOWN)
    # Of floating point nothing is known, and nothing is taken off.
    research = covariance.plan(BUDGET, dimension=2, **KNOWN, release="float").guarantee
    assert research.delta(1.0) == 1.0
    assert 1e-3 * (1 - 1e-9) < research.exact.delta(1.0) <= 1e-3
