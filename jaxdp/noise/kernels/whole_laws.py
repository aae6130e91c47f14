"""Laws of whole numbers proportional to exp(-h(|n|)), and h relative to a block's value.

h(n) = n^2 / (2 s^2), n / s, n alpha / gamma^2 + (n - start)_+^2 / (2 gamma^2), or any convex one;
blocks of W = ceil(s / 2) numbers, see `whole_draws`.
"""

from __future__ import annotations

import decimal
from typing import Any, Literal, final

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import Reals
from jaxdp._numeric.double_double import Double, divide, scaled, total_pair
from jaxdp._numeric.elementary import two_sum

# Halvings of the argument, and terms of the series. derived: 1e-31
_HALVINGS, _TERMS = 6, 20


def exp_pair(exponent: Double) -> Double:
    """exp(-e), e >= 0, to an absolute 1e-27; 0 beyond 200."""
    far = exponent.high > 200.0
    small = scaled(Double(*(xp.where(far, 1.0, -x) for x in exponent)), 2.0**-_HALVINGS)
    count = xp.round(small.high * 4.0) * 0.25
    high, low = two_sum(small.high, -count)
    rest = Double(high, low + small.low)
    # Not a constant: XLA would take (1 + x) - 1 for x.
    zero, one = xp.zeros_like(high), xp.where(high <= 1.0, 1.0, xp.nan)

    def add_term(index: Any, value: Double) -> Double:
        order = Double(one * (_TERMS - index), zero)
        term = divide(product(rest, value), order, xp.ones(high.shape, bool))
        return total_pair(one, term)

    value = lax.fori_loop(0, _TERMS, add_term, Double(one, zero))
    value = product(value, _quarters(count))
    value = lax.fori_loop(0, _HALVINGS, lambda _, x: product(x, x), value)
    return Double(*(xp.where(far, 0.0, x) for x in value))


def product(x: Double, y: Double) -> Double:
    """x y to 1e-31, from partial products of 26 bits.

    These are exact: a compiler that contracts one into a sum changes nothing, whereas in c - a b,
    c = a b, it may take the unrounded c.
    """
    a, b = (lax.reduce_precision(v, 11, 25) for v in (x.high, y.high))
    a_low, b_low = x.high - a, y.high - b
    high, first = two_sum(a * b, a * b_low)
    high, second = two_sum(high, a_low * b)
    low = (first + second) + (a_low * b_low + (x.high * y.low + x.low * y.high))
    return Double(*two_sum(high, low))


def _quarters(count: Reals) -> Double:
    """exp(count) for multiples of 1/4 in [-4, 0], to 1e-32, from a table."""
    with decimal.localcontext(decimal.Context(prec=60)):
        exact = [(decimal.Decimal(-i) / 4).exp() for i in range(17)]
        high = np.array([float(x) for x in exact])
        low = np.array([float(x - decimal.Decimal(float(x))) for x in exact])
    index = xp.clip(xp.round(-4.0 * count), 0, 16).astype(xp.int32)
    return Double(xp.take(high, index), xp.take(low, index))


Kind = Literal["normal", "exponential", "huber", "offset", "concave"]
# Widening of the proposal of a log-concave noise. chosen: above a density's error in mass
_ROOM = 1.0 + 2.0**-20


@final
@pytree
class WholeLaw:
    """h of one kind with its scale s, up to `bound`, at least 0; all numbers if None.

    "huber" and "offset" with alpha and gamma as well, s = gamma^2 / alpha; "concave" with a
    log-concave `noise`, of which h is -log of the density at multiples of `fine`.
    """

    kind: Kind = static()
    scale: Reals
    alpha: Any = None
    gamma: Any = None
    bound: Reals | None = None
    noise: Any = None
    fine: Any = None

    @property
    def proposal(self) -> str:
        """The law of the blocks."""
        return "normal" if self.kind == "normal" else "exponential"

    @property
    def candidates(self) -> float:
        """Candidates for each draw: 4 % above one over the chance that one is taken."""
        return {"normal": 1.25, "concave": 3.6}.get(self.kind, 1.33)


def half_mass_width(noise: Any) -> Reals:
    """s = 1 / (2 g(0)), enlarged, of a symmetric log-concave density g.

    g(x) <= g(0) exp(1 - x / s): with r = log g(0) / g(x), the chord of log g from 0 to x has a mass
    of x g(0) (1 - e^-r) / r, at most 1/2, and r / (1 - e^-r) <= 1 + r.
    """
    return 0.5 * _ROOM * xp.exp(-noise.log_density(xp.zeros(())))


def law_of(noise: Any, kind: Kind, fine: Reals) -> WholeLaw:
    """The law of a log-concave noise at the multiples of `fine`, or of noise of one scale."""
    if kind != "concave":
        return WholeLaw(kind, noise.scale / fine)
    return WholeLaw(kind, half_mass_width(noise) / fine, noise=noise, fine=fine)


def exponent(law: WholeLaw, k: Reals, j: Reals, size: Reals) -> Reals:
    """h(n) - h of the block k of a size, at place j: parts >= 0 to a relative error of 8 ulp."""
    if law.kind == "concave":
        here = law.noise.log_density((k * size + j) * law.fine)
        return 1.0 + law.noise.log_density(xp.zeros(())) - here - 0.5 * k
    beyond = (j + k * (size - 0.5 * law.scale)) / law.scale
    if law.kind == "normal":
        return 0.5 * beyond * (beyond + k)
    if law.kind == "exponential":
        return beyond
    tail = k * size + j - _start(law)
    return beyond + 0.5 * (xp.maximum(tail, 0.0) / law.gamma) ** 2


def _start(law: WholeLaw) -> Any:
    """First number with a quadratic term in h."""
    return law.alpha if law.kind == "huber" else 0.0


def exponent_pair(law: WholeLaw, k: Reals, j: Reals, size: Reals) -> Double:
    """`exponent` to 1e-30; "concave": as it is, but not below 0."""
    everywhere = xp.ones(k.shape, bool)
    zero = xp.zeros(k.shape)

    def exactly(x: Reals) -> Double:
        return Double(xp.broadcast_to(x, k.shape), zero)

    if law.kind == "concave":
        return exactly(xp.maximum(exponent(law, k, j, size), 0.0))
    inside = size - 0.5 * law.scale
    n = k * size + j
    if law.kind in ("huber", "offset"):
        square_of_gamma = product(exactly(law.gamma), exactly(law.gamma))
        slope = divide(exactly(law.alpha), square_of_gamma, everywhere)  # alpha / gamma^2
        centre = total_pair(product(exactly(n), slope), -0.5 * k)
        outside = total_pair(exactly(n), exactly(zero - _start(law)))
        share = divide(outside, exactly(law.gamma), outside.high > 0)
        square = scaled(product(share, share), 0.5)
        return total_pair(centre, Double(*(xp.where(outside.high > 0, x, 0.0) for x in square)))
    part = product(exactly(k), exactly(inside))
    above = total_pair(part, j)
    beyond = divide(above, exactly(law.scale), everywhere)
    if law.kind == "exponential":
        return beyond
    return scaled(product(beyond, total_pair(beyond, k)), 0.5)
