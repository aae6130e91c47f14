"""Rows of released tables: bars, digits, and what is not known; columns that are none."""

import math

import jax
import numpy as np
import pytest

import jaxdp as dp


def of_rho(*releases, **keys):
    """Found without a search."""
    return dp.tables.plan({"rho": 0.5, "release": list(releases), **keys})


MIXED = {"columns": {"cell": {"categories": ["many", "one", "none"], "other": True}}}
VALUES = {"column": "x", "lower": 100.0, "upper": 300_100.0}


@pytest.mark.parametrize(
    ("statistic", "noise"),
    [("mean", "gaussian"), ("mean", "discrete_laplace"), ("quantile", "gaussian")],
)
def test_a_row_whose_interval_holds_all_of_the_bounds_is_blank(noise, statistic):
    """By released numbers alone: the mean of an empty cell was 150000 +- 150000."""
    kind = {} if statistic == "quantile" else {"noise": noise}
    count = {"statistic": "count", "by": "cell", "noise": noise}
    asked = {"statistic": statistic, **VALUES, **kind, "by": "cell"}
    plan = of_rho(count, asked, rho=0.1, **MIXED)
    columns = {"cell": ["many"] * 3000 + ["one"], "x": [200_100.0] * 3001}
    for index in range(3):
        rows = dp.tables.release(columns, plan, jax.random.key(index)).rows[4:]
        many, *few = rows
        assert abs(many.value - 200_100) <= many.half_width < 25_000
        blank = [row for row in few if math.isnan(row.value)]
        assert [row.half_width for row in blank] == [300_000.0] * len(blank)
        assert len(blank) >= 1
        for row in (row for row in few if row not in blank):
            assert row.value - row.half_width > 100.0 or row.value + row.half_width < 300_100.0


def test_digits_follow_the_half_width():
    count = {"statistic": "count", "by": "cell", "margins": True}
    total = {"statistic": "sum", **VALUES, "by": "cell", "unit": 0.01}
    tables = [count, {"statistic": "mean", **VALUES, "by": "cell"}, total]
    tables += [{"statistic": "quantile", **VALUES, "probabilities": [0.1, 0.5, 0.9]}]
    plan = of_rho(*tables, rho=0.1, **MIXED)
    x = np.random.default_rng(0).normal(2e5, 3e4, 4000)
    rows = dp.tables.release({"cell": ["many"] * 4000, "x": x}, plan, jax.random.key(1)).rows
    for row in (row for row in rows if not math.isnan(row.value)):
        digits = 4 if row.name.startswith(("mean", "quantile")) else 7
        last = 10.0 ** (math.floor(math.log10(row.half_width)) + 1 - digits)
        for number in (row.value, row.half_width):
            places = max(0, -round(math.log10(last)))
            assert number == round(number, places), row
        assert len(f"{row.half_width!r}".replace(".", "").lstrip("0")) <= digits + 1, row
    by_cell = [row.value for row in rows if row.name == "count by cell"]
    assert sum(by_cell) == pytest.approx(next(r.value for r in rows if r.name == "count"), abs=1e-4)
    of_x = [row.value for row in rows if row.name.startswith("quantile")]
    assert of_x == sorted(of_x)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete_gaussian", "discrete_laplace"])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_bar_of_a_count_is_the_least_whole_number(noise, level):
    """Rounded noise passes k if the noise passes k + 1 / 2."""
    for rho in (0.02, 0.3, 1.0):
        plan = of_rho({"statistic": "count", "noise": noise}, rho=rho, level=level)
        bar = float(plan.expected_errors()["count"].half_width)
        drawn = plan.mechanisms[0].noise
        ends = np.array([bar - 1.0, bar]) + (0.0 if drawn.on_integers else 0.5)
        fewer, inside = 1.0 - 2.0 * np.exp(np.asarray(drawn.log_survival(ends)))
        assert bar == round(bar)
        assert fewer < level <= inside or (bar == 0.0 and level <= inside)


@pytest.mark.parametrize("values", ["Secret42", b"Secret42", {"Secret42": 1}, {"Secret42"}])
def test_only_lists_of_values_are_columns(values):
    """A text was a column of its letters."""
    towns = {"town": {"categories": ["S"]}}
    plan = of_rho({"statistic": "count", "by": "town"}, columns=towns)
    with pytest.raises(ValueError, match=r"'town' is a [a-z]+$"):
        dp.tables.release({"town": values}, plan)
    for columns, said in (
        ({"town": np.array([["S", "B"]])}, "'town' is a ndarray"),
        ("Secret42", "a mapping of names to columns, or chunks, got a str"),
        ([["S"]], "or chunks, got a list"),
        ({3: ["S"]}, "texts as names, got a int"),
    ):
        with pytest.raises(ValueError, match=said):
            dp.tables.release(columns, plan)
    for right in (("S", "B"), np.array(["S", "B"]), iter(["S", "B"]), {"S": 1}.keys()):
        assert len(dp.tables.release({"town": right}, plan).rows) == 1
