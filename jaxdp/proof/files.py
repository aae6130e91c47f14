"""Reading plain files (folders, pipes and devices raise), and text with a digest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from jaxdp.proof.schema import unique

# Bits of the flags of a file that say whether it is read or written.
_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class Format(NamedTuple):
    """The name and the version of a text format."""

    name: str
    version: int = 1


@contextlib.contextmanager
def opened_file(
    path: str | os.PathLike[str], name: str, flags: int = os.O_RDONLY
) -> Iterator[BinaryIO]:
    """A plain file, unbuffered, made for its owner alone if `flags` make it.

    `name` says in errors what the file holds. A folder, a pipe or a device raises `ValueError`, and
    so does a missing file. Permissions raise `OSError`.
    """
    path = Path(path)
    try:
        # Nothing to wait for: a pipe without a writer would hang.
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    except FileNotFoundError as error:
        missing = path.parent if flags & os.O_CREAT else path
        raise ValueError(f"path must be an existing {name}, found no {missing}") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        where = "a folder" if path.is_dir() else "inside a file"
        raise ValueError(f"path must be a {name}, {path} is {where}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise ValueError(f"path must be a {name}, {path} is {kind}")
    with os.fdopen(descriptor, "rb" if flags & _ACCESS == os.O_RDONLY else "r+b", 0) as file:
        yield file  # pyright: ignore[reportReturnType]


def read_bytes(path: str | os.PathLike[str], name: str) -> bytes:
    """The content of a plain file; `ValueError` for a folder, a pipe or a device."""
    if not Path(path).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    with opened_file(path, name) as file:
        return file.read()


def read_text(path: str | os.PathLike[str], name: str, encoding: str = "utf-8") -> str:
    """The text of a plain file; errors of `read_bytes`, and `UnicodeError`."""
    return read_bytes(path, name).decode(encoding)


def unsealed(form: Format, text: str) -> dict[str, Any]:
    """The payload of a sealed text; `ValueError` for another format or version or changed text."""
    try:
        body = json.loads(text, object_pairs_hook=unique)
    except (RecursionError, ValueError) as error:
        raise ValueError(
            f"text must be the JSON of a {form.name}, got {text[:40]!r}: {error}"
        ) from error
    if not isinstance(body, dict) or body.get("format") != form.name:
        found = body.get("format") if isinstance(body, dict) else body
        raise ValueError(f"format must be {form.name!r}, got {found!r}")
    if body.get("version") != form.version:
        raise ValueError(f"version must be {form.version}, got {body.get('version')!r}")
    if body.pop("digest", None) != sha256_of(canonical(body)):
        raise ValueError(f"digest must be that of the rest of the {form.name}: it was changed")
    return {key: value for key, value in body.items() if key not in ("format", "version")}


def canonical(body: dict[str, Any]) -> bytes:
    """The one JSON text of these values."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def sha256_of(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
