"""delta of two to four releases with densities exp(-|t|^p / p), one release at a time.

With delta_k of k releases, l(t) the loss of one more and g its density,

    delta_(k+1)(epsilon) = int g(t) delta_k(epsilon - l(t)) dt:

no term is negative, nothing oscillates. The integrand is analytic but where t or t + shift is 0,
and where epsilon - l(t) is a sum of the kinks +-shift^p / p of the other losses; between two such
points a tanh-sinh rule follows whatever power it meets at its ends. delta_1 is a closed form.
delta_2 and delta_3 are tables of log delta against epsilon, each interval between two kinks on
the nodes of that rule, in whose variable delta is analytic; values are interpolated from 12 nodes.
The error is taken from what half the nodes say otherwise, of sums and of tables.

Measured for two releases, powers 1.3 to 8, 161 nodes: off by 1e-14, of which the stated error is
1e-14 to 1e-9.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.elementary import LOG_2, ULP, log1p
from jaxdp._numeric.gamma import gamma_excess
from jaxdp._numeric.power_loss import loss_threshold
from jaxdp._numeric.quadrature import TANH_SINH_END, tanh_sinh
from jaxdp._numeric.subbotin_cgf import losses
from jaxdp._numeric.subbotin_delta import log_delta_of_power
from jaxdp._types import Index, Reals

MOST = 4
# Of an integrand, what lies so many nats below its value at the even split is cut off.
_DROP = 60.0
_LEAST = 1e-300
# Tables: intervals between 0, c, 2c, 3c, a usual loss and the end; nodes of an interpolation.
_INTERVALS = MOST + 1
_WIDTH = 12
# Interpolation on every second node is 4,096 times less accurate where it converges; of that 128
# are believed.
_TRUSTED = 1.0 / 128.0
# The rule of half the nodes is off by r, relatively: that of all by less than _SAFETY r^_GAIN.
_SAFETY, _GAIN = 4.0, 1.25


class Release(NamedTuple):
    """shift over scale, and the power; scalars."""

    shift: Reals
    power: Reals

    def kink(self) -> Reals:
        """The loss at t = 0."""
        return self.shift**self.power / self.power

    def costs(self, t: Reals) -> tuple[Reals, Reals]:
        """|t|^p / p and the loss."""
        here, there = jnp.abs(t), jnp.abs(t + self.shift)
        near = jnp.maximum(jnp.minimum(here, there), _LEAST)
        width = jnp.where(t * (t + self.shift) < 0, jnp.abs(2.0 * t + self.shift), self.shift)
        cost, loss = losses(near, width, self.power)
        loss = jnp.where(2.0 * t + self.shift < 0, -loss, loss)
        return jnp.where(here > there, cost - loss, cost), loss

    def threshold(self, loss: Reals) -> Reals:
        """The t with this loss, of either sign."""
        at = loss_threshold(*jnp.broadcast_arrays(self.shift, jnp.abs(loss), self.power))
        t = at.side * jnp.exp((jnp.log(self.power) + at.log_a) / self.power)
        return jnp.where(loss < 0, -self.shift - t, t)

    def log_delta(self, epsilon: Reals) -> "Bound":
        """Of this release alone."""
        found = log_delta_of_power(*jnp.broadcast_arrays(self.shift, epsilon, self.power))
        return Bound(found, jnp.zeros_like(found))

    def log_unit(self) -> Reals:
        """log of the integral of exp(-|t|^p / p)."""
        beta = (self.power - 1.0) / self.power
        return LOG_2 - beta * jnp.log(self.power) + log1p(gamma_excess(beta))


class Bound(NamedTuple):
    """log delta is at most log_delta + error; about as much may it lie below log_delta."""

    log_delta: Reals
    error: Reals


class _Table(NamedTuple):
    """Bounds at rising epsilon >= 0, (intervals, nodes), between `edges`; beyond, the last."""

    edges: Reals
    at: Bound

    @staticmethod
    def of(edges: Reals, at: Bound, least: Reals) -> "_Table":
        """Raised to `least`; the error contains what interpolation may miss."""
        value = jnp.logaddexp(at.log_delta, least)
        half = value[:, ::2]
        odd = 0.5 * jnp.arange(1.0, value.shape[1], 2.0)
        place = jnp.broadcast_to(odd, (_INTERVALS, odd.size))
        first = half.shape[1] * jnp.arange(float(_INTERVALS))[:, None]
        between = _lagrange(half.reshape(-1), first, place, half.shape[1])
        gap = jnp.repeat(jnp.abs(between - value[:, 1::2]), 2, axis=1)
        gap = jnp.pad(gap, ((0, 0), (0, 1)), mode="edge")
        near = [jnp.roll(gap, k, axis=1) for k in range(-_WIDTH // 2, _WIDTH // 2 + 1)]
        missed = jnp.max(jnp.stack([*near, at.error]), axis=0)
        return _Table(edges, Bound(value, at.error + jnp.minimum(_TRUSTED * missed, _DROP)))

    def log_delta(self, epsilon: Reals) -> Bound:
        """At any epsilon: delta(-e) = 1 - e^-e + e^-e delta(e)."""
        size = jnp.abs(epsilon)
        found = self._interpolated(jnp.minimum(size, self.edges[-1]))
        mirrored = jnp.log(-jnp.expm1(-size) + jnp.exp(found.log_delta - size))
        return Bound(jnp.where(epsilon < 0, mirrored, found.log_delta), found.error)

    def _interpolated(self, epsilon: Reals) -> Bound:
        inner = self.edges[1:-1][(None,) * epsilon.ndim]
        interval = jnp.sum(epsilon[..., None] >= inner, axis=-1)
        low, high = self.edges[interval], self.edges[interval + 1]
        odds = jnp.maximum(epsilon - low, _LEAST) / jnp.maximum(high - epsilon, _LEAST)
        y = jnp.arcsinh(jnp.log(odds) / np.pi)
        nodes = self.at.log_delta.shape[1]
        place = (jnp.clip(y / TANH_SINH_END, -1.0, 1.0) + 1.0) * 0.5 * (nodes - 1)
        row = 1.0 * interval * nodes
        value = _lagrange(self.at.log_delta.reshape(-1), row, place, nodes)
        return Bound(value, self.at.error.reshape(-1)[(row + jnp.round(place)).astype(int)])


def _lagrange(values: Reals, first: Reals, place: Reals, count: int) -> Reals:
    """Values of rows of `count`, the row beginning at `first`, between the integers at `place`."""
    start = jnp.clip(jnp.floor(place) - (_WIDTH // 2 - 1), 0.0, count - _WIDTH)
    x = place - start
    total, norm = jnp.zeros_like(place), jnp.zeros_like(place)
    for k in range(_WIDTH):
        weight = float((-1) ** k * np.prod([(_WIDTH - 1 - i) / (i + 1) for i in range(k)]))
        gap = x - k
        share = weight / jnp.where(gap == 0, 1e-200, gap)
        total += share * values[(first + start).astype(int) + k]
        norm += share
    return total / norm


def _fold(
    before: Callable[[Reals], Bound],
    kinks: Reals,
    share: Reals,
    release: Release,
    epsilon: Reals,
    nodes: int,
) -> Bound:
    """With one more release, given log delta without it: epsilon (n,), kinks of `before` (k,)."""
    rule = tanh_sinh(nodes)
    m = release.shift
    fixed = jnp.broadcast_to(jnp.stack([-m, -0.5 * m, 0.0 * m]), (*epsilon.shape, 3))
    moving = release.threshold(
        jnp.append(epsilon[:, None] - kinks[None], share * epsilon[:, None], 1)
    )
    cuts = jnp.append(fixed, moving, axis=-1)
    cost, loss = release.costs(cuts)
    top = jnp.max(before(epsilon[:, None] - loss).log_delta - cost, axis=-1)
    reach = ((release.power * (_DROP - top)) ** (1.0 / release.power))[:, None]
    cuts = jnp.concatenate([-reach, jnp.clip(cuts, -reach, reach), reach], axis=-1)
    cuts = jnp.sort(cuts, axis=-1)
    width = jnp.diff(cuts)[..., None]
    t = cuts[:, :-1, None] + width * rule.nodes[None, None]
    cost, loss = release.costs(t)
    others = before(epsilon[:, None, None] - loss)
    value = jnp.exp(others.log_delta - cost - top[:, None, None]) * width * rule.weights[None, None]
    each = jnp.sum(value, axis=-1)
    total = jnp.sum(each, axis=-1)
    off = jnp.sum(jnp.abs(each - 2.0 * jnp.sum(value[..., ::2], axis=-1)), axis=-1) / total
    error = jnp.minimum(off, _SAFETY * off**_GAIN)
    error += jnp.sum(value * jnp.expm1(others.error), axis=(-1, -2)) / total
    # Losses are off by some ULP: times the slope of log delta, p / (p - 1) of itself over epsilon
    # in the tail, and about one over their deviation before it.
    steep = 1.0 + jnp.abs(top) * (2.0 * release.power - 1.0) / (release.power - 1.0)
    steep += (epsilon + release.kink() + jnp.max(kinks)) * jnp.sqrt(share) / m
    return Bound(top + jnp.log(total) - release.log_unit(), error + 32.0 * ULP * steep)


def log_delta_of_two(one: Release, other: Release, epsilon: Reals, nodes: int) -> Bound:
    """Two releases, epsilon >= 0."""
    spread = [r.shift**2 * r.power for r in (one, other)]
    kinks = one.kink() * jnp.arange(-1.0, 2.0)
    share = spread[1] / (spread[0] + spread[1])
    found = _fold(one.log_delta, kinks, share, other, epsilon[None], nodes)
    return Bound(found.log_delta[0], found.error[0])


def log_delta_of_several(one: Release, count: Reals, epsilon: Reals, nodes: int) -> Bound:
    """3 or 4 equal releases, epsilon >= 0."""
    kink, number = one.kink(), jnp.arange(1.0 - MOST, MOST)
    inverse = 1.0 / one.power
    # A delta smaller than this may be made as large: it does not count in the end.
    least = count * one.log_delta(epsilon / count).log_delta - _DROP
    costs = jnp.stack([1.0 + 0.0 * least, -least / 3.0])
    usual, largest = one.costs((one.power * costs) ** inverse)[1]
    end = jnp.minimum(epsilon + _DROP, 3.0 * largest)
    edges = kink * jnp.arange(float(MOST))
    edges = jnp.concatenate([edges, edges[-1:] + jnp.stack([jnp.minimum(usual, 0.5 * end), end])])
    at = edges[:-1, None] + jnp.diff(edges)[:, None] * tanh_sinh(nodes).nodes[None]
    every = jnp.append(at.reshape(-1), epsilon)

    def more(k: Index, before: Bound) -> Bound:
        table = _Table.of(edges, Bound(*(x[:-1].reshape(at.shape) for x in before)), least)
        return _fold(table.log_delta, kink * number, 1.0 / (k + 1.0), one, every, nodes)

    found = lax.fori_loop(1, count.astype(int), more, one.log_delta(every))
    return Bound(found.log_delta[-1], found.error[-1])
