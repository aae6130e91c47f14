"""A generator as `random_state`: nothing is drawn from it, so copies of it share no noise."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import cross_validate
from sklearn.multiclass import OneVsRestClassifier

import jaxdp as dp
from benchmarks.reproductions.ssp_lasso import SSPLasso
from jaxdp.estimators import DPStandardScaler, FixedRandomStateWarning

KNOWN = {"epsilon": 1.0, "delta": 1e-6}
# The same records in each class: what their models differ by is noise.
FEATURES = np.zeros((120, 3))
LABELS = np.repeat([0, 1, 2], 40)


def bayes(state):
    return dp.DPNaiveBayes(**KNOWN, feature_bounds=(-1.0, 1.0), random_state=state)


def noises(models):
    """The means that each model released: 0 and its noise."""
    return np.array([np.ravel(model.model_.means) for model in models])


def copies_of(state):
    """Fits of copies, as clones, joblib's workers and meta-estimators make them."""
    model = bayes(state)
    originals = [clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model]
    fits = [one.fit(FEATURES, LABELS == 0) for one in originals]
    fits.append(clone(fits[0]).fit(FEATURES, LABELS == 0))
    fits += OneVsRestClassifier(model).fit(FEATURES, LABELS).estimators_
    pair = VotingClassifier([("a", model), ("b", model)], voting="soft")
    fits += pair.fit(FEATURES, LABELS == 0).estimators_
    folds = cross_validate(model, FEATURES, LABELS == 0, cv=2, return_estimator=True)
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
        dp.DPNaiveBayes(**KNOWN, feature_bounds=(-1.0, 1.0)),
        DPStandardScaler(**KNOWN, feature_bounds=(-1.0, 1.0)),
        SSPLasso(**KNOWN, row_bound=1.0),
        dp.DPPCA(1, **KNOWN, feature_bounds=(-1.0, 1.0)),
    ],
)
def test_nothing_is_drawn_from_a_generator_and_none_is_stored(model):
    state = np.random.RandomState(3)
    before = pickle.dumps(state)
    fitted = model.set_params(random_state=state).fit(FEATURES, LABELS == 0)
    assert pickle.dumps(state) == before
    # As scikit-learn demands, the parameter stays as it was given.
    assert fitted.get_params()["random_state"] is state
    assert "void" not in fitted.privacy_text_
    for stored in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted), copy.copy(fitted)):
        assert stored.random_state is None


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.BoundsWarning")
def test_the_classes_of_one_model_have_noises_of_their_own():
    known = {**KNOWN, "feature_bounds": (-1.0, 1.0), "passes": 1, "scaling_share": 0.0}
    for state in (np.random.RandomState(0), np.random, 5):
        model = dp.DPLogisticRegression(**known, random_state=state)
        if state == 5:
            with pytest.warns(FixedRandomStateWarning, match="fits that share it share") as caught:
                model.fit(FEATURES, LABELS)
            assert len(caught) == 1
        else:
            model.fit(FEATURES, LABELS)
        # Each class has the same records on either side: only noise tells them apart.
        assert len(np.unique(model.intercept_)) == 3
        assert all(one.random_state is None for one in model.estimators_)
        texts = [one.privacy_text_ for one in model.estimators_]
        assert all(("a fixed integer" in text) == (state == 5) for text in texts)
        assert [one.predict(FEATURES).dtype for one in model.estimators_] == [bool] * 3
