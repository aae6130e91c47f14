"""Tables by several columns: cells, margins, and bars that hold together."""

import datetime
import math

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.cells import Sorter, cells_of
from jaxdp.tables.sums import Tally

COLUMNS = {
    "region": {"categories": ["N", "S"], "other": True},
    "sex": {"categories": ["f", "m"]},
    "age": {"bins": [0, 18, 65, 120], "other": True},
    "day": {
        "unit": "month",
        "first": datetime.date(2023, 12, 1),
        "last": datetime.date(2024, 2, 1),
    },
}
RANDOM = np.random.default_rng(0)
SIZE = 300
RECORDS = {
    "region": RANDOM.choice(["N", "S", "W", ""], SIZE).tolist(),
    "sex": RANDOM.choice(["f", "m", "x"], SIZE).tolist(),
    "age": RANDOM.integers(-5, 130, SIZE).tolist(),
    "day": RANDOM.choice(["2023-12-31", "2024-01-01T10:00:00Z", "2024-03-01"], SIZE).tolist(),
    "spent": RANDOM.normal(5.0, 20.0, SIZE).tolist(),
}
COUNT = {"statistic": "count"}
SPENT = {"column": "spent", "lower": -10.0, "upper": 30.0}


def made(*releases, **keys):
    return dp.tables.plan({"columns": COLUMNS, "release": list(releases), **keys})


def sorted_by(keys, values):
    return Sorter(cells_of("here", "x", keys)).index(values).tolist()


def test_bins_include_their_lower_edge_and_the_last_one_both():
    keys = {"bins": [0, 18, 65.5, 120]}
    assert cells_of("", "x", keys).names == ("[0, 18)", "[18, 65.5)", "[65.5, 120]")
    values = [-1, 0, "17.9", " 18", 18.0, "65.5", 120, 120.5, "", None, math.nan, "NA", True, "a"]
    assert sorted_by(keys, values) == [-1, 0, 0, 1, 1, 2, 2, -1, -1, -1, -1, -1, -1, -1]
    assert sorted_by(keys | {"other": True}, ["NA", 121, 5]) == [3, 3, 0]
    endless = {"bins": [float("-inf"), 0, float("inf")]}
    assert sorted_by(endless, [-1e300, 10**400, "inf", "nan"]) == [0, 1, 1, -1]


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("day", ["2023-12-30", "2023-12-31", "2024-01-01", "2024-01-02"]),
        ("week", ["2023-W52", "2024-W01"]),
        ("month", ["2023-12", "2024-01"]),
        ("quarter", ["2023-Q4", "2024-Q1"]),
        ("year", ["2023", "2024"]),
    ],
)
def test_dates_are_in_their_period(unit, names):
    keys = {"unit": unit, "first": datetime.date(2023, 12, 30), "last": "2024-01-02"}
    assert [*cells_of("", "x", keys).names] == names
    days = [datetime.date(2023, 12, 30) + datetime.timedelta(i) for i in range(4)]
    cells = sorted_by(keys, days)
    assert cells == sorted_by(keys, [day.isoformat() for day in days])
    assert cells[0] == 0
    assert cells[-1] == len(names) - 1
    assert sorted_by(keys, ["2022-12-31", "2025-01-06", "31.12.2023", 5]) == [-1] * 4
    for day, cell in zip(days, cells, strict=True):
        iso = "{}-W{:02}".format(*day.isocalendar()[:2])
        assert names[cell] in (day.isoformat(), day.strftime("%Y-%m"), str(day.year), iso) or (
            names[cell] == f"{day.year}-Q{(day.month + 2) // 3}"
        )


def in_cell(record, names):
    """The cell of a record, by other means than the library's."""
    region, sex, age, day = (RECORDS[name][record] for name in COLUMNS)
    bins = [
        name for low, high, name in ((0, 18, "[0, 18)"), (18, 65, "[18, 65)")) if low <= age < high
    ]
    found = {
        "region": region if region in ("N", "S") else "other",
        "sex": sex if sex != "x" else None,
        "age": [*bins, "[65, 120]" if 65 <= age <= 120 else "other"][0],
        "day": day[:7] if day < "2024-03" else None,
    }
    return tuple(found[name] for name in names)


@pytest.mark.parametrize("noise", ["gaussian", "discrete_laplace"])
def test_cells_and_margins_are_those_of_the_records(noise):
    """With next to no noise, of counts, sums and means, in every cell and margin."""
    by = ["sex", "region", "age"]
    tables = [COUNT | {"by": by, "margins": True}, COUNT | {"by": ["day", "sex"]}]
    tables += [{"statistic": s, **SPENT, "by": by, "margins": True} for s in ("sum", "mean")]
    plan = made(*tables, noise=noise, rho=1e9, level=1 - 1e-6)
    table = dp.tables.release(RECORDS, plan, jax.random.key(0))
    spent = np.clip(RECORDS["spent"], -10.0, 30.0)
    rounding = 0.5 if noise == "discrete_laplace" else 1e-3
    seen = set()
    for row in table.rows:
        name, names = row.name, tuple(row.cell)
        of_margin = [r for r in range(SIZE) if in_cell(r, ["sex"]) != (None,) or "day" in names]
        inside = [r for r in of_margin if in_cell(r, names) == tuple(row.cell.values())]
        count, total = len(inside), float(np.sum(spent[inside]))
        truth = {"count": count, "sum": total, "mean": total / max(count, 1)}[name.split()[0]]
        # A margin adds cells' roundings.
        assert abs(row.value - truth) <= row.half_width + 1e-6, row
        # A whole number's bar alone is 1, or its cells' roundings.
        assert row.half_width <= 40 * (rounding if name[:3] == "sum" else 1.0), row
        assert row.category == (", ".join(row.cell.values()) or None)
        seen.add((name, row.category))
    # Margins of three columns are 3 x 3 x 4 cells and those with one cell more in each column.
    assert len(seen) == len(table.rows) == 3 * (3 * 4 * 5) + 3 * 2
    assert ("count", None) in seen
    assert ("mean of spent by sex", "f") in seen


