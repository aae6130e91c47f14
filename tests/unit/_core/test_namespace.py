"""Known questions: answered by NumPy, without a program, as the compiled kernels answer them."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from compilations import counted

import jaxdp as dp
from jaxdp._core.namespace import kernel, lax, logsumexp, shape_of, updated, vmap, xp

pytestmark = pytest.mark.float64

TRAINING = {"sampling_prob": 0.01, "steps": 1000}


def test_no_size_of_a_sweep_compiles():
    """Equal calls have equal answers, to the last bit."""
    rng, lanes = np.random.default_rng(5), 400
    scale, rate = rng.uniform(0.5, 4.0, lanes), 10 ** rng.uniform(-5, -1, lanes)
    steps, delta = np.round(10 ** rng.uniform(1, 4.5, lanes)), 10 ** rng.uniform(-10, -4, lanes)
    loss = steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, rate, "add_remove"))
    with counted() as programs:
        first, second = loss.epsilon(delta), loss.epsilon(delta)
    assert programs == []
    np.testing.assert_array_equal(first, second)


RANGES = {
    "exp": (-700.0, 700.0),
    "log": (1e-300, 1e3),
    "log1p": (-0.7, 5.0),
    "expm1": (-30.0, 5.0),
    "sin": (-1e3, 1e3),
    "cos": (-1e3, 1e3),
    "tanh": (-5.0, 5.0),
    "sinh": (-20.0, 20.0),
    "arctan": (-1e3, 1e3),
}


@pytest.mark.parametrize("name", RANGES)
def test_functions_round_to_four_ulps(name):
    """Stated errors allow 4 ulps for each function, on whichever processor."""
    low, high = RANGES[name]
    rng = np.random.default_rng(3)
    x = rng.uniform(low, high, 1500)
    x[:500] = rng.uniform(max(low, -1.0), min(high, 1.0), 500)
    with mp.workdps(40):
        exact = [getattr(mp, "atan" if name == "arctan" else name)(mp.mpf(float(v))) for v in x]
        values = getattr(xp, name)(x)
        ulps = [abs((mp.mpf(float(v)) - e) / e) * 2**52 for v, e in zip(values, exact, strict=True)]
    assert max(ulps) <= 4.0


def test_the_namespace_follows_its_arguments():
    assert isinstance(xp.exp(1.0), np.floating)
    assert isinstance(xp.exp(jnp.ones(2)), jax.Array)
    assert isinstance(xp.stack([np.ones(2), jnp.ones(2)]), jax.Array)
    assert isinstance(xp.where(np.ones(2) > 0, 1.0, 2.0), np.ndarray)
    jax.jit(lambda x: isinstance(xp.exp(x), jax.core.Tracer) or pytest.fail("not traced"))(1.0)


def test_loops_of_known_values_leave_their_arguments_alone():
    x = np.arange(3.0)
    doubled = lax.fori_loop(0, 2, lambda i, y: 2.0 * y, x)
    assert doubled.tolist() == [0.0, 4.0, 8.0]
    total, each = lax.scan(lambda s, y: (s + y, s), 0.0, x)
    assert (total, each.tolist()) == (3.0, [0.0, 0.0, 1.0])
    assert lax.while_loop(lambda y: y < 5.0, lambda y: y + 2.0, np.zeros(())) == 6.0
    assert lax.cummax(x[::-1], reverse=True).tolist() == [2.0, 1.0, 0.0]
    assert vmap(lambda a, b: a * b, (0, None))(x, 2.0).tolist() == [0.0, 2.0, 4.0]
    assert updated(x, 1, 7.0).tolist() == [0.0, 7.0, 2.0]
    assert x.tolist() == [0.0, 1.0, 2.0]
    with np.errstate(divide="ignore"):
        assert float(logsumexp(np.full(2, -np.inf))) == -np.inf


def test_inside_of_a_trace_loops_are_compiled():
    """A state of NumPy, and a body that reads what is traced."""

    def total(x):
        return lax.fori_loop(0, 3, lambda i, y: y + x, np.zeros(()))

    assert jax.jit(total)(2.0) == 6.0
    assert jax.vmap(total)(jnp.ones(2)).tolist() == [3.0, 3.0]
    assert jax.grad(total)(2.0) == 3.0


def test_known_parameters_cannot_be_written_to():
    scale = np.array([1.0, 2.0])
    noise = dp.Gaussian(scale)
    scale[0] = 1e-9
    assert np.asarray(noise.scale).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        noise.scale[0] = 1e-9


@pytest.mark.parametrize("scale", [2.0, np.float32(2.0), jnp.asarray(2.0), [1.0, 2.0]])
def test_known_answers_are_doubles_of_numpy(scale):
    mechanism = dp.Mechanism(dp.Gaussian(scale), 1.0)
    for answer in (
        mechanism.delta(1.0),
        mechanism.noise.variance(),
        dp.privacy_loss(mechanism).bounds(1.0)[0],
        dp.dpsgd.epsilon(scale, 1e-6, **TRAINING),
    ):
        assert type(answer) is (np.ndarray if np.ndim(scale) else np.float64)
        assert answer.dtype == np.float64


def test_a_kernel_calls_numpy_itself_and_traces_look_again():
    assert xp.exp is not np.exp
    with kernel():
        assert xp.exp is np.exp
        with ThreadPoolExecutor(1) as other:
            assert other.submit(lambda: xp.exp is np.exp).result() is False
        assert shape_of(lambda x: xp.exp(x), jnp.ones(3)).shape == (3,)
        with kernel():
            assert xp.log is np.log
        assert xp.log is np.log
    assert xp.log is not np.log


def test_a_warm_epsilon_makes_few_calls():
    """A function of `xp` was half of 4,350 calls."""
    calls, package = 0, str(Path(dp.__file__).parent)

    def count(frame, event, _):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(package)

    for _ in range(2):
        dp.dpsgd.epsilon(1.0, 1e-6, **TRAINING)
    sys.setprofile(count)
    try:
        dp.dpsgd.epsilon(1.0, 1e-6, **TRAINING)
    finally:
        sys.setprofile(None)
    assert 500 < calls <= 3000
