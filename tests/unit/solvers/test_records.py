"""Records of one length, keys, argument order; plans pay for what their draws are off by."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp.guarantee.drawn import Drawn
from jaxdp.solvers import coordinate_descent, covariance, lattice, naive_bayes, scaling
from jaxdp.solvers.problems import Problem

KEY = jax.random.key(0)
PARAMS = {"bias": jnp.zeros(()), "weight": jnp.zeros(3)}
X, Y = jnp.ones((100, 3)), jnp.ones(100)


def made_for_params():
    """A plan without a calibration."""
    one = jnp.ones(1)
    of_params = (0, 0), (4,), ((), (3,)), ("float64", "float64")
    return dpsgd.Plan(
        one, one, one[0], 0.5 * one[0], 50 * one[0], *of_params, 1, "gaussian", "add_remove"
    )


def loss(params, example):
    x, y = example
    return (x @ params["weight"] + params["bias"] - y) ** 2


def train(data, params=PARAMS):
    return dpsgd.train(loss, params, data, made_for_params(), optax.sgd(0.1), KEY)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:1]), r"data\[1\] must have as many records as data\[0\], 100, got 1"),
        ({"x": X, "y": Y[:99]}, r"data\['y'\] must have .* data\['x'\], 100, got 99"),
        (((X, {"mask": Y}), Y[:0]), r"data\[1\] must have .* data\[0\]\[0\], 100, got 0"),
        ((X[:0], Y[:0]), r"data\[0\] must hold 1 record at least, got 0"),
        (X[:0], "data must hold 1 record at least, got 0"),
        ((X, 1.0), r"data\[1\] must be an array with the records along its first axis"),
        ((), "data must hold an array"),
    ],
)
def test_a_training_takes_arrays_of_one_length(data, message):
    with pytest.raises(ValueError, match=message):
        train(data)


def bayes():
    """Of one categorical and one continuous column, without a calibration."""
    noise = dp.Gaussian(1.0)
    ends = -jnp.ones(1), jnp.ones(1)
    return naive_bayes.Plan(noise, noise, *ends, None, 2, (3, 0), 1024, "add_remove")


def moment(records):
    return covariance.Plan(jnp.ones(2), jnp.ones(()), jnp.ones(()), 3, records, "add_remove")


def descend(records, targets):
    problem = Problem(jnp.ones((2, records)), jnp.ones(targets), dp.solvers.L2(0.1), "squared")
    plan = dp.solvers.coordinate_descent.noiseless_plan([0.5, 0.5], passes=1)
    return dp.solvers.coordinate_descent.run(problem, plan, KEY)


def scaled(records, bounds=3):
    ends = -np.ones(bounds), np.ones(bounds)
    return scaling.release(np.ones((records, 3)), *ends, dp.GDP(1.0), KEY, relation="add_remove")


MODEL = naive_bayes.Model(*map(jnp.ones, ((2,), (2,), (2, 1, 3), (2, 1), (2, 1))))
ROWS, ONES = np.ones((4, 2)), np.ones(4)
REFUSED = {
    "naive Bayes, none": (
        lambda: naive_bayes.release(ROWS[:0], ONES[:0], bayes(), KEY),
        "features must hold 1 record at least",
    ),
    "naive Bayes, columns": (
        lambda: naive_bayes.log_joint(ROWS[:, :1], MODEL, bayes()),
        r"features must be \(n, 2\), got \(4, 1\)",
    ),
    "descent": (lambda: descend(64, 1), "problem.design, 64, got 1"),
    "descent, none": (lambda: descend(0, 0), "problem.design must hold 1 record at least"),
    "covariance": (
        lambda: jax.eval_shape(lambda x, key: covariance.release(x, moment(4), key), X, KEY),
        r"features must be \(4, 3\), got \(100, 3\)",
    ),
    "scaling, none": (lambda: scaled(0), "values must hold 1 record at least, got 0"),
    "scaling, bounds": (lambda: scaled(4, 1), r"lower and upper \(p,\)"),
    "sample, none": (
        lambda: dp.sampling.batch(dp.sampling.Poisson(0.5), KEY, 0, 4),
        "records must be a positive",
    ),
}


@pytest.mark.float64
@pytest.mark.parametrize("name", REFUSED)
def test_every_other_door_takes_records_of_one_length(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_gradients_without_their_axis_are_told_what_is_missing():
    clip = dpsgd.clip_groups(made_for_params()).update
    with pytest.raises(ValueError, match=r"'weight'\] must have shape \(examples, 3\), .* \(3,\)"):
        clip({"bias": jnp.ones(4), "weight": jnp.ones(3)}, None)
    uneven = {"bias": jnp.ones(4), "weight": jnp.ones((1, 3))}
    for update in (clip, jax.jit(clip)):
        with pytest.raises(ValueError, match=r"'weight'\] must have as many examples .* 4, got 1"):
            update(uneven, None)


@pytest.mark.parametrize("key", [0, None, np.int64(3), jnp.zeros(2)], ids=str)
def test_a_draw_asks_for_a_key(key):
    """Without the tests' own checks of types, which users do not have."""
    with pytest.raises(ValueError, match=r"key must be .* such as jax.random.key\(seed\)"):
        inspect.unwrap(dp.Gaussian.sample)(dp.Gaussian(1.0), key, (3,))


