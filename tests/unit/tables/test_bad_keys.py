"""Bad keys of a plan: each is refused with its place, its name and its range."""

import datetime

import pytest

import jaxdp as dp

NAN, INF = float("nan"), float("inf")
COUNT = {"statistic": "count"}
PRESENT = COUNT | {"column": "age", "missing": "drop"}
MEAN = {"statistic": "mean", "column": "age", "lower": 0, "upper": 100}
SUM = {"statistic": "sum", "column": "spent", "lower": -10.0, "upper": 30.0}
QUANTILE = {"statistic": "quantile", "column": "age", "lower": 0, "upper": 100}
UNKNOWN = COUNT | {"column": "town", "unknown_delta": 1e-6}
SEX = {"sex": {"categories": ["f", "m"]}}
WIDE = {name: {"bins": [*range(1500)]} for name in "ab"}
LATE = datetime.datetime(2024, 7, 2, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
DAY = datetime.date(2024, 1, 1)

OF_A_PLAN = [
    ({"epsilon": "a"}, "epsilon must be a number"),
    ({"delta": None}, "delta must be a number, got None"),
    ({"delta": 2.0}, r"delta must lie in \[0, 1\]"),
    ({"delta": 0.0}, "delta must be at least .* got 0.0: the noise is sampled"),
    ({"rho": 0.1}, "give either rho, or epsilon and delta"),
    ({"level": -1}, "level must lie in"),
    ({"level": 1}, "level must lie in"),
    ({"budget": 1.0}, "budget is not a key"),
    ({"ledger": 3}, "ledger must be a text"),
    ({"noise": "normal"}, "noise must be one of gaussian, laplace"),
    ({"release": []}, "release must be a list"),
    ({"release": [3]}, "release 1 must be a table"),
    ({"release": [COUNT, COUNT]}, "release 1: name must be given"),
    ({"release": [UNKNOWN], "jointly": True}, "unknown_delta must stand without jointly"),
    ({"release": [UNKNOWN], "delta": 3e-6}, r"delta must .* \(unknown_delta is a part of it"),
    ({"person": 3, "rows": 2}, "person must be a text"),
    ({"person": "id"}, "rows must be a number"),
    ({"person": "id", "rows": 0}, r"rows must lie in \[1, 1e\+06\]"),
    ({"person": "id", "rows": 2.5}, "rows must be whole"),
    ({"person": "id", "rows": 1, "max_cells": 1.5}, "max_cells must be whole"),
    ({"person": "id", "rows": 2000, "max_cells": 2000}, "rows times max_cells must be at most"),
    ({"rows": 2}, "rows must be given beside person"),
    ({"max_cells": 2}, "max_cells must be given beside person"),
]
OF_A_STATISTIC = [
    ({"statistic": "median"}, "statistic must be one of count, sum, mean"),
    (COUNT | {"wieght": 2.0}, "wieght is not a key: it can have"),
    (COUNT | {"categories": ["a"]}, "categories is not a key"),
    (COUNT | {"weight": 0}, r"weight must lie in \[1e-12, 1e\+12\]"),
    (COUNT | {"weight": NAN}, "weight must lie in"),
    (COUNT | {"weight": 10**400}, "weight must lie in"),
    (COUNT | {"weight": True}, "weight must be a number"),
    (COUNT | {"noise": 3}, "noise must be one of"),
    (COUNT | {"lower": 0}, "a count must have no lower"),
    (COUNT | {"unit": 1}, "a count must have no unit"),
    (COUNT | {"column": "a"}, r"unknown_delta, or count its values: .* \[columns.a\]"),
    (PRESENT | {"missing": 0.5}, "count its values: missing"),
    (PRESENT | {"unknown_delta": 1e-6}, "count its values: missing"),
    (COUNT | {"missing": "drop"}, "column must be given"),
    (UNKNOWN | {"column": None}, "column must be given"),
    (UNKNOWN | {"by": "sex"}, "unknown_delta must stand without by"),
    (UNKNOWN | {"unknown_delta": 0}, r"unknown_delta must lie in \[1e-300, 0.999999\]"),
    (UNKNOWN | {"unknown_delta": 1.0}, "unknown_delta must lie in"),
    (COUNT | {"by": "town"}, r"by must name columns whose .* \[columns.town\]"),
    (COUNT | {"by": ["sex", "sex"]}, "by must name 6 columns at most, each once"),
    (COUNT | {"by": [3]}, "by must be a list of columns"),
    (COUNT | {"by": ["a", "b"]}, "by must make at most 1,000,000 cells"),
    (COUNT | {"margins": True}, "margins must be false without by"),
    ({"statistic": "sum", "lower": 0, "upper": 1}, "column must be given"),
    ({"statistic": "sum", "column": "a", "lower": 0}, "upper must be a number"),
    (SUM | {"unknown_delta": 1e-6}, "a sum must have no unknown_delta"),
    (SUM | {"probabilities": [0.5]}, "a sum must have no probabilities"),
    (SUM | {"lower": 30.0}, "lower must lie below upper"),
    (SUM | {"upper": INF}, "upper must lie in"),
    (SUM | {"missing": "mean"}, 'missing must be "drop" or a number'),
    (SUM | {"missing": 101}, r"missing must lie in \[-10, 30\]"),
    (SUM | {"lower": 0.1, "upper": 0.2, "noise": "discrete_laplace"}, "unit must be at"),
    (MEAN | {"upper": 1, "noise": "discrete_gaussian"}, "unit must be at most"),
    (MEAN | {"upper": 1, "unit": 0.4}, "unit must be at most 0.125 or divide 0.5"),
    (MEAN | {"unit": 1e-9}, "unit must be at least 5e-08 at these bounds, got 1e-09"),
    (MEAN | {"unit": 0}, "unit must lie in"),
    (MEAN | {"by": "sex"}, r'a noisy count: add a .* "count" and by = \["sex"\]'),
    (MEAN | {"missing": "drop"}, 'column = "age" and missing = "drop"'),
    (QUANTILE | {"probabilities": []}, "probabilities must increase"),
    (QUANTILE | {"probabilities": [0.5, 0.25]}, "probabilities must increase"),
    (QUANTILE | {"probabilities": [0.5, 1.0]}, r"probabilities must lie in \(0, 1\)"),
    (QUANTILE | {"probabilities": [1e-7]}, r"probabilities must lie in \(0, 1\), as 0.25"),
    (QUANTILE | {"probabilities": "half"}, "probabilities must be a number"),
    (QUANTILE | {"unit": 0.3}, "unit must divide upper - lower = 100 into at most 100,000 steps"),
    (QUANTILE | {"unit": 0.0001}, "unit must divide"),
    (QUANTILE | {"noise": "laplace"}, "a quantile must have no noise"),
]
DIFFER = "categories must differ"
OF_CELLS = [
    ({}, r"give one of categories, bins and unit, got \[\]"),
    ({"categories": ["a"], "bins": [0, 1]}, "give one of categories, bins and unit"),
    ({"bin": [0, 1]}, "bin is not a key"),
    ({"bins": [0, 5, 5]}, "bins must increase"),
    ({"bins": [0, NAN]}, "bins must increase"),
    ({"bins": [0]}, "bins must be a list of numbers, two or more"),
    ({"bins": [False, True]}, "bins must be a list of numbers"),
    ({"bins": [0, 10**400]}, "bins must lie in"),
    ({"bins": [0, 1], "first": 3}, "first is for a unit of dates"),
    ({"unit": "month", "first": DAY}, "last must be a date such"),
    ({"unit": "day", "first": "2024-02-01", "last": "2024-01-01"}, "last must not lie"),
    ({"unit": "hour"}, "unit must be one of day, week, month, quarter, year"),
    *(({"categories": x}, DIFFER) for x in ([1, "01"], [1, 1.0], [True, "TRUE"], ["A", " A"])),
    *(({"categories": x}, DIFFER) for x in ([DAY, "2024-01-01 12:00:00"], ["u\u0308", "\u00fc"])),
    ({"categories": ["A", ""]}, "categories must not be empty or NaN"),
    ({"categories": [1.0, NAN]}, "categories must not be empty or NaN"),
    ({"categories": "AB"}, "categories must be a list"),
    ({"categories": [LATE]}, "categories must be dates in UTC"),
    ({"categories": ["A"], "other": "yes"}, "other must be true or false"),
    ({"categories": ["A", "other"], "other": True}, "other must be false where"),
]
CASES = [
    *((keys, f"plan: {said}") for keys, said in OF_A_PLAN),
    *(
        ({"columns": SEX | WIDE, "release": [{**COUNT, "name": "n"}, keys]}, f"release 2: .*{said}")
        for keys, said in OF_A_STATISTIC
    ),
    *(({"columns": {"x": keys}}, f"columns.x: .*{said}") for keys, said in OF_CELLS),
]


@pytest.mark.parametrize(("keys", "said"), CASES, ids=[said[:40] for _, said in CASES])
def test_bad_keys_are_named(keys, said):
    with pytest.raises(ValueError, match=said):
        dp.tables.plan({"epsilon": 1.0, "delta": 1e-5, "release": [COUNT], **keys})
