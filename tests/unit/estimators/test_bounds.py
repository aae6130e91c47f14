"""What is said of bounds and columns that will not do: by the names that the user gave."""

import functools
import warnings

import numpy as np
import pandas as pd
import pytest

import jaxdp as dp
from benchmarks.reproductions.ssp_lasso import SSPLasso
from jaxdp.estimators import BoundsWarning, DPStandardScaler, PublicScaler

KNOWN = {"epsilon": 1.0, "delta": 1e-6}
FEATURES = np.random.default_rng(0).uniform(-0.9, 0.9, size=(60, 2))
SIGN = (FEATURES[:, 0] > 0).astype(int)
AGED = FEATURES * [30.0, 1.0] + [50.0, 0.0]
BOUNDED = {
    kind.__name__: functools.partial(kind, **KNOWN)
    for kind in (
        dp.DPLasso,
        dp.DPLinearRegression,
        dp.DPLogisticRegression,
        dp.DPNaiveBayes,
        dp.DPPCA,
        DPStandardScaler,
    )
}
BOUNDED["PublicScaler"] = PublicScaler
EVERY = pytest.mark.parametrize("make", BOUNDED.values(), ids=BOUNDED.keys())


@EVERY
@pytest.mark.parametrize("half", [1e200, 1e-200, 1e60, 5e-324])
def test_bounds_whose_squares_are_no_numbers_are_named(make, half):
    table = pd.DataFrame(FEATURES * [1.0, half], columns=["age", "mass"])
    for bounds, column in (((-half, half), "age"), (([-1, -half], [1, half]), "mass")):
        with pytest.raises(ValueError, match=f"^feature_bounds must lie .* column '{column}'"):
            make(feature_bounds=bounds).fit(table, SIGN)


@pytest.mark.parametrize("half", [1e200, 1e-200])
def test_bounds_of_targets_and_rows_are_named(half):
    with pytest.raises(ValueError, match=r"^target_bounds must lie"):
        dp.DPLasso(**KNOWN, feature_bounds=(-1, 1), target_bounds=(-half, half)).fit(FEATURES, SIGN)
    with pytest.raises(ValueError, match="row_bound"):
        SSPLasso(**KNOWN, row_bound=half).fit(FEATURES, SIGN)


@pytest.mark.parametrize("unit", [1e-20, 1e40])
def test_units_far_from_one_serve(unit):
    known = {"feature_bounds": (-unit, unit), "passes": 2, "scaling_share": 0.0}
    for model in (
        dp.DPLasso(**KNOWN, **known, target_bounds=(-1 / unit, 1 / unit)),
        dp.DPLogisticRegression(**KNOWN, **known),
    ):
        targets = SIGN if hasattr(model, "classes") else SIGN / unit
        assert np.isfinite(model.fit(FEATURES * unit, targets).coef_).all()


@EVERY
def test_a_constant_and_a_wrong_column_are_named(make):
    table = pd.DataFrame(FEATURES, columns=["age", "mass"])
    for lower, upper, said in (
        ([-1, 0], [1, 0], r"\(0, 0\) for column 'mass': drop a column that is constant"),
        ([2, 0], [1, 1], r"\(2, 1\) for column 'age'$"),
        ([-1, 0], [1, np.inf], r"\(0, inf\) for column 'mass'$"),
        ([-1, np.nan], [1, 1], r"\(nan, 1\) for column 'mass'$"),
    ):
        with pytest.raises(ValueError, match=f"^feature_bounds must be finite.*{said}"):
            make(feature_bounds=(lower, upper)).fit(table, SIGN)
    with pytest.raises(ValueError, match="for column 1: drop"):
        make(feature_bounds=([-1, 0], [1, 0])).fit(FEATURES, SIGN)


def test_naive_bayes_names_columns_between_categorical_ones():
    table = pd.DataFrame({"code": SIGN, "age": FEATURES[:, 0], "mass": 5.0})
    model = dp.DPNaiveBayes(**KNOWN, feature_bounds=([-1, 5], [1, 5]), categories=[2, 0, 0])
    with pytest.raises(ValueError, match=r"\(5, 5\) for column 'mass'"):
        model.fit(table, SIGN)
    model.set_params(feature_bounds=([0, 0], [1, 4]))
    with pytest.warns(BoundsWarning, match=r"values of X in 2 of 2 columns \('age', 'mass'\)"):
        model.fit(table, SIGN)


