"""Density of the logarithm of a sum of positive independent variables, by doubling.

Identity: with L = log(e^A + e^B), the difference D = A - B has Jacobian 1, so

    h_(n+m)(l) = int h_n(a) h_m(b(a)) (e^l / e^b) da,   b(a) = log(e^l - e^a).

All terms are positive, so both tails keep their relative accuracy. log h is stored at nodes uniform
in v, l = centre + 4 width sinh(v), and interpolated between them by Lagrange's polynomial. The mass
1 and the mean of the sum are known; each step restores them.
"""

from __future__ import annotations

from functools import partial
from math import comb
from typing import NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import lax, logsumexp, picked, softmax, vmap, xp
from jaxdp._core.types import Reals
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
# log of a density of 0. chosen: negligible in any sum, and slopes stay finite
_LEAST = -1e4


class LogDensity(NamedTuple):
    """log of a density at uniform places of v, l = centre + 4 width sinh(v)."""

    centre: Reals
    width: Reals
    low: Reals  # the first v
    step: Reals
    values: Reals  # (N,)

    @property
    def nodes(self) -> tuple[Reals, Reals]:
        """The places l, and dl."""
        v = self.low + self.step * xp.arange(1.0 * self.values.shape[-1])
        slope = _STRETCH * self.width * xp.cosh(v)
        return self.place(v), slope * self.step

    @property
    def high(self) -> Reals:
        """The last v."""
        return self.low + self.step * (self.values.shape[-1] - 1)

    def place(self, v: Reals) -> Reals:
        """The l at v."""
        return self.centre + _STRETCH * self.width * xp.sinh(v)

    def at_place(self, place: Reals) -> Reals:
        """The v at l."""
        return xp.arcsinh((place - self.centre) / (_STRETCH * self.width))

    def log_slope(self, v: Reals) -> Reals:
        """log dl / dv."""
        return xp.log(_STRETCH * self.width * xp.cosh(v))

    def read(self, v: Reals) -> Reals:
        """log density at v; beyond the nodes it falls with its last slope in l."""
        n = self.values.shape[-1]
        free = (v - self.low) / self.step
        inside = xp.clip(free, 0.0, n - 1.0)
        first = xp.clip(xp.floor(inside) - (_ORDER // 2 - 1), 0, n - _ORDER)
        across = np.arange(_ORDER)[(None,) * xp.ndim(v)]
        gap = (inside - first)[..., None] - across
        weight = _ALTERNATING[(None,) * xp.ndim(v)] / xp.where(xp.abs(gap) < 1e-12, 1e-12, gap)
        rows = picked(self.values, first.astype(int)[..., None] + across)
        value = xp.sum(weight * rows, axis=-1) / xp.sum(weight, axis=-1)
        ends = self.place(self.low + self.step * xp.array([0.0, 1.0, n - 2.0, n - 1.0]))
        rise = xp.maximum(self.values[1] - self.values[0], 0.0) / (ends[1] - ends[0])
        fall = xp.minimum(self.values[-1] - self.values[-2], 0.0) / (ends[3] - ends[2])
        place = self.place(xp.clip(v, -300.0, 300.0))
        value = value + xp.where(free < 0, rise * (place - ends[0]), 0.0)
        return value + xp.where(free > n - 1.0, fall * (place - ends[3]), 0.0)


def log_normal_sum(sigma: Reals, spread: Reals, steps: int, nodes: int, points: int) -> LogDensity:
    """Density of log(Z_1 + ... + Z_n), Z = exp(sigma X - sigma^2 / 2), X standard normal.

    Args:
        sigma: (L,) lanes, above 0.
        spread: (L,) factor on the range of the nodes. Two lanes that differ only in it differ
            by the error of their nodes.
        steps: n, concrete.
        nodes: of a density.
        points: of each integral.

    Relative error of both tails: 1e-9 at 160 nodes and 64 points, 1e-5 at most.
    """
    density = _single(sigma, spread, nodes)
    if steps == 1:
        return density
    single, bits = density, [int(bit) for bit in f"{steps:b}"[1:]]
    if not checks.all_concrete(sigma, spread):
        return _scanned(single, sigma, spread, xp.array(bits, dtype=float), points)
    count = 1
    for bit in bits:
        density = _doubled(density, sigma, spread, xp.asarray(2.0 * count), points)
        count *= 2
        if bit:
            count += 1
            of_all = xp.asarray(1.0 * count)
            density = _with_one_more(density, single, sigma, spread, of_all, points)
    return density


@partial(jitted, static_argnums=4)
def _scanned(
    single: LogDensity, sigma: Reals, spread: Reals, bits: Reals, points: int
) -> LogDensity:
    """`log_normal_sum` as one loop, for traced lanes."""

    def step(state: tuple[LogDensity, Reals], bit: Reals) -> tuple[tuple[LogDensity, Reals], None]:
        density, count = state
        density, count = _doubled(density, sigma, spread, 2.0 * count, points), 2.0 * count
        density = lax.cond(
            bit > 0,
            lambda x: _with_one_more(x, single, sigma, spread, count + 1.0, points),
            lambda x: x,
            density,
        )
        return (density, count + bit), None

    return lax.scan(step, (single, xp.ones(())), bits)[0][0]


@partial(jitted, static_argnums=2)
@partial(vmap, in_axes=(0, 0, None))
def _single(sigma: Reals, spread: Reals, nodes: int) -> LogDensity:
    still = lax.stop_gradient(sigma)
    low, high = -0.5 * still**2 - _LEFT * spread * still, _jump(still, spread) + 2.0 * still
    density = _empty(-0.5 * still**2, still, low, high, nodes)
    x = (density.nodes[0] + 0.5 * sigma**2) / sigma
    return density._replace(values=-0.5 * x * x - xp.log(sigma * np.sqrt(2.0 * np.pi)))


def _jump(sigma: Reals, spread: Reals) -> Reals:
    """The largest log Z that is kept, of the law whose density is Z times as large."""
    return 0.5 * sigma**2 + _RIGHT * spread * sigma


def _empty(centre: Reals, width: Reals, left: Reals, right: Reals, nodes: int) -> LogDensity:
    low, high = (xp.arcsinh((x - centre) / (_STRETCH * width)) for x in (left, right))
    grid = centre, width, low, (high - low) / (nodes - 1)
    centre, width, low, step = lax.stop_gradient(grid)
    return LogDensity(centre, width, low, step, xp.zeros(nodes))


@partial(jitted, static_argnums=4)
def _doubled(
    density: LogDensity, sigma: Reals, spread: Reals, count: Reals, points: int
) -> LogDensity:
    """The sum of two independent variables of this density; it has `count` variables in all."""

    def lane(density: LogDensity, sigma: Reals, spread: Reals) -> LogDensity:
        result = _frame(density, density, _jump(sigma, spread), spread)
        values = xp.log(2.0) + _half(density, density, result.nodes[0], points)
        return _restored(result, values, count)

    return vmap(lane)(density, sigma, spread)


@partial(jitted, static_argnums=5)
def _with_one_more(
    density: LogDensity,
    single: LogDensity,
    sigma: Reals,
    spread: Reals,
    count: Reals,
    points: int,
) -> LogDensity:
    """The sum with one more variable; it has `count` variables in all."""

    def lane(density: LogDensity, single: LogDensity, sigma: Reals, spread: Reals) -> LogDensity:
        result = _frame(density, single, _jump(sigma, spread), spread)
        # Side by side, so that one program serves both.
        smaller = jax.tree.map(lambda x, y: xp.stack([x, y]), density, single)
        larger = jax.tree.map(lambda x: x[::-1], smaller)
        halves = vmap(_half, (0, 0, None, None))(smaller, larger, result.nodes[0], points)
        return _restored(result, xp.logaddexp(halves[0], halves[1]), count)

    return vmap(lane)(density, single, sigma, spread)


def _frame(a: LogDensity, b: LogDensity, jump: Reals, spread: Reals) -> LogDensity:
    """Nodes around the mean of log(e^A + e^B), up to one largest jump beside the rest."""
    (la, da), (lb, db) = lax.stop_gradient((a.nodes, b.nodes))
    pa, pb = (softmax(lax.stop_gradient(x.values) + xp.log(d)) for x, d in ((a, da), (b, db)))
    log_sums = xp.logaddexp(la[:, None], lb[None])
    mean = pa @ log_sums @ pb
    deviation = xp.sqrt(pa @ (log_sums - mean) ** 2 @ pb)
    left = xp.maximum(mean - _LEFT * spread * deviation, xp.logaddexp(la[0], lb[0]))
    right = xp.logaddexp(mean + _RIGHT * spread * deviation, jump)
    return _empty(mean, deviation, left, right, a.values.shape[-1])


def _half(a: LogDensity, b: LogDensity, places: Reals, points: int) -> Reals:
    """log of the integral over A <= B, at each l."""
    x, share = gauss_legendre(points)
    end = xp.minimum(a.at_place(places - xp.log(2.0)), a.high)
    width = xp.maximum(end - a.low, 0.0)
    has_width = width > 0
    v = a.low + xp.where(has_width, width, 1.0)[:, None] * x[None]
    first, last = a.place(v), places[:, None]
    gap = xp.where(has_width[:, None], last - first, 1.0)
    second = last + log1mexp(xp.maximum(gap, 1e-300))
    value = a.read(v) + b.read(b.at_place(second)) + (last - second) + a.log_slope(v)
    value = xp.where(has_width[:, None], value, _LEAST) + np.log(share)[None]
    summed = logsumexp(value, axis=1) + xp.log(xp.where(has_width, width, 1.0))
    return xp.where(has_width, summed, _LEAST)


def _restored(density: LogDensity, values: Reals, count: Reals) -> LogDensity:
    """The density with mass 1 and mean of e^l `count`, mixed with e^l times itself.

    Where this correction is not small, only the mass is restored.
    """
    values = xp.maximum(values, _LEAST)
    place, dl = density.nodes
    mass, ratio = xp.exp(values) * dl, xp.exp(place) / count
    m0, m1, m2 = (xp.sum(mass * ratio**k) for k in range(3))
    beta = (m0 - m1) / xp.maximum(m2 * m0 - m1 * m1, 1e-300)
    alpha = (1.0 - beta * m1) / m0
    small = xp.abs(beta) * xp.max(ratio) < 1e-3
    mixed = xp.where(small, alpha + beta * ratio, 1.0)
    return density._replace(values=values + xp.where(small, xp.log(mixed), -xp.log(m0)))
