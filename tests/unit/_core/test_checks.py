"""Checks of arguments and of where privacy is computed: never in a TPU's pairs of float32."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from processes import run

import jaxdp as dp
from jaxdp._core import checks
from jaxdp._core.float64 import in_float64

SCALE = jax.ShapeDtypeStruct((4,), jnp.float64)
KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)
ANSWERS = {
    "log_delta": lambda s: dp.Laplace(s).log_delta(1.0, 0.5),
    "closure": lambda s: dp.risk.tradeoff_of_profile(lambda e: dp.GDP(s).log_delta(e), 0.1),
    "guarantee": lambda s: (dp.GDP(s) + dp.GDP(1.0)).mu,
    "composition": lambda s: (3 * dp.privacy_loss(dp.GDP(s))).log_delta(1.0),
}
DRAWS = {
    "gaussian": dp.Gaussian,
    "laplace": dp.Laplace,
    "flipped_huber": lambda s: dp.FlippedHuber(s, s),
    "staircase": lambda s: dp.Staircase(s, s, 0.5 + 0 * s),
    "truncated_laplace": lambda s: dp.TruncatedLaplace(s, 5 * s),
}


def test_a_known_answer_is_computed_outside():
    """On the host, at the trace: it is a constant of the program."""
    function = jax.jit(lambda s: dp.PureDP(1.0).log_delta(0.5) + s)
    export.export(function, platforms=["tpu"])(SCALE)
    assert function(0.0) == dp.PureDP(1.0).log_delta(0.5)


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_answer_compiles_for_a_tpu(answer: str):
    function = jax.jit(ANSWERS[answer])
    with pytest.raises(ValueError, match=r"privacy cannot be computed on a TPU.*outside"):
        export.export(function, platforms=["tpu"])(SCALE)
    traced = function.trace(SCALE)
    assert "ieee" not in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("noise", DRAWS)
def test_draws_compile_for_a_tpu(noise: str):
    """Of bits of float64 a TPU has the unsigned ones alone."""
    draw = jax.jit(lambda s, key: DRAWS[noise](s).sample(key, (4,)))
    text = draw.trace(SCALE, KEY).lower(lowering_platforms=("tpu",)).as_text()
    signed = "(tensor<4xf64>) -> tensor<4xi64>"
    assert not any("bitcast_convert" in row and signed in row for row in text.splitlines())
    assert "reduce_precision" not in text


def test_a_program_for_a_cpu_is_the_same():
    def function(x):
        return jnp.exp(x) + 1.0

    x = jnp.ones(3)
    assert jax.jit(in_float64(function)).lower(x).as_text() == jax.jit(function).lower(x).as_text()
    for transformed in (jax.vmap, lambda f: jax.vmap(jax.grad(f)), jax.jit):
        expected = transformed(function)(x)
        np.testing.assert_array_equal(transformed(in_float64(function))(x), expected)
    forward, backward = jax.jacfwd(in_float64(function)), jax.jacrev(jax.jit(in_float64(function)))
    np.testing.assert_array_equal(forward(x), backward(x))


PLACES = """
import warnings
warnings.simplefilter("error")
import jax
import numpy as np
import jaxdp as dp
from jaxdp._core import precision

host, other, tpu = jax.devices()

def answers(sigma, delta):
    noise = dp.Gaussian(sigma)
    loss = 2 * dp.privacy_loss(dp.Mechanism(noise, 1.0))
    return {
        "profile": noise.log_delta(1.0, 0.5),
        "delta": dp.Mechanism(noise, 1.0).delta(0.5),
        "composition": loss.log_delta(0.5),
        "closure": dp.risk.tradeoff_of_profile(lambda e: dp.GDP(sigma).log_delta(e), delta),
        "record": dp.to_gdp(dp.GDP(sigma) + dp.GDP(sigma)).delta(1.0),
    }

known = np.array([1.5, 40.0]), np.array(0.25)
expected = answers(*known)

def check(found):
    for name, value in found.items():
        assert isinstance(value, np.ndarray | np.float64), name
        np.testing.assert_array_equal(value, expected[name], err_msg=name)

check(answers(*(jax.device_put(x, other) for x in known)))
with jax.default_device(other):
    check(answers(*known))

precision._platform_of = lambda device: "tpu" if device == tpu else "cpu"
check(answers(*(jax.device_put(x, tpu) for x in known)))
with jax.default_device(tpu):
    check(answers(*known))
    stored = dp.Gaussian(known[0])
    assert isinstance(stored.scale, np.ndarray)
    assert stored.sample(jax.random.key(0), (2,)).shape == (2,)
    inside = jax.jit(lambda: dp.Gaussian(1.5).log_delta(1.0, 0.5) + 0.0)()
    np.testing.assert_allclose(inside, expected["profile"][0], rtol=1e-6)
try:
    jax.vmap(lambda s: dp.Gaussian(s).log_delta(1.0, 0.5))(jax.device_put(known[0], tpu))
except ValueError as error:
    assert "TPU" in str(error)
else:
    raise AssertionError("a number was computed on a TPU")
print("done")
"""


def test_known_answers_are_computed_on_the_host():
    """Three devices of the host, one of which says that it is a TPU."""
    flags = "--xla_force_host_platform_device_count=3 --xla_backend_optimization_level=0"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    assert run(PLACES, XLA_FLAGS=flags) == "done\n"


@pytest.mark.parametrize("kind", [np.float16, np.float32, jnp.float32, jnp.bfloat16])
def test_bounds_are_those_of_float64_in_every_precision(kind):
    """In float16 or float32 the least scale would be 0, and the largest number infinite."""
    with pytest.raises(ValueError, match=r"scale must lie in \(0, inf\], got"):
        dp.Gaussian(kind(0.0))
    assert checks.real("order", kind(2.0), 1.0, 1e300) == 2.0
    with pytest.raises(ValueError, match="order must lie in"):
        checks.real("order", kind(np.inf), 1.0, 1e300)


def test_what_is_longer_than_a_double_is_refused():
    """Rounded to the nearest double, a scale would claim more noise and a delta be smaller."""
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("no longer type here")
    with pytest.raises(ValueError, match="scale must be float64"):
        dp.Gaussian(np.longdouble("0.1"))
    with pytest.raises(ValueError, match="delta must be float64"):
        dp.GDP(1.0).epsilon([np.longdouble("0.1")])


@pytest.mark.parametrize("value", ["3", None, 1j, [1], [1, 2], 0.5, 0, True, 10**400, np.nan, {}])
def test_a_size_is_one_whole_number(value):
    with pytest.raises(ValueError, match="steps must be a positive integer"):
        checks.positive_integer("steps", value)
    assert checks.positive_integer("steps", np.int8(3)) == 3


@pytest.mark.parametrize("value", ["a", [1.0, "secret"], [1j], object(), [10**400], [[1], [1, 2]]])
def test_values_of_records_are_named_and_not_told(value):
    with pytest.raises(ValueError, match="features must be an array of real numbers") as caught:
        checks.array_of_records("features", value)
    assert "secret" not in str(caught.value)
