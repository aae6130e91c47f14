"""Categories that the records bring: what one person has alone is published with a known delta."""

import math

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.design.families import ALLOCATED, scaled
from jaxdp.tables.unknown import threshold_of

FOUND = {"statistic": "count", "column": "town", "unknown_delta": 1e-6}


def made(*releases, **keys):
    return dp.tables.plan({"rho": 0.5, "release": list(releases), **keys})


def partitions(rows, most=None):
    """All ways in which a person has up to `rows` records of labels of his own."""
    yield ()
    for first in range(min(rows, most or rows), 0, -1):
        yield from ((first, *rest) for rest in partitions(rows - first, first))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("noise", sorted(ALLOCATED))
def test_labels_of_one_person_are_hidden_up_to_the_delta(noise, rows):
    """By the union over labels, for every partition of the records; one less is not enough."""
    delta, mechanism = 1e-4, dp.Mechanism(scaled(noise, 2.5), 1.0)
    limit = 0.5 if not mechanism.noise.on_integers else 0.0

    def worst(tau):
        def passes(n):  # P[n + noise >= tau], the rounded one if it is continuous
            if mechanism.noise.on_integers:
                return float(np.exp(mechanism.noise.log_survival(tau - n - 1)))
            return float(np.exp(mechanism.noise.log_survival(tau - n - limit)))

        return max(math.fsum(map(passes, parts)) for parts in partitions(rows))

    tau = threshold_of(mechanism, (rows, 1), delta)
    assert worst(tau) <= delta * (1 + 1e-6)
    if rows == 1:
        assert worst(tau - 1) > delta


def test_the_delta_is_in_the_guarantee():
    plan = made(FOUND, {"statistic": "count"})
    assert 1e-6 <= plan.guarantee.sampling_error < 1.001e-6
    assert math.isinf(float(plan.guarantee.epsilon(1e-6)))
    exact = dp.tables.plan({"epsilon": 1.0, "delta": 1e-5, "release": [FOUND]})
    assert exact.loss.delta(1.0) + (1 + math.e) * 1e-6 <= 1e-5


def test_rare_labels_are_seldom_published():
    """6,000 labels of one record, at a delta of 2 %; labels of many records are all there."""
    plan = made(FOUND | {"unknown_delta": 0.02, "noise": "discrete_gaussian"})
    (threshold,) = plan.thresholds().values()
    labels = [f"own {i}" for i in range(6000)] + [" A", "A "] * 50 + ["", None, "NA"] * 100
    table = dp.tables.release({"town": labels}, plan, jax.random.key(0))
    values = {row.category: row.value for row in table.rows}
    rare = [label for label in values if label != "A"]
    assert 0.001 < len(rare) / 6000 <= 0.024
    assert min(values.values()) >= threshold
    assert abs(values["A"] - 100) < 10
    assert list(values) == sorted(values)
    assert table.rows[0].cell == {"town": table.rows[0].category}


def test_records_beyond_the_bound_of_a_person_do_not_count():
    plan = made(FOUND, rho=1e6, person="id", rows=3)
    columns = {"town": [5, 5.0, 7] * 200, "id": [i // 6 for i in range(600)]}
    values = {row.category: row.value for row in dp.tables.release(columns, plan).rows}
    assert sum(values.values()) == pytest.approx(300, abs=1)
    assert list(values) == ["5", "7"]
    assert dp.tables.release({"town": [""] * 5, "id": range(5)}, plan).rows == ()


def test_a_ledger_of_epsilon_and_delta_counts_the_delta(tmp_path):
    """One of rho counts none."""
    plan = made(FOUND)
    ledger = dp.Ledger(tmp_path / "ledger", dp.ZCDP(0.0, 1.0))
    with pytest.raises(TypeError, match="does not bound all Renyi divergences"):
        dp.tables.release({"town": ["A"]}, plan, ledger=ledger)
    assert not ledger.steps
    # The guarantee's epsilon at all of that delta is 3.54, and at the usual part of it 4.29.
    ledger = dp.Ledger(tmp_path / "other", dp.Budget(3.6, 1e-3))
    dp.tables.release({"town": ["A"]}, plan, ledger=ledger)
    assert len(ledger.steps) == 1
