"""log delta of the discrete Gaussian, by sums of positive terms.

With m the least k whose loss is above epsilon, delta is the sum over k >= m of
p(k) (1 - exp(epsilon - loss(k))).
"""

from __future__ import annotations

import functools

import jax
from jax.custom_derivatives import SymbolicZero

from jaxdp._core.namespace import custom_jvp, lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.double_double import Double, product, scaled, total
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.lattice_gaussian import (
    FLAT,
    TERMS,
    WIDE,
    correction,
    difference,
    is_short,
    log_normaliser,
    middle,
    plus,
)
from jaxdp._numeric.mills import mills
from jaxdp._numeric.quadrature import accumulate
from jaxdp.noise.kernels.negative_epsilon import Sides, slope_in_epsilon, upper_log_delta

# Measured: 10 ulp, next to the two of the exponents.
_VALUE_ULPS = 20.0
_INPUT_ULPS = 2.0
# Arguments are cut here. derived: their squares are finite, and the masses 0
_LARGEST = 1e150
# Exponents above this belong to sums that are not used.
_TOP = 500.0


def _gap(scale: Reals, shift: Reals, size: Reals, m: Reals) -> Reals:
    """2 scale^2 (loss(m) - epsilon), without cancellation."""

    def single(x: Reals) -> Double:
        return Double(x, xp.zeros_like(x))

    cost = product(product(single(scale), single(scale)), single(size))
    return total(product(single(2.0 * m + shift), single(shift)), scaled(cost, -2.0))


def _threshold(scale: Reals, shift: Reals, size: Reals) -> tuple[Reals, Reals]:
    """The least whole m with loss(m) > epsilon, and loss(m) - epsilon.

    m is exact up to 2^53; beyond, a step of the lattice is below the rounding of the scale.
    """
    usual = (scale > 1e-50) & (scale < 1e50) & (shift < 1e50) & (size < 1e50)
    s, d, e = (xp.where(usual, v, 1.0) for v in (scale, shift, size))
    m = lax.stop_gradient(xp.floor(e * s * (s / d) - 0.5 * d) + 1.0)
    m = m + xp.where(_gap(s, d, e, m) <= 0, 1.0, 0.0)
    m = m - xp.where(_gap(s, d, e, m - 1.0) > 0, 1.0, 0.0)
    gain = xp.maximum(_gap(s, d, e, m), 0.0) * (0.5 / s) / s
    # The remaining digits of m do not matter.
    far = xp.floor(xp.clip(size * scale * (scale / shift) - 0.5 * shift, -1e300, 1e300)) + 1.0
    step = xp.clip(1.0 / scale, 1e-250, 1e100)
    return xp.where(usual, m, far), xp.where(usual, gain, 0.5 * shift * step * step)


def _sides(scale: Reals, shift: Reals, epsilon: Reals) -> Sides:
    step = xp.clip(1.0 / scale, 1e-250, 1e100)
    size = xp.minimum(xp.abs(epsilon), 1e300)
    decay = step * step
    m, gain = _threshold(scale, shift, size)
    below, n = m <= 0, xp.abs(m)
    end = xp.minimum(m + shift, 1e300)
    x = xp.minimum(n * step, _LARGEST)
    short = is_short(n, step)
    both_flat = ~short & (end * decay <= FLAT)

    def term(node: Reals, weight: Reals) -> tuple[Reals, Reals, Reals]:
        def mass(k: Reals) -> Reals:
            exponent = -0.5 * decay * node * (2.0 * k + node)
            return weight * xp.exp(xp.minimum(exponent, _TOP))

        rise = -xp.expm1(-(gain + node * (shift * decay)))
        return mass(m) * rise, mass(n + 1.0), mass(end)

    zero = xp.zeros_like(x)
    direct, beyond, far_short = accumulate(TERMS, term, (zero, zero, zero))
    flat = xp.where(short, 0.01, step)
    x_flat = xp.where(short, 1.0, x)
    width = xp.where(both_flat, (end - n) * step, 1.0)
    smooth, far_flat = difference(x_flat, width, flat, xp.where(both_flat, gain, 1.0))
    far = xp.exp(-gain) * xp.where(both_flat, far_flat, far_short)
    near_flat = mills(x_flat) / flat + 0.5 + correction(x_flat, flat)
    smooth = xp.where(both_flat, smooth, near_flat - far)
    smooth = smooth + xp.where(below, middle(x_flat, flat), 0.0)
    beyond = beyond * xp.exp(-0.5 * decay * (2.0 * n + 1.0))
    near = xp.where(short, beyond, near_flat - 1.0)  # P[T > n] / p(n)
    excess = xp.maximum(xp.where(short, direct, smooth), xp.finfo(xp.float64).tiny)
    unit = xp.exp(-log_normaliser(step))
    top = xp.minimum(0.5 * x * x, 1e305)
    both = near + far
    tail = xp.where(below, near, excess + far)
    # 1 - delta has the rounding of the exponents of its terms.
    small = below & (xp.exp(-top) * unit * both < 0.5)
    amplification = xp.where(small, 0.5 * decay * (n + 1.0) ** 2 * both, 0.0)
    return Sides(below, top, *(unit * v for v in (excess, both, tail, far, amplification)))


