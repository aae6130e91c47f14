"""Noise from a lattice, as solvers add it to sums of clipped records.

The value is rounded to multiples of a step, a power of two below 2^-37 of the noise's scale, and a
whole multiple of it is added, see `released`. Rounding moves the difference of two neighbours by up
to a step an entry. The noise is drawn wider by what that adds to the sensitivity, so that the
guarantee of the noise as planned holds as it is stated. Both parts are multiples of the step, and
what float64 makes of their sum is a function of the exact one: post-processing.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.precision import is_tracing
from jaxdp._core.random_key import split
from jaxdp._core.types import Key, Reals, Shape
from jaxdp._numeric.elementary import round_up
from jaxdp.noise.base import Noise
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.whole_draws import law_of
from jaxdp.released import draw_error, require_drawable, size_error, unit_of

# How noise is drawn: from a lattice, or in floating point, which is for research.
RELEASES = ("lattice", "float")
# Bits of a noise's scale above the step. chosen: total variation 2^-74 a draw; draws are exact up
# to 43 bits
_BITS = 37
# Traced draws of one turn of a loop, each of a scale of its own. chosen: a third of a millisecond
PART = 256
# Most draws from one key. measured: they stay in the cache of a CPU, 2^20 took twice as long
_LONGEST = 2**15
# Keys from which an accelerator draws at a time. chosen: 2^20 draws fill it
_KEYS = 32


class Added(NamedTuple):
    """Noise of a shape, and the step of its lattice: 0 for noise in floating point."""

    noise: Reals
    step: Reals

    def to(self, value: Reals) -> Reals:
        """The value, rounded to the lattice, plus the noise."""
        # Doubles beyond are multiples of the step already.
        inside = xp.abs(value) < self.step * 2.0**53
        step = xp.where(inside, self.step, 1.0)
        return xp.where(inside, xp.round(value / step) * step, value) + self.noise

    def at(self, place: Any) -> Added:
        """One entry of a flat noise."""
        return Added(self.noise[place], self.step[place])

    def part(self, start: int, shape: Shape) -> Added:
        """Entries of a flat noise from `start` on, in a shape."""
        return self._replace(noise=self.noise[start : start + math.prod(shape)].reshape(shape))


def require(release: str, noise: Noise) -> None:
    """Raise `ValueError` unless `release` is in `RELEASES` and the noise has a lattice."""
    checks.one_of("release", release, RELEASES)
    if release == "lattice":
        require_drawable(noise, exact=True)
        unit_of(noise)


def added(
    noise: Noise,
    scale: Reals,
    ratio: Reals,
    key: Key,
    shape: Shape,
    release: str = "lattice",
    bits: int = _BITS,
) -> Added:
    """`scale` times noise of a shape, wider by the shift that rounding the value can cause.

    scale: broadcasts against `shape`; 0 adds no noise and does not round. ratio: the accounted
    sensitivity / scale in the norm of the noise's kind, over the same norm of a vector of ones with
    as many entries as are released together: 1, their number or its root. bits: log2 of scale /
    step. NaN for a traced NaN scale.
    """
    require(release, noise)
    if release == "float":
        return Added(scale * noise.sample(key, shape), xp.zeros(()))
    step, fine = _step(noise, scale, ratio, bits)
    return Added(xp.where(scale == 0, 0.0, drawn(noise, fine, key, shape) * step), step)


def whole_noise(noise: Noise, key: Key, shape: Shape) -> Reals:
    """Noise for sums of whole numbers: itself if on the integers, else rounded from its lattice.

    Rounding is post-processing of a release on a finer lattice, of which whole numbers are
    multiples. Scales must be below 2^32; `ValueError` for noises without a lattice.
    """
    require_drawable(noise)
    step = xp.ones(()) if noise.on_integers else power_of_two(unit_of(noise), -_BITS)
    return xp.round(drawn(noise, step, key, shape) * step)


def whole_noise_error(noise: Noise, draws: int) -> Reals:
    """Total variation between the laws of `draws` draws of `whole_noise` and of the noise."""
    return size_error(draws, 0.0 if noise.on_integers else 2.0**-_BITS, draw_error(noise))


def drawn(noise: Noise, fine: Reals, key: Key, shape: Shape) -> Reals:
    """Whole draws, of multiples of `fine`: known ones by NumPy, traced ones in parts."""
    size = math.prod(shape)
    if size < PART or (checks.all_concrete(noise, fine, key) and not is_tracing()):
        return noise._draw_whole(key, shape, fine)
    spread = jnp.broadcast_to(fine, shape).reshape(-1)
    parts = -(-size // PART)
    spread = jnp.pad(spread, (0, parts * PART - size), constant_values=1.0).reshape(parts, PART)

    def part(each: tuple[jax.Array, Reals]) -> Reals:
        return noise._draw_whole(jax.random.fold_in(key, each[0]), (PART,), each[1])

    found = lax.map(part, (jnp.arange(parts, dtype=jnp.uint32), spread))
    return found.reshape(-1)[:size].reshape(shape)


def _step(noise: Noise, scale: Reals, ratio: Reals, bits: int = _BITS) -> tuple[Reals, Reals]:
    """The step of the lattice, and its length relative to the scale of the wider noise."""
    unit = unit_of(noise)
    step = xp.where(scale == 0, 0.0, power_of_two(unit * scale, -bits))
    return step, step / round_up(scale * (1.0 + unit * 2.0**-bits / ratio), 8)


def added_to_groups(
    noise: Noise,
    scales: Reals,
    ratio: Reals,
    key: Key,
    sizes: tuple[int, ...],
    release: str = "lattice",
) -> list[Added]:
    """`added` of several groups, each with its scale and its number of entries, flat.

    They are drawn in parts of one length, of which each is of one group; traced ones in a loop.
    """
    require(release, noise)
    if release == "float":
        drawn = noise.sample(key, (sum(sizes),))
        parts = jnp.split(drawn, np.cumsum(sizes)[:-1])
        zero = jnp.zeros(())
        return [Added(scale * part, zero) for scale, part in zip(scales, parts, strict=True)]
    length = _part_length(sizes)
    counts = np.array([-(-size // length) for size in sizes])
    steps, fine = _step(noise, scales, ratio)
    fine = xp.repeat(fine, counts)
    keys = split(key, len(fine))
    if checks.all_concrete(noise, fine, key) and not is_tracing():
        drawn = whole_draws.draw_rows(keys, law_of(noise, noise.whole_kind, fine), length)
    else:
        drawn = _drawn(noise, keys, fine, length)
    parts = xp.split(drawn, np.cumsum(counts)[:-1])
    return [
        Added(xp.where(scale == 0, 0.0, part.reshape(-1)[:size] * step), step)
        for part, size, step, scale in zip(parts, sizes, steps, scales, strict=True)
    ]


@functools.partial(jax.jit, static_argnums=3)
def _drawn(noise: Noise, keys: jax.Array, fine: Reals, length: int) -> Reals:
    """Whole noise, `length` draws from each key, for steps of these relative lengths."""
    at_once = None if jax.default_backend() == "cpu" else _KEYS

    def draw(part: tuple[Key, Reals]) -> Reals:
        return noise._draw_whole(part[0], (length,), part[1])

    return lax.map(draw, (keys, fine), batch_size=at_once)


def _part_length(sizes: tuple[int, ...]) -> int:
    """Draws made at a time for groups of these sizes: few are left over, and few turns made."""
    wanted = sum(sizes) if len(sizes) == 1 else -(-sum(sizes) // (4 * len(sizes)))
    return min(whole_draws.padded_size(wanted), _LONGEST)


def power_of_two(value: Reals, shift: int) -> Reals:
    """The largest power of two up to `value`, times 2^shift. A TPU has no exponents of float64."""
    lib: Any = np if checks.is_concrete(value) else jnp
    exponent = lib.frexp(lib.asarray(value))[1]
    return lib.ldexp(lib.ones(exponent.shape), exponent - 1 + shift)


def sampling_error(draws: int | float, release: str, bits: int = _BITS) -> Reals:
    """Total variation between all samples and the exact noise; 1 in floating point."""
    return xp.ones(()) if release == "float" else size_error(draws, 2.0**-bits)
