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

from jaxdp._numeric.elementary import log1p
from jaxdp._types import Reals
from jaxdp.noise.base import Noise

# Of one piece, odd and with its middle: every second point is a rule of its own.
_POINTS = 97
_REACH = 3.1
# Of the window: kinks may leave a piece that is too long for its points.
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# -log of the share of the largest integrand from which on it is looked at.
_DEPTH = 60.0
# In widths of the noise, from the mode of every component.
_OFFSETS = np.exp(np.linspace(np.log(0.05), np.log(6e3), 56))

_LATTICE = np.linspace(-_REACH, _REACH, _POINTS)
_SINH = 0.5 * np.pi * np.sinh(_LATTICE)
UNIT = 1.0 / (1.0 + np.exp(-2.0 * _SINH))
WEIGHT = (_LATTICE[1] - _LATTICE[0]) * 0.25 * np.pi * np.cosh(_LATTICE) / np.cosh(_SINH) ** 2


class Pieces(NamedTuple):
    """A noise, its shift and the sampling probability: arrays of one shape."""

    noise: Noise
    shift: Reals
    sampling_prob: Reals
    sides: tuple[float, ...]  # of the components that are shifted: 1, and -1 if replaced

    @property
    def size(self) -> int:
        """The number of points of `points`."""
        return _POINTS * (len(_SHARES) + len(self.noise.kinks()) * (1 + len(self.sides)))

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
        kinks = [jnp.broadcast_to(kink, self.shift.shape) for kink in self.noise.kinks()]
        kinks += [kink + side * self.shift for kink in kinks for side in self.sides]
        inside = jnp.clip(jnp.stack(kinks, axis=-1), low[..., None], high[..., None])
        shares = jnp.asarray(_SHARES)[(None,) * low.ndim]
        even = low[..., None] + shares * (high - low)[..., None]
        edges = jnp.concatenate([even, inside], axis=-1)
        start, other = edges[..., :, None], edges[..., None, :]
        following = jnp.min(jnp.where(other > start, other, jnp.inf), axis=-1)
        # Of equal edges one counts.
        again = jnp.any(jnp.triu(start == other, 1), axis=-1)
        return edges, jnp.where(again | jnp.isinf(following), 0.0, following - edges)

    def around(self, centre: Reals) -> Reals:
        """Points on both sides of `centre`, far and near, along a new last axis."""
        width = jnp.exp(-self.noise.log_density(jnp.zeros_like(centre)))[..., None]
        offsets = np.concatenate([-_OFFSETS[::-1], [0.0], _OFFSETS])
        return centre[..., None] + width * jnp.asarray(offsets)[(None,) * centre.ndim]

    def points(self, powers: tuple[Reals, ...]) -> tuple[Reals, Reals]:
        """Where g0 A+^u A-^v matters, for powers (u, v), and the weights: the rule on all pieces.

        (*batch, pieces * points).
        """
        centres = [jnp.zeros_like(self.shift), *(side * self.shift for side in self.sides)]
        x = jnp.concatenate([self.around(centre) for centre in centres], axis=-1)
        centre, logs = self.along().log_ratios(x)
        height = centre + dot(powers, logs)
        low, high = jax.lax.optimization_barrier(window_of(x, height))
        start, length = self.between(low, high)
        unit, weight = (jnp.asarray(c)[(None,) * start.ndim] for c in (UNIT, WEIGHT))
        points = start[..., None] + length[..., None] * unit
        flat = (*points.shape[:-2], -1)
        return points.reshape(flat), (length[..., None] * weight).reshape(flat)


def window_of(x: Reals, height: Reals) -> tuple[Reals, Reals]:
    """Outside of it exp(height) is negligible: from point to point, along the last axis."""
    kept = height > jnp.max(height, axis=-1, keepdims=True) - _DEPTH
    first = jnp.min(jnp.where(kept, x, jnp.inf), axis=-1, keepdims=True)
    last = jnp.max(jnp.where(kept, x, -jnp.inf), axis=-1, keepdims=True)
    before = jnp.max(jnp.where(x < first, x, -jnp.inf), axis=-1)
    after = jnp.min(jnp.where(x > last, x, jnp.inf), axis=-1)
    low = jnp.where(jnp.isfinite(before), before, first[..., 0])
    return low, jnp.where(jnp.isfinite(after), after, last[..., 0])


def dot(powers: tuple[Reals, ...], logs: tuple[Reals, ...]) -> Reals:
    """log(A+^u A-^v)."""
    total = powers[0][..., None] * logs[0]
    for power, log in zip(powers[1:], logs[1:], strict=True):
        total = total + power[..., None] * log
    return total


def halved(terms: Reals) -> Reals:
    """The sum over every second point, doubled, of terms (*batch, pieces * points)."""
    return 2.0 * jnp.sum(terms.reshape(*terms.shape[:-1], -1, _POINTS)[..., ::2], axis=(-2, -1))


def log_mixed(loss: Reals, q: Reals) -> Reals:
    """log(1 - q + q e^loss)."""
    near, up = jnp.abs(loss) < 1.0, loss > 0
    small = log1p(q * jnp.expm1(jnp.where(near, loss, 0.0)))
    fall = jnp.exp(-jnp.abs(jnp.where(near, 1.0, loss)))
    high = loss + jnp.log(q + (1.0 - q) * fall)
    low = jnp.where(q < 1, jnp.log(jnp.where(q < 1, 1.0 - q + q * fall, 1.0)), loss)
    return jnp.where(near, small, jnp.where(up, high, low))
