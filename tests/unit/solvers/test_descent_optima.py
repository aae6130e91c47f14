"""Coordinate descent without noise: the optima are those of scikit-learn."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from descent_plans import real_data, standardised

import jaxdp as dp
from jaxdp import datasets
from jaxdp.solvers import coordinate_descent as cd


def optimum(problem, passes):
    plan = cd.noiseless_plan(dp.solvers.coordinate_smoothness(problem), passes=passes)
    return cd.run(problem, plan, jax.random.key(0))


def test_lasso_optimum_is_that_of_scikit_learn():
    from sklearn.linear_model import Lasso

    features, targets = standardised("diabetes")
    targets = targets - targets.mean()
    for strength in (1.0, 20.0):
        problem = dp.solvers.glm(features, targets, loss="squared", penalty=dp.solvers.L1(strength))
        theirs = Lasso(alpha=strength, fit_intercept=False, tol=1e-15, max_iter=100_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its tolerance is below its duality gap's rounding
            theirs.fit(features, targets)
        theta = optimum(problem, 3000)
        best = problem.objective(jnp.asarray(theirs.coef_))
        np.testing.assert_allclose(problem.objective(theta), best, rtol=1e-12)
        np.testing.assert_allclose(theta, theirs.coef_, atol=1e-8)


def test_logistic_optimum_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    features, targets = standardised("breast_cancer")
    problem = dp.solvers.glm(features, targets, loss="logistic", penalty=dp.solvers.L2(0.01))
    theirs = LogisticRegression(
        C=1 / (0.01 * len(targets)), fit_intercept=False, solver="newton-cholesky", tol=1e-12
    ).fit(features, targets)
    theta = optimum(problem, 4000)
    best = problem.objective(jnp.asarray(theirs.coef_[0]))
    np.testing.assert_allclose(problem.objective(theta), best, rtol=1e-12)
    np.testing.assert_allclose(theta, theirs.coef_[0], atol=1e-6)


def scikit_learn_coefficients(features, targets, loss, penalty):
    from sklearn.linear_model import Lasso, LogisticRegression

    strength = float(penalty.strength)
    if loss == "squared":
        model = Lasso(alpha=strength, fit_intercept=False, tol=1e-13, max_iter=200_000)
    else:
        is_l1 = isinstance(penalty, dp.solvers.L1)
        model = LogisticRegression(
            C=1 / (strength * len(targets)),
            l1_ratio=float(is_l1),
            fit_intercept=False,
            solver="liblinear" if is_l1 else "newton-cholesky",
            tol=1e-10 if is_l1 else 1e-12,
            max_iter=5000,
        )
    return jnp.asarray(model.fit(features, targets).coef_.ravel())


@real_data
@pytest.mark.parametrize(
    ("name", "scaling", "penalty", "passes", "published"),
    [
        ("california_housing", "standard", dp.solvers.L1(0.1), 300, 0.4193644937),
        ("electricity", "standard", dp.solvers.L2(1 / 45312), 2000, 0.5101816652),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (
                ("california_housing", "standard", dp.solvers.L1(0.01), 3000, None),
                ("california_housing", "raw", dp.solvers.L1(0.1), 20_000, 0.3668935216),
                ("electricity", "raw", dp.solvers.L2(1 / 45312), 3000, 0.5568569454),
                ("electricity", "raw", dp.solvers.L2(1e-3), 3000, 0.6274955758),
                ("electricity", "standard", dp.solvers.L1(1e-3), 2000, None),
                ("electricity", "raw", dp.solvers.L1(1e-3), 3000, 0.5889318323),
            )
        ),
    ],
)
def test_optima_on_real_data(name, scaling, penalty, passes, published):
    data = datasets.load(name)
    features = data.features if scaling == "raw" else standardised(name)[0]
    squared = name == "california_housing"
    centred = squared and scaling == "standard"
    targets = data.targets - data.targets.mean() if centred else data.targets
    loss = "squared" if squared else "logistic"
    problem = dp.solvers.glm(features, targets, loss=loss, penalty=penalty)
    theirs = scikit_learn_coefficients(features, targets, loss, penalty)
    value = problem.objective(optimum(problem, passes))
    np.testing.assert_allclose(value, problem.objective(theirs), rtol=1e-12)
    if published is not None:
        np.testing.assert_allclose(value, published, atol=6e-11)
