"""Ensembles and pipelines are judged by how they were fitted, not by their parameters later."""

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import jaxdp as dp
from jaxdp.estimators import total_privacy

# Bagging hands its parts integers.
pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")

RNG = np.random.default_rng(0)
FEATURES = RNG.uniform(-0.9, 0.9, size=(120, 3))
SIGN = (FEATURES[:, 0] > 0).astype(int)
KNOWN = {"epsilon": 1.0, "delta": 1e-6, "feature_bounds": (-1.0, 1.0)}
BAYES = dp.DPNaiveBayes(**KNOWN)
ADDED = dp.DPNaiveBayes(**KNOWN, relation="add_remove")


def squares(fitted):
    """mu^2 of a total."""
    return float(total_privacy(fitted).exact.mu) ** 2


def test_an_encoder_is_judged_by_its_fit():
    coded = np.column_stack([SIGN, FEATURES[:, 1:]])
    encoder = make_column_transformer((OneHotEncoder(), [0]), remainder="passthrough")
    fitted = make_pipeline(encoder, clone(BAYES)).fit(coded, SIGN)
    inner = fitted[0].named_transformers_["onehotencoder"]
    with pytest.raises(ValueError, match="OneHotEncoder, which learns from the records"):
        total_privacy(fitted)
    inner.set_params(categories=[[0, 1, 2]])
    with pytest.raises(ValueError, match="OneHotEncoder, which learns from the records"):
        total_privacy(fitted)


def bagged(n_jobs=None, **known):
    bag = BaggingClassifier(clone(ADDED), n_estimators=2, n_jobs=n_jobs, **known)
    return bag.fit(FEATURES, SIGN)


def test_a_bag_is_judged_by_its_fit():
    """Not by its parameters, which may have changed since, and which no fitted bag keeps."""
    once = {"bootstrap": False, "max_samples": 1.0}
    drawn = bagged(bootstrap=False)
    total = squares(drawn)
    for name, value in (("bootstrap", True), ("max_samples", 0.5), ("max_samples", 120)):
        assert squares(drawn.set_params(**{name: value})) == total
    with pytest.raises(ValueError, match="bootstrap=True: a bag may hold a record several times"):
        total_privacy(bagged().set_params(**once))
    for size in (0.5, 120):
        with pytest.raises(ValueError, match="takes the place of another"):
            total_privacy(bagged(bootstrap=False, max_samples=size).set_params(**once))
    replaced = bagged(bootstrap=False, max_samples=0.5)
    replaced.set_params(estimator__relation="replace_one")
    for part in replaced.estimators_:
        part.set_params(relation="replace_one")
    with pytest.raises(ValueError, match="takes the place of another"):
        total_privacy(replaced)
    inside = VotingClassifier([("a", BaggingClassifier(BAYES, 2))]).fit(FEATURES, SIGN)
    next(iter(inside.estimators_)).set_params(bootstrap=False)
    with pytest.raises(ValueError, match="several times"):
        total_privacy(inside)
    for part in drawn.estimators_:
        del part._fit_record
    with pytest.raises(ValueError, match="do not say how `fit` drew"):
        total_privacy(drawn)


def test_the_fits_of_other_threads_are_judged_as_well():
    with joblib.parallel_config(backend="threading"):
        assert squares(bagged(2, bootstrap=False)) > 0
        with pytest.raises(ValueError, match="several times"):
            total_privacy(bagged(2).set_params(bootstrap=False))


def imputed(**known):
    holes = np.where(FEATURES > 0.85, np.nan, FEATURES)
    return make_pipeline(SimpleImputer(**known), clone(BAYES)).fit(holes, SIGN)


def test_an_imputer_of_a_constant_learns_nothing():
    constant = {"strategy": "constant", "keep_empty_features": True}
    for given in ({}, {"fill_value": 0.25}):
        fitted = imputed(**constant, **given)
        assert total_privacy(fitted) is fitted[-1].guarantee_
    for known, reason in (
        ({"strategy": "constant"}, "which columns are empty, and drops them"),
        (constant | {"add_indicator": True}, "which columns lack values"),
        ({"strategy": "mean"}, "learns from the records without noise"),
    ):
        with pytest.raises(ValueError, match=f"SimpleImputer, .*{reason}"):
            total_privacy(imputed(**known))
    for strategy in ("mean", "most_frequent"):
        fitted = imputed(strategy=strategy, keep_empty_features=True)
        fitted[0].set_params(strategy="constant", fill_value=0.0)
        with pytest.raises(ValueError, match="learns from the records the values that it fills in"):
            total_privacy(fitted)
