"""Noise at the multiples of a number, and the package's noises by name.

The law is proportional to the density at the multiples. The width of a histogram is rounded up to
an even multiple, the bound of a truncated Laplace to a half-odd one: both lower delta. A noise has
its own exact draws, or is log-concave on the reals: then its log density in float64 decides.
"""

from __future__ import annotations

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp.noise.base import Noise
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.whole_laws import half_mass_width
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
