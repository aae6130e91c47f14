"""Float64 where privacy needs it, whatever `jax_enable_x64` is; the caller's setting stays."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxdp as dp
from jaxdp._core import checks, precision
from jaxdp._core.float64 import in_float64
from jaxdp._core.precision import isolated

SINGLE = jnp.dtype("float32")


@pytest.fixture(autouse=True)
def without_float64():
    with jax.enable_x64(False):
        yield


def _log_delta(scale):
    return dp.Gaussian(scale).log_delta(1.0, 0.5)


def _epsilon(scale):
    return dp.Mechanism(dp.Gaussian(scale), 1.0).epsilon(1e-5)


def _slope(function, scale):
    with jax.enable_x64(True):
        return float(jax.grad(function)(jnp.float64(scale)))


@pytest.mark.parametrize(
    "by",
    [
        jax.grad,
        lambda f: jax.jit(jax.grad(f)),
        lambda f: lambda x: jax.vmap(jax.grad(jax.jit(f)))(x[None])[0],
        lambda f: lambda x: jax.jvp(jax.jit(f), (x,), (jnp.ones_like(x),))[1],
    ],
)
def test_derivatives_are_computed_in_float64(by):
    """Rules of JAX that run after the call would round to float32."""
    scale = np.float32(1.1)
    found = by(_log_delta)(jnp.asarray(scale))
    assert found.dtype == SINGLE
    np.testing.assert_allclose(found, _slope(_log_delta, scale), rtol=2e-7)


def test_an_answer_and_its_slope_are_one_program():
    def loops(function):
        text = jax.jit(function).lower(np.float32(1.1)).as_text()
        return text.count("stablehlo.while")

    assert loops(_epsilon) > 0
    assert loops(jax.value_and_grad(_epsilon)) == loops(_epsilon)


def test_a_known_count_stays_known_in_a_trace():
    """So the engines of a single release are not traced for many."""
    known = []

    def noted(scale):
        loss = 10 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0))
        known.extend(checks.is_concrete(term.count) for term in loss.terms)
        return scale

    jax.eval_shape(noted, jnp.float32(1.1))
    assert known == [True]


TRANSFORMED = {
    "jit": jax.jit,
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None])[0],
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c, f(c)), x, None, length=2)[1][0],
    "checkpoint": lambda f: jax.jit(jax.checkpoint(f)),
    "ahead of time": lambda f: lambda x: jax.jit(f).lower(x).compile()(x),
}


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "float32") for name in TRANSFORMED), ("jit", "bfloat16")]
)
def test_bounds_are_rounded_up_to_the_callers_type(name, kind):
    scale = jnp.asarray(1.7, kind)
    found = TRANSFORMED[name](lambda x: _log_delta(x).astype(jnp.float32))(scale)
    exact = _log_delta(np.float64(scale))
    assert found.dtype == SINGLE
    assert exact <= np.float64(found) <= exact + 2e-7 * abs(exact)


def test_each_side_is_safe():
    """A lower bound rounds down, and an error covers what its bound was moved by."""
    scales = jnp.linspace(0.7, 9.0, 300)
    mechanism = dp.Mechanism(dp.Gaussian(np.asarray(scales, float)), 1.0)
    epsilon = jax.vmap(lambda s: dp.Mechanism(dp.Gaussian(s), 1.0).epsilon(1e-5))(scales)
    assert np.all(np.asarray(epsilon, float) >= mechanism.epsilon(1e-5))
    missed = jax.vmap(lambda s: dp.GDP(1.0 / s).tradeoff(0.1))(scales)
    assert missed.dtype == SINGLE

    def ends(scale):
        loss = dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0))
        return loss.log_delta(0.5), loss.log_delta_error(0.5)

    upper, error = (np.asarray(x, float) for x in jax.vmap(ends)(scales))
    exact = np.asarray(dp.privacy_loss(mechanism).log_delta(0.5))
    assert np.all(upper >= exact)
    assert np.all(upper - error <= exact)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_roundings_are_on_their_side(side):
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000) * 10.0 ** rng.uniform(-320, 300, 1000)
    x = np.concatenate([x, [0.0, 1.0, np.inf, -np.inf, 1e-50, -1e-50, 3.5e38, np.nan]])

    def of(x):
        wide = jnp.asarray(x)
        return precision.narrowed(wide, side)

    rounded = np.asarray(isolated_of(of, x), float)
    known = ~np.isnan(x) & (np.abs(x) >= np.finfo(float).tiny)
    assert np.isnan(rounded[-1])
    assert np.all(side * rounded[known] >= side * x[known])
    near = known & (np.abs(x) > 1e-37) & (np.abs(x) < 1e38)
    np.testing.assert_allclose(rounded[near], x[near], rtol=2.0**-22)


def isolated_of(function, x):
    """The function of a constant, inside of an isolated call."""
    return jax.jit(lambda one: isolated(lambda _: function(x), one))(jnp.ones(()))


def test_a_program_around_stays_in_float32():
    def program(x):
        inside = _log_delta(x)
        return inside, inside * x, jnp.zeros(2), jnp.arange(2), x / 3

    kinds = [x.dtype.name for x in jax.jit(program)(jnp.ones(()))]
    assert kinds == ["float32", "float32", "float32", "int32", "float32"]
    assert (jnp.ones(1) / 3).dtype == SINGLE
    assert not jax.config.jax_enable_x64


def test_a_call_changes_no_setting_of_another_thread():
    seen, going_on, looked = [], threading.Event(), threading.Event()

    def build(scale):
        going_on.set()
        looked.wait(10)
        return dp.Mechanism(dp.Gaussian(scale), 1.0)

    def look():
        seen.append((jnp.zeros(1).dtype, jax.config.jax_enable_x64))
        going_on.wait(10)
        seen.append((jnp.zeros(1).dtype, jax.config.jax_enable_x64))
        looked.set()

    thread = threading.Thread(target=look)
    thread.start()
    dp.calibrate(build, (1.0, 1e-5))
    thread.join()
    assert seen[0] == seen[1]


def test_a_record_that_jax_rounded_is_refused():
    """0.1 is no float32: a transformation that takes the record moves its parameters."""
    noise = dp.Gaussian(0.1)
    batch = dp.Gaussian([0.1, 0.3])
    asked = lambda n: n.log_delta(1.0, 0.5)  # noqa: E731
    calls = {
        "jit": lambda: jax.jit(asked)(noise),
        "vmap": lambda: jax.vmap(asked)(batch),
        "grad": lambda: jax.grad(asked)(noise),
        "known": lambda: asked(jax.tree.map(jnp.asarray, noise)),
        "in a record": lambda: jax.jit(lambda n: dp.Mechanism(n, 1.0).delta(1.0))(noise),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"Gaussian are float32: without jax_enable_x64"):
            pytest.fail(f"{name}: {call()}")
    with jax.enable_x64(True):
        np.testing.assert_allclose(calls["jit"](), noise.log_delta(1.0, 0.5), rtol=1e-12)


def test_a_plan_that_jax_rounded_draws_nothing():
    """Records may be float32, the noise of a plan not: its scale would be what JAX made of it."""
    key, descent = jax.random.key(0), dp.solvers.coordinate_descent
    penalty = dp.solvers.L1(0.1)
    problem = dp.solvers.glm(np.ones((3, 1)), np.ones(3), loss="squared", penalty=penalty)
    sizes = {"smoothness": [1.0], "clip": 1.0, "records": 3, "passes": 1, "step": 0.1}
    made = descent.plan((1.0, 1e-5), **sizes, relation="replace_one", order="cyclic")
    with pytest.raises(ValueError, match="Plan are float32"):
        jax.jit(lambda plan, key: descent.run(problem, plan, key))(made, key)
    run = jax.jit(lambda data, key: descent.run(data, made, key))
    assert np.isfinite(run(problem, key)).all()


def test_a_function_outside_of_the_gate_is_refused():
    """Traced numbers are doubles where they are checked."""

    def planted(scale):
        return checks.positive("scale", scale) * 2.0

    with pytest.raises(ValueError, match="JAX runs in float32 here"):
        jax.jit(planted)(1.0)
    assert jax.jit(in_float64(planted))(1.0) == 2.0


def test_the_users_functions_keep_their_setting():
    @precision.in_callers_setting
    def users():
        return jnp.zeros(1).dtype, jax.config.jax_enable_x64

    with precision.opened():
        assert jnp.zeros(1).dtype == jnp.float64
        assert users() == (SINGLE, False)
        assert jax.config.jax_enable_x64
    assert not precision.is_inside()
