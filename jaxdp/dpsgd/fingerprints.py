"""Digests of the arguments of a training, for its checkpoint file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from jaxdp._core.namespace import xp
from jaxdp._core.programs import Traced


def fingerprints(
    loss: Callable[[Any, Any], jax.Array],
    params: Any,
    data: Any,
    optimizer: optax.GradientTransformation,
) -> dict[str, str]:
    """A digest of each argument of `train`, and the version of JAX.

    A function is identified by its traced program and the arrays that it closes over; an optimiser
    also by its first state, which may hold the learning rate.
    """
    example = jax.tree.map(lambda leaf: leaf[0], data)
    state = optimizer.init(params)
    gradient = Traced.of(jax.grad(loss), params, example)
    update = Traced.of(optimizer.update, params, state, params)
    return {
        "params": digest_of(params),
        "data": digest_of(data),
        "loss": digest_of(gradient.consts, gradient.portable_text),
        "optimizer": digest_of((update.consts, state), update.portable_text),
        "jax": jax.__version__,
    }


def digest_of(tree: Any, text: str = "") -> str:
    """SHA-256 of a text and of all arrays of a tree: types, shapes and every bit."""
    digest = hashlib.sha256(text.encode())
    for leaf in jax.tree.leaves(tree):
        array = words_of(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def words_of(leaf: Any) -> np.ndarray:
    """An array on the host; a key by its words."""
    is_key = xp.issubdtype(getattr(leaf, "dtype", np.float64), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)
