"""Files that are plain: no folder, and no pipe or device, which would be waited for."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# Bits of the flags of a file that say whether it is read or written.
_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


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
