"""The cumulant generating function of the offset-symmetric Gaussian's privacy loss.

In units of the scale, with E = D^2 / 2 + h D the largest loss at t = 0 and b = z (D + 2 h) + h,

    2 R(h) M(z) = e^(z E) (R(h - z D) + R(b) - e^(-D^2/2 - b D) R(b + D))
                  + e^(-(z+1) E) R(h + (z+1) D),

where R(x) = sqrt(pi / 2) w(i x / sqrt 2) and, for Re x < 0, R(x) = sqrt(2 pi) e^(x^2/2) - R(-x).
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Bools, Complexes, Reals, RealsOrComplexes
from jaxdp._numeric.faddeeva import faddeeva
from jaxdp._numeric.mills import mills
from jaxdp.noise.kernels.monotone_loss import TINY
from jaxdp.noise.kernels.small_cgf import small_cgf

# sqrt(pi / 2), the Mills ratio at 0.
_UNIT = math.sqrt(0.5 * math.pi)


def cgf(h: Reals, d: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """K(z), arguments of one shape. See `OffsetGaussian.cgf`."""
    z = jnp.where(jnp.real(z) < -0.5, -1.0 - z, z)  # K(z) = K(-1 - z)
    small = ~(jnp.abs(z) * d * (1.0 + h + d) > 1.0)
    near, none = jnp.where(small, z, 0.0), jnp.zeros_like(z)
    far = jnp.where(small, 1.0, z).astype(jnp.complex128)

    def large() -> RealsOrComplexes:
        value = _large(h, jnp.where(small, 1.0, d), far)
        return value if jnp.iscomplexobj(z) else jnp.real(value)

    return jnp.where(
        small,
        lax.cond(jnp.any(small), lambda: _small(h, jnp.where(small, d, 0.0), near), lambda: none),
        lax.cond(jnp.all(small), lambda: none, large),
    )


def _small(h: Reals, d: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    normaliser, b, m = jnp.log(2.0 * mills(h))[None], h[None], d[None]

    def law(t: Reals) -> tuple[Reals, Reals]:
        near, far, span = jnp.abs(t), t + m, jnp.minimum(2.0 * t + m, m)
        return -0.5 * near * (near + 2.0 * b) - normaliser, span * (b + 0.5 * (near + far))

    return small_cgf(law, d, 1.0 / jnp.maximum(h, 1.0), (), z)


def _large(h: Reals, d: Reals, z: Complexes) -> Complexes:
    zeta = z + 1.0
    top = d * (0.5 * d + h)
    past, left = h - z * d, z * (d + 2.0 * h) + h
    beyond, ahead = jnp.real(past) < 0, jnp.real(left) < 0
    one, always = jnp.ones_like(z), h >= 0
    none = jnp.zeros_like(z)

    def y(x: Complexes, flip: Bools) -> Complexes:
        turned = jnp.where(flip, -x, x) * math.sqrt(0.5)
        return 1j * jnp.maximum(jnp.real(turned), 0.0) - jnp.imag(turned)

    never = h < 0
    # (exponent, factor of R, argument of w, whether it is there)
    terms = (
        (z * top, jnp.where(beyond, -one, one), y(past, beyond), always),
        (0.5 * (z * zeta * d * d + h * h), 2.0 * one, none, beyond),
        (z * top, jnp.where(ahead, -one, one), y(left, ahead), always),
        (z * top + 0.5 * left * left, 2.0 * one, none, ahead),
        (z * top - d * (0.5 * d + left), -one, y(left + d, never), always),
        (-zeta * top, one, y(h + zeta * d, never), always),
    )
    columns = [jnp.stack(column) for column in zip(*terms, strict=True)]
    # Without the barrier XLA forms every term anew in each loop that reads it: slow to compile.
    exponent, factor, argument, present = lax.optimization_barrier(columns)
    largest = jnp.max(jnp.where(present, jnp.real(exponent), -jnp.inf), axis=0)
    powers = jnp.exp(jnp.where(present, exponent - largest[None], 0.0))
    values = jnp.where(present, factor * faddeeva(argument) * powers, 0.0)
    total = jnp.sum(values, axis=0) * (0.5 * _UNIT)
    # Far up a vertical line nothing may be left but rounding, or not even that.
    return jnp.log(jnp.where(total == 0, TINY, total)) + largest - jnp.log(mills(h))
