"""Numbers that NumPy computes where they are known, and programs of everything else, on disk."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import host_array
from jaxdp._core.namespace import for_traces, in_kernel, kernel
from jaxdp._core.precision import TRANSFORMATIONS, is_inside_trace, is_tracing


def jitted(function: Callable[..., Any], static_argnums: int | tuple[int, ...] = ()) -> Any:
    """`jax.jit`; NumPy computes known numbers. For functions without keys."""
    program = jax.jit(function, static_argnums=static_argnums)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        # A function among the arguments may read what is traced.
        if not checks.all_concrete(leaves) or (is_tracing() and not in_kernel()):
            with for_traces():
                return program(*args)
        known = jax.tree.unflatten(structure, map(host_array, leaves))
        with kernel():
            return function(*known)

    return call


def require_outside_traces(name: str, reason: str) -> None:
    """`ValueError` inside of any transformation, for what happens on the host: it happens once."""
    if is_inside_trace():
        raise ValueError(f"{name} must be called outside of {TRANSFORMATIONS}: {reason}")


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
