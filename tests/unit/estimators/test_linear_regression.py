"""`DPLinearRegression`: the solver that it chooses, one release for all penalties, intervals."""

# pyright: reportCallIssue=false

import warnings

import numpy as np
import pytest
from regression_data import UNIT, regression
from scipy import sparse
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge

import jaxdp as dp
from jaxdp.estimators import (
    BoundsWarning,
    IntervalWarning,
    LittleBudgetWarning,
    NotPrivateWarning,
)
from jaxdp.estimators.base import warn_of_few
from jaxdp.solvers import coordinate_descent, moments

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")

FREE = {"epsilon": np.inf, "delta": 1e-5, "feature_bounds": (-1, 1), "target_bounds": (-3, 3)}
FEATURES, TARGETS = regression()


@pytest.mark.parametrize(
    ("alpha", "l1_ratio", "theirs"),
    [
        (0.0, 0.0, LinearRegression()),
        (0.05, 0.0, Ridge(alpha=0.05 * 4000)),
        (0.05, 1.0, Lasso(alpha=0.05)),
        (0.05, 0.4, ElasticNet(alpha=0.05, l1_ratio=0.4)),
    ],
    ids=["least squares", "ridge", "lasso", "elastic net"],
)
@pytest.mark.parametrize("solver", ["moments", "coordinate_descent"])
def test_without_noise_each_penalty_is_that_of_scikit_learn(solver, alpha, l1_ratio, theirs):
    passes = None if solver == "moments" else 30
    known = FREE | {"alpha": alpha, "l1_ratio": l1_ratio, "solver": solver, "passes": passes}
    with pytest.warns(NotPrivateWarning):
        model = dp.DPLinearRegression(**known).fit(FEATURES, TARGETS)
    theirs.fit(np.clip(FEATURES, *model.feature_range_), TARGETS)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=2e-5)
    assert model.intercept_ == pytest.approx(theirs.intercept_, abs=2e-5)


