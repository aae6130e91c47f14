"""A training of DP-SGD in a file, from which a killed one goes on and draws no noise anew.

The file holds the key, and the parameters and the optimiser's state of one step. It is made, with
the key, before any noise is drawn, and replaced as a whole after that: whatever a kill leaves is of
one step. Steps that were made since are made again, with the same noise.

Refused: a file of another plan or key, one that was changed, and a second run that begins at the
same path at the same time. Not noticed: other records, another loss or another optimiser of the
same state. The noise of a step must meet one sum alone: go on from an older copy with nothing
changed.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core.files import Format, sealed, unsealed, write_atomically
from jaxdp._core.random_key import kind_of, secure_key, stored_key
from jaxdp._core.types import Key
from jaxdp.dpsgd.training_plan import Plan

_FORMAT = Format("training by DP-SGD")


class Checkpoint:
    """A file of one training, or none: then nothing is read or written."""

    def __init__(self, path: str | os.PathLike[str] | None, plan: Plan, key: Key | None) -> None:
        """The file is read, if there is one: `key` is the one that it holds, or else a new one."""
        self._path = None if path is None else Path(path)
        self._plan = _digest(plan)
        self._held = self._read()
        if self._held is None:
            self.key = secure_key() if key is None else key
            return
        self.key = _array(self._held["key"])
        if key is not None and _as_json(key) != self._held["key"]:
            raise ValueError(f"key must be the one that {path} was started with, or None")

    def reached(self, params: Any, state: Any) -> tuple[int, Any, Any]:
        """Steps made, parameters and state: those of the file, or the first ones, which make it."""
        if self._held is None:
            self._reserve()
            self.write(0, params, state)
            return 0, params, state
        leaves, structure = jax.tree.flatten((params, state))
        found = self._held["leaves"]
        if len(found) != len(leaves):
            raise ValueError(
                f"optimizer must be the one of {self._path}, whose state has other leaves"
            )
        return self._held["done"], *jax.tree.unflatten(structure, map(_array, found))

    def write(self, done: int, params: Any, state: Any) -> None:
        """Put what `done` steps led to in the file's place."""
        if self._path is None:
            return
        leaves = [_as_json(leaf) for leaf in jax.tree.leaves((params, state))]
        body = {"plan": self._plan, "key": _as_json(self.key), "done": done, "leaves": leaves}
        # It holds the key of the noise.
        write_atomically(self._path, sealed(_FORMAT, body), mode=0o600)

    def _reserve(self) -> None:
        """The place of a new file, which one run alone may take."""
        try:
            if self._path is not None:
                self._path.touch(mode=0o600, exist_ok=False)
        except FileExistsError as error:
            raise ValueError(f"path must be free, another run began at {self._path}") from error

    def _read(self) -> dict[str, Any] | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            body = unsealed(_FORMAT, self._path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"path must be a file of train, {self._path} is not: {error}"
            ) from error
        if body.get("plan") != self._plan:
            raise ValueError(f"path must be of this plan, {self._path} is of another")
        return body


def _as_json(leaf: Any) -> dict[str, Any]:
    """An array as JSON, every bit of it; a key by its words."""
    leaf = jnp.asarray(leaf)
    kind = kind_of(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else None
    array = np.asarray(leaf if kind is None else jax.random.key_data(leaf))
    data = base64.b64encode(array.tobytes()).decode()
    return {"kind": kind, "dtype": array.dtype.name, "shape": list(array.shape), "bytes": data}


def _array(record: Mapping[str, Any]) -> jax.Array:
    """The array that `_as_json` wrote."""
    flat = np.frombuffer(base64.b64decode(record["bytes"]), dtype=jnp.dtype(record["dtype"]))
    array = jnp.asarray(flat.reshape(record["shape"]))
    return array if record["kind"] is None else stored_key(array, record["kind"])


def _digest(plan: Plan) -> str:
    """Digest of all that the accounting knows."""
    leaves, tree = jax.tree.flatten(plan)
    digest = hashlib.sha256(str(tree).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