@pytest.mark.parametrize(
    "values",
    [
        ["bern", "1 Thun"] * 30,
        pd.Categorical(["bern", "thun"] * 30),
        pd.Series(["bern", None] * 30, dtype="string"),
        pd.date_range("2020-01-01", periods=60),
    ],
    ids=["object", "category", "string", "date"],
)
@pytest.mark.parametrize("names", [["city"], ["city", "town"]])
def test_columns_of_text_are_named_and_no_value_is(values, names):
    table = pd.DataFrame({"age": FEATURES[:, 0], **dict.fromkeys(names, values)})
    listed = ", ".join(f"'{name}'" for name in names)
    with pytest.raises(ValueError, match=f"in columns? {listed}: drop.*OneHotEncoder") as caught:
        DPStandardScaler(**KNOWN, feature_bounds=(-1, 1)).fit(table)
    for secret in ("ern", "hun", "2020"):
        assert secret not in str(caught.value)
    with pytest.raises(ValueError, match=r"in column 1: drop.*OneHotEncoder|columns 1, 2: drop"):
        SSPLasso(**KNOWN, row_bound=1.0).fit(table.to_numpy().astype(str), SIGN)


def test_targets_of_text_are_no_column_of_x():
    for targets in (["8192 euros", "1"] * 30, np.array(["8192 euros", 1] * 30, object)):
        with pytest.raises(ValueError, match=r"^y must be numbers, and some are not$"):
            SSPLasso(**KNOWN, row_bound=1.0).fit(FEATURES, np.array(targets))


@EVERY
def test_pairs_that_can_be_read_in_two_ways_are_warned_of(make):
    values = np.array([[5.0, 15.0], [6.0, 16.0]] * 30)
    for pairs in ([(0, 10), (20, 30)], ((0, 10), (20, 30)), np.array([[0, 10], [20, 30]])):
        with pytest.warns(BoundsWarning, match=r"read as \(lower, upper\), column 0 in \[0, 20\]"):
            make(feature_bounds=pairs).fit(values, SIGN)


def test_pairs_that_can_be_read_in_one_way_are_not():
    values = np.array([[5.0, 15.0]] * 9)
    lower, upper = np.array([0, 10]), np.array([20, 30])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = PublicScaler((lower, upper)).fit(values)
        np.testing.assert_allclose(fitted.transform(values)[0], [-0.5, -0.5])
        PublicScaler([(0, 0), (20, 30)]).fit(values)
        PublicScaler([(0, 10, 0), (20, 30, 1)]).fit(np.tile([5, 15, 0.5], (9, 1)))
    for count in (1, 2, 3):
        with pytest.raises(ValueError, match=r"one a column, give tuple\(np.transpose\(pairs\)\)"):
            PublicScaler([(0, 1)] * count).fit(np.zeros((9, count)))
    for classes in (2, 3):
        known = KNOWN | {"epsilon": 25.0, "feature_bounds": [(0, 10), (20, 30)]}
        model = dp.DPLogisticRegression(**known, passes=1)
        with pytest.warns(BoundsWarning, match="read as") as caught:
            model.fit(values, np.arange(9) % classes)
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.predict(values)


@pytest.mark.parametrize("epsilon", [40.0, 1e6])
def test_who_wants_no_noise_is_told_of_an_infinite_epsilon(epsilon):
    private = [
        make(feature_bounds=(-1, 1), epsilon=epsilon) for make in list(BOUNDED.values())[:-1]
    ]
    laplace = [dp.DPLasso, dp.DPNaiveBayes]
    loud = [make(**KNOWN, feature_bounds=(-1, 1), noise="laplace") for make in laplace]
    three = dp.DPLogisticRegression(**KNOWN, feature_bounds=(-1, 1), classes=[0, 1, 2])
    for model in (*private, *loud, three, SSPLasso(**KNOWN, row_bound=1.0)):
        with pytest.raises(ValueError, match=r"take a smaller epsilon .*epsilon=inf"):
            model.set_params(epsilon=epsilon).fit(FEATURES, SIGN)


def test_a_frame_has_bounds_by_name():
    frame = pd.DataFrame(AGED, columns=["age", "score"])
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
    dp.DPPCA(1, feature_bounds=numbered, **KNOWN).fit(AGED)


@pytest.mark.parametrize("kind", [dp.DPLogisticRegression, dp.DPNaiveBayes, DPStandardScaler])
def test_bounds_that_are_the_extremes_of_every_column_warn(kind, recwarn):
    own = AGED.min(axis=0), AGED.max(axis=0)
    with pytest.warns(BoundsWarning, match="computed from the records"):
        kind(feature_bounds=own, **KNOWN).fit(AGED, SIGN)
    indicators = (np.median(AGED, axis=0) < AGED) * 1.0
    for values, bounds in ((AGED, (own[0] - 1.0, own[1])), (indicators, (0, 1))):
        recwarn.clear()
        kind(feature_bounds=bounds, **KNOWN).fit(values, SIGN)
        assert not [w for w in recwarn if "computed from" in str(w.message)]
