"""A mixture's law between the kinks of its density: doubly exponential quadrature, piece by piece.

With g0, g+, g- the densities of a noise at no shift, at `shift` and at -shift and q the sampling
probability, A+- = 1 - q + q g+- / g0. The cumulants of mixtures are the logarithms of
E_g0[A+^u A-^v]; v = 0 unless a record is replaced.
Source: Takahasi & Mori, Publ. RIMS 9, 1974 (the rule).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.elementary import expm1, log1p
from jaxdp._numeric.quadrature import tanh_sinh
from jaxdp._types import Bools, Complexes, Index, Reals, RealsOrComplexes
from jaxdp.noise.base import Noise

# Of one piece, odd and with its middle: every second point is a rule of its own.
_POINTS = 97
# Of the window: kinks may leave a piece that is too long for its points.
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# -log of the share of the largest integrand from which on it is looked at.
_DEPTH = 60.0
# In widths of the noise, from the mode of every component: where the integrand is bounded.
_OFFSETS = np.exp(np.linspace(np.log(0.05), np.log(6e3), 90))
_OFFSETS = np.concatenate([_OFFSETS, np.geomspace(1e4, 1e12, 9)])
# Then once more, between the ends that were found.
_SHARES_AGAIN = np.linspace(0.0, 1.0, 160)
# In units of a peak's width: of every second point, so that no peak lies between two of them.
_LONGEST_STEP = 6.0
# Of the curvature of log g0, in widths of the noise.
_NUDGE = 0.05
# asinh of the place in widths, and how often its bracket is halved: it need not be exact.
_BEND_REACH, _BISECTIONS = 30.0, 40
# e^loss is large from here on.
_FAR = 40.0

_RULE = tanh_sinh(_POINTS)
_HALVES = np.where(np.arange(_POINTS) % 2 == 0, 2.0, 0.0)


class Nodes(NamedTuple):
    """Of a law, (*batch, nodes): quadrature of a density, or atoms."""

    log_weight: Reals  # of g0
    centre: Reals  # log g0, of whose size the logarithms are
    logs: tuple[Reals, ...]  # log A+ (and log A-)
    share: Reals  # of each weight in the rule of every second node; 1 where nothing is left out
    resolved: Bools  # whether no peak may lie between them, (*batch,)


class Pieces(NamedTuple):
    """A noise, its shift and the sampling probability: arrays of one shape."""

    noise: Noise
    shift: Reals
    sampling_prob: Reals
    sides: tuple[float, ...]  # of the components that are shifted: 1, and -1 if replaced

    @property
    def size(self) -> int:
        """The number of points of `points`."""
        kinks = len(self.noise.kinks()) * (1 + len(self.sides)) + len(self.sides)
        return _POINTS * (len(_SHARES) + kinks)

    def along(self) -> "Pieces":
        """With a new last axis, for points."""
        noise, shift, q = jax.tree.map(lambda x: x[..., None], self[:3])
        return Pieces(noise, shift, q, self.sides)

    def log_ratios(self, x: Reals) -> tuple[Reals, tuple[Reals, ...]]:
        """log g0, and log A+ (and log A-)."""
        centre = self.noise.log_density(x)
        moved = [self.noise.log_density(x - side * self.shift) - centre for side in self.sides]
        return centre, tuple(log_mixed(loss, self.sampling_prob) for loss in moved)

    def between(self, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        """Starts and lengths of the pieces from low to high, along a new last axis."""
        inside = jnp.clip(self.kinks(), low[..., None], high[..., None])
        shares = jnp.asarray(_SHARES)[(None,) * low.ndim]
        even = low[..., None] + shares * (high - low)[..., None]
        edges = jnp.concatenate([even, inside], axis=-1)
        start, other = edges[..., :, None], edges[..., None, :]
        following = jnp.min(jnp.where(other > start, other, jnp.inf), axis=-1)
        # Of equal edges one counts.
        again = jnp.any(jnp.triu(start == other, 1), axis=-1)
        return edges, jnp.where(again | jnp.isinf(following), 0.0, following - edges)

    def density_kinks(self) -> Reals:
        """Of the densities, along a new last axis."""
        kinks = [jnp.broadcast_to(kink, self.shift.shape) for kink in self.noise.kinks()]
        kinks += [kink + side * self.shift for kink in kinks for side in self.sides]
        return jnp.stack(kinks, axis=-1)

    def kinks(self) -> Reals:
        """Of the densities, and where log A+ and log A- bend, along a new last axis."""
        bends = jnp.stack([side * self._bend() for side in self.sides], axis=-1)
        return jnp.concatenate([self.density_kinks(), bends], axis=-1)

    def continued(self, at: Reals, x: Complexes) -> tuple[Complexes, tuple[Complexes, ...]]:
        """log g0, and log g+ / g0 (and log g- / g0), continued from the real points `at`."""
        centre = self.noise.continued(at, x, jnp.zeros_like(self.shift))[0]
        moved = (self.noise.continued(at, x, side * self.shift)[1] for side in self.sides)
        return centre, tuple(moved)

    def _bend(self) -> Reals:
        """Where q g+ = g0, if anywhere: losses rise."""
        level = -jnp.log(self.sampling_prob)

        def halve(_: Index | int, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
            middle = 0.5 * (ends[0] + ends[1])
            x = self.width() * jnp.sinh(middle)
            below = self.noise.log_density(x - self.shift) - self.noise.log_density(x) < level
            return jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)

        ends = jnp.full_like(self.shift, -_BEND_REACH), jnp.full_like(self.shift, _BEND_REACH)
        return self.width() * jnp.sinh(lax.fori_loop(0, _BISECTIONS, halve, ends)[1])

    def around(self, centre: Reals) -> Reals:
        """Points on both sides of `centre`, far and near, along a new last axis."""
        width = self.width()[..., None]
        offsets = np.concatenate([-_OFFSETS[::-1], [0.0], _OFFSETS])
        return centre[..., None] + width * jnp.asarray(offsets)[(None,) * centre.ndim]

    def width(self) -> Reals:
        """1 / g0(0)."""
        return jnp.exp(-self.noise.log_density(jnp.zeros_like(self.shift)))

    def nodes(self, powers: tuple[Reals, ...]) -> Nodes:
        """For powers (u, v): the rule on all pieces where the integrand matters."""
        x, weight, resolved = lax.optimization_barrier(lax.stop_gradient(self._points(powers)))
        # Each is used often: else they are computed as often.
        centre, logs = lax.optimization_barrier(self.along().log_ratios(x))
        halves = np.tile(_HALVES, x.shape[-1] // _POINTS)[(None,) * (x.ndim - 1)]
        return Nodes(centre + jnp.log(weight), centre, logs, jnp.asarray(halves), resolved)

    def _points(self, powers: tuple[Reals, ...]) -> tuple[Reals, Reals, Bools]:
        """x, the weights, and whether no peak of the integrand may lie between them."""
        low, high, known = lax.optimization_barrier(self.window(powers))
        start, length = self.between(low, high)
        unit, weight = (jnp.asarray(c)[(None,) * start.ndim] for c in _RULE)
        points = start[..., None] + length[..., None] * unit
        flat = (*points.shape[:-2], -1)
        step = 2.0 * float(_RULE.weights.max()) * jnp.max(length, axis=-1)
        resolved = known & (step <= _LONGEST_STEP * self.narrowest(low, high))
        return points.reshape(flat), (length[..., None] * weight).reshape(flat), resolved

    def window(self, powers: tuple[Reals, ...]) -> tuple[Reals, Reals, Bools]:
        """Its ends, and whether the integrand is negligible outside of it."""
        centres = [jnp.zeros_like(self.shift), *(side * self.shift for side in self.sides)]
        x = jnp.sort(jnp.concatenate([self.around(centre) for centre in centres], axis=-1))
        kept = self._kept(x, powers)
        known = jnp.any(kept, axis=-1) & ~(kept[..., 0] | kept[..., -1])
        low, high = lax.optimization_barrier(_ends(x, kept))
        for method in (self._kept, self._seen):
            x = self._even(low, high)
            low, high = lax.optimization_barrier(_ends(x, method(x, powers)))
        known = known & (low < high)
        return jnp.where(known, low, -self.width()), jnp.where(known, high, self.width()), known

    def _even(self, low: Reals, high: Reals) -> Reals:
        shares = jnp.asarray(_SHARES_AGAIN)[(None,) * low.ndim]
        even = low[..., None] + shares * (high - low)[..., None]
        kinks = jnp.clip(self.kinks(), low[..., None], high[..., None])
        return jnp.sort(jnp.concatenate([even, kinks], axis=-1))

    def _seen(self, x: Reals, powers: tuple[Reals, ...]) -> Bools:
        """As `_kept` for points nearer to each other than peaks are wide, else all."""
        centre, logs = self.along().log_ratios(x)
        height = centre + _log_bend(tuple(power[..., None] for power in powers), logs, logs)
        seen = height > jnp.max(height, axis=-1, keepdims=True) - _DEPTH
        step = jnp.max(jnp.diff(x), axis=-1)
        dense = step <= self.narrowest(x[..., 0], x[..., -1])
        return seen[..., 1:] | seen[..., :-1] | ~dense[..., None]

    def _kept(self, x: Reals, powers: tuple[Reals, ...]) -> Bools:
        """Whether the integrand may matter between x[..., i] and x[..., i + 1].

        There g0 is at most that at the end nearer to 0, or in the middle, and A+ and A- lie between
        their values at both ends, as g0 is log-concave: the integrand is bounded.
        """
        centre, logs = self.along().log_ratios(x)
        powers = tuple(power[..., None] for power in powers)
        height = centre + _log_bend(powers, logs, logs)
        left, right = (
            tuple(log[..., ends] for log in logs) for ends in (slice(-1), slice(1, None))
        )
        between = jnp.maximum(centre[..., :-1], centre[..., 1:])
        middle = self.noise.log_density(jnp.zeros_like(self.shift))[..., None]
        between = jnp.where(x[..., :-1] * x[..., 1:] < 0, middle, between)
        between = between + _log_bend(powers, left, right)
        return between > jnp.max(height, axis=-1, keepdims=True) - _DEPTH

    def narrowest(self, low: Reals, high: Reals) -> Reals:
        """The least width of a peak of g0 A+^u A-^v: 1 / sqrt(-(log g0)''), at its largest.

        Kinks are ends of pieces, and near them nothing is missed.
        """
        nudge = _NUDGE * self.width()

        def curvature(x: Reals) -> Reals:
            value = self.noise.log_density
            return jnp.abs(value(x + nudge) - 2.0 * value(x) + value(x - nudge)) / nudge**2

        outer = jnp.maximum(curvature(low - nudge), curvature(high + nudge))
        return 1.0 / jnp.sqrt(jnp.maximum(outer, 1.0 / self.width() ** 2))


def _ends(x: Reals, kept: Bools) -> tuple[Reals, Reals]:
    low = jnp.min(jnp.where(kept, x[..., :-1], jnp.inf), axis=-1)
    return low, jnp.max(jnp.where(kept, x[..., 1:], -jnp.inf), axis=-1)


def _log_bend(
    powers: tuple[Reals, ...], left: tuple[Reals, ...], right: tuple[Reals, ...]
) -> Reals:
    """An upper bound of log|A+^u A-^v - 1 - u (A+ - 1) - v (A- - 1)| while each log A is between.

    By |e^y - 1 - y| <= y^2 / 2 max(1, e^y).
    """
    exponents = [(power * a, power * b) for power, a, b in zip(powers, left, right, strict=True)]
    size = sum(jnp.maximum(jnp.abs(a), jnp.abs(b)) for a, b in exponents)
    top = sum(jnp.maximum(a, b) for a, b in exponents)
    bounds = [2.0 * jnp.log(size) + jnp.maximum(top, 0.0)]
    for power, a, b in zip(powers, left, right, strict=True):
        size, top = jnp.maximum(jnp.abs(a), jnp.abs(b)), jnp.maximum(a, b)
        bounds.append(jnp.log(jnp.abs(power)) + 2.0 * jnp.log(size) + jnp.maximum(top, 0.0))
    return jnp.stack(bounds).max(axis=0)


def dot(powers: tuple[Reals, ...], logs: tuple[RealsOrComplexes, ...]) -> RealsOrComplexes:
    """log(A+^u A-^v)."""
    total = powers[0][..., None] * logs[0]
    for power, log in zip(powers[1:], logs[1:], strict=True):
        total = total + power[..., None] * log
    return total


def log_mixed(loss: RealsOrComplexes, q: Reals) -> RealsOrComplexes:
    """log(1 - q + q e^loss)."""
    up = jnp.real(loss) > _FAR
    excess = q * expm1(jnp.where(up, 0.0, loss))
    near = jnp.real(excess) > -0.5
    rest = jnp.where(near, 1.0, 1.0 - q + q * jnp.exp(jnp.where(up, 0.0, loss)))
    low = jnp.where(q < 1, jnp.log(jnp.where(q < 1, rest, 1.0)), loss)
    high = loss + jnp.log(q + (1.0 - q) * jnp.exp(-jnp.where(up, loss, 0.0)))
    return jnp.where(up, high, jnp.where(near, log1p(jnp.where(near, excess, 0.0)), low))
