"""The scikit-learn shells in pipelines: what they cost; searches and ensembles are refused."""

import numpy as np
import pytest
from regression_data import UNIT, regression
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)

import jaxdp as dp
from benchmarks.reproductions.ssp_lasso import SSPLasso
from jaxdp.estimators import (
    BoundsWarning,
    DPStandardScaler,
    PublicScaler,
    total_privacy,
)

# Bagging hands its parts integers.
pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")

RNG = np.random.default_rng(0)
FEATURES = RNG.uniform(-0.9, 0.9, size=(120, 3))
SIGN = (FEATURES[:, 0] > 0).astype(int)
THREE = np.digitize(FEATURES[:, 0], [-0.3, 0.3])
KNOWN = {"epsilon": 1.0, "delta": 1e-6}
BAYES = dp.DPNaiveBayes(**KNOWN, feature_bounds=(-1.0, 1.0))
LASSO = SSPLasso(**KNOWN, row_bound=2.0)
SCALER = DPStandardScaler(**KNOWN, feature_bounds=(-1.0, 1.0))
BEHIND = dp.DPNaiveBayes(**KNOWN, feature_bounds=(-3.0, 3.0))
ADDED = dp.DPNaiveBayes(**KNOWN, feature_bounds=(-1.0, 1.0), relation="add_remove")
FREE = PublicScaler((-1, 1)), Normalizer(), FunctionTransformer(), None, "passthrough"
# Standardised as the private models behind them want them, from the records.
SCALED = make_pipeline(StandardScaler(), BEHIND)
ENCODER = make_column_transformer(
    (OneHotEncoder(categories=[[0, 1]]), [0]), remainder="passthrough"
)


def squares(fitted):
    """mu^2 of a total, which adds up where all noise is Gaussian."""
    return float(total_privacy(fitted).exact.mu) ** 2


def fits_inside(fitted):
    """mu^2 of every private fit that a walk over all attributes finds."""
    if hasattr(fitted, "guarantee_"):
        return [float(fitted.guarantee_.exact.mu) ** 2]
    steps = [step for _, step in getattr(fitted, "steps", [])]
    held = [*getattr(fitted, "estimators_", []), *steps]
    return [x for part in held for x in fits_inside(part)]


@pytest.mark.parametrize(
    ("pipeline", "fits"),
    [
        (make_pipeline(SCALER, BEHIND), 2),
        (make_pipeline(make_pipeline(SCALER), BEHIND), 2),
        (make_pipeline(*FREE, BAYES), 1),
    ],
)
def test_a_pipeline_costs_every_fit(pipeline, fits):
    fitted = clone(pipeline).fit(FEATURES, SIGN)
    each = fits_inside(fitted)
    assert len(each) == fits
    assert squares(fitted) == pytest.approx(sum(each), rel=1e-9)


def test_the_members_of_an_ensemble_are_added_up_by_hand():
    voting = VotingClassifier([("a", BAYES), ("b", ADDED)]).fit(FEATURES, SIGN)
    total = total_privacy(*voting.estimators_)
    assert float(total.exact.mu) ** 2 == pytest.approx(sum(fits_inside(voting)), rel=1e-9)


def test_given_categories_cost_nothing():
    """And those that are found in the records have no guarantee, whatever is set later."""
    coded = np.column_stack([SIGN, FEATURES[:, 1:]])
    fitted = make_pipeline(ENCODER, clone(BAYES)).fit(coded, SIGN)
    assert total_privacy(fitted) is fitted[-1].guarantee_
    found = clone(fitted).set_params(columntransformer__onehotencoder__categories="auto")
    inner = found.fit(coded, SIGN)[0].named_transformers_["onehotencoder"]
    for given in ("auto", [[0, 1, 2]]):
        inner.set_params(categories=given)
        with pytest.raises(ValueError, match="OneHotEncoder, which learns from the records"):
            total_privacy(found)


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


@pytest.mark.parametrize(
    ("ensemble", "targets", "reason"),
    [
        (StackingClassifier([("a", BAYES), ("b", BAYES)], cv=2), SIGN, "around private"),
        (BaggingClassifier(BAYES, n_estimators=2, bootstrap=False), SIGN, "around private"),
        (OneVsRestClassifier(BAYES), THREE, "around private estimators"),
        (VotingRegressor([("a", LASSO), ("b", LinearRegression())]), SIGN, "around private"),
        (CalibratedClassifierCV(BAYES, cv=2), SIGN, "around private estimators"),
        (TransformedTargetRegressor(LASSO), SIGN, "around private estimators"),
        (SCALED, THREE, "StandardScaler, which learns from the records"),
        (
            GridSearchCV(
                BAYES, {"smoothing": [2, 3]}, cv=2, scoring=["accuracy", "f1"], refit="accuracy"
            ),
            SIGN,
            "made 5 fits, kept one",
        ),
    ],
)  # fmt: skip
def test_what_may_not_is_refused_with_the_reason(ensemble, targets, reason):
    fitted = clone(ensemble).fit(FEATURES, targets)
    with pytest.raises(ValueError, match=reason):
        total_privacy(clone(BAYES).fit(FEATURES, SIGN), fitted)


def test_a_subclass_and_what_is_not_fitted_are_refused():
    class Oversampling(Pipeline):
        pass

    fitted = clone(BAYES).fit(FEATURES, SIGN)
    with pytest.raises(ValueError, match="Oversampling around private estimators"):
        total_privacy(Oversampling([("model", fitted)]))
    for unfitted in (BAYES, SCALER):
        with pytest.raises(ValueError, match="that is not fitted"):
            total_privacy(fitted, unfitted)


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
