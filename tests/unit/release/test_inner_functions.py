"""Keys within inner functions: JAX maps the finished program, and the key with it or not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from processes import run

import jaxdp as dp
from jaxdp._core import chacha
from jaxdp._core.random_key import checked_key

pytestmark = pytest.mark.float64

MECHANISM = dp.Mechanism(dp.Gaussian(1.0), 1.0)
VALUES = jnp.arange(3.0)
KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 3)
CHACHA = jax.random.key(0, impl=chacha.IMPLEMENTATION)


def release(value, key):
    return dp.release(MECHANISM, value, key).value


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


def noisy(value, key):
    return value + jax.random.normal(checked_key(key, value))


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_an_inner_function_hides_no_key_that_all_entries_share(inner, outer):
    """Three entries had one noise, and nothing was raised."""
    draw = release if inner == "jit" else noisy  # a release takes long to trace
    mapped = outer(jax.vmap(INNER[inner](draw), (0, None)))
    with pytest.raises(ValueError, match=r"^key must be an argument of the function"):
        mapped(VALUES, KEY)


@pytest.mark.parametrize("inner", [*(x for x in INNER if x not in CONSTANT), *CONDITIONS])
def test_an_inner_function_takes_a_key_for_each_entry(inner):
    function = (INNER | CONDITIONS)[inner](noisy)
    drawn = jax.vmap(function)(VALUES, KEYS)
    # Fused, a normal number and a sum differ in the last place.
    np.testing.assert_allclose(drawn, jax.vmap(noisy)(VALUES, KEYS), rtol=1e-14)
    np.testing.assert_allclose(drawn, [noisy(*pair) for pair in zip(VALUES, KEYS, strict=True)])


@pytest.mark.parametrize(
    ("inner", "words"),
    [("mapped cond", CHACHA), ("mapped cond", jax.random.PRNGKey(0)), ("switch", KEY)],
    ids=["secure", "words", "switch"],
)
def test_entries_of_a_condition_share_no_noise(inner, words):
    """Keys are copied before their rule sees them, and the copies draw apart."""
    for outer in (lambda f: f, jax.jit):
        drawn = outer(jax.vmap(CONDITIONS[inner](noisy), (0, None)))(VALUES, words)
        assert np.unique(np.asarray(drawn - VALUES).round(9)).size == 3
    twice = jax.vmap(jax.vmap(CONDITIONS[inner](noisy), (0, None)), (0, None))
    values = jnp.stack([VALUES, VALUES, VALUES])
    assert np.unique(np.asarray(twice(values, words) - values).round(9)).size == 9


def test_copies_of_a_key_draw_apart():
    copied = jnp.stack([KEYS[0], KEYS[1], KEYS[0], KEYS[0]])
    drawn = np.asarray(jax.vmap(noisy)(jnp.zeros(4), copied))
    assert np.unique(drawn).size == 4
    # A key's first entry draws what the key draws alone.
    np.testing.assert_allclose(drawn[:2], [noisy(0.0, key) for key in KEYS[:2]], rtol=1e-14)


def test_noise_of_a_step_is_not_shared_by_scales():
    params = jnp.zeros(2)
    plan = dp.dpsgd.plan(
        None, params, noise_multiplier=1.0, clip=1.0, sampling_prob=0.1, steps=2, dataset_size=30
    )
    noising = dp.dpsgd.add_noise(plan, KEY)

    def step(scale):
        wider = dataclasses.replace(plan, scales=scale * plan.scales)
        return dp.dpsgd.add_noise(wider, KEY).update(params, noising.init(params))[0]

    with pytest.raises(ValueError, match=r"^key must be an argument of the function"):
        jax.vmap(step)(1.0 + VALUES)


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
