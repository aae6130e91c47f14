"""Noise that calls, batch entries, inner functions, copies, devices and processes do not share."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from processes import run

import jaxdp as dp
from jaxdp._core import chacha
from jaxdp._core.precision import is_inside_trace
from jaxdp._core.random_key import checked_key
from jaxdp.solvers import covariance, scaling

MECHANISM = dp.Mechanism(dp.Gaussian(1.0), 1.0)
VALUES = jnp.arange(3.0)
KEY = jax.random.key(0)
SECURE = jax.random.key(0, impl=chacha.IMPLEMENTATION)
KEYS = jax.random.split(KEY, 3)
MESH = jax.make_mesh((1,), ("part",))
PLAN = covariance.plan((1.0, 1e-5), dimension=2, records=2, relation="replace_one")
TABLE = {"epsilon": 1.0, "delta": 1e-6, "release": [{"statistic": "count"}]}


def release(value, key=None):
    return dp.release(MECHANISM, value, key).value


def drawn(_):
    return jax.random.normal(dp.secure_key())


def noisy(value, key):
    """As `release` takes its key, without the sampler, which takes long to compile."""
    return value + jax.random.normal(checked_key(key, value))


def sharded(function):
    parts = PartitionSpec("part")
    mapped = jax.shard_map(function, mesh=MESH, in_specs=parts, out_specs=parts)
    return lambda x: mapped(jax.device_put(x[:1], NamedSharding(MESH, parts)))


def eager(function):
    """Known values are computed inside of `jit`, and the trace is open all the same."""

    def inside(value):
        with jax.ensure_compile_time_eval():
            return function(1.0) + value

    return jax.jit(inside)


def with_constant(function):
    """Nothing that the function sees is mapped."""
    return jax.vmap(lambda x: x + function(1.0))


# Each runs a function of one value, once for all values.
TRACES = {
    "jit": lambda f: lambda x: jax.jit(f)(x[0]),
    "vmap": jax.vmap,
    "constant": with_constant,
    "map": lambda f: lambda x: jax.lax.map(f, x),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, v: (c, f(v)), 0.0, x),
    "fori_loop": lambda f: lambda x: jax.lax.fori_loop(0, 2, lambda _, c: f(c), x[0]),
    "while_loop": lambda f: lambda x: jax.lax.while_loop(lambda c: c < 0, f, x[0]),
    "condition": lambda f: lambda x: jax.lax.while_loop(lambda c: f(c) < 0, lambda c: c, x[0]),
    "cond": lambda f: lambda x: jax.lax.cond(x[0] > 1, f, lambda v: v, x[0]),
    "grad": lambda f: lambda x: jax.grad(f)(x[0]),
    "jvp": lambda f: lambda x: jax.jvp(f, (x[0],), (x[0],)),
    "hessian": lambda f: lambda x: jax.hessian(f)(x[0]),
    "checkpoint": lambda f: lambda x: jax.checkpoint(f)(x[0]),
    "make_jaxpr": lambda f: lambda x: jax.make_jaxpr(f)(x[0]),
    "eval_shape": lambda f: lambda x: jax.eval_shape(f, x[0]),
    "pmap": lambda f: lambda x: jax.pmap(lambda v: f(v[()]))(x[:1]),
    "shard_map": lambda f: sharded(lambda v: v + f(1.0)),
    "eager": lambda f: lambda x: eager(f)(x[0]),
}


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("draw", [release, drawn], ids=["release", "secure_key"])
def test_no_key_is_drawn_inside_of_a_trace(draw, trace):
    with pytest.raises(
        ValueError, match=r"^key must be given .* Split a key outside, and pass one"
    ):
        TRACES[trace](draw)(VALUES)
    assert not is_inside_trace()


def test_what_runs_on_the_host_says_so():
    plan = dp.tables.plan(TABLE)
    plan_of_steps = dp.dpsgd.plan(
        (1.0, 1e-5), jnp.zeros(()), clip=1.0, sampling_prob=0.1, steps=2, dataset_size=3
    )
    lasso = dp.DPLasso(epsilon=1.0, delta=1e-6, feature_bounds=(0, 1), target_bounds=(0, 1))
    rows = np.ones((4, 2))

    def train(x):
        adam = pytest.importorskip("optax").sgd(0.1)
        return dp.dpsgd.train(lambda p, v: (p - v) ** 2, x, VALUES, plan_of_steps, adam)

    calls = {
        "tables.release": lambda x: dp.tables.release({"a": [1, 2]}, plan),
        "train": train,
        "fit": lambda x: lasso.fit(rows + x, rows[:, 0]),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"^{name} must be called outside .* its key"):
            jax.vmap(call)(VALUES)
    for call in (
        lambda x: dp.audit.run(MECHANISM, (0.0, 1.0), 10, progress=False) and x,
        lambda x: dp.audit.one_run(lambda included, key: included, 10) and x,
    ):
        for trace in ("jit", "vmap", "grad"):
            with pytest.raises(ValueError, match="key"):
                TRACES[trace](call)(VALUES)


SHARED = {
    "jit": lambda: jax.jit(lambda v: release(v, KEY))(1.0),
    "vmap": lambda: jax.vmap(release, (0, None))(VALUES, KEY),
    "map": lambda: jax.lax.map(lambda v: release(v, KEY), VALUES),
    "loop": lambda: jax.jit(lambda v, k: jax.lax.fori_loop(0, 2, lambda _, x: release(x, k), v))(
        1.0, KEY
    ),
    "grad in vmap": lambda: jax.vmap(lambda v: jax.grad(lambda x: release(x, KEY))(v))(VALUES),
    "scale": lambda: jax.vmap(
        lambda s: dp.release(dp.Mechanism(dp.Gaussian(s), 1.0), 42.0, KEY).value
    )(1.0 + VALUES),
    "copies": lambda: jax.vmap(
        lambda v: jax.vmap(lambda k: release(v, k))(jax.random.split(KEY, 2))
    )(VALUES),
    "words": lambda: jax.vmap(release, (0, None))(VALUES, jax.random.PRNGKey(0)),
    "moments": lambda: jax.vmap(covariance.release, (0, None, None))(
        jnp.ones((3, 2, 2)), PLAN, KEY
    ),
    "solver": lambda: jax.vmap(of_solver)(1.0 + VALUES),
    "step": lambda: of_steps(1.0 + VALUES),
}


def of_solver(mu):
    """Two noises of one key and two scales give the value away."""
    sizes = np.zeros((9, 1)), -np.ones(1), np.ones(1)
    return scaling.release(*sizes, dp.GDP(mu), KEY, relation="add_remove")[0]


def of_steps(scales):
    params = jnp.zeros(2)
    plan = dp.dpsgd.plan(
        None, params, noise_multiplier=1.0, clip=1.0, sampling_prob=0.1, steps=2, dataset_size=30
    )
    state = dp.dpsgd.add_noise(plan, KEY).init(params)

    def step(scale):
        wider = dataclasses.replace(plan, scales=scale * plan.scales)
        return dp.dpsgd.add_noise(wider, KEY).update(params, state)[0]

    return jax.vmap(step)(scales)


@pytest.mark.parametrize("call", SHARED)
def test_a_key_that_all_entries_share_is_refused(call):
    with pytest.raises(ValueError, match=r"^key must be an argument of the function"):
        SHARED[call]()


OWN = {
    "vmap": lambda: jax.vmap(release)(jnp.zeros(3), KEYS),
    "vmap of jit": lambda: jax.vmap(jax.jit(noisy))(jnp.zeros(3), KEYS),
    "map": lambda: jax.lax.map(lambda pair: noisy(*pair), (jnp.zeros(3), KEYS)),
    "one value": lambda: jax.vmap(noisy, (None, 0))(0.0, KEYS),
    "folded": lambda: jax.vmap(lambda v, i: noisy(v, jax.random.fold_in(KEY, i)))(
        jnp.zeros(3), jnp.arange(3)
    ),
    "calls": lambda: jnp.stack([release(0.0) for _ in range(3)]),
    "jitted calls": lambda: jnp.stack([JITTED(0.0, dp.secure_key()) for _ in range(3)]),
    "callback": lambda: jnp.stack([CALLING(0.0) for _ in range(3)]),
    "entries": lambda: dp.release(MECHANISM, jnp.zeros(3)).value,
    "copies": lambda: jnp.stack([dp.release(m, 0.0).value for m in copies(MECHANISM)]),
}
JITTED = jax.jit(release)
CALLING = jax.jit(
    lambda v: jax.pure_callback(
        lambda x: np.asarray(release(float(x))), jax.ShapeDtypeStruct((), jnp.float64), v
    )
)


def copies(mechanism):
    return mechanism, copy.copy(mechanism), copy.deepcopy(mechanism)


@pytest.mark.float64
@pytest.mark.parametrize("call", OWN)
def test_no_two_draws_are_the_same(call):
    noise = np.asarray(OWN[call]())
    assert len(set(noise.tolist())) == 3
    assert (np.abs(noise) < 10).all()


@pytest.mark.float64
def test_a_derivative_of_one_release_may_have_a_key_of_its_own():
    assert jax.grad(release)(1.0, KEY) == 0.0
    inside = jax.jit(lambda v, k: jax.grad(lambda x: release(x, k))(v))
    assert inside(1.0, KEY) == 0.0


def with_rule(f):
    """The function with a derivative of its own."""
    own = jax.custom_jvp(f)
    own.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return own


# Each calls a function of a value and a key within an inner function, which hides what is mapped.
INNER = {
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "both": lambda f: jax.jit(jax.checkpoint(f)),
    "custom_jvp": with_rule,
    "cond": lambda f: lambda v, k: jax.lax.cond(jnp.array(True), f, lambda v, k: v, v, k),
    "map": lambda f: lambda v, k: jax.lax.map(lambda pair: f(*pair), (v[None], k[None]))[0],
    "scan": lambda f: lambda v, k: jax.lax.scan(lambda c, x: (f(c, x), None), v, k[None])[0],
    "carry": lambda f: (
        lambda v, k: jax.lax.scan(lambda c, _: ((f(*c), c[1]), None), (v, k), None, length=1)[0][0]
    ),
    "fori_loop": lambda f: lambda v, k: jax.lax.fori_loop(0, 1, lambda _, x: f(x, k), v),
    "while_loop": lambda f: (
        lambda v, k: jax.lax.while_loop(
            lambda c: c[0] < 1, lambda c: (1, f(c[1], c[2]), c[2]), (0, v, k)
        )[1]
    ),
    "mapped while_loop": lambda f: (
        lambda v, k: jax.lax.while_loop(
            lambda c: c[0] < 9, lambda c: (9.0, f(*c[1:]), c[2]), (v, v, k)
        )[1]
    ),
}
# JAX copies every argument of a condition that is mapped.
CONDITIONS = {
    "mapped cond": lambda f: lambda v, k: jax.lax.cond(v < 9, f, lambda v, k: v, v, k),
    "switch": lambda f: (
        lambda v, k: jax.lax.switch(v.astype(int) % 2, [f, lambda v, k: f(v, k)], v, k)
    ),
}
# A carried key is refused by the loop itself where it is a constant of it.
CONSTANT = ("fori_loop",)


@pytest.mark.float64
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_an_inner_function_hides_no_key_that_all_entries_share(inner, outer):
    """Three entries had one noise, and nothing was raised."""
    draw = release if inner == "jit" else noisy  # a release takes long to trace
    mapped = outer(jax.vmap(INNER[inner](draw), (0, None)))
    with pytest.raises(ValueError, match=r"^key must be an argument of the function"):
        mapped(jnp.arange(3.0), KEY)


@pytest.mark.float64
@pytest.mark.parametrize("inner", [*(x for x in INNER if x not in CONSTANT), *CONDITIONS])
def test_an_inner_function_takes_a_key_for_each_entry(inner):
    function, values = (INNER | CONDITIONS)[inner](noisy), jnp.arange(3.0)
    drawn = jax.vmap(function)(values, KEYS)
    # Fused, a normal number and a sum differ in the last place.
    np.testing.assert_allclose(drawn, jax.vmap(noisy)(values, KEYS), rtol=1e-14)
    np.testing.assert_allclose(drawn, [noisy(*pair) for pair in zip(values, KEYS, strict=True)])


@pytest.mark.float64
@pytest.mark.parametrize(
    ("inner", "words"),
    [("mapped cond", SECURE), ("mapped cond", jax.random.PRNGKey(0)), ("switch", KEY)],
    ids=["secure", "words", "switch"],
)
def test_entries_of_a_condition_share_no_noise(inner, words):
    """Keys are copied before their rule sees them, and the copies draw apart."""
    values = jnp.arange(3.0)
    for outer in (lambda f: f, jax.jit):
        drawn = outer(jax.vmap(CONDITIONS[inner](noisy), (0, None)))(values, words)
        assert np.unique(np.asarray(drawn - values).round(9)).size == 3
    twice = jax.vmap(jax.vmap(CONDITIONS[inner](noisy), (0, None)), (0, None))
    values = jnp.stack([values, values, values])
    assert np.unique(np.asarray(twice(values, words) - values).round(9)).size == 9


@pytest.mark.float64
def test_copies_of_a_key_draw_apart():
    copied = jnp.stack([KEYS[0], KEYS[1], KEYS[0], KEYS[0]])
    drawn = np.asarray(jax.vmap(noisy)(jnp.zeros(4), copied))
    assert np.unique(drawn).size == 4
    # A key's first entry draws what the key draws alone.
    np.testing.assert_allclose(drawn[:2], [noisy(0.0, key) for key in KEYS[:2]], rtol=1e-14)


DEVICES = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
import jaxdp as dp
from jaxdp._core import chacha
from jaxdp._core.random_key import checked_key
mechanism, key = dp.Mechanism(dp.DiscreteLaplace(1e4), 1.0), jax.random.key(0)
parts = NamedSharding(jax.make_mesh((2,), ("part",)), P("part"))
values = jax.device_put(jnp.zeros(2, int), parts)

def release(value, key):
    return dp.release(mechanism, value[0], key).value[None]

def on_devices(function, of_key, *arguments):
    specs = P("part"), of_key
    return jax.shard_map(function, mesh=parts.mesh, in_specs=specs, out_specs=P("part"))(*arguments)

for function in (release, jax.jit(release)):
    try:
        on_devices(function, P(), values, key)
    except ValueError as error:
        print("key must" in str(error))
def own(value, key):
    key = checked_key(jax.random.fold_in(key, jax.lax.axis_index("part")), value)
    return value + jax.random.bits(key, (1,))
print(len(set(on_devices(own, P(), values, key).tolist())))
"""


