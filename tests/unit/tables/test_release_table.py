"""Released tables: exact sums within their error bars, clipped values, one charge for all."""

import math
from fractions import Fraction

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core import chacha
from jaxdp.tables.sums import ExactSums, Tally

COUNT = {"statistic": "count", "noise": "discrete_laplace"}
TOWNS = {"statistic": "count", "by": "town"}
PUBLIC = {"columns": {"town": {"categories": ["A", "B", "C"]}}}
AGES = {"statistic": "mean", "column": "age", "lower": 0, "upper": 100}
SPENT = {"statistic": "sum", "column": "spent", "lower": -10.0, "upper": 30.0, "noise": "laplace"}
SHORT = {"lower": 0.0, "upper": 1.0, "column": "x"}
RECORDS = np.random.default_rng(0)
COLUMNS = {
    "town": RECORDS.choice(["A", "B", "D"], 400),
    "age": RECORDS.normal(60.0, 30.0, 400),
    "spent": [str(x) for x in RECORDS.normal(5.0, 20.0, 400)],
}


def exact(query, columns):
    """The sums of a statistic in units, by cell."""
    tally = Tally([query])
    tally.add(columns)
    return tally.totals()[0]


def of_rho(*releases, **keys):
    """Found without a search."""
    return dp.tables.plan({"rho": 0.5, **PUBLIC, "release": list(releases), **keys})


@pytest.fixture(scope="module")
def plan():
    return of_rho(COUNT, TOWNS, AGES, SPENT, level=0.9)


def test_a_table_has_its_guarantee_and_whole_counts():
    made = dp.tables.plan({"epsilon": 2.0, "delta": 1e-6, **PUBLIC, "release": [TOWNS]})
    table = dp.tables.release(COLUMNS, made, jax.random.key(0))
    assert (table.guarantee.epsilon(1e-6), table.level) == (2.0, 0.95)
    assert not table.is_secure_key
    assert [row.value - round(row.value) for row in table.rows] == [0.0] * 3


def test_sums_are_exact_and_rounded_once(plan):
    known = {name: list(values) for name, values in COLUMNS.items()}
    for query in plan.queries[2:]:
        values = [Fraction(float(x)) for x in known[query.column]]
        ends = [*map(Fraction, query.bounds)]
        clipped = [min(max(x, ends[0]), ends[1]) - Fraction(query.middle) for x in values]
        assert exact(query, known) == [math.floor(sum(clipped) / query.unit + Fraction(1, 2))]
        assert max(map(abs, clipped)) == query.sensitivity * query.unit
    assert exact(plan.queries[1], known) == [known["town"].count(x) for x in "ABC"]


@pytest.mark.parametrize("unit", [1.0, 0.25, 0.01, 0.07])
def test_one_record_moves_a_sum_by_the_sensitivity_at_most(unit):
    """Whatever the others are, halves of a unit too."""
    keys = {"statistic": "sum", "column": "a", "lower": -3.0, "upper": 7.0, "unit": unit}
    (query,) = of_rho(keys).queries
    random = np.random.default_rng(3)
    for _ in range(100):
        size = random.integers(1, 6)
        values = random.choice([unit * random.integers(-9, 9, size) / 2, random.normal(0, 4, size)])
        ends = random.choice([-3.0, 7.0, 1e300, -np.inf, unit / 2])
        with_it = exact(query, {"a": [*values, ends]})
        without = exact(query, {"a": list(values)})
        assert abs(with_it[0] - without[0]) <= query.sensitivity


def test_a_bound_above_its_decimal_moves_a_sum_by_its_units():
    """The double .1 is above ten hundredths, and .005 less an ulp is below half of one."""
    (query,) = of_rho(SHORT | {"statistic": "sum", "upper": 0.1, "unit": 0.01}).queries
    others = [math.nextafter(0.005, 0.0)]
    assert Fraction(0.1) > Fraction(1, 10) > Fraction(query.upper)
    assert exact(query, {"x": [*others, 0.1]})[0] - exact(query, {"x": others})[0] == 10
    assert query.sensitivity == 10


def test_sums_of_all_sizes_are_exact():
    random = np.random.default_rng(4)
    values = random.normal(size=500) * 10.0 ** random.integers(-300, 300, 500)
    values = np.array([*values, 5e-324, -1.7e308, 0.0, -0.0, 2.0**53 - 1, -1.0])
    for part, expected in ((values, sum(map(Fraction, values.tolist()))), (values[:0], 0)):
        sums = ExactSums(2)
        sums.add(np.ones(len(part), int), part)
        assert (sums.total(0), sums.total(1)) == (0, expected)


