"""Noise from a lattice, as solvers add it to sums of clipped records.

The value is rounded to multiples of a step, a power of two below 2^-37 of the noise's scale, and a
whole multiple of it is added, see `released`. Rounding moves the difference of two neighbours by up
to a step an entry. The noise is drawn wider by what that adds to the sensitivity, so that the
guarantee of the noise as planned holds as it is stated. Both parts are multiples of the step, and
what float64 makes of their sum is a function of the exact one: post-processing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import Key, Reals, Shape
from jaxdp._numeric.elementary import round_up
from jaxdp.noise.base import Noise
from jaxdp.noise.lattice_draws import draw_whole, require_drawable, unit_of
from jaxdp.released import size_error

# How noise is drawn: from a lattice, or in floating point, which is for research.
RELEASES = ("lattice", "float")
# Bits of a noise's scale above the step. chosen: total variation 2^-74 a draw; draws stay exact
_BITS = 37


class Added(NamedTuple):
    """Noise of a shape, and the step of its lattice: 0 for noise in floating point."""

    noise: Reals
    step: Reals

    def to(self, value: Reals) -> Reals:
        """The value, rounded to the lattice, plus the noise."""
        # Doubles beyond are multiples of the step already.
        inside = jnp.abs(value) < self.step * 2.0**53
        step = jnp.where(inside, self.step, 1.0)
        return jnp.where(inside, jnp.round(value / step) * step, value) + self.noise


def require(release: str, noise: Noise) -> None:
    """Raise `ValueError` unless `release` is in `RELEASES` and the noise has a lattice."""
    checks.one_of("release", release, RELEASES)
    if release == "lattice":
        require_drawable(noise)
        unit_of(noise)


def added(
    noise: Noise, scale: Reals, ratio: Reals, key: Key, shape: Shape, release: str = "lattice"
) -> Added:
    """`scale` times noise of a shape, wider by the shift that rounding the value can cause.

    scale: broadcasts against `shape`; 0 adds no noise and does not round. ratio: the accounted
    sensitivity / scale in the norm of the noise's kind, over the same norm of a vector of ones with
    as many entries as are released together: 1, their number or its root. NaN for a traced NaN
    scale.
    """
    require(release, noise)
    if release == "float":
        return Added(scale * noise.sample(key, shape), jnp.zeros(()))
    unit = unit_of(noise)
    step = jnp.where(scale == 0, 0.0, power_of_two(unit * scale, -_BITS))
    wide = round_up(scale * (1.0 + unit * 2.0**-_BITS / ratio), 8)
    drawn = draw_whole(noise, key, shape, step / wide) * step
    return Added(jnp.where(scale == 0, 0.0, drawn), step)


def power_of_two(value: Reals, shift: int) -> Reals:
    """The largest power of two up to `value`, times 2^shift; of known values by NumPy.

    A TPU has no exponents of float64.
    """
    lib: Any = np if checks.is_concrete(value) else jnp
    exponent = lib.frexp(lib.asarray(value))[1]
    return jnp.asarray(lib.ldexp(lib.ones(exponent.shape), exponent - 1 + shift))


def sampling_error(draws: int | float, release: str) -> Reals:
    """Total variation between all samples and the exact noise; 1 in floating point."""
    return jnp.ones(()) if release == "float" else size_error(draws, 2.0**-_BITS)
