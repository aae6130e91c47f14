"""Characteristic functions of a law on nodes, at consecutive points of a vertical line."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import expm1
from jaxdp._types import Complexes, Indices, Reals, RealsOrComplexes

# exp(i t L) is formed from two factors, for points whose number this divides.
_SPLIT = 8


class Nodes(NamedTuple):
    """Of a law of L tilted by e^(w0 L): E e^(w L) = G(w0) sum of weight e^((w - w0) L)."""

    weight: RealsOrComplexes
    loss: RealsOrComplexes
    highest: Reals  # |t| from which on it is not resolved


def _and(a: Complexes, b: Complexes) -> Complexes:
    """(1 + a)(1 + b) - 1."""
    return a + b + a * b


def excess_at(weight: Complexes, turn: Complexes, indices: Indices) -> Complexes:
    """sum over n of weight_n (e^(k turn_n) - 1) for consecutive k, from products of two factors.

    The loops make XLA keep what they use, instead of computing exponentials anew for every k.
    """

    def power(value: Complexes, once: Complexes) -> tuple[Complexes, Complexes]:
        return _and(value, once), value

    def row(value: Complexes, _: None) -> tuple[Complexes, Complexes]:
        weighted = value * weight
        # (1 + a)(1 + b) - 1 = (1 + b) a + b.
        sums = jnp.einsum("...n,b...n->...b", weighted, fine)
        return _and(value, eighth), sums + jnp.sum(weighted, axis=-1)[..., None] + fine_sums

    once = expm1(turn)
    zero = jnp.zeros_like(once)
    eighth, fine = lax.scan(lambda value, _: power(value, once), zero, None, length=_SPLIT)
    fine_sums = jnp.moveaxis(jnp.sum(fine * weight[None], axis=-1), 0, -1)
    rows = -(-indices.size // _SPLIT)
    excess = lax.scan(row, expm1(turn * indices[0]), None, length=rows)[1]
    excess = jnp.moveaxis(excess, 0, -2)
    return excess.reshape(*excess.shape[:-2], -1)[..., : indices.size]
