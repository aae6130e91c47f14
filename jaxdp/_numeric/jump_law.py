"""The loss of one sampled Gaussian release on nodes that are dense between two sizes of it.

c = shift / scale; x is standard normal under the law without the record, the loss
L(x) = log(1 - q + q e^(c x - c^2 / 2)), and its law the mixture's, of density e^L times normal.
The nodes are equally far apart in a coordinate that is analytic in x, where the trapezoidal rule
converges geometrically.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid, softplus

from jaxdp._numeric.elementary import LOG_SQRT_2PI, log1p
from jaxdp._numeric.sampled_nodes import loss_at
from jaxdp._types import Bools, Index, Reals

_NODES, _FEW_NODES = 1536, 128
# exp(-9.5^2 / 2) = 2.5e-20: what lies below.
_LOWEST = -9.5
# Half its square is -log of what lies above the last node, over what lies above the largest.
_MARGIN = 9.0
# Of nodes, in x, outside of both sizes; the most of all nodes that are spent on that.
_FAR, _MOST_FAR = 0.225, 0.6
# More of them, so many times, where the losses are largest: over so many scales.
_MORE, _TOP = 2.0, 3.0
# Of the ends of where they are denser, in x: the branch points' distance over pi.
_SOFT = 0.4
# Where the coordinate is known before Newton's method inverts it.
_KNOTS, _NEWTON_STEPS = 257, 6
# In units of the distance of nodes: what it may leave; and what the nodes may miss of the mass.
_INVERTED, _MISSED = 1e-9, 2e-13
# e^loss that is as good as e^loss - 1, and log(1 + e^-40) as e^-40.
_LARGE, _SMALL = 50.0, -40.0


class JumpLaw(NamedTuple):
    """Of one release: the first three along a new last axis."""

    loss: Reals
    log_weight: Reals
    spacing: Reals  # of the losses
    log_rest: Reals  # log of a bound on the probability of what lies above the last node
    resolved: Bools
    place: "_Place"
    step: Reals  # of `place`

    def spacing_at(self, loss: Reals) -> Reals:
        """Of nodes, in log L, at losses > 0 along a new last axis."""
        c, q = self.place.c[..., None], self.place.q[..., None]
        x = point_of(c, q, loss)
        return self.step[..., None] / self.place.slope(x) * _slope(x, loss, c, q) / loss


def point_of(c: Reals, q: Reals, loss: Reals) -> Reals:
    """The x of a loss > 0."""
    large = loss > _LARGE
    exponent = log1p(jnp.expm1(jnp.where(large, 0.0, loss)) / q)
    return jnp.where(large, loss - jnp.log(q), exponent) / c + 0.5 * c


def _slope(x: Reals, loss: Reals, c: Reals, q: Reals) -> Reals:
    return c * q * jnp.exp(c * (x - 0.5 * c) - loss)


def steepness(c: Reals, q: Reals, loss: Reals) -> Reals:
    """How fast the density falls with log L at `loss`: minus its logarithm's slope."""
    x = point_of(c, q, loss)
    return x * loss / _slope(x, loss, c, q)


def jump_law(c: Reals, q: Reals, lowest: Reals, largest: Reals, scale: Reals) -> JumpLaw:
    """Nodes mostly between two losses > 0, densest within a few `scale` of log L of the larger.

    c > 0, 0 < q < 1, all of one shape.
    """
    top = point_of(c, q, largest)
    highest = jnp.maximum(c + jnp.hypot(jnp.maximum(top - c, 0.0), _MARGIN), top)
    place = _Place.of_losses(c, q, (lowest, largest), scale, highest - _LOWEST)
    x, step, inverted = _equally_far(place, jnp.full_like(c, _LOWEST), highest)
    width = step[..., None] / place.slope(x)
    loss = loss_at(x, c[..., None], q[..., None])
    log_weight = loss - 0.5 * x * x - LOG_SQRT_2PI + jnp.log(width)
    # Under either law.
    masses = jnp.sum(jnp.exp(jnp.stack([log_weight, log_weight - loss])), axis=-1)
    whole = jnp.all(jnp.abs(masses - 1.0) < _MISSED, axis=0)
    above = highest - c
    tails = [jnp.log(p) - 0.5 * y * y - jnp.log(y) for p, y in ((q, above), (1.0 - q, highest))]
    return JumpLaw(
        loss,
        log_weight,
        _slope(x, loss, c[..., None], q[..., None]) * width,
        jnp.logaddexp(*tails) - LOG_SQRT_2PI,
        whole & inverted,
        place,
        step,
    )


