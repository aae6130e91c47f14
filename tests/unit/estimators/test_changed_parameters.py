"""Pipelines are judged by how they were fitted, not by their parameters later."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import jaxdp as dp
from jaxdp.estimators import total_privacy

RNG = np.random.default_rng(0)
FEATURES = RNG.uniform(-0.9, 0.9, size=(120, 3))
SIGN = (FEATURES[:, 0] > 0).astype(int)
KNOWN = {"epsilon": 1.0, "delta": 1e-6, "feature_bounds": (-1.0, 1.0)}
BAYES = dp.DPNaiveBayes(**KNOWN)


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
