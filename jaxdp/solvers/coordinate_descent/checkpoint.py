"""Coordinate descent that survives a kill, and draws no noise twice.

The file only grows: a header, on the disk before any noise is drawn, then a line with theta after
each `every` passes. So whatever a kill leaves is a beginning of it, in one place. Before each line
stands its code, an HMAC under the run's key of the code before and of the line.

Refused, before any noise is drawn: a file that another process or thread runs on (its lock ends
with the process, killed or not; of one machine, or of what its file system locks), that others can
read, or that is not yours; another problem, plan, start, `every` or key; a line that was changed,
taken out or is malformed. During the run: a file that was removed or replaced.

Not noticed: last lines that are missing, as in an older copy. That costs time alone, as the same
noise is drawn for the same passes. Nor a file that was removed or emptied between runs: with a key
of yours the same run begins again, with None another one, and the budget is spent twice. Nor lines
of whoever knows the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import require_outside_traces
from jaxdp._core.random_key import ONE_KEY, checked_key, kind_of, secure_key, stored_key
from jaxdp._core.types import ArrayLike, Key, Vector
from jaxdp.solvers.coordinate_descent.plan import Plan
from jaxdp.solvers.coordinate_descent.run import advance, begin, check, draw
from jaxdp.solvers.problems import Problem

# What the header says of the file, and by what it changes with its lines.
_FORMAT = "jaxdp coordinate descent"
_VERSION = 3
# What reading bytes that this module did not write may raise. derived
_MALFORMED = (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError)


def run_resumable(
    problem: Problem,
    plan: Plan,
    path: str | os.PathLike[str],
    key: Key | None = None,
    *,
    start: ArrayLike | None = None,
    every: int = 1,
) -> Vector:
    """The model of `run`, by a run that survives a kill through a file.

    Args:
        problem, plan, start: as in `run`.
        path: of the file, which takes a line after each `every` passes. Where it exists, the run
            goes on from its last whole line.
        key: one of yours is not written; give it again to go on. None draws one from the operating
            system, and the file holds it: it takes the noise off, so the file is as secret as the
            records. Delete it when theta is safe.
        every: passes.

    Returns:
        theta, (p,), the same bit for bit, killed or not: an update's noise is a function of the
        key, so that noise that was released is never drawn anew. The state is recomputed from theta
        after each `every` passes, so that last bits differ from those of `run`.

    A file that is in use, open to others, changed or of other arguments: `ValueError`, before any
    noise is drawn; the module says what is not noticed. Not on Windows: `NotImplementedError`.

    >>> import tempfile
    >>> import jaxdp as dp
    >>> descent = dp.solvers.coordinate_descent
    >>> problem = dp.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], loss="squared", penalty=dp.L2(0.5))
    >>> plan = descent.noiseless_plan([0.5, 0.5], passes=20)
    >>> theta = descent.run_resumable(problem, plan, tempfile.mkdtemp() + "/run", every=10)
    >>> print(theta.round(4))
    [ 0.5 -0.5]
    """
    check(problem, plan)
    every = checks.positive_integer("every", every)
    passes, target = plan.sequence.shape[0], Path(path)
    theta, n_done = begin(plan, start), 0
    with _locked(target) as file:
        lines = _whole_lines(file, target)
        header = _parsed(lines[0], target) if lines else None
        secret = _secret(run_key := _key_of(header, key, target))
        inputs = _digest(problem, plan, theta, every, secret)
        if header is None:
            code = _new_file(file, target, inputs, run_key if key is None else None, secret)
        else:
            code = _verified(lines, secret, target)
            theta, n_done = _reached(lines, header, inputs, theta, every, passes, target)
            _keep(file, lines)
        noise = draw(plan, run_key)
        while n_done < passes:
            part = jax.tree.map(lambda x, k=n_done: x[k : k + every], noise)
            theta, _ = advance(problem, plan, theta, part, n_done)
            n_done = min(n_done + every, passes)
            line = {"done": n_done, "theta": np.asarray(theta, dtype="<f8").tobytes().hex()}
            code = _append(file, target, line, code, secret)
    return theta


def _new_file(file: BinaryIO, path: Path, inputs: str, key: Key | None, secret: bytes) -> bytes:
    """The header on the disk, with the key if there is one to hold; its code."""
    stored = None if key is None else {"kind": _kind(key), "words": _words(key)}
    header = {"format": _FORMAT, "version": _VERSION, "inputs": inputs, "key": stored}
    code = _append(file, path, header, b"", secret)
    _sync_folder(path)
    return code


def _reached(
    lines: list[bytes],
    header: dict[str, Any],
    inputs: str,
    start: Vector,
    every: int,
    passes: int,
    path: Path,
) -> tuple[Vector, int]:
    """theta of the last line, and after how many passes that is."""
    if header.get("inputs") != inputs:
        raise ValueError(f"path must be of this problem and plan, {path} is of another")
    if len(lines) == 1:
        return start, 0
    n_done = min((len(lines) - 1) * every, passes)
    return _state(_parsed(lines[-1], path), start, n_done, path), n_done


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file, made where there is none, while no other process has it; the owner's alone."""
    require_outside_traces("run_resumable", ONE_KEY)
    fcntl = checks.posix_locks()
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"path must be free, another run is using {path}") from error
        status = os.fstat(file.fileno())
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or stat.S_IMODE(status.st_mode) & 0o077:
            raise ValueError(
                f"path must be a file of your own that no one else may open (mode 600), {path} is "
                f"of user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):o}"
            )
        _require_in_place(file, path)
        yield file


