"""More budget never learns less, and without noise an estimator is scikit-learn's.

Columns have heavy tails within wide bounds: records that least squares listens to most are those
that a threshold of derivatives would cut.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

import jaxdp as dp
from benchmarks._tools import families
from jaxdp.estimators import DPStandardScaler

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxdp.estimators.NotPrivateWarning",
    "ignore::jaxdp.estimators.FixedRandomStateWarning",
)

EPSILONS = (0.3, 3.0, 20.0)  # with delta 1e-6 and 3,000 records
BOUND = 25.0
# Of a score: its noise, passes that end before the last digit, and the noise of epsilon 20.
FALL, CLOSE, NEAR = 0.03, 0.003, 0.05


def records():
    rng = np.random.default_rng(3)
    features = np.clip(rng.standard_t(2.5, size=(3000, 4)), -BOUND, BOUND)
    features[:, 1] += 0.6 * features[:, 0]
    features = np.clip(features, -BOUND, BOUND)
    targets = np.tanh(features) @ np.array([1.0, -1.0, 0.5, 0.2]) + 0.5 * rng.normal(size=3000)
    return features, targets


FEATURES, TARGETS = records()
KNOWN = {"delta": 1e-6, "feature_bounds": (-BOUND, BOUND)}
ENDS = {"target_bounds": (-6.0, 6.0)}


def captured(components, features):
    """Share of the variance within the span of the components."""
    centred = features - features.mean(axis=0)
    return float(((centred @ components.T) ** 2).sum() / (centred**2).sum())


def agreement(model, features, theirs):
    """1 less the mean square difference of scaled columns."""
    limit = model.limit_
    scaled = np.clip(theirs.transform(features), -limit, limit)
    return 1.0 - float(np.mean((model.transform(features) - scaled) ** 2))


CASES = {
    "DPLasso": (dp.DPLasso(epsilon=1.0, **KNOWN, **ENDS), Lasso(alpha=0.01)),
    "DPLasso, coordinates": (
        dp.DPLasso(
            epsilon=1.0, **KNOWN, alpha=0.02, fit_intercept=False, solver="coordinate_descent"
        ),
        Lasso(alpha=0.02, fit_intercept=False),
    ),
    "DPLinearRegression": (
        dp.DPLinearRegression(epsilon=1.0, **KNOWN, **ENDS),
        LinearRegression(),
    ),
    "DPLogisticRegression": (
        dp.DPLogisticRegression(epsilon=1.0, **KNOWN, classes=[0, 1]),
        LogisticRegression(C=1.0 / (1e-4 * len(TARGETS))),
    ),
    "DPNaiveBayes": (dp.DPNaiveBayes(epsilon=1.0, **KNOWN, classes=[0, 1]), GaussianNB()),
    "DPPCA": (dp.DPPCA(2, epsilon=1.0, **KNOWN), PCA(2)),
    "DPStandardScaler": (DPStandardScaler(epsilon=1.0, **KNOWN), StandardScaler()),
}


def scored(model, theirs):
    """Score of a fit, and of scikit-learn's on the columns that it learned from."""
    targets = (TARGETS > 0).astype(int) if is_classifier(model) else TARGETS
    model.fit(FEATURES, targets)
    features = FEATURES
    if hasattr(model, "feature_range_"):
        features = np.clip(FEATURES, *model.feature_range_)
    # Moments are of features within 20 deviations, beyond the bounds here.
    by_moments = getattr(model, "solver_", "") == "moments"
    theirs.fit(FEATURES if by_moments else features, targets)
    if isinstance(model, dp.DPPCA):
        return captured(model.components_, FEATURES), captured(theirs.components_, FEATURES)
    if isinstance(model, DPStandardScaler):
        return agreement(model, FEATURES, theirs), 1.0
    return model.score(FEATURES, targets), theirs.score(features, targets)


@pytest.mark.parametrize("name", CASES)
def test_a_score_does_not_fall_with_epsilon_and_tends_to_that_of_scikit_learn(name):
    model, theirs = CASES[name]
    means = []
    for epsilon in EPSILONS:
        model.set_params(epsilon=epsilon)
        seeds = (model.set_params(random_state=seed) for seed in range(2))
        means.append(np.mean([scored(seeded, theirs)[0] for seeded in seeds]))
    ours, reference = scored(model.set_params(epsilon=np.inf), theirs)
    # The noise of two fits at a small budget is larger than what a larger one gains.
    # Only small budgets narrow these bounds, which cuts heavy tails: better than scikit-learn's.
    fall = 0.08 if name in ("DPNaiveBayes", "DPLasso") else FALL
    assert ours >= max(means) - fall, (means, ours)
    assert means[-1] >= means[0] - fall, means
    assert ours == pytest.approx(reference, abs=CLOSE), (means, reference)
    assert means[-1] == pytest.approx(ours, abs=NEAR), (means, reference)


def test_predictions_clip_features_as_the_fit_did():
    """A record far out has the prediction of one at the released end."""
    # A released range is within the bounds in all but 1 of 1e5 fits.
    seeded = KNOWN | {"epsilon": 3.0, "random_state": 0}
    model = dp.DPLasso(**seeded, **ENDS, solver="coordinate_descent").fit(FEATURES, TARGETS)
    lower, upper = model.feature_range_
    assert (lower >= -BOUND).all()
    assert (upper <= BOUND).all()
    assert (upper - lower < 1.5 * BOUND).all()
    np.testing.assert_array_equal(model.predict([upper + 1e3]), model.predict([upper]))
    labels = np.digitize(TARGETS, [-0.5, 0.5])
    three = dp.DPLogisticRegression(**seeded, passes=2).fit(FEATURES, labels)
    ends = np.max([each.feature_range_[1] for each in three.estimators_], axis=0)
    np.testing.assert_array_equal(three.predict_proba([ends + 1e3]), three.predict_proba([ends]))


@pytest.mark.long
@pytest.mark.parametrize("name", families.NAMES)
def test_the_median_score_of_a_family_does_not_fall(name):
    """R^2 of 10 tables that no default was chosen on, epsilon .1 to 30; noise has fixed seeds."""
    medians = []
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0):
        scores = []
        for seed in range(200, 210):
            of = families.draw(name, seed)
            known = {"feature_bounds": of.feature_bounds, "target_bounds": of.target_bounds}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = dp.DPLinearRegression(
                    epsilon=epsilon, delta=1e-6, random_state=seed, **known
                ).fit(of.x, of.y)
            scores.append(model.score(of.x_test, of.y_test))
        medians.append(np.median(scores))
    assert np.diff(medians).min() > -0.015, medians
    assert min(medians) > (-0.05 if name == families.ZERO_INFLATED else -0.2), medians
