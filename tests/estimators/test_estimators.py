"""The scikit-learn shells: scikit-learn's own checks, what they refuse, what they report."""

import pickle
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import jaxdp as dp
from jaxdp import datasets
from jaxdp.estimators import (
    BoundsWarning,
    DPStandardScaler,
    FixedRandomStateWarning,
    NotPrivateWarning,
    PublicScaler,
    SSPLasso,
    total_privacy,
)

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")

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
    model = dp.DPLasso(**UNIT, alpha=1e-3).fit(features, targets)
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
    model = dp.DPLasso(**UNIT, smoothness=derived.as_public(), step=0.5)
    public = model.fit(features, targets)
    np.testing.assert_allclose(public.plan_.steps[:3], 0.5 / np.asarray(derived.values), rtol=1e-12)
    assert float(public.plan_.steps[3]) == 0.5
    assert public.plan_.spent is None
    with pytest.raises(ValueError, match="cost is unknown"):
        dp.DPLasso(**UNIT, smoothness=dp.Smoothness(np.ones(3), "released")).fit(features, targets)


def test_released_scales_are_paid_from_the_budget():
    features, targets = regression()
    model = dp.DPLasso(**UNIT, scaling_share=0.2, step=1.0).fit(features, targets)
    assert isinstance(model.privacy_, dp.GDP)
    assert 1e-5 * (1 - 1e-9) < float(model.privacy_.delta(1.0)) <= 1e-5
    spent = float(model.plan_.spent.mu)
    assert spent == pytest.approx(0.2**0.5 * float(model.privacy_.mu), rel=1e-12)
    rest = float(np.sqrt(2.0 * model.plan_.rho))
    assert np.hypot(rest, spent) == pytest.approx(float(model.privacy_.mu), rel=1e-12)
    # M_j = 1/3 for a uniform feature.
    np.testing.assert_allclose(1.0 / np.asarray(model.plan_.steps[:3]), 1 / 3, atol=0.05)
    public = dp.DPLasso(**UNIT, scaling_share=0.0, step=1.0).fit(features, targets)
    assert public.plan_.spent is None
    np.testing.assert_allclose(public.plan_.steps[:3], 1.0, rtol=1e-12)


@pytest.mark.long
def test_laplace_noise_releases_scales_by_laplace_noise():
    """Pure epsilon: 0.1 for the scales, 0.9 for the descent."""
    features, targets = regression()
    model = dp.DPLasso(**{**UNIT, "delta": 0.0}, noise="laplace", passes=2).fit(features, targets)
    assert float(model.plan_.spent.epsilon_bound) == pytest.approx(0.1, rel=1e-12)
    assert float(np.sum(model.plan_.visits * model.plan_.ratios)) == pytest.approx(0.9, rel=1e-6)


def standardised(name):
    data = datasets.load(name)
    features = (data.features - data.features.mean(axis=0)) / data.features.std(axis=0)
    return features, data.targets


@pytest.mark.skipif(not datasets.available("electricity"), reason="needs the local copy")
def test_defaults_learn_electricity():
    """Without privacy .755; benchmarks/bench_estimators.py has 20 seeds and diffprivlib."""
    features, labels = standardised("electricity")
    for epsilon, least in ((1.0, 0.75), (0.1, 0.74)):
        model = dp.DPLogisticRegression(
            epsilon=epsilon, delta=float(len(labels)) ** -2, feature_bounds=(-3, 3), random_state=0
        )
        with pytest.warns(BoundsWarning):
            model.fit(features, labels)
        assert model.score(features, labels) > least
        assert float(model.privacy_.delta(epsilon)) <= float(len(labels)) ** -2


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.BoundsWarning")
def test_defaults_learn_from_few_records():
    """Mean of 5 keys. diffprivlib's best of three norms has .82 on breast cancer at epsilon 1."""
    features, labels = standardised("breast_cancer")
    iris, species = load_iris(return_X_y=True)
    iris = (iris[:100] - iris[:100].mean(axis=0)) / iris[:100].std(axis=0)
    for x, y, epsilon, least in (
        (features, labels, 1.0, 0.88),
        (iris, species[:100], 10.0, 1.0),
    ):
        known = {"epsilon": epsilon, "delta": len(y) ** -2.0, "feature_bounds": (-3, 3)}
        models = [dp.DPLogisticRegression(**known, random_state=s).fit(x, y) for s in range(5)]
        assert np.mean([model.score(x, y) for model in models]) >= least


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


def test_a_fixed_random_state_is_warned_of_and_not_told():
    features, targets = regression(300)
    seed = 918273645
    for estimator in (dp.DPLasso, DPStandardScaler):
        known = {"epsilon": 1.0, "delta": 1e-5, "feature_bounds": (-1, 1)}
        model = estimator(**known, random_state=seed)
        with pytest.warns(FixedRandomStateWarning, match="whoever guesses it") as caught:
            model.fit(features, targets)
        assert sum(w.category is FixedRandomStateWarning for w in caught) == 1
        assert "void for whoever knows or guesses random_state" in model.privacy_text_
        assert str(seed) not in repr(model) + model._repr_html_()
        assert "random_state='hidden'" in repr(model)
        assert clone(model).random_state == model.random_state == seed
        stored = pickle.dumps(model)
        restored = pickle.loads(stored)
        assert restored.random_state == "hidden"
        assert restored.privacy_text_ == model.privacy_text_
        # Not fitted, it is what a search sends to its workers.
        assert pickle.loads(pickle.dumps(clone(model))).random_state == seed
        secure = estimator(**known)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "void" not in secure.fit(features, targets).privacy_text_


