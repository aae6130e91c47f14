"""log(1 - q + q e^u) off the real axis, where complex functions cost three times as much."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._numeric.circular import angle_of, sine_cosine
from jaxdp._numeric.elementary import log1m_near
from jaxdp._numeric.turning import Pair
from jaxdp._types import Reals

# e^u that is as good as the whole ratio, and whose square does not overflow.
_LARGE = 300.0


class Angle(NamedTuple):
    """Im u in [0, pi / 2], and what it needs."""

    value: Reals
    cosine: Reals
    sine: Reals
    versine: Reals

    @staticmethod
    def of(value: Reals) -> "Angle":
        sine, cosine = sine_cosine(value)
        return Angle(value, cosine, sine, 2.0 * sine_cosine(0.5 * value)[0] ** 2)


def log_mixture(real: Reals, angle: Angle, q: Reals) -> Pair:
    """At u = real + i angle; relatively exact but for 1e-16 q near 0."""
    large = real > _LARGE
    bounded = jnp.minimum(real, _LARGE)
    ratio, grown = q * jnp.exp(bounded), jnp.expm1(bounded)
    turned = jnp.where(large, q, (1.0 - q) + ratio * angle.cosine)
    height = jnp.where(large, 0.0, ratio * angle.sine)
    # |.|^2 - 1, without the rounding of the sum, where that is small.
    excess = q * (grown * angle.cosine - angle.versine)
    square = excess * (2.0 + excess) + height * height
    small = jnp.abs(square) <= 0.5
    far = jnp.log(turned * turned + height * height)
    modulus = 0.5 * jnp.where(small, log1m_near(jnp.where(small, -square, 0.0)), far)
    phase = angle_of(height, turned)
    return Pair(jnp.where(large, real, 0.0) + modulus, jnp.where(large, angle.value, 0.0) + phase)
