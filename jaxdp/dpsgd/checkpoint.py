"""Checkpoint file of a DP-SGD training, which resumes with the same noise.

The file holds the key, the parameters and the optimiser's state after one step. It is written
atomically, first with the key before any noise is drawn, so an interrupted run leaves the state of
one step. Later steps are repeated with the same noise. An interrupted write can leave a hidden file
beside it, which the next run removes.

`ValueError` for a file of another plan, key, loss, optimiser, first parameters or data, for a
modified file, and for a second run that starts at the same path at the same time. The loss and the
optimiser are compared as traced programs if the same version of JAX wrote the file. The noise of a
step must be added to one sum only: if you resume from an older copy, change nothing.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdp._core.files import Format, remove_partials, sealed, unsealed, write_atomically
from jaxdp._core.random_key import kind_of, secure_key, stored_key
from jaxdp._core.types import Key
from jaxdp.dpsgd.programs import Traced
from jaxdp.dpsgd.training_plan import Plan
from jaxdp.proof.files import read_text

_FORMAT = Format("training by DP-SGD", version=3)
# Numbers that a digest copies at a time. chosen: 8 MiB
_DIGESTED = 2**20
# Arguments that are compared only where one version of JAX traced both.
_TRACED = ("loss", "optimizer")


class Checkpoint:
    """A file of one training, or none: then nothing is read or written."""

    def __init__(self, path: str | os.PathLike[str] | None, plan: Plan, key: Key | None) -> None:
        """The file is read, if there is one: `key` is the one that it holds, or else a new one."""
        self._path = None if path is None else Path(path)
        self._plan = digest_of(plan, str(jax.tree.structure(plan)))
        self._inputs: Mapping[str, str] = {}
        self._stored = self._read()
        if self._stored is None:
            self.key = secure_key() if key is None else key
            return
        self.key = _array_of(self._stored["key"])
        if key is not None and _as_json(key) != self._stored["key"]:
            raise ValueError(f"key must be the one that {path} was started with, or None")

    def reached(
        self, params: Any, state: Any, inputs: Callable[[], Mapping[str, str]] = dict
    ) -> tuple[int, Any, Any]:
        """Steps made, parameters and state from the file; or the first ones, which start the file.

        inputs: returns digests of the other arguments of the training.
        """
        if self._path is None:
            return 0, params, state
        self._inputs = inputs()
        if self._stored is not None:
            self._require_inputs(self._stored["inputs"])
            remove_partials(self._path)
            return self._restored(self._stored, params, state)
        try:
            self.write(0, params, state, replaces=False)
        except FileExistsError as error:
            raise ValueError(f"path must be free, another run began at {self._path}") from error
        remove_partials(self._path)
        return 0, params, state

    def write(self, done: int, params: Any, state: Any, *, replaces: bool = True) -> None:
        """Replace the file by the state after `done` steps; or begin it, at a free path."""
        if self._path is None:
            return
        leaves = [_as_json(leaf) for leaf in jax.tree.leaves((params, state))]
        body = {"plan": self._plan, "inputs": self._inputs, "key": _as_json(self.key)}
        text = sealed(_FORMAT, {**body, "done": done, "leaves": leaves})
        # It holds the key of the noise.
        write_atomically(self._path, text, mode=0o600, replaces=replaces)

    def _require_inputs(self, stored: Mapping[str, str]) -> None:
        is_same_jax = stored["jax"] == self._inputs["jax"]
        for name, digest in self._inputs.items():
            is_compared = name != "jax" and (is_same_jax or name not in _TRACED)
            if is_compared and stored[name] != digest:
                raise ValueError(f"{name} must be the one that {self._path} was started with")

    def _restored(self, stored: dict[str, Any], params: Any, state: Any) -> tuple[int, Any, Any]:
        """Steps, parameters and state from the file, with the shapes and types of the arguments."""
        leaves, structure = jax.tree.flatten((params, state))
        arrays = [_array_of(record) for record in stored["leaves"]]
        found, expected = (
            [(x.shape, x.dtype) for x in y] for y in (arrays, map(jnp.asarray, leaves))
        )
        if found != expected:
            raise ValueError(
                f"optimizer must be the one of {self._path}, whose state has other arrays"
            )
        return stored["done"], *jax.tree.unflatten(structure, arrays)

    def _read(self) -> dict[str, Any] | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            text = read_text(self._path, "checkpoint")
            if not text:
                raise ValueError("it is empty: delete it, if no training began there")
            body = unsealed(_FORMAT, text)
        except ValueError as error:
            raise ValueError(
                f"path must be a file of train, {self._path} is not: {error}"
            ) from error
        if body["plan"] != self._plan:
            raise ValueError(f"path must be of this plan, {self._path} is of another")
        return body


def _array_of(record: Mapping[str, Any]) -> jax.Array:
    """The array that `_as_json` wrote."""
    content = base64.b64decode(record["bytes"], validate=True)
    flat = np.frombuffer(content, dtype=jnp.dtype(record["dtype"]))
    array = jnp.asarray(flat.reshape(record["shape"]))
    return array if record["kind"] is None else stored_key(array, record["kind"])


def _as_json(leaf: Any) -> dict[str, Any]:
    """An array as JSON, every bit of it; a key by its words."""
    leaf = jnp.asarray(leaf)
    kind = kind_of(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else None
    array = words_of(leaf)
    data = base64.b64encode(array.tobytes()).decode()
    return {"kind": kind, "dtype": array.dtype.name, "shape": list(array.shape), "bytes": data}


def fingerprints(
    loss: Callable[[Any, Any], jax.Array],
    params: Any,
    example: Any,
    data: str,
    optimizer: optax.GradientTransformation,
) -> dict[str, str]:
    """A digest of each argument of `train`, and the version of JAX.

    A function is identified by its traced program and the arrays that it closes over; an optimiser
    also by its first state, which may hold the learning rate; the records by the digest `data`.
    """
    state = optimizer.init(params)
    gradient = Traced.of(jax.grad(loss), params, example)
    update = Traced.of(optimizer.update, params, state, params)
    return {
        "params": digest_of(params),
        "data": data,
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
        # A memory map is not copied at once.
        flat = array.reshape(-1)
        for start in range(0, flat.size, _DIGESTED):
            digest.update(flat[start : start + _DIGESTED].tobytes())
    return digest.hexdigest()


def words_of(leaf: Any) -> np.ndarray:
    """An array on the host; a key by its words."""
    is_key = jnp.issubdtype(getattr(leaf, "dtype", np.float64), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)
