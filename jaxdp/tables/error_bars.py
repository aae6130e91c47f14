"""Half widths of weighted sums of independent noises, as margins and consistent tables have.

The sum is of noises that are symmetric. Each is put on a grid of step d, its mass at the nearest
multiple, and the laws are convolved by a fast Fourier transform. What that moves, at most d / 2 a
noise, is symmetric as well, hence of mean 0, and independent: by Hoeffding's inequality the sum of
n such moves passes u with probability 2 exp(-2 u^2 / (n d^2)) at most. Whole noises with one weight
need no such step. Mass outside of the grid counts as outside of the half width; the grid is so wide
that its ends, by Chernoff's inequality, are passed with a small part of the probability.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

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


@dataclasses.dataclass(frozen=True)
class Term:
    """`count` independent noises, each times `weight` > 0.

    is_whole: they are whole numbers, by rounding if the noise is continuous.
    """

    noise: Noise
    is_whole: bool
    weight: float
    count: int

    @functools.cached_property
    def variance(self) -> float:
        """Variance of the sum of the noises, with 1 / 12 for each rounding, as if independent."""
        rounding = 1 / 12 if self.is_whole and not self.noise.on_integers else 0.0
        return self.count * self.weight**2 * (float(self.noise.variance()) + rounding)


def half_width(terms: Sequence[Term], miss: float) -> float:
    """An h that the size of the sum passes with probability `miss` at most."""
    terms = [term for term in terms if term.weight * term.count > 0 and not _is_nothing(term)]
    # Noise is drawn on a lattice of 2^-32 of its scale, and halves of it are rounded up.
    lattice = sum(
        t.count * t.weight * math.sqrt(float(t.noise.variance())) * 2.0 ** (1 - BITS)
        for t in terms
        if not t.noise.on_integers
    )
    if all(isinstance(term.noise, Gaussian) and not term.is_whole for term in terms):
        deviation = math.sqrt(sum(term.variance for term in terms))
        quantile = -float(Gaussian(1.0).quantile(0.5 * miss))
        return deviation * quantile * (1.0 + 1e-12) + lattice
    error = _ERROR * (sum(term.count for term in terms) + 10)
    largest = _end(terms, miss)
    if error > _PART * miss:
        return largest + lattice
    return min(_convolved(terms, miss, error), largest) + lattice


def _is_nothing(term: Term) -> bool:
    """True for whole noises that are all 0: P[T != 0] <= E T^2."""
    return term.noise.on_integers and term.count * float(term.noise.variance()) < _NOTHING


def _convolved(terms: Sequence[Term], miss: float, error: float) -> float:
    deviation, number = math.sqrt(sum(t.variance for t in terms)), sum(t.count for t in terms)
    step, moved = terms[0].weight, 0.0
    is_whole = all(t.is_whole and t.weight == step for t in terms)
    if not is_whole or deviation > _MOST_WHOLE * step:
        step = deviation / (_STEPS * max(1.0, math.sqrt(number / 16)))
        step = max(step, 4.0 * _end(terms, _PART * miss) / _MOST_POINTS)
        moved = step * math.sqrt(0.5 * number * math.log(2.0 / (_PART * miss)))
    most = math.ceil((_end(terms, _PART * miss) + moved) / step) + 1
    points = 2 ** math.ceil(math.log2(2 * most + 1))
    transform = np.ones(points // 2 + 1, np.complex128)
    for term in terms:
        transform = transform * np.fft.rfft(_on_grid(term, step, points)) ** term.count
    mass = np.fft.irfft(transform, points)[: points // 2]
    inside = mass[0] + 2.0 * np.cumsum(np.concatenate([[0.0], mass[1:]]))
    enough = inside >= 1.0 - miss * (1.0 - 3.0 * _PART) + error
    return step * int(np.argmax(enough)) + moved if enough.any() else math.inf


def _on_grid(term: Term, step: float, points: int) -> np.ndarray:
    """The law of weight * noise at multiples of `step`, the negative ones at the end."""
    half, law = points // 2, np.zeros(points)
    edges = (np.arange(0, half + 1) - 0.5) * (step / term.weight)
    if term.is_whole:  # above x is above floor(x) + 1 / 2
        edges = np.floor(edges) + (0.0 if term.noise.on_integers else 0.5)
    masses = -np.diff(np.exp(np.asarray(term.noise.log_survival(edges))))
    law[:half] = masses
    law[points - half + 1 :] = masses[:0:-1]
    return law


def _end(terms: Sequence[Term], miss: float) -> float:
    """An h as of `half_width`, by Chernoff's inequality; the moves of rounding by Hoeffding's."""
    rounded = sum(t.count * t.weight**2 for t in terms if t.is_whole and not t.noise.on_integers)
    rounding = math.sqrt(0.5 * rounded * math.log(4.0 / miss))
    log = math.log((4.0 if rounded else 2.0) / miss)
    scales = [t.weight * _scale(t.noise) for t in terms]
    limits = [
        1.0 / scale for t, scale in zip(terms, scales, strict=True) if _has_long_tails(t.noise)
    ]
    most = min([*limits, 1e3 * math.sqrt(log) / math.sqrt(sum(t.variance for t in terms))])
    slopes = most * np.concatenate([np.geomspace(1e-5, 0.5, 200), np.linspace(0.51, 0.999, 200)])
    total = sum((t.count * _log_moment(t, slopes) for t in terms), np.zeros_like(slopes))
    return float(np.min((total + log) / slopes)) * (1.0 + 1e-12) + rounding


def _has_long_tails(noise: Noise) -> bool:
    return isinstance(noise, Laplace | DiscreteLaplace)


def _scale(noise: Noise) -> float:
    return float(np.asarray(noise.scale))  # pyright: ignore[reportAttributeAccessIssue]


def _log_moment(term: Term, slopes: np.ndarray) -> np.ndarray:
    """log E exp(slope * weight * noise), or a bound on it."""
    noise, x = term.noise, slopes * term.weight
    scale = _scale(noise)
    if isinstance(noise, Laplace):
        return -np.log1p(-np.square(x * scale))
    if isinstance(noise, DiscreteLaplace):
        # P[k] ~ q^|k| with q = exp(-1 / scale): (1 - q)^2 / ((1 - q e^x)(1 - q e^-x)).
        q = math.exp(-1.0 / scale)
        return 2.0 * math.log1p(-q) - np.log1p(-q * np.exp(x)) - np.log1p(-q * np.exp(-x))
    return 0.5 * float(noise.sub_gaussian_proxy()) * np.square(x)
