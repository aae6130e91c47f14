"""Files that are written whole or not at all, and text with a digest that detects changes."""

from __future__ import annotations

import abc
import contextlib
import glob
import json
import os
import stat
import uuid
from pathlib import Path
from typing import Any, TypeVar

from jaxdp.proof.files import Format as Format
from jaxdp.proof.files import canonical, read_text, sha256_of
from jaxdp.proof.files import unsealed as unsealed

T = TypeVar("T", bound="Saved")


class Saved(abc.ABC):
    """A record with an exact text form; `save` writes it to a file, and `load` reads it."""

    @abc.abstractmethod
    def to_json(self) -> str:
        """The record as text."""

    @classmethod
    @abc.abstractmethod
    def from_json(cls: type[T], text: str) -> T:
        """Record from what `to_json` wrote; `ValueError` for anything else or changed text."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """`to_json` into a file for its owner alone, all or nothing; `ValueError` for a folder."""
        write_atomically(path, self.to_json(), mode=0o600)

    @classmethod
    def load(cls: type[T], path: str | os.PathLike[str]) -> T:
        """`from_json` of a file; `ValueError` for a folder."""
        return cls.from_json(read_text(path, "file that save wrote"))


def require_replaceable(path: Path) -> None:
    """`ValueError` for what is there and no plain file that may be written to."""
    if not os.path.lexists(path):
        return
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        kinds = {stat.S_ISDIR: "a folder", stat.S_ISLNK: "a link, which would be replaced"}
        found = [words for is_kind, words in kinds.items() if is_kind(mode)]
        raise ValueError(f"path must be a file, {path} is {(*found, 'a pipe or a device')[0]}")
    if not mode & 0o222:
        raise ValueError(f"path must be a file that may be written to, {path} is read-only")


def write_atomically(
    path: str | os.PathLike[str],
    content: str | bytes,
    *,
    mode: int = 0o666,
    replaces: bool = True,
) -> None:
    """All or nothing, also when power fails: written beside `path` and moved over it.

    mode: of access, less the umask.
    replaces: if False, a file that is there stays, and `FileExistsError` is raised.
    """
    target = Path(path)
    if replaces:
        require_replaceable(target)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        descriptor = _opened(partial, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(descriptor)
            if not partial.exists():
                # With a descriptor, even of no use here, Python follows the link to the file.
                os.link(f"/proc/self/fd/{descriptor}", partial, src_dir_fd=descriptor)
        _move(partial, target, replaces)
        sync_folder(target.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk; nothing where folders cannot be opened (Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(partial: Path, mode: int) -> int:
    """A new file, on Linux without a name until it is whole: a kill leaves no secret behind."""
    if os.path.exists("/proc/self/fd"):
        with contextlib.suppress(OSError, AttributeError):
            return os.open(partial.parent, os.O_WRONLY | os.O_TMPFILE, mode)
    return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)


def _move(partial: Path, target: Path, replaces: bool) -> None:
    if not replaces:
        # One step, which fails where a name is taken; some file systems have no links.
        with contextlib.suppress(OSError):
            os.link(partial, target)
            partial.unlink()
            return
        if os.path.lexists(target):
            raise FileExistsError(target)
    partial.replace(target)


def remove_partials(path: str | os.PathLike[str]) -> None:
    """Remove what processes that were killed in `write_atomically` left; no other may be in it."""
    target = Path(path)
    for partial in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 32}"):
        partial.unlink(missing_ok=True)


def sealed(form: Format, payload: dict[str, Any]) -> str:
    """JSON of the payload, the name and the version of its format, and a digest of all."""
    body = {"format": form.name, "version": form.version, **payload}
    return json.dumps({**body, "digest": sha256_of(canonical(body))}, indent=1)
