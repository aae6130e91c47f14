"""Labels match categories by value, and a column that could never match is refused."""

import datetime
import decimal
import fractions

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.labels import counted, label_of

KEY = jax.random.key(0)
DAY = datetime.date(2024, 1, 1)
NAN = float("nan")
# Categories, labels, and how many of them are in each.
SAME = {
    "floats": ([0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0] * 750, [750] * 4),
    "whole": ([0.0, 1.0], [0, 1, 1], [1, 2]),
    "written": ([1], [" 1", "01", "1", "1.0", "+1", "1e0", "1 ", "\t1"], [8]),
    "kinds": ([1], [1, 1.0, decimal.Decimal("1.0"), fractions.Fraction(1), np.float32(1.0)], [5]),
    "text of numbers": (["1", "02"], [1, 2.0, "2", 3], [1, 2]),
    "zero": ([0], [0, -0.0, "-0", 0.0], [4]),
    "halves": ([0.1], [0.1, "0.1", ".10", np.float32(0.1), np.float16(0.1), jnp.float32(0.1)], [6]),
    "large": ([2**53 + 1], [2**53, 2**53 + 1, str(2**53 + 1), 2**53 + 2], [2]),
    "true": ([True, False], ["True", "true", " TRUE ", True, np.bool_(True), "false"], [5, 1]),
    "text of booleans": (["true"], [True, False, "True"], [2]),
    "texts": (["A", " B "], ["A", " A", "A ", "B", "a", "AB", b"A"], [4, 1]),
    "not numbers": (["nan", "inf", "1_0"], ["nan", "inf", "1_0", "10", 10], [1, 1, 1]),
    "dates": ([DAY], [DAY, "2024-01-01", "2024-01-01 00:00:00", np.datetime64("2024-01-01")], [4]),
    "text of dates": (["2024-01-01"], [datetime.datetime(2024, 1, 1), DAY, "2024-01-02"], [2]),
    "missing": (["A"], ["A", None, "", " ", NAN, np.datetime64("NaT")], [1]),
    "mixed": ([1, "A", True], [1, "A", True, "B", 2, False], [1, 1, 1]),
    "none": (["A"], [], [0]),
    "all missing": (["A"], [None, NAN], [0]),
}
NEVER = {
    "texts for numbers": ([0, 1], ["a", "b"], "numbers, and holds texts alone"),
    "numbers for texts": (["a"], [1, 2.0, NAN], "texts, and holds numbers alone"),
    "booleans for numbers": ([0, 1], [True, False], "numbers, and holds booleans alone"),
    "numbers for booleans": ([True], ["0", 1], "booleans, and holds numbers alone"),
    "dates for texts": (["May"], [DAY, None], "texts, and holds dates alone"),
    "lists": ([1], [[1]], "numbers, and holds texts alone"),
}


def in_cells(categories, values):
    return counted(list(values), [label_of(x) for x in categories], "town")


@pytest.mark.parametrize("name", SAME)
def test_labels_match_by_value(name):
    categories, values, expected = SAME[name]
    assert in_cells(categories, values) == expected


@pytest.mark.parametrize("name", NEVER)
def test_a_column_that_can_never_match_is_refused(name):
    categories, values, told = NEVER[name]
    with pytest.raises(ValueError, match=f"^column 'town' must .*{told}"):
        in_cells(categories, values)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32", "float64", "str", "object"])
def test_arrays_of_every_type_match(dtype):
    values = np.array([0, 1, 1, 2]).astype(dtype)
    for categories in ([0, 1], ["0", "1"], [0.0, "01"]):
        assert in_cells(categories, values) == [1, 2]


def test_columns_of_pandas_match():
    pandas = pytest.importorskip("pandas")
    for dtype in ("Int8", "float64", "object", "string"):
        values = pandas.Series([0, 1, None, 1]).astype(dtype)
        assert in_cells([0, 1], values) == [1, 2], dtype
    for dtype in ("boolean", "object"):
        values = pandas.Series([True, False, None, True], dtype=dtype)
        assert in_cells([True, False], values) == in_cells(["true", "False"], values) == [2, 1]
    assert in_cells(["a", "b"], pandas.Series(["a", "b", None, "a"], dtype="category")) == [2, 1]
    days = pandas.to_datetime(pandas.Series(["2024-01-01", None, "2024-01-02"]))
    assert in_cells([DAY], days) == in_cells(["2024-01-01"], days) == [1]


def made(**keys):
    count = {"statistic": "count", "column": "town", "noise": "discrete_laplace", **keys}
    return dp.tables.plan({"epsilon": 20.0, "delta": 1e-6, "release": [count]})


def test_a_released_table_counts_what_is_there_and_the_rest():
    """The noise of epsilon 20 is 0 but once in 1e8."""
    plan = made(categories=[0, 1, 2], other=True)
    columns = {"town": jnp.asarray([0.0, 1.0, 1.0, 3.0, jnp.nan])}
    table = dp.tables.release(columns, plan, KEY)
    assert [(row.category, row.value) for row in table.rows] == [
        ("0", 1.0),
        ("1", 2.0),
        ("2", 0.0),
        ("other", 2.0),
    ]
    table = dp.tables.release({"town": [" 01", True]}, made(categories=[1]), KEY)
    assert [(row.category, row.value) for row in table.rows] == [("1", 1.0)]


def test_the_cell_of_all_others_costs_nothing():
    """A record is in one cell, with it too."""
    without, beside = made(categories=["A"]), made(categories=["A"], other=True)
    scales = [np.asarray(jax.tree.leaves(plan.mechanisms[0].noise)) for plan in (without, beside)]
    np.testing.assert_allclose(*scales, rtol=1e-8)


def test_a_column_of_another_type_is_refused_before_anything_is_charged(tmp_path):
    ledger = dp.Ledger(tmp_path / "budget", dp.PureDP(30.0))
    for plan in (made(categories=[0, 1]), made(categories=[0, 1], other=True)):
        with pytest.raises(ValueError, match="column 'town' must hold what its categories are"):
            dp.tables.release({"town": ["north", "south"]}, plan, ledger=ledger)
    assert ledger.steps == ()


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"categories": [1, "01"]}, "categories must differ"),
        ({"categories": [True, "TRUE"]}, "categories must differ"),
        ({"categories": ["A", " A"]}, "categories must differ"),
        ({"categories": ["A", ""]}, "categories must not be empty or NaN"),
        ({"categories": [1.0, NAN]}, "categories must not be empty or NaN"),
        ({"categories": ["A"], "other": "yes"}, "other must be true or false"),
        ({"categories": ["A", "other"], "other": True}, "other must be false where"),
        (
            {"categories": None, "column": None, "other": True},
            "other must be true or false, beside",
        ),
    ],
)
def test_bad_categories_are_refused(keys, told):
    with pytest.raises(ValueError, match=f"release 1: {told}"):
        made(**keys)