def test_no_message_tells_a_value_of_a_record():
    features, targets = regression(50)
    secret = 8192
    odd = np.append(np.zeros(49, dtype=int), secret)
    for model, labels, message in (
        (dp.DPLogisticRegression(**UNIT), np.full(50, secret), "one class"),
        (dp.DPLogisticRegression(**UNIT, classes=(0, 1)), odd, "some are not"),
        (dp.DPNaiveBayes(**UNIT, classes=(0, 1)), odd, "labels of classes"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            model.fit(features, labels)
        assert "8192" not in str(caught.value)
    text = features.astype(object)
    text[3, 1] = "8192 euros"
    with pytest.raises(ValueError, match="numbers") as caught:
        dp.DPLasso(**UNIT).fit(text, targets)
    assert "8192" not in str(caught.value)


@pytest.mark.parametrize(
    "estimator",
    [
        dp.DPLasso(epsilon=np.inf, delta=0.0, feature_bounds=(-1, 1), noise="laplace"),
        dp.DPLogisticRegression(epsilon=np.inf, delta=1e-5, feature_bounds=(-1, 1)),
        dp.DPNaiveBayes(epsilon=np.inf, delta=0.0, feature_bounds=(-1, 1), noise="laplace"),
        dp.DPPCA(2, epsilon=np.inf, delta=1e-5, feature_bounds=(-1, 1)),
        DPStandardScaler(epsilon=np.inf, delta=1e-5, feature_bounds=(-1, 1)),
        SSPLasso(epsilon=np.inf, delta=1e-5, row_bound=2.0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_an_infinite_epsilon_has_no_noise_and_promises_nothing(estimator):
    features, targets = regression(400)
    if is_classifier(estimator):
        targets = (targets > 0.25).astype(int)
    fits = []
    for _ in range(2):
        with pytest.warns(NotPrivateWarning, match="no noise and no privacy"):
            fits.append(clone(estimator).fit(features, targets))
    assert float(fits[0].privacy_.delta(1e6)) == 1.0
    assert "nothing" in fits[0].privacy_text_
    assert float(total_privacy(*fits).epsilon(0.5)) == np.inf
    name = "predict" if hasattr(estimator, "predict") else "transform"
    one, two = (getattr(fit, name)(features) for fit in fits)
    # The order of coordinates is drawn: what is left of it is how far the descent is from its end.
    np.testing.assert_allclose(one, two, atol=1e-2)
    if is_classifier(estimator):
        assert fits[0].score(features, targets) > 0.9


def test_the_fits_of_a_search_have_no_total():
    features, targets = regression(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = GridSearchCV(
            DPStandardScaler(**UNIT), {"limit": [2, 3]}, cv=3, scoring=lambda *_: 0
        )
        search.fit(features, targets)
    with pytest.raises(ValueError, match="made 7 fits, kept one"):
        total_privacy(search)
    labels = np.digitize(targets, [0.0, 0.4])
    many = OneVsRestClassifier(dp.DPLogisticRegression(**UNIT)).fit(features, labels)
    one = next(iter(many.estimators_)).privacy_
    assert float(total_privacy(many).mu) == pytest.approx(3**0.5 * float(one.mu), rel=1e-12)
    with pytest.raises(ValueError, match="around private estimators"):
        total_privacy(TransformedTargetRegressor(dp.DPLasso(**UNIT)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must lie in \\(0, inf\\]"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
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
        ({"scaling_share": 1.0}, "scaling_share must lie in \\[0, 1\\)"),
        ({"scaling_share": -0.1}, "scaling_share"),
        ({"target_bounds": (1, 0)}, "target_bounds must be finite, lower below upper"),
        ({"random_state": "hidden"}, "seed"),
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
    with pytest.raises(ValueError, match=r"targets must be the classes \[0 1\], and some are not"):
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
        dp.DPLasso(**UNIT).fit(features, targets, sample_weight=np.ones(50))  # pyright: ignore


def test_a_pipeline_with_a_public_scaler_costs_what_the_model_costs():
    features, targets = regression()
    bounds = np.array([-3.0, -2.0, 0.0]), np.array([5.0, 8.0, 20.0])
    moved = bounds[0] + (features + 1) / 2 * (bounds[1] - bounds[0])
    pipeline = make_pipeline(PublicScaler(bounds), dp.DPLasso(**UNIT, alpha=1e-3))
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
        dp.DPLasso(**private, feature_bounds=(-2.5, 2.5), alpha=1e-3),
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
        "except (ImportError, AttributeError) as error:\n"
        "    assert 'jaxdp[learn]' in str(error), error\n"
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
