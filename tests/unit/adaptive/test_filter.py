"""Filters refuse what would pass their budget, and resume exactly."""

# pyright: reportCallIssue=false

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxdp as dp

ORDERS = np.array([1.5, 4.0, 32.0])
GAUSSIAN = dp.Mechanism(dp.Gaussian(10.0), 1.0)
BUDGETS = {
    "PureDP": (dp.PureDP(0.3), dp.PureDP(0.09)),
    "ZCDP": (dp.ZCDP(0.01, 0.1), dp.ZCDP(0.003, 0.03)),
    "RDP": (dp.RDP(ORDERS, 0.1 * ORDERS), dp.GDP(np.sqrt(0.06))),
    "GDP": (dp.GDP(1.0), dp.GDP(np.sqrt(0.3))),
}


@pytest.mark.parametrize("kind", BUDGETS)
def test_three_fit_and_a_fourth_does_not(kind):
    budget, item = BUDGETS[kind]
    record = dp.Filter(budget)
    for _ in range(3):
        assert record.would_fit(item)
        record.spend(item)
    before = record.to_json()
    assert not record.would_fit(item)
    with pytest.raises(dp.BudgetExceededError, match="what remains"):
        record.spend(item)
    with pytest.raises(dp.BudgetExceededError):
        record.spend(item, count=10**400)
    assert record.to_json() == before
    assert len(record.steps) == 3
    record.spend(record.remaining())
    assert type(record.spent()) is type(budget)
    np.testing.assert_allclose(
        float(record.spent().delta(0.1)), float(budget.delta(0.1)), rtol=1e-6
    )


@pytest.mark.parametrize("budget", [x for x, _ in BUDGETS.values()], ids=BUDGETS)
@pytest.mark.parametrize("parts", [1, 3, 7, 10, 1000])
def test_equal_parts_fit_together_and_no_more(budget, parts):
    """To the last bit; a third part of .3 is below .1."""
    running = dp.Filter(budget)
    assert running.would_fit(budget / parts, parts)
    running.spend(budget / parts, parts)
    assert not running.would_fit((budget / parts) / 1000)


def test_parts_are_whole_and_positive():
    for parts in (0, -1, 2.5, float("nan")):
        with pytest.raises(ValueError, match="parts must"):
            dp.GDP(1.0) / parts
    with pytest.raises(TypeError, match="ApproxDP has no equal parts"):
        dp.ApproxDP(1.0, 1e-6) / 3


@pytest.mark.parametrize("budget", [(1.0, 1e-6), (0.0, 0.5)])
def test_the_largest_rho_meets_the_budget_and_hardly_more_does_not(budget):
    rho = float(dp.largest_zcdp(budget).rho)
    assert dp.ZCDP(0.0, rho).delta(budget[0]) <= budget[1]
    assert dp.ZCDP(0.0, rho * (1 + 1e-6)).delta(budget[0]) > budget[1]
    assert dp.largest_zcdp((1.0, 0.0)).rho == 0


@given(st.lists(st.tuples(st.floats(1e-6, 0.2), st.integers(1, 9)), min_size=1, max_size=12))
def test_nothing_ever_passes_the_budget(steps):
    """In exact arithmetic, refused steps change nothing, and repetition is counting."""
    record = dp.Filter(dp.ZCDP(0.0, 0.5))
    total = Fraction(0)
    for rho, count in steps:
        after = total + count * Fraction(repr(rho))
        before = record.to_json()
        if after <= Fraction(0.5):
            record.spend(dp.ZCDP(0.0, rho), count)
            total = after
        else:
            with pytest.raises(dp.BudgetExceededError):
                record.spend(dp.ZCDP(0.0, rho), count)
            assert record.to_json() == before
    spent, left = float(record.spent().rho), float(record.remaining().rho)
    assert max(Fraction(spent), Fraction(repr(spent))) >= total
    assert total + min(Fraction(left), Fraction(repr(left))) <= Fraction(0.5)


