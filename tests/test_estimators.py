"""The scikit-learn shells: scikit-learn's own checks, what they refuse, what they report."""

import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import jaxdp as dp
from jaxdp.estimators import BoundsWarning, DPStandardScaler, PublicScaler, total_privacy

WIDE = {"epsilon": 1.0, "delta": 1e-5, "feature_bounds": (-10, 10), "random_state": 0}
UNIT = {**WIDE, "feature_bounds": (-1, 1)}

# Checks that privacy makes impossible: none. Scores are exempt by the tag `poor_score`, since the
# checks train on a few dozen records, where noise for epsilon = 1 hides any signal; and
# `sample_weight` is no argument of `fit`, so that its checks are not asked for.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(dp.DPLasso(**WIDE, passes=2), id="DPLasso", marks=pytest.mark.long),
        pytest.param(
            dp.DPLogisticRegression(**WIDE, passes=2),
            id="DPLogisticRegression",
            marks=pytest.mark.long,
        ),
        pytest.param(PublicScaler((-10, 10)), id="PublicScaler"),
        pytest.param(DPStandardScaler(**WIDE), id="DPStandardScaler"),
    ],
)
def test_the_checks_of_scikit_learn(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            estimator, expected_failed_checks=EXPECTED_FAILURES, on_skip=None, on_fail=None
        )
    assert len(results) > 40
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}
    # The array API's check runs where SCIPY_ARRAY_API is set before SciPy is imported.
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}


def regression(records=4000, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, size=(records, 3))
    targets = features @ np.array([1.0, 0.0, -0.5]) + 0.25 + 0.05 * rng.normal(size=records)
    return features, targets


def test_a_lasso_finds_the_coefficients_and_says_what_it_spent():
    features, targets = regression()
    model = dp.DPLasso(**UNIT, alpha=1e-3, clip=2.0, passes=20, step=1.0).fit(features, targets)
    np.testing.assert_allclose(model.coef_, [1.0, 0.0, -0.5], atol=0.1)
    assert model.intercept_ == pytest.approx(0.25, abs=0.1)
    assert isinstance(model.privacy_, dp.GDP)
    assert 1e-5 * (1 - 1e-9) < float(model.privacy_.delta(1.0)) <= 1e-5
    assert float(model.privacy_.epsilon(1e-5)) <= 1.0
    assert model.score(features, targets) > 0.9
    assert model.plan_.records == len(targets)


def test_a_logistic_regression_separates_two_classes():
    features, targets = regression()
    labels = np.where(targets > 0.25, "up", "down")
    clip = float(np.sqrt(4.0))
    model = dp.DPLogisticRegression(**UNIT, clip=clip).fit(features, labels)
    assert model.classes_.tolist() == ["down", "up"]
    assert model.score(features, labels) > 0.85
    probability = model.predict_proba(features)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
    sparse = dp.DPLogisticRegression(**UNIT, clip=clip, penalty="l1", alpha=1.0)
    np.testing.assert_allclose(sparse.fit(features, labels).coef_, 0.0, atol=1e-12)


def test_the_same_seed_gives_the_same_model_and_none_never_does():
    features, targets = regression(300)
    one, two = (dp.DPLasso(**UNIT).fit(features, targets).coef_ for _ in range(2))
    np.testing.assert_array_equal(one, two)
    fresh = {**UNIT, "random_state": None}
    one, two = (dp.DPLasso(**fresh).fit(features, targets).coef_ for _ in range(2))
    assert np.any(one != two)
    drawn = {**UNIT, "random_state": np.random.RandomState(3)}
    assert np.isfinite(dp.DPLasso(**drawn).fit(features, targets).coef_).all()