def _value(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    return upper_log_delta(_sides(scale, shift, epsilon), epsilon, _VALUE_ULPS, _INPUT_ULPS)


@custom_jvp
def log_delta(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """`DiscreteGaussian.log_delta` for a finite whole shift >= 1 and a finite scale."""
    upper = _value(scale, shift, epsilon)
    none = (epsilon == xp.inf) & ~xp.isnan(scale + shift)
    return xp.where(none, -xp.inf, upper)


@functools.partial(log_delta.defjvp, symbolic_zeros=True)
def _log_delta_jvp(primals, tangents):
    """Derivatives: -e^epsilon P[T >= m + shift] / delta in epsilon, others through the sums."""
    scale, shift, epsilon = primals
    out = log_delta(scale, shift, epsilon)
    change = xp.zeros_like(out)
    one = xp.ones_like(out)
    if not isinstance(tangents[0], SymbolicZero):
        slope = jax.jvp(lambda s: _value(s, shift, epsilon), (scale,), (one,))[1]
        change = change + slope * tangents[0]
    if not isinstance(tangents[1], SymbolicZero):
        slope = jax.jvp(lambda d: _value(scale, d, epsilon), (shift,), (one,))[1]
        change = change + slope * tangents[1]
    if not isinstance(tangents[2], SymbolicZero):
        sides = _sides(scale, shift, epsilon)
        change = change + slope_in_epsilon(sides, epsilon, out) * tangents[2]
    return out, change


def divergence(scale: Reals, shift: Reals, s: Reals) -> Reals:
    """Renyi divergence of the order 1 + s, for whole shifts >= 1."""
    step = 1.0 / scale
    mu, wide = step * shift, step < WIDE
    safe = xp.where(s > 0, s, 1.0)
    turns = safe * shift
    whole = xp.round(turns)
    part = turns - whole
    # s^2 mu^2 - part^2 step^2 without cancellation.
    square = xp.where(wide, 0.5, step * step)
    sums = plus(
        xp.exp(-k * (0.5 * k - xp.abs(part)) * square) * xp.expm1(-k * xp.abs(part) * square) ** 2
        for k in range(7, 0, -1)
    )
    mass = 1.0 + 2.0 * plus(xp.exp(-0.5 * k * k * square) for k in range(7, 0, -1))
    narrow = (0.5 * square * whole * (2.0 * turns - whole) + log1p(sums / mass)) / safe
    narrow = narrow + 0.5 * mu * mu
    turn = 2.0 * xp.pi * xp.pi / xp.where(wide, step * step, 1.0)
    dual = plus(xp.exp(-j * j * turn) * xp.sin(xp.pi * j * part) ** 2 for j in (2, 1))
    total = 1.0 + 2.0 * plus(xp.exp(-j * j * turn) for j in (2, 1))
    smooth = 0.5 * (safe + 1.0) * mu * mu + log1p(-4.0 * dual / total) / safe
    return xp.where(s > 0, xp.where(wide, smooth, narrow), 0.5 * (s + 1.0) * mu * mu)
