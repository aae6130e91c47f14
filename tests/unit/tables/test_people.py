"""Several records a person: a bounded number of them is kept, and the sensitivity counts it."""

import math

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.people import kept
from jaxdp.tables.release import tally_of

COUNT = {"statistic": "count", "by": "town"}
SPENT = {"statistic": "sum", "column": "spent", "lower": -4.0, "upper": 10.0, "by": "town"}
TOWNS = {"columns": {"town": {"categories": ["A", "B"], "other": True}}}


def made(**keys):
    return dp.tables.plan({**TOWNS, "person": "id", "release": [COUNT, SPENT], "rho": 0.1, **keys})


def people(random, number, most):
    """Records of people with up to `most` records each."""
    ids = np.repeat(np.arange(number), random.integers(1, most + 1, number)).astype(str)
    random.shuffle(ids)
    size = len(ids)
    town, spent = random.choice(["A", "B", "C"], size), random.choice([-9.0, 2.5, 99.0], size)
    return {"id": ids.tolist(), "town": town.tolist(), "spent": spent.tolist()}


def masks(chunks, rows, secret=b"1"):
    return np.concatenate([mask for _, mask in kept(lambda: chunks, "id", (rows, None), secret)])


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_person_moves_the_cells_together_by_the_planned_sensitivity(rows):
    """At most, and some person by as much. Which records of others are kept does not change."""
    random, plan, worst = np.random.default_rng(0), made(rows=rows), 0.0
    for trial in range(16):
        others, size = people(random, 6, 12), int(random.integers(1, 14))
        mine = {"id": [" x"] * size, "town": random.choice(["A", "B"], size).tolist()}
        mine |= {"spent": [random.choice([-1e9, 1e9])] * size}
        both = {name: [*mine[name], *others[name]] for name in others}
        assert (masks([both], rows)[size:] == masks([others], rows)).all()
        sums = [tally_of(columns, plan, bytes([trial])).totals() for columns in (both, others)]
        for i, mechanism in enumerate(plan.mechanisms):
            moved = np.sum(np.abs(np.subtract(sums[0][i], sums[1][i])))
            worst = max(worst, moved / mechanism.sensitivity)
    assert 0.999 < worst <= 1.0


@pytest.mark.parametrize("noise", ["gaussian", "discrete_laplace"])
def test_the_noise_is_that_of_as_many_records(noise):
    """Noise in proportion to `rows` (nearly so on the integers), and the charge is the plan's."""
    widths = [
        float(made(rows=rows, noise=noise).expected_errors()["count by town"].standard_deviation)
        for rows in (1, 5)
    ]
    assert widths[1] == pytest.approx(5 * widths[0], rel=0.03)
    plan = made(rows=5, noise=noise)
    spent = sum(float(m.zcdp().rho) for m in plan.mechanisms)
    assert 0.0999 < spent <= 0.1
    for query, mechanism in zip(plan.queries, plan.mechanisms, strict=True):
        whole = dp.Mechanism(mechanism.noise, 5.0 * query.sensitivity)
        assert float(mechanism.zcdp().rho) >= float(whole.zcdp().rho)


def test_all_records_of_a_person_are_kept_with_equal_chance():
    """Two of six records; both of two; none without an id."""
    ids, size = ["a"] * 6 + ["b"] * 2 + ["", None, math.nan, "NA"], 2000
    chunks = [{"id": ids[:4]}, {"id": ids[4:]}]
    seen = np.sum([masks(chunks, 2, b"%d" % i) for i in range(size)], axis=0)
    assert seen[:6] == pytest.approx(size / 3, abs=110)
    assert seen[6:].tolist() == [size, size, 0, 0, 0, 0]


def test_numbers_and_texts_are_ids():
    for ids, expected in (([1, 1.0, 2], 2), (["1", "01", "1 "], 2), ([True, 1, "1"], 3)):
        assert masks([{"id": ids}], 1).sum() == expected


def test_a_table_of_people():
    """The same again for one key; counts of what is kept; errors name the record in the file."""
    columns = people(np.random.default_rng(3), 50, 4)
    plan = made(rows=2, rho=1e6, noise="discrete_laplace")
    rows = dp.tables.release(columns, plan, jax.random.key(1)).rows
    assert rows == dp.tables.release([columns], plan, jax.random.key(1)).rows
    number = sum(min(columns["id"].count(who), 2) for who in set(columns["id"]))
    assert sum(row.value for row in rows[:3]) == number < len(columns["id"])
    bad = {"id": ["", "a", "a"], "town": ["A"] * 3, "spent": [1.0, 2.0, "x"]}
    with pytest.raises(ValueError, match="record 3 has none"):
        dp.tables.release(bad, made(rows=2))
    with pytest.raises(ValueError, match="columns must hold 'id'"):
        dp.tables.release({"town": ["A"], "spent": [1.0]}, plan)
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


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"rows": 0}, r"plan: rows must lie in \[1, 1e\+06\]"),
        ({"rows": 2.5}, "plan: rows must be whole"),
        ({}, "plan: rows must be a number"),
        ({"person": None, "rows": 2}, "rows must be given beside person"),
        ({"person": None, "max_cells": 2}, "max_cells must be given beside person"),
        ({"rows": 1, "max_cells": 0}, r"plan: max_cells must lie in \[1, 1e\+06\]"),
        ({"rows": 1, "max_cells": 1.5}, "plan: max_cells must be whole"),
        ({"rows": 2000, "max_cells": 2000}, "rows times max_cells must be at most 1,000,000"),
        ({"person": 3, "rows": 2}, "plan: person must be a text"),
    ],
)
def test_bad_bounds_are_named(keys, told):
    with pytest.raises(ValueError, match=told):
        made(**keys)
