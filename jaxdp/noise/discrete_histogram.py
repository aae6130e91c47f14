"""Noise on the integers with given chances, as linear programming designs it for counts."""

from __future__ import annotations

from typing import final

import jax
import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp._numeric.elementary import log1m, round_up
from jaxdp.noise.histogram import Certificate, Weighted, whole_weights_of
from jaxdp.noise.kernels import histogram, whole_draws


@final
@pytree
class DiscreteHistogram(Weighted):
    """P[T = i - n] = weights[i] / total, 0 <= i <= 2 n, on the integers.

    weights: an odd number of them, whole or rounded as in `Histogram`; static. Shifts are whole;
    others raise `ValueError`, or give NaN where traced. The loss is infinite with positive
    probability. Draws are exact: they leak nothing through rounding. Bad input: `Noise`.

    `delta` is above the truth by at most (n + 16) ulp delta + 8 (1 + shift) ulp. The smaller tail
    has a relative error of 4 ulp; a quantile is the least integer for a u that is known to an ulp.
    """

    weights: tuple[int, ...] = static()
    certificate: Certificate | None = static(default=None)

    def __init__(
        self,
        weights: ArrayLike,
        certificate: Certificate | None = None,
    ):
        counts, _ = whole_weights_of(weights, 0.0)
        if len(counts) % 2 == 0:
            raise ValueError(f"weights must be an odd number of them, got {len(counts)}")
        assign(self, weights=counts, certificate=certificate)

    @property
    def support(self) -> int:
        """n: no draw is farther from 0."""
        return len(self.weights) // 2

    on_integers = True

    def _in_range(self) -> bool:
        return True

    def _cells(self) -> histogram.Cells:
        return histogram.Cells(xp.asarray(self.weights, dtype=xp.float64), xp.zeros(()))

    def _log_density(self, x: Reals) -> Reals:
        value = histogram.log_density(xp.ones(()), self._cells(), x)
        return xp.where((x == xp.round(x)) | xp.isnan(x), value, -xp.inf)

    def _log_survival(self, x: Reals) -> Reals:
        ends = xp.cumsum(xp.asarray(self.weights, dtype=xp.float64))
        ends = xp.concatenate([xp.zeros(1), ends])
        index = xp.clip(xp.floor(x) + self.support + 1.0, 0.0, 1.0 * len(self.weights))
        below = ends[xp.where(xp.isnan(x), 0.0, index).astype(int)]
        low = below < 0.5 * self.total
        above = xp.log((self.total - below) / self.total)
        value = xp.where(low, log1m(xp.where(low, below, 0.0) / self.total), above)
        return xp.where(xp.isnan(x), xp.nan, value)

    def _quantile(self, u: Reals) -> Reals:
        ends = xp.cumsum(xp.asarray(self.weights, dtype=xp.float64))
        index = xp.searchsorted(ends, u * self.total * (1.0 - 4e-16), side="left")
        value = 1.0 * xp.minimum(index, len(self.weights) - 1) - self.support
        return xp.where(xp.isnan(u), xp.nan, value)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        """A whole number below `total` picks the value: exact but for the bias of `randint`."""
        ends = xp.cumsum(xp.asarray(self.weights, dtype=xp.int64))
        pick = jax.random.randint(key, shape, 0, self.total, dtype=xp.int64)
        return 1.0 * xp.searchsorted(ends, pick, side="right") - self.support

    def _draw_whole(self, key: Key, shape: Shape, fine: Reals) -> Reals:
        return whole_draws.by_weight(key, self.weights, shape) - self.support

    def _absolute_moment(self, power: Reals) -> Reals:
        """E|T|^p, a sum of positive terms; infinite for p < 0 where 0 has a chance."""
        size = np.abs(np.arange(len(self.weights)) - self.support)
        row = (None,) * power.ndim
        values = xp.asarray(1.0 * size)[row] ** power[..., None]
        shares = xp.asarray(np.array(self.weights) / self.total)[row]
        return xp.sum(xp.where(shares > 0, shares * values, 0.0), axis=-1)

    def _sub_gaussian_proxy(self) -> Reals:
        """The square of the support (Hoeffding); infinite for an uneven law."""
        return round_up(xp.asarray(float(self.support) ** 2 if self.even else xp.inf), 2)

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        """log of the largest sum_i (p_i - e^epsilon p_(i - k))_+, whole |k| <= shift."""
        steps = len(self.weights)
        return histogram.log_delta(xp.ones(()), self._cells(), shift, epsilon, steps, self.even)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        """Infinite, unless the shift is 0."""
        return xp.where(shift > 0, xp.inf, shift)
