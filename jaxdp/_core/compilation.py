"""Compiled programs, kept on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import jax


def enable_cache(path: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs on disk, so that the next process starts without compiling.

    Args:
        path: the folder, made if need be. None: `jaxdp` in $XDG_CACHE_HOME or in ~/.cache.

    Returns:
        The folder, open to this user alone, as programs are read from it. `ValueError` for one
        that others own or may enter, or that lies below a folder in which everyone can rename it
        (writable by everyone, without the sticky bit of /tmp): it is left as it is. `OSError`
        where it cannot be written to.

    Call it before anything is compiled. It is on in the command line and never on import.

    >>> import tempfile
    >>> import jaxdp as dp
    >>> folder = dp.enable_cache(tempfile.mkdtemp())
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "jaxdp" if path is None else Path(path)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    if not mine or (os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077):
        raise ValueError(
            "path must be a folder of this user alone (mode 0700), got mode "
            f"{stat.S_IMODE(found.st_mode):04o} at {folder}"
        )
    for above in {*folder.absolute().parents, *folder.resolve().parents}:
        mode = above.stat().st_mode
        if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ValueError(
                "path must lie below folders in which others cannot replace it, got mode "
                f"{stat.S_IMODE(mode):04o} at {above}"
            )
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"the cache cannot be written to: {folder}")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    return folder
