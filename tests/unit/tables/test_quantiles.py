"""Quantiles by the exponential mechanism: laws of all neighbours, and intervals."""

import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.quantiles import _scores, _weights, drawn, intervals, rank_error
from jaxdp.tables.query import rank_errors
from jaxdp.tables.release import cost_of, tally_of

AGES = {"statistic": "quantile", "column": "age", "lower": 0, "upper": 100}
QUARTILES = AGES | {"probabilities": [0.25, 0.5, 0.75]}


def made(*releases, **keys):
    return dp.tables.plan({"rho": 0.5, "release": list(releases), **keys})


def law(counts, q, shift, epsilon, rows):
    """log probabilities of the points."""
    sums = _weights(_scores(np.array(counts), q, shift), q, epsilon, rows)
    weights = np.diff(np.concatenate([[0], sums]))
    assert weights.min() >= 2**40
    return np.array([math.log(w) - math.log(sums[-1]) for w in weights])


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(1, 10), Fraction(3, 4)])
def test_the_range_is_epsilon_for_all_records_of_a_person(q, rows):
    """For all small data, added records and shifts; and some are as bad, for the right scale."""
    worst, epsilon = 0.0, 3.0
    for counts in itertools.product((0, 1, 3), repeat=3):
        for added in itertools.combinations_with_replacement(range(3), rows):
            more = np.array(counts) + np.bincount(added, minlength=3)
            for shift in (0, -2, 2, -50, 60):
                ratio = law(more, q, shift, epsilon, rows) - law(counts, q, shift, epsilon, rows)
                worst = max(worst, ratio.max() - ratio.min())
    assert (1.0 if q == Fraction(1, 2) else 0.9) * epsilon * 0.999 < worst <= epsilon


def test_the_law_of_the_draws():
    """Frequencies of 4,000 draws, from bits of one key, against the weights."""
    q, counts, epsilon = Fraction(1, 4), np.array([3, 0, 4, 1]), 1.0
    points = drawn(np.tile(counts, (4000, 1)), (q,), (1.0,), 1, (epsilon, jax.random.key(0)))
    for draw, shift in enumerate((0, -1, 1)):
        found = np.bincount(points[:, 0, draw], minlength=4) / 4000
        assert found == pytest.approx(np.exp(law(counts, q, shift, epsilon, 1)), abs=0.03)


def test_the_plan_counts_every_draw():
    plan = made({"statistic": "count"}, QUARTILES, rho=0.1)
    costs = [float(m.zcdp().rho) for m in plan.mechanisms]
    assert costs[0] + 9 * costs[1] == pytest.approx(0.1, rel=1e-6)
    assert costs[0] == pytest.approx(costs[1], rel=0.01)
    running = dp.Filter(dp.ZCDP(0.0, 1.0))
    running.spend(cost_of(plan))
    assert float(running.spent().rho) == pytest.approx(0.1, rel=1e-6)
    quartiles = made(QUARTILES)
    pure = dp.Filter(dp.PureDP(100.0))
    pure.spend(cost_of(quartiles))
    assert float(pure.spent().epsilon_bound) == pytest.approx(
        9 * float(quartiles.mechanisms[0].epsilon_bound)
    )
    exact = dp.tables.plan({"epsilon": 1.0, "delta": 1e-6, "release": [AGES]})
    loss = 3 * dp.privacy_loss(exact.mechanisms[0])
    assert 0.9e-6 < loss.delta(1.0) <= 1e-6


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10)])
def test_intervals_hold_the_exact_quantile(q):
    """Both ends at 80 %; also where the target is below the first or above the last value."""
    random = np.random.default_rng(0)
    for size in (4, 300):
        counts = np.bincount(random.integers(0, 30, size), minlength=30)
        exact = int(np.argmax(np.cumsum(counts) >= q * size))
        rank = float(rank_error(1.0, q, 1, 30, 0.2).half_width)
        points = drawn(np.tile(counts, (400, 1)), (q,), (rank,), 1, (1.0, jax.random.key(1)))
        assert np.mean((points[:, 0, 1] > exact) | (points[:, 0, 2] < exact)) < 0.2
        assert size == 4 or points[:, 0, 1].std() > 0


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(1, 10), Fraction(9, 10)])
def test_intervals_hold_hardly_more_than_their_level_for_the_worst_records(q, level):
    """Of all records that are at the two bounds, by the law of the draws."""
    points, size = 1001, 10**4
    rank = round(float(rank_error(0.5, q, 1, points, 1.0 - level).half_width))
    counts = np.zeros(points, int)
    counts[0], counts[-1] = q * size, (1 - q) * size
    miss = np.sum(np.exp(law(counts, q, -rank, 0.5, 1)[1:]))  # nothing is below the quantile
    assert 0.6 * (1.0 - level) / (2.0 - level) < miss <= 1.0 - level


def test_quantiles_by_cell():
    random, towns = np.random.default_rng(0), {"town": {"categories": ["A", "B"]}}
    age = random.gamma(4.0, 10.0, 3000).tolist()
    columns = {"age": [*age, "NA", math.nan], "town": [*(["A", "B"] * 1500), "A", "B"]}
    plan = made(
        QUARTILES | {"by": "town", "missing": "drop", "unit": 0.5}, columns=towns, level=0.9
    )
    table = dp.tables.release(columns, plan, jax.random.key(2))
    assert [row.name for row in table.rows[:3]] == [
        f"quantile of age by town, {q}" for q in (0.25, 0.5, 0.75)
    ]
    for cell in ("A", "B"):
        true = np.quantile(np.clip(age[cell == "B" :: 2], 0, 100), [0.25, 0.5, 0.75])
        rows = [row for row in table.rows if row.category == cell]
        assert [row.cell for row in rows] == [{"town": cell}] * 3
        for row, exact in zip(rows, true, strict=True):
            assert abs(row.value - exact) <= row.half_width < 12
    assert plan.queries[0].noise == "exponential_mechanism"
    assert len(rank_errors(plan.queries[0], 0.1)) == 3
    counts = np.reshape(tally_of(columns, plan).totals()[0], (2, 201))
    assert counts.sum(axis=1).tolist() == [1500, 1500]
    ((value, width),) = intervals(np.array([[[3, 3, 3]]]), (0.0, 9.0), Fraction(1), [math.inf])
    assert (value, width) == (3.0, 9.0)
