"""Bounds on log delta, on both sides; those at a negative epsilon are the exchanged pair's."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._core.types import Bools, Reals
from jaxdp.noise.base import mirrored_log_delta


class LogBounds(NamedTuple):
    """Bounds on log delta, or on epsilon, of one shape; `upper` is NaN where the input is bad."""

    lower: Reals
    upper: Reals

    def mirrored(self, is_mirrored: Bools, size: Reals) -> LogBounds:
        """Bounds of the exchanged pair at -`size` in some lanes: 1 - e^-size + e^-size delta."""
        return LogBounds(
            jnp.where(is_mirrored, mirrored_log_delta(self.lower, size, -1.0), self.lower),
            jnp.where(is_mirrored, mirrored_log_delta(self.upper, size, 1.0), self.upper),
        )


def tighter(a: LogBounds, b: LogBounds) -> LogBounds:
    """The nearer bounds; of NaN the other."""
    is_less = (b.upper < a.upper) | jnp.isnan(a.upper) | (a.upper == jnp.inf)
    is_more = (b.lower > a.lower) | jnp.isnan(a.lower) & ~jnp.isnan(b.lower)
    lower = jnp.where(is_more, b.lower, a.lower)
    return LogBounds(lower, jnp.where(is_less, b.upper, a.upper))
