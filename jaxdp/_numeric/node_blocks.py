"""Sums over as many nodes as a problem needs: in blocks, whose number is known at run time."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Index, Reals

NODES = 32
# Blocks at most.
_MOST = 128


class Blocks(NamedTuple):
    """Nodes at equal distances."""

    number: Index  # of blocks, the same in all lanes
    low: Reals
    step: Reals

    @staticmethod
    def of(low: Reals, length: Reals, longest_step: Reals) -> "Blocks":
        """Steps of at most `longest_step`, but where that takes more than 4,096.

        Constants to every derivative: the sum does not depend on where its nodes lie.
        """
        low, length, longest_step = lax.stop_gradient((low, length, longest_step))
        wanted = length / (NODES * longest_step)
        most = jnp.max(jnp.where(wanted <= _MOST, wanted, 0.0))
        number = jnp.maximum(jnp.ceil(most).astype(int), 1)
        return Blocks(number, low, length / (NODES * number))

    def points(self, index: Index) -> Reals:
        """Of one block, the middles of its steps, along a new last axis."""
        place = (NODES * index + jnp.arange(NODES) + 0.5)[(None,) * self.low.ndim]
        return self.low[..., None] + self.step[..., None] * place

    def total(self, summand: Callable[..., Any], *arguments: Any) -> Any:
        """summand(points, index, *arguments) of all blocks, added up: over no other tracers."""
        return _total(summand, *self, arguments)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _total(summand: Callable[..., Any], number: Index, low: Reals, step: Reals, args: Any) -> Any:
    blocks = Blocks(number, low, step)

    def add(index: Index, sums: Any) -> Any:
        return jax.tree.map(jnp.add, sums, summand(blocks.points(index), index, *args))

    return lax.fori_loop(0, number, add, _nothing(summand, blocks, args))


def _nothing(summand: Callable[..., Any], blocks: Blocks, args: Any) -> Any:
    shapes = jax.eval_shape(lambda: summand(blocks.points(blocks.number), blocks.number, *args))
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


@_total.defjvp
def _total_jvp(summand: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    # A loop whose length is known beforehand can be run through backwards.
    number, low, step, args = primals
    blocks = Blocks(number, low, step)

    def kept(args: Any) -> Any:
        nothing = _nothing(summand, blocks, args)

        def add(sums: Any, index: Index) -> tuple[Any, None]:
            more = lax.cond(
                index < number,
                lambda: summand(blocks.points(index), index, *args),
                lambda: nothing,
            )
            return jax.tree.map(jnp.add, sums, more), None

        return lax.scan(add, nothing, jnp.arange(_MOST))[0]

    return jax.jvp(kept, (args,), (tangents[3],))
