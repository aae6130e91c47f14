"""Odometers count what is spent and resume exactly; what odometers and filters refuse."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_filter import GAUSSIAN, ORDERS, state

import jaxdp as dp


def refused():
    zcdp, pure, gdp = (
        dp.Filter(dp.ZCDP(0.0, 1.0)),
        dp.Filter(dp.PureDP(1.0)),
        dp.Filter(dp.GDP(1.0)),
    )
    odometer = dp.Odometer(1e-6)
    broken = dp.ZCDP(0.0, 0.1)
    object.__setattr__(broken, "rho", broken.rho * np.nan)
    negative = dp.ZCDP(0.0, 0.1)
    object.__setattr__(negative, "rho", -negative.rho)
    batch = dp.Mechanism(dp.Gaussian(np.array([1e3, 1e4])), 1.0)
    infinite = dp.Mechanism(dp.TruncatedLaplace(1.0, 5.0), 1.0)
    for record in (zcdp, odometer):
        yield record, broken, 1, ValueError
        yield record, negative, 1, ValueError
        yield record, batch, 1, ValueError
        yield record, infinite, 1, ValueError
        yield record, dp.ApproxDP(0.1, 1e-9), 1, TypeError
        for count in (0, -1, 1.0, 1.5, np.nan, np.inf, "2", True, None):
            yield record, GAUSSIAN, count, ValueError
    yield pure, GAUSSIAN, 1, dp.BudgetExceededError
    yield pure, dp.GDP(0.1), 1, TypeError
    yield gdp, dp.ZCDP(0.0, 0.1), 1, TypeError
    yield zcdp, dp.PureDP(np.inf), 1, dp.BudgetExceededError


def test_a_sampled_step_costs_its_own_divergence():
    """A thousand steps fit where two whole releases would not."""
    step = dp.Mechanism(dp.Gaussian(4.0), 1.0, 0.01, "add_remove")
    record, odometer = dp.Filter.within((2.0, 1e-6)), dp.Odometer(1e-6, [2.0, 8.0])
    whole = dp.Mechanism(dp.Gaussian(4.0), 1.0)
    assert record.would_fit(whole, 2)
    assert not record.would_fit(whole, 3)
    record.spend(step, 1000)
    loss = dp.privacy_loss(step)
    wanted = 1000 * float(loss.renyi(record.budget.order[0]))
    np.testing.assert_allclose(record.spent().value, [wanted], rtol=1e-11)
    assert odometer.spend(step, 1000) < 2.1
    wanted = 1000 * loss.renyi(np.array([2.0, 8.0]))
    np.testing.assert_allclose(odometer.spent().value, wanted, rtol=1e-11)
    one_way = dp.Mechanism(dp.Gaussian(4.0), 1.0, 0.01, "remove")
    for book in (record, odometer):
        with pytest.raises(ValueError, match="relation"):
            book.spend(one_way)


def test_bad_steps_change_nothing():
    for record, item, count, error in refused():
        before = state(record)
        with pytest.raises(error):
            record.spend(item, count)
        assert state(record) == before


@given(st.lists(st.tuples(st.floats(1e-9, 3), st.integers(1, 1000)), max_size=5))
def test_an_odometer_resumes_exactly(steps):
    record = dp.Odometer(1e-7, ORDERS)
    for mu, count in steps:
        record.spend(dp.GDP(mu), count)
    resumed = dp.Odometer.from_json(record.to_json())
    assert resumed.epsilon() == record.epsilon()
    assert resumed.to_json() == record.to_json()


def test_changed_text_is_refused(tmp_path):
    record = dp.Filter(dp.PureDP(1.0))
    record.spend(dp.PureDP(0.5))
    text = record.to_json()
    body = json.loads(text)
    changed = [
        text[:-5],
        "",
        "[]",
        "3",
        text.replace('"version": 1', '"version": 2'),
        text.replace("jaxdp-filter", "jaxdp-odometer"),
        text.replace("0x1.0000000000000p+0", "0x1.8000000000000p+0"),
        json.dumps({**body, "steps": []}),
        json.dumps({k: v for k, v in body.items() if k != "digest"}),
        dp.Odometer(0.1).to_json(),
    ]
    for bad in changed:
        with pytest.raises(ValueError, match=r"text|format|version|digest"):
            dp.Filter.from_json(bad)
    with pytest.raises(ValueError, match="format"):
        dp.Odometer.from_json(text)
    path = tmp_path / "missing" / "budget.json"
    with pytest.raises(FileNotFoundError):
        record.save(path)


def test_the_odometer_is_its_formula():
    record = dp.Odometer(1e-6, ORDERS)
    assert record.epsilon() == pytest.approx(np.log(3e6) / 31, rel=1e-14)
    ahead = record.epsilon_after(GAUSSIAN, 100)
    assert record.spend(GAUSSIAN, 100) == ahead == record.epsilon()
    values = 0.5 * ORDERS + np.log(3e6) / (ORDERS - 1)
    assert values.min() <= ahead <= values.min() * (1 + 1e-11)
    assert record.delta == 1e-6
    np.testing.assert_allclose(record.spent().value, 0.5 * ORDERS, rtol=1e-11)
    # What is valid at all times costs more than the same releases fixed in advance.
    assert dp.Odometer(1e-6).spend(GAUSSIAN, 100) > dp.GDP(1.0).epsilon(1e-6)


def test_the_odometer_holds_at_all_times_in_simulation():
    """4,000 walks whose noise is chosen by what came before: the losses that ever pass."""
    rng = np.random.default_rng(0)
    order, delta = 3.0, 0.05
    loss, spent, passed = np.zeros(4000), np.zeros(4000), np.zeros(4000, bool)
    for _ in range(200):
        mu = np.where(loss > 0.5 * spent, 0.4, 0.1)
        loss += mu * (rng.standard_normal(4000) + mu / 2)
        spent += order * mu**2 / 2
        passed |= loss > spent + np.log(1 / delta) / (order - 1)
    assert 0 < passed.mean() <= delta


def test_bad_records_are_refused():
    for build, name in (
        (lambda: dp.Odometer(0.0), "delta"),
        (lambda: dp.Odometer(np.nan), "delta"),
        (lambda: dp.Odometer(2.0), "delta"),
        (lambda: dp.Odometer(0.1, 1.0), "order"),
        (lambda: dp.Filter(dp.PureDP(np.inf)), "budget"),
        (lambda: dp.Filter(dp.GDP(np.array([1.0, 2.0]))), "batch"),
        (lambda: dp.Filter.within(dp.Budget(1.0, 0.0)), "budget"),
        (lambda: dp.Filter.within(dp.Budget(1.0, 1e-6), order=2.0), "budget"),
        (lambda: dp.Filter.within(dp.Budget(1.0, 1e-6), order=1.0), "order"),
        (lambda: dp.Filter.within(dp.Budget(np.ones(2), 1e-6)), "budget"),
    ):
        with pytest.raises(ValueError, match=name):
            build()
    assert dp.Filter(dp.ApproxDP(1.0, 1e-6)).budget.mu == dp.Filter((1.0, 1e-6)).budget.mu