def test_one_record_moves_one_cell_by_the_sensitivity():
    """In each statistic: a noise at a single cell's sensitivity covers the table."""
    by = ["sex", "region", "age"]
    tables = [COUNT | {"by": by}, COUNT | {"by": "day"}]
    tables += [{"statistic": "sum", "by": by, "unit": 0.25, **SPENT}]
    tables += [{"statistic": "mean", "by": "region", **SPENT}, COUNT | {"by": "region"}]
    plan, worst = made(*tables, rho=1.0), 0.0
    for record in range(0, SIZE, 3):
        chosen = RANDOM.choice(SIZE, RANDOM.integers(1, 40)).tolist()
        extremes = RANDOM.choice([-1e9, 1e9, math.inf, 0.125, RECORDS["spent"][record]])
        with_it, without = Tally(plan.queries), Tally(plan.queries)
        rows = {name: [values[i] for i in chosen] for name, values in RECORDS.items()}
        more = {name: values[record] for name, values in RECORDS.items()} | {"spent": extremes}
        without.add(rows)
        with_it.add({name: [*values, more[name]] for name, values in rows.items()})
        pairs = zip(plan.queries, with_it.totals(), without.totals(), strict=True)
        for query, after, before in pairs:
            moves = np.abs(np.array(after) - np.array(before))
            assert np.sum(moves > 0) <= 1
            worst = max(worst, np.max(moves) / query.sensitivity)
    assert 0.99 < worst <= 1.0


def test_chunks_are_added_without_rounding():
    plan = made(COUNT | {"by": "age"}, {"statistic": "sum", "by": "region", **SPENT}, rho=1.0)
    whole, parts = Tally(plan.queries), Tally(plan.queries)
    whole.add(RECORDS)
    for start in range(0, SIZE, 70):
        parts.add({name: values[start : start + 70] for name, values in RECORDS.items()})
    assert whole.totals() == parts.totals()
    chunks = ({name: values[i::2] for name, values in RECORDS.items()} for i in range(2))
    rows = dp.tables.release(chunks, plan, jax.random.key(3)).rows
    assert rows == dp.tables.release(RECORDS, plan, jax.random.key(3)).rows
    with pytest.raises(ValueError, match="the same names in every chunk"):
        dp.tables.release([RECORDS, {"spent": [1.0]}], plan)
    with pytest.raises(ValueError, match="got no chunk"):
        dp.tables.release([], plan)


def test_a_mean_is_over_the_count_of_its_own_cells():
    """Whatever the order of columns in both, and the count with less noise of two."""
    tables = [COUNT | {"by": ["age", "region"]}, COUNT | {"by": "region", "weight": 0.01}]
    tables += [{"statistic": "mean", **SPENT, "by": ["region", "age"], "name": "mean"}]
    tables += [{"statistic": "mean", **SPENT, "by": "region"}]
    plan = made(*tables, rho=1e9)
    exact = Tally(plan.queries)
    exact.add(RECORDS)
    total, count = (np.array(exact.totals()[i]) for i in (2, 0))
    total, count = total.reshape(3, 4) * float(plan.queries[2].unit), count.reshape(4, 3).T
    rows = dp.tables.release(RECORDS, plan, jax.random.key(0)).rows
    found = [row.value for row in rows if row.name == "mean"]
    np.testing.assert_allclose(found, np.ravel(10.0 + total / count), rtol=1e-3)
    widths = [
        dp.tables.release(RECORDS, made(*x, rho=1e3), jax.random.key(0)).rows[-1].half_width
        for x in (tables, tables[::3])
    ]
    assert widths[0] < 1.3 * widths[1]


def test_bars_of_tables_and_margins_hold():
    """One by one at their level, and jointly all of them."""
    tables = [COUNT | {"by": ["region", "age"], "margins": True}]
    tables += [{"statistic": "mean", **SPENT, "by": "region"}]
    exact = {
        (r.name, r.category): r.value
        for r in dp.tables.release(RECORDS, made(*tables, rho=1e9), jax.random.key(0)).rows
    }
    rows = []
    for jointly in (False, True):
        plan = made(*tables, rho=0.05, level=0.8, jointly=jointly)
        size, misses, any_miss = 30, dict.fromkeys(exact, 0), 0
        for index in range(size):
            rows = dp.tables.release(RECORDS, plan, jax.random.key(index)).rows
            wrong = [r for r in rows if abs(r.value - exact[r.name, r.category]) > r.half_width]
            any_miss += bool(wrong)
            for row in wrong:
                misses[row.name, row.category] += 1
        if jointly:
            assert any_miss <= 0.2 * size + 3 * math.sqrt(0.16 * size)
        else:
            assert max(misses.values()) <= 0.2 * size + 4 * math.sqrt(0.16 * size)
            counts = [n for (name, _), n in misses.items() if name.startswith("count")]
            assert 0.1 * size < np.mean(counts) < 0.23 * size
    assert rows[0].value != rows[1].value
    assert sum(r.value for r in rows if r.name == "count by region") == pytest.approx(
        next(r.value for r in rows if r.name == "count")
    )
