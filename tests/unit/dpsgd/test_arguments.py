"""Arguments of DP-SGD: other libraries' names, swapped numbers, no noise, several noises."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp

SHORT = {"sampling_prob": 0.01, "steps": 100}


@pytest.mark.parametrize(
    ("ask", "arguments", "words"),
    [
        (dp.dpsgd.epsilon, {"target_delta": 1e-5}, "'target_delta' is 'delta' here"),
        (dp.dpsgd.epsilon, {"sample_rate": 0.1}, "'sample_rate' is 'sampling_prob' here"),
        (dp.dpsgd.noise_multiplier, {"target_epsilon": 1.0}, "'target_epsilon' is 'epsilon' here"),
        (dp.dpsgd.steps, {"target_epsilon": 1.0}, "'target_epsilon' is 'epsilon' here"),
        (dp.dpsgd.delta, {"sampling_probability": 0.1}, "is 'sampling_prob' here"),
        (dp.dpsgd.curve, {"num_epochs": 3}, "'num_epochs' is 'epochs' here"),
        (dp.dpsgd.statement, {"neighboring_relation": "add"}, "is 'relation' here"),
        (dp.dpsgd.Phase, {"source_dataset_size": 3}, "is 'dataset_size' here"),
        (dp.dpsgd.epsilon, {"eps": 1, "sigma": 2}, "'eps' is 'epsilon' here, 'sigma' is"),
        (dp.dpsgd.epsilon, {"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(ask, arguments, words):
    with pytest.raises(TypeError, match=words):
        ask(**{"noise_multiplier": 1.0, **arguments})


def test_a_delta_near_one_is_a_warning():
    """Swapped, the noise multiplier is taken for delta."""
    with pytest.warns(UserWarning, match="delta is 1: .* noise multiplier first"):
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


@pytest.mark.parametrize("name", ["sampling_prob", "steps", "batch_size", "dataset_size"])
def test_noise_is_traced_by_the_schedule(name):
    sizes = {"dataset_size": 1000.0, "batch_size": 10.0}
    by_rate = name in SHORT
    schedule = dict(SHORT) if by_rate else {**sizes, "steps": 100.0}

    def least(value):
        return dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-5, **{**schedule, name: value})

    traced = jax.eval_shape(jax.grad(least), float(schedule[name]))
    assert traced.shape == ()


@pytest.mark.long
def test_derivative_of_noise_by_the_rate():
    least = functools.partial(dp.dpsgd.noise_multiplier, epsilon=1.0, delta=1e-5, steps=100)
    slope = jax.grad(lambda q: least(sampling_prob=q))(0.01)
    at = least(sampling_prob=jnp.array([0.01 - 1e-5, 0.01 + 1e-5]))
    np.testing.assert_allclose(slope, (at[1] - at[0]) / 2e-5, rtol=1e-4)


def test_several_noises_of_one_sample():
    combined = dp.dpsgd.combined_noise_multiplier
    both = combined([1.0, 1.0])
    assert 0 <= np.sqrt(0.5) - both < 1e-14
    np.testing.assert_allclose(combined([1.0, np.array([2.0, np.inf])]), [2 / 5**0.5, 1.0], 1e-14)
    np.testing.assert_allclose(combined([1e-200, 1e-200]), 0.5**0.5 * 1e-200, 1e-14)
    assert combined([3.0]) == 3.0
    assert combined([np.inf, np.inf]) == np.inf
    schedule = {"sampling_prob": 0.01, "steps": 1000}
    np.testing.assert_allclose(dp.dpsgd.epsilon(both, 1e-6, **schedule), 5.287129, 1e-6)
    for bad in ([], [1.0, 0.0], [-1.0]):
        with pytest.raises(ValueError, match="noise_multipliers must"):
            combined(bad)
