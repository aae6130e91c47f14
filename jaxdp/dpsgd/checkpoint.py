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
# What reading a sealed file that this module did not write may raise. derived
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)
# Numbers that a digest copies at a time. chosen: 8 MiB
_DIGESTED = 2**20
# Arguments that are compared only where one version of JAX traced both.
_TRACED = ("loss", "optimizer")


class Checkpoint:
    """A file of one training, or none: then nothing is read or written."""

    def __init__(self, path: str | os.PathLike[str] | None, plan: Plan, key: Key | None) -> None:
        """The file is read, if there is one: `key` is the one that it holds, or else a new one."""
        self._path = None if path is None else Path(path)
        self._plan, self._steps = digest_of(plan, str(jax.tree.structure(plan))), plan.steps
        self._inputs: Mapping[str, str] = {}
        self._stored = self._read()
        if self._stored is None:
            self.key = secure_key() if key is None else key
            return
        self.key = self._array(self._stored.get("key"))
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
        if self._stored is None:
            self._begin(params, state)
        else:
            self._require_inputs(self._stored.get("inputs"))
        remove_partials(self._path)
        return (0, params, state) if self._stored is None else self._restored(params, state)

    def write(self, done: int, params: Any, state: Any) -> None:
        """Replace the file by the state after `done` steps."""
        self._write(done, params, state, replaces=True)

    def _write(self, done: int, params: Any, state: Any, *, replaces: bool) -> None:
        if self._path is None:
            return
        leaves = [_as_json(leaf) for leaf in jax.tree.leaves((params, state))]
        body = {"plan": self._plan, "inputs": self._inputs, "key": _as_json(self.key)}
        text = sealed(_FORMAT, {**body, "done": done, "leaves": leaves})
        # It holds the key of the noise.
        write_atomically(self._path, text, mode=0o600, replaces=replaces)

    def _begin(self, params: Any, state: Any) -> None:
        """The new file, whose place one run alone may take."""
        try:
            self._write(0, params, state, replaces=False)
        except FileExistsError as error:
            raise ValueError(f"path must be free, another run began at {self._path}") from error

    def _require_inputs(self, stored: Any) -> None:
        if not isinstance(stored, dict) or stored.keys() != self._inputs.keys():
            raise self._malformed("its inputs are not those of a training")
        is_same_jax = stored.get("jax") == self._inputs.get("jax")
        for name, digest in self._inputs.items():
            if name == "jax" or (name in _TRACED and not is_same_jax):
                continue
            if stored[name] != digest:
                raise ValueError(f"{name} must be the one that {self._path} was started with")

    def _restored(self, params: Any, state: Any) -> tuple[int, Any, Any]:
        """Steps, parameters and state from the file, with the shapes and types of the arguments."""
        stored = self._stored or {}
        done, found = stored.get("done"), stored.get("leaves")
        leaves, structure = jax.tree.flatten((params, state))
        if type(done) is not int or not 0 <= done <= self._steps or not isinstance(found, list):
            raise self._malformed("its number of steps or its arrays are missing")
        if len(found) != len(leaves):
            raise ValueError(
                f"optimizer must be the one of {self._path}, whose state has other leaves"
            )
        arrays = [self._array(record) for record in found]
        for array, leaf in zip(arrays, map(jnp.asarray, leaves), strict=True):
            if (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
                raise self._malformed(
                    f"an array of {array.dtype}{list(array.shape)} is where the training has "
                    f"{leaf.dtype}{list(leaf.shape)}"
                )
        return done, *jax.tree.unflatten(structure, arrays)

    def _read(self) -> dict[str, Any] | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            text = read_text(self._path, "checkpoint")
            if not text:
                raise ValueError("it is empty: delete it, if no training began there")
            body = unsealed(_FORMAT, text)
        except ValueError as error:
            raise self._malformed(error) from error
        if body.get("plan") != self._plan:
            raise ValueError(f"path must be of this plan, {self._path} is of another")
        return body

    def _array(self, record: Any) -> jax.Array:
        """The array that `_as_json` wrote."""
        try:
            content = base64.b64decode(record["bytes"], validate=True)
            flat = np.frombuffer(content, dtype=jnp.dtype(record["dtype"]))
            array = jnp.asarray(flat.reshape(record["shape"]))
            return array if record["kind"] is None else stored_key(array, record["kind"])
        except _MALFORMED as error:
            raise self._malformed("an array cannot be read") from error

    def _malformed(self, why: object) -> ValueError:
        return ValueError(f"path must be a file of train, {self._path} is not: {why}")


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
