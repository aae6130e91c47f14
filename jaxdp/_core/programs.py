"""Compiled programs that outlive the functions that they were traced from.

`jax.jit` compiles for one function object. A loss or an optimiser that is created for each call is
another object, though it computes the same. Here functions are traced, and programs of equal text
are shared. Arrays that a function closes over become arguments of its program, so the program keeps
neither keys nor records.

`enable_cache` keeps programs on disk.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr

# Programs that are kept. chosen: those of ten trainings
_MOST = 32
# Of an object whose representation is its address, such as a function that is called back.
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclasses.dataclass(frozen=True)
class Traced:
    """A function as JAX traced it for arguments of some types; equal if the texts are."""

    text: str
    jaxpr: Any = dataclasses.field(compare=False, repr=False)
    consts: list[Any] = dataclasses.field(compare=False, repr=False)
    structure: Any = dataclasses.field(compare=False, repr=False)

    @classmethod
    def of(cls, function: Callable[..., Any], *args: Any) -> Traced:
        """The function at these arguments: traced anew, whatever JAX keeps of it."""
        closed, shapes = jax.make_jaxpr(lambda *x: function(*x), return_shape=True)(*args)
        consts = [jnp.asarray(x) for x in closed.consts]
        return cls(str(closed.jaxpr), closed.jaxpr, consts, jax.tree.structure(shapes))

    @property
    def portable_text(self) -> str:
        """The text without addresses: the same in each process that runs this version of JAX."""
        return _ADDRESS.sub("", self.text)

    @property
    def is_text_alone(self) -> bool:
        """False if Python is called back, or the text identifies an object by its address."""
        return not _ADDRESS.search(self.text) and "callback" not in self.text


def shared_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` that shares its program with functions that trace to the same text."""
    programs: dict[Any, tuple[Any, Traced]] = {}

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        types = tree, tuple(map(jax.typeof, leaves))
        if types not in programs:
            traced = Traced.of(function, *args)
            programs[types] = _program(traced, types[1]), traced
        run, traced = programs[types]
        return jax.tree.unflatten(traced.structure, run(traced.consts, leaves))

    return call


def _program(traced: Traced, types: tuple[Any, ...]) -> Callable[..., Any]:
    if not traced.is_text_alone:
        return _compiled(traced.jaxpr)
    digest = hashlib.sha256(traced.text.encode()).hexdigest()
    return _kept(Traced(digest, traced.jaxpr, [], None), types)


@functools.lru_cache(maxsize=_MOST)
def _kept(traced: Traced, types: tuple[Any, ...]) -> Callable[..., Any]:
    """The program of a text; a text does not say on which devices the arguments lie."""
    del types
    return _compiled(traced.jaxpr)


def _compiled(jaxpr: Any) -> Callable[..., Any]:
    return jax.jit(lambda consts, leaves: eval_jaxpr(jaxpr, consts, *leaves))


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