def test_devices_do_not_share_a_key():
    found = run(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert found.split() == ["True", "True", "2"]


FORKS = """
import os
import jax
import jaxdp as dp
for _ in range(2):
    if not os.fork():
        print(*jax.random.key_data(dp.secure_key()).tolist(), flush=True)
        os._exit(0)
    os.wait()
print(*jax.random.key_data(dp.secure_key()).tolist())
"""


def test_forked_processes_draw_keys_of_their_own():
    keys = run(FORKS).splitlines()
    assert len(set(keys)) == 3
    assert all(len(key.split()) == 8 for key in keys)


def test_a_ledger_is_not_charged_once_for_a_batch(tmp_path):
    ledger = dp.Ledger(tmp_path / "budget", dp.GDP(1.5))
    running = dp.Filter(dp.GDP(1.5))
    calls = {
        "Ledger": [
            lambda v, k: dp.release(MECHANISM, v, k, ledger=ledger).value,
            lambda v, k: ledger.charge(dp.GDP(1.0)) or v,
            lambda v, k: v * ledger.would_fit(MECHANISM),
            lambda v, k: ledger.charge(dp.GDP(v)) or v,
        ],
        "Filter": [lambda v, k: running.spend(dp.GDP(0.1 + v)) or v],
    }
    for name, functions in calls.items():
        for function in functions:
            with pytest.raises(ValueError, match=f"^{name} must be called outside of jit"):
                jax.vmap(function)(VALUES, KEYS)
            with pytest.raises(ValueError, match=f"^{name} must be called outside of jit"):
                jax.jit(function)(1.0, KEY)
    assert ledger.steps == running.steps == ()
    for _ in range(2):
        dp.release(MECHANISM, 0.0, ledger=ledger)
    with pytest.raises(dp.BudgetExceededError):
        dp.release(MECHANISM, 0.0, KEY, ledger=ledger)
