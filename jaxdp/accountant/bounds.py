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

    def mirrored(self, where: Bools, size: Reals) -> LogBounds:
        """Bounds of the exchanged pair at -`size` in some lanes: 1 - e^-size + e^-size delta."""
        return LogBounds(
            jnp.where(where, mirrored_log_delta(self.lower, size, -1.0), self.lower),
            jnp.where(where, mirrored_log_delta(self.upper, size, 1.0), self.upper),
        )


def nearer(known: LogBounds, found: LogBounds) -> LogBounds:
    """The nearer bounds; of NaN the other."""
    less = (found.upper < known.upper) | jnp.isnan(known.upper) | (known.upper == jnp.inf)
    better = (found.lower > known.lower) | jnp.isnan(known.lower) & ~jnp.isnan(found.lower)
    lower = jnp.where(better, found.lower, known.lower)
    return LogBounds(lower, jnp.where(less, found.upper, known.upper))
