"""Randomness that no one can guess."""

from __future__ import annotations

import os
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core.types import Key


def fresh_key() -> Key:
    """A key of `jax.random` from 64 bits of the operating system: all that Threefry takes."""
    words = np.frombuffer(os.urandom(8), dtype=np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


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
