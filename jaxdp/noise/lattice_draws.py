"""Noise at the multiples of a number, and which noises are drawn there.

The law is proportional to the density at the multiples. The width of a histogram is rounded up to
an even multiple, the bound of a truncated Laplace to a half-odd one: both lower delta.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import Key, Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.noise.base import Noise
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.whole_laws import WholeLaw
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian
from jaxdp.noise.truncated_laplace import TruncatedLaplace

# What `dp.release` and solvers draw.
_KINDS = (
    *(Gaussian, Laplace, FlippedHuber, OffsetGaussian, TruncatedLaplace, Histogram),
    *(DiscreteGaussian, DiscreteLaplace, DiscreteHistogram),
)
# Least alpha / gamma of a flipped Huber, offset / scale of an offset Gaussian. chosen: a hundred
# candidates a draw
_LEAST_SHARE = 2.0**-6


def require_drawable(noise: Noise) -> None:
    """`ValueError` for a noise that has no draws on a lattice."""
    if not isinstance(noise, _KINDS):
        names = ", ".join(kind.__name__ for kind in _KINDS)
        raise ValueError(f"noise must be one of {names} to be released, got {type(noise).__name__}")


def unit_of(noise: Noise) -> Reals:
    """The smallest length over which the density changes; concrete ones must be finite."""
    if isinstance(noise, FlippedHuber | OffsetGaussian):
        alpha, gamma = _slope_and_tail(noise)
        shares = np.asarray(alpha / gamma) if checks.all_concrete(noise) else 1.0
        if not np.all(shares >= _LEAST_SHARE):
            slope, tail = (
                ("alpha", "gamma") if isinstance(noise, FlippedHuber) else ("offset", "scale")
            )
            raise ValueError(
                f"{slope} must be at least {_LEAST_SHARE:g} {tail} to be sampled: below, "
                "use a Gaussian"
            )
        unit = jnp.minimum(gamma, gamma * gamma / alpha)
    else:
        unit = noise.width if isinstance(noise, Histogram) else noise.scale  # pyright: ignore[reportAttributeAccessIssue]
    if checks.is_concrete(unit) and not np.isfinite(np.asarray(unit)).all():
        raise ValueError("noise must have a finite scale to be sampled")
    return unit


def draw_whole(noise: Noise, key: Key, shape: tuple[int, ...], fine: Reals) -> Reals:
    """The noise in multiples of `fine`, whole; `fine` is 1 for noise on the integers."""
    if isinstance(noise, DiscreteHistogram):
        return _cells(key, noise.weights, shape) - noise.support
    if isinstance(noise, Histogram):
        return _histogram_draw(noise, key, shape, fine)
    one = jnp.ones(())
    if isinstance(noise, FlippedHuber | OffsetGaussian):
        alpha, gamma = (x / fine for x in _slope_and_tail(noise))
        kind = "huber" if isinstance(noise, FlippedHuber) else "offset"
        law = WholeLaw(kind, round_up(gamma * gamma / alpha, 4), alpha, gamma)
        return whole_draws.draw(key, law, shape)
    if isinstance(noise, TruncatedLaplace):
        scale, bound = jnp.broadcast_arrays(noise.scale / fine, jnp.ceil(noise.bound / fine))
        return whole_draws.draw(key, WholeLaw("exponential", scale, one, one, bound), shape)
    kind = "normal" if isinstance(noise, Gaussian | DiscreteGaussian) else "exponential"
    return whole_draws.draw(key, WholeLaw(kind, noise.scale / fine, one, one), shape)  # pyright: ignore[reportAttributeAccessIssue]


def _slope_and_tail(noise: FlippedHuber | OffsetGaussian) -> tuple[Reals, Reals]:
    """alpha and gamma of -log density: slope alpha / gamma^2 at 0, curvature 1 / gamma^2."""
    if isinstance(noise, FlippedHuber):
        return noise.alpha, noise.gamma
    return noise.offset, noise.scale


def _histogram_draw(noise: Histogram, key: Key, shape: tuple[int, ...], fine: Reals) -> Reals:
    """A cell by its weight and a whole place in it; the width is rounded up to an even number."""
    cell_key, place_key = jax.random.split(key)
    width = 2.0 * jnp.ceil(0.5 * noise.width / fine)
    cell = _cells(cell_key, (noise.atom_weight, *noise.weights), shape) - 1.0
    place = whole_draws.uniform_below(place_key, width, shape)
    drawn = cell * width + place - 0.5 * len(noise.weights) * width
    return jnp.where(cell < 0, 0.0, drawn)


def _cells(key: Key, weights: tuple[int, ...], shape: tuple[int, ...]) -> Reals:
    """Cells by their whole weights, the first of them 0."""
    ends = jnp.cumsum(jnp.asarray(weights, dtype=jnp.int64))
    pick = whole_draws.uniform_below(key, jnp.asarray(float(sum(weights))), shape)
    return 1.0 * jnp.searchsorted(ends, pick.astype(jnp.int64), side="right")