def test_the_solver_follows_from_public_numbers_and_is_stated():
    model = dp.DPLinearRegression(**UNIT, target_bounds=(-3, 3))
    many = np.tile(FEATURES, (1, 60))[:500]
    chosen = {}
    for name, (x, y), more in (
        ("moments", (FEATURES, TARGETS), {"epsilon": 3.0}),
        ("coordinate_descent", (FEATURES[:700], TARGETS[:700]), {}),
        ("greedy", (many, TARGETS[:500]), {}),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit = model.set_params(**{"epsilon": 1.0} | more).fit(x, y)
        of_few = [w for w in caught if "coefficients can be found" in str(w.message)]
        assert len(of_few) == (name == "greedy")
        assert fit.solver_ == name
        assert f"solver {name}: n mu" in fit.privacy_text_
        assert f"Solver: {name}: n mu" in fit.statement()
        stated = float(fit.guarantee_.delta(fit.epsilon))
        assert 1e-5 * (1 - 1e-6) < stated <= 1e-5
        chosen[name] = fit.moments_ is not None
    assert chosen == {"moments": True, "coordinate_descent": False, "greedy": False}
    assert model.set_params(passes=2).fit(FEATURES, TARGETS).solver_ == "coordinate_descent"
    with pytest.raises(ValueError, match="takes Gaussian noise"):
        model.set_params(solver="moments", noise="laplace").fit(FEATURES, TARGETS)


def test_targets_without_bounds_lose_nothing_as_the_budget_grows():
    """Moments would clip what is far from 0: R^2 was .60 at epsilon .3 and .49 at epsilon 1."""
    for epsilon in (0.3, 30.0):
        model = dp.DPLinearRegression(**UNIT | {"epsilon": epsilon, "random_state": 0})
        fit = model.fit(FEATURES, TARGETS + 4.0)
        assert fit.solver_ == "coordinate_descent"
        assert fit.score(FEATURES, TARGETS + 4.0) > 0.9
    assert "target_bounds are not given" in fit.statement()


def test_a_path_costs_nothing_more_and_holds_submodels():
    known = UNIT | {"epsilon": 5.0, "target_bounds": (-3, 3)}
    model = dp.DPLinearRegression(**known, alpha=0.02, l1_ratio=1.0)
    model.fit(FEATURES, TARGETS)
    before = str(model.guarantee_)
    weights, constants = model.path([0.0, 0.02, 10.0])
    np.testing.assert_array_equal(weights[1], model.coef_)
    assert constants[1] == model.intercept_
    np.testing.assert_array_equal(weights[2], 0.0)
    alone, _ = model.path([0.0], features=[2, 0])
    np.testing.assert_allclose(alone[0], [-0.5, 1.0], atol=0.05)
    assert str(model.guarantee_) == before
    lasso = dp.DPLasso(**UNIT, passes=2).fit(FEATURES, TARGETS)
    with pytest.raises(ValueError, match="solver must be 'moments' for a path"):
        lasso.path([0.1])


def test_no_attribute_of_a_fit_holds_records():
    model = dp.DPLinearRegression(**UNIT | {"epsilon": 5.0}).fit(FEATURES, TARGETS)
    for value in vars(model).values():
        for part in value if isinstance(value, tuple) else (value,):
            assert np.size(np.asarray(part, dtype=object)) < 100


# Columns of an interval's test: features, bounds of these and of targets.
COLUMNS = {
    "normal": (lambda rng, n: rng.normal(size=(n, 3)), 10, 10),
    "binary": (lambda rng, n: rng.random((n, 3)) < [0.1, 0.05, 0.5], 1, 10),
    "log-normal": (lambda rng, n: np.exp(rng.normal(size=(n, 3))), 99, 60),
    "t3": (lambda rng, n: rng.standard_t(3, size=(n, 3)), 99, 60),
    "gamma": (lambda rng, n: rng.gamma(0.5, size=(n, 3)), 20, 20),
}


def interval_fit(name, seed, epsilon):
    """A fit, the true coefficients, and the true intercept: noise as large as the signal."""
    columns, bound, target_bound = COLUMNS[name]
    rng = np.random.default_rng(seed)
    x = columns(rng, 4000).astype(float)
    truth = np.array([0.5, 0.0, -0.3]) / x.std(axis=0)
    y = x @ truth + 0.6 * rng.normal(size=4000) + 1.5
    known = {"feature_bounds": (-bound, bound), "target_bounds": (-target_bound, target_bound)}
    known |= {"epsilon": epsilon, "delta": 1e-6, "random_state": seed, "solver": "moments"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundsWarning)
        warnings.simplefilter("ignore", IntervalWarning)
        return dp.DPLinearRegression(**known).fit(x, y), truth, 1.5


LONG = [pytest.param(*row, marks=pytest.mark.long) for row in ((400, 3.0), (400, 10.0))]


@pytest.mark.parametrize(("fits", "epsilon"), [(12, 3.0), *LONG])
@pytest.mark.parametrize("name", COLUMNS)
def test_intervals_hold_the_truth_whatever_the_columns_are(name, epsilon, fits):
    """95 % ones hold each number in 95 % up to 3.8 deviations: 1e-4 of false alarms a number."""
    held = []
    for seed in range(fits):
        model, truth, constant = interval_fit(name, seed, epsilon)
        ends = np.vstack([model.coef_interval_, model.intercept_interval_])
        held.append((ends[:, 0] <= [*truth, constant]) & ([*truth, constant] <= ends[:, 1]))
    least = 0.95 - 3.8 * (0.95 * 0.05 / fits) ** 0.5
    assert np.mean(held, axis=0).min() >= least, np.mean(held, axis=0)


def test_intervals_count_the_noise_of_privacy():
    """Widths with and without the noise; the covariance has the widths of the intervals."""
    model, *_ = interval_fit("normal", 0, 3.0)
    widths = [
        np.sqrt(np.diagonal(moments.confidence_set(of, 1.96)[1]))
        for of in (model.moments_, model.moments_._replace(scale=0.0))
    ]
    assert (widths[0] > 1.3 * widths[1]).all()
    half = 0.5 * np.ptp(model.coef_interval_, axis=1)
    deviations = np.sqrt(np.diagonal(model.coef_covariance_))
    assert (half >= 1.95 * deviations).all()
    assert (half <= 1.4 * 1.96 * deviations).all()
    assert np.ptp(model.intercept_interval_) > 0
    model.set_params(fit_intercept=False).fit(FEATURES, TARGETS)
    assert model.intercept_interval_ is None


def test_the_confidence_set_is_that_of_least_squares_without_noise():
    theta, covariance = moments.confidence_set(moments_of_rows(FEATURES, TARGETS), 1.96)
    x = np.column_stack([FEATURES, np.ones(len(TARGETS))])
    found, rest = np.linalg.lstsq(x, TARGETS)[:2]
    variance = rest[0] / (len(x) - 4)
    np.testing.assert_allclose(theta, found, rtol=1e-9)
    np.testing.assert_allclose(covariance, variance * np.linalg.inv(x.T @ x), rtol=1e-9)


def moments_of_rows(features, targets):
    rows = np.column_stack([features, np.ones(len(targets)), targets])
    return moments.moments_of(rows.T @ rows / len(rows), 0.0, len(rows), True)


def test_a_direction_that_noise_hides_has_no_bounded_interval():
    """Two columns of correlation .995: 31 % of the intervals held the truth."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    x[:, 1] = 0.995 * x[:, 0] + 0.1 * x[:, 1]
    known = UNIT | {"feature_bounds": (-5, 5), "target_bounds": (-5, 5), "solver": "moments"}
    with pytest.warns(IntervalWarning, match="infinite: in some direction"):
        model = dp.DPLinearRegression(**known).fit(x, x @ [0.5, 0.2] + rng.normal(size=4000))
    assert np.isinf(model.coef_interval_).all()
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("narrow", ["feature_bounds", "target_bounds"])
def test_bounds_that_clip_many_records_leave_no_interval(narrow):
    """Coefficients of clipped columns are others: no interval held the truth."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    known = UNIT | {"epsilon": 5.0, "feature_bounds": (-5, 5), "target_bounds": (-8, 8)}
    known |= {narrow: (-1, 1), "solver": "moments"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundsWarning)
        with pytest.warns(IntervalWarning, match="NaN: about .* % of the records"):
            model = dp.DPLinearRegression(**known).fit(x, x @ [1, 0, -1] + rng.normal(size=4000))
    assert np.isnan(model.coef_interval_).all()
    assert np.isnan(model.intercept_interval_).all()


def test_a_budget_too_small_for_anything_is_warned_of():
    known = {"epsilon": 0.05, "delta": 1e-6, "feature_bounds": (-1, 1)}
    x, y = FEATURES[:40], TARGETS[:40]
    for model, targets in (
        (dp.DPLinearRegression(**known, passes=1), y),
        (dp.DPLogisticRegression(**known, passes=1), (y > 0).astype(int)),
        (dp.DPPCA(1, **known), None),
        (dp.DPNaiveBayes(**known), (y > 0).astype(int)),
    ):
        with pytest.warns(LittleBudgetWarning, match="nothing can be learnt"):
            model.fit(x, targets)


def test_a_greedy_descent_of_few_updates_is_warned_of():
    """2,000 records of 20,000 columns: seven updates at epsilon 1, as public numbers foretell."""
    budget, known = dp.Budget(1.0, 2.5e-7), {"match": "at most 7 coefficients"}
    chosen = coordinate_descent.greedy_defaults(budget, np.ones(20_000), 2000, "replace_one")
    with pytest.warns(LittleBudgetWarning, **known):
        warn_of_few(chosen.updates, chosen.rate)


def test_many_epsilons_are_fits_of_their_own_and_cost_their_sum():
    x, y = regression(2000)
    known = UNIT | {"delta": 1e-6, "random_state": None}
    model = dp.DPLasso(alpha=0.0, target_bounds=(-3, 3), **known)
    found = model.epsilon_path(x, y, epsilons=[0.1, 8.0], seeds=3)
    assert found.coef.shape == (2, 3, 3)
    assert found.intercept.shape == (2, 3)
    assert len(np.unique(found.coef[..., 1])) == 6
    assert float(found.guarantee.epsilon(1e-6)) > 8.0
    with pytest.raises(ValueError, match="seeds"):
        model.epsilon_path(x, y, epsilons=[1.0], seeds=0)


def test_a_path_without_an_epsilon_says_why():
    known = UNIT | {"delta": 1e-8, "target_bounds": (-3, 3), "random_state": None}
    model, few = dp.DPLinearRegression(**known, solver="moments"), regression(500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IntervalWarning)
        assert np.isfinite(model.epsilon_path(*few, epsilons=[1.0]).guarantee.epsilon(1e-8))
        with pytest.warns(NotPrivateWarning, match="no epsilon at delta 1e-08: all"):
            path = model.epsilon_path(*few, epsilons=[10.0], seeds=6)
    assert np.isinf(path.guarantee.epsilon(1e-8))


@pytest.mark.parametrize("solver", ["moments", "coordinate_descent", "greedy"])
def test_sparse_and_single_precision_features_train_the_same_model(solver):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (3000, 5)) * (rng.random((3000, 5)) < 0.3)
    y = x @ [1.0, 0.0, -0.5, 0.0, 0.0] + 0.3
    known = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2), "solver": solver}
    model = dp.DPLinearRegression(epsilon=15.0, delta=1e-6, passes=6, **known)
    for features in (sparse.csc_array(x), x.astype(np.float32)):
        model.fit(features, y)
        np.testing.assert_allclose(model.coef_, [1.0, 0.0, -0.5, 0.0, 0.0], atol=0.12)
        np.testing.assert_allclose(model.predict(features), model.predict(x), atol=1e-6)
        np.testing.assert_allclose(model.predict(x).mean(), y.mean(), atol=0.1)
    with pytest.warns(BoundsWarning), pytest.raises(ValueError, match="must contain 0"):
        model.set_params(feature_bounds=(0.5, 1)).fit(sparse.csr_matrix(x), y)
