"""A sum over many atoms or edges, in chunks; its derivative is that of every chunk."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Reals

# (what moves, the index of the first, what is fixed) -> sums, (*batch,) each.
OfChunk = Callable[[Any, Reals, Any], tuple[Reals, ...]]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def chunked(of_chunk: OfChunk, size: int, moving: Any, fixed: Any) -> tuple[Reals, ...]:
    """The sums over all chunks of `size` out of fixed.total (*batch,); the first is differentiable.

    The arrays of `moving` may have axes of their own after those of the batch.
    """

    def add(first: Reals, found: tuple[Reals, ...]) -> tuple[Reals, ...]:
        return jax.tree.map(jnp.add, found, of_chunk(moving, first, fixed))

    shapes = jax.eval_shape(of_chunk, moving, jnp.zeros(()), fixed)
    return _over(add, _nothing(shapes), size, fixed.total)


@chunked.defjvp
def _chunked_jvp(of_chunk: OfChunk, size: int, primals: Any, tangents: Any) -> Any:
    moving, fixed = primals

    def add(first: Reals, found: Any) -> Any:
        slopes = jax.grad(lambda x: jnp.sum(of_chunk(x, first, fixed)[0]))(moving)
        return jax.tree.map(jnp.add, found, slopes)

    slopes = _over(add, _nothing(moving), size, fixed.total)
    batch = fixed.total.ndim
    moves = jax.tree.map(
        lambda slope, way: jnp.sum(slope * way, axis=tuple(range(batch, slope.ndim))),
        slopes,
        tangents[0],
    )
    found = chunked(of_chunk, size, moving, fixed)
    move = functools.reduce(jnp.add, jax.tree.leaves(moves))
    return found, type(found)(*(move, *_nothing(tuple(found)[1:])))


def _nothing(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), tree)


def _over(add: Any, start: Any, size: int, total: Reals) -> Any:
    most = jnp.max(total)

    def advance(state: tuple[Reals, Any]) -> tuple[Reals, Any]:
        return state[0] + size, add(*state)

    return lax.while_loop(lambda state: state[0] < most, advance, (jnp.zeros(()), start))[1]
