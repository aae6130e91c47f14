"""Calls that a training refuses: past its plan, noise twice, float32, whole numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxdp import dpsgd
from jaxdp.sampling import Poisson

KEY = jax.random.key(0)
ONE = jnp.ones(())
# One step of five parameters: no calibration.
PLAN = dpsgd.Plan(
    *(jnp.ones(1), jnp.ones(1), ONE, Poisson(1.0), ONE, (0,), (5,), ((5,),), ("float16",)),
    *(1, "gaussian", "add"),
)


def test_a_batch_without_examples_adds_nothing():
    """A Poisson sample may be empty; it was a ZeroDivisionError."""
    for update in (dpsgd.clip_groups(PLAN).update, jax.jit(dpsgd.clip_groups(PLAN).update)):
        total, _ = update(jnp.zeros((0, 5)), optax.EmptyState())
        np.testing.assert_array_equal(total, np.zeros(5))


def test_nothing_runs_in_float32():
    """Norms in float32 were above their threshold, by up to 6e-8 of it."""
    clip, noise = dpsgd.clip_groups(PLAN), dpsgd.add_noise(PLAN, KEY)
    state = noise.init(None)
    calls = {
        "clip": lambda: clip.update(jnp.ones((2, 5)), optax.EmptyState()),
        "jit": lambda: jax.jit(clip.update)(jnp.ones((2, 5)), optax.EmptyState()),
        "noise": lambda: noise.update(jnp.ones(5), state),
        "key": lambda: dpsgd.add_noise(PLAN, KEY),
        "train": lambda: dpsgd.train(
            lambda p, x: jnp.sum(p * x), jnp.zeros(5), np.ones((3, 5)), PLAN, optax.sgd(1)
        ),
    }
    for name, call in calls.items():
        with jax.enable_x64(False), pytest.raises(ValueError, match="float64"):
            pytest.fail(f"{name}: {call()}")


def test_noise_ends_with_the_plans_steps_and_is_added_once():
    noise, zero = dpsgd.add_noise(PLAN, KEY), jnp.zeros(5)
    mean, state = noise.update(zero, noise.init(None))
    with pytest.raises(ValueError, match="the plan's 1 steps, which are made"):
        noise.update(zero, state)
    assert np.isnan(np.asarray(jax.jit(noise.update)(zero, state)[0], float)).all()
    twice = optax.chain(noise, dpsgd.add_noise(PLAN, jax.random.key(1)), optax.sgd(1.0))
    for update in (twice.update, jax.jit(twice.update)):
        with pytest.raises(ValueError, match="add_noise is there twice"):
            update(zero, twice.init(zero))
    with pytest.raises(ValueError, match="optimizer must be without add_noise"):
        dpsgd.train(
            lambda p, x: jnp.sum(p * x), zero, np.ones((3, 5)), PLAN, optax.chain(noise), KEY
        )
    assert mean.shape == (5,)


@pytest.mark.parametrize("leaf", [jnp.zeros(2, int), jnp.zeros(2, bool), jnp.zeros(2, complex)])
def test_parameters_are_floating_point_numbers(leaf):
    params = {"w": jnp.zeros(2), "n": leaf}
    with pytest.raises(ValueError, match=r"params\['n'\] must contain floating-point numbers, got"):
        dpsgd.plan((1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=1, dataset_size=9)
    five = jnp.zeros(5, leaf.dtype)
    with pytest.raises(ValueError, match=f"params must contain floating-point .* {leaf.dtype}"):
        dpsgd.train(lambda p, x: 1.0, five, np.ones((3, 5)), PLAN, optax.sgd(1.0), KEY)
