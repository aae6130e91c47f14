"""Bounds by column, bounds that are the records' own extremes, and arguments of other libraries."""

import numpy as np
import pytest

import jaxdp as dp
from jaxdp.estimators import BoundsWarning, DPStandardScaler

KNOWN = {"epsilon": 1.0, "delta": 1e-6}


def records(n=200):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(20, 80, n), rng.uniform(-1, 1, n)])
    return x, (x[:, 1] > 0) * 1.0


def test_a_frame_has_bounds_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(records()[0], columns=["age", "score"])
    bounds = {"score": (-2.0, 2.0), "age": (18, 90)}
    found = DPStandardScaler(feature_bounds=bounds, **KNOWN).fit(frame)
    assert 18 <= found.center_[0] <= 90
    assert -2 <= found.center_[1] <= 2
    for wrong, match in (
        ({"age": (18, 90)}, "missing: 'score'"),
        (bounds | {"weight": (0, 1)}, "unknown: 'weight'"),
        ({"age": 3.0, "score": (-1, 1)}, "pairs"),
    ):
        with pytest.raises(ValueError, match=match):
            DPStandardScaler(feature_bounds=wrong, **KNOWN).fit(frame)
    numbered = {0: (18, 90), 1: (-2, 2)}
    dp.DPPCA(1, feature_bounds=numbered, **KNOWN).fit(records()[0])


@pytest.mark.parametrize("kind", [dp.DPLogisticRegression, dp.DPNaiveBayes, DPStandardScaler])
def test_bounds_that_are_the_extremes_of_every_column_warn(kind, recwarn):
    x, y = records()
    own = x.min(axis=0), x.max(axis=0)
    with pytest.warns(BoundsWarning, match="computed from the records"):
        kind(feature_bounds=own, **KNOWN).fit(x, y)
    indicators = (x > np.median(x, axis=0)) * 1.0
    for values, bounds in ((x, (own[0] - 1.0, own[1])), (indicators, (0, 1))):
        recwarn.clear()
        kind(feature_bounds=bounds, **KNOWN).fit(values, y)
        assert not [w for w in recwarn if "computed from" in str(w.message)]


@pytest.mark.parametrize("kind", [dp.DPLasso, dp.DPLogisticRegression, dp.DPPCA, dp.DPNaiveBayes])
def test_arguments_of_other_libraries_are_refused_with_the_reason(kind):
    x, y = records()
    for name in ("class_weight", "data_norm", "bounds"):
        with pytest.raises(ValueError, match=f"{name} is not supported: "):
            kind(feature_bounds=(-100, 100), **KNOWN, **{name: 1.0})
    with pytest.raises(ValueError, match="sample_weight is not supported: a weight"):
        kind(feature_bounds=(-100, 100), **KNOWN).fit(x, y, sample_weight=np.ones(len(x)))


def test_many_epsilons_are_fits_of_their_own_and_cost_their_sum():
    x, y = records(2000)
    model = dp.DPLasso(
        alpha=0.0, target_bounds=(-1, 2), feature_bounds=([0, -1], [100, 1]), **KNOWN
    )
    found = model.epsilon_path(x, y, epsilons=[0.1, 8.0], seeds=3)
    assert found.coef.shape == (2, 3, 2)
    assert found.intercept.shape == (2, 3)
    assert len(np.unique(found.coef[..., 1])) == 6
    assert float(found.guarantee.epsilon(1e-6)) > 8.0
    with pytest.raises(ValueError, match="seeds"):
        model.epsilon_path(x, y, epsilons=[1.0], seeds=0)


@pytest.mark.parametrize("solver", ["moments", "coordinate_descent", "greedy"])
def test_sparse_and_single_precision_features_train_the_same_model(solver):
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (3000, 5)) * (rng.random((3000, 5)) < 0.3)
    y = x @ [1.0, 0.0, -0.5, 0.0, 0.0] + 0.3
    known = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2), "solver": solver}
    model = dp.DPLinearRegression(epsilon=15.0, delta=1e-6, passes=6, **known)
    for features in (sparse.csc_array(x), x.astype(np.float32)):
        model.fit(features, y)
        np.testing.assert_allclose(model.coef_, [1.0, 0.0, -0.5, 0.0, 0.0], atol=0.12)
        np.testing.assert_allclose(model.predict(features), model.predict(x), atol=1e-6)
        np.testing.assert_allclose(model.predict(x).mean(), y.mean(), atol=0.1)
    with pytest.warns(BoundsWarning), pytest.raises(ValueError, match="must contain 0"):
        model.set_params(feature_bounds=(0.5, 1)).fit(sparse.csr_matrix(x), y)
