"""`jax_numpy_dtype_promotion="strict"` reaches no kernel: `test_settings` has known answers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdp as dp
from jaxdp.accountant.runner import in_threads

GAUSSIAN = dp.privacy_loss(dp.Mechanism(dp.Gaussian(3.0), 1.0, relation="add_remove"))


def test_whole_counts_and_single_precision():
    def epsilon():
        return (np.int32(20) * GAUSSIAN).epsilon(np.float32(1e-3)), GAUSSIAN.renyi(jnp.arange(2, 4))

    expected = epsilon()
    with jax.numpy_dtype_promotion("strict"):
        for value, known in zip(epsilon(), expected, strict=True):
            np.testing.assert_array_equal(value, known)
        settings = in_threads(lambda: jax.config.jax_numpy_dtype_promotion, [(), ()])
    assert [getattr(x, "value", x) for x in settings] == ["standard", "standard"]


def test_derivatives_are_the_same():
    def epsilon(scale):
        return dp.Mechanism(dp.Gaussian(scale), 1.0).epsilon(1e-3)

    expected = jax.grad(jax.jit(epsilon))(2.0)
    with jax.numpy_dtype_promotion("strict"):
        np.testing.assert_array_equal(jax.grad(jax.jit(epsilon))(2.0), expected)
        np.testing.assert_allclose(jax.jit(jax.grad(epsilon))(2.0), expected, rtol=1e-12)


def test_a_training_in_float32_runs():
    params = {"w": jnp.zeros((2,), jnp.float32)}
    data = jnp.ones((20, 2), jnp.float32)

    with jax.numpy_dtype_promotion("strict"):
        plan = dp.dpsgd.plan(
            (1.0, 1e-5), params, clip=1.0, sampling_prob=0.1, steps=10, dataset_size=100
        )
        trained = dp.dpsgd.train(
            lambda p, x: jnp.sum((p["w"] - x) ** 2),
            params,
            data,
            plan,
            optax.sgd(0.1),
            jax.random.key(0),
        )
    assert trained["w"].dtype == jnp.float32
    assert bool(jnp.all(jnp.isfinite(trained["w"])))
