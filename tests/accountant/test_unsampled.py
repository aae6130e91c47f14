"""No sampled Gaussian costs more than the same unsampled, however small its noise."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant import unsampled
from jaxdp.accountant.bounds import LogBounds

UNKNOWN = LogBounds(np.zeros(1), np.full(1, np.inf))
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
def test_the_gaussian_above_each_scheme(shift, phase, relation, group):
    terms = jax.tree.map(lambda x: np.asarray(x)[None], phase.loss(relation, group).terms)
    bounds = unsampled.bound_epsilon(terms, np.full(1, 1e-5), UNKNOWN)
    unsampled_epsilon = dp.GDP(shift * 3 / 0.5).epsilon(1e-5)
    np.testing.assert_allclose(bounds.upper, unsampled_epsilon, rtol=1e-12)
    above = LogBounds(np.full(1, -np.inf), np.zeros(1))
    log_delta = unsampled.bound_log_delta(terms, np.full(1, 1000.0), above).upper
    np.testing.assert_allclose(log_delta, dp.GDP(shift * 3 / 0.5).log_delta(1000.0), rtol=1e-11)


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


def test_bad_parameters_are_not_covered():
    phase = dp.dpsgd.Phase(0.5, sampling_prob=0.1, steps=9)
    terms = jax.tree.map(lambda x: np.asarray(x)[None], phase.loss("add_remove").terms)
    unknown = LogBounds(np.zeros(1), np.full(1, np.nan))
    assert unsampled.bound_epsilon(terms, np.full(1, 1e-5), unknown).upper < np.inf
    for rate in (np.nan, 1.5, -0.5):
        wrong = jax.tree.map(lambda x, r=rate: np.full_like(x, r) if np.all(x == 0.1) else x, terms)
        assert np.isnan(unsampled.bound_epsilon(wrong, np.full(1, 1e-5), unknown).upper)
