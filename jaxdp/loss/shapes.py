"""Few shapes, few compilations: a concrete batch is worked off as one of a few sizes.

A composition compiles for seconds and runs for milliseconds: the spare lanes cost less.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._types import Reals
from jaxdp.loss.base import Terms

# More than one lane are a multiple of this, later of an eighth to a quarter of their number.
_FEW = 8
# From here on the lanes count for more than the compilation.
_MANY = 1024


def in_few_shapes(
    function: Callable[..., Any], terms: Terms, values: Reals, *more: Reals, kept: int = 0
) -> Any:
    """function(terms, values, *more), whose results have the batch's shape first.

    Traced values as they are. The last `kept` axes of `values` stay as they are: there the terms'
    have size 1. `more` has the batch's axes and may have others after them.
    """
    shape = jnp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    batch = shape[: len(shape) - kept]
    size = math.prod(batch)
    concrete = all(_check.is_concrete(x) for x in jax.tree.leaves((terms, values, more)))
    if not concrete or not 0 < size <= _MANY:
        return function(terms, values, *more)
    found = function(*_in_lanes(terms, (values, *more), shape, kept, few_sizes(size)))
    return jax.tree.map(lambda x: x[:size].reshape(*batch, *x.shape[1:]), found)


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
