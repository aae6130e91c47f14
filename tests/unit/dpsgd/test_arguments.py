"""Arguments of DP-SGD: names, swapped numbers, descriptions of a training, refused calls."""

from typing import Any, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp._core.neighbours import Sampling
from jaxdp.sampling import Poisson

SHORT = {"sampling_prob": 0.01, "steps": 100}


@pytest.mark.parametrize(
    ("ask", "arguments", "words"),
    [
        (dp.dpsgd.noise_multiplier, {"target_epsilon": 1.0}, "'target_epsilon' is 'epsilon' here"),
        (dp.dpsgd.steps, {"sample_rate": 0.1}, "'sample_rate' is 'sampling_prob' here"),
        (dp.dpsgd.delta, {"sigma": 1.0}, "'sigma' is 'noise_multiplier' here"),
        (dp.dpsgd.curve, {"num_epochs": 3}, "'num_epochs' is 'epochs' here"),
        (dp.dpsgd.statement, {"neighboring_relation": "add"}, "is 'relation' here"),
        (dp.dpsgd.Phase, {"number_of_examples": 3}, "is 'dataset_size' here"),
        (dp.dpsgd.epsilon, {"target_epsilon": 1, "sigma": 2}, "is 'epsilon' here, 'sigma' is"),
        (dp.dpsgd.epsilon, {"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_the_error_translates_names_of_other_libraries(ask, arguments, words):
    with pytest.raises(TypeError, match=words):
        ask(**{"noise_multiplier": 1.0, **arguments})


def test_a_delta_near_one_is_a_warning():
    """Swapped, the noise multiplier is taken for delta."""
    with pytest.warns(UserWarning, match="delta is 1: .* delta is the second argument"):
        assert dp.dpsgd.epsilon(1e-5, 1.0, **SHORT) == 0
    with pytest.warns(UserWarning, match=r"delta is 0\.7"):
        assert dp.dpsgd.noise_multiplier(epsilon=1.0, delta=0.7, **SHORT) == 0
    dp.dpsgd.epsilon(1.0, 0.1, **SHORT)


def test_a_budget_that_needs_no_noise():
    """Any epsilon, or a delta that allows to publish every sample: 100 of them, or 8."""
    epsilon, steps = np.array([np.inf, 1.0]), np.array([100, 8])
    least = dp.dpsgd.noise_multiplier(epsilon=epsilon, delta=0.01, sampling_prob=0.001, steps=steps)
    np.testing.assert_array_equal(least, 0.0)
    zero = dp.dpsgd.noise_multiplier(epsilon=np.inf, delta=0.0, **SHORT)
    assert zero == 0


S, PARAMS = dp.sampling, {"w": jnp.zeros(2)}
SIZES = {"dataset_size": 100, "batch_size": 20, "epochs": 2}
# A scheme by name, and the same scheme as an object.
NAMED = {
    "poisson": ({}, S.Poisson(0.2)),
    "truncated": ({"batch_size_limit": 25}, S.TruncatedPoisson(0.2, 25, 100)),
    "without_replacement": ({}, S.WithoutReplacement(20, 100)),
    "random_allocation": ({}, S.RandomAllocation(5)),
    "balls_in_bins": ({}, S.BallsInBins(5, 2)),
}


def test_every_name_has_a_class():
    assert set(S.SCHEMES) == set(get_args(Sampling)) == set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_its_scheme(name):
    more, scheme = NAMED[name]
    by_name = dp.dpsgd.Phase(2.0, sampling=name, **SIZES, **more)
    assert type(by_name.sampling) is type(scheme)
    for found, expected in zip(*map(jax.tree.leaves, (by_name.sampling, scheme)), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert float(by_name.steps) == 10
    np.testing.assert_allclose(by_name.sampling_prob, 0.2)


@pytest.mark.parametrize("name", ["poisson", "without_replacement"])
def test_a_plan_of_a_noise_multiplier_and_its_statement(name):
    more, scheme = NAMED[name]
    training = {"sampling": name, **SIZES, **more}
    plan = dp.dpsgd.plan(None, PARAMS, clip=1.0, noise_multiplier=2.0, **training)
    assert (plan.steps, float(plan.expected_batch)) == (10, 20.0)
    np.testing.assert_allclose(plan.scales, 2.0, rtol=1e-12)
    epsilon = dp.dpsgd.epsilon(2.0, 1e-5, **training)
    np.testing.assert_allclose(plan.guarantee.epsilon(1e-5), epsilon, rtol=1e-9)
    expected = dp.dpsgd.statement(2.0, 1e-5, **training).sentences
    assert plan.statement(1e-5).sentences[:2] == expected[:2]
    assert plan.delta == 1e-6
    assert scheme.statement().sampling in expected[1]


def test_the_statement_of_a_plan_has_the_delta_of_its_budget():
    found = dp.dpsgd.plan(dp.ApproxDP(2.0, 1e-5), PARAMS, clip=1.0, **SIZES).statement()
    assert found.delta == 1e-5
    assert 1.9 < found.epsilon < 2.0 + 1e-8


def test_the_plan_of_a_pure_budget_has_the_delta_of_its_sampling_error():
    once = {"sampling_prob": 1.0, "steps": 1, "dataset_size": 100, "noise": "laplace"}
    plan = dp.dpsgd.plan((2.0, 0.0), PARAMS, clip=1.0, **once)
    assert 0 < plan.delta < 1e-15
    assert 1.9 < plan.guarantee.epsilon(plan.delta) <= 2.0
    assert plan.guarantee.epsilon(plan.delta / 4) == np.inf
    floating = dp.dpsgd.plan(dp.PureDP(2.0), PARAMS, clip=1.0, release="float", **once)
    assert floating.delta == 0.0


def test_a_plan_takes_a_budget_or_a_noise_multiplier():
    for budget, noise in ((None, None), ((1.0, 1e-5), 2.0)):
        with pytest.raises(ValueError, match="give either budget or noise_multiplier"):
            dp.dpsgd.plan(budget, PARAMS, clip=1.0, noise_multiplier=noise, **SIZES)
    with pytest.raises(ValueError, match="dataset_size must be a positive integer"):
        dp.dpsgd.plan((1.0, 1e-5), PARAMS, clip=1.0, sampling_prob=0.1, steps=3)
    plan: Any = dp.dpsgd.plan
    with pytest.raises(TypeError, match="'num_samples' is 'dataset_size' here"):
        plan((1.0, 1e-5), PARAMS, clip=1.0, sampling_prob=0.1, steps=3, num_samples=9)


def test_the_error_lists_positional_arguments():
    epsilon: Any = dp.dpsgd.epsilon
    with pytest.raises(TypeError, match=r"epsilon takes \(noise_multiplier, delta\) by position"):
        epsilon(60_000, 256, 1.1, 15, 1e-5)
    positional = dp.dpsgd.noise_multiplier(1.0, 1e-5, sampling_prob=0.1, steps=10)
    named = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-5, sampling_prob=0.1, steps=10)
    assert positional == named


def test_a_record_joins_one_step_of_each_block():
    batch_of = S.RandomAllocation(7, selected=3).draw(jax.random.key(0), 40)
    epoch = [indices[mask] for indices, mask in map(batch_of, range(7))]
    for block in (epoch[:3], epoch[3:5], epoch[5:]):
        assert sorted(np.concatenate(block).tolist()) == list(range(40))
    again = [indices[mask] for indices, mask in map(batch_of, range(7, 14))]
    assert any(a.tolist() != b.tolist() for a, b in zip(epoch, again, strict=True))


def test_zcdp_counts_every_step_that_holds_the_record():
    """It was that of two contributions, less than the truth for more than 4 epochs."""
    for scheme, steps in ((S.BallsInBins(5, 15), 15.0), (S.RandomAllocation(9, selected=9), 9.0)):
        mechanism = dp.Mechanism(dp.Gaussian(2.0), 1.0, sampling=scheme, relation="add_remove")
        np.testing.assert_allclose(mechanism.zcdp().rho, steps / 8.0, rtol=1e-12)


def test_a_curve_of_allocated_records_has_epochs():
    curve = dp.dpsgd.curve(2.0, 1e-5, **SIZES, sampling="random_allocation")
    np.testing.assert_array_equal(curve.steps, [5.0, 10.0])
    whole = dp.dpsgd.epsilon(2.0, 1e-5, **SIZES, sampling="random_allocation")
    np.testing.assert_allclose(curve.epsilon[-1], whole, rtol=1e-9)
    with pytest.raises(ValueError, match="whole epochs of 5 steps"):
        dp.dpsgd.curve(2.0, 1e-5, **SIZES, sampling="random_allocation", every=3)


KEY = jax.random.key(0)
ONE = np.ones(())
# One step of five parameters: no calibration.
PLAN = dpsgd.Plan(
    *(np.ones(1), np.ones(1), ONE, Poisson(1.0), ONE, (0,), (5,), ((5,),), ("float16",)),
    *(1, "gaussian", "add"),
)


def test_nothing_runs_in_float32():
    """Norms in float32 were above their threshold, by up to 6e-8 of it."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(40, 5)).astype(np.float32)
    clip, noise = dpsgd.clip_groups(PLAN), dpsgd.add_noise(PLAN, KEY)
    expected, _ = clip.update(gradients, optax.EmptyState())
    with jax.enable_x64(False):
        for update in (clip.update, jax.jit(clip.update)):
            total: Any = update(jnp.asarray(gradients), optax.EmptyState())[0]
            assert total.dtype == jnp.float64
            np.testing.assert_array_equal(total, expected)
            for row in gradients:
                alone, _ = clip.update(row[None], optax.EmptyState())
                assert np.linalg.norm(alone) <= 1.0
        mean, state = cast(Any, noise.update(total, noise.init(None)))
        jitted: Any = jax.jit(noise.update)(total, noise.init(None))[0]
        assert (mean.dtype, state.made.dtype) == (PLAN.dtypes[0], jnp.int32)
    again: Any = noise.update(expected, noise.init(None))[0]
    np.testing.assert_allclose(mean, again, rtol=1e-6)
    np.testing.assert_allclose(mean, jitted, rtol=1e-6)


def test_noise_ends_with_the_plans_steps():
    noise, zero = dpsgd.add_noise(PLAN, KEY), jnp.zeros(5)
    mean, state = noise.update(zero, noise.init(None))
    with pytest.raises(ValueError, match="the plan's 1 steps, which are made"):
        noise.update(zero, state)
    assert np.isnan(np.asarray(jax.jit(noise.update)(zero, state)[0], float)).all()
    with pytest.raises(ValueError, match="optimizer must be without add_noise"):
        dpsgd.train(
            lambda p, x: jnp.sum(p * x), zero, np.ones((3, 5)), PLAN, optax.chain(noise), KEY
        )
    assert mean.shape == (5,)


@pytest.mark.parametrize("leaf", [jnp.zeros(2, int), jnp.zeros(2, complex)])
def test_parameters_are_floating_point_numbers(leaf):
    params = {"w": jnp.zeros(2), "n": leaf}
    with pytest.raises(ValueError, match=r"params\['n'\] must contain floating-point numbers, got"):
        dpsgd.plan((1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=1, dataset_size=9)
    five = jnp.zeros(5, leaf.dtype)
    with pytest.raises(ValueError, match=f"params must contain floating-point .* {leaf.dtype}"):
        dpsgd.train(lambda p, x: 1.0, five, np.ones((3, 5)), PLAN, optax.sgd(1.0), KEY)


def test_a_size_without_an_effect_is_refused():
    """A probability has the rate already, or a scheme does; of a limit the size has an effect."""
    sizes = {"dataset_size": 10, "steps": 3}
    for ask in (dpsgd.Phase, dpsgd.shuffled_bounds):
        with pytest.raises(ValueError, match="dataset_size=10, batch_size=None, sampling_prob"):
            ask(1.0, sampling_prob=0.1, **sizes)
    with pytest.raises(ValueError, match="sampling must be a name where dataset_size"):
        dpsgd.Phase(1.0, sampling=Poisson(0.1), **sizes)
    cut = {"sampling": "truncated", "batch_size_limit": 4, "sampling_prob": 0.1}
    assert dpsgd.epsilon(1.0, 1e-6, **cut, **sizes) > 0