def test_values_beyond_the_bounds_are_clipped_and_counted():
    features, targets = regression(300)
    features[:2, 0], features[7, 2] = 50.0, -3.0
    with pytest.warns(BoundsWarning, match="3 of 900 values of X in 2 of 3 columns"):
        wild = dp.DPLasso(**UNIT).fit(features, targets)
    clipped = dp.DPLasso(**UNIT).fit(np.clip(features, -1, 1), targets)
    np.testing.assert_array_equal(wild.coef_, clipped.coef_)
    # The count is not private: a fitted estimator does not hold it.
    assert set(vars(wild)) == set(vars(clipped))
    assert set(vars(wild)) - set(wild.get_params()) == {
        "coef_", "intercept_", "n_iter_", "n_features_in_", "plan_", "privacy_",
    }  # fmt: skip


def test_values_computed_from_the_records_need_a_budget():
    features, targets = regression(300)
    problem = dp.glm(features, targets, loss="squared", penalty=dp.L1(0.1))
    derived = dp.coordinate_smoothness(problem)
    with pytest.raises(ValueError, match="computed from the records"):
        dp.DPLasso(**UNIT, smoothness=derived).fit(features, targets)
    public = dp.DPLasso(**UNIT, smoothness=derived.as_public()).fit(features, targets)
    np.testing.assert_allclose(public.plan_.steps[:3], 0.5 / np.asarray(derived.values), rtol=1e-12)
    assert float(public.plan_.steps[3]) == 0.5


@pytest.mark.long
def test_private_smoothness_is_paid_from_the_budget():
    features, targets = regression()
    model = dp.DPLasso(**UNIT, private_smoothness_fraction=0.2, clip=2.0).fit(features, targets)
    assert isinstance(model.privacy_, dp.PrivacyLoss)
    assert 1e-5 * (1 - 1e-6) < float(model.privacy_.delta(1.0)) <= 1e-5
    assert float(model.plan_.spent.epsilon_bound) == 0.2
    # M_j = 1/3 for a uniform feature, with noise 3 / (n 0.2).
    np.testing.assert_allclose(0.5 / np.asarray(model.plan_.steps[:3]), 1 / 3, atol=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must lie in \\(0, inf\\)"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": np.inf}, "epsilon"),
        ({"delta": 1.0}, "delta must lie in \\[0, 1\\)"),
        ({"delta": "small"}, "delta"),
        ({"delta": 0.0}, "budget must be one that Gaussian noise can meet"),
        ({"feature_bounds": None}, "feature_bounds or smoothness must be given"),
        ({"feature_bounds": (1, -1)}, "lower below upper"),
        ({"feature_bounds": (0, np.inf)}, "finite"),
        ({"feature_bounds": ([0, 0], [1, 1])}, "vectors of length 3"),
        ({"feature_bounds": "data"}, "feature_bounds must be a pair"),
        ({"smoothness": np.ones(2)}, "smoothness must be a number or have shape \\(3,\\)"),
        ({"smoothness": -1.0}, "smoothness"),
        ({"private_smoothness_fraction": 1.0}, "fraction must lie in \\(0, 1\\)"),
        ({"clip": -1.0}, "clip"),
        ({"passes": 0}, "passes"),
        ({"alpha": -1.0}, "alpha"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"relation": "swap"}, "relation"),
        ({"allocation": "best"}, "allocation"),
    ],
)
def test_bad_parameters(change, message):
    features, targets = regression(50)
    with pytest.raises(ValueError, match=message):
        dp.DPLasso(**{**UNIT, **change}).fit(features, targets)


def test_bad_records():
    features, targets = regression(50)
    labels = (targets > 0).astype(int)
    model = dp.DPLogisticRegression(**UNIT, classes=(0, 1))
    with pytest.raises(ValueError, match=r"targets must be \[0 1\], got \[2\] as well"):
        model.fit(features, np.append(labels[:-1], 2))
    # Both labels are public: it does not matter whether both occur.
    assert model.fit(features, np.zeros(50, dtype=int)).classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="one class"):
        dp.DPLogisticRegression(**UNIT).fit(features, np.zeros(50))
    with pytest.raises(ValueError, match="two labels"):
        dp.DPLogisticRegression(**UNIT, classes=(0, 1, 2)).fit(features, labels)
    features[3, 1] = np.nan
    for estimator in (dp.DPLasso(**UNIT), dp.DPLogisticRegression(**UNIT)):
        with pytest.raises(ValueError, match="NaN"):
            estimator.fit(features, labels)
    with pytest.raises(TypeError, match="sample_weight"):
        dp.DPLasso(**UNIT).fit(features, targets, sample_weight=np.ones(50))


