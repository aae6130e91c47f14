"""Density of the logarithm of a sum of positive independent variables, by doubling.

Identity: with L = log(e^A + e^B), the difference D = A - B has Jacobian 1, so

    h_(n+m)(l) = int h_n(a) h_m(b(a)) (e^l / e^b) da,   b(a) = log(e^l - e^a).

All terms are positive, so both tails keep their relative accuracy. log h is stored at nodes uniform
in v, l = centre + 4 width sinh(v), and interpolated between them by Lagrange's polynomial. The mass
1 and the mean of the sum are known; each step restores them.
"""

from __future__ import annotations

from math import comb
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import logsumexp, softmax
from jaxdp._numeric.elementary import log1mexp
from jaxdp._numeric.quadrature import gauss_legendre

# Nodes of Lagrange's polynomial. measured: 8 lose two digits, 12 gain none
_ORDER = 10
# Barycentric weights of Lagrange's polynomial at uniform nodes. derived
_ALTERNATING = np.array([(-1.0) ** k * comb(_ORDER - 1, k) for k in range(_ORDER)])
# Widths within which nodes are nearly uniform. chosen: a tail of jumps is 100 widths long
_STRETCH = 4.0
# Standard deviations on the left of the law that are kept. derived: 5e-31 lie beyond
_LEFT = 11.5
# The same on the right, of the law whose density is e^l times as large. derived: 5e-26 lie beyond
_RIGHT = 10.5
# log of a density of 0. chosen: negligible in any sum
_LEAST = -1e4


