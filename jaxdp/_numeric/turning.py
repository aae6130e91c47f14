"""Characteristic functions of a law on nodes, at consecutive points of a vertical line."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._types import Complexes, Index, Indices, Reals, RealsOrComplexes

# exp(i t L) is formed from two factors, of which the finer serves so many points.
_SPLIT = 8
T = TypeVar("T")


def kept(function: Callable[[], T], index: Index) -> T:
    """function(), in memory before it is used. `index` >= 0, which the compiler does not know.

    XLA's CPU backend else computes what is cheap anew wherever it is used, several times over.
    """
    if jax.default_backend() != "cpu":
        return function()
    nothing = jax.eval_shape(function)
    return lax.cond(
        index >= 0,
        function,
        lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), nothing),
    )


class Pair(NamedTuple):
    """Complex numbers as two real arrays, which XLA's CPU backend works on several at a time."""

    real: Reals
    imag: Reals

    @staticmethod
    def of(value: RealsOrComplexes) -> "Pair":
        return Pair(jnp.real(value), jnp.imag(value))

    def joined(self, other: "Pair") -> "Pair":
        """(1 + self)(1 + other) - 1."""
        real = self.real + other.real + (self.real * other.real - self.imag * other.imag)
        imag = self.imag + other.imag + (self.real * other.imag + self.imag * other.real)
        return Pair(real, imag)

    def times(self, other: "Pair") -> "Pair":
        real = self.real * other.real - self.imag * other.imag
        return Pair(real, self.real * other.imag + self.imag * other.real)


class Turned(NamedTuple):
    """A law's nodes on a line of the step h, for the sums of weight (e^(k i h L) - 1)."""

    weight: Pair
    turn: Pair  # i h L
    fine: Pair  # 1, then e^(k i h L) - 1 for 0 < k < _SPLIT, along the first axis
    coarse: Pair  # e^(k i h L) - 1 for k = _SPLIT

    @staticmethod
    def of(weight: Pair, loss: Pair, step: Reals, index: Index) -> "Turned":
        """`step` broadcasts with the losses, these with the weights. `index`: see `kept`."""
        turn = Pair(-step * loss.imag, step * loss.real)
        once = kept(lambda: _expm1(turn), index)
        coarse, powers = lax.scan(lambda x, _: (x.joined(once), x), once, None, _SPLIT - 1)
        one = jnp.ones_like(once.real)[None]
        fine = Pair(jnp.concatenate([one, powers.real]), jnp.concatenate([0.0 * one, powers.imag]))
        return Turned(weight, turn, fine, coarse)


def excess_once(weight: Pair, loss: Pair, height: Reals) -> Complexes:
    """sum over the nodes of weight (e^(i height L) - 1); `height` broadcasts with the losses."""
    risen = _expm1(Pair(-height * loss.imag, height * loss.real))
    return jnp.sum(lax.complex(*weight.times(risen)), axis=-1)


def excess_at(turned: Turned, indices: Indices) -> Complexes:
    """sum over the nodes of weight (e^(k i h L) - 1) for consecutive k, along a new last axis.

    From products of two factors, (1 + a)(1 + b) - 1 = a + b + a b.
    """
    weight, coarse = turned.weight, turned.coarse
    turn = Pair(*(x * indices[0] for x in turned.turn))
    first = kept(lambda: _expm1(turn), indices[0])
    count = -(-indices.size // _SPLIT)
    wide = lax.scan(lambda x, _: (x.joined(coarse), weight.times(x)), first, None, count)[1]
    rows = Pair(*(jnp.concatenate([x[None], y]) for x, y in zip(weight, wide, strict=True)))
    sums = _products(rows, turned.fine)
    excess = lax.complex(*(_joined_sums(x) for x in sums))
    return excess.reshape(*excess.shape[:-2], -1)[..., : indices.size]


def _joined_sums(sums: Reals) -> Reals:
    """Of a + b + a b, from the sums of (1, a) (1, b), (..., rows, columns); b = 0 comes first."""
    alone, fine = sums[..., 1:, :1], sums[..., :1, 1:]
    return jnp.concatenate([alone, alone + (fine + sums[..., 1:, 1:])], axis=-1)


def _products(a: Pair, b: Pair) -> Pair:
    """sum over n of a (rows, ..., n) b (columns, ..., n), (..., rows, columns)."""
    rows, columns = a.real.shape[0], b.real.shape[0]
    # One real product of twice the size costs less than four.
    all_four = jnp.einsum("a...n,b...n->...ab", jnp.concatenate(a), jnp.concatenate(b))
    of_real, of_imag = all_four[..., :rows, :], all_four[..., rows:, :]
    real = of_real[..., :columns] - of_imag[..., columns:]
    return Pair(real, of_real[..., columns:] + of_imag[..., :columns])


def _expm1(exponent: Pair) -> Pair:
    """exp - 1, accurate in both parts near 0."""
    sine, cosine = sine_cosine(0.5 * exponent.imag)
    rise = jnp.expm1(exponent.real)
    turned = 2.0 * (1.0 + rise) * sine
    return Pair(rise - turned * sine, turned * cosine)