class _Place(NamedTuple):
    """A coordinate that rises with x, about by 1 from node to node."""

    c: Reals
    q: Reals
    low: Reals  # logarithms of losses
    high: Reals
    scale: Reals
    far: Reals  # the distance of nodes, in x, outside of these losses
    more: Reals  # nodes in between, to one of log L

    @staticmethod
    def of_losses(
        c: Reals, q: Reals, ends: tuple[Reals, Reals], scale: Reals, length: Reals
    ) -> "_Place":
        """`length`: of all x."""
        low, high = jnp.log(ends[0]), jnp.log(ends[1])
        far = jnp.maximum(_FAR, length / (_MOST_FAR * _NODES))
        more = (_NODES - length / far) / (high - low + _MORE * _TOP * scale)
        return _Place(c, q, low, high, scale, far, more)

    def of(self, x: Reals) -> Reals:
        softness = self._softness()
        inside = softness * self._rises(softplus, self._log_size(x)[0], softness)
        return x / self.far[..., None] + inside * self.more[..., None]

    def slope(self, x: Reals) -> Reals:
        log_size, steep = self._log_size(x)
        inside = self._rises(sigmoid, log_size, self._softness())
        return 1.0 / self.far[..., None] + inside * steep * self.more[..., None]

    def _softness(self) -> Reals:
        """Of the ends, in log L: beside it the nodes outside must not be far apart."""
        return jnp.maximum(self.scale, _SOFT * self.c)[..., None]

    def _rises(self, rise: Callable[[Reals], Reals], log_size: Reals, softness: Reals) -> Reals:
        low, high, scale = (y[..., None] for y in (self.low, self.high, self.scale))
        below, middle, above = (
            rise((log_size - end) / softness) for end in (low, high - _TOP * scale, high)
        )
        return below + _MORE * middle - (1.0 + _MORE) * above

    def _log_size(self, x: Reals) -> tuple[Reals, Reals]:
        """log(L - log(1 - q)), which is defined and analytic everywhere, and its slope."""
        c, q = self.c[..., None], self.q[..., None]
        logit = c * (x - 0.5 * c) + jnp.log(q) - jnp.log1p(-q)
        # Far below 0 it is the exponential.
        size = jnp.maximum(logit, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(logit)))
        small = logit < _SMALL
        log_size = jnp.where(small, logit, jnp.log(jnp.where(small, 1.0, size)))
        share = jnp.where(small, 1.0, sigmoid(logit) / jnp.where(small, 1.0, size))
        return log_size, c * share


def _equally_far(place: _Place, low: Reals, high: Reals) -> tuple[Reals, Reals, Bools]:
    """Points (..., nodes) at equal distances in `place`, that distance, and whether they are."""

    def shares(number: int) -> Reals:
        return jnp.linspace(0.0, 1.0, number)[(None,) * low.ndim]

    ends = place.of(jnp.stack([low, high], axis=-1))
    first, length = ends[..., :1], ends[..., 1:] - ends[..., :1]
    x = low[..., None] + (high - low)[..., None] * shares(_KNOTS)
    for number in (_KNOTS, _NODES):
        wanted = first + length * shares(number)
        x = _interpolated(wanted, place.of(x), x)

    def nearer(_: Index | int, x: Reals) -> Reals:
        return x - (place.of(x) - wanted) / place.slope(x)

    x = lax.fori_loop(0, _NEWTON_STEPS, nearer, x)
    off = jnp.max(jnp.abs(place.of(x) - wanted), axis=-1)
    return x, length[..., 0] / (_NODES - 1), off < _INVERTED


_interpolated = jnp.vectorize(jnp.interp, signature="(n),(k),(k)->(n)")


def moments_below(c: Reals, q: Reals, loss: Reals) -> tuple[Reals, Reals]:
    """About E[L; L < loss] and E[L^2; L < loss]: what a release adds that is not a large loss."""
    share = ((jnp.arange(_FEW_NODES) + 0.5) / _FEW_NODES)[(None,) * c.ndim]
    length = (c - 2.0 * _LOWEST)[..., None]
    x = _LOWEST + length * share
    each = loss_at(x, c[..., None], q[..., None])
    weight = jnp.exp(each - 0.5 * x * x - LOG_SQRT_2PI) * length / _FEW_NODES
    below = jnp.where(each < loss[..., None], weight * each, 0.0)
    return jnp.sum(below, axis=-1), jnp.sum(below * each, axis=-1)
