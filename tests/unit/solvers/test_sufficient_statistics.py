"""The one-shot LASSO: its optimum, its cost, and scikit-learn's checks of its shell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from regression_data import regression
from sklearn.linear_model import Lasso

import jaxdp as dp
from benchmarks.reproductions import sufficient_statistics
from jaxdp.solvers import covariance

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")


@pytest.mark.parametrize("intercept", [False, True])
def test_without_noise_it_is_the_lasso(intercept):
    features, targets = regression()
    theirs = Lasso(alpha=0.05, fit_intercept=intercept, tol=1e-12).fit(features, targets)
    huge = dp.Budget(np.inf, 0.5)
    theta, spent = sufficient_statistics.lasso(
        features,
        targets,
        0.05,
        huge,
        jax.random.key(0),
        row_bound=3.0,
        relation="replace_one",
        intercept=intercept,
    )
    np.testing.assert_allclose(theta[:3], theirs.coef_, atol=1e-5)
    if intercept:
        assert float(theta[3]) == pytest.approx(theirs.intercept_, abs=1e-5)
    assert float(spent.exact.mu) > 1e4


def test_negative_eigenvalues_do_not_run_away():
    matrix, vector = jnp.array([[1.0, 2.0], [2.0, 1.0]]), jnp.array([1.0, 0.0])
    theta = sufficient_statistics.lasso_of_moments(
        matrix, vector, jnp.full(2, 0.1), jnp.asarray(0.5)
    )
    # Along (1, -1), whose eigenvalue was -1: at most 1 / sqrt(2) / 0.5.
    assert float(jnp.abs(theta).max()) < 1.1


@pytest.mark.parametrize("records", [100, 10_000_000])
def test_the_noise_covers_the_moment_and_its_rounding(records):
    budget = dp.Budget(1.0, 1e-6)
    made = covariance.plan(
        budget, dimension=4, records=records, relation="replace_one", row_bound=2.0
    )
    exact = np.sqrt(2.0) * 4.0 / records / float(dp.largest_gdp(budget).mu)
    # The two sums of n squares round apart by n^2 ulp of one at most.
    rounding = records**2 * 2.0**-52
    assert 1.0 + rounding < float(made.scales[1]) / exact < 1.0 + 1.001 * rounding + 1e-12
