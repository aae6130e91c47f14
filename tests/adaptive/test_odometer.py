"""Filters refuse what would pass, odometers count it, and both resume exactly."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxdp as dp

ORDERS = np.array([1.5, 4.0, 32.0])
GAUSSIAN = dp.Mechanism(dp.Gaussian(10.0), 1.0)
BUDGETS = {
    "PureDP": (dp.PureDP(1.0), dp.PureDP(0.3)),
    "ZCDP": (dp.ZCDP(0.01, 0.1), dp.ZCDP(0.003, 0.03)),
    "RDP": (dp.RDP(ORDERS, 0.1 * ORDERS), dp.GDP(np.sqrt(0.06))),
    "GDP": (dp.GDP(1.0), dp.GDP(np.sqrt(0.3))),
}


def state(record):
    return record.to_json()


@pytest.mark.parametrize("kind", BUDGETS)
def test_three_fit_and_a_fourth_does_not(kind):
    budget, item = BUDGETS[kind]
    record = dp.Filter(budget)
    for _ in range(3):
        assert record.would_fit(item)
        record.spend(item)
    before = state(record)
    assert not record.would_fit(item)
    with pytest.raises(dp.BudgetExceededError, match="what remains"):
        record.spend(item)
    with pytest.raises(dp.BudgetExceededError):
        record.spend(item, count=10**400)
    assert state(record) == before
    assert len(record.steps) == 3
    record.spend(record.remaining())
    assert type(record.spent()) is type(budget)
    np.testing.assert_allclose(
        float(record.spent().delta(0.1)), float(budget.delta(0.1)), rtol=1e-6
    )


@given(st.lists(st.tuples(st.floats(1e-6, 0.2), st.integers(1, 9)), min_size=1, max_size=12))
def test_nothing_ever_passes_the_budget(steps):
    """In exact arithmetic, refused steps change nothing, and repetition is counting."""
    record = dp.Filter(dp.ZCDP(0.0, 0.5))
    total = Fraction(0)
    for rho, count in steps:
        after = total + count * Fraction(rho)
        before = state(record)
        if after <= Fraction(0.5):
            record.spend(dp.ZCDP(0.0, rho), count)
            total = after
        else:
            with pytest.raises(dp.BudgetExceededError):
                record.spend(dp.ZCDP(0.0, rho), count)
            assert state(record) == before
    assert Fraction(float(record.spent().rho)) >= total
    assert total + Fraction(float(record.remaining().rho)) <= Fraction(0.5)


def test_a_tenth_ten_times_is_more_than_one():
    """0.1 is above a tenth; the sum of floats says 0.9999999999999999."""
    record = dp.Filter(dp.PureDP(1.0))
    record.spend(dp.PureDP(0.1), 9)
    assert not record.would_fit(dp.PureDP(0.1))
    assert record.would_fit(dp.PureDP(0.1 * (1 - 1e-15)))


def test_the_curve_of_zcdp_is_kept_at_every_order():
    """xi may be paid from rho, as xi + a rho <= rho' + (a - 1) rho'; rho never from xi."""
    record = dp.Filter(dp.ZCDP(0.0, 1.0))
    assert record.would_fit(dp.ZCDP(0.4, 0.6))
    assert not record.would_fit(dp.ZCDP(0.41, 0.6))
    assert not dp.Filter(dp.ZCDP(1.0, 1.0)).would_fit(dp.ZCDP(0.0, 1.01))


def test_every_order_of_the_budget_is_kept():
    """One order with room left is not enough."""
    record = dp.Filter(dp.RDP(np.array([2.0, 8.0]), np.array([1.0, 1.0])))
    assert not record.would_fit(dp.RDP(np.array([2.0, 8.0]), np.array([0.1, 1.1])))
    with pytest.raises(ValueError, match="order"):
        record.spend(dp.RDP(np.array([2.0, 9.0]), np.array([0.1, 0.1])))


def test_what_is_spent_is_converted():
    budget = dp.Budget(1.0, 1e-6)
    record = dp.Filter.within(budget)
    assert record.budget.delta(1.0) <= 1e-6
    order, value = record.budget.order, record.budget.value
    assert dp.RDP(order, value * (1 + 1e-9)).delta(1.0) > 1e-6
    for item in (GAUSSIAN, dp.GDP(0.01), dp.PureDP(0.01), dp.ZCDP(0.0, 1e-4)):
        record.spend(item, name="a step")
    rho = 0.005 + 0.5e-4 + dp.to_rdp(dp.PureDP(0.01), order).value / order + 1e-4
    np.testing.assert_allclose(record.spent().value, rho * order, rtol=1e-11)
    one_order = dp.Filter.within(budget, order=24.0)
    assert one_order.budget.delta(1.0) <= 1e-6
    one_order.spend(GAUSSIAN, 2)
    np.testing.assert_allclose(one_order.spent().value, [0.24], rtol=1e-11)
    laplace = dp.Mechanism(dp.Laplace(10.0), 1.0)
    pure = dp.Filter(dp.PureDP(1.0))
    pure.spend(laplace)
    np.testing.assert_allclose(pure.spent().epsilon_bound, 0.1, rtol=1e-15)


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
    yield gdp, GAUSSIAN, 1, TypeError
    yield gdp, dp.ZCDP(0.0, 0.1), 1, TypeError
    yield zcdp, dp.PureDP(np.inf), 1, dp.BudgetExceededError


def test_sampled_replacements_cost_what_the_whole_release_does():
    laplace = dp.Mechanism(dp.Laplace(4.0), 1.0, 0.1, "replace_one")
    gaussian = dp.Mechanism(dp.Gaussian(4.0), 1.0, 0.1, "replace_one")
    pure, concentrated = dp.Filter(dp.PureDP(1.0)), dp.Filter(dp.ZCDP(0.0, 1.0))
    pure.spend(laplace)
    concentrated.spend(gaussian)
    np.testing.assert_allclose(float(pure.spent().epsilon_bound), 2.0 / 4.0, rtol=1e-12)
    np.testing.assert_allclose(float(concentrated.spent().rho), 0.5 * (2.0 / 4.0) ** 2, rtol=1e-12)


@pytest.mark.parametrize("pair", [(2.0, 1e-6), (0.1, 1e-12), (8.0, 0.01), (0.0, 0.1)])
def test_the_order_of_a_filter_leaves_the_most_rho(pair):
    """No less than the zCDP that keeps the budget at every order, whose conversion is the same."""
    budget = dp.Filter.within(pair).budget
    rho = float(budget.value[0] / budget.order[0])
    assert dp.ZCDP(0.0, rho * (1 - 1e-7)).delta(pair[0]) <= pair[1]
    assert dp.ZCDP(0.0, rho * (1 + 1e-7)).delta(pair[0]) > pair[1]


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


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_filter_resumes_exactly(kind, tmp_path):
    budget, item = BUDGETS[kind]
    record = dp.Filter(budget)
    record.spend(item, name="first")
    record.spend(item)
    path = tmp_path / "budget.json"
    record.save(path)
    record.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["budget.json"]
    resumed = dp.Filter.load(path)
    assert state(resumed) == state(record)
    assert resumed.steps == record.steps
    for left, right in zip(_numbers(resumed), _numbers(record), strict=True):
        assert left == right
    resumed.spend(item)
    assert not resumed.would_fit(item)


def _numbers(record):
    for guarantee in (record.budget, record.spent(), record.remaining()):
        yield repr(guarantee)


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


def test_an_overspent_file_is_refused():
    from jaxdp import ledger

    one = (1.0).hex()
    step = ledger.Step("PureDP", (2.0,), 1)
    forged = ledger.dump("jaxdp-filter", {"kind": "PureDP", "order": [], "budget": [one]}, [step])
    with pytest.raises(ValueError, match="steps"):
        dp.Filter.from_json(forged)
    for payload in ({"kind": "Else", "order": [], "budget": [one]}, {"kind": "PureDP"}):
        with pytest.raises(ValueError, match=r"kind|budget"):
            dp.Filter.from_json(ledger.dump("jaxdp-filter", payload, []))


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
    with pytest.raises(TypeError, match="budget"):
        dp.Filter(dp.ApproxDP(1.0, 1e-6))
