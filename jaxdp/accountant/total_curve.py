"""Bounds on log delta at many concrete epsilons from the masses of one total (`convolution`).

With a_i the tilted masses at losses l_i, y_i = l_i - epsilon and theta the tilt, the sum over y_i >
0 of a_i e^(-theta y_i) (1 - e^(-y_i - o)) is the difference of two sums

    sum a_i e^(-theta y_i)   and   e^-o sum a_i e^(-(theta + 1) y_i),

and each is a sum from some i on of numbers that do not depend on epsilon, times an exponential.

Error: that of `finite_upper` and `finite_lower`, plus the rounding of both sums, which are made of
blocks. Norms of the weights are bounded: a sum over a grid of one peak is at most the peak and the
integral over the step. The sums of the coupling keep the masses near epsilon; each other weight is
at most e^-`FAR`; where too many count, an epsilon is evaluated alone. Chosen by `grid_by_loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._numeric.elementary import ULP, conversion_entropy
from jaxdp.accountant.bounds import LogBounds, of_numpy
from jaxdp.accountant.convolution import RATES, Total, finite_lower, finite_upper
from jaxdp.accountant.grid import Lane

FAR = 45.0  # nats by which a weight of the coupling is small. derived: e^-45 is below rounding
MOST_NEAR = 2**13  # masses next to an epsilon that are weighted one by one. chosen: else all are
LARGEST = 600.0  # exponent of a term. derived: sums of 2^16 of them are finite
LEAST = 1e-300  # bound on a term that underflows. derived: a normal number
BLOCK = 256  # terms of a block. chosen: the square root of the number of points


class TotalCurve:
    """The curve of a lane of the grid, for arrays of epsilons >= 0 (values,)."""

    def __init__(self, lane: Lane):
        self._lane, self._total = lane, lane.total
        self._tilt, self._step = float(lane.total.plan.tilt), float(lane.total.plan.step)
        self._loss, self._value = np.asarray(lane.total.loss), np.asarray(lane.total.value)
        used = np.flatnonzero(self._value)
        self._centre = float(self._loss[used[used.size // 2]]) if used.size else 0.0
        self._span = float(np.abs(self._loss[used]).max(initial=0.0)) + abs(self._centre)
        self._sums = [self._from_each_on(rate) for rate in (self._tilt, self._tilt + 1.0)]

    def _from_each_on(self, rate: float) -> np.ndarray:
        """Sums of a_i e^(-rate (l_i - centre)) from each point on; infinite if a term overflows."""
        exponent = -rate * (self._loss - self._centre)
        terms = self._value * np.exp(np.minimum(exponent, LARGEST))
        terms = np.where((exponent > LARGEST) & (self._value > 0), np.inf, terms)
        within = np.cumsum(terms[::-1].reshape(-1, min(BLOCK, terms.size)), axis=1)
        before = np.concatenate([[0.0], np.cumsum(within[:-1, -1])])
        return np.append((within + before[:, None]).ravel()[::-1], 0.0)

    @np.errstate(all="ignore")
    def upper(self, epsilon: Any) -> Any:
        """Upper bounds on log delta."""
        epsilon = np.asarray(epsilon, float)
        finite = finite_upper(self._total, epsilon - self._lane.drift, self._weighted)
        return self._or_alone(epsilon, self._lane.with_infinite(finite, 1.0), self._lane.upper)

    @np.errstate(all="ignore")
    def bounds(self, epsilon: Any) -> LogBounds:
        """Bounds on log delta."""
        epsilon = np.asarray(epsilon, float)
        at, sums = epsilon - self._lane.drift, (self._weighted, self._coupling)
        finite = finite_lower(self._total, at, *sums, unknown=np.nan)
        lower = self._or_alone(epsilon, self._lane.with_infinite(finite, -1.0), self._lane.lower)
        return of_numpy(lower, self.upper(epsilon))

    def _or_alone(self, epsilon: Any, found: Any, alone: Callable[[Any], Any]) -> Any:
        """The bounds found, and `alone` of each epsilon for which there is none."""
        found = np.array(found)
        for i in np.flatnonzero(np.isnan(found) | self._lane.too_coarse()):
            found[i] = alone(epsilon[i])
        return found

    def _weighted(self, _: Total, at: Any, offset: Any) -> tuple[Any, Any, Any]:
        """sum a_i w(y_i + offset), its rounding, and a bound on the l2 norm of w."""
        first = np.searchsorted(self._loss, at + np.maximum(-offset, 0.0), side="right")
        move, span = at - self._centre, self._span + np.abs(at)
        less = np.exp(self._tilt * move) * self._sums[0][first]
        more = np.exp((self._tilt + 1.0) * move - offset) * self._sums[1][first]
        rounding = ULP * (2.0 * BLOCK + 8.0 * (self._tilt + 1.0) * span) * (less + more)
        rounding = rounding + np.exp(self._tilt * np.maximum(move, 0.0)) * self._loss.size * LEAST
        # A mass that is less than an offset below epsilon.
        below = np.searchsorted(self._loss, at - np.maximum(offset, 0.0), side="left")
        near = np.concatenate([[0.0], np.cumsum(self._value)])
        rounding = rounding + np.maximum(offset, 0.0) * (near[first] - near[below])
        return less - more, rounding, self._norm(offset)

    def _norm(self, offset: Any) -> Any:
        """A bound on the l2 norm of w(y_i + offset)."""
        tilt, points = self._tilt, self._loss.size
        peak = float(self._total.plan.largest_weight) ** 2
        integral = 1.0 / (tilt * (2.0 * tilt + 1.0) * (2.0 * tilt + 2.0))
        aside = np.abs(offset) * np.sqrt(2.0 + 1.0 / (2.0 * tilt * self._step))
        return np.sqrt(np.minimum(peak + integral / self._step, points * peak)) + aside

    def _coupling(self, total: Total, at: Any, misplaced: Any) -> Any:
        """`convolution.coupling` at each epsilon."""
        tilt, step = self._tilt, self._step
        n = float(total.sums.coupled)
        if n == 0:
            return np.zeros(at.shape)
        drift = 0.125 * n * step**2
        mean = np.sqrt(0.25 * n * step**2 + drift**2)
        far_mass = np.exp(total.log_beyond - total.sums.log_norm + tilt * at)
        bounds = []
        for rate in RATES:
            lam = max(rate * 2.0 / (np.sqrt(max(n, 1.0)) * step), tilt)
            near, norm = self._near(at, lam)
            near = near + misplaced + norm * total.error + far_mass
            factor = np.exp(-conversion_entropy(xp.asarray(lam)))
            bounds.append(near * factor * np.exp(drift * lam * (1.0 + lam) + lam * mean + 1e-9))
        return np.min(bounds, axis=0)

    def _near(self, at: Any, lam: float) -> tuple[Any, float]:
        """sum a_i e^(-theta y_i - lam |y_i|), rounded up, and the l2 norm of these weights."""
        tilt, step, points = self._tilt, self._step, self._loss.size
        reach = FAR / (max(lam - tilt, 1e-300) * step)
        norm = 1.0 + 0.5 / (step * (lam + tilt)) + 0.5 / (step * max(lam - tilt, 1e-300))
        norm = np.sqrt(min(norm, float(points)))
        if reach > MOST_NEAR:
            return np.full(at.shape, np.nan), norm
        size = int(np.ceil(reach)) + 1
        first = np.searchsorted(self._loss, at)[:, None] + np.arange(-size, size)
        inside = (first >= 0) & (first < points)
        place = np.clip(first, 0, points - 1)
        y = self._loss[place] - at[:, None]
        weight = np.where(inside, np.exp(-tilt * y - lam * np.abs(y)), 0.0)
        return np.sum(self._value[place] * weight, axis=1) + 2.0 * np.exp(-FAR), norm
