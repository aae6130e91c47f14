"""The primitive of composed questions: under every transformation it gives the known answers."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import counted
from jax import export
from processes import run

import jaxdp as dp
from jaxdp.accountant import primitive, runner
from jaxdp.accountant.contour import engine

TRAINING = {"sampling_prob": 0.01, "steps": 1000}
SCALES = np.array([0.9, 1.1, 1.4, 2.0])
# Seconds after which a call is taken for a deadlock. chosen: the calls take one or two
PATIENCE = 120.0


@pytest.fixture(autouse=True)
def _with_doubles():
    with jax.enable_x64(True):
        yield


def epsilon(noise_multiplier):
    return dp.dpsgd.epsilon(noise_multiplier, 1e-6, **TRAINING)


def laplaces(scale):
    return (30 * dp.privacy_loss(dp.Mechanism(dp.Laplace(scale), 1.0))).log_delta(1.0)


def mixed(scale):
    many = 20 * dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(scale), 1.0))
    return (many + dp.privacy_loss(dp.PureDP(0.1 * scale))).epsilon(1e-6)


def tradeoff(scale):
    mechanism = dp.Mechanism(dp.Gaussian(scale), 1.0, 0.01, "add_remove")
    return (500 * dp.privacy_loss(mechanism)).tradeoff(0.05)


def renyi(scale):
    return (30 * dp.privacy_loss(dp.Mechanism(dp.Laplace(scale), 1.0))).renyi(3.0)


KNOWN = np.array([float(epsilon(s)) for s in SCALES])


@pytest.mark.parametrize("question", [epsilon, laplaces, tradeoff, renyi])
def test_traced_answers_are_the_known_ones_bit_for_bit(question):
    scales = SCALES[:2]
    known = [float(question(s)) for s in scales]
    assert [float(jax.jit(question)(s)) for s in scales] == known
    np.testing.assert_array_equal(jax.vmap(question)(scales), known)
    np.testing.assert_array_equal(jax.jit(jax.vmap(question))(scales), known)
    value, slope = jax.jit(jax.value_and_grad(question))(scales[1])
    assert value == known[1]
    step = 1e-3 * scales[1]
    low, high = (float(question(scales[1] + x)) for x in (-step, step))
    np.testing.assert_allclose(slope, (high - low) / (2.0 * step), rtol=1e-3)


def test_a_pair_that_is_computed_in_a_program_moves_an_answer_by_rounding():
    known = [float(mixed(s)) for s in SCALES]
    np.testing.assert_allclose(jax.jit(jax.vmap(mixed))(SCALES), known, rtol=1e-11)


def test_a_caller_without_float64_gets_the_known_answer_rounded_up():
    """Also in threads, whose setting JAX applies to what a callback takes and gives."""
    scale, found = np.float32(1.1), []

    def ask():
        found.append(np.asarray(jax.jit(epsilon)(scale)))

    known = epsilon(float(scale))
    with jax.enable_x64(False):
        ask()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(PATIENCE)
    assert len(found) == 2
    for answer in found:
        assert answer.dtype == np.float32
        assert known <= float(answer) < known * (1 + 2e-7)


def test_random_trainings_are_no_worse_inside_of_jit():
    rng = np.random.default_rng(2)
    noise, q = np.exp(rng.uniform(-0.5, 2.0, 24)), 10 ** rng.uniform(-5.5, 0, 24)
    steps, delta = np.round(10 ** rng.uniform(0, 4, 24)), 10 ** rng.uniform(-12, -4, 24)
    # An answer of the contour alone was 147 times too high here.
    noise[0], q[0], steps[0], delta[0] = 0.8127, 1.111e-5, 2.0, 3.03e-8

    def of(noise, q, steps, delta):
        return dp.dpsgd.epsilon(noise, delta, sampling_prob=q, steps=steps)

    known = of(noise, q, steps, delta)
    np.testing.assert_array_equal(jax.jit(jax.vmap(of))(noise, q, steps, delta), known)
    assert known[0] < 1e-3


def test_loops_branches_and_checkpoints():
    def summed(scales):
        return jax.lax.scan(lambda c, s: (c + epsilon(s), epsilon(s)), 0.0, scales)

    total, each = jax.jit(summed)(SCALES)
    np.testing.assert_array_equal(each, KNOWN)
    np.testing.assert_allclose(total, KNOWN.sum(), rtol=1e-15)
    slopes = jax.jit(jax.vmap(jax.grad(epsilon)))(SCALES)
    of_scan = jax.jit(jax.grad(lambda x: summed(x)[0]))(SCALES)
    np.testing.assert_allclose(of_scan, slopes, rtol=1e-12)
    remade = jax.jit(jax.grad(jax.checkpoint(epsilon)))(SCALES[0])
    np.testing.assert_allclose(remade, slopes[0], rtol=1e-12)

    def chosen(is_asked, scale):
        return jax.lax.cond(is_asked, epsilon, lambda s: s, scale)

    assert jax.jit(chosen)(True, SCALES[0]) == KNOWN[0]
    np.testing.assert_array_equal(
        jax.vmap(chosen)(np.array([True, False]), SCALES[:2]), [KNOWN[0], SCALES[1]]
    )

    def least_above(target):
        return jax.lax.while_loop(lambda s: epsilon(s) > target, lambda s: 1.1 * s, 0.9)

    found = float(jax.jit(least_above)(1.0))
    assert epsilon(found) <= 1.0 < epsilon(found / 1.1)


def test_second_derivatives_are_refused():
    with pytest.raises(NotImplementedError, match="second derivatives"):
        jax.hessian(epsilon)(1.0)


def test_a_bad_lane_is_nan_alone():
    scales = jnp.array([0.9, -1.0, jnp.nan, 0.0, 2.0])
    for found in (jax.vmap(epsilon)(scales), jax.jit(jax.vmap(epsilon))(scales)):
        np.testing.assert_array_equal(np.isnan(found), [False, True, True, True, False])
        np.testing.assert_array_equal(found[np.array([0, 4])], KNOWN[[0, 3]])
    slopes = jax.jit(jax.vmap(jax.grad(epsilon)))(scales)
    assert np.isfinite(slopes[np.array([0, 4])]).all()


def test_a_lane_that_an_engine_refuses_is_nan_alone(monkeypatch):
    """Values must not raise inside of a callback, whatever an engine does."""
    of_host = primitive._of_host

    def refusing(query, moving, lanes, *rest):
        if np.any(np.asarray(lanes[1]) == 1e-7):
            raise ValueError("refused")
        return of_host(query, moving, lanes, *rest)

    monkeypatch.setattr(primitive, "_of_host", refusing)
    loss = 100 * dp.privacy_loss(dp.Mechanism(dp.Laplace(20.0), 1.0))
    found = np.asarray(jax.jit(loss.epsilon)(jnp.array([1e-5, 1e-7, 1e-6])))
    np.testing.assert_array_equal(np.isnan(found), [False, True, False])


@pytest.mark.parametrize("error", [RuntimeError("from the host"), KeyboardInterrupt()])
def test_an_error_of_the_host_is_an_error_of_the_program(monkeypatch, error):
    def failing(*_, **__):
        raise error

    answer = jax.jit(lambda s: epsilon(s) + 0.5)
    monkeypatch.setattr(primitive, "in_turn", failing)
    with pytest.raises(jax.errors.JaxRuntimeError, match=type(error).__name__):
        jax.block_until_ready(answer(1.0))


def test_threads_and_programs_in_flight_do_not_wait_for_each_other():
    product = jax.jit(lambda s, a: (epsilon(s), jnp.sum(a @ a)))
    ones, found = jnp.ones((300, 300)), []

    def ask(start):
        with jax.enable_x64(True):
            rows = [product(start + 0.01 * i, ones) for i in range(8)]
        found.extend(float(x[0]) for x in jax.block_until_ready(rows))

    threads = [threading.Thread(target=ask, args=(1.0 + i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert len(found) == 32
    assert np.isfinite(found).all()


def test_further_eager_calls_compile_nothing():
    for transformed, first, second in (
        (jax.grad(epsilon), 1.1, 1.2),
        (jax.vmap(epsilon), SCALES, SCALES + 0.1),
    ):
        transformed(first)
        with counted() as programs:
            transformed(second)
        assert not programs


def test_a_gradient_in_many_scales_costs_few_answers(monkeypatch):
    """i.n.i.d. noise is optimised by it: by slopes of the sum, not by four answers a scale."""
    lanes, stage = [], engine._stage

    def counting(question, of_stage, with_slopes, points, *rest):
        lanes.append(points.value.size)
        return stage(question, of_stage, with_slopes, points, *rest)

    monkeypatch.setattr(engine, "_stage", counting)

    def of(scales):
        noise = dp.Mechanism(dp.Gaussian(scales), 1.0, 0.02, "add_remove")
        return dp.privacy_loss(noise).sum().epsilon(1e-6)

    scales = np.linspace(0.8, 1.2, 12)
    value, slopes = jax.value_and_grad(of)(scales)
    assert sum(lanes) <= 16
    assert value == of(scales)
    step = 1e-3 * np.eye(12)[7]
    slope = (of(scales + step) - of(scales - step)) / 2e-3
    np.testing.assert_allclose(slopes[7], slope, rtol=1e-4)


def test_many_concrete_lanes_go_to_a_gpu_that_is_the_default(monkeypatch):
    """Its program is compiled for the CPU here, where it calls back."""
    monkeypatch.setattr(primitive, "default_platform", lambda: "gpu")
    monkeypatch.setattr(primitive, "_MANY", 3)
    programs = []
    program = primitive._program
    monkeypatch.setattr(primitive, "_program", lambda *x: programs.append(x) or program(*x))
    np.testing.assert_array_equal(epsilon(SCALES[:3]), KNOWN[:3])
    assert len(programs) == 1
    epsilon(SCALES[:2])
    assert len(programs) == 1


def test_a_program_for_a_cpu_is_not_exported():
    scale = jax.ShapeDtypeStruct((), jnp.float64)
    with pytest.raises(ValueError, match="cannot store this program"):
        export.export(jax.jit(epsilon))(scale)
    with pytest.raises(ValueError, match="cannot store this program"):
        export.export(jax.jit(laplaces), platforms=["cuda"])(scale)


@pytest.mark.long
def test_a_program_for_a_gpu_is_exported():
    scale = jax.ShapeDtypeStruct((), jnp.float64)
    stored = export.export(jax.jit(epsilon), platforms=["cuda"])(scale)
    assert "callback" not in stored.mlir_module()


SHARDED = """
import jax, numpy as np, jaxdp as dp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
def epsilon(s):
    return dp.dpsgd.epsilon(s, 1e-6, sampling_prob=0.01, steps=1000)
