"""Coordinate descent without noise: optima of scikit-learn, programs for powers of two."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import counted
from small_descent import KEY, draw, plan, problem, real_data, standardised

import jaxdp as dp
from jaxdp import datasets
from jaxdp._core.random_key import key_for
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers import exponential_mechanism, lattice


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


@pytest.mark.long
@pytest.mark.float64
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


@pytest.mark.float64
@real_data
@pytest.mark.parametrize(
    ("name", "scaling", "penalty", "passes", "published"),
    [
        ("california_housing", "standard", dp.solvers.L1(0.1), 300, 0.4193644937),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (
                ("electricity", "standard", dp.solvers.L2(1 / 45312), 2000, 0.5101816652),
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


PUBLIC = {"delta": 1e-6, "feature_bounds": (-1.0, 1.0), "target_bounds": (-1.0, 1.0)}


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.LittleBudgetWarning")
@pytest.mark.filterwarnings("ignore::jaxdp.estimators.IntervalWarning")
@pytest.mark.parametrize("solver", ["moments", "coordinate_descent", "greedy"])
def test_other_epsilons_numbers_of_records_and_widths_compile_nothing(solver):
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, size=(500, 5))
    for place, (epsilon, records, width) in enumerate([(1.0, 500, 2), (0.05, 257, 3), (3, 300, 5)]):
        x = features[:records, :width]
        with counted() as found:
            dp.DPLinearRegression(epsilon=epsilon, solver=solver, **PUBLIC).fit(x, x[:, 0])
        assert place == 0 or not found


@pytest.mark.float64
@pytest.mark.parametrize("passes", [1, 21, 22])
def test_noise_and_order_are_those_of_the_true_number_of_passes(passes):
    """63 and 66 updates: what is padded is drawn, and is neither used nor paid for."""
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


def test_more_passes_begin_with_those_of_fewer():
    """Those that are padded are not run: each pass of a longer trace is that of a shorter one."""
    made, longer = plan(passes=5), plan(passes=9)
    object.__setattr__(longer, "scales", made.scales)
    _, few = cd.run(problem(), made, KEY, trace=True)
    _, many = cd.run(problem(), longer, KEY, trace=True)
    assert few.objective.shape == (5,)
    np.testing.assert_array_equal(few.objective, many.objective[:5])


@pytest.mark.float64
def test_records_of_zeros_count_for_nothing():
    """Logistic losses at 0 are log 2: neither F nor the chains may count them."""
    rng = np.random.default_rng(0)
    features, labels = rng.uniform(-1, 1, size=(65, 2)), rng.integers(0, 2, 65)
    data = dp.solvers.glm(features, labels, loss="logistic", penalty=dp.solvers.L2(0.1))
    made = cd.noiseless_plan([0.25, 0.25], passes=50)
    theta, trace = cd.run(data, made, KEY, trace=True)
    np.testing.assert_allclose(trace.objective[-1], data.objective(theta), rtol=1e-12)
    slope = jax.grad(data.objective)(theta)
    np.testing.assert_allclose(slope, 0.0, atol=1e-12)


def test_a_chain_is_compiled_once_for_a_power_of_two_of_records():
    rng = np.random.default_rng(0)
    programs = []
    for epsilon, records in ((0.01, 40), (0.02, 64), (0.015, 33)):
        data = dp.solvers.glm(
            rng.uniform(-0.5, 0.5, size=(records, 1)), np.arange(records) % 2,
            loss="logistic", penalty=dp.solvers.L2(0.5),
        )  # fmt: skip
        made = exponential_mechanism.plan(
            (epsilon, 1e-5), dimension=1, records=records, radius=1.0, relation="replace_one",
            penalty=data.penalty,
        )  # fmt: skip
        with counted() as found:
            theta = exponential_mechanism.sample(data, made, KEY)
        programs.append(len(found))
        assert np.isfinite(theta).all()
        # At theta = 0 the risk is log 2; a chain of so little budget ends near there or above.
        assert data.objective(theta) > 0.5
    assert programs[1:] == [0, 0]
