"""Moments of the Poisson-sampled Gaussian's likelihood ratio, along a vertical line.

G(w) of `sampled_gaussian` at w = w0 + it, t >= 0: the rule runs along Im x = y, 0 < y < pi / c,
where e^(itL) decays instead of oscillating. The shifted line is ours.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid

from jaxdp._numeric.circular import sine_cosine
from jaxdp._numeric.elementary import expm1, log1p
from jaxdp._numeric.node_blocks import Blocks
from jaxdp._numeric.off_axis import Angle, log_mixture
from jaxdp._numeric.sampled_nodes import DIGITS, LEAST, Span, if_always_hit, log_top
from jaxdp._numeric.turning import Pair, Turned, excess_at, kept
from jaxdp._types import Bools, Complexes, Index, Indices, Reals

# Beyond it the terms that cancel are too large.
_LARGEST_SHIFT = 2.0
# Nats that the terms may be larger than their sum.
_GROWTH = 3.0
# x above which little of the mass lies.
_USUAL = 3.0
# Of hits told apart: how many standard deviations and nats from the others; in half turns of that,
# before which |phi| does not come back up.
_APART, _LEAST_DISTANCE, _FIRST = 3.0, 2.0, 1.5


class TiltedGaussian(NamedTuple):
    """The law tilted by e^(w0 L) on nodes x + iy, for a line w0 + i k step: of one shape."""

    at: "_Where"
    q: Reals
    blocks: Blocks
    resolved: Bools

    @staticmethod
    def of(c: Reals, q: Reals, w0: Reals, step: Reals) -> "TiltedGaussian":
        """As many nodes as the rule needs to be exact to 1.7e-15."""
        # Nodes for a law that has both, where a closed form serves.
        sometimes = jnp.where(q == 1, 0.5, q)
        fixed = lax.stop_gradient((c, sometimes, w0))
        span, y, longest = _contour(*fixed)
        blocks = Blocks.of(span.low, span.length, longest)
        resolved = (blocks.step <= (1.0 + 1e-12) * longest) | (q == 1)
        at = _Where.of(c, sometimes, w0, step, y, log_top(*fixed))
        return TiltedGaussian(at, q, blocks, resolved)

    def excess(self, indices: Indices) -> Complexes:
        """G(w0 + i k step) / G(w0) - 1 for consecutive k, along a new last axis; NaN if lost."""
        excess, mass = self.blocks.total(_part_of_excess, self.at, indices)
        usable = self.resolved & (mass > LEAST)
        excess = excess / jnp.where(usable, mass, jnp.nan)[..., None]
        always = self.q == 1

        def some_always_hit() -> Complexes:
            return jnp.where(always[..., None], self._if_always_hit(indices), excess)

        # Its exponentials would cost as much as the sums.
        return lax.cond(jnp.any(always), some_always_hit, lambda: excess)

    def _if_always_hit(self, indices: Indices) -> Complexes:
        c, q, w0, step = (x[..., None] for x in (self.at.c, self.q, self.at.w0, self.at.step))
        height = step * indices[(None,) * self.at.c.ndim]
        w = lax.complex(jnp.broadcast_to(w0, height.shape), height)
        return expm1(if_always_hit(c, q, w) - if_always_hit(c, q, w0))


class _Where(NamedTuple):
    """A line: of the nodes' integrand, but for x."""

    c: Reals
    q: Reals
    w0: Reals
    step: Reals
    y: Reals
    log_scale: Reals  # about the logarithm of the largest e^(w0 L) times the density
    angle: Angle  # c y

    @staticmethod
    def of(c: Reals, q: Reals, w0: Reals, step: Reals, y: Reals, log_scale: Reals) -> "_Where":
        return _Where(c, q, w0, step, y, log_scale, Angle.of(c * y))


def nodes_needed(c: Reals, q: Reals, w0: Reals) -> Reals:
    """By which lanes that take about as long may be found."""
    span, _, longest = _contour(c, q, w0)
    return span.length / longest


