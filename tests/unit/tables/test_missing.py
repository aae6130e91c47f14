"""Missing values: dropped, or a public number within the bounds, else refused uncharged."""

import datetime
import math

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.labels import is_missing
from jaxdp.tables.sums import Tally

# The texts that pandas.read_csv takes as missing.
PANDAS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
AGE = {"column": "age", "lower": 0, "upper": 100}
MEAN = {"statistic": "mean", **AGE}
COUNT = {"statistic": "count", "column": "age", "missing": "drop"}
COLUMNS = {"sex": {"categories": ["f", "m"]}}
RECORDS = {
    "age": ["20", " NA ", "", "40", None, "150", math.nan, "60", "nan", "#N/A"],
    "sex": ["f", "f", "m", "f", "f", "m", "m", "NA", "f", ""],
}


def made(*releases, **keys):
    return dp.tables.plan({"rho": 1e9, "columns": COLUMNS, "release": list(releases), **keys})


def released(plan, columns=RECORDS):
    rows = dp.tables.release(columns, plan, jax.random.key(0)).rows
    return {(row.name, row.category): round(row.value, 2) for row in rows}


def totals(plan, columns):
    tally = Tally(dp.tables.plan(plan).queries)
    tally.add(columns)
    return tally.totals()


def test_missing_values_are_those_of_pandas():
    assert all(map(is_missing, (*PANDAS, " NA ", "\u00a0", None, math.nan, np.datetime64("NaT"))))
    there = ("a", "0", "na", "Na", "none", 0, False, "-", ".", "inf", b"NA ", datetime.date.min)
    assert [x for x in there if is_missing(x)] == [b"NA "]
    pandas = pytest.importorskip("pandas")
    assert is_missing(pandas.NA)
    assert is_missing(pandas.NaT)
    assert {*PANDAS} == {*pandas._libs.parsers.STR_NA_VALUES}


def test_a_mean_of_those_present_and_a_mean_with_a_number():
    """150 is clipped to 100; a record without a sex is in no cell."""
    drop = MEAN | {"missing": "drop"}
    found = released(made(COUNT, COUNT | {"by": "sex"}, drop, drop | {"by": "sex", "name": "by"}))
    assert found["count of age", None] == 4
    assert found["mean of age", None] == 55
    assert found["count of age by sex", "f"] == 2
    assert (found["by", "f"], found["by", "m"]) == (30, 100)
    filled = made({"statistic": "count"}, MEAN, {"statistic": "sum", **AGE}, missing=50)
    found = released(filled)
    assert found["count", None] == 10
    assert found["sum of age", None] == 220 + 6 * 50
    assert found["mean of age", None] == 52


def test_a_label_that_reads_as_missing_is_a_category_if_the_plan_says_so():
    plan = {"rho": 1e9, "release": [{"statistic": "count", "by": "code"}]}
    columns = {"code": ["NA", "NA", "DE", "", None]}
    for categories, other, expected in (
        (["NA", "DE"], False, [2, 1]),
        (["NA", "DE"], True, [2, 1, 2]),
        (["DE"], True, [1, 4]),
    ):
        cells = {"code": {"categories": categories, "other": other}}
        assert totals(plan | {"columns": cells}, columns) == [expected]
    numbers = {"code": {"categories": [1, 2], "other": True}}
    assert totals(plan | {"columns": numbers}, {"code": ["NA", "n/a"]}) == [[0, 0, 2]]


@pytest.mark.parametrize("missing", ["drop", 0, 100, 37.5])
def test_one_record_moves_sums_by_the_sensitivity(missing):
    """Whether its value is missing or not."""
    random, worst = np.random.default_rng(0), 0.0
    count = COUNT if missing == "drop" else {"statistic": "count"}
    rule = {"missing": missing}
    plan = made(count, MEAN | rule, {"statistic": "sum", "unit": 0.5, **AGE} | rule)
    for value in [*RECORDS["age"], 0, 100, -5, "1e9", "inf"] * 5:
        others = random.choice(np.array([*RECORDS["age"], 3.25], object), 6).tolist()
        sums = []
        for values in ([*others, value], others):
            tally = Tally(plan.queries)
            tally.add({"age": values})
            sums.append(np.array(tally.totals()))
        scale = np.array([[query.sensitivity] for query in plan.queries])
        worst = max(worst, np.max(np.abs(sums[0] - sums[1]) / scale))
    assert 0.99 < worst <= 1.0


def test_without_a_rule_a_missing_value_is_refused_before_any_charge(tmp_path):
    ledger = dp.Ledger(tmp_path / "ledger", dp.ZCDP(0.0, 1.0))
    plan = made({"statistic": "count"}, MEAN, rho=0.1)
    with pytest.raises(ValueError, match=r'record 2 has none: .* missing = "drop", or a number'):
        dp.tables.release(RECORDS, plan, ledger=ledger)
    text = {"age": ["1", "abc"]}
    with pytest.raises(ValueError, match=r"record 2 has none: write a number "):
        dp.tables.release(text, made(COUNT, MEAN | {"missing": "drop"}, rho=0.1), ledger=ledger)
    assert ledger.steps == ()
