"""Several records a person: a bounded number of them and of their cells is kept and counted."""

import math

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.people import kept
from jaxdp.tables.query import mechanism_of
from jaxdp.tables.release import cost_of, tally_of
from jaxdp.tables.unknown import threshold_of

PAGES = {"page": {"categories": [*range(50)]}, "day": {"bins": [0, 1, 2, 3]}}
VISITS = {"statistic": "count", "by": "page"}
SPENT = {"statistic": "sum", "column": "spent", "lower": -4.0, "upper": 10.0, "by": "page"}


def made(*releases, **keys):
    bounds = {"person": "id", "rows": 1, "columns": PAGES, "rho": 0.1}
    return dp.tables.plan({**bounds, "release": [*releases], **keys})


def records(random, ids):
    """Some are in no page or on no day, and some values are out of bounds."""
    size = len(ids)
    return {
        "id": ids,
        "page": random.integers(0, 60, size).tolist(),
        "day": random.choice([0.5, 1.5, 2.5, 9.0], size).tolist(),
        "spent": random.choice([-9.0, 2.5, 99.0], size).tolist(),
    }


def masks(chunks, rows, secret=b"1"):
    return np.concatenate([mask for _, mask in kept(lambda: chunks, "id", (rows, None), secret)])


@pytest.mark.parametrize("by", ["page", ["page", "day"]])
@pytest.mark.parametrize(("rows", "most"), [(1, None), (3, None), (1, 4), (2, 4)])
def test_a_person_moves_so_many_cells_by_so_much(rows, most, by):
    """At most, and some person does; what is kept of others does not change."""
    total, visits = {"statistic": "count"}, VISITS | {"by": by}
    plan = made(visits, SPENT | {"by": by}, total, rows=rows, max_cells=most)
    expected = [(rows, 1)] * 3 if most is None else [(rows, most)] * 2 + [(most * rows, 1)]
    assert [(q.rows, q.moved) for q in plan.queries] == expected
    random, worst = np.random.default_rng(0), np.zeros(3)
    for trial in range(12):
        others = records(random, random.integers(0, 5, 40).tolist())
        mine = records(random, ["me"] * int(random.integers(1, 60)))
        if trial % 3 == 0:
            mine["page"] = random.integers(0, 3, len(mine["id"])).tolist()
        both = {name: mine[name] + others[name] for name in mine}
        assert (masks([both], rows)[len(mine["id"]) :] == masks([others], rows)).all()
        sums = [tally_of(columns, plan, bytes([trial])).totals() for columns in (both, others)]
        for i, (query, mechanism) in enumerate(zip(plan.queries, plan.mechanisms, strict=True)):
            moved = np.abs(np.subtract(sums[0][i], sums[1][i]))
            sensitivity = float(mechanism.sensitivity)
            assert moved.sum() <= query.moved * sensitivity
            assert moved.max() <= sensitivity
            assert most is None or np.count_nonzero(moved) <= query.moved
            worst[i] = max(worst[i], moved.sum() / (query.moved * sensitivity))
    assert worst[0] > 0.7
    assert worst[2] > 0.7


@pytest.mark.parametrize("noise", ["gaussian", "discrete_gaussian"])
def test_ten_cells_need_the_root_of_ten_times_the_noise(noise):
    errors = [
        made(VISITS | {"noise": noise}, rho=1.5e-3, **keys).expected_errors()["count by page"]
        for keys in ({}, {"max_cells": 10}, {"rows": 10})
    ]
    one, ten, bound = (float(error.standard_deviation) for error in errors)
    assert ten == pytest.approx(math.sqrt(10) * one, rel=1e-6)
    assert bound == pytest.approx(10 * one, rel=1e-6)
    assert one == pytest.approx(18.257, rel=1e-3)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete_laplace"])
def test_the_loss_is_that_of_as_many_cells(noise):
    """Of the corner of the box, which no move of fewer cells or by less exceeds."""
    plan = made(VISITS | {"noise": noise}, rows=2, max_cells=3)
    (mechanism,) = plan.mechanisms
    assert float(mechanism.sensitivity) == pytest.approx(2.0, rel=1e-8)
    corner = 3 * dp.privacy_loss(mechanism)
    assert plan.loss.delta(0.5) == pytest.approx(float(corner.delta(0.5)), rel=1e-6)
    assert 3 * float(mechanism.zcdp().rho) == pytest.approx(0.1, rel=1e-6)
    running = dp.Filter(dp.ZCDP(0.0, 1.0))
    running.spend(cost_of(plan))
    assert float(running.spent().rho) == pytest.approx(0.1, rel=1e-6)
    for moves in ([2], [2, 1], [1, 1, 1], [2, 2]):
        smaller = dp.privacy_loss(dp.Mechanism(mechanism.noise, np.array(moves, float))).sum()
        assert smaller.delta(0.5) <= corner.delta(0.5) * (1 + 1e-9)


