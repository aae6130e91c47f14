"""A user's `jax_numpy_dtype_promotion="strict"` reaches no kernel, whatever is asked."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp._core.threads import in_threads

NOISES = {
    "gaussian": dp.Gaussian,
    "laplace": dp.Laplace,
    "flipped_huber": lambda s: dp.FlippedHuber(s, s),
    "subbotin": lambda s: dp.Subbotin(s, 1.5),
    "offset_gaussian": lambda s: dp.OffsetGaussian(s, s),
    "staircase": lambda s: dp.Staircase(1.0, s, 0.5),
    "truncated_laplace": lambda s: dp.TruncatedLaplace(s, 5.0 * s),
    "discrete_gaussian": dp.DiscreteGaussian,
    "discrete_laplace": dp.DiscreteLaplace,
}
GAUSSIAN = dp.privacy_loss(dp.Mechanism(dp.Gaussian(3.0), 1.0, relation="add_remove"))
ANSWERS = {
    "profile": lambda: GAUSSIAN.epsilon(1e-3),
    "integers": lambda: (np.int32(20) * GAUSSIAN).epsilon(np.float32(1e-3)),
    "lattice": lambda: (3 * dp.privacy_loss(dp.PureDP(1.0))).log_delta(1.0),
    "contour": lambda: (20 * GAUSSIAN + dp.privacy_loss(dp.PureDP(0.1))).log_delta(0.5),
    "dp_sgd": lambda: dp.dpsgd.epsilon(1.0, 1e-6, sampling_prob=0.01, steps=1000),
    "calibrated": lambda: dp.calibrate(lambda s: dp.Mechanism(dp.Gaussian(s), 1), (1, 1e-5)),
    "guarantee": lambda: (2 * dp.GDP(1) + dp.GDP(0.5)).epsilon(1e-5),
    "risk": lambda: dp.risk.tpr_at_fpr(dp.GDP(1), 0.01),
    "renyi": lambda: GAUSSIAN.renyi(jnp.arange(2, 4)),
}


@pytest.mark.parametrize("noise", NOISES)
def test_noises_answer_and_draw(noise: str):
    def answers():
        law, key = NOISES[noise](2.0), jax.random.key(0)
        log_delta = law.log_delta(1, 0.5)
        return log_delta, law.renyi(1.0, 3.0), law.variance(), law.sample(key, (2,))

    expected = answers()
    with jax.numpy_dtype_promotion("strict"):
        for value, known in zip(answers(), expected, strict=True):
            np.testing.assert_array_equal(value, known)


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_are_the_same(answer: str):
    expected = ANSWERS[answer]()
    with jax.numpy_dtype_promotion("strict"):
        np.testing.assert_array_equal(ANSWERS[answer](), expected)
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
