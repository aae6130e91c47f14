"""Released centres and deviations: what a record moves, what they cost, what noise hides."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.solvers import coordinate_descent, scaling
from jaxdp.solvers.scaling import _in_units

KEY = jax.random.key(0)
ENDS = np.array([-2.0, 0.0]), np.array([4.0, 1.0])


def uniform(records):
    return np.random.default_rng(0).uniform(
        ENDS[0] + np.array([1.0, 0.25]), ENDS[1], size=(records, 2)
    )


@pytest.mark.parametrize("spent", [dp.GDP(1.0), dp.PureDP(1.0)], ids=["GDP", "PureDP"])
def test_many_records_are_found_and_few_are_guessed(spent):
    values = uniform(100_000)
    center, scale = scaling.release(values, *ENDS, spent, KEY, relation="replace_one")
    np.testing.assert_allclose(center, values.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(scale, values.std(axis=0), atol=1e-3)
    center, scale = scaling.release(values[:2], *ENDS, spent, KEY, relation="replace_one")
    assert (np.abs(center - [1.0, 0.5]) < [1.5, 0.25]).all()
    assert (scale > [1.0 / 2, 1.0 / 12]).all()
    assert (scale <= [3.0, 0.5]).all()


@pytest.mark.parametrize(("relation", "moved"), [("replace_one", 2.0), ("add_remove", 1.0)])
def test_the_noise_is_that_of_the_sensitivity(relation, moved):
    """sum over the 2 p releases of (shift / scale)^2 is mu^2; the mean's noise, over 200 keys."""
    records, mu = 50, 20.0
    values = np.full((records, 1), 0.25)
    draws = [
        scaling.release(
            values, np.array([-1.0]), np.array([1.0]), dp.GDP(mu), key, relation=relation
        )[0]
        for key in jax.random.split(KEY, 200)
    ]
    shifts = np.array([moved, 1.0]) / records
    deviation = np.sqrt(shifts[0] * shifts.sum()) / mu
    shrunk = (1 / 9) / (1 / 9 + deviation**2)
    assert np.std(draws) == pytest.approx(deviation * shrunk, rel=0.2)
    assert np.mean(draws) == pytest.approx(0.25 * shrunk, abs=4 * deviation / np.sqrt(200))


@pytest.mark.parametrize("low", [1e16, -1e16 - 2.0, 1e15 + 0.25, 3e307])
def test_bounds_a_few_ulp_apart_do_not_widen_what_a_record_moves(low):
    """(1e16, 1e16 + 2): the middle is rounded to an end, and a mean moved by 4 / n for 2 / n."""
    ends = np.array([low]), np.array([np.nextafter(low, np.inf)])
    for upper in (ends[1], np.nextafter(ends[1], np.inf)):
        values = np.linspace(ends[0] - 1.0, upper + 1.0, 9)
        assert (np.abs(_in_units(values, ends[0], upper)) <= 1.0).all()
        half = 0.5 * (upper - ends[0])
        centre, scale = scaling.release(
            values, ends[0], upper, dp.GDP(1.0), KEY, relation="replace_one"
        )
        assert ends[0] - half <= centre <= upper + half
        assert 0 < scale <= half


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_descent_keeps_the_rest_of_the_budget(share):
    """A GDP that was spent before: both compose to the budget, from below and to 1e-13."""
    budget = dp.Budget(0.7, 1e-7)
    mu = float(dp.largest_gdp(budget).mu)
    plan = coordinate_descent.plan(
        budget,
        smoothness=np.ones(40),
        clip=1.0,
        records=1000,
        passes=3,
        relation="replace_one",
        spent=dp.GDP(mu * share),
        order="cyclic",
    )
    assert isinstance(plan.guarantee.exact, dp.GDP)
    assert mu * (1 - 1e-13) < float(plan.guarantee.exact.mu) <= mu
    assert float(2 * plan.rho) == pytest.approx(mu**2 * (1 - share**2), rel=1e-12)
    assert float(plan.guarantee.delta(0.7)) <= 1e-7


def test_defaults_follow_the_noise():
    """r = n mu / p: passes, thresholds and steps, from public numbers alone."""
    curvature = np.full(4, 0.25)
    budget = dp.Budget(1.0, 1e-6)
    mu = float(dp.largest_gdp(budget).mu)
    for records, factor in ((20, 0.5), (1600, 1600 * mu / 240), (10**6, 9.0)):
        found = coordinate_descent.defaults(budget, curvature, records, "replace_one")
        ratio = records * mu / 4
        assert found.passes == min(max(int(np.ceil(ratio)), 1), 100)
        assert found.clip == pytest.approx(factor, rel=1e-12)
        assert found.step(0) == pytest.approx(ratio**2 / (1 + ratio**2), rel=1e-9)
        assert 0 < found.step(found.passes - 1) <= 1 / found.passes
    twice = coordinate_descent.defaults(budget, curvature, 10, "add_remove", target_scale=3.0)
    assert twice.step(0) == coordinate_descent.defaults(budget, curvature, 20, "replace_one").step(
        0
    )
    assert twice.clip == 1.5
    pure = coordinate_descent.defaults(dp.Budget(1.0, 0.0), curvature, 400, "replace_one")
    assert pure.passes == int(np.ceil(100 / np.sqrt(8.0)))
    with pytest.raises(ValueError, match="relation"):
        coordinate_descent.defaults(budget, curvature, 10, "swap")
