"""Released tables: exact sums within their error bars, clipped values, one charge for all."""

from fractions import Fraction

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.release import _exact

COUNT = {"statistic": "count", "noise": "discrete_laplace"}
TOWNS = {"statistic": "count", "column": "town", "categories": ["A", "B", "C"]}
AGES = {"statistic": "mean", "column": "age", "lower": 0, "upper": 100}
SPENT = {"statistic": "sum", "column": "spent", "lower": -10.0, "upper": 30.0, "noise": "laplace"}
RECORDS = np.random.default_rng(0)
COLUMNS = {
    "town": RECORDS.choice(["A", "B", "D"], 400),
    "age": RECORDS.normal(60.0, 30.0, 400),
    "spent": [str(x) for x in RECORDS.normal(5.0, 20.0, 400)],
}
TRUE = {
    "A": np.sum(COLUMNS["town"] == "A"),
    "B": np.sum(COLUMNS["town"] == "B"),
    "C": 0,
    "count": 400,
    "mean of age": np.mean(np.clip(COLUMNS["age"], 0, 100)),
    "sum of spent": np.sum(np.clip(np.array(COLUMNS["spent"], float), -10, 30)),
}


def made(*releases, **keys):
    return dp.tables.plan({"epsilon": 2.0, "delta": 1e-6, "release": list(releases), **keys})


def of_rho(*releases, **keys):
    """Found without a search."""
    return dp.tables.plan({"rho": 0.5, "release": list(releases), **keys})


@pytest.fixture(scope="module")
def plan():
    return made(COUNT, TOWNS, AGES, SPENT, level=0.9)


def test_the_truth_is_within_its_error_bars(plan):
    """At the level that was asked for, and not with much room."""
    hits, size = dict.fromkeys(TRUE, 0), 60
    for index in range(size):
        table = dp.tables.release(COLUMNS, plan, jax.random.key(index))
        assert (table.guarantee.epsilon(1e-6), table.level) == (2.0, 0.9)
        assert not table.is_secure_key
        for row in table.rows:
            name = row.category or row.name
            hits[name] += abs(row.value - TRUE[name]) <= row.half_width
            assert row.name != "count by town" or row.value == round(row.value)
    assert min(hits.values()) >= 0.75 * size
    assert sum(hits[name] for name in "ABC") < 3 * size


def test_sums_are_exact_whole_units_and_one_record_moves_them_by_the_sensitivity(plan):
    known = {name: list(values) for name, values in COLUMNS.items()}
    for query in plan.queries[2:]:
        entry, values = query.entry, known[query.entry.column]
        units = [round(Fraction(float(x)) / Fraction(query.unit)) for x in values]
        ends = (round(x / query.unit) for x in (entry.lower, entry.upper))
        low, high = (end - query.middle for end in ends)
        clipped = [min(max(unit - query.middle, low), high) for unit in units]
        assert _exact(query, known, 400) == [sum(clipped)]
        assert max(map(abs, clipped)) == query.sensitivity
    assert _exact(plan.queries[1], known, 400) == [TRUE["A"], TRUE["B"], 0]


def test_the_order_of_records_and_what_is_far_outside_change_nothing(plan):
    key = jax.random.key(7)
    before = dp.tables.release(COLUMNS, plan, key)
    order = np.random.default_rng(1).permutation(400)
    moved = {name: [values[i] for i in order] for name, values in COLUMNS.items()}
    assert dp.tables.release(moved, plan, key).rows == before.rows
    far = {**COLUMNS, "age": np.where(COLUMNS["age"] > 100, np.inf, COLUMNS["age"])}
    assert dp.tables.release(far, plan, key).rows == before.rows


def test_no_records_are_a_table_too(plan):
    table = dp.tables.release({name: [] for name in COLUMNS}, plan)
    rows = {row.category or row.name: row for row in table.rows}
    assert abs(rows["count"].value) < 100
    assert 0 <= rows["mean of age"].value <= 100
    assert rows["mean of age"].half_width == 100


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"age": ["x", *COLUMNS["age"][1:]]}, "column 'age' must be of numbers, and record 1 has"),
        ({"age": [*COLUMNS["age"][1:], float("nan")]}, "record 400 has none"),
        ({"age": COLUMNS["age"][1:]}, "columns must be of one length"),
    ],
)
def test_bad_columns_are_named_and_no_value_is_told(plan, changed, said, tmp_path):
    ledger = dp.Ledger(tmp_path / "budget", dp.ZCDP(0.0, 1.0))
    with pytest.raises(ValueError, match=said):
        dp.tables.release({**COLUMNS, **changed}, plan, ledger=ledger)
    assert ledger.steps == ()
    with pytest.raises(ValueError, match="columns must hold 'age'"):
        dp.tables.release({"town": COLUMNS["town"], "spent": COLUMNS["spent"]}, plan)


@pytest.mark.parametrize("budget", [dp.GDP(2.0), dp.ZCDP(0.0, 2.0), dp.PureDP(6.0), dp.RDP(8.0, 9)])
def test_a_ledger_takes_the_whole_table_once(tmp_path, budget):
    path = tmp_path / "budget"
    towns = TOWNS | {"noise": "laplace"} if isinstance(budget, dp.PureDP) else TOWNS
    plan = of_rho(COUNT, towns, ledger=str(path))
    ledger = dp.Ledger(path, budget)
    dp.tables.release(COLUMNS, plan)
    assert [(step.name, step.count) for step in ledger.steps] == [("table", 1)]
    cost = ledger.spent()
    while ledger.would_fit(cost):
        ledger.charge(cost)
    spent = ledger.steps
    with pytest.raises(dp.BudgetExceededError):
        dp.tables.release(COLUMNS, plan, ledger=ledger)
    assert ledger.steps == spent


def test_a_gdp_ledger_adds_squares(tmp_path):
    """Of a Laplace the mu of its pure epsilon, which is the least that holds."""
    plan = of_rho(COUNT, TOWNS)
    ledger = dp.Ledger(tmp_path / "budget", dp.GDP(3.0))
    dp.tables.release(COLUMNS, plan, ledger=ledger)
    discrete, gaussian = plan.mechanisms
    of_laplace = float(dp.to_gdp(dp.PureDP(discrete.pure_epsilon())).mu)
    of_gaussian = float(gaussian.sensitivity / gaussian.noise.scale)
    assert ledger.spent().mu == pytest.approx(np.hypot(of_laplace, of_gaussian), rel=1e-9)