# Statistics of values in [0, 1], and what they are for 3,000 times .3.
ROUNDED = {
    "hundredths": SHORT | {"statistic": "mean", "noise": "discrete_gaussian", "unit": 0.01},
    "tenths": SHORT | {"statistic": "mean", "noise": "discrete_laplace", "unit": 0.1},
    "halves": SHORT | {"statistic": "mean", "noise": "discrete_gaussian", "unit": 0.5},
    "sum of whole": SHORT | {"statistic": "sum", "noise": "discrete_laplace"},
    "sum of hundredths": SHORT | {"statistic": "sum", "noise": "discrete_gaussian", "unit": 0.01},
    "sum": SHORT | {"statistic": "sum", "noise": "laplace"},
    "mean": SHORT | {"statistic": "mean", "noise": "gaussian"},
}


def test_error_bars_hold_the_truth_at_their_level():
    """Of counts, sums and means with rounded values, and with hardly any noise."""
    random = np.random.default_rng(5)
    x = np.full(3000, 0.3)  # all are rounded to one side
    names = random.choice(["a", "b"], 3000)
    truth = {"mean": 0.3, "sum": 900, "count": 3000}
    truth |= {"a": np.sum(names == "a"), "b": np.sum(names == "b")}
    cells = {"town": {"categories": ["a", "b"]}}
    entries = [keys | {"name": name} for name, keys in ROUNDED.items()]
    for rho in (0.2, 1e4):
        made = of_rho(COUNT, TOWNS, *entries, rho=rho, level=0.9, columns=cells)
        size, hits, sizes = 5, {}, {}
        for index in range(size):
            for row in dp.tables.release({"x": x, "town": names}, made, jax.random.key(index)).rows:
                statistic = ROUNDED.get(row.name, {"statistic": row.category or row.name})
                error = abs(row.value - truth[statistic["statistic"]])
                name = row.category or row.name
                hits[name] = hits.get(name, 0) + bool(error <= row.half_width * (1 + 1e-12))
                sizes[name] = row.half_width
        three_deviations = 3 * (0.9 * 0.1 / size) ** 0.5
        assert min(hits.values()) >= (0.9 - three_deviations) * size, (rho, hits)
        assert sizes["hundredths"] < (0.02 if rho < 1 else 1e-4)


def test_noises_of_one_key_differ():
    """Between statistics, cells, and statistics of one noise and scale."""
    names = ["a", "b", "c", "d"]
    entries = [
        {"statistic": "count", "by": f"{noise} {i}", "noise": noise}
        for noise in ("gaussian", "laplace", "discrete_gaussian", "discrete_laplace")
        for i in range(3)
    ]
    columns = {entry["by"]: {"categories": names} for entry in entries}
    made = of_rho(*entries, rho=1e-16, columns=columns)
    for key in (jax.random.key(0), jax.random.key(0, impl=chacha.IMPLEMENTATION)):
        rows = dp.tables.release({name: [] for name in columns}, made, key).rows
        # Scales are 2.5e8: two of 48 noises are equal by chance for one key in 4e5.
        sizes = [round(abs(row.value)) for row in rows]
        assert min(sizes) > 0
        assert len(set(sizes)) == len(rows) == 48


def test_the_order_of_records_and_what_is_far_outside_change_nothing(plan):
    key = jax.random.key(7)
    before = dp.tables.release(COLUMNS, plan, key)
    order = np.random.default_rng(1).permutation(400)
    moved = {name: [values[i] for i in order] for name, values in COLUMNS.items()}
    assert dp.tables.release(moved, plan, key).rows == before.rows
    far = {**COLUMNS, "age": np.where(COLUMNS["age"] > 100, np.inf, COLUMNS["age"])}
    assert dp.tables.release(far, plan, key).rows == before.rows


def test_no_records_are_a_table_too(plan):
    # One in 200 noisy counts is so large that the half width is below that of the bounds.
    table = dp.tables.release({name: [] for name in COLUMNS}, plan, jax.random.key(0))
    rows = {row.category or row.name: row for row in table.rows}
    assert abs(rows["count"].value) < 100
    assert math.isnan(rows["mean of age"].value)
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
