"""What the scikit-learn shells promise, what they warn of, and what no message tells."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from regression_data import UNIT, regression
from sklearn.base import clone, is_classifier
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import cross_validate
from sklearn.multiclass import OneVsRestClassifier

import jaxdp as dp
from benchmarks.reproductions.ssp_lasso import SSPLasso
from jaxdp.estimators import (
    BoundsWarning,
    DPStandardScaler,
    FixedRandomStateWarning,
    NotPrivateWarning,
    total_privacy,
)

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")


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
        "coef_", "intercept_", "n_iter_", "n_features_in_", "plan_", "guarantee_",
        "privacy_text_", "_fitted_relation", "feature_range_", "solver_", "moments_",
        "coef_covariance_", "coef_interval_", "intercept_interval_", "_units", "_level",
    }  # fmt: skip


def test_floating_point_noise_is_for_research_and_said_to_be():
    features, targets = regression(300)
    fits = {name: dp.DPLasso(**UNIT, release=name) for name in ("lattice", "float")}
    fits = {name: model.fit(features, targets) for name, model in fits.items()}
    assert "research" not in fits["lattice"].privacy_text_
    assert "for research: floating-point noise" in fits["float"].privacy_text_
    assert fits["lattice"].plan_.sampling_error < 1e-18
    assert fits["float"].plan_.sampling_error == 1
    pca = dp.DPPCA(release="float", epsilon=1.0, delta=1e-5, feature_bounds=(-1.0, 1.0))
    assert "for research" in pca.fit(features).privacy_text_
    for model in (
        dp.DPLasso(**UNIT, release="exact"),
        SSPLasso(epsilon=1.0, delta=1e-5, row_bound=1.0, release="exact"),
    ):
        with pytest.raises(ValueError, match="release must be one of lattice, float"):
            model.fit(features, targets)


def test_released_scales_are_paid_from_the_budget():
    features, targets = regression()
    model = dp.DPLasso(**UNIT, scaling_share=0.2, step=1.0).fit(features, targets)
    assert isinstance(model.guarantee_.exact, dp.GDP)
    assert 1e-5 * (1 - 1e-9) < float(model.guarantee_.delta(1.0)) <= 1e-5
    spent = float(model.plan_.spent.exact.mu)
    assert spent == pytest.approx(0.2**0.5 * float(model.guarantee_.exact.mu), rel=1e-12)
    rest = float(np.sqrt(2.0 * model.plan_.rho))
    assert np.hypot(rest, spent) == pytest.approx(float(model.guarantee_.exact.mu), rel=1e-12)
    # The variance of a uniform feature is 1/3; steps are those of features in deviations.
    np.testing.assert_allclose(model._units.scale**2, 1 / 3, atol=0.05)
    np.testing.assert_array_equal(model.plan_.steps, 1.0)
    public = dp.DPLasso(**UNIT, scaling_share=0.0, step=1.0).fit(features, targets)
    assert public.plan_.spent is None
    np.testing.assert_allclose(public.plan_.steps[:3], 1.0, rtol=1e-12)


@pytest.mark.long
def test_laplace_noise_releases_scales_by_laplace_noise():
    """Pure epsilon: 0.1 for the scales, 0.9 for the descent."""
    features, targets = regression()
    model = dp.DPLasso(**{**UNIT, "delta": 0.0}, noise="laplace", passes=2).fit(features, targets)
    assert float(model.plan_.spent.exact.epsilon_bound) == pytest.approx(0.1, rel=1e-12)
    assert float(np.sum(model.plan_.visits * model.plan_.ratios)) == pytest.approx(0.9, rel=1e-6)


def test_a_fixed_random_state_is_warned_of_and_not_told():
    features, targets = regression(300)
    seed = 918273645
    for estimator in (dp.DPLasso, DPStandardScaler):
        known = {"epsilon": 1.0, "delta": 1e-5, "feature_bounds": (-1, 1)}
        model = estimator(**known, random_state=seed)
        with pytest.warns(FixedRandomStateWarning, match="anyone who guesses it") as caught:
            model.fit(features, targets)
        assert sum(w.category is FixedRandomStateWarning for w in caught) == 1
        assert "no guarantee against anyone who guesses random_state" in model.privacy_text_
        assert str(seed) not in repr(model) + model._repr_html_()
        assert "random_state='hidden'" in repr(model)
        assert clone(model).random_state == model.random_state == seed
        stored = pickle.dumps(model)
        restored = pickle.loads(stored)
        assert restored.random_state is None
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
        dp.DPLinearRegression(epsilon=np.inf, delta=1e-5, feature_bounds=(-1, 1)),
        dp.DPLogisticRegression(epsilon=np.inf, delta=1e-5, feature_bounds=(-1, 1)),
        dp.DPNaiveBayes(epsilon=np.inf, delta=0.0, feature_bounds=(-1, 1), noise="laplace"),
        dp.DPPCA(2, epsilon=np.inf, delta=1e-5, feature_bounds=(-1, 1)),
        DPStandardScaler(epsilon=np.inf, delta=1e-5, feature_bounds=(-1, 1)),
        SSPLasso(epsilon=np.inf, delta=1e-5, row_bound=2.0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_an_infinite_epsilon_has_no_noise_and_promises_nothing(estimator):
    features, targets = regression(300)
    if is_classifier(estimator):
        targets = (targets > 0.25).astype(int)
    fits = []
    for _ in range(2):
        with pytest.warns(NotPrivateWarning, match="no noise and no privacy"):
            fits.append(clone(estimator).fit(features, targets))
    assert float(fits[0].guarantee_.delta(1e6)) == 1.0
    assert "no guarantee" in fits[0].privacy_text_
    assert float(total_privacy(*fits).epsilon(0.5)) == np.inf
    name = "predict" if hasattr(estimator, "predict") else "transform"
    one, two = (getattr(fit, name)(features) for fit in fits)
    # The order of coordinates is drawn: what is left of it is how far the descent is from its end.
    np.testing.assert_allclose(one, two, atol=1e-2)
    if is_classifier(estimator):
        assert fits[0].score(features, targets) > 0.9


def changed(estimator):
    """Other parameters than those of the fit, one at a time."""
    others = {
        "epsilon": 0.1,
        "delta": 1e-9,
        "random_state": None,
        "release": "float",
        "noise": "laplace",
        "relation": "add_remove",
    }
    names = estimator.get_params()
    return [{name: value} for name, value in others.items() if name in names]


FITTED = [
    dp.DPLasso(**UNIT, passes=1),
    dp.DPLinearRegression(**UNIT, solver="moments"),
    dp.DPLogisticRegression(**UNIT, passes=1),
    dp.DPNaiveBayes(epsilon=5.0, delta=1e-5, feature_bounds=(-1, 1)),
    dp.DPPCA(2, epsilon=5.0, delta=1e-5, feature_bounds=(-1, 1)),
    DPStandardScaler(epsilon=5.0, delta=1e-5, feature_bounds=(-1, 1)),
    SSPLasso(epsilon=5.0, delta=1e-5, row_bound=2.0),
]


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.IntervalWarning")
@pytest.mark.parametrize("estimator", FITTED, ids=lambda estimator: type(estimator).__name__)
def test_what_a_fit_states_is_of_its_own_parameters(estimator):
    """And a copy of a seeded fit keeps its words, not its seed, and can be fitted again."""
    features, targets = regression(60)
    if is_classifier(estimator):
        targets = (targets > 0.25).astype(int)
    model = clone(estimator).set_params(random_state=7).fit(features, targets)
    text, spent = model.privacy_text_, total_privacy(model)
    assert f"epsilon {estimator.epsilon:g};" in text
    assert "a fixed integer" in text
    for other in changed(model):
        model.set_params(**other)
        assert model.privacy_text_ == text
        assert total_privacy(model) is spent
    model.set_params(**estimator.get_params() | {"random_state": 7})
    for restored in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        assert restored.privacy_text_ == text
        assert str(restored.guarantee_) == str(spent)
    again = restored.fit(features, targets)
    assert "a fixed integer" not in again.privacy_text_
    assert model.privacy_text_ == text


WEAK = {"epsilon": 1.0, "delta": 1e-6, "feature_bounds": (-1.0, 1.0)}
# The same records in each class: what their models differ by is noise.
SAME = np.zeros((120, 3))
LABELS = np.repeat([0, 1, 2], 40)


def noises(models):
    """The means that each model released: 0 and its noise."""
    return np.array([np.ravel(model.model_.means) for model in models])


def copies_of(state):
    """Fits of copies, as clones, joblib's workers and meta-estimators make them."""
    model = dp.DPNaiveBayes(**WEAK, random_state=state)
    originals = [clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model]
    fits = [one.fit(SAME, LABELS == 0) for one in originals]
    fits.append(clone(fits[0]).fit(SAME, LABELS == 0))
    fits += OneVsRestClassifier(model).fit(SAME, LABELS).estimators_
    pair = VotingClassifier([("a", model), ("b", model)], voting="soft")
    fits += pair.fit(SAME, LABELS == 0).estimators_
    folds = cross_validate(model, SAME, LABELS == 0, cv=2, return_estimator=True)
    return [*fits, *folds["estimator"]]


