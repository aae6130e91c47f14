"""Coordinate descent without noise: optima of scikit-learn, programs for powers of two."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import counted
from sklearn.linear_model import Lasso
from small_descent import KEY, draw, plan, problem, standardised

import jaxdp as dp
from jaxdp._core.random_key import key_for
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers import lattice


@pytest.mark.float64
def test_the_optimum_is_that_of_scikit_learn():
    features, targets = standardised("diabetes")
    targets = targets - targets.mean()
    problem = dp.solvers.glm(features, targets, loss="squared", penalty=dp.solvers.L1(20.0))
    model = Lasso(alpha=20.0, fit_intercept=False, tol=1e-13, max_iter=200_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tolerance may be below a duality gap's rounding
        theirs = jnp.asarray(model.fit(features, targets).coef_)
    silent = cd.noiseless_plan(dp.solvers.coordinate_smoothness(problem), passes=1000)
    theta = cd.run(problem, silent, KEY)
    best = problem.objective(theirs)
    np.testing.assert_allclose(problem.objective(theta), best, rtol=1e-12)
    np.testing.assert_allclose(theta, theirs, atol=1e-6)


PUBLIC = {"delta": 1e-6, "feature_bounds": (-1.0, 1.0), "target_bounds": (-1.0, 1.0)}


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.LittleBudgetWarning")
@pytest.mark.filterwarnings("ignore::jaxdp.estimators.IntervalWarning")
@pytest.mark.parametrize("solver", ["moments", "coordinate_descent", "greedy"])
def test_other_epsilons_numbers_of_records_and_widths_compile_nothing(solver):
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, size=(500, 5))
    for place, (epsilon, records, width) in enumerate([(1.0, 500, 2), (0.05, 257, 3)]):
        x = features[:records, :width]
        with counted() as found:
            dp.DPLinearRegression(epsilon=epsilon, solver=solver, **PUBLIC).fit(x, x[:, 0])
        assert place == 0 or not found


@pytest.mark.float64
@pytest.mark.parametrize("passes", [1, 22])
def test_noise_and_order_are_those_of_the_true_number_of_passes(passes):
    """66 updates: what is padded is drawn, and is neither used nor paid for."""
    made = plan(passes=passes)
    visited = made.scales[made.sequence]
    ratios = made.sensitivities[made.sequence] / visited
    alone = lattice.added(made.noise, visited, ratios, key_for("noise", KEY), (passes, 3))
    for ours, theirs in zip(draw(made, KEY), alone, strict=True):
        np.testing.assert_array_equal(ours, np.broadcast_to(theirs, (passes, 3)))
    np.testing.assert_array_equal(
        np.sort(made.sequence, axis=1), np.tile(np.arange(3), (passes, 1))
    )
    np.testing.assert_array_equal(made.sequence, plan(passes=30).sequence[:passes])
    np.testing.assert_array_equal(made.visits, passes)
    assert float(made.sampling_error) == lattice.sampling_error(3 * passes, "lattice")


@pytest.mark.float64
def test_a_program_is_the_loop_of_numpy():
    """Neither padded updates nor padded records count: logistic losses at 0 are log 2."""
    rng = np.random.default_rng(0)
    features, labels = rng.uniform(-1, 1, size=(65, 2)), rng.integers(0, 2, 65)
    logistic = dp.solvers.glm(features, labels, loss="logistic", penalty=dp.solvers.L2(0.1))
    silent = cd.noiseless_plan([0.25, 0.25], passes=50)
    for data, made in ((problem(), plan(passes=5)), (logistic, silent)):
        theta, trace = cd.run(data, made, KEY, trace=True)
        program = jax.jit(lambda key, data=data, made=made: cd.run(data, made, key, trace=True))
        traced = program(KEY)
        np.testing.assert_allclose(theta, traced[0], rtol=1e-12)
        np.testing.assert_allclose(trace.objective, traced[1].objective, rtol=1e-12)
    np.testing.assert_allclose(trace.objective[-1], logistic.objective(theta), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(logistic.objective)(theta), 0.0, atol=1e-12)