def test_all_records_and_cells_of_a_person_are_kept_with_equal_chance():
    """Two of six records; both of two; none without an id. Two of four cells."""
    ids, size = ["a"] * 6 + ["b"] * 2 + ["", None, math.nan, "NA"], 1000
    chunks = [{"id": ids[:4]}, {"id": ids[4:]}]
    seen = np.sum([masks(chunks, 2, b"%d" % i) for i in range(size)], axis=0)
    assert seen[:6] == pytest.approx(size / 3, abs=80)
    assert seen[6:].tolist() == [size, size, 0, 0, 0, 0]
    columns = {"id": ["a"] * 12, "page": [0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 99]}
    plan, counts = made(VISITS, max_cells=2), np.zeros(50)
    for trial in range(size):
        counts += tally_of(columns, plan, b"%d" % trial).totals()[0]
    # Pages that are in no cell take no place.
    assert counts[:4] == pytest.approx([size / 2] * 4, abs=80)
    assert counts.sum() == 2 * size


def test_numbers_and_texts_are_ids():
    for ids, expected in (([1, 1.0, 2], 2), (["1", "01", "1 "], 2), ([True, 1, "1"], 3)):
        assert masks([{"id": ids}], 1).sum() == expected


def test_a_table_of_people():
    """The same again for one key; counts of what is kept; errors name the record in the file."""
    random = np.random.default_rng(3)
    columns = records(random, random.integers(0, 50, 120).tolist()) | {"page": [7] * 120}
    noisy = VISITS | {"noise": "discrete_laplace"}
    plan = made(noisy, SPENT, rows=2, rho=1e6)
    rows = dp.tables.release(columns, plan, jax.random.key(1)).rows
    assert rows == dp.tables.release([columns], plan, jax.random.key(1)).rows
    number = sum(min(columns["id"].count(who), 2) for who in set(columns["id"]))
    assert sum(row.value for row in rows[:50]) == number < len(columns["id"])
    bad = {"id": ["", "a", "a"], "page": [1] * 3, "spent": [1.0, 2.0, "x"]}
    with pytest.raises(ValueError, match="record 3 has none"):
        dp.tables.release(bad, plan)
    with pytest.raises(ValueError, match="columns must hold 'id'"):
        dp.tables.release({"page": [1], "spent": [1.0]}, plan)
    with pytest.raises(ValueError, match="read twice"):
        dp.tables.release(iter([columns]), plan)


class Changing:
    """Chunks that differ from one reading to the next."""

    readings = 0

    def __iter__(self):
        self.readings += 1
        return iter([{"id": ["a"] * (3 * self.readings)}])


def test_records_that_change_are_noticed():
    chunks = Changing()
    with pytest.raises(ValueError, match="have changed"):
        list(kept(lambda: iter(chunks), "id", (2, None), b""))


def test_unknown_labels_are_cells():
    """As many labels of one person, each with a chance to be published."""
    unknown = {"statistic": "count", "column": "page", "unknown_delta": 1e-8}
    one, ten = (made(unknown, max_cells=k) for k in (1, 10))
    assert [(q.rows, q.moved) for q in ten.queries] == [(1, 10)]
    noise = ten.mechanisms[0].noise
    tau = threshold_of(ten.mechanisms[0], (1, 10), 1e-8)
    chance = 10 * math.exp(float(noise.log_survival(tau - 1.5)))
    assert 1e-9 < chance <= 1e-8
    assert ten.thresholds()[0] == tau > one.thresholds()[0]
    pages = {"id": ["a"] * 30, "page": [f"p{i % 15}" for i in range(30)]}
    assert sum(tally_of(pages, ten).totals()[0]) == 10


def test_quantiles_and_coarser_tables_pay_for_all_records():
    ages = {"statistic": "quantile", "column": "age", "lower": 0, "upper": 100}
    plan = made(ages | {"by": "page"}, ages | {"name": "all"}, max_cells=5)
    expected = [(1, 5, 15, 3), (5, 1, 3, 3)]
    assert [(q.rows, q.moved, q.runs, q.draws) for q in plan.queries] == expected
    coarse = mechanism_of("laplace", [2.0, 2.0], [1, 1], [1, 5])
    assert coarse.sensitivity[1] >= 5 * coarse.sensitivity[0]
    few = made(VISITS | {"by": "day"}, max_cells=5)
    assert [(q.rows, q.moved) for q in few.queries] == [(1, 3)]