def test_copies_of_a_generator_draw_noises_of_their_own():
    found = noises(copies_of(np.random.RandomState(3)))
    assert len(found) == 12
    # One number of two draws from a lattice may be the same.
    gaps = np.abs(found[:, None] - found[None]).max(axis=-1)
    assert gaps[~np.eye(len(found), dtype=bool)].min() > 0


@pytest.mark.parametrize(
    "model",
    [
        dp.DPNaiveBayes(**WEAK),
        DPStandardScaler(**WEAK),
        SSPLasso(epsilon=1.0, delta=1e-6, row_bound=1.0),
        dp.DPPCA(1, **WEAK),
    ],
)
def test_nothing_is_drawn_from_a_generator_and_none_is_stored(model):
    state = np.random.RandomState(3)
    before = pickle.dumps(state)
    fitted = model.set_params(random_state=state).fit(SAME, LABELS == 0)
    assert pickle.dumps(state) == before
    # As scikit-learn demands, the parameter stays as it was given.
    assert fitted.get_params()["random_state"] is state
    assert "void" not in fitted.privacy_text_
    for stored in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted), copy.copy(fitted)):
        assert stored.random_state is None


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.BoundsWarning")
def test_the_classes_of_one_model_have_noises_of_their_own():
    known = {**WEAK, "passes": 1, "scaling_share": 0.0}
    for state in (np.random.RandomState(0), np.random, 5):
        model = dp.DPLogisticRegression(**known, random_state=state)
        if state == 5:
            with pytest.warns(FixedRandomStateWarning, match="fits that share it share") as caught:
                model.fit(SAME, LABELS)
            assert len(caught) == 1
        else:
            model.fit(SAME, LABELS)
        # Each class has the same records on either side: only noise tells them apart.
        assert len(np.unique(model.intercept_)) == 3
        assert all(one.random_state is None for one in model.estimators_)
        texts = [one.privacy_text_ for one in model.estimators_]
        assert all(("a fixed integer" in text) == (state == 5) for text in texts)
        assert [one.predict(SAME).dtype for one in model.estimators_] == [bool] * 3
