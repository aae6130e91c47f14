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
from jaxdp.loss.base import Terms

# More than one lane are a multiple of this, later of an eighth to a quarter of their number.
_FEW = 8
# Of a piece: the fewest lanes that are worth a thread, and the most.
_PIECE, _MOST = 8, 1024
# The functions, and what they were called with, that have been compiled.
_compiled: set[tuple[Any, ...]] = set()


def in_few_shapes(
    function: Callable[..., Any],
    static: tuple[bool, ...],
    terms: Terms,
    values: Reals,
    *more: Reals,
    kept: int = 0,
) -> Any:
    """function(terms, values, *more, *static), whose results have the batch's shape first.

    Traced values as they are. The last `kept` axes of `values` stay as they are: there the terms'
    have size 1. `more` has the batch's axes and may have others after them.
    """
    shape = jnp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    batch = shape[: len(shape) - kept]
    size = math.prod(batch)
    if size == 0 or not _check.all_concrete(terms, values, more):
        return function(terms, values, *more, *static)
    pieces = _pieces(size)
    lanes = few_sizes(-(-size // pieces))
    with outside_traces():
        whole = _in_lanes(terms, (values, *more), shape, kept, lanes * pieces)
        calls = [(*_part(whole, i * lanes, lanes), *static) for i in range(pieces)]
        # In two threads the same would be compiled twice.
        compiled = function, static, lanes, jax.tree.structure(whole)
        first = 0 if compiled in _compiled else 1
        found = [function(*call) for call in calls[:first]] + in_threads(function, calls[first:])
        _compiled.add(compiled)
        return _whole(found, batch)


def _pieces(size: int) -> int:
    few = min(cores(), max(size // _PIECE, 1))
    return -(-size // _MOST // few) * few if size > _MOST * few else few


def few_sizes(size: int) -> int:
    """The lanes that `size` of them are worked off in."""
    multiple = 1 if size == 1 else max(_FEW, 2 ** (size - 1).bit_length() // 8)
    return -(-size // multiple) * multiple


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _in_lanes(
    terms: Terms, values: tuple[Reals, ...], shape: tuple[int, ...], kept: int, lanes: int
) -> tuple[Any, ...]:
    batch = shape[: len(shape) - kept]
    index = jnp.minimum(jnp.arange(lanes), math.prod(batch) - 1)

    def flat(x: Reals) -> Reals:
        return x.reshape(-1, *x.shape[len(batch) :])[index]

    terms = tuple(term.broadcast((*batch, *(1,) * kept)) for term in terms)
    values = jnp.broadcast_to(values[0], shape), *values[1:]
    return jax.tree.map(flat, (terms, *values))


@functools.partial(jax.jit, static_argnums=2)
def _part(whole: tuple[Any, ...], start: Index | int, lanes: int) -> tuple[Any, ...]:
    return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, lanes), whole)


@functools.partial(jax.jit, static_argnums=1)
def _whole(found: list[Any], batch: tuple[int, ...]) -> Any:
    def join(*parts: Reals | Bools) -> Reals | Bools:
        return jnp.concatenate(parts)[: math.prod(batch)].reshape(*batch, *parts[0].shape[1:])

    return jax.tree.map(join, *found)
