"""Compiled programs that outlive the functions that they were traced from.

`jax.jit` compiles for one function object. A loss or an optimiser that is created for each call is
another object, though it computes the same. Here functions are traced, and programs of equal text
are shared. Arrays that a function closes over become arguments of its program, so the program keeps
neither keys nor records.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable
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
