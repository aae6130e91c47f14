"""Sweeps and calibrations over sampling schemes are the single calls that they stand for."""

import numpy as np
import pytest

import jaxdp as dp

S = dp.sampling
RUN = {"dataset_size": 1000, "batch_size": 20, "steps": 200}
NOISE = np.array([0.9, 1.3])


def released(noise_multiplier, scheme, count):
    step = dp.Mechanism(dp.Gaussian(noise_multiplier), 1.0, sampling=scheme, relation="add_remove")
    return count * dp.privacy_loss(step)


def truncated(noise_multiplier, limit):
    return dp.dpsgd.epsilon(
        noise_multiplier, 1e-6, **RUN, sampling="truncated", batch_size_limit=limit
    )


def without_replacement(noise_multiplier, batch):
    return released(noise_multiplier, S.WithoutReplacement(batch, 1000), 200).log_delta(2.0)


def grouped(noise_multiplier, sampling_prob):
    step = dp.Mechanism(
        dp.Gaussian(noise_multiplier), 1.0, sampling_prob, "add_remove", group_size=2
    )
    return (200 * dp.privacy_loss(step)).epsilon(1e-6)


def allocated(noise_multiplier, epsilon):
    return released(noise_multiplier, S.RandomAllocation(10), 5).log_delta(epsilon)


SWEEPS = {
    "truncated": (truncated, {"limit": [20, 26]}),
    "without_replacement": (without_replacement, {"batch": [10, 20]}),
    "group": (grouped, {"sampling_prob": [0.01, 0.03]}),
    "random_allocation": (allocated, {"epsilon": [1.0, 3.0]}),
}
QUICK = ("without_replacement",)
NAMES = [pytest.param(k, marks=() if k in QUICK else pytest.mark.long) for k in SWEEPS]


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_is_its_single_calls(name):
    function, other = SWEEPS[name]
    found = dp.sweep(function, {"noise_multiplier": NOISE, **other}, progress=False)["value"]
    assert found.attrs.get("failures", "") == ""
    (values,) = other.values()
    alone = [[float(function(s, v)) for v in values] for s in NOISE]
    np.testing.assert_allclose(found, alone, rtol=1e-8)
    assert np.all(np.diff(alone, axis=0) < 0), alone


CALIBRATED = {
    "truncated": lambda s: released(s, S.TruncatedPoisson(0.02, 26, 1000), 200),
    "without_replacement": lambda s: released(s, S.WithoutReplacement(20, 1000), 200),
    "random_allocation": lambda s: released(s, S.RandomAllocation(10), 5),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CALIBRATED)
def test_calibrated_noise_keeps_the_budget_and_no_less_does(name):
    build, epsilon, delta = CALIBRATED[name], np.array([1.0, 3.0]), 1e-6
    least = dp.calibrate(build, dp.Budget(epsilon, delta))
    assert np.all(np.asarray(build(least).delta(epsilon)) <= delta)
    assert np.all(np.asarray(build(least * (1.0 - 1e-6)).delta(epsilon)) > delta)
    alone = [float(dp.calibrate(build, dp.Budget(e, delta))) for e in epsilon]
    np.testing.assert_allclose(least, alone, rtol=1e-8)
