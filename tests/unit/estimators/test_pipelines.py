"""The scikit-learn shells in pipelines, searches and other estimators: what all of it costs."""

import warnings

import numpy as np
import pytest
from regression_data import UNIT, regression
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

import jaxdp as dp
from jaxdp.estimators import (
    BoundsWarning,
    DPStandardScaler,
    PublicScaler,
    total_privacy,
)

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")


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
    one = next(iter(many.estimators_)).guarantee_
    assert float(total_privacy(many).exact.mu) == pytest.approx(
        3**0.5 * float(one.exact.mu), rel=1e-12
    )
    with pytest.raises(ValueError, match="around private estimators"):
        total_privacy(TransformedTargetRegressor(dp.DPLasso(**UNIT)))


def test_a_pipeline_with_a_public_scaler_costs_what_the_model_costs():
    features, targets = regression()
    bounds = np.array([-3.0, -2.0, 0.0]), np.array([5.0, 8.0, 20.0])
    moved = bounds[0] + (features + 1) / 2 * (bounds[1] - bounds[0])
    pipeline = make_pipeline(PublicScaler(bounds), dp.DPLasso(**UNIT, alpha=1e-3))
    pipeline.fit(moved, targets)
    np.testing.assert_allclose(pipeline[0].transform(moved), features, atol=1e-12)
    assert pipeline.score(moved, targets) > 0.9
    assert total_privacy(pipeline) is pipeline[1].guarantee_
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
    # The noise of a scale is 4 % of it.
    np.testing.assert_allclose(scaler.scale_, features.std(axis=0), rtol=0.2)
    np.testing.assert_allclose(scaler.center_, 0.0, atol=0.05)
    total = total_privacy(pipeline)
    assert isinstance(total.exact, dp.GDP)
    each = [step.guarantee_.exact.mu for step in (scaler, model)]
    np.testing.assert_allclose(total.exact.mu, np.hypot(*each))
    assert float(scaler.guarantee_.delta(0.5)) <= 1e-6
    errors = [step.guarantee_.sampling_error for step in (scaler, model)]
    np.testing.assert_allclose(total.sampling_error, sum(errors), rtol=1e-12)
    assert errors[0] > 6 * 2.0**-74
    assert float(total.epsilon(2e-6)) < 1.0
    assert np.abs(scaler.transform(features)).max() <= 2.5
    with pytest.raises(ValueError, match="with guarantee_"):
        total_privacy(make_pipeline(PublicScaler((-1, 1))))
    with pytest.raises(ValueError, match="delta must be positive"):
        DPStandardScaler(**{**private, "delta": 0.0}, feature_bounds=(-4, 4)).fit(features)
