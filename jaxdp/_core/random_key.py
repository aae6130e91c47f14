"""Keys of cryptographically secure randomness."""

from __future__ import annotations

import os
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import chacha, checks
from jaxdp._core.shared_key import unshared
from jaxdp._core.threads import require_threads_of_jax
from jaxdp._core.tracing import TRANSFORMATIONS, is_inside_trace
from jaxdp._core.types import Key

# Why what draws on the host does not draw while JAX traces.
ONE_KEY = "its key is used once, and all calls and entries would share its noise"


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
    return jax.random.wrap_key_data(jnp.asarray(words), impl=chacha.IMPLEMENTATION)


def is_secure(key: Key) -> bool:
    """True if a key's generator is ChaCha20, whether or not its 256 bits are secret."""
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and kind_of(key) == chacha.NAME


def kind_of(key: Key) -> str:
    """The name of a typed key's generator."""
    return str(jax.random.key_impl(key))


def stored_key(words: jax.Array, kind: str) -> Key:
    """The key of these words, by the name that `kind_of` gave."""
    return jax.random.wrap_key_data(
        words, impl=chacha.IMPLEMENTATION if kind == chacha.NAME else kind
    )


def key_for(purpose: str, key: Key) -> Key:
    """A key for one purpose alone: a key that is passed twice does not draw the same bits twice."""
    return jax.random.fold_in(checked_key(key), zlib.crc32(purpose.encode()))


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
