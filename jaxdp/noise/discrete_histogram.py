"""Noise on the integers with given chances, as linear programming designs it for counts."""

from __future__ import annotations

import functools
import itertools
from typing import final

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp._numeric.elementary import log1m, round_up
from jaxdp.noise.histogram import (
    Certificate,
    Weighted,
    log_delta_of,
    log_density_of,
    whole_weights_of,
)
from jaxdp.noise.kernels import whole_draws


@final
@pytree
class DiscreteHistogram(Weighted):
    """P[T = i - n] = weights[i] / total, 0 <= i <= 2 n, on the integers.

    weights: exact as in `Histogram`; static. An even number of them, 2 n, covers -n to n - 1 (a
    0 is appended): the mean of symmetric ones is -1/2. Shifts are whole; others raise
    `ValueError`, or give NaN where traced. The loss is infinite with positive probability. Draws
    are exact: they leak nothing through rounding. Bad input: `Noise`.

    `delta` is above the truth by at most (n + 16) ulp delta + 8 (1 + shift) ulp. The smaller tail
    has a relative error of 4 ulp; a quantile is the least integer for a u that is known to an ulp.
    Probabilities below 2e-308 are 0, and 2e-308 each in delta.
    """

    weights: tuple[int, ...] = static()
    certificate: Certificate | None = static(default=None)

    def __init__(
        self,
        weights: ArrayLike,
        certificate: Certificate | None = None,
    ):
        counts, _ = whole_weights_of(weights, 0.0)
        padded = (*counts, 0) if len(counts) % 2 == 0 else counts
        assign(self, weights=padded, certificate=certificate)

    @property
    def support(self) -> int:
        """n: no draw is farther from 0."""
        return len(self.weights) // 2

    on_integers = True

    def _in_range(self) -> bool:
        return True

    def _log_density(self, x: Reals) -> Reals:
        value = log_density_of(xp.ones(()), self._cells(), x)
        return xp.where((x == xp.round(x)) | xp.isnan(x), value, -xp.inf)

    def _log_survival(self, x: Reals) -> Reals:
        below, above = map(xp.asarray, _tails(self.weights))
        index = xp.clip(xp.floor(x) + self.support + 1.0, 0.0, 1.0 * len(self.weights))
        index = xp.where(xp.isnan(x), 0.0, index).astype(int)
        below, above = below[index], above[index]
        low = below < 0.5
        value = xp.where(low, log1m(xp.where(low, below, 0.0)), xp.log(above))
        return xp.where(xp.isnan(x), xp.nan, value)

    def _quantile(self, u: Reals) -> Reals:
        below = xp.asarray(_tails(self.weights)[0])
        index = xp.searchsorted(below[1:], u * (1.0 - 4e-16), side="left")
        value = 1.0 * xp.minimum(index, len(self.weights) - 1) - self.support
        return xp.where(xp.isnan(u), xp.nan, value)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        return self._draw_whole(key, shape, xp.ones(()))

    def _draw_whole(self, key: Key, shape: Shape, fine: Reals) -> Reals:
        return whole_draws.by_weight(key, self.weights, shape) - self.support

    def _absolute_moment(self, power: Reals) -> Reals:
        """E|T|^p, a sum of positive terms; infinite for p < 0 where 0 has a chance."""
        size = np.abs(np.arange(len(self.weights)) - self.support)
        row = (None,) * power.ndim
        values = xp.asarray(1.0 * size)[row] ** power[..., None]
        shares = self._cells().mass[row]
        return xp.sum(xp.where(shares > 0, shares * values, 0.0), axis=-1)

    def _sub_gaussian_proxy(self) -> Reals:
        """The square of the support (Hoeffding); infinite for an uneven law."""
        return round_up(xp.asarray(float(self.support) ** 2 if self.even else xp.inf), 2)

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        """log of the largest sum_i (p_i - e^epsilon p_(i - k))_+, whole |k| <= shift."""
        steps = self._steps(shift, xp.ones(()))
        return log_delta_of(xp.ones(()), self._cells(), shift, epsilon, steps, self.even)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        """Infinite, unless the shift is 0."""
        return xp.where(shift > 0, xp.inf, shift)


@functools.lru_cache(maxsize=64)
def _tails(weights: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities below each value, and from it on, and of all values, each rounded once."""
    sums = [0, *itertools.accumulate(weights)]
    total = sums[-1]
    return np.array([x / total for x in sums]), np.array([(total - x) / total for x in sums])
