"""A person in a bounded number of cells: both bounds hold, and the noise grows with its root."""

import math

import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.query import mechanism_of
from jaxdp.tables.release import cost_of, tally_of
from jaxdp.tables.unknown import threshold_of

PAGES = {"page": {"categories": [*range(50)]}, "day": {"bins": [0, 1, 2, 3]}}
VISITS = {"statistic": "count", "by": "page"}
SPENT = {"statistic": "sum", "column": "spent", "lower": -4.0, "upper": 10.0, "by": "page"}


def made(*releases, **keys):
    bounds = {"person": "id", "rows": 1, "columns": PAGES, "rho": 0.1}
    return dp.tables.plan({**bounds, "release": [*releases], **keys})


def deviation(plan):
    return [float(error.standard_deviation) for error in plan.expected_errors().values()]


@pytest.mark.parametrize("noise", ["gaussian", "discrete_gaussian"])
def test_ten_cells_need_the_root_of_ten_times_the_noise(noise):
    (one,), (ten,), (bound,) = (
        deviation(made(VISITS | {"noise": noise}, rho=1.5e-4 * 10, **keys))
        for keys in ({}, {"max_cells": 10}, {"rows": 10})
    )
    assert ten == pytest.approx(math.sqrt(10) * one, rel=1e-6)
    assert bound == pytest.approx(10 * one, rel=1e-6)
    assert one == pytest.approx(18.257, rel=1e-3)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete_gaussian", "discrete_laplace"])
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


def table(random, ids):
    size = len(ids)
    return {
        "id": ids,
        "page": random.integers(0, 60, size).tolist(),
        "day": random.choice([0.5, 1.5, 2.5, 9.0], size).tolist(),
        "spent": random.choice([-9.0, 2.5, 99.0], size).tolist(),
    }


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("by", ["page", ["page", "day"]])
def test_a_person_moves_so_many_cells_by_so_much(rows, by):
    """At most, and some person does; what is kept of others does not change."""
    total, visits = {"statistic": "count"}, VISITS | {"by": by}
    plan = made(visits, SPENT | {"by": by}, total, rows=rows, max_cells=4)
    assert [(q.rows, q.moved) for q in plan.queries] == [(rows, 4), (rows, 4), (4 * rows, 1)]
    random, worst = np.random.default_rng(0), np.zeros(3)
    for trial in range(12):
        others = table(random, random.integers(0, 5, 40).tolist())
        mine = table(random, ["me"] * int(random.integers(1, 60)))
        if trial % 3 == 0:
            mine["page"] = random.integers(0, 3, len(mine["id"])).tolist()
        both = {name: mine[name] + others[name] for name in mine}
        sums = [tally_of(columns, plan, bytes([trial])).totals() for columns in (both, others)]
        for i, (query, mechanism) in enumerate(zip(plan.queries, plan.mechanisms, strict=True)):
            moved = np.abs(np.subtract(sums[0][i], sums[1][i]))
            assert np.count_nonzero(moved) <= query.moved
            assert moved.max() <= mechanism.sensitivity
            worst[i] = max(worst[i], moved.sum() / (query.moved * float(mechanism.sensitivity)))
    assert worst[0] > 0.7
    assert worst[2] > 0.7


def test_the_cells_of_a_person_are_kept_with_equal_chance():
    columns = {"id": ["a"] * 12, "page": [0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 99]}
    plan, counts = made(VISITS, max_cells=2), np.zeros(50)
    for trial in range(1000):
        counts += tally_of(columns, plan, b"%d" % trial).totals()[0]
    # Pages that are in no cell take no place.
    assert counts[:4] == pytest.approx([500] * 4, abs=80)
    assert counts.sum() == 2000


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
    assert [(q.rows, q.moved, q.runs, q.draws) for q in plan.queries] == [
        (1, 5, 15, 3),
        (5, 1, 3, 3),
    ]
    coarse = mechanism_of("laplace", [2.0, 2.0], [1, 1], [1, 5])
    assert coarse.sensitivity[1] >= 5 * coarse.sensitivity[0]
    few = made({"statistic": "count", "column": "page", "categories": [1, 2]}, max_cells=5)
    assert [(q.rows, q.moved) for q in few.queries] == [(1, 2)]
