"""log E exp(z L) of the discrete Gaussian, from Jacobi's theta function.

With x = Re z, M(z) = exp(z (z + 1) mu^2 / 2) theta(z shift) / theta(0), mu = shift step and
theta(c) = sum_k exp(-(k - c)^2 step^2 / 2): the sum for scales below 0.8, its Poisson dual above.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxdp._core.types import Reals, RealsOrComplexes
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.lattice_gaussian import WIDE, plus


def cgf(step: Reals, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """`DiscreteGaussian.cgf`; step = 1 / scale > 0, arrays of one shape."""
    if jnp.iscomplexobj(z):
        return _complex(step, shift, z)
    mu, wide = step * shift, step < WIDE
    turns = z * shift
    whole = jnp.round(turns)
    part = turns - whole
    # z^2 mu^2 - part^2 step^2 without cancellation.
    square = jnp.where(wide, 0.5, step * step)
    sums = plus(
        jnp.exp(-k * (0.5 * k - jnp.abs(part)) * square)
        * jnp.expm1(-k * jnp.abs(part) * square) ** 2
        for k in range(7, 0, -1)
    )
    mass = 1.0 + 2.0 * plus(jnp.exp(-0.5 * k * k * square) for k in range(7, 0, -1))
    narrow = 0.5 * square * whole * (2.0 * turns - whole) + log1p(sums / mass)
    narrow += 0.5 * z * mu * mu
    turn = 2.0 * jnp.pi * jnp.pi / jnp.where(wide, step * step, 1.0)
    dual = plus(jnp.exp(-j * j * turn) * jnp.sin(jnp.pi * j * part) ** 2 for j in (2, 1))
    total = 1.0 + 2.0 * plus(jnp.exp(-j * j * turn) for j in (2, 1))
    smooth = 0.5 * z * (z + 1.0) * mu * mu + log1p(-4.0 * dual / total)
    return jnp.where(wide, smooth, narrow)


def _complex(step: Reals, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    wide = step < WIDE
    mu, x, y = step * shift, jnp.real(z), jnp.imag(z)
    turns = x * shift
    whole = jnp.round(turns)
    part = turns - whole
    square = jnp.where(wide, 0.5, step * step)
    swing = y * shift * square

    def mass(k: float) -> RealsOrComplexes:
        size = jnp.exp(-k * (0.5 * k - part) * square)
        return size * jnp.exp(1j * swing * (k + whole + 0.5 * shift))

    sums = plus(mass(float(k)) + mass(-float(k)) for k in range(7, 0, -1)) + mass(0.0)
    norm = 1.0 + 2.0 * plus(jnp.exp(-0.5 * k * k * square) for k in range(7, 0, -1))
    top = 0.5 * x * mu * mu + 0.5 * square * whole * (2.0 * turns - whole)
    narrow = top + jnp.log(jnp.where(wide, 1.0, sums / norm))
    # The dual, within one period of Im z, where M has recurred but for its sign.
    safe = jnp.where(wide, step, 0.5)
    period = 2.0 * jnp.pi / (shift * safe * safe)
    count = jnp.round(y / period)
    y = y - count * period
    turn = 2.0 * jnp.pi * jnp.pi / (safe * safe)
    lean = 2.0 * jnp.pi * shift * y
    dual = plus(
        jnp.exp(-j * j * turn - j * lean + 2j * jnp.pi * j * part)
        + jnp.exp(-j * j * turn + j * lean - 2j * jnp.pi * j * part)
        for j in (2, 1)
    )
    norm = 1.0 + 2.0 * plus(jnp.exp(-j * j * turn) for j in (2, 1))
    folded = x + 1j * y
    smooth = 0.5 * folded * (folded + 1.0) * (mu * mu)
    smooth += jnp.log(jnp.where(wide, (1.0 + dual) / norm, 1.0)) + 1j * jnp.pi * count * shift
    return jnp.where(wide, smooth, narrow)
