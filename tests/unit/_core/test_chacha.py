"""Secure keys: the vectors of RFC 8439, domain separation, and `jax.random` unchanged on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import counted

import jaxdp as dp
from jaxdp._core import chacha
from jaxdp._core.random_key import is_secure, kind_of, stored_key


def words_of(data):
    return [jnp.uint32(x) for x in np.frombuffer(bytes.fromhex(data), dtype="<u4")]


# RFC 8439: section 2.3.2; appendix A.1, vectors 1, 2, 3 and 5. Key, counter, nonce, keystream.
VECTORS = (
    (
        "".join(f"{i:02x}" for i in range(32)),
        1,
        "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        "00" * 32,
        0,
        "00" * 12,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        "00" * 32,
        1,
        "00" * 12,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        "00" * 31 + "01",
        1,
        "00" * 12,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        "00" * 32,
        0,
        "00" * 11 + "02",
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
)


@pytest.mark.parametrize(("key", "counter", "nonce", "keystream"), VECTORS)
def test_the_block_is_that_of_rfc_8439(key, counter, nonce, keystream):
    words = chacha.block(words_of(key), [jnp.uint32(counter), *words_of(nonce)])
    assert np.array(words, dtype="<u4").tobytes().hex() == keystream


def test_draws_children_and_folds_are_disjoint():
    """None of the words that are drawn is a word of a key that was derived."""
    key = jax.random.key(0, impl=chacha.IMPLEMENTATION)
    drawn = np.asarray(jax.random.bits(key, (4096,))).tolist()
    children = jax.random.key_data(jax.random.split(key, 64)).ravel().tolist()
    folded = [jax.random.key_data(jax.random.fold_in(key, i)).tolist() for i in range(64)]
    folds = np.ravel(folded).tolist()
    known = [*drawn, *children, *folds]
    # Of 5,000 words of 32 bits 0.003 pairs agree by chance.
    assert len(set(known)) == len(known)


def test_a_long_draw_begins_no_block_twice():
    key = dp.secure_key()
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


def test_calls_outside_of_jit_compile_once():
    children(dp.secure_key(), 0)
    with counted() as compiled:
        for data in range(1, 4):
            children(dp.secure_key(), data)
    assert compiled == []