scales = np.linspace(0.9, 2.0, 8)
known, mapped = epsilon(scales), jax.vmap(epsilon)
mesh = Mesh(np.array(jax.devices()), ("part",))
placed = jax.device_put(scales, NamedSharding(mesh, P("part")))
by_part = jax.jit(jax.shard_map(mapped, mesh=mesh, in_specs=P("part"), out_specs=P("part")))
for found in (by_part(placed), jax.jit(mapped)(placed), mapped(placed)):
    np.testing.assert_array_equal(found, known)
assert by_part(placed).sharding.spec == P("part")
np.testing.assert_array_equal(jax.pmap(mapped)(scales.reshape(4, 2)).ravel(), known)
"""


def test_four_devices_answer_their_parts():
    run(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=4")


CACHED = """
import os, jax, jaxdp as dp
jax.config.update("jax_enable_x64", True)
def epsilon(s):
    return dp.dpsgd.epsilon(s, 1e-6, sampling_prob=0.01, steps=1000)
def profile(s):
    return dp.Gaussian(s).log_delta(1.0, 1.0)
assert jax.jit(epsilon)(1.0) == epsilon(1.0)
jax.jit(profile)(1.0)
kept = os.listdir(os.environ["JAX_COMPILATION_CACHE_DIR"])
assert any("profile" in x for x in kept), kept
assert not any("epsilon" in x for x in kept), kept
"""


def test_the_persistent_cache_keeps_closed_forms_alone(tmp_path):
    keeps_all = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    keeps_all["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    run(CACHED, JAX_COMPILATION_CACHE_DIR=str(tmp_path), **keeps_all)


ON_GPU = """
import jax, numpy as np, jaxdp as dp
from jax.interpreters import mlir
from jaxdp.accountant import primitive
jax.config.update("jax_enable_x64", True)
# What a program for a GPU does, compiled for a CPU.
rule = primitive._lowered(primitive._on_gpu)
mlir.register_lowering(primitive._answer, rule, platform="cpu")
calls, known_of = [], primitive._known
def counting(*leaves, **params):
    calls.append(leaves[0].shape[0])
    return known_of(*leaves, **params)
