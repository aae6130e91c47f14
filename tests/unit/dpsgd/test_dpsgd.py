"""DP-SGD in one call against the direct composition."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.dpsgd.statement import rounded_up

MNIST = {"dataset_size": 60_000, "batch_size": 256, "epochs": 15}
SHORT = {"sampling_prob": 0.01, "steps": 1000}


def direct(noise_multiplier, sampling_prob, steps, relation="add_remove"):
    one = dp.Mechanism(dp.Gaussian(noise_multiplier), 1.0, sampling_prob, relation)
    return steps * dp.privacy_loss(one)


def test_both_languages_are_the_direct_composition():
    expected = direct(1.1, 256 / 60_000, 3516).epsilon(1e-5)
    assert dp.dpsgd.epsilon(1.1, 1e-5, **MNIST) == expected
    # 3516 steps: 15 * 60000 / 256 = 3515.6, rounded up.
    same = dp.dpsgd.epsilon(1.1, 1e-5, sampling_prob=256 / 60_000, epochs=15)
    assert same == expected
    assert dp.dpsgd.delta(1.1, 2.0, **MNIST) == direct(1.1, 256 / 60_000, 3516).delta(2.0)
    removed = dp.dpsgd.epsilon(1.1, 1e-5, **MNIST, relation="remove")
    assert removed == direct(1.1, 256 / 60_000, 3516, "remove").epsilon(1e-5)


def test_batches_broadcast():
    scales, deltas = np.array([[1.0], [2.0]]), np.array([1e-5, 1e-6])
    found = dp.dpsgd.epsilon(scales, deltas, **SHORT)
    assert found.shape == (2, 2)
    np.testing.assert_allclose(found[0, 1], dp.dpsgd.epsilon(1.0, 1e-6, **SHORT), rtol=1e-8)
    counts = dp.dpsgd.epsilon(2.0, deltas, sampling_prob=0.01, steps=np.array([1000, 10]))
    np.testing.assert_allclose(counts[0], found[1, 0], rtol=1e-8)
    assert counts[1] < counts[0]


def test_phases_compose():
    phases = [dp.dpsgd.Phase(1.0, **SHORT), dp.dpsgd.Phase(2.0, sampling_prob=0.02, steps=500)]
    expected = direct(1.0, 0.01, 1000) + direct(2.0, 0.02, 500)
    assert dp.dpsgd.epsilon(delta=1e-6, phases=phases) == expected.epsilon(1e-6)
    halves = [dp.dpsgd.Phase(1.0, sampling_prob=0.01, steps=500)] * 2
    whole = dp.dpsgd.epsilon(1.0, 1e-6, **SHORT)
    np.testing.assert_allclose(dp.dpsgd.epsilon(delta=1e-6, phases=halves), whole, rtol=1e-8)
    one = dp.dpsgd.epsilon(delta=1e-6, phases=phases[0])
    assert one == whole


def test_the_least_noise_is_on_the_safe_side():
    least = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, **SHORT)
    # The README's value of the direct calibration.
    np.testing.assert_allclose(least, 1.562666, atol=1e-6)
    assert dp.dpsgd.delta(least, 1.0, **SHORT) <= 1e-6
    assert dp.dpsgd.delta(least * (1 - 1e-6), 1.0, **SHORT) > 1e-6
    phases = [dp.dpsgd.Phase(2.0, **SHORT)]
    factor = dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, phases=phases)
    np.testing.assert_allclose(2.0 * factor, least, rtol=1e-6)


def test_one_step_more_exceeds():
    scales = np.array([0.7, 1.0])
    most = np.asarray(dp.dpsgd.steps(scales, epsilon=2.0, delta=1e-6, sampling_prob=0.01))
    assert most[1] == 874
    for extra, within in ((0, True), (1, False)):
        spent = dp.dpsgd.delta(scales, 2.0, sampling_prob=0.01, steps=most + extra)
        np.testing.assert_array_equal(np.asarray(spent) <= 1e-6, within)
    assert dp.dpsgd.steps(0.3, epsilon=0.1, delta=1e-9, sampling_prob=1.0) == 0
    assert dp.dpsgd.steps(math.inf, epsilon=0.1, delta=1e-9, sampling_prob=1.0) == 2**30


def test_curve():
    steps, epsilon, epochs = dp.dpsgd.curve(1.0, 1e-6, sampling_prob=0.01, steps=250)
    np.testing.assert_array_equal(steps, [100, 200, 250])
    np.testing.assert_array_equal(epochs, [1, 2, 2.5])
    expected = dp.dpsgd.epsilon(1.0, 1e-6, sampling_prob=0.01, steps=np.asarray(steps))
    np.testing.assert_allclose(epsilon, expected, rtol=1e-9)
    phases = [dp.dpsgd.Phase(np.array([1.0, 2.0]), sampling_prob=0.01, steps=150)]
    phases.append(dp.dpsgd.Phase(2.0, sampling_prob=0.02, steps=100))
    steps, epsilon, epochs = dp.dpsgd.curve(delta=1e-6, phases=phases, every=100)
    np.testing.assert_array_equal(steps, [100, 200, 250])
    np.testing.assert_allclose(epochs, [1, 2.5, 3.5], rtol=1e-12)
    assert epsilon.shape == (2, 3)
    assert (jnp.diff(epsilon) > 0).all()
    whole = dp.dpsgd.epsilon(delta=1e-6, phases=phases)
    np.testing.assert_allclose(epsilon[:, -1], whole, rtol=1e-8)
    epochs = dp.dpsgd.curve(delta=1e-6, phases=phases).steps
    np.testing.assert_array_equal(epochs, [100, 200, 250])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"steps": 10}, "give either dataset_size and batch_size or sampling_prob"),
        ({**SHORT, "dataset_size": 10, "batch_size": 1}, "give either dataset_size"),
        ({"sampling_prob": 0.1}, "give either epochs or steps"),
        ({**SHORT, "epochs": 1}, "give either epochs or steps"),
        ({"dataset_size": 10, "batch_size": 20, "steps": 1}, "batch_size / dataset_size must lie"),
        ({"dataset_size": 10.5, "batch_size": 2, "steps": 1}, "dataset_size must be whole"),
        ({"dataset_size": 10, "batch_size": 0, "steps": 1}, "batch_size must lie"),
        ({"sampling_prob": 0.1, "steps": 1.5}, "steps must be whole"),
        ({"sampling_prob": 0.1, "epochs": -1}, "epochs must lie"),
        ({"sampling_prob": 0.1, "steps": np.inf}, "steps must lie"),
        ({"sampling_prob": 0.0, "epochs": 1}, "sampling_prob must be above 0"),
        ({**SHORT, "noise_multiplier": 0.0}, "noise_multiplier must lie"),
        ({**SHORT, "delta": 1.5}, "delta must lie"),
        ({"phases": dp.dpsgd.Phase(1.0, **SHORT)}, "give phases alone"),
        ({"noise_multiplier": None, "phases": []}, "phases must be one Phase or more"),
        ({"noise_multiplier": None, **SHORT}, "give noise_multiplier or phases"),
    ],
)
def test_bad_input_says_what(arguments, why):
    with pytest.raises(ValueError, match=why):
        dp.dpsgd.epsilon(**{"noise_multiplier": 1.0, "delta": 1e-6, **arguments})


def test_bad_curves_and_statements():
    with pytest.raises(ValueError, match="one number in each phase"):
        dp.dpsgd.curve(1.0, 1e-6, sampling_prob=0.1, steps=np.array([1, 2]))
    with pytest.raises(ValueError, match="every must be a positive integer"):
        dp.dpsgd.curve(1.0, 1e-6, **SHORT, every=0)
    with pytest.raises(ValueError, match="1 or more in all"):
        dp.dpsgd.curve(1.0, 1e-6, sampling_prob=0.1, steps=0)
    with pytest.raises(ValueError, match="one training"):
        dp.dpsgd.statement(np.array([1.0, 2.0]), 1e-6, **SHORT)
    with pytest.raises(ValueError, match="relation must be one of"):
        dp.dpsgd.statement(1.0, 1e-6, **SHORT, relation="add")


@pytest.mark.parametrize("value", [1e-6, 0.1, 2.12452, 1.23456789e-6, 99.9999, 0.0, 1e9 + 1e-6])
def test_rounding_up_is_never_down(value):
    told = float(rounded_up(value, 4))
    assert value <= told <= value * 1.001
    assert rounded_up(1e-5, 6) == "1e-05"
    assert rounded_up(math.inf, 4) == "inf"


def test_statement_says_the_numbers_rounded_up():
    found = dp.dpsgd.statement(1.0, 1e-6, **SHORT)
    text = str(found)
    assert text.splitlines() == list(found.sentences)
    assert "1,000 steps with noise multiplier 1," in text
    assert "(2.125, 1e-06)-differentially private" in text  # 2.12452
    loss = direct(1.0, 0.01, 1000)
    assert f"more than {math.ceil(float(dp.risk.advantage(loss)) * 1e3) / 1e3:.3f} above" in text
    # From `tpr_at_fpr`, which takes half a minute to compile: 0.00406845.
    assert "at most 0.00407." in text
    assert "Poisson" in text
    assert "by Poisson sampling" not in str(
        dp.dpsgd.statement(50.0, 1e-6, sampling_prob=1, steps=9)
    )
    assert (found.epsilon, found.delta) == (float(dp.dpsgd.epsilon(1.0, 1e-6, **SHORT)), 1e-6)
    assert found.advantage == float(dp.risk.advantage(loss))
    assert found.mu is not None
    assert f"mu = {rounded_up(found.mu, 3)};" in text
    nothing = dp.dpsgd.statement(1.0, 0.0, **SHORT)
    assert (nothing.epsilon, nothing.delta, nothing.mu) == (math.inf, 0.0, None)
    assert "Guarantee: none" in str(nothing)
