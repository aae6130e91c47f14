"""Released centres and deviations: what a record moves, what they cost, what noise hides."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.solvers import coordinate_descent, lattice, scaling
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


def test_a_descent_keeps_the_rest_of_the_budget():
    """A GDP that was spent before: both compose to the budget, from below and to 1e-13."""
    share = 0.99
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


@pytest.mark.parametrize(("relation", "moved"), [("replace_one", 2.0), ("add_remove", 1.0)])
def test_histograms_have_the_noise_of_their_cost(relation, moved, monkeypatch):
    """A record is in one bin of each column, two when replaced; rounds compose to the cost."""
    scales, added = [], lattice.added

    def counted(noise, scale, ratio, *rest, bits):
        scales.append((scale, ratio))
        # The sampling error that the cost counts is that of the lattice.
        error = lattice.sampling_error(3 * scaling.BINS, "lattice", bits)
        assert error == scaling.narrowing_error(3, 1)
        return added(noise, scale, ratio, *rest, bits=bits)

    monkeypatch.setattr(lattice, "added", counted)
    values = np.random.default_rng(0).normal(size=(20_000, 3))
    ends = np.full(3, -100.0), np.full(3, 100.0)
    low, high = scaling.narrowed(values, *ends, dp.GDP(1.5), KEY, relation=relation)
    assert len(scales) == scaling.rounds(20_000, 3, dp.GDP(1.5), relation) == 2
    mu = [np.sqrt(moved * 3) / scale for scale, _ in scales]
    assert 1.5 * (1 - 1e-11) <= np.linalg.norm(mu) <= 1.5
    # Of a vector of ones with as many entries as counts, as `lattice.added` has it.
    for scale, ratio in scales:
        assert ratio <= np.sqrt(moved * 3) / scale / np.sqrt(3 * scaling.BINS) * (1 + 1e-11)
    assert (low < values.min(axis=0) + 1).all()
    assert (high > values.max(axis=0) - 1).all()
    assert (high - low <= 25.0).all()


def test_wide_bounds_cost_little():
    """Deviations of columns within 100 of them: noise of 5 deviations without the histograms."""
    values = np.random.default_rng(0).normal(size=(5000, 4))
    ends, known = (np.full(4, -100.0), np.full(4, 100.0)), {"relation": "replace_one"}
    _, wide = scaling.release(values, *ends, dp.GDP(0.2), KEY, **known)
    ends = scaling.narrowed(values, *ends, dp.GDP(0.14), KEY, **known)
    center, scale = scaling.release(values, *ends, dp.GDP(0.14), jax.random.key(1), **known)
    assert (wide > 4.0).all()
    assert (scale < 1.6).all()
    assert (np.abs(center) < 0.6).all()


def test_targets_that_are_mostly_0_have_windows_in_much_noise():
    """A tenth of such fits at epsilon .1 had none: deviations of 5, and R^2 of -1."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random((5000, 1)) < 0.05, rng.exponential(8.0, (5000, 1)), 0.0)
    ends = np.zeros(1), np.full(1, 50.0)
    for key in jax.random.split(KEY, 40):
        known = {"relation": "replace_one", "doubt": 2.0}
        low, high = scaling.narrowed(values.clip(max=50.0), *ends, dp.GDP(0.0052), key, **known)
        assert (high - low <= 12.5).all()


def test_histograms_of_20_columns_fit_a_large_budget():
    """Nine columns did not at epsilon 30: scores fell from epsilon 10 on."""
    assert 0.0 < scaling.narrowing_error(20, 2) * np.exp(30.0) <= 0.2 * 1e-6


def test_rare_values_and_narrow_bounds_are_kept():
    """A dummy of 2 % and a column that fills its bounds keep them; a few ulp leave no room."""
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.random(20_000) < 0.02, rng.uniform(size=20_000)]).astype(float)
    ends = np.zeros(2), np.ones(2)
    low, high = scaling.narrowed(values, *ends, dp.GDP(1.0), KEY, relation="replace_one")
    np.testing.assert_array_equal([low, high], ends)
    ends = np.full(1, 1e16), np.full(1, 1e16 + 4)
    near = np.full((20_000, 1), 1e16)
    low, high = scaling.narrowed(near, *ends, dp.GDP(1.0), KEY, relation="replace_one")
    assert (high > low).all()


def test_noise_that_hides_windows_is_not_paid_for():
    assert scaling.rounds(100, 10, dp.GDP(0.1), "replace_one") == 0
    assert scaling.rounds(10_000, 10, dp.GDP(0.01), "replace_one") == 1
    assert scaling.rounds(100_000, 10, dp.GDP(1.0), "replace_one") == 2
