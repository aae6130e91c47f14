"""The scikit-learn shells: scikit-learn's own checks, what they find and what they learn."""

import warnings

import numpy as np
import pytest
from regression_data import UNIT, WIDE, regression
from sklearn.utils import estimator_checks

import jaxdp as dp
from jaxdp import datasets
from jaxdp.estimators import (
    BoundsWarning,
    DPStandardScaler,
    PublicScaler,
)
from jaxdp.solvers import lattice, scaling

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")

# Checks that privacy makes impossible: none. Scores are exempt by the tag `poor_score`, since the
# checks train on a few dozen records, where noise for epsilon = 1 hides any signal; and
# `sample_weight` is no argument of `fit`, so that its checks are not asked for.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(dp.DPLasso(**WIDE, passes=2), id="DPLasso", marks=pytest.mark.long),
        pytest.param(
            dp.DPLinearRegression(**WIDE, solver="moments"),
            id="DPLinearRegression",
            marks=pytest.mark.long,
        ),
        pytest.param(
            dp.DPLogisticRegression(**WIDE, passes=2),
            id="DPLogisticRegression",
            marks=pytest.mark.long,
        ),
        pytest.param(dp.DPNaiveBayes(**WIDE), id="DPNaiveBayes", marks=pytest.mark.long),
        pytest.param(dp.DPPCA(2, **WIDE), id="DPPCA", marks=pytest.mark.long),
        pytest.param(PublicScaler((-10, 10)), id="PublicScaler"),
        pytest.param(DPStandardScaler(**WIDE), id="DPStandardScaler"),
    ],
)
def test_the_checks_of_scikit_learn(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = estimator_checks.check_estimator(
            estimator, expected_failed_checks=EXPECTED_FAILURES, on_skip=None, on_fail=None
        )
    assert len(results) > 40
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}
    # The array API's check runs where SCIPY_ARRAY_API is set before SciPy is imported.
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}


@pytest.mark.parametrize(
    ("estimator", "own"),
    [
        (dp.DPNaiveBayes(**WIDE), ("classifiers_one_label", "classifiers_train")),
        (dp.DPPCA(1, **WIDE), ("transformer_data_not_an_array",)),
        (dp.DPLinearRegression(**WIDE, solver="moments"), ("regressors_int", "regressors_train")),
    ],
    ids=("DPNaiveBayes", "DPPCA", "DPLinearRegression"),
)
@pytest.mark.filterwarnings("ignore::jaxdp.estimators.BoundsWarning")
@pytest.mark.filterwarnings("ignore::jaxdp.estimators.IntervalWarning")
@pytest.mark.filterwarnings("ignore::jaxdp.estimators.LittleBudgetWarning")
def test_a_few_checks_of_scikit_learn(estimator, own):
    """Of those of which all are long."""
    few = "no_attributes_set_in_init", "estimators_unfitted", "dict_unchanged", "estimators_nan_inf"
    for name in (*few, *own):
        getattr(estimator_checks, f"check_{name}")(type(estimator).__name__, estimator)


def test_a_lasso_finds_the_coefficients_and_says_what_it_spent():
    features, targets = regression()
    model = dp.DPLasso(**UNIT, target_bounds=(-3, 3), alpha=1e-3).fit(features, targets)
    np.testing.assert_allclose(model.coef_, [1.0, 0.0, -0.5], atol=0.1)
    assert model.intercept_ == pytest.approx(0.25, abs=0.1)
    assert isinstance(model.guarantee_.exact, dp.GDP)
    assert 1e-5 * (1 - 1e-9) < float(model.guarantee_.delta(1.0)) <= 1e-5
    assert float(model.guarantee_.epsilon(1e-5)) <= 1.0
    # Two rounds of histograms and two statistics of each of four columns, a second moment of
    # (x, 1, y), and two checks.
    stated = lattice.sampling_error(2 * 4 + 15 + 2, "lattice")
    stated += scaling.narrowing_error(4, scaling.ROUNDS)
    np.testing.assert_allclose(model.guarantee_.sampling_error, stated, rtol=1e-12)
    assert model.score(features, targets) > 0.9
    assert model.plan_.records == len(targets)


def test_a_logistic_regression_of_three_classes_composes_its_fits():
    """Each against the rest: the fits' mu^2 add up to the budget's, and no two draw alike."""
    features, targets = regression()
    labels = np.array(["a", "b", "c"])[np.digitize(targets, [-0.1, 0.6])]
    model = dp.DPLogisticRegression(**UNIT).fit(features, labels)
    each = [float(one.guarantee_.exact.mu) for one in model.estimators_]
    assert float(model.guarantee_.exact.mu) == pytest.approx(3**0.5 * each[0], rel=1e-12)
    assert np.ptp(each) < 1e-12
    errors = [float(one.guarantee_.sampling_error) for one in model.estimators_]
    np.testing.assert_allclose(model.guarantee_.sampling_error, sum(errors), rtol=1e-12)
    assert 1e-5 * (1 - 1e-6) < float(model.guarantee_.delta(1.0)) <= 1e-5
    assert model.score(features, labels) > 0.8
    assert model.coef_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    shares = model.predict_proba(features)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    assert (model.classes_[shares.argmax(axis=1)] == model.predict(features)).all()
    assert all(one.random_state is None for one in model.estimators_)


def test_a_logistic_regression_separates_two_classes():
    features, targets = regression()
    labels = np.where(targets > 0.25, "up", "down")
    model = dp.DPLogisticRegression(**UNIT).fit(features, labels)
    assert model.classes_.tolist() == ["down", "up"]
    assert model.score(features, labels) > 0.95
    probability = model.predict_proba(features)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
    sparse = dp.DPLogisticRegression(**UNIT, penalty="l1", alpha=1.0)
    np.testing.assert_allclose(sparse.fit(features, labels).coef_, 0.0, atol=1e-12)


def test_the_same_seed_gives_the_same_model_and_none_never_does():
    features, targets = regression(300)
    one, two = (dp.DPLasso(**UNIT).fit(features, targets).coef_ for _ in range(2))
    np.testing.assert_array_equal(one, two)
    fresh = {**UNIT, "random_state": None}
    one, two = (dp.DPLasso(**fresh).fit(features, targets).coef_ for _ in range(2))
    assert np.any(one != two)


def standardised(name):
    data = datasets.load(name)
    features = (data.features - data.features.mean(axis=0)) / data.features.std(axis=0)
    return features, data.targets


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.BoundsWarning")
def test_defaults_learn_a_regression():
    """R^2 in the units of the data, whose bounds are public, as in those of its deviation."""
    features, targets = standardised("diabetes")
    known = {"epsilon": 10.0, "delta": 1e-6, "feature_bounds": (-3, 3), "random_state": 0}
    scaled = (targets - targets.mean()) / targets.std()
    bounded = dp.DPLasso(**known, target_bounds=(25, 350), alpha=0.77).fit(features, targets)
    assert bounded.score(features, targets) > 0.4
    through_zero = dp.DPLasso(**known, fit_intercept=False).fit(features, scaled)
    assert through_zero.intercept_ == 0.0
    assert through_zero.score(features, scaled) > 0.4
    with pytest.warns(BoundsWarning, match="values of y"):
        dp.DPLasso(**known, target_bounds=(100, 200)).fit(features, targets)
    # A record far out is predicted as what lies on the bounds.
    far = np.full((1, 10), 1e6)
    np.testing.assert_array_equal(bounded.predict(far), bounded.predict(np.full((1, 10), 3.0)))
