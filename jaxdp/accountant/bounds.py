"""Bounds on log delta; those at a negative epsilon from those of the exchanged pair."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._numeric.elementary import ULP, log1m
from jaxdp._types import Bools, Reals


class LogBounds(NamedTuple):
    """On log delta, of one shape: the upper one is NaN where the input is bad."""

    lower: Reals
    upper: Reals

    def mirrored(self, where: Bools, size: Reals) -> "LogBounds":
        """At minus `size` in some lanes, of the exchanged pair: 1 - e^-size + e^-size delta."""
        return LogBounds(
            jnp.where(where, _mirrored(self.lower, size, -1.0), self.lower),
            jnp.where(where, _mirrored(self.upper, size, 1.0), self.upper),
        )


def _mirrored(log_delta: Reals, size: Reals, side: float) -> Reals:
    """Rounded to one side."""
    mixture = -jnp.expm1(-size) + jnp.exp(-size + log_delta)
    near_one = mixture > 0.5
    large = log1m(jnp.where(near_one, -jnp.expm1(log_delta) * jnp.exp(-size), 0.0))
    value = jnp.where(near_one, large, jnp.log(jnp.where(near_one, 1.0, mixture)))
    return jnp.minimum(value + side * 16.0 * ULP * jnp.abs(value), 0.0)
