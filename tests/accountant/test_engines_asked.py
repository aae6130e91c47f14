"""Which engines a question asks: no more than its answer needs, as each compiles for seconds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant import engines, evaluate
from jaxdp.composition import bounded_range
from jaxdp.guarantee.tradeoff import tradeoff_line

DP_SGD = {"sampling_prob": 0.01, "steps": 1000}
SHORT = ("by_contour",)
SAMPLED = "log_bounds"


@pytest.fixture
def asked(monkeypatch):
    """The engines that are asked, in turn: name and setting of each call."""
    calls = []

    def recorded(choose):
        def steps_of(*args, **options):
            return tuple(step._replace(engine=called(step)) for step in choose(*args, **options))

        def called(step):
            def engine(terms, values):
                function = getattr(step.engine, "func", step.engine)
                setting = tuple(getattr(step.engine, "keywords", {}).values())
                calls.append((function.__name__, *setting))
                return step.engine(terms, values)

            return engine

        return steps_of

    for name in ("engines_of", "inverses_of"):
        monkeypatch.setattr(engines, name, recorded(getattr(engines, name)))
    return calls


def test_noise_is_searched_for_by_one_engine_in_few_steps(asked):
    least = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, **DP_SGD)
    assert {name for name, *_ in asked} == {SAMPLED}
    assert len(asked) <= 8
    delta = dp.dpsgd.delta(jnp.stack([least, least * (1.0 - 1e-6)]), 1.0, **DP_SGD)
    assert delta[0] <= 1e-6 < delta[1]


def test_far_from_the_answer_no_further_engine_is_asked(asked):
    def build(scale):
        return 1000 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, 0.01, "add_remove"))

    least = dp.calibrate(build, (1.0, 1e-6))
    assert {name for name, *_ in asked} == {SAMPLED}
    np.testing.assert_allclose(least, 1.562666, atol=1e-6)


def test_bounds_that_are_enough_ask_no_further_engine(asked):
    loss = 3 * dp.privacy_loss(dp.Mechanism(dp.Laplace(jnp.asarray([1.0, 2.0])), 1.0))
    nothing = evaluate.log_delta(loss.terms, jnp.ones(2), loss.both, lambda x: x.upper > 0)
    assert len(asked) > 1
    asked.clear()
    first = evaluate.log_delta(loss.terms, jnp.ones(2), loss.both, lambda x: x.upper <= 0)
    assert asked == [SHORT]
    assert np.all(first.lower <= nothing.lower)
    assert np.all(first.upper >= nothing.upper)
    one = jnp.asarray([True, False])
    asked.clear()
    either = evaluate.log_delta(loss.terms, jnp.ones(2), loss.both, lambda x: one)
    assert len(asked) > 1
    assert either.upper[0] == first.upper[0]
    assert either.upper[1] == nothing.upper[1]


def schedule(epochs):
    accountant = dp.dpsgd.Accountant()
    accountant.load_state_dict(
        {"mechanism": "jaxdp", "history": [(2 * 0.99**epoch, 0.01, 10) for epoch in range(epochs)]}
    )
    return accountant


def test_a_schedule_that_grows_compiles_no_engine_anew(caplog):
    # From 2 entries on: those of the first epoch are equal, and have a contour of their own.
    schedule(2).get_epsilon(1e-6)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        epsilons = [schedule(epochs).get_epsilon(1e-6) for epochs in (3, 7)]
    compiled = {
        name
        for record in caplog.records
        for name in ("table_of", "joined", "_stage", "plan_at", "term_values", "solved")
        if record.getMessage().startswith("Compiling") and name in record.getMessage()
    }
    assert not compiled
    assert 0.134 < epsilons[0] < 0.135
    assert 0.201 < epsilons[1] < 0.202


def test_a_tradeoff_is_asked_at_few_epsilons_outside_of_traces(asked):
    loss = 1000 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.01, "add_remove"))
    rate = dp.tpr_at_fpr(loss, 1e-3)
    assert {name for name, *_ in asked} == {SAMPLED}
    assert len(asked) <= 10
    # The search inside a trace, and at any epsilon tpr <= delta + e^epsilon fpr.
    np.testing.assert_allclose(rate, 0.00406844788158, atol=1e-10)
    assert rate >= 0.00406844788158 - 1e-13


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(
            lambda: 5 * dp.privacy_loss(dp.PureDP(0.5)), id="kinks", marks=pytest.mark.long
        ),
        pytest.param(
            lambda: 4 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 1.0)), id="Gaussian"
        ),
    ],
)
def test_tradeoffs_of_known_compositions_are_below_and_near(loss):
    loss = loss()
    rates = np.array([0.0, 1e-12, 1e-3, 0.2, 0.5, 0.9, 1.0])
    near = np.asarray(loss.tradeoff(rates))
    inside = np.asarray(jax.jit(loss.tradeoff)(rates))
    np.testing.assert_allclose(near, inside, atol=1e-9)
    rough = functools.partial(bounded_range.rough_log_delta, loss.terms, loss.both)
    picture = tradeoff_line(rough, rates)
    assert np.all(picture <= inside + 1e-9)
    np.testing.assert_allclose(picture, inside, atol=6e-3)
    one = loss.tradeoff(0.2)
    np.testing.assert_allclose(one, near[3], atol=1e-9)
