"""`DPLinearRegression`: the solver that it chooses, one release for all penalties, intervals."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from regression_data import UNIT, regression
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge

import jaxdp as dp
from jaxdp.estimators import LittleBudgetWarning, NotPrivateWarning
from jaxdp.solvers import covariance, moments
from jaxdp.solvers.covariance.release import second_moment

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LittleBudgetWarning)
            fit = model.set_params(**{"epsilon": 1.0} | more).fit(x, y)
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
    for epsilon in (0.3, 1.0, 30.0):
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


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_a_record_moves_the_moments_by_their_sensitivity(relation):
    """Rows (x, 1, y) of 300 neighbours, in the norm that the noise is isotropic in."""
    rng, worst = np.random.default_rng(0), 0.0
    known = {"dimension": 4, "records": 30, "relation": relation, "row_bound": 1.5}
    plan = covariance.plan((1.0, 1e-6), **known)
    for _ in range(300):
        rows = rng.standard_normal((30, 4))
        other = rows.copy()
        other[0] = 10.0 ** rng.uniform(0, 6) * rng.standard_normal(4)
        if relation == "add_remove":
            other[0] = 0.0
        moved = np.linalg.norm(second_moment(rows, plan) - second_moment(other, plan))
        worst = max(worst, moved / float(plan.scales[1] * plan.ratio))
    assert 0.9 < worst <= 1.0


@pytest.mark.parametrize("fits", [100, pytest.param(400, marks=pytest.mark.long)])
def test_intervals_count_the_noise_of_privacy(fits):
    """95 % intervals hold the truth in 95 %, up to 2.2 deviations; without the noise in fewer."""
    rng, truth = np.random.default_rng(1), np.array([0.5, 0.0, -0.3])
    known = {"epsilon": 3.0, "delta": 1e-6, "feature_bounds": (-3, 3), "target_bounds": (-4, 4)}
    model = dp.DPLinearRegression(**known, solver="moments")
    held, narrow = [], []
    for seed in range(fits):
        x = rng.uniform(-3, 3, size=(2000, 3))
        y = x @ (truth / 3**0.5) + 0.8 * rng.standard_normal(2000)
        model.set_params(random_state=seed).fit(x, np.clip(y, -4, 4))
        low, high = model.coef_interval_.T
        held.append((low <= truth / 3**0.5) & (truth / 3**0.5 <= high))
        part = moments.unbiased(model.moments_._replace(scale=0.0))[1]
        ratio = np.sqrt(
            np.diagonal(part)[:3] / np.diagonal(moments.unbiased(model.moments_)[1])[:3]
        )
        middle, half = 0.5 * (low + high), 0.5 * (high - low) * ratio
        narrow.append(np.abs(truth / 3**0.5 - middle) <= half)
    assert abs(np.mean(held) - 0.95) <= 0.02 * (400 / fits) ** 0.5, np.mean(held, axis=0)
    assert np.mean(narrow) < 0.92


def test_a_budget_too_small_for_anything_is_warned_of():
    known = {"epsilon": 0.05, "delta": 1e-6, "feature_bounds": (-1, 1)}
    x, y = FEATURES[:40], TARGETS[:40]
    for model, targets in (
        (dp.DPLinearRegression(**known), y),
        (dp.DPLogisticRegression(**known), (y > 0).astype(int)),
        (dp.DPPCA(1, **known), None),
        (dp.DPNaiveBayes(**known), (y > 0).astype(int)),
    ):
        with pytest.warns(LittleBudgetWarning, match="nothing can be learnt"):
            model.fit(x, targets)


def test_smoothness_of_an_elastic_net_counts_in_the_noise():
    net = dp.solvers.ElasticNet(0.5, 0.25)
    assert float(net.curvature) == 0.375
    point = net.proximal(jnp.asarray(0.5), jnp.asarray(-2.0), jnp.asarray(1.0))
    grid = np.linspace(-3, 3, 60001)
    value = 0.5 * (0.25 * np.abs(grid) + 0.375 * grid**2) + 0.5 * (grid + 2.0) ** 2
    assert float(point) == pytest.approx(grid[value.argmin()], abs=2e-4)
