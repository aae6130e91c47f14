"""Plans of coordinate descent: the privacy identity, scales, orders, hazards as errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_descent import BUDGET, SMOOTHNESS, draw, make_plan

import jaxdp as dp
from jaxdp._core.random_key import seeded_key
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers.coordinate_descent.plan import sequence_of
from jaxdp.solvers.lattice import added
from jaxdp.solvers.problems import Smoothness


@pytest.mark.parametrize(
    "noise", [cd.NOISES[0], pytest.param(cd.NOISES[1], marks=pytest.mark.long)]
)
@pytest.mark.parametrize("order", [x for x in cd.ORDERS if x != "greedy"])
@pytest.mark.parametrize("allocation", cd.ALLOCATIONS)
def test_every_plan_meets_its_budget_for_the_visits_it_makes(allocation, order, noise):
    plan = make_plan(allocation=allocation, order=order, noise=noise)
    visits = np.bincount(np.asarray(plan.sequence).ravel(), minlength=5)
    np.testing.assert_array_equal(plan.visits, visits)
    delta = float(plan.guarantee.delta(1.0))
    assert delta <= 1e-6
    assert delta > 1e-6 * (1 - 1e-8)
    if noise == "gaussian":
        # The identity: sum over updates of sensitivity^2 / (2 scale^2) is the budget's rho.
        rho = sum(
            float(plan.sensitivities[j] ** 2 / (2 * plan.scales[j] ** 2))
            for j in np.asarray(plan.sequence).ravel()
        )
        np.testing.assert_allclose(rho, dp.largest_gdp(BUDGET).mu ** 2 / 2, rtol=1e-12)
        np.testing.assert_allclose(plan.rho, rho, rtol=1e-12)


def test_allocations():
    plans = {a: make_plan(allocation=a, penalty=dp.solvers.L2(0.5)) for a in cd.ALLOCATIONS}
    sensitivity = np.asarray(plans["spr"].sensitivities)

    def proportional(one, other):
        np.testing.assert_allclose(one / one[0], other / other[0], rtol=1e-12)

    proportional(np.asarray(plans["spr"].scales), sensitivity)
    proportional(np.asarray(plans["inid"].scales) ** 2, sensitivity)
    weights = 1 / (SMOOTHNESS + 0.5)
    proportional(np.asarray(plans["winid"].scales) ** 2, sensitivity / np.sqrt(weights))
    proportional(np.asarray(plans["iid"].scales), np.ones(5))
    # With C_j proportional to sqrt(M_j) and no l2 term, the weighted optimum is SPR itself.
    weighted = make_plan(allocation="winid", penalty=dp.solvers.L1(0.5))
    np.testing.assert_allclose(weighted.scales, plans["spr"].scales, rtol=1e-12)
    equal = [make_plan(allocation=a, smoothness=np.ones(4)).scales for a in cd.ALLOCATIONS]
    for scales in equal[1:]:
        np.testing.assert_allclose(scales, equal[0], rtol=1e-12)


def test_relations_and_thresholds():
    replaced, added = make_plan(), make_plan(relation="add_remove")
    # A little more than 2 C / n: the mean is rounded once.
    for made, factor in ((replaced, 2), (added, 1)):
        excess = made.sensitivities / (factor * made.clip / 1000) - 1
        assert np.all((excess > 0) & (excess < 1e-12))
    np.testing.assert_allclose(replaced.scales, 2 * added.scales, rtol=1e-14)
    np.testing.assert_allclose(np.sum(replaced.clip**2), 4.0, rtol=1e-14)
    explicit = make_plan(clip=np.arange(1.0, 6.0))
    np.testing.assert_array_equal(explicit.clip, np.arange(1.0, 6.0))


def test_orders():
    sequence = np.asarray(make_plan(order="permutation").sequence)
    assert sequence.shape == (7, 5)
    assert all(sorted(row) == list(range(5)) for row in sequence)
    assert len({tuple(row) for row in sequence}) > 1
    cyclic = np.asarray(make_plan(order="cyclic", key=None).sequence)
    np.testing.assert_array_equal(cyclic, np.tile(np.arange(5), (7, 1)))


@pytest.mark.float64
def test_a_program_draws_the_order_that_numpy_does():
    """The first fit of a logistic regression took 1.4 CPU seconds for it."""
    key = seeded_key(0)
    program = jax.jit(lambda key: sequence_of("permutation", 300, 5, key))
    np.testing.assert_array_equal(sequence_of("permutation", 300, 5, key), program(key))


@pytest.mark.float64
def test_one_key_for_plan_and_run_draws_no_bits_twice():
    """The sequence is public: it must say nothing of the noise of whoever passes one key twice."""
    key = jax.random.key(1)
    plan = make_plan(order="cyclic", release="float")
    unit = draw(plan, key).noise / plan.scales[plan.sequence]
    assert not np.any(np.isclose(unit, plan.noise.sample(key, plan.sequence.shape), rtol=1e-9))
    drawn = draw(make_plan(order="cyclic"), key)
    twice = added(plan.noise, plan.scales[plan.sequence], plan.ratios[plan.sequence], key, (7, 5))
    assert not np.any(np.isin(drawn.noise, twice.noise))
    rows = [jax.random.permutation(k, 5) for k in jax.random.split(key, 7)]
    assert np.any(np.asarray(make_plan(key=key).sequence) != np.asarray(rows))


def test_a_budget_that_no_noise_meets():
    with pytest.raises(ValueError, match="budget must be one that Gaussian noise can meet"):
        make_plan(budget=dp.Budget(1.0, 0.0))
    traced = jax.jit(lambda delta: make_plan(budget=dp.Budget(1.0, delta)).scales)(0.0)
    assert np.all(np.isinf(traced))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"smoothness": Smoothness(SMOOTHNESS, "records")}, "computed from the records"),
        ({"smoothness": [1.0, -1.0]}, "smoothness"),
        ({"smoothness": 1.0}, "smoothness"),
        ({"clip": 0.0}, "clip"),
        ({"records": None}, "records"),
        ({"clip": np.ones(3)}, "clip"),
        ({"clip": np.inf}, "clip"),
        ({"records": 0}, "records"),
        ({"passes": 0}, "passes"),
        ({"relation": "swap"}, "relation"),
        ({"order": "random"}, "order"),
        ({"key": None}, "key must be given"),
        ({"allocation": "best"}, "allocation"),
        ({"noise": "cauchy"}, "noise"),
        ({"noise": dp.Staircase(1.0, 1.0, 0.5)}, "noise must be"),
        (
            {"noise": dp.Subbotin(1.0, 1.5)},
            "must be one of Gaussian, Laplace, TruncatedLaplace, Fl",
        ),
        ({"noise": dp.DiscreteLaplace(1.0)}, "to be released, got"),
        ({"noise": dp.Gaussian(np.ones(2))}, "noise must have scalar"),
        ({"noise": dp.Histogram(1.0, [1, 2, 1])}, "noise must be log-concave"),
        ({"step": 0.0}, "step"),
        ({"step": np.nan}, "step"),
    ],
)
def test_hazards_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_plan(**arguments)


def test_long_steps_warn():
    with pytest.warns(UserWarning, match="step > 1"):
        make_plan(step=2.15)


def test_bad_traced_hyper_parameters_are_never_private():
    def delta(clip, step):
        return make_plan(clip=clip, step=step).guarantee.delta(1.0)

    def scales(epsilon):
        return make_plan(budget=dp.Budget(epsilon, 1e-6)).scales

    assert not jax.jit(delta)(-1.0, 1.0) <= 1
    assert np.all(np.isinf(jax.jit(scales)(jnp.nan)))


SMALL = dp.Budget(1.0, 20640.0**-2)


def small_plan(**kwargs):
    known = {"budget": SMALL, "smoothness": np.ones(8), "records": 20640, "passes": 5}
    return make_plan(order="cyclic", **(known | kwargs))


@pytest.mark.long
def test_a_laplace_plan_of_unequal_ratios_meets_its_budget_exactly():
    curvature = np.array([0.5, 1.0, 4.0, 0.1, 30.0, 2.0, 9.0, 0.01])
    made = small_plan(noise="laplace", allocation="inid", smoothness=curvature)
    assert np.ptp(np.asarray(made.ratios)) > 0
    delta = float(made.guarantee.delta(1.0))
    assert SMALL.delta * (1 - 1e-3) < delta <= SMALL.delta
    # Published for 40 equal updates: a deviation of 44.7 sensitivities (on a grid, rounded up).
    equal = small_plan(noise="laplace")
    np.testing.assert_allclose(equal.ratios, np.sqrt(2) / 44.7, rtol=2e-3)


@pytest.mark.long
def test_what_the_smoothness_cost_is_composed_exactly():
    spent = dp.PureDP(0.1)
    both = small_plan(spent=spent)
    assert 0 < 1 - float(both.guarantee.delta(1.0)) / float(SMALL.delta) < 1e-6
    alone, smaller = small_plan(), small_plan(budget=dp.Budget(0.9, SMALL.delta))
    # Cheaper than sharing epsilon between the two, and not free.
    assert alone.scales[0] < both.scales[0] < smaller.scales[0]
    by_hand = dp.privacy_loss(dp.GDP(np.sqrt(2 * both.rho))) + dp.privacy_loss(spent)
    np.testing.assert_allclose(both.guarantee.log_delta(1.0), by_hand.log_delta(1.0), rtol=1e-9)
    with pytest.raises(ValueError, match="beside the spent budget"):
        small_plan(spent=dp.PureDP(3.0))
