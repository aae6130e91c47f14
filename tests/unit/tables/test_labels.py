"""Labels match categories by value, and a column that could never match is refused."""

import datetime
import decimal
import fractions

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.cells import Sorter, cells_of
from jaxdp.tables.labels import label_of

KEY = jax.random.key(0)
DAY = datetime.date(2024, 1, 1)
NAN = float("nan")
# Categories, labels, and how many of them are in each.
SAME = {
    "floats": ([0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0] * 750, [750] * 4),
    "whole": ([0.0, 1.0], [0, 1, 1], [1, 2]),
    "written": ([1], [" 1", "01", "1", "1.0", "+1", "1e0", "1 ", "\t1"], [8]),
    "kinds": ([1], [1, 1.0, decimal.Decimal("1.0"), fractions.Fraction(1), np.float32(1.0)], [5]),
    "text of numbers": (["1", "02"], [1, 1.0, "1", "1.0", 2.0, "2", "02"], [3, 1]),
    "small": ([1.2e-05], [1.2e-05, "1.2e-05", "0.000012", "1.2E-5", np.float32(1.2e-05)], [5]),
    "text of powers": (["0e1", "0e2"], ["0e1", "0e2", "0e2", "0e5", "0"], [1, 2]),
    "text of versions": (["3.1", "3.10"], ["3.1", "3.10", "3.10", "3.100"], [1, 2]),
    "text of codes": (["02139", "44"], ["02139", "2139", "44", "+44", "044", 2139, 44], [1, 2]),
    "composed": (["Zu\u0308rich"], ["Z\u00fcrich", "Zu\u0308rich", " Zu\u0308rich "], [3]),
    "spaces": (["New York"], ["New\u00a0York", "New\u202fYork\u00a0", "\ufeffNew York"], [3]),
    "digits": ([12], ["12", "\u00a012", "\u0661\u0662", "1_2"], [2]),
    "infinite": ([float("inf")], [float("inf"), "inf", "-inf", "1e999"], [2]),
    "intervals": (["(0, 18]", "2020-2024"], ["(0, 18]", "2020-2024", "2020-2025"], [1, 1]),
    "durations": (
        [datetime.timedelta(1)],
        [datetime.timedelta(1), np.timedelta64(1, "M"), 1, 24],
        [1],
    ),
    "zero": ([0], [0, -0.0, "-0", 0.0], [4]),
    "halves": ([0.1], [0.1, "0.1", ".10", np.float32(0.1), np.float16(0.1), jnp.float32(0.1)], [6]),
    "large": ([2**53 + 1], [2**53, 2**53 + 1, str(2**53 + 1), 2**53 + 2], [2]),
    "true": ([True, False], ["True", "true", " TRUE ", True, np.bool_(True), "false"], [5, 1]),
    "text of booleans": (["true"], [True, False, "True", "true"], [2]),
    "texts": (["A", " B "], ["A", " A", "A ", "B", "a", "AB", b"A"], [4, 1]),
    "not numbers": (["nan", "inf", "1_0"], ["nan", "inf", "1_0", "10", 10], [1, 1, 1]),
    "dates": ([DAY], [DAY, "2024-01-01", "2024-01-01 00:00:00", np.datetime64("2024-01-01")], [4]),
    "times": (
        [DAY, datetime.date(2023, 12, 31)],
        [
            *("2024-01-01T00:00:00Z", "2024-01-01 23:59:59.5", "2024-01-01 12:00:00 UTC"),
            *("2024-01-01T00:30:00+01:00", "2024-01-01T00:30+0100", "2023-12-31 23:30:00-01:00"),
            datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC),
            datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            *("1 January 2024", "2024-1-1", "2024-01-32", "20240101", "2024-W01"),
        ],
        [5, 3],
    ),
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
    sorter = Sorter(cells_of("here", "town", {"categories": categories}))
    found = sorter.index(list(values))
    sorter.require_a_kind()
    return np.bincount(found[found >= 0], minlength=len(categories)).tolist()


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
    for categories in ([0, 1], ["0", "1"], [0.0, "1"]):
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


def test_a_number_and_a_date_are_what_is_written():
    """For doubles of all sizes, whole numbers and days."""
    random = np.random.default_rng(0)
    doubles = np.frombuffer(random.bytes(8 * 3000), np.float64)
    doubles = [*doubles[np.isfinite(doubles)].tolist(), *random.normal(size=1000).tolist()]
    whole = [int(x) ** int(k) for x, k in random.integers(-99, 99, (1000, 2)) if k > 0]
    for number in (*doubles, *whole):
        assert label_of(repr(number)) == label_of(number), number
        assert in_cells([number], [repr(number), f" {number!r} "]) == [2]
    for ordinal in random.integers(1, 3652059, 1000).tolist():
        day = datetime.date.fromordinal(ordinal)
        time = datetime.datetime.combine(day, datetime.time(*random.integers(0, 24, 3).tolist()))
        for written in (day, time, str(day), str(time), time.isoformat(), f"{time}+00:00"):
            assert label_of(written) == label_of(day), written


def made(**cells):
    count = {"statistic": "count", "by": "town", "noise": "discrete_laplace"}
    budget = {"epsilon": 20.0, "delta": 1e-6}
    return dp.tables.plan(budget | {"columns": {"town": cells}, "release": [count]})


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
