"""Privacy loss of one Poisson-sampled Gaussian on shifted nodes, and smooth cuts of its law.

With x in units of the noise and u = x / sigma - 1 / (2 sigma^2) the ratio of (1 - q) N(0, 1) +
q N(1 / sigma, 1) to N(0, 1) is 1 - q + q e^u. Direction "remove" draws x from the mixture, and its
loss is the ratio's logarithm l; "add" draws x from N(0, 1), and its loss is -l. Both rise along
the nodes here: those of "add" are reflected.

The loss is analytic for |Im x| < pi sigma, so expectations of e^(z loss) are trapezoidal sums on
the line Im x = eta. There Im loss > 0: e^(i t loss) is damped where real nodes alias. Error,
relative to the expectation at Re z: e^(-2 pi eta / h) from below the line, as |e^(i t loss)| = 1
on the real axis, and from above e^(-2 pi (y - eta) / h) times the sum of moduli at height y.
Source: Trefethen & Weideman, SIAM Review 56, 2014.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import log_ndtr

from jaxdp._core.types import Complexes, Index, Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, expm1, log1p

LOW = -8.5  # leftmost node. derived: N(0, 1) has 1e-17 below
REAL_STRIDE = 2  # real nodes and those of bounds are every second one. chosen: errors below 1e-6
LEGENDRE_NODES = 200  # nodes of a table of erfc. chosen: 1e-15 for every height in use


class Nodes:
    """Nodes x + i eta with the logarithms of smooth cuts at every node, as constants."""

    def __init__(self, size: int, step: float, width: float, block: int, heights: tuple):
        """`heights[0]` is eta, the others serve bounds; the cut falls within about 3 `width`."""
        self.size, self.step, self.width, self.block = size, step, width, block
        self.x = LOW + step * np.arange(size)
        self.height, self.heights = heights[0], np.asarray(heights)
        distance = step * np.arange(1 - size, size)
        levels = np.asarray((*heights, 0.0))[:, None]
        # Rows: heights, then the real axis. Below the cut log erfc(x) / 2, above log erfc(-x) / 2.
        z = (distance + 1j * levels) / width
        self.below, self.above = _log_half_erfc(z), _log_half_erfc(-z)

    def __hash__(self) -> int:
        return id(self)

    def nearest(self, x: Reals) -> Index:
        """Index of the node nearest to x."""
        return jnp.clip(jnp.round((x - LOW) / self.step), 0, self.size - 1).astype(int)

    def cut(self, table: np.ndarray, at: Index) -> Complexes:
        """Rows of `table` along the nodes, for a cut at node `at`."""
        return lax.dynamic_slice_in_dim(jnp.asarray(table), self.size - 1 - at, self.size, 1)


def _log_half_erfc(z: np.ndarray) -> np.ndarray:
    """log(erfc(z) / 2) from erfc(z) = 2 e^(-z^2) / sqrt(pi) int_0^inf e^(-s^2 - 2 z s) ds."""
    side = np.where(np.real(z) < 0, -z, z)
    points, weights = np.polynomial.legendre.leggauss(LEGENDRE_NODES)
    s = 3.5 * (points + 1.0)
    integral = np.exp(-s * s - 2.0 * side[..., None] * s) @ (3.5 * weights)
    small = np.log(integral / np.sqrt(np.pi)) - side * side
    return np.where(np.real(z) < 0, np.log1p(-np.exp(small)), small)


# step, heights: derived: e^(-2 pi .9 / .19) = 1e-13 and as much above for sigma >= .6
LIGHT = Nodes(128, 0.19, 0.5, 16, (0.9, 0.35, 0.6, 1.3, 1.8))
# derived: e^(-2 pi .5 / .09) = 1e-15, the same above for sigma >= .5; a narrow cut
FULL = Nodes(256, 0.09, 0.25, 32, (0.5, 0.12, 0.25, 1.0, 1.5))
# The same with four times the points of a line, for lanes whose terms fall slowly.
LONG = Nodes(256, 0.09, 0.25, 64, (0.5, 0.12, 0.25, 1.0, 1.5))


class Law(NamedTuple):
    """Losses and log weights of nodes: sum e^(log_weight + z loss) is the expectation."""

    loss: Reals | Complexes
    log_weight: Reals | Complexes


def law(sigma: Reals, q: Reals, sign: Reals, x: Reals | Complexes, step: float) -> Law:
    """One release on nodes `x` a `step` apart; sign is 1 for "remove", -1 for "add"."""
    ratio = log1p(q * expm1(sign * x / sigma - 0.5 / (sigma * sigma)))
    log_weight = -0.5 * x * x - LOG_SQRT_2PI + np.log(step)
    return Law(sign * ratio, log_weight + jnp.where(sign > 0, ratio, 0.0))


def log_tail(sigma: Reals, q: Reals, sign: Reals, tilt: Reals, start: float) -> Reals:
    """Upper bound of log E[e^(tilt loss); x > start], by the steepest tangent of the loss."""
    u = sign * start / sigma - 0.5 / (sigma * sigma)
    ratio = log1p(q * expm1(u))
    slope = jnp.where(sign > 0, 1.0, q * jnp.exp(u - ratio)) / sigma
    power = tilt + jnp.where(sign > 0, 1.0, 0.0)
    rate = power * slope
    return power * sign * ratio - rate * start + 0.5 * rate * rate + log_ndtr(rate - start)
