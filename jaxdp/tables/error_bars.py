"""Half widths of sums of equal independent noises, as margins of tables have.

The noises are symmetric. Each is put on a grid of step d, its mass at the nearest
multiple, and the laws are convolved by a fast Fourier transform. What that moves, at most d / 2 a
noise, is symmetric as well, hence of mean 0, and independent: by Hoeffding's inequality the sum of
n such moves passes u with probability 2 exp(-2 u^2 / (n d^2)) at most. Whole noises need
no such step. Mass outside of the grid counts as outside of the half width; the grid is so wide
that its ends, by Chernoff's inequality, are passed with a small part of the probability.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxdp.noise.base import Noise
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.released import BITS

# Part of the probability to miss for each of: the grid's ends, moves to the grid. chosen: a half
# width that is .3 % larger
_PART = 1 / 256
# Standard deviation of the sum in steps, for few noises. chosen: moves cost .3 % of the half width
_STEPS = 2**9
# Largest grid. chosen: a tenth of a second
_MOST_POINTS = 2**21
# Error of a probability after the transform, a noise. measured: 1e-16 and less
_ERROR = 1e-14
# Probability that is no part of `miss`. chosen: a billionth of the least one
_NOTHING = 1e-20
# Largest standard deviation of a sum of whole noises whose grid is the integers, in steps.
_MOST_WHOLE = 2.0**14


class NoiseSum(NamedTuple):
    """The sum of `number` independent noises.

    is_whole: they are whole numbers, by rounding if the noise is continuous.
    """

    noise: Noise
    is_whole: bool
    number: int

    @property
    def is_rounded(self) -> bool:
        """True if the noise is continuous and rounded to whole numbers."""
        return self.is_whole and not self.noise.on_integers

    @property
    def variance(self) -> float:
        """Variance of the sum of the noises, with 1 / 12 for each rounding, as if independent."""
        return self.number * (float(self.noise.variance()) + (1 / 12 if self.is_rounded else 0.0))


def half_width(total: NoiseSum, miss: float) -> float:
    """An h that the size of the sum passes with probability `miss` at most."""
    noise, count = total.noise, total.number
    lattice = 0.0
    if not noise.on_integers:
        # Noise is drawn on a lattice of 2^-32 of its scale, and halves of it are rounded up.
        lattice = count * math.sqrt(float(noise.variance())) * 2.0 ** (1 - BITS)
    elif count * float(noise.variance()) < _NOTHING:
        # All are 0: P[T != 0] <= E T^2.
        return 0.0
    if isinstance(noise, Gaussian) and not total.is_whole:
        quantile = -float(Gaussian(1.0).quantile(0.5 * miss))
        return math.sqrt(total.variance) * quantile * (1.0 + 1e-12) + lattice
    error, largest = _ERROR * (count + 10), _end(total, miss)
    if error > _PART * miss:
        return largest + lattice
    return min(_convolved(total, miss, error), largest) + lattice


def _convolved(total: NoiseSum, miss: float, error: float) -> float:
    deviation, step, moved = math.sqrt(total.variance), 1.0, 0.0
    if not total.is_whole or deviation > _MOST_WHOLE:
        step = deviation / (_STEPS * max(1.0, math.sqrt(total.number / 16)))
        step = max(step, 4.0 * _end(total, _PART * miss) / _MOST_POINTS)
        moved = step * math.sqrt(0.5 * total.number * math.log(2.0 / (_PART * miss)))
    most = math.ceil((_end(total, _PART * miss) + moved) / step) + 1
    points = 2 ** math.ceil(math.log2(2 * most + 1))
    transform = np.fft.rfft(_on_grid(total, step, points)) ** total.number
    mass = np.fft.irfft(transform, points)[: points // 2]
    inside = mass[0] + 2.0 * np.cumsum(np.concatenate([[0.0], mass[1:]]))
    enough = inside >= 1.0 - miss * (1.0 - 3.0 * _PART) + error
    return step * int(np.argmax(enough)) + moved if enough.any() else math.inf


def _on_grid(total: NoiseSum, step: float, points: int) -> np.ndarray:
    """The law of one noise at multiples of `step`, the negative ones at the end."""
    half, law = points // 2, np.zeros(points)
    edges = (np.arange(0, half + 1) - 0.5) * step
    if total.is_whole:  # above x is above floor(x) + 1 / 2
        edges = np.floor(edges) + (0.5 if total.is_rounded else 0.0)
    masses = -np.diff(np.exp(np.asarray(total.noise.log_survival(edges))))
    law[:half] = masses
    law[points - half + 1 :] = masses[:0:-1]
    return law


def _end(total: NoiseSum, miss: float) -> float:
    """An h as of `half_width`, by Chernoff's inequality; the moves of rounding by Hoeffding's."""
    rounding = 0.0
    if total.is_rounded:
        rounding = math.sqrt(0.5 * total.number * math.log(4.0 / miss))
    log = math.log((4.0 if total.is_rounded else 2.0) / miss)
    most = 1e3 * math.sqrt(log) / math.sqrt(total.variance)
    if isinstance(total.noise, Laplace | DiscreteLaplace):
        most = min(most, 1.0 / _scale(total.noise))
    slopes = most * np.concatenate([np.geomspace(1e-5, 0.5, 200), np.linspace(0.51, 0.999, 200)])
    bound = (total.number * _log_moment(total.noise, slopes) + log) / slopes
    return float(np.min(bound)) * (1.0 + 1e-12) + rounding


def _scale(noise: Noise) -> float:
    return float(np.asarray(noise.scale))  # pyright: ignore[reportAttributeAccessIssue]


def _log_moment(noise: Noise, x: np.ndarray) -> np.ndarray:
    """log E exp(x * noise), or a bound on it."""
    scale = _scale(noise)
    if isinstance(noise, Laplace):
        return -np.log1p(-np.square(x * scale))
    if isinstance(noise, DiscreteLaplace):
        # P[k] ~ q^|k| with q = exp(-1 / scale): (1 - q)^2 / ((1 - q e^x)(1 - q e^-x)).
        q = math.exp(-1.0 / scale)
        return 2.0 * math.log1p(-q) - np.log1p(-q * np.exp(x)) - np.log1p(-q * np.exp(-x))
    return 0.5 * float(noise.sub_gaussian_proxy()) * np.square(x)
