"""Randomness that no one can guess."""

from __future__ import annotations

import os
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import chacha
from jaxdp._core.types import Key


def secure_key() -> Key:
    """A ChaCha20 key of 256 bits from the operating system: for noise that may be published.

    Returns:
        A typed key of `jax.random`, which all of it takes: split, fold_in, bits, normal, vmap, jit.

    Keep it nowhere and use it once: whoever holds it takes the noise off. Source: RFC 8439.

    >>> import jax
    >>> import jaxdp as dp
    >>> key = dp.secure_key()
    >>> jax.random.normal(key, (2,)).shape
    (2,)
    """
    words = np.frombuffer(os.urandom(32), dtype=np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=chacha.IMPLEMENTATION)


def is_secure(key: Key) -> bool:
    """True if a key's generator is ChaCha20; who knows its 256 bits is another question."""
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


def checked_key(key: Any) -> Key:
    """`key`, if it is one of `jax.random`, typed or the words of one; else `ValueError`."""
    dtype = getattr(key, "dtype", None)
    words = dtype == np.uint32 and key.ndim > 0
    if dtype is None or not (words or jnp.issubdtype(dtype, jax.dtypes.prng_key)):
        told = type(key).__name__ if dtype is None else f"an array of {dtype}"
        raise ValueError(
            f"key must be a key of jax.random, such as jax.random.key(seed), got {told}"
        )
    return key
