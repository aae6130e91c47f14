"""Releases from a lattice: a value rounded to multiples of a power of two, and whole noise.

The value is rounded to a multiple of g, a power of two about 2^-32 of the noise's scale. A whole
multiple of g is added, with the noise's density at the multiples of g. Every output can come from
every value, so its low bits reveal nothing. By post-processing, the guarantee covers the noise
rounded to multiples of g. The drawn law differs from it by at most (g / scale)^2 in total
variation: the midpoint rule's error, (1 / 24) of the integral of the density's second derivative
(at most 2) and 1 / 4 of a kink's slope. The scale of any log-concave noise is 1 / sqrt(I), I its
Fisher information: the integral of the absolute second derivative, kinks included, is 2 I at most,
and each cell's error 1 / 8 of its part. `noise.kernels.whole_draws` states the sampler's own error.
A noise has its own exact draws, or is log-concave on the reals: then its log density in float64
decides. A histogram's width is rounded up to an even multiple, a truncated Laplace's bound
to a half-odd one: both lower delta.
Source: Mironov, On significance of the least significant bits for differential privacy, CCS 2012.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import data, pytree, static
from jaxdp._core.random_key import children, is_secure, key_or_new
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.guarantee.drawn import Drawn
from jaxdp.noise.base import Noise, exp_up
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.whole_draws import half_mass_width
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian
from jaxdp.noise.staircase import Staircase
from jaxdp.noise.subbotin import Subbotin
from jaxdp.noise.truncated_laplace import TruncatedLaplace

NOISES: dict[str, type[Noise]] = {
    kind.name: kind
    for kind in (
        *(Gaussian, Laplace, TruncatedLaplace, FlippedHuber, OffsetGaussian, Subbotin, Staircase),
        *(Histogram, DiscreteGaussian, DiscreteLaplace, DiscreteHistogram),
    )
}
# Bits of a noise's scale above the lattice. chosen: total variation 2^-64, values to 2^29 scales
BITS = 32
# Multiples of g that a value is clipped to. derived: with noise below 2^40 they add up in 64 bits
_LARGEST = 2.0**61
# Most of the width of a log-concave noise, 1 / (2 g(0)), over its unit. chosen: few log densities
# are steeper, and draws stay below 2^45 multiples
_MOST_WIDTH = 64.0


def is_exact(kind: type[Noise]) -> bool:
    """True if draws need no log density in floating point."""
    return kind.whole_kind != "concave" or kind._draw_whole is not Noise._draw_whole


def require_drawable(noise: Noise, *, exact: bool = False, reals: bool = False) -> None:
    """`ValueError` for a noise without draws on a lattice, `exact` ones of noise on the `reals`."""

    def is_drawn(kind: type[Noise]) -> bool:
        by_density = kind.log_concave and not kind.on_integers and not exact
        return (is_exact(kind) or by_density) and not (reals and kind.on_integers)

    if not isinstance(noise, Noise) or not is_drawn(type(noise)):
        names = ", ".join(kind.__name__ for kind in NOISES.values() if is_drawn(kind))
        own = "" if exact else ", or your own noise on the reals with log_concave = True,"
        hint = "" if reals else ": a DiscreteHistogram(weights) has any chances on the integers"
        raise ValueError(
            f"noise must be one of {names}{own} to be released, got {type(noise).__name__}{hint}"
        )
    noise.is_consistent()


def unit_of(noise: Noise) -> Reals:
    """The smallest length over which the density changes; concrete ones must be finite."""
    unit = noise._lattice_unit()
    if not is_exact(type(noise)):
        unit = xp.where(half_mass_width(noise) <= _MOST_WIDTH * unit, unit, xp.nan)
    if checks.is_concrete(unit) and not np.isfinite(np.asarray(unit)).all():
        raise ValueError("noise must have a finite scale, and no jumps, to be sampled")
    return unit


def draw_error(noise: Noise) -> float:
    """Total variation between a draw's law and that proportional to the density at multiples."""
    return whole_draws.ERROR if is_exact(type(noise)) else whole_draws.CONCAVE_ERROR