PLAN, SGD = made_for_params(), optax.sgd(0.1)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((PARAMS, loss, (X, Y), PLAN, SGD, KEY), "loss must be a function"),
        ((loss, (X, Y), PARAMS, PLAN, SGD, KEY), r"params\[0\] must have shape \(\) of its"),
        ((loss, PARAMS, PLAN, (X, Y), SGD, KEY), "plan must be a Plan"),
        ((loss, PARAMS, (X, Y), SGD, PLAN, KEY), "plan must be a Plan"),
        ((loss, PARAMS, (X, Y), PLAN, KEY, SGD), "optimizer must be a transformation"),
        ((loss, PARAMS, (X, Y), PLAN, SGD, 0), "key must be a key of jax.random"),
    ],
)
def test_arguments_in_another_order_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        inspect.unwrap(dpsgd.train)(*arguments)


BUDGET, EACH = (1.0, 1e-3), 2.0**-20
KNOWN = {"records": 1000, "relation": "replace_one"}
DESCENT = {"smoothness": np.ones(2), "clip": 1.0, "passes": 2, "order": "cyclic"}


def descent(**other):
    return coordinate_descent.plan(BUDGET, **DESCENT, **KNOWN, **other).guarantee


PLANS = {
    "covariance": lambda: covariance.plan(BUDGET, dimension=2, **KNOWN).guarantee,
    "descent": descent,
    "dp_sgd": lambda: (
        dpsgd.plan(
            BUDGET, {"w": jnp.zeros(2)}, clip=1.0, sampling_prob=1.0, steps=2, dataset_size=100
        ).guarantee
    ),
    "naive_bayes": lambda: (
        naive_bayes.plan(BUDGET, classes=2, categories=[3, 0], relation="add_remove").guarantee
    ),
}


@pytest.fixture
def large_errors(monkeypatch):
    """Errors of 2^-20 a draw, in what is stated; draws themselves are as ever."""
    monkeypatch.setattr(lattice, "sampling_error", lambda draws, _: jnp.asarray(draws * EACH))
    monkeypatch.setattr(
        naive_bayes, "whole_noise_error", lambda _, draws: jnp.asarray(draws * EACH)
    )


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_keeps_its_budget_with_the_draws_error(name, large_errors):
    drawn = PLANS[name]()
    assert EACH < drawn.sampling_error < 64 * EACH
    exact, lost = float(drawn.exact.delta(1.0)), (1.0 + np.e) * float(drawn.sampling_error)
    np.testing.assert_allclose([drawn.delta(1.0), exact + lost], 1e-3, rtol=1e-6)
    assert drawn.delta(1.0) <= 1e-3


def test_what_was_spent_before_has_errors_of_its_own(large_errors):
    alone, before = descent(), Drawn(dp.GDP(0.01), 1e-6)
    both = descent(spent=before)
    np.testing.assert_allclose(both.sampling_error, alone.sampling_error + 1e-6, rtol=1e-12)
    assert 1e-3 * (1.0 - 1e-6) < both.delta(1.0) <= 1e-3


def test_budgets_that_draws_do_not_keep_are_refused():
    for budget in ((60.0, 1e-6), (1.0, 1e-22)):
        with pytest.raises(ValueError, match="to cover the sampling error"):
            covariance.plan(budget, dimension=2, **KNOWN)
    # Of floating point nothing is known, and nothing is taken off.
    research = covariance.plan(BUDGET, dimension=2, **KNOWN, release="float").guarantee
    assert research.delta(1.0) == 1.0
    assert 1e-3 * (1 - 1e-9) < research.exact.delta(1.0) <= 1e-3
