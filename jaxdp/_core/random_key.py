"""Keys of cryptographically secure randomness, which no two calls, entries or devices share.

A key that several share is refused where the transformation that is open does not map it. Inside
of an inner `jit`, `checkpoint`, `cond` or loop JAX shows that only when it maps the finished
program: the key passes through an identity there, whose rule under `vmap` compares it with the
values that it protects. A condition that is mapped copies a key to every batch element before this
rule. Equal keys of one batch are therefore made different, by their positions.
"""

from __future__ import annotations

import functools
import os
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxdp._core import chacha, checks
from jaxdp._core.precision import TRANSFORMATIONS, is_inside_trace, is_isolated
from jaxdp._core.threads import require_threads_of_jax
from jaxdp._core.types import Key

# Why what draws on the host does not draw while JAX traces.
ONE_KEY = "its key is used once, and all calls and entries would share its noise"
# Traces that run once, on one value: none, and those of derivatives. All others repeat or map.
_RUN_ONCE = ("EvalTrace", "JVPTrace", "LinearizeTrace")
# Number of the child from which copies of a key descend. chosen: crc32 of "copies of a key"
_COPIES = 0x786AF67B
# Odd factor of the hash that finds equal keys. chosen: 2^32 over the golden ratio
_FACTOR = 0x9E3779B9


def secure_key() -> Key:
    """A ChaCha20 key of 256 bits from the operating system: for noise that may be published.

    Returns:
        A typed key of `jax.random`, which all of it takes: split, fold_in, bits, normal, vmap, jit.

    Do not store it, and use it once: anyone who has the key can subtract the noise. `ValueError`
    inside of `jit`, `vmap`, `grad`, loops and other transformations, where one key would serve all
    calls and entries. Source: RFC 8439.

    >>> import jax
    >>> import jaxdp as dp
    >>> key = dp.secure_key()
    >>> jax.random.normal(key, (2,)).shape
    (2,)
    """
    if is_inside_trace():
        raise _undrawn()
    require_threads_of_jax()
    words = np.frombuffer(os.urandom(32), dtype=np.uint32)
    return jax.random.wrap_key_data(jax.device_put(words), impl=chacha.IMPLEMENTATION)


def seeded_key(seed: int) -> Key:
    """A key of ChaCha20 that anyone can guess: for tests. Its draws compile nothing."""
    return jax.random.key(seed, impl=chacha.IMPLEMENTATION)


def is_secure(key: jax.Array) -> bool:
    """True if a key's generator is ChaCha20, whether or not its 256 bits are secret."""
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and kind_of(key) == chacha.NAME


def kind_of(key: jax.Array) -> str:
    """The name of a typed key's generator."""
    return str(jax.random.key_impl(key))


def stored_key(words: Any, kind: str) -> jax.Array:
    """The key of these words, by the name that `kind_of` gave."""
    generator = chacha.IMPLEMENTATION if kind == chacha.NAME else kind
    return jax.random.wrap_key_data(words, impl=generator)


def split(key: Key, number: int) -> jax.Array:
    """`jax.random.split`; of a key that `is_known` by NumPy, in a third of the time."""
    if not is_known(key):
        return jax.random.split(key, number)
    return stored_key(chacha.children(words_of(key), (number,)), chacha.NAME)


def fold_in(key: Key, number: Any) -> Key:
    """`jax.random.fold_in`; of a key that `is_known` by NumPy."""
    if not (is_known(key) and isinstance(number, int)):
        return jax.random.fold_in(key, number)
    return stored_key(chacha.child(words_of(key), number), chacha.NAME)


def uniform_of_steps(key: Key, purpose: str, steps: np.ndarray, count: int) -> np.ndarray:
    """`jax.random.uniform` of `key_for` the purpose, of the child of each step, (steps, count).

    By NumPy, in float64, of a key that `is_known`.
    """
    keys = chacha.child(chacha.child(words_of(key), steps), zlib.crc32(purpose.encode()))
    return (chacha.known_bits(keys, (count,)) >> np.uint64(12)) * 2.0**-52


def is_known(key: Key) -> bool:
    """True for one key of ChaCha20 outside of traces: NumPy draws from it without a program."""
    return checks.is_concrete(key) and key.ndim == 0 and is_secure(key) and not is_inside_trace()


def children(key: Key, number: int = 2) -> list[Key]:
    """`split`, as a list; JAX would compile the indexing of known keys."""
    keys = split(key, number)
    if not checks.is_concrete(keys):
        return [keys[i] for i in range(number)]
    return [stored_key(words, kind_of(key)) for words in words_of(keys)]


def words_of(keys: jax.Array) -> np.ndarray:
    """The words of known keys."""
    return np.asarray(jax.random.key_data(keys))


def key_for(purpose: str, key: Key) -> Key:
    """A key for one purpose alone: a key that is passed twice does not draw the same bits twice."""
    return fold_in(checked_key(key), zlib.crc32(purpose.encode()))


def key_or_new(key: Any, *values: Any) -> Key:
    """`checked_key`, or one of the operating system's bits if None, outside of traces alone."""
    if key is not None:
        return checked_key(key, *values)
    if not checks.all_concrete(values):
        raise _undrawn()
    return secure_key()


