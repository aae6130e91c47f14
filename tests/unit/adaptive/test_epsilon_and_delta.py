"""A budget of (epsilon, delta) admits what basic composition does, and its bounds share delta."""

from fractions import Fraction

import numpy as np
import pytest

import jaxdp as dp
from jaxdp.adaptive import filter as limits
from jaxdp.guarantee.renyi import RDP
from jaxdp.tables.release import cost_of

PAIR = (1.0, 1e-6)


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 10), (0.5, 2)])
def test_what_basic_composition_allows_fits(epsilon, count):
    for item in (
        *(dp.Mechanism(kind(1.0 / epsilon), 1.0) for kind in (dp.Laplace, dp.DiscreteLaplace)),
        *(dp.PureDP(epsilon), dp.ApproxDP(epsilon, 1e-6 / count), (epsilon, 1e-6 * epsilon)),
        dp.Budget(*PAIR) / count,
    ):
        record = dp.Filter(PAIR)
        record.spend(item)
        assert record.would_fit(item, count - 1)
        assert not record.would_fit(item, count)


def test_more_than_basic_composition_allows_fits():
    """Of small releases, by mu or by the divergence of one order."""
    record = dp.Filter(PAIR)
    record.spend(dp.PureDP(0.01), 400)
    assert dp.Filter(PAIR).would_fit(dp.GDP(0.01), 500)
    assert dp.Filter(PAIR).would_fit(dp.ZCDP(0.0, 5e-5), 400)
    sampled = dp.Mechanism(dp.Gaussian(4.0), 1.0, sampling_prob=0.01, relation="add_remove")
    record = dp.Filter((2.0, 1e-6))
    record.spend(dp.Mechanism(dp.Gaussian(10.0), 1.0), 2)
    record.spend(sampled, 300)


@pytest.mark.parametrize("pair", [(0.1, 1e-9), (8.0, 1e-5)])
def test_one_release_of_all_fits(pair):
    for whole in (dp.largest_gdp(pair), dp.largest_zcdp(pair), dp.ApproxDP(*pair)):
        record = dp.Filter(pair)
        record.spend(whole)
        assert not record.would_fit(dp.GDP(1e-3))


FIRST = [dp.GDP(0.1), dp.ZCDP(0.0, 1e-3), dp.PureDP(0.05), dp.ApproxDP(0.1, 1e-7), dp.GDP(0.23)]


@pytest.mark.parametrize("first", FIRST, ids=repr)
def test_the_deltas_of_all_bounds_add_up_to_delta(first):
    """A step is taken if one bound has room: the sum is what an adaptive choice can reach."""
    record = dp.Filter(PAIR)
    record.spend(first)
    total = 0.0
    for bound in record._bounds():
        ((place, limit),) = [(i, x) for i, x in bound.items() if i != limits.EPSILON]
        if place == limits.DELTA:
            assert bound[limits.EPSILON] == 1
            total += float(limit)
        elif place == limits.MU:
            total += float(dp.GDP(np.sqrt(float(limit))).delta(1.0))
        else:
            total += float(RDP(record._order, [float(limit)]).delta(1.0))
    assert 0.99e-6 <= total <= 1e-6 * (1 + 1e-9)


def test_a_choice_of_the_bound_by_outputs_stays_within_delta():
    """Room in two bounds, each with all of delta, would make 2 delta; a path ends in one of them.

    After a Gaussian, who saw a small loss takes all of delta at once, and who saw a large one goes
    on with Gaussians. Both are in reach of bounds that do not share.
    """
    record = dp.Filter(PAIR)
    first = dp.GDP(0.1)
    record.spend(first)
    mu = float(record.budget.epsilon) and float(dp.largest_gdp(PAIR).mu)
    spent = record._sums[limits.DELTA]
    assert not record.would_fit(dp.ApproxDP(0.0, float(Fraction("1e-6") - spent)))
    assert not record.would_fit(dp.GDP(np.sqrt(mu**2 - 0.1**2)))


def test_noises_mix():
    """Three tables of (1, 1e-6) in (3, 1e-5), whatever their noise; then no fourth."""
    gaussian = {"noise": "gaussian", "statistic": "count", "name": "a"}
    laplace = {"noise": "discrete_laplace", "statistic": "count", "name": "b"}
    costs = [
        cost_of(dp.tables.plan({"epsilon": 1.0, "delta": 1e-6, "release": entries}))
        for entries in ([laplace], [gaussian, laplace])
    ]
    for order in ((0, 1, 1), (1, 0, 0)):
        record = dp.Filter((3.0, 1e-5))
        for i in order:
            record.spend(costs[i], name=f"{i}")
        with pytest.raises(dp.BudgetExceededError, match=r"what remains.*: 0 x would fit"):
            record.spend(costs[0])
    for cost in costs:
        dp.Filter(PAIR).spend(cost)


def test_a_ledger_resumes_and_its_first_charge_decides(tmp_path):
    path = tmp_path / "budget"
    ledger = dp.Ledger(path, PAIR)
    ledger.charge(dp.Mechanism(dp.DiscreteGaussian(20.0), 1.0))
    ledger.charge(dp.PureDP(0.1), 2)
    again = dp.Ledger(path, PAIR)
    assert (float(again.budget.epsilon), float(again.budget.delta)) == PAIR
    assert again._bounds() == ledger._bounds()
    assert repr(again.remaining()) == repr(ledger.remaining())
    assert again.steps == ledger.steps
    assert dp.Filter.from_json(ledger.to_json()).to_json() == ledger.to_json()
