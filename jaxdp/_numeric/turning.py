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

    def powers(first: Complexes, factor: Complexes, count: int) -> Complexes:
        """first factor^k - 1 of `first` - 1 and `factor` - 1, for k < count, along a new axis."""
        return lax.scan(lambda value, _: (_and(value, factor), value), first, None, count)[1]

    once = expm1(turn)
    fine = powers(jnp.zeros_like(once), once, _SPLIT)
    rows = -(-indices.size // _SPLIT)
    coarse = weight[None] * powers(expm1(turn * indices[0]), _and(fine[-1], once), rows)
    # (1 + a)(1 + b) - 1 = a (1 + b) + b.
    fine_sums = jnp.moveaxis(jnp.sum(weight[None] * fine, axis=-1), 0, -1)
    excess = _products(coarse, 1.0 + fine) + fine_sums[..., None, :]
    return excess.reshape(*excess.shape[:-2], -1)[..., : indices.size]


def _products(a: Complexes, b: Complexes) -> Complexes:
    """sum over n of a (rows, ..., n) b (columns, ..., n), as products of real matrices."""

    def product(a: Reals, b: Reals) -> Reals:
        return jnp.einsum("a...n,b...n->...ab", a, b)

    a_real, a_imag, b_real, b_imag = jnp.real(a), jnp.imag(a), jnp.real(b), jnp.imag(b)
    return lax.complex(
        product(a_real, b_real) - product(a_imag, b_imag),
        product(a_real, b_imag) + product(a_imag, b_real),
    )