def checked_key(key: Any, *values: Any) -> Key:
    """`key`, if it is one of `jax.random`, typed or the words of one, and not shared by `values`.

    See `unshared`, which makes equal keys of a batch different.
    """
    dtype = getattr(key, "dtype", None)
    words = dtype == np.uint32 and key.ndim > 0
    if dtype is None or not (words or jnp.issubdtype(dtype, jax.dtypes.prng_key)):
        found = type(key).__name__ if dtype is None else f"an array of {dtype}"
        raise ValueError(
            "key must be a key of jax.random, such as jax.random.key(seed) or, for "
            f"releases, dp.secure_key(), got {found}"
        )
    return unshared(key, *values)


def _undrawn() -> ValueError:
    return ValueError(
        f"key must be given inside of {TRANSFORMATIONS}: a key that is made there is a constant, "
        "and all calls and batch elements would share its noise. Split a key outside, and pass one "
        "to each: jax.vmap(f)(values, jax.random.split(dp.secure_key(), n))"
    )


def unshared(key: Any, *values: Any) -> Any:
    """`key`, if no transformation gives one key to several of `values`, else `ValueError`.

    `values` are the protected values and the noise's parameters: all calls of `jit`, or all entries
    of `vmap`, would have the same noise. Not detected: one key that a loop carries, that is made
    from a constant inside of `jit`, that a callback closes over, or that `pmap` gives to every
    device.
    """
    leaves = [leaf for leaf in jax.tree.leaves(values) if not checks.is_concrete(leaf)]
    if any(_is_shared(key, leaf) or _varying(leaf) - _varying(key) for leaf in leaves):
        raise _shared()
    # No derivative passes: a key has none.
    return _own_key.bind(key, *map(lax.stop_gradient, leaves), level=0) if leaves else key


def _shared() -> ValueError:
    return ValueError(
        "key must be an argument of the function that is transformed, mapped as the values "
        "are: here it is a constant, and all calls and entries would share its noise. Use "
        "jax.vmap(f)(values, jax.random.split(key, n)), and a new key for each call of jit"
    )


def _is_shared(key: Any, value: Any) -> bool:
    """True if a transformation that repeats or maps the traced `value` does not trace `key`."""
    seen, hiding = _traces(key)
    # An argument of a jaxpr may be of all that is traced around it: it does not say.
    while hiding is not None:
        seen.append(hiding)
        hiding = getattr(hiding, "parent_trace", None)
    return any(
        trace not in seen and type(trace).__name__ not in _RUN_ONCE and not is_isolated(trace)
        for trace in _traces(value)[0]
    )


def _traces(value: Any) -> tuple[list[Any], Any]:
    """The traces that map or hold a value, and the last one if it hides the value."""
    traces = []
    while not checks.is_concrete(value):
        traces.append(getattr(value, "_trace", None))
        mapped = getattr(value, "val", getattr(value, "primal", None))
        if mapped is None:
            return traces, traces[-1]
        value = mapped
    return traces, None


def _varying(value: Any) -> frozenset[str]:
    """Names of the mesh axes along which a value differs, as `shard_map` records them."""
    kind = jax.typeof(value)
    # JAX moved the names from the first place to the second.
    names = getattr(kind, "vma", getattr(getattr(kind, "mat", None), "varying", ()))
    return frozenset(names)


def _mapped(arguments: Any, dims: Any, *, level: int) -> tuple[Any, int | None]:
    """The rule of the identity under `vmap`; `level` counts the maps that it has passed."""
    key, *values = arguments
    of_key, *of_values = dims
    if any(dim is not None for dim in of_values):
        if of_key is None:
            raise _shared()
        key, of_key = _different(jnp.moveaxis(key, of_key, 0), level), 0
    return _own_key.bind(key, *values, level=level + 1), of_key


@functools.partial(jax.jit, static_argnums=1)
def _different(keys: jax.Array, level: int) -> jax.Array:
    """The keys along the first axis; those that an earlier position has, too, become others."""
    is_typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    words = jax.random.key_data(keys) if is_typed else keys
    rows = words.reshape(len(words), -1).astype(jnp.uint32)
    # Rows that share a sum by chance only draw from other keys.
    powers = [pow(_FACTOR, place, 2**32) for place in range(rows.shape[1])]
    hashes = jnp.sum(rows * np.array(powers, np.uint32)[None], axis=1, dtype=jnp.uint32)
    order = jnp.argsort(hashes)
    found = hashes[order]
    repeats = jnp.zeros(len(words), bool).at[order[1:]].set(found[1:] == found[:-1])
    copies = _copied(keys, is_typed, level)
    return jnp.where(repeats.reshape(-1, *(1,) * (keys.ndim - 1)), copies, keys)


def _copied(keys: jax.Array, is_typed: bool, level: int) -> jax.Array:
    """A child of each key, of a level and its position along the first axis."""
    flat = keys.reshape(-1) if is_typed else keys.reshape(-1, keys.shape[-1])
    positions = jnp.repeat(jnp.arange(len(keys), dtype=jnp.uint32), len(flat) // len(keys))

    def child(key: Key, position: jax.Array) -> Key:
        return jax.random.fold_in(jax.random.fold_in(key, _COPIES + level), position)

    return jax.vmap(child)(flat, positions).reshape(keys.shape)


_own_key = Primitive("own_key")
_own_key.def_impl(lambda key, *_, level: key)
_own_key.def_abstract_eval(lambda key, *_, level: key)
batching.primitive_batchers[_own_key] = _mapped
mlir.register_lowering(_own_key, lambda _, key, *__, level: [key])
