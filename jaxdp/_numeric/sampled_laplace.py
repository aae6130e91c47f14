"""Moments of the Poisson-sampled Laplace's likelihood ratio: two atoms and a finite integral.

With r = shift / scale the unsampled log ratio l is -r with probability 1/2 and r with e^-r / 2; in
between it has the density e^(-(l + r) / 2) / 4. Sampling makes it L = log(1 - q + q e^l), and
G(w) = E e^(w L) gives both directions, as in `sampled_gaussian`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.elementary import LOG_2, log1p
from jaxdp._types import Reals

_UNIT, _WEIGHT = np.polynomial.legendre.leggauss(64)
# Nodes on [0, 1].
UNIT, LOG_WEIGHT = 0.5 * (1.0 + _UNIT), np.log(0.5 * _WEIGHT)
# Nats below its largest value where an integrand is broken off.
ROOM = 42.0
# Of the search for where that is.
_ROUNDS = 3
# Where exponentials are computed another way.
_FAR = 30.0


def _log_mixture(slope: Reals, rest: Reals, by: Reals) -> Reals:
    """log(1 + slope (e^by - 1)), rest = 1 - slope; relatively exact."""
    far = by > _FAR
    near = jnp.where(far, 0.0, by)
    moved, fallen = slope * jnp.expm1(near), rest + slope * jnp.exp(near)
    value = jnp.where(moved < -0.5, jnp.log(fallen), log1p(jnp.maximum(moved, -0.5)))
    return jnp.where(far, by + jnp.log(slope + rest * jnp.exp(-jnp.abs(by))), value)


def loss_at(plain: Reals, q: Reals) -> Reals:
    """L at l."""
    return _log_mixture(q, 1.0 - q, plain)


class Ends(NamedTuple):
    """l = -r and l = r, along a last axis."""

    loss: Reals
    slope: Reals  # L'
    rest: Reals  # 1 - L'

    @staticmethod
    def of(r: Reals, q: Reals) -> "Ends":
        plain, q = jnp.stack([-r, r], axis=-1), q[..., None]
        loss = loss_at(plain, q)
        return Ends(loss, q * jnp.exp(plain - loss), (1.0 - q) * jnp.exp(-loss))

    def change(self, plain: Reals) -> Reals:
        """L where l is larger by `plain`, less `loss`: relatively exact."""
        return _log_mixture(self.slope, self.rest, plain)


class Law(NamedTuple):
    """The atoms at both ends, then nodes for a given w, along the last axis."""

    log_weight: Reals  # of the probability, e^(w L) left out
    start: Reals  # L at the end that a node is measured from
    change: Reals  # L less that
    best: Reals  # L at the end that weighs more, (...)
    turn: Reals  # the largest L' times length of an interval of nodes, (...)
    reach: Reals  # how far from either end anything counts, (..., 2)
    rise: Reals  # how far the upper end is above the lower, in nats, (...)
    left_out: Reals  # the probability of what does not count, (...)

    @property
    def loss(self) -> Reals:
        """L."""
        return self.start + self.change

    def exponents(self, w: Reals) -> Reals:
        """log weight + w (L - best): w L alone may be so large that nats of it are lost."""
        above = self.start - self.best[..., None]
        return self.log_weight + w[..., None] * above + w[..., None] * self.change

    def log_moment(self, w: Reals) -> Reals:
        """log G(w)."""
        tilted = w[..., None] * self.loss
        small = jnp.max(tilted, axis=-1) < _FAR
        risen = jnp.exp(self.log_weight) * jnp.expm1(jnp.where(small[..., None], tilted, 0.0))
        exponents = self.exponents(w)
        top = jnp.max(exponents, axis=-1)
        total = jnp.sum(jnp.exp(exponents - top[..., None]), axis=-1)
        large = w * self.best + top + jnp.log(total)
        return jnp.where(small, log1p(jnp.sum(risen, axis=-1) - self.left_out), large)


def law(r: Reals, q: Reals, w: Reals) -> Law:
    """At real w; arguments of one shape.

    The logarithm of the density times e^(w L), -(l + r) / 2 + w L and a constant, falls all the way
    for w <= 1/2, and is convex for larger w. What counts is at the ends: there is an interval of
    nodes from each, or two of half the length where only one of them counts.
    """
    ends = Ends.of(r, q)
    fixed = lax.stop_gradient((r, q, w, ends))
    reach, rise, gap = _reach(*fixed)
    counts = reach > 0
    both = jnp.all(counts, axis=-1, keepdims=True)
    second = jnp.arange(2)[(None,) * r.ndim]
    from_high = jnp.where(both, second, counts[..., 1:])
    # The ends move with r, and so does where both intervals meet.
    moving = r / jnp.where(fixed[0] > 0, fixed[0], 1.0)
    length = jnp.where(both, 1.0, 0.5) * jnp.where(from_high, reach[..., 1:], reach[..., :1])
    length = length * moving[..., None]
    begin = jnp.where(both, 0.0, length) * second
    sign = jnp.where(from_high, -1.0, 1.0)
    end = Ends(*(jnp.where(from_high, x[..., 1:], x[..., :1]) for x in ends))
    top = sign * jnp.where(from_high, begin, begin + length)
    turn = length * end.slope / (end.slope + end.rest * jnp.exp(-top))
    end, begin, longer, sign = jax.tree.map(lambda x: x[..., None], (end, begin, length, sign))
    moved = sign * (begin + longer * UNIT[(None,) * (r.ndim + 1)])
    log_weight = jnp.log(longer) + LOG_WEIGHT[(None,) * (r.ndim + 1)] - 2.0 * LOG_2 - 0.5 * moved
    log_weight -= jnp.where(from_high, r[..., None], 0.0)[..., None]
    atoms = jnp.stack([jnp.full_like(r, -LOG_2), -r - LOG_2], axis=-1)
    nodes = log_weight, jnp.broadcast_to(end.loss, moved.shape), end.change(moved)
    flat = (x.reshape(*r.shape, -1) for x in nodes)
    outer = atoms, ends.loss, jnp.zeros_like(atoms)
    log_weight, start, change = (jnp.concatenate(x, axis=-1) for x in zip(outer, flat, strict=True))
    best = jnp.where(rise > 0, ends.loss[..., 1], ends.loss[..., 0])
    reach *= moving[..., None]
    left_out = -0.5 * jnp.exp(-0.5 * reach[..., 0]) * jnp.expm1(-0.5 * gap)
    largest = jnp.max(turn, axis=-1)
    return Law(log_weight, start, change, best, largest, reach, rise, left_out)


def _reach(r: Reals, q: Reals, w: Reals, ends: Ends) -> tuple[Reals, Reals, Reals]:
    """How far from either end anything counts, or somewhat farther; how far the upper end is above
    the lower, in nats; and the length of what does not count."""
    rise = w * (ends.loss[..., 1] - ends.loss[..., 0]) - r
    # Least where L' = 1 / (2 w).
    convex = w > 0.5
    least = jnp.log1p(-q) - jnp.log(q) - jnp.log(jnp.where(convex, 2.0 * w - 1.0, 1.0))
    least = jnp.where(convex, jnp.clip(least, -r, r), r)
    low, high = most = least + r, r - least
    room_low, room_high = ROOM - jnp.maximum(rise, 0.0), ROOM + jnp.minimum(rise, 0.0)
    steep_low, steep_high = ends.slope[..., 0], ends.slope[..., 1]
    log_steep = jnp.log(q) - r - ends.loss[..., 0]
    size = jnp.maximum(jnp.abs(w), 1e-300)
    for _ in range(_ROUNDS):
        # The logarithm falls by d / 2 - w (L - L_low), and by w (L_high - L) - d / 2.
        low = jnp.minimum(low, 2.0 * (room_low + w * jnp.logaddexp(log_steep + low, 0.0)))
        wanted = -(room_high + 0.5 * high) / size
        fall = jnp.maximum(jnp.expm1(wanted) / steep_high, -0.5)
        left = jnp.maximum((jnp.exp(wanted) - ends.rest[..., 1]) / steep_high, 0.0)
        high = jnp.minimum(high, -jnp.where(fall > -0.5, jnp.log1p(fall), jnp.log(left)))
    # By d / 2 + |w| (L - L_low), or by no less than (1 / 2 - w) d.
    fallen = jnp.log1p(jnp.expm1(room_low / size) / steep_low)
    falling = jnp.where(w > 0, room_low / (0.5 - w), jnp.minimum(2.0 * room_low, fallen))
    low = jnp.where(convex, low, jnp.minimum(most[0], falling))
    cut, room, longest = (jnp.stack(x, axis=-1) for x in ((low, high), (room_low, room_high), most))
    reach = jnp.where(room > 0, jnp.where(cut < longest, cut, longest), 0.0)
    return reach, rise, jnp.sum(longest - reach, axis=-1)


def log_moment(r: Reals, q: Reals, w: Reals) -> Reals:
    """log G(w) for real w, arguments of one shape. Relative error: 1e-14 / min(1, 100 q |w|)."""
    # NaN is no release that is nothing.
    nothing = (q == 0) | (r == 0)
    r, q = (jnp.where(nothing, 0.5, x) for x in (r, q))
    return jnp.where(nothing, 0.0, law(r, q, w).log_moment(w))


def loss_pair(r: Reals, q: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    """L at l = r and at l = -r, and the logarithms of their masses."""
    return loss_at(r, q), loss_at(-r, q), -r - LOG_2, jnp.full_like(r, -LOG_2)


def beyond(r: Reals, q: Reals, w: Reals, height: Reals) -> tuple[Reals, Reals]:
    """Bounds on the atoms' part and the density's of |G(w + it)| / G(w) from t = height on.

    The density of L, times e^(w L), is that of l over dL / dl = q e^(l - L). Its logarithm,
    (w + 1) L - (3 / 2) log(e^L - 1 + q) and a constant, is convex: the integral is at most 2 / t
    times the sum of both ends.
    """
    total = log_moment(r, q, w)[..., None]
    ends = jnp.stack([-r, r], axis=-1)
    loss = loss_at(ends, q[..., None])
    tilted = w[..., None] * loss - total
    density = -0.5 * (ends + r[..., None]) - 2.0 * LOG_2 + tilted + loss - ends
    varied = jnp.sum(jnp.exp(density), axis=-1) / jnp.where(q > 0, q, 1.0)
    log_mass = jnp.stack([jnp.full_like(r, -LOG_2), -r - LOG_2], axis=-1)
    atoms = jnp.minimum(jnp.sum(jnp.exp(log_mass + tilted), axis=-1), 1.0)
    rest = jnp.minimum(2.0 * varied / height, 1.0)
    some = (q > 0) & (r > 0)
    return jnp.where(some, atoms, 0.0), jnp.where(some, rest, 1.0)
