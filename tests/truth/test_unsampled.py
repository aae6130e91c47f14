"""No sampled Gaussian costs more than the same unsampled, however small its noise."""

import jax
import numpy as np
import pytest

import jaxdp as dp

SCHEMES = [
    (1.0, dp.dpsgd.Phase(0.5, sampling_prob=0.1, steps=9), "add_remove", 1),
    (1.0, dp.dpsgd.Phase(0.5, sampling_prob=0.1, steps=9), "zero_out", 1),
    (2.0, dp.dpsgd.Phase(0.5, sampling_prob=0.1, steps=9), "replace_one", 1),
    (3.0, dp.dpsgd.Phase(0.5, sampling_prob=0.1, steps=9), "add_remove", 3),
]
SIZES = {"dataset_size": 100, "batch_size": 10}
SCHEMES += [
    (2.0, dp.dpsgd.Phase(0.5, **SIZES, steps=9, sampling="without_replacement"), name, 1)
    for name in ("add_remove", "replace_one")
]
SCHEMES += [
    (
        2.0,
        dp.dpsgd.Phase(0.5, **SIZES, steps=9, sampling="truncated", batch_size_limit=12),
        "add_remove",
        1,
    )
]


@pytest.mark.parametrize(("shift", "phase", "relation", "group"), SCHEMES)
def test_no_scheme_costs_more_than_its_gaussian(shift, phase, relation, group):
    loss, whole = phase.loss(relation, group), dp.GDP(shift * 3 / 0.5)
    delta, epsilon = np.array([1e-5, 1e-12]), np.array([1.0, 50.0, 1000.0])
    assert np.all(loss.epsilon(delta) <= whole.epsilon(delta) * (1 + 1e-12))
    assert np.all(loss.log_delta(epsilon) <= whole.log_delta(epsilon) * (1 - 1e-11))


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "hits"),
    [(1e-6, 0.5, 10, 10), pytest.param(1e-3, 0.01, 1000, 20, marks=pytest.mark.long)],
)
def test_epsilon_of_noise_far_below_the_sensitivity(noise, rate, steps, hits):
    """An engine alone reports 1.8e-6 more of the first, and infinity of the second.

    That many hits have a probability above 5e-4: delta is far above 1e-5 up to half their mu^2.
    """
    epsilon = dp.dpsgd.epsilon(noise, 1e-5, sampling_prob=rate, steps=steps)
    assert epsilon <= dp.GDP(np.sqrt(steps) / noise).epsilon(1e-5) * (1 + 1e-12)
    assert epsilon >= 0.5 * hits / noise**2


@pytest.mark.parametrize("rate", [np.nan, 1.5, -0.5])
def test_a_bad_rate_is_not_covered(rate):
    """By what the Gaussian without sampling would cost."""

    @jax.jit
    def epsilon(rate):
        step = dp.Mechanism(dp.Gaussian(0.5), 1.0, rate, "add_remove")
        return (9 * dp.privacy_loss(step)).epsilon(1e-5)

    assert epsilon(0.1) < np.inf
    assert np.isnan(epsilon(rate))
