"""Few shapes, few compilations: a concrete batch is worked off as one of a few sizes.

A composition compiles for seconds and runs for milliseconds: the spare lanes cost less. Large
batches are cut into pieces, which run side by side on the cores of a CPU.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp import _check
from jaxdp._compile import outside_traces
from jaxdp._threads import cores, in_threads
from jaxdp._types import Bools, Index, Reals
from jaxdp.accountant.composition import Terms

# Lanes are a multiple of this, later of an eighth to a quarter of their number. chosen
_FEW = 8
# Fewest lanes that are worth a thread. chosen: a lane takes milliseconds
_PIECE = 8
# Most lanes of a piece. chosen: larger batches come in pieces of one size
_MOST = 1024
# The functions, and what they were called with, that have been compiled.
_compiled: set[tuple[Any, ...]] = set()


def in_few_shapes(function: Callable[..., Any], terms: Terms, values: Reals, both: bool) -> Any:
    """function(terms, values, both), whose results have the batch's shape; traced values as are."""
    shape = jnp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    size = math.prod(shape)
    if size == 0 or not _check.all_concrete(terms, values):
        return function(terms, values, both)
    pieces = _pieces(size)
    lanes = few_sizes(-(-size // pieces))
    with outside_traces():
        whole = _in_lanes(terms, values, shape, lanes * pieces)
        calls = [(*_part(whole, i * lanes, lanes), both) for i in range(pieces)]
        # In two threads the same would be compiled twice.
        key = function, both, lanes, jax.tree.structure(whole)
        first = 0 if key in _compiled else 1
        found = [function(*call) for call in calls[:first]] + in_threads(function, calls[first:])
        _compiled.add(key)
        return _whole(found, shape)


def _pieces(size: int) -> int:
    few = min(cores(), max(size // _PIECE, 1))
    return -(-size // _MOST // few) * few if size > _MOST * few else few


def few_sizes(size: int) -> int:
    """The lanes that `size` of them are worked off in."""
    multiple = 1 if size == 1 else max(_FEW, 2 ** (size - 1).bit_length() // 8)
    return -(-size // multiple) * multiple


@functools.partial(jax.jit, static_argnums=(2, 3))
def _in_lanes(
    terms: Terms, values: Reals, shape: tuple[int, ...], lanes: int
) -> tuple[Terms, Reals]:
    index = jnp.minimum(jnp.arange(lanes), math.prod(shape) - 1)

    def flat(x: Reals) -> Reals:
        return x.reshape(-1, *x.shape[len(shape) :])[index]

    terms = tuple(term.broadcast(shape) for term in terms)
    return jax.tree.map(flat, (terms, jnp.broadcast_to(values, shape)))


@functools.partial(jax.jit, static_argnums=2)
def _part(whole: tuple[Any, ...], start: Index | int, lanes: int) -> tuple[Any, ...]:
    return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, lanes), whole)


@functools.partial(jax.jit, static_argnums=1)
def _whole(found: list[Any], batch: tuple[int, ...]) -> Any:
    def join(*parts: Reals | Bools) -> Reals | Bools:
        return jnp.concatenate(parts)[: math.prod(batch)].reshape(*batch, *parts[0].shape[1:])

    return jax.tree.map(join, *found)