def test_a_pipeline_with_a_public_scaler_costs_what_the_model_costs():
    features, targets = regression()
    bounds = np.array([-3.0, -2.0, 0.0]), np.array([5.0, 8.0, 20.0])
    moved = bounds[0] + (features + 1) / 2 * (bounds[1] - bounds[0])
    pipeline = make_pipeline(PublicScaler(bounds), dp.DPLasso(**UNIT, alpha=1e-3, clip=2.0))
    pipeline.fit(moved, targets)
    np.testing.assert_allclose(pipeline[0].transform(moved), features, atol=1e-12)
    assert pipeline.score(moved, targets) > 0.9
    assert total_privacy(pipeline) is pipeline[1].privacy_
    with pytest.warns(BoundsWarning, match="1 of 3 values"):
        assert pipeline[0].transform([[100.0, 0.0, 1.0]])[0, 0] == 1.0


def test_a_pipeline_with_a_private_scaler_adds_up():
    features, targets = regression(20_000)
    private = {"epsilon": 0.5, "delta": 1e-6, "random_state": 0}
    pipeline = make_pipeline(
        DPStandardScaler(**private, feature_bounds=(-4, 4), limit=2.5),
        dp.DPLasso(**private, feature_bounds=(-2.5, 2.5), alpha=1e-3, clip=4.0),
    )
    pipeline.fit(features, targets)
    scaler, model = pipeline[0], pipeline[1]
    np.testing.assert_allclose(scaler.scale_, features.std(axis=0), rtol=0.05)
    np.testing.assert_allclose(scaler.center_, 0.0, atol=0.05)
    total = total_privacy(pipeline)
    assert isinstance(total, dp.GDP)
    np.testing.assert_allclose(total.mu, np.hypot(scaler.privacy_.mu, model.privacy_.mu))
    assert float(scaler.privacy_.delta(0.5)) <= 1e-6
    assert float(total.epsilon(2e-6)) < 1.0
    assert np.abs(scaler.transform(features)).max() <= 2.5
    with pytest.raises(ValueError, match="with privacy_"):
        total_privacy(make_pipeline(PublicScaler((-1, 1))))
    with pytest.raises(ValueError, match="delta must be positive"):
        DPStandardScaler(**{**private, "delta": 0.0}, feature_bounds=(-4, 4)).fit(features)


def test_a_missing_extra_is_named():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import jaxdp\n"
        "try:\n    jaxdp.DPLasso\n"
        "except ImportError as error:\n    assert 'jaxdp[learn]' in str(error), error\n"
        "else:\n    raise AssertionError\n"
        "try:\n    jaxdp.DPLaso\nexcept AttributeError:\n    pass\n"
        "else:\n    raise AssertionError\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_record_moves_the_released_statistics_by_at_most_the_sensitivity():
    """The scaler's mean and mean square, at the two ends of the bounds, noise taken off."""
    features = np.zeros((100, 1))
    moved = []
    for extreme in (1.0, -1.0):
        features[0] = extreme
        scaler = DPStandardScaler(epsilon=1e6, delta=0.5, feature_bounds=(-1, 1), random_state=1)
        moved.append(scaler.fit(features).center_[0])
    assert moved[0] - moved[1] == pytest.approx(2 / 100, rel=1e-6)


def test_single_precision_is_refused():
    code = (
        "import jaxdp as dp, numpy as np\n"
        "model = dp.DPLasso(epsilon=1.0, delta=1e-5, feature_bounds=(-1, 1))\n"
        "try:\n    model.fit(np.zeros((4, 2)), np.zeros(4))\n"
        "except ValueError as error:\n    assert 'jax_enable_x64' in str(error)\n"
        "else:\n    raise AssertionError\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert jax.config.jax_enable_x64
