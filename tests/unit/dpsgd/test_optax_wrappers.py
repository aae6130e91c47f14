"""Tests of optax's wrappers around the transformations of DP-SGD, and of clear errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp

PARAMS = {"w": jnp.zeros(3), "b": jnp.zeros(2)}
SIZES = {"clip": 1.0, "dataset_size": 1000, "batch_size": 100, "steps": 20}
KEYS = jax.random.split(jax.random.key(0), 3)
GRADIENTS = {
    "w": jax.random.normal(KEYS[0], (8, 3)),
    "b": jax.random.normal(KEYS[1], (8, 2)),
}
TRAINED = {"w": True, "b": False}


@pytest.fixture(scope="module", name="plan")
def _plan():
    return dp.dpsgd.plan(None, PARAMS, noise_multiplier=1.0, **SIZES)


def chain(plan, last):
    return optax.chain(dp.dpsgd.clip_groups(plan), dp.dpsgd.add_noise(plan, KEYS[2]), last)


def updated(optimizer, gradients: Any = GRADIENTS, params: Any = PARAMS) -> Any:
    return optimizer.update(gradients, optimizer.init(params), params)[0]


def assert_same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_batch_in_parts_is_one_step(plan):
    last = optax.chain(dp.dpsgd.add_noise(plan, KEYS[2]), optax.sgd(0.5))
    parts = optax.MultiSteps(last, 4, use_grad_mean=False).gradient_transformation()
    optimizer = optax.chain(dp.dpsgd.clip_groups(plan), parts)
    found, state = None, optimizer.init(PARAMS)
    for start in range(0, 8, 2):
        part = jax.tree.map(lambda x, start=start: x[start : start + 2], GRADIENTS)
        found, state = optimizer.update(part, state, PARAMS)
        if start < 6:
            assert_same(found, jax.tree.map(jnp.zeros_like, PARAMS))
    expected = updated(chain(plan, optax.sgd(0.5)))
    # Clipped entries are cut to multiples of 2^-30, and a root may round to the next one.
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-9), found, expected)


def test_apply_if_finite_around_everything_is_an_error(plan):
    optimizer = optax.apply_if_finite(chain(plan, optax.sgd(0.5)), 3)
    for update in (optimizer.update, jax.jit(optimizer.update)):
        with pytest.raises(ValueError, match="key must be an argument"):
            update(GRADIENTS, optimizer.init(PARAMS), PARAMS)


def of_weights():
    return dp.dpsgd.plan(None, {"w": PARAMS["w"]}, noise_multiplier=1.0, **SIZES)


def test_a_partition_trains_a_part():
    inner = chain(of_weights(), optax.sgd(0.5))
    parts = {"train": inner, "freeze": optax.set_to_zero()}
    found = updated(optax.partition(parts, {"w": "train", "b": "freeze"}))
    assert not np.any(found["b"])
    only = {"w": GRADIENTS["w"]}
    assert_same({"w": found["w"]}, updated(inner, only, {"w": PARAMS["w"]}))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda plan: optax.masked(chain(plan, optax.sgd(0.5)), lambda tree: TRAINED),
        lambda plan: optax.chain(optax.masked(dp.dpsgd.clip_groups(plan), TRAINED), optax.sgd(0.5)),
        lambda plan: optax.masked(
            optax.partition({0: chain(plan, optax.sgd(0.5))}, {"w": 0, "b": 0}), TRAINED
        ),
        lambda plan: optax.partition(
            {
                0: optax.masked(chain(plan, optax.sgd(0.5)), lambda tree: {"w": True, "b": True}),
                1: optax.set_to_zero(),
            },
            {"w": 0, "b": 1},
        ),
    ],
    ids=["all", "clipping", "partition inside", "partition outside"],
)
def test_masked_is_refused_by_name(wrapped):
    """It passes the gradients of the frozen leaves to the optimiser, one an example."""
    optimizer = wrapped(of_weights())
    for update in (optimizer.update, jax.jit(optimizer.update)):
        with pytest.raises(ValueError, match=r"optax\.masked, which passes .* without clipping"):
            update(GRADIENTS, optimizer.init(PARAMS), PARAMS)


def test_multi_steps_around_everything_is_an_error(plan):
    optimizer = optax.MultiSteps(chain(plan, optax.sgd(0.5)), 4).gradient_transformation()
    with pytest.raises(ValueError, match=r"must have shape \(examples, 2\)"):
        updated(optimizer)
