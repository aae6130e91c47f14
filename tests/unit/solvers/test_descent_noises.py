"""DP coordinate descent with noise that is not Gaussian alone: accounting, spent budgets."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers.coordinate_descent.plan import composed, least_factor

SMALL = dp.Budget(1.0, 20640.0**-2)


def plan(**kwargs):
    arguments = {
        "smoothness": np.ones(8),
        "clip": 2.0,
        "records": 20640,
        "passes": 5,
        "relation": "replace_one",
        "order": "cyclic",
    }
    return cd.plan(kwargs.pop("budget", SMALL), **(arguments | kwargs))


def deviation(noise, updates):
    """Standard deviation over sensitivity after `updates` equal updates at (1, 20640^-2)."""
    ratios, visits = jnp.ones(1), jnp.full(1, float(updates))
    factor = least_factor(noise, ratios, visits, SMALL, None)
    return float(factor) * float(np.sqrt(noise.variance()))


@pytest.mark.long
def test_published_laplace_deviations():
    """1-D exact composition at (1, n^-2): 11.31, 44.7, 150.4 (on a grid, rounded up)."""
    published = {8: 11.31, 40: 44.7, 400: 150.4}
    for updates, expected in published.items():
        assert deviation(dp.Laplace(1.0), updates) == pytest.approx(expected, rel=2e-3)


@pytest.mark.long
def test_flipped_huber_is_at_best_a_laplace_or_a_gaussian():
    """The best of its shapes lies within .5 % of the better of its two limits."""
    for updates in (8, 40, 400):
        shapes = (0.02, 0.1, 0.5, 1.0, 3.0, 10.0)
        best = min(deviation(dp.FlippedHuber(a, 1.0), updates) for a in shapes)
        limits = deviation(dp.Laplace(1.0), updates), deviation(dp.Gaussian(1.0), updates)
        assert best == pytest.approx(min(limits), rel=5e-3)


@pytest.mark.long
def test_a_laplace_plan_of_unequal_ratios_meets_its_budget_exactly():
    curvature = np.array([0.5, 1.0, 4.0, 0.1, 30.0, 2.0, 9.0, 0.01])
    made = plan(noise="laplace", allocation="inid", smoothness=curvature)
    assert np.ptp(np.asarray(made.ratios)) > 0
    delta = float(made.guarantee.delta(1.0))
    assert SMALL.delta * (1 - 1e-3) < delta <= SMALL.delta
    # The old bound by one shift of the sum would have asked for pure epsilon / K per update.
    equal = plan(noise="laplace", passes=50)
    expected = np.sqrt(2) / deviation(dp.Laplace(1.0), 400)
    np.testing.assert_allclose(equal.ratios, expected, rtol=3e-8)


@pytest.mark.long
def test_what_the_smoothness_cost_is_composed_exactly():
    spent = dp.PureDP(0.1)
    both = plan(spent=spent)
    assert 0 < 1 - float(both.guarantee.delta(1.0)) / float(SMALL.delta) < 1e-6
    alone, smaller = plan(), plan(budget=dp.Budget(0.9, SMALL.delta))
    # Cheaper than sharing epsilon between the two, and not free.
    assert alone.scales[0] < both.scales[0] < smaller.scales[0]
    by_hand = dp.privacy_loss(dp.GDP(np.sqrt(2 * both.rho))) + dp.privacy_loss(spent)
    np.testing.assert_allclose(both.guarantee.log_delta(1.0), by_hand.log_delta(1.0), rtol=1e-9)
    with pytest.raises(ValueError, match="beside the spent budget"):
        plan(spent=dp.PureDP(3.0))


@pytest.mark.long
def test_composed_is_what_the_parts_compose_to():
    ratios, visits = jnp.array([0.1, 0.3]), jnp.array([4.0, 0.0])
    total = composed(dp.Laplace(1.0), ratios, visits, None)
    one = 4 * dp.privacy_loss(dp.Mechanism(dp.Laplace(1.0), 0.1))
    np.testing.assert_allclose(total.log_delta(0.13), one.log_delta(0.13), rtol=1e-7)


@pytest.mark.parametrize(
    "noise",
    [
        dp.Staircase(1.0, 1.0, 0.5),
        dp.DiscreteLaplace(1.0),
        dp.Gaussian(np.ones(2)),
        dp.Histogram(1.0, [1, 2, 1]),
    ],
)
def test_noises_whose_largest_shift_may_not_be_the_worst_are_refused(noise):
    with pytest.raises(ValueError, match="noise must"):
        plan(noise=noise)
