"""What the scikit-learn shells refuse: parameters and records."""

import numpy as np
import pytest
from regression_data import UNIT, regression

import jaxdp as dp

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must lie in \\(0, inf\\]"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"delta": 1.0}, "delta must lie in \\[0, 1\\)"),
        ({"delta": "small"}, "delta"),
        ({"delta": 0.0}, "budget must be one that Gaussian noise can meet"),
        ({"feature_bounds": None}, "feature_bounds must be a pair .* public"),
        ({"feature_bounds": (1, -1)}, "lower below upper"),
        ({"feature_bounds": (0, np.inf)}, "finite"),
        ({"feature_bounds": ([0, 0], [1, 1])}, "vectors of length 3"),
        ({"feature_bounds": "data"}, "feature_bounds must be a pair"),
        ({"scaling_share": 1.0}, "scaling_share must lie in \\[0, 1\\)"),
        ({"scaling_share": -0.1}, "scaling_share"),
        ({"target_bounds": (1, 0)}, "target_bounds must be finite, lower below upper"),
        ({"random_state": "hidden"}, "seed"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be None, .* of NumPy"),
        ({"random_state": np.random.PCG64(0)}, "random_state must be None, .* of NumPy"),
        ({"clip": -1.0}, "clip"),
        ({"passes": 0}, "passes"),
        ({"alpha": -1.0}, "alpha"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"relation": "swap"}, "relation"),
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
    # Both labels are public: it does not matter whether both occur.
    assert model.fit(features, np.zeros(50, dtype=int)).classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="y must hold labels of classes"):
        dp.DPLogisticRegression(**UNIT, classes=(1, 2, 3)).fit(features, labels)


@pytest.mark.parametrize("kind", [dp.DPLogisticRegression, dp.DPNaiveBayes, dp.DPPCA])
def test_missing_values_are_to_be_a_public_constant(kind):
    features, targets = regression(50)
    features[3, 1] = np.nan
    with pytest.raises(ValueError, match=r'contains NaN: .* SimpleImputer\(strategy="constant"'):
        kind(epsilon=1.0, delta=1e-6, feature_bounds=(-1, 1)).fit(features, targets > 0)


@pytest.mark.parametrize("kind", [dp.DPLasso, dp.DPLogisticRegression, dp.DPPCA, dp.DPNaiveBayes])
def test_arguments_of_other_libraries_are_refused_with_the_reason(kind):
    features, targets = regression(50)
    for name in ("class_weight", "data_norm", "bounds"):
        with pytest.raises(ValueError, match=f"{name} is not supported: "):
            kind(epsilon=1.0, delta=1e-6, feature_bounds=(-1, 1), **{name: 1.0})
    with pytest.raises(ValueError, match="sample_weight is not supported: a weight"):
        kind(epsilon=1.0, delta=1e-6, feature_bounds=(-1, 1)).fit(
            features, targets > 0, sample_weight=np.ones(50)
        )