primitive._known = counting
def epsilon(s, q, n, d):
    return dp.dpsgd.epsilon(s, d, sampling_prob=q, steps=n)
rng = np.random.default_rng(3)
s, q = np.exp(rng.uniform(-0.7, 2.0, 20)), 10 ** rng.uniform(-5, -0.5, 20)
n, d = np.round(10 ** rng.uniform(0, 4, 20)), 10 ** rng.uniform(-12, -4, 20)
s[5] = np.nan
found, slopes = jax.jit(jax.vmap(jax.value_and_grad(epsilon)))(s, q, n, d)
host = jax.vmap(jax.value_and_grad(epsilon))
assert calls and sum(calls) <= 64, calls
assert np.isnan(found[5])
good = np.arange(20) != 5
known = epsilon(s[good], q[good], n[good], d[good])
error = np.abs(np.asarray(found)[good] - known) / (1.0 + known)
assert error.max() < 2e-6, error.max()
step = 1e-4 * s[good]
low, high = (epsilon(s[good] + x, q[good], n[good], d[good]) for x in (-step, step))
slope = (high - low) / (2.0 * step)
near = np.abs(np.asarray(slopes)[good] - slope) / (1e-6 + np.abs(slope))
assert np.quantile(near, 0.9) < 1e-3, near
"""


@pytest.mark.long
def test_a_program_for_a_gpu_asks_the_host_for_wide_lanes_alone():
    run(ON_GPU)


def test_the_host_computes_without_a_program():
    with counted() as programs:
        runner.in_pieces(lambda x: x, np.zeros((3, 2)), lambda _: 2)
        dp.dpsgd.epsilon(np.geomspace(0.8, 4.0, 300), 1e-6, **TRAINING)
    assert not programs