@final
@in_float64
@pytree
class Released:
    """A noisy value that may be published, and its guarantee.

    value: multiples of `granularity`; whole numbers if the noise is on the integers. mechanism: its
    sensitivity includes the rounding. sampling_error: total variation between the drawn and the
    exact law, which `log_delta` includes.
    is_secure_key: True if the bits came from ChaCha20.
    """

    value: Any = data()
    mechanism: Any
    granularity: Reals
    sampling_error: Reals
    is_secure_key: bool = static()

    @property
    def guarantee(self) -> Drawn:
        """The guarantee of the mechanism, with the sampling error."""
        return Drawn(self.mechanism, self.sampling_error)

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of delta + (1 + e^epsilon) sampling_error; of a batch, of each of its releases."""
        return self.guarantee.log_delta(epsilon)

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """An epsilon with delta(epsilon) <= `delta`; infinite where the draws' error forbids it."""
        return self.guarantee.epsilon(delta)

    def half_width(self, level: ArrayLike = 0.95) -> Reals:
        """The h with the exact value in value +- h with this probability, for each entry."""
        return half_width_of(self.mechanism.noise, level, self.granularity)


def half_width_of(noise: Noise, level: ArrayLike, granularity: ArrayLike) -> Reals:
    """The quantile of |noise|, and half a granularity for the rounding of the sum.

    The value and the noise are rounded to the lattice, by 2^-33 of the scale at most each.
    """
    quantile = noise.quantile(0.5 + 0.5 * checks.probability("level", level))
    rounding = 0.5 * checks.nonnegative("granularity", granularity)
    if noise.on_integers:
        return quantile + xp.zeros_like(rounding)
    # The scale is at most the standard deviation.
    return quantile + (rounding + xp.minimum(rounding, 2.0**-BITS * xp.sqrt(noise.variance())))


class Lattice(NamedTuple):
    """Lattice of a release: sums are multiples of `fine`, outputs multiples of `coarse`."""

    fine: Reals
    coarse: Reals
    shift: Any  # log2(coarse / fine)
    sensitivity: Reals  # with the rounding
    error: Reals  # total variation of all draws


def release_from_lattice(
    noise: Noise,
    sensitivity: Reals,
    value: Any,
    key: Key | None,
    granularity: float | None,
    disjoint: bool,
    charge: Callable[[Reals], None],
) -> tuple[Any, Lattice, bool]:
    """The noisy value, its lattice, and whether the key is secure.

    `charge` is called with the sensitivity, rounding included, before anything is drawn.
    """
    require_drawable(noise)
    key = key_or_new(key, noise, sensitivity, value)
    leaves, tree = jax.tree.flatten(_in_range(value))
    arrays = [_array(leaf) for leaf in leaves]
    size = sum(x.size for x in arrays)
    if not size:
        raise ValueError("value must hold at least one number, got none")
    batch = np.broadcast_shapes(sensitivity.shape, *(np.shape(x) for x in jax.tree.leaves(noise)))
    whole = all(jnp.issubdtype(x.dtype, jnp.integer) for x in arrays)
    norm = _norm_of(noise, batch, [x.shape for x in arrays], disjoint)
    if not noise.on_integers:
        lattice = _lattice_of(noise, sensitivity, granularity, (size, norm), whole)
    elif granularity not in (None, 1) or not whole:
        raise ValueError(
            f"value must be of whole numbers (an integer dtype) and granularity 1 or None for "
            f"{type(noise).__name__}, got {arrays[0].dtype} and {granularity}"
        )
    else:
        one, error = xp.ones(batch), xp.asarray(size_error(size, 0.0) + xp.zeros(batch))
        lattice = Lattice(one, one, xp.zeros(batch, xp.int64), sensitivity, error)
    charge(lattice.sensitivity)
    keys = children(key, len(arrays))
    noisy = [_added(noise, x, k, lattice) for x, k in zip(arrays, keys, strict=True)]
    return jax.tree.unflatten(tree, noisy), lattice, is_secure(key)


def size_error(size: int | float, step: ArrayLike, each: float = whole_draws.ERROR) -> Reals:
    """Total variation of `size` draws on a lattice of `step` to the noise's scale."""
    return round_up(size * (xp.asarray(step) ** 2 + each), 4)