@pytest.mark.parametrize(
    "tenth", [dp.PureDP(0.1), dp.Mechanism(dp.Laplace(10.0), 1.0), dp.Budget(0.1, 0.0), (0.1, 0.0)]
)
def test_ten_times_a_tenth_is_one(tenth):
    """As numbers are written: the double 0.1 is above a tenth."""
    record = dp.Filter((1.0, 0.0))
    for _ in range(10):
        record.spend(tenth)
    assert not record.would_fit(dp.PureDP(1e-300))
    assert float(record.spent().epsilon_bound) == 1.0
    three = dp.Filter(dp.PureDP(0.3))
    three.spend(dp.PureDP(0.1), 3)
    assert not three.would_fit(dp.PureDP(1e-17))


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
    with pytest.raises(ValueError, match=r"budget must be 0, .*epsilon=inf"):
        dp.Filter((np.inf, 1e-6))


def test_what_is_spent_is_converted():
    budget = dp.Budget(1.0, 1e-6)
    record = dp.Filter.within(budget, order=22.0)
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


def test_sampled_replacements_cost_what_the_whole_release_does():
    laplace = dp.Mechanism(dp.Laplace(4.0), 1.0, 0.1, "replace_one")
    gaussian = dp.Mechanism(dp.Gaussian(4.0), 1.0, 0.1, "replace_one")
    pure, concentrated = dp.Filter(dp.PureDP(1.0)), dp.Filter(dp.ZCDP(0.0, 1.0))
    pure.spend(laplace)
    concentrated.spend(gaussian)
    np.testing.assert_allclose(float(pure.spent().epsilon_bound), 2.0 / 4.0, rtol=1e-12)
    np.testing.assert_allclose(float(concentrated.spent().rho), 0.5 * (2.0 / 4.0) ** 2, rtol=1e-12)


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
    assert resumed.to_json() == record.to_json()
    assert resumed.steps == record.steps
    assert [repr(x) for x in (resumed.budget, resumed.spent(), resumed.remaining())] == [
        repr(x) for x in (record.budget, record.spent(), record.remaining())
    ]
    resumed.spend(item)
    assert not resumed.would_fit(item)


def test_an_overspent_file_is_refused():
    from jaxdp._core.files import Format, sealed

    one, form = (1.0).hex(), Format("jaxdp-filter", 2)
    whole = {"kind": "PureDP", "order": [], "budget": [one], "steps": [["", [one], 1]]}
    assert float(dp.Filter.from_json(sealed(form, whole)).spent().epsilon_bound) == 1.0
    with pytest.raises(ValueError, match="steps must fit"):
        dp.Filter.from_json(sealed(form, whole | {"steps": [["", [(2.0).hex()], 1]]}))
    for bad in ({"kind": "Else"}, {"budget": None}, {"steps": [["", ["-1.0"], 1]]}):
        with pytest.raises(ValueError, match=r"kind|budget|cost"):
            dp.Filter.from_json(sealed(form, whole | bad))


def test_mechanisms_under_a_gaussian_budget():
    """Gaussian noise costs its mu, sampled or not, other noise what its pure epsilon implies."""
    running = dp.Filter(dp.GDP(1.0))
    running.spend(dp.Mechanism(dp.Gaussian(2.0), 1.0))
    assert running.steps[-1].cost == (0.5,)
    running.spend(dp.Mechanism(dp.Laplace(4.0), 1.0))
    assert 0.0 <= running.steps[-1].cost[0] - float(dp.to_gdp(dp.PureDP(0.25)).mu) < 1e-15
    running.spend(dp.Mechanism(dp.Gaussian(20.0), 1.0, 0.1, relation="replace_one"))
    assert 0.1 <= running.steps[-1].cost[0] <= 0.1 * (1 + 1e-14)
    # What is there to a rounding: mu^2 adds up to 1 exactly.
    full = dp.Filter(dp.GDP(1.0))
    full.spend(dp.Mechanism(dp.Gaussian(2.0), 1.0), 4)
    assert not full.would_fit(dp.Mechanism(dp.Gaussian(1e9), 1.0))
    with pytest.raises(ValueError, match=r"item must have a mu .* OffsetGaussian has neither"):
        running.spend(dp.Mechanism(dp.OffsetGaussian(1.0, 1.0), 0.1))
    with pytest.raises(TypeError, match="ZCDP does not convert to a GDP"):
        running.spend(dp.ZCDP(0.0, 0.1))
    assert len(running.steps) == 3
