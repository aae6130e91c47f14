"""One description of a training, by name or scheme, in every function of DP-SGD."""

from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp._core.neighbours import Sampling

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
    by_object = {"sampling": scheme, "steps": 10}
    assert dp.dpsgd.epsilon(2.0, 1e-5, **by_object) == dp.dpsgd.epsilon(
        2.0, 1e-5, sampling=name, **SIZES, **more
    )


ALLOCATED = pytest.param("random_allocation", marks=pytest.mark.long)


@pytest.mark.parametrize("name", [*sorted(NAMED.keys() - {"random_allocation"}), ALLOCATED])
def test_a_plan_of_a_noise_multiplier_and_its_statement(name):
    more, scheme = NAMED[name]
    training = {"sampling": name, **SIZES, **more}
    plan = dp.dpsgd.plan(None, PARAMS, clip=1.0, noise_multiplier=2.0, **training)
    assert (plan.steps, float(plan.expected_batch)) == (10, 20.0)
    np.testing.assert_allclose(plan.scales, 2.0, rtol=1e-12)
    epsilon = dp.dpsgd.epsilon(2.0, 1e-5, **training)
    np.testing.assert_allclose(plan.guarantee.epsilon(1e-5), epsilon, rtol=1e-9)
    expected = dp.dpsgd.statement(2.0, 1e-5, **training).splitlines()
    assert plan.statement(1e-5).splitlines()[:2] == expected[:2]
    assert scheme.statement().sampling in expected[1]


def test_a_plan_takes_a_budget_or_a_noise_multiplier():
    for budget, noise in ((None, None), ((1.0, 1e-5), 2.0)):
        with pytest.raises(ValueError, match="give either budget or noise_multiplier"):
            dp.dpsgd.plan(budget, PARAMS, clip=1.0, noise_multiplier=noise, **SIZES)
    with pytest.raises(ValueError, match="dataset_size must be a positive integer"):
        dp.dpsgd.plan((1.0, 1e-5), PARAMS, clip=1.0, sampling_prob=0.1, steps=3)
    plan: Any = dp.dpsgd.plan
    with pytest.raises(TypeError, match="'records' is 'dataset_size' here"):
        plan((1.0, 1e-5), PARAMS, clip=1.0, sampling_prob=0.1, steps=3, records=9)


def test_positional_arguments_of_other_libraries_are_answered():
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
    plan = dp.dpsgd.plan(
        *(None, PARAMS),
        clip=1.0,
        noise_multiplier=2.0,
        dataset_size=40,
        steps=7,
        sampling=S.RandomAllocation(7, selected=3),
    )
    data, key = jnp.ones((40, 2)), jax.random.key(1)

    def loss(params, x):
        return jnp.sum((params["w"] - x) ** 2)

    trained = dp.dpsgd.train(loss, PARAMS, data, plan, optax.sgd(0.1), key)
    assert np.all(np.isfinite(trained["w"]))


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
