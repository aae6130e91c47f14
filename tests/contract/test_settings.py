"""Known questions: the same bits, of NumPy's types, whatever JAX is set to; without a program."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import settings
from compilations import counted
from processes import run

import jaxdp as dp
from jaxdp.accountant.runner import in_threads

FOLDER = Path(__file__).parent
PROGRAM = """
import json, sys
sys.path.insert(0, {folder!r})
import jax
import settings
found = settings.answers()
assert jax.config.jax_enable_x64 == {flag}
print(json.dumps(found))
"""
CONTEXTS = {
    "doubles": lambda: jax.enable_x64(True),
    "singles": lambda: jax.enable_x64(False),
    "strict": lambda: jax.numpy_dtype_promotion("strict"),
}
# Programs draw; everything else is known.
DRAWING = ("models", "release", "samples")


@pytest.fixture(scope="module")
def alone():
    """Of a process that has the flag which this one has not."""
    flag = not jax.config.jax_enable_x64
    code = PROGRAM.format(folder=str(FOLDER), flag=flag)
    return json.loads(run(code, JAX_ENABLE_X64=str(int(flag))))


@pytest.mark.parametrize("question", settings.QUESTIONS)
def test_a_process_and_contexts_have_the_same_bits(question, alone):
    usual = jax.config.jax_enable_x64
    with counted() as programs:
        for name, context in CONTEXTS.items():
            with context():
                found = settings.bits(settings.QUESTIONS[question]())
                inside = jax.config.jax_enable_x64
            assert json.loads(json.dumps(found)) == alone[question], name
            assert inside == {"doubles": True, "singles": False}.get(name, usual)
    if question not in DRAWING:
        assert not programs


def test_the_counter_counts():
    with counted() as programs:
        jax.jit(lambda x: x + 1.25)(1.0)
    assert programs


def test_threads_and_derivatives_reach_no_strict_promotion():
    def epsilon(scale):
        return dp.Mechanism(dp.Gaussian(scale), 1.0).epsilon(1e-3)

    expected = jax.grad(jax.jit(epsilon))(2.0)
    with jax.numpy_dtype_promotion("strict"):
        found = in_threads(lambda: jax.config.jax_numpy_dtype_promotion, [(), ()])
        np.testing.assert_array_equal(jax.grad(jax.jit(epsilon))(2.0), expected)
        np.testing.assert_allclose(jax.jit(jax.grad(epsilon))(2.0), expected, rtol=1e-12)
    assert [getattr(x, "value", x) for x in found] == ["standard", "standard"]


def test_a_training_in_float32_runs():
    params = {"w": jnp.zeros((2,), jnp.float32)}
    data = jnp.ones((20, 2), jnp.float32)
    sizes = {"sampling_prob": 0.1, "steps": 10, "dataset_size": 100}

    def loss(params, x):
        return jnp.sum((params["w"] - x) ** 2)

    with jax.numpy_dtype_promotion("strict"):
        plan = dp.dpsgd.plan((1.0, 1e-5), params, clip=1.0, **sizes)
        trained = dp.dpsgd.train(loss, params, data, plan, optax.sgd(0.1), jax.random.key(0))
    assert trained["w"].dtype == jnp.float32
    assert bool(jnp.all(jnp.isfinite(trained["w"])))