def _require_in_place(file: BinaryIO, path: Path) -> None:
    """Whoever opens the path now must meet the lock."""
    if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
        raise ValueError(f"path must stay in place during a run, {path} was removed or replaced")


def _whole_lines(file: BinaryIO, path: Path) -> list[bytes]:
    """All lines with an end; a last one without was being written at a kill, and is made again."""
    content = file.read()
    complete = content[: content.rfind(b"\n") + 1]
    if content and not complete:
        raise _not_ours(path)
    return complete.split(b"\n")[:-1]


def _keep(file: BinaryIO, lines: list[bytes]) -> None:
    """Cut off what follows these lines."""
    file.seek(sum(len(line) + 1 for line in lines))
    file.truncate()


def _append(
    file: BinaryIO, path: Path, body: dict[str, Any], previous_code: bytes, secret: bytes
) -> bytes:
    """One more line, on the disk; its code."""
    text = json.dumps(body).encode()
    code = _code(previous_code, text, secret)
    file.write(code + b" " + text + b"\n")
    file.flush()
    os.fsync(file.fileno())
    _require_in_place(file, path)
    return code


def _sync_folder(path: Path) -> None:
    """The name of a new file survives a crash only with its folder."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _parsed(line: bytes, path: Path) -> dict[str, Any]:
    try:
        body = json.loads(line[line.index(b" ") :])
    except _MALFORMED as error:
        raise _not_ours(path) from error
    if not isinstance(body, dict):
        raise _not_ours(path)
    return body


def _key_of(header: dict[str, Any] | None, key: Key | None, path: Path) -> Key:
    """The key that the file holds, or else the one that is given, or a new one."""
    key = None if key is None else checked_key(key)
    if header is None:
        return secure_key() if key is None else key
    if header.get("format") != _FORMAT or header.get("version") != _VERSION:
        raise _not_ours(path)
    stored = header.get("key")
    if stored is None:
        if key is None:
            raise ValueError(f"key must be the one of the start: {path} does not hold it")
        return key
    try:
        words = jnp.asarray(np.array(stored["words"], dtype=np.uint32))
        key_found = stored_key(words, stored["kind"])
    except _MALFORMED as error:
        raise _not_ours(path) from error
    if key is not None and _secret(key_found) != _secret(key):
        raise ValueError(f"key must be the one that {path} was started with, or None")
    return key_found


def _verified(lines: list[bytes], secret: bytes, path: Path) -> bytes:
    """Code of the last line, where every line is as it was written."""
    code = b""
    for line in lines:
        found, _, text = line.partition(b" ")
        code = _code(code, text, secret)
        if not hmac.compare_digest(found, code):
            raise ValueError(f"key must be the one that {path} was started with, or it was changed")
    return code


def _state(body: dict[str, Any], like: Vector, n_done: int, path: Path) -> Vector:
    """theta of a line after `n_done` passes, of the shape of `like`."""
    try:
        theta = np.frombuffer(bytes.fromhex(body["theta"]), dtype="<f8")
    except _MALFORMED as error:
        raise _not_ours(path) from error
    if body.get("done") != n_done or theta.shape != like.shape:
        raise _not_ours(path)
    return jnp.asarray(theta)


def _not_ours(path: Path) -> ValueError:
    return ValueError(
        f"path must be a file of run_resumable, version {_VERSION} of its format, {path} is not"
    )


def _code(before: bytes, text: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, before + b" " + text, hashlib.sha256).hexdigest().encode()


def _kind(key: Key) -> str | None:
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return kind_of(key) if typed else None


def _words(key: Key) -> list[int]:
    return np.asarray(key if _kind(key) is None else jax.random.key_data(key)).ravel().tolist()


def _secret(key: Key) -> bytes:
    return json.dumps([_kind(key), _words(key)]).encode()


def _digest(problem: Problem, plan: Plan, start: Vector, every: int, secret: bytes) -> str:
    """Digest of all that decides theta; without the key it says nothing of the records."""
    leaves, tree = jax.tree.flatten((problem, plan, start))
    digest = hmac.new(secret, f"{tree} {every}".encode(), hashlib.sha256)
    for leaf in leaves:
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