class LogDensity(NamedTuple):
    """log of a density at uniform places of v, l = centre + 4 width sinh(v)."""

    centre: Any
    width: Any
    low: Any  # the first v
    step: Any
    values: Any  # (N,)

    @property
    def nodes(self) -> tuple[Any, Any]:
        """The places l, and dl."""
        v = self.low + self.step * np.arange(1.0 * self.values.size)
        slope = _STRETCH * self.width * np.cosh(v)
        return self.place(v), slope * self.step

    @property
    def high(self) -> Any:
        """The last v."""
        return self.low + self.step * (self.values.size - 1)

    def place(self, v: Any) -> Any:
        """The l at v."""
        return self.centre + _STRETCH * self.width * np.sinh(v)

    def at_place(self, place: Any) -> Any:
        """The v at l."""
        return np.arcsinh((place - self.centre) / (_STRETCH * self.width))

    def log_slope(self, v: Any) -> Any:
        """log dl / dv."""
        return np.log(_STRETCH * self.width * np.cosh(v))

    def read(self, v: Any) -> Any:
        """log density at v; beyond the nodes it falls with its last slope in l."""
        n = self.values.size
        free = (v - self.low) / self.step
        inside = np.clip(free, 0.0, n - 1.0)
        first = np.clip(np.floor(inside) - (_ORDER // 2 - 1), 0, n - _ORDER)
        across = np.arange(_ORDER)[(None,) * np.ndim(v)]
        gap = (inside - first)[..., None] - across
        weight = _ALTERNATING[(None,) * np.ndim(v)] / np.where(np.abs(gap) < 1e-12, 1e-12, gap)
        rows = self.values[first.astype(int)[..., None] + across]
        value = np.sum(weight * rows, axis=-1) / np.sum(weight, axis=-1)
        ends = self.place(self.low + self.step * np.array([0.0, 1.0, n - 2.0, n - 1.0]))
        rise = np.maximum(self.values[1] - self.values[0], 0.0) / (ends[1] - ends[0])
        fall = np.minimum(self.values[-1] - self.values[-2], 0.0) / (ends[3] - ends[2])
        place = self.place(np.clip(v, -300.0, 300.0))
        value = value + np.where(free < 0, rise * (place - ends[0]), 0.0)
        return value + np.where(free > n - 1.0, fall * (place - ends[3]), 0.0)


def log_normal_sum(sigma: float, spread: float, steps: int, nodes: int, points: int) -> LogDensity:
    """Density of log(Z_1 + ... + Z_n), Z = exp(sigma X - sigma^2 / 2), X standard normal.

    Args:
        sigma: above 0.
        spread: factor on the range of the nodes. Two densities that differ only in it differ by
            the error of their nodes.
        steps: n.
        nodes: of a density.
        points: of each integral.

    Relative error of both tails: 1e-9 at 160 nodes and 64 points, 1e-5 at most.
    """
    # The largest log Z that is kept, of the law whose density is Z times as large.
    jump = 0.5 * sigma**2 + _RIGHT * spread * sigma
    left = -0.5 * sigma**2 - _LEFT * spread * sigma
    single = _empty(-0.5 * sigma**2, sigma, left, jump + 2.0 * sigma, nodes)
    x = (single.nodes[0] + 0.5 * sigma**2) / sigma
    single = single._replace(values=-0.5 * x * x - np.log(sigma * np.sqrt(2.0 * np.pi)))
    density, count = single, 1
    for bit in f"{steps:b}"[1:]:
        result, count = _frame(density, density, jump, spread), 2 * count
        values = np.log(2.0) + _half(density, density, result.nodes[0], points)
        density = _restored(result, values, count)
        if bit == "1":
            result, count = _frame(density, single, jump, spread), count + 1
            pairs = (density, single), (single, density)
            halves = (_half(*pair, result.nodes[0], points) for pair in pairs)
            density = _restored(result, np.logaddexp(*halves), count)
    return density


def _empty(centre: float, width: float, left: float, right: float, nodes: int) -> LogDensity:
    low, high = (np.arcsinh((x - centre) / (_STRETCH * width)) for x in (left, right))
    return LogDensity(centre, width, low, (high - low) / (nodes - 1), np.zeros(nodes))


def _frame(a: LogDensity, b: LogDensity, jump: float, spread: float) -> LogDensity:
    """Nodes around the mean of log(e^A + e^B), up to one largest jump beside the rest."""
    (la, da), (lb, db) = a.nodes, b.nodes
    pa, pb = (softmax(x.values + np.log(d)) for x, d in ((a, da), (b, db)))
    log_sums = np.logaddexp(la[:, None], lb[None])
    mean = pa @ log_sums @ pb
    deviation = np.sqrt(pa @ (log_sums - mean) ** 2 @ pb)
    left = np.maximum(mean - _LEFT * spread * deviation, np.logaddexp(la[0], lb[0]))
    right = np.logaddexp(mean + _RIGHT * spread * deviation, jump)
    return _empty(mean, deviation, left, right, a.values.size)


def _half(a: LogDensity, b: LogDensity, places: Any, points: int) -> Any:
    """log of the integral over A <= B, at each l."""
    x, share = gauss_legendre(points)
    end = np.minimum(a.at_place(places - np.log(2.0)), a.high)
    width = np.maximum(end - a.low, 0.0)
    has_width = width > 0
    v = a.low + np.where(has_width, width, 1.0)[:, None] * x[None]
    first, last = a.place(v), places[:, None]
    gap: Any = np.maximum(np.where(has_width[:, None], last - first, 1.0), 1e-300)
    second = last + log1mexp(gap)
    value = a.read(v) + b.read(b.at_place(second)) + (last - second) + a.log_slope(v)
    value = np.where(has_width[:, None], value, _LEAST) + np.log(share)[None]
    summed = logsumexp(value, axis=1) + np.log(np.where(has_width, width, 1.0))
    return np.where(has_width, summed, _LEAST)


def _restored(density: LogDensity, values: Any, count: int) -> LogDensity:
    """The density with mass 1 and mean of e^l `count`, mixed with e^l times itself.

    Where this correction is not small, only the mass is restored.
    """
    values = np.maximum(values, _LEAST)
    place, dl = density.nodes
    mass, ratio = np.exp(values) * dl, np.exp(place) / count
    m0, m1, m2 = (np.sum(mass * ratio**k) for k in range(3))
    beta = (m0 - m1) / np.maximum(m2 * m0 - m1 * m1, 1e-300)
    alpha = (1.0 - beta * m1) / m0
    if np.abs(beta) * np.max(ratio) < 1e-3:
        return density._replace(values=values + np.log(alpha + beta * ratio))
    return density._replace(values=values - np.log(m0))