def falling(c: Reals, q: Reals, w0: Reals, height: Reals, risen: Complexes) -> Reals:
    """log of a bound on |G(w0 + it)| / G(w0) from t = height on, where it is e^risen.

    Hits, whose loss is normal under the tilted law, may be told apart: |phi| is at most the sum of
    what it is without them and of that of hits alone, which both fall.
    """
    log_odds, square = jnp.log(q) - jnp.log1p(-q), c * c
    loss = jnp.log(q) + square * (w0 - 0.5)
    distance = loss - log1p(q * jnp.expm1(-0.5 * square))
    apart = (distance > jnp.maximum(_APART * c, _LEAST_DISTANCE)) & (q < 1)
    hit = sigmoid(w0 * log_odds + 0.5 * square * w0 * (w0 - 1.0))
    first = jnp.maximum(height, _FIRST * jnp.pi / jnp.where(apart, distance, 1.0))
    now, then = (hit * jnp.exp(-0.5 * (c * t) ** 2) for t in (height, first))
    angle = height * loss - jnp.imag(risen)
    known = jnp.exp(jnp.real(risen))
    # |e^risen - hits| by the law of cosines.
    others = (known - now) ** 2 + 4.0 * known * now * jnp.sin(0.5 * angle) ** 2
    return jnp.where(apart, jnp.log(jnp.sqrt(others) + then), jnp.real(risen))


def _contour(c: Reals, q: Reals, w0: Reals) -> tuple[Span, Reals, Reals]:
    """Along Im x = y, and the longest step there: within e^3 of G over the strip to Im x = 2 y."""
    y = jnp.where(w0 < 0, shift_of_negative(c, q, w0), 0.5 * jnp.pi / c)
    y = jnp.minimum(y, _LARGEST_SHIFT)
    longest = 2.0 * jnp.pi / DIGITS * jnp.minimum(y, jnp.pi / c - y)
    return Span.of(c, q, w0, w0), y, longest


def shift_of_negative(c: Reals, q: Reals, w0: Reals) -> Reals:
    """For w0 < 0 the integrand grows away from the real axis.

    Where most of the mass is like exp(|w0| L'' y^2 / 2); beyond a quarter turn also where
    |1 - q + q e^(i c y) r| is least, at r = -cos(c y) (1 - q) / q: sin(c y) (1 - q).
    """
    # L'' is largest where hits and misses are as likely.
    hit = jnp.minimum(q * jnp.exp(c * (_USUAL - 0.5 * c)), 1.0 - q)
    both = jnp.maximum(1.0 - q + hit, jnp.finfo(q.dtype).tiny)
    bend = c * c * (hit / both) * ((1.0 - q) / both)
    wide = jnp.minimum(0.4 * jnp.pi / c, _LARGEST_SHIFT)
    wide = jnp.minimum(wide, 2.0 / jnp.sqrt(jnp.maximum(-w0 * bend, 1e-6)))
    turn = 2.0 * c * wide
    far = turn > 0.5 * jnp.pi
    least = jnp.where(far, -jnp.cos(turn), 1.0)
    x = (jnp.log(least) + jnp.log1p(-q) - jnp.log(q) + 0.5 * c * c) / c
    growth = w0 * jnp.log(jnp.where(far, jnp.sin(turn), 1.0))
    below = growth <= 0.5 * jnp.maximum(x, 0.0) ** 2 + _GROWTH
    return jnp.where(below, wide, jnp.minimum(wide, 0.25 * jnp.pi / c))


def _part_of_excess(
    x: Reals, index: Index, where: _Where, indices: Indices
) -> tuple[Complexes, Reals]:
    at: _Where = jax.tree.map(lambda part: part[..., None], where)
    # e^(c x) is real and the angle the same for all x.
    loss = kept(lambda: log_mixture(at.c * (x - 0.5 * at.c), at.angle, at.q), index)

    def tilted() -> Pair:
        exponent = at.w0 * loss.real - 0.5 * (x * x - at.y * at.y) - at.log_scale
        sine, cosine = sine_cosine(at.w0 * loss.imag - x * at.y)
        size = jnp.exp(exponent)
        return Pair(size * cosine, size * sine)

    weight = kept(tilted, index)
    turned = Turned.of(weight, loss, at.step, index)
    return excess_at(turned, indices), jnp.sum(weight.real, axis=-1)
