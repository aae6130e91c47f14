"""Characteristic functions of a law on nodes, at consecutive points of a vertical line."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._types import Complexes, Indices, Reals, RealsOrComplexes

# exp(i t L) is formed from two factors, of which the finer serves so many points.
_SPLIT = 8


class Nodes(NamedTuple):
    """Of a law of L tilted by e^(w0 L): E e^(w L) = G(w0) sum of weight e^((w - w0) L)."""

    weight: RealsOrComplexes
    loss: RealsOrComplexes
    highest: Reals  # |t| from which on it is not resolved


class _Parts(NamedTuple):
    """Complex numbers as two real arrays, which XLA's CPU backend works on several at a time."""

    real: Reals
    imag: Reals

    @staticmethod
    def of(value: RealsOrComplexes) -> "_Parts":
        return _Parts(jnp.real(value), jnp.imag(value))

    def joined(self, other: "_Parts") -> "_Parts":
        """(1 + self)(1 + other) - 1."""
        real = self.real + other.real + (self.real * other.real - self.imag * other.imag)
        imag = self.imag + other.imag + (self.real * other.imag + self.imag * other.real)
        return _Parts(real, imag)

    def times(self, other: "_Parts") -> "_Parts":
        real = self.real * other.real - self.imag * other.imag
        return _Parts(real, self.real * other.imag + self.imag * other.real)


class Turned(NamedTuple):
    """A law's nodes on a line of the step h, for the sums of weight (e^(k i h L) - 1)."""

    weight: _Parts
    turn: _Parts  # i h L
    fine: _Parts  # e^(k i h L) for k < _SPLIT, along the first axis
    fine_sums: _Parts  # of weight (e^(k i h L) - 1), along the last axis
    coarse: _Parts  # e^(k i h L) - 1 for k = _SPLIT

    @staticmethod
    def of(weight: RealsOrComplexes, loss: RealsOrComplexes, step: Reals) -> "Turned":
        """`step` broadcasts with the losses, these with the weights."""
        weights, losses = _Parts.of(weight), _Parts.of(loss)
        turn = _Parts(-step * losses.imag, step * losses.real)
        once = _expm1(turn)
        nothing = _Parts(jnp.zeros_like(once.real), jnp.zeros_like(once.real))
        fine, coarse = _powers(nothing, once, _SPLIT)
        sums = _products(_Parts(*(x[None] for x in weights)), fine)
        return Turned(weights, turn, fine._replace(real=1.0 + fine.real), sums, coarse)


def excess_at(turned: Turned, indices: Indices) -> Complexes:
    """sum over the nodes of weight (e^(k i h L) - 1) for consecutive k, along a new last axis.

    From products of two factors, (1 + a)(1 + b) - 1 = a (1 + b) + b.
    """
    first = _expm1(_Parts(*(x * indices[0] for x in turned.turn)))
    coarse = _powers(first, turned.coarse, -(-indices.size // _SPLIT))[0]
    wide = _Parts(*(x[None] for x in turned.weight)).times(coarse)
    parts = zip(_products(wide, turned.fine), turned.fine_sums, strict=True)
    excess = lax.complex(*(both + alone for both, alone in parts))
    return excess.reshape(*excess.shape[:-2], -1)[..., : indices.size]


def _products(a: _Parts, b: _Parts) -> _Parts:
    """sum over n of a (rows, ..., n) b (columns, ..., n), (..., rows, columns)."""
    rows, columns = a.real.shape[0], b.real.shape[0]
    # One real product of twice the size costs less than four.
    all_four = jnp.einsum("a...n,b...n->...ab", jnp.concatenate(a), jnp.concatenate(b))
    of_real, of_imag = all_four[..., :rows, :], all_four[..., rows:, :]
    real = of_real[..., :columns] - of_imag[..., columns:]
    return _Parts(real, of_real[..., columns:] + of_imag[..., :columns])


def _powers(first: _Parts, factor: _Parts, count: int) -> tuple[_Parts, _Parts]:
    """(1 + first)(1 + factor)^k - 1 for k < count, along a new first axis; and for k = count.

    The loop makes XLA keep what is used more than once, instead of computing it anew.
    """
    last, found = lax.scan(lambda x, _: (x.joined(factor), x), first, None, count)
    return found, last


def _expm1(exponent: _Parts) -> _Parts:
    """exp - 1, accurate in both parts near 0."""
    sine, cosine = sine_cosine(0.5 * exponent.imag)
    rise = jnp.expm1(exponent.real)
    turned = 2.0 * (1.0 + rise) * sine
    return _Parts(rise - turned * sine, turned * cosine)
