"""Coordinate descent that survives a kill, and draws no noise twice."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._key import fresh_key
from jaxdp._types import Key, RealLike, Vector
from jaxdp.ledger import from_hex, to_hex, write_atomically
from jaxdp.problems import Problem
from jaxdp.solvers.descent_plan import Plan
from jaxdp.solvers.descent_run import advance, check, draw

_FORMAT = "jaxdp coordinate descent"
_VERSION = 1


def run_resumable(
    problem: Problem,
    plan: Plan,
    path: str | os.PathLike[str],
    key: Key | None = None,
    *,
    start: RealLike | None = None,
    every: int = 1,
) -> Vector:
    """theta of `run`, with a file at `path` that is replaced, whole, after each `every` passes.

    Where the file exists, the run goes on from it and ends in the theta that it would have had,
    bit for bit: an update's noise is a function of the key, which the file holds, so that noise
    that was released is never drawn anew. `key` starts a file (from the operating system if it is
    None); with a file it must be the same one or None. A file of another problem, plan, start or
    `every` raises `ValueError`. After each `every` passes the state is recomputed from theta, so
    that last bits differ from those of `run`. The key takes the noise off: the file is as secret
    as the records (it is readable by its owner only); delete it at the end.
    """
    check(problem, plan)
    every = _check.positive_integer("every", every)
    passes = plan.sequence.shape[0]
    theta = jnp.zeros_like(plan.steps) if start is None else _check.real("start", start)
    inputs = _digest(problem, plan, theta, every)
    target, done = Path(path), 0
    if target.exists():
        theta, done, saved = _read(target, inputs, passes)
        if key is not None and not _same(saved, key):
            raise ValueError(f"key must be the one that {target} was started with, or None")
        key = saved
    used = fresh_key() if key is None else key
    noise = draw(plan, used)
    while done < passes:
        theta, _ = advance(problem, plan, theta, noise[done : done + every], done)
        done = min(done + every, passes)
        write_atomically(target, _dump(theta, done, used, inputs))
    return theta


def _dump(theta: Vector, done: int, key: Key, inputs: str) -> str:
    return json.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "inputs": inputs,
            "done": done,
            "theta": to_hex(np.asarray(theta).tolist()),
            "key": _words(key),
            "kind": _kind(key),
        }
    )


def _read(path: Path, inputs: str, passes: int) -> tuple[Vector, int, Key]:
    try:
        body: dict[str, Any] = json.loads(path.read_text())
        kind, done = body["kind"], body["done"]
        theta = jnp.asarray(from_hex(body["theta"]))
        words = jnp.asarray(body["key"], dtype=jnp.uint32)
        known = body["format"] == _FORMAT and body["version"] == _VERSION
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"path must be a file of run_resumable, {path} is not") from error
    if not known or body["inputs"] != inputs or not 0 < done <= passes:
        raise ValueError(f"path must be a file of this problem and plan, {path} is of another")
    return theta, done, words if kind is None else jax.random.wrap_key_data(words, impl=kind)


def _kind(key: Key) -> str | None:
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return str(jax.random.key_impl(key)) if typed else None


def _words(key: Key) -> list[int]:
    return np.asarray(key if _kind(key) is None else jax.random.key_data(key)).ravel().tolist()


def _same(one: Key, other: Key) -> bool:
    return _kind(one) == _kind(other) and _words(one) == _words(other)


def _digest(problem: Problem, plan: Plan, start: Vector, every: int) -> str:
    leaves, tree = jax.tree.flatten((problem, plan, start))
    digest = hashlib.sha256(f"{tree} {every}".encode())
    for leaf in leaves:
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