def _lattice_of(
    noise: Noise,
    sensitivity: Reals,
    granularity: float | None,
    entries: tuple[int, int],
    whole: bool,
) -> Lattice:
    """The lattice of a continuous noise, for `entries`: their number and the norm's order."""
    unit = unit_of(noise)
    exponent = xp.frexp(unit)[1] - 1 - BITS
    fine = xp.ldexp(xp.ones(unit.shape), exponent)
    coarse_exponent = exponent
    if granularity is not None:
        known = float(granularity)
        mantissa, wanted = np.frexp(known)
        least, most = 0.0, np.inf
        if checks.is_concrete(unit):
            least, most = np.max(unit) * 2.0**-BITS, np.min(unit) * 2.0**29
        if not known <= most:
            raise ValueError(f"granularity must be at most {most:g}, got {granularity}")
        if not (np.isfinite(known) and mantissa == 0.5):
            raise ValueError(f"granularity must be a power of two, got {granularity}")
        if known < 0.5 * least:
            raise ValueError(
                f"granularity must be at least 2^-{BITS} of the noise's scale, {least:g}, got "
                f"{granularity}"
            )
        coarse_exponent = xp.maximum(int(wanted) - 1, exponent)
    # Noise is below 2^41 multiples: shifted by 62 bits it is 0, as by more.
    shift = xp.minimum((coarse_exponent - exponent).astype(xp.int64), 62)
    coarse = xp.ldexp(xp.ones(unit.shape), coarse_exponent)
    size, norm = entries
    # Values that are whole multiples already are not moved.
    rounding = xp.where(whole & (fine <= 1.0), 0.0, fine)
    spread = {0: 1.0, 1: float(size), 2: float(np.sqrt(size))}[norm]
    moved = xp.where(rounding > 0, round_up(sensitivity + rounding * spread, 4), sensitivity)
    error = size_error(size, fine / unit, draw_error(noise)) + xp.zeros(moved.shape)
    return Lattice(*map(xp.asarray, (fine, coarse, shift, moved, error)))


def _in_range(value: Any) -> Any:
    """The tree with whole numbers of Python clipped, and a list of numbers as one array."""
    most = int(_LARGEST)
    value = jax.tree.map(
        lambda x: max(-most, min(x, most)) if isinstance(x, int) and abs(x) > most else x, value
    )
    if isinstance(value, list | tuple) and all(jnp.ndim(x) == 0 for x in value):
        return np.asarray(value) if checks.all_concrete(value) else jnp.asarray(value)
    return value


def _array(leaf: Any) -> Any:
    """A value as float64 or int64; concrete values must be finite, and none is printed."""
    is_known = checks.is_concrete(leaf)
    array = np.asarray(leaf) if is_known else leaf
    if jnp.issubdtype(array.dtype, jnp.integer):
        if array.dtype.itemsize == 8:
            # Before the cast, which wraps around, and by as much as leaves room for the noise.
            least = 0 if array.dtype == np.uint64 else -int(_LARGEST)
            array = xp.clip(array, least, int(_LARGEST))
        return array.astype(np.int64)
    if array.dtype == np.longdouble and np.finfo(np.longdouble).bits > 64:
        raise ValueError("value must be float64 or narrower: a cast could move it past sensitivity")
    value = checks.of_records("value", leaf)
    if is_known and not np.isfinite(np.asarray(value)).all():
        raise ValueError("value must be finite, and some values are not: they are not printed")
    # Clipped by a public bound, as any value is: what is no number counts as 0.
    return xp.where(xp.isnan(value), 0.0, value)


def _norm_of(
    noise: Noise, batch: tuple[int, ...], shapes: list[tuple[int, ...]], disjoint: bool
) -> int:
    """The order of the norm that one noise covers a vector in; 0 where entries move alone."""
    if disjoint and batch != ():
        raise ValueError(
            f"disjoint must be False with a batch of mechanisms, got one of shape {batch}: one "
            "noise and one sensitivity cover all cells"
        )
    if disjoint or (len(shapes) == 1 and shapes[0] == batch):
        return 0
    if batch == () and noise.norm:
        return noise.norm
    raise ValueError(
        f"value must be of the mechanism's batch {batch}, got {shapes}: one Gaussian (of "
        "sensitivity in the Euclidean norm) or Laplace (in the sum of absolute values) covers a "
        "vector or a tree, and any noise cells of which a record moves one (disjoint=True); else "
        "give the mechanism the value's shape, and sum its loss"
    )


def _added(noise: Noise, value: Any, key: Key, lattice: Lattice) -> Any:
    """value + noise, rounded to the coarse lattice; int64 for noise on the integers."""
    noisy = noise._draw_whole(key, value.shape, lattice.fine)
    # Parameters that are out of range draw no number, and nothing of the value may come out.
    bad = xp.isnan(noisy)
    drawn = xp.where(bad, 0.0, noisy).astype(xp.int64)
    if noise.on_integers:
        return xp.where(bad, np.iinfo(np.int64).min, value + drawn)
    if jnp.issubdtype(value.dtype, jnp.integer):
        # Beyond, neighbours would round to doubles that are further apart.
        value = xp.clip(value, -(2**53), 2**53)
    clipped = xp.clip(xp.round(value / lattice.fine), -_LARGEST, _LARGEST)
    total = clipped.astype(xp.int64) + drawn
    half = xp.where(lattice.shift > 0, 1 << xp.maximum(lattice.shift - 1, 0), 0)
    rounded = ((total + half) >> lattice.shift).astype(xp.float64) * lattice.coarse
    return xp.where(bad, xp.nan, rounded)
