"""Secure keys: the vectors of RFC 8439, domain separation, and `jax.random` unchanged on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import counted
from references import load

import jaxdp as dp
from jaxdp._core import chacha, random_key
from jaxdp._core.random_key import is_secure, kind_of, stored_key
from jaxdp._core.random_key import words_of as words_of_keys

pytestmark = pytest.mark.float64


def words_of(data):
    return [jnp.uint32(x) for x in np.frombuffer(bytes.fromhex(data), dtype="<u4")]


@pytest.mark.parametrize("row", load("chacha20.json"), ids=lambda row: row["source"])
def test_the_block_is_that_of_rfc_8439(row):
    words = chacha.block(
        words_of(row["key"]), [jnp.uint32(row["counter"]), *words_of(row["nonce"])]
    )
    assert np.array(words, dtype="<u4").tobytes().hex() == row["keystream"]


def test_draws_children_and_folds_are_disjoint():
    """No word that is drawn is one of a derived key, and a long draw begins no block twice."""
    key = jax.random.key(0, impl=chacha.IMPLEMENTATION)
    drawn = np.asarray(jax.random.bits(key, (4096,))).tolist()
    children = jax.random.key_data(jax.random.split(key, 64)).ravel().tolist()
    folded = [jax.random.key_data(jax.random.fold_in(key, i)).tolist() for i in range(64)]
    known = [*drawn, *children, *np.ravel(folded).tolist()]
    # Of 5,000 words of 32 bits 0.003 pairs agree by chance.
    assert len(set(known)) == len(known)
    words = np.asarray(jax.random.bits(key, (2 * 4096 * 8,), dtype=jnp.uint64))
    assert np.unique(words).size == words.size


def test_jax_random_takes_it():
    key = jax.random.key(7, impl=chacha.IMPLEMENTATION)
    assert sorted(np.asarray(jax.random.permutation(key, 9))) == list(range(9))
    assert jax.random.choice(key, jnp.arange(5), (3,)).shape == (3,)
    normal = np.asarray(jax.random.normal(key, (20_000,)))
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    uniform = np.asarray(jax.random.uniform(key, (20_000,), dtype=jnp.float32))
    assert abs(uniform.mean() - 0.5) < 0.01
    assert uniform.min() >= 0
    assert uniform.max() < 1
    octets = np.asarray(jax.random.bits(key, (4096,), dtype=jnp.uint8))
    assert len(set(octets.tolist())) == 256
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert jax.random.bits(jax.device_put(key, sharding), (3,)).shape == (3,)


def test_vmap_scan_and_jit_draw_what_one_call_draws():
    keys = jax.random.split(jax.random.key(1, impl=chacha.IMPLEMENTATION), 3)
    each = [jax.random.bits(k, (5,)) for k in keys]
    draw = jax.jit(lambda k: jax.random.bits(k, (5,)))
    np.testing.assert_array_equal(jax.vmap(draw)(keys), each)
    scanned = jax.lax.scan(lambda c, k: (c, draw(k)), 0, keys)[1]
    np.testing.assert_array_equal(scanned, each)


def test_secure_keys_differ_and_are_known_as_such():
    first, second = dp.secure_key(), dp.secure_key()
    assert jax.random.key_data(first).size == 8
    assert (jax.random.key_data(first) != jax.random.key_data(second)).any()
    assert is_secure(first)
    assert not is_secure(jax.random.key(0))
    assert not is_secure(jax.random.PRNGKey(0))
    again = stored_key(jax.random.key_data(first), kind_of(first))
    assert (jax.random.bits(again, (4,)) == jax.random.bits(first, (4,))).all()


def test_too_long_a_draw_is_refused():
    with pytest.raises(ValueError, match="fewer than 2\\^32 blocks"):
        jax.jit(lambda k: jax.random.bits(k, (2**36,))).lower(dp.secure_key())


def children(key, data):
    """What a program of a user calls outside of `jit`, keys of a batch too."""
    few = jax.random.split(key)
    return (
        *(jax.random.fold_in(key, data), few, jax.random.split(key, (3, 2))),
        jax.vmap(jax.random.fold_in, (0, None))(few, data),
        jax.vmap(lambda k: jax.random.split(k, 3))(few),
        *(jax.random.bits(key, (5,)), jax.random.key(data, impl=chacha.IMPLEMENTATION)),
    )


def test_known_words_are_those_of_the_program_and_compile_nothing():
    key = dp.secure_key()
    jax.random.fold_in(key, np.uint32(7))  # JAX compiles a conversion of the number
    with counted() as compiled:
        known = [jax.random.bits(key, (37, 5), dtype=f"uint{width}") for width in (8, 64)]
        known += [jax.random.key_data(jax.random.split(key, (3, 2)))]
        known += [jax.random.key_data(jax.random.fold_in(key, np.uint32(7)))]
        two = chacha.known_bits(np.asarray(jax.random.key_data(jax.random.split(key, 2))), (2, 9))
    assert compiled == []
    draw = jax.jit(lambda k, width: jax.random.bits(k, (37, 5), f"uint{width}"), static_argnums=1)
    traced = [draw(key, width) for width in (8, 64)]
    traced += [jax.jit(lambda k: jax.random.key_data(jax.random.split(k, (3, 2))))(key)]
    traced += [jax.jit(lambda k: jax.random.key_data(jax.random.fold_in(k, 7)))(key)]
    for one, other in zip(known, traced, strict=True):
        np.testing.assert_array_equal(one, other)
    each = [jax.random.bits(k, (2, 9), dtype=jnp.uint64) for k in jax.random.split(key, 2)]
    np.testing.assert_array_equal(two, each)
    np.testing.assert_array_equal(words_of_keys(random_key.split(key, 6)), traced[2].reshape(6, 8))
    np.testing.assert_array_equal(words_of_keys(random_key.fold_in(key, 7)), traced[3])


def test_few_blocks_and_many_are_mixed_alike():
    state = np.random.default_rng(0).integers(0, 2**32, (4, 4, 5), dtype=np.uint32)
    np.testing.assert_array_equal(chacha._mixed_few(state), chacha._mixed_many(state))


def test_calls_outside_of_jit_compile_once():
    children(dp.secure_key(), 0)
    with counted() as compiled:
        for data in range(1, 4):
            children(dp.secure_key(), data)
    assert compiled == []
