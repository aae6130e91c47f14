"""Moments of the Poisson-sampled Laplace's likelihood ratio: two atoms and a finite integral.

With r = shift / scale the unsampled log ratio l is -r with probability 1/2 and r with e^-r / 2; in
between it has the density e^(-(l + r) / 2) / 4. Sampling makes it L = log(1 - q + q e^l), and
G(w) = E e^(w L) gives both directions, as in `sampled_gaussian`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._numeric.elementary import LOG_2, log1p
from jaxdp._numeric.turning import Pair, Turned, excess_at
from jaxdp._types import Complexes, Indices, Reals

_UNIT, _WEIGHT = np.polynomial.legendre.leggauss(128)
_LOG_WEIGHT = np.log(_WEIGHT)
# Nats that the nodes resolve across the integral, and radians.
_STEEPEST = 60.0
_MOST_TURN = 140.0


def _law(r: Reals, q: Reals) -> tuple[Reals, Reals]:
    """log weight and L of the atoms, then of the nodes, along a new last axis."""
    wide, sampled = r[..., None], q[..., None]
    unit = jnp.asarray(_UNIT)[(None,) * r.ndim]
    atoms = jnp.concatenate([-wide, wide], axis=-1)
    plain = jnp.concatenate([atoms, wide * unit], axis=-1)
    inside = jnp.log(wide) - 0.5 * wide * (1.0 + unit) - 2.0 * LOG_2 + _LOG_WEIGHT[(None,) * r.ndim]
    log_weight = jnp.concatenate([0.0 * wide - LOG_2, -wide - LOG_2, inside], axis=-1)
    small = plain < 30.0
    near = log1p(sampled * jnp.expm1(jnp.where(small, plain, 0.0)))
    far = plain + jnp.log(sampled + (1.0 - sampled) * jnp.exp(-jnp.where(small, 1.0, plain)))
    return log_weight, jnp.where(small, near, far)


def log_moment(r: Reals, q: Reals, w: Reals) -> Reals:
    """log G(w) for real w, arguments of one shape. Relative error: 1e-14 / min(1, 100 q |w|).

    Where |w| times the range of L is above 60, an upper bound: the continuous part at its largest.
    """
    log_weight, loss = _law(r, q)
    tilted = w[..., None] * loss
    small = jnp.max(tilted, axis=-1) < 30.0
    excess = jnp.sum(jnp.exp(log_weight) * jnp.expm1(jnp.where(small[..., None], tilted, 0.0)), -1)
    top = jnp.max(tilted + log_weight, axis=-1)
    large = top + jnp.log(jnp.sum(jnp.exp(tilted + log_weight - top[..., None]), axis=-1))
    value = jnp.where(small, log1p(excess), large)
    rise = tilted[..., 1] - tilted[..., 0]
    steep = jnp.abs(rise) > _STEEPEST
    ends = jnp.where(rise > 0, tilted[..., 1], tilted[..., 0])
    held = jnp.where(rise > 0, log1p(-0.5 * jnp.ones_like(r)), log1p(-0.5 * jnp.exp(-r)))
    bound = jnp.logaddexp(ends + held, jnp.minimum(tilted[..., 0], tilted[..., 1]))
    value = jnp.where(steep, bound, value)
    return jnp.where((q == 0) | (r == 0), 0.0, value)


def loss_pair(r: Reals, q: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    """L at l = r and at l = -r, and the logarithms of their masses."""
    log_weight, loss = _law(r, q)
    return loss[..., 1], loss[..., 0], log_weight[..., 1], log_weight[..., 0]


def beyond(r: Reals, q: Reals, w: Reals, height: Reals) -> tuple[Reals, Reals]:
    """Bounds on the atoms' part and the density's of |G(w + it)| / G(w) from t = height on.

    The density of L, times e^(w L), is that of l over dL / dl = q e^(l - L). Its logarithm,
    (w + 1) L - (3 / 2) log(e^L - 1 + q) and a constant, is convex: the integral is at most 2 / t
    times the sum of both ends.
    """
    log_weight, loss = _law(r, q)
    total = log_moment(r, q, w)[..., None]
    loss, log_weight = loss[..., :2], log_weight[..., :2]
    tilted = w[..., None] * loss - total
    ends = jnp.stack([-r, r], axis=-1)
    density = -0.5 * (ends + r[..., None]) - 2.0 * LOG_2 + tilted + loss - ends
    varied = jnp.sum(jnp.exp(density), axis=-1) / jnp.where(q > 0, q, 1.0)
    atoms = jnp.minimum(jnp.sum(jnp.exp(log_weight + tilted), axis=-1), 1.0)
    rest = jnp.minimum(2.0 * varied / height, 1.0)
    some = (q > 0) & (r > 0)
    return jnp.where(some, atoms, 0.0), jnp.where(some, rest, 1.0)


class TiltedLaplace(NamedTuple):
    """The law tilted by e^(w0 L) on 130 nodes, for a line w0 + i k step."""

    turned: Turned
    highest: Reals  # |t| from which on it is not resolved

    @staticmethod
    def of(r: Reals, q: Reals, w0: Reals, step: Reals) -> "TiltedLaplace":
        """All of one shape."""
        log_weight, loss = _law(r, q)
        exponent = log_weight + w0[..., None] * loss
        weight = jnp.exp(exponent - jnp.max(exponent, axis=-1, keepdims=True))
        weight = weight / jnp.sum(weight, axis=-1, keepdims=True)
        reach = loss[..., 1] - loss[..., 0]
        highest = jnp.where(reach > 0, _MOST_TURN / jnp.where(reach > 0, reach, 1.0), jnp.inf)
        highest = jnp.where(jnp.abs(w0) * reach < _STEEPEST, highest, 0.0)
        pairs = Pair.of(weight), Pair.of(loss)
        return TiltedLaplace(Turned.of(*pairs, step[..., None], jnp.argmax(reach)), highest)

    def excess(self, indices: Indices) -> Complexes:
        """G(w0 + i k step) / G(w0) - 1 for consecutive k, along a new last axis."""
        return excess_at(self.turned, indices)
