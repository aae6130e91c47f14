"""Moments of a Poisson-sampled Gaussian whose record is replaced: on the real axis and off it.

With x standard normal, c = shift / scale and A+- = 1 - q + q e^(+-c x - c^2 / 2) the loss is
L = log A+ - log A-, and its cumulant is log E[A+^(1 + z) A-^-z], the same at -1 - z. Both ratios
are analytic for |Im x| < pi / c: as in `sampled_gaussian` and, off the axis, `sampled_line`, the
trapezoidal rule converges geometrically.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._numeric.elementary import LOG_SQRT_2PI, expm1, expm1_minus, log1p
from jaxdp._numeric.node_blocks import Blocks
from jaxdp._numeric.off_axis import Angle, log_mixture
from jaxdp._numeric.sampled_line import shift_of_negative
from jaxdp._numeric.sampled_nodes import DIGITS, LEAST, Span, bound_of, bounded, loss_at
from jaxdp._numeric.turning import Pair, Turned, excess_at, kept
from jaxdp._types import Bools, Complexes, Index, Indices, Reals, RealsOrComplexes

# Beyond it the terms that cancel are too large.
_LARGEST_SHIFT = 2.0
# Nats from which on a scale is taken out; of the look for the largest term.
_LARGE, _LOOKS = 30.0, 129


class _Contour(NamedTuple):
    """The nodes' line Im x = y, which is 0 on the axis, and what a rule on it needs."""

    span: Span
    y: Reals
    longest: Reals

    @staticmethod
    def of(c: Reals, q: Reals, theta: Reals) -> "_Contour":
        """Where A-^-theta grows away from the axis it is kept within e^3, as `sampled_line` does.

        There A- is that of x mirrored, where it counts for less.
        """
        y = jnp.minimum(0.5 * jnp.pi / c, _LARGEST_SHIFT)
        falling = jnp.where(theta > 0, -theta, -1.0)
        y = jnp.where(theta > 0, jnp.minimum(y, shift_of_negative(c, q, falling)), y)
        longest = 2.0 * jnp.pi / DIGITS * jnp.minimum(y, jnp.pi / c - y)
        ahead = Span.of(c, q, jnp.zeros_like(theta), 1.0 + theta)
        # -theta log A- rises as well, at x > 0 no faster than at 0; E(A- - 1) lives near -c.
        hit = q * jnp.exp(-0.5 * c * c)
        more = c * jnp.maximum(theta, 0.0) * hit / (1.0 - q + hit)
        return _Contour(Span(ahead.low - 2.0 * c, ahead.length + 2.0 * c + more), y, longest)

    def blocks(self) -> Blocks:
        return Blocks.of(self.span.low, self.span.length, self.longest)

    def resolved(self, blocks: Blocks) -> Bools:
        return blocks.step <= (1.0 + 1e-12) * self.longest


def log_moment(c: Reals, q: Reals, z: Reals) -> Reals:
    """K(z), real z, arguments of one shape. Error: about 1e-15 (|K| + sqrt |K|).

    Where it takes more than 4,096 nodes log(1 - q + q e^(2 z (1 + z) c^2)), by convexity.
    """
    theta = jnp.maximum(z, -1.0 - z)
    nothing, always = (q == 0) | (c == 0), q == 1
    safe_q = jnp.where(nothing | always, 0.5, q)
    safe_c = jnp.where(nothing, 1.0, c)
    fixed = lax.stop_gradient((safe_c, safe_q, theta))
    contour = _Contour.of(*fixed)
    blocks, scale = contour.blocks(), _scale(contour.span, *fixed)
    arguments = safe_c, safe_q, theta, scale
    total = blocks.total(_part_of_mean, *arguments) * blocks.step
    far = scale > 0
    usable = contour.resolved(blocks) & (total < jnp.inf) & (total > jnp.where(far, LEAST, -1.0))
    scaled = scale + jnp.log(jnp.where(usable & far, total, 1.0))
    value = jnp.where(far, scaled, log1p(jnp.where(usable & ~far, total, 0.0)))
    # Not for a batch that is always hit: its bound has the derivative of a mixture.
    bound = bound_of(2.0 * safe_c, safe_q, 1.0 + theta)
    value = jnp.where(usable, value, bound)
    value = jnp.where(always, _if_always_hit(c, q, z), jnp.where(nothing, 0.0, value))
    # 0 at both ends, with the slopes that are the divergences of order 1.
    end = (z == 0) | (z == -1.0)
    return jnp.where(end, value - lax.stop_gradient(value), value) + 0.0 * (c + q + z)


def _scale(span: Span, c: Reals, q: Reals, theta: Reals) -> Reals:
    """About the logarithm of the largest term, where that is large."""
    x = span.points(_LOOKS)
    c, q, theta = (v[..., None] for v in (c, q, theta))
    exponent = (1.0 + theta) * loss_at(x, c, q) - theta * loss_at(-x, c, q) - 0.5 * x * x
    top = jnp.max(exponent, axis=-1)
    return jnp.where(top > _LARGE, top, 0.0)


def _part_of_mean(
    x: Reals, _: Index | int, c: Reals, q: Reals, theta: Reals, scale: Reals
) -> Reals:
    """The sum of e^T - 1 times the density, T = (1 + theta) log A+ - theta log A-.

    With a scale, of e^(T - scale). E(A+- - 1) = 0: without these the terms are of second order.
    """
    c, q, theta, scale = (v[..., None] for v in (c, q, theta, scale))
    ahead, behind = loss_at(x, c, q), loss_at(-x, c, q)
    tilted, log_weight = (1.0 + theta) * ahead - theta * behind, -0.5 * x * x - LOG_SQRT_2PI
    grown = jnp.exp(tilted + log_weight - scale)
    plain = (scale == 0) & (c < 2.0)
    weight = jnp.where(scale == 0, jnp.exp(log_weight), 0.0)
    near = plain & (jnp.abs(tilted) < 1.0) & (jnp.maximum(ahead, behind) < 1.0)
    first, second, third = (expm1_minus(jnp.where(near, v, 0.0)) for v in (tilted, ahead, behind))
    small = weight * (first - (1.0 + theta) * second + theta * third)
    free = (1.0 + theta) * jnp.expm1(jnp.where(plain, ahead, 0.0))
    free -= theta * jnp.expm1(jnp.where(plain, behind, 0.0))
    return jnp.sum(jnp.where(near, small, grown - weight - weight * free), axis=-1)


class TiltedPair(NamedTuple):
    """The law tilted by e^(theta L) on nodes x + iy, for a line theta + i k step: of one shape."""

    at: "_Where"
    q: Reals
    blocks: Blocks
    resolved: Bools

    @staticmethod
    def of(c: Reals, q: Reals, theta: Reals, step: Reals) -> "TiltedPair":
        """As many nodes as the rule needs to be exact to 1.7e-15; theta > -1, c > 0."""
        always = q == 1
        sometimes = jnp.where(always, 0.5, q)
        fixed = lax.stop_gradient((c, sometimes, theta))
        contour = _Contour.of(*fixed)
        blocks = contour.blocks()
        scale = _scale(contour.span, *fixed)
        at = _Where(c, sometimes, theta, step, contour.y, scale, Angle.of(c * contour.y))
        return TiltedPair(at, q, blocks, contour.resolved(blocks) | always)

    def excess(self, indices: Indices) -> Complexes:
        """M(theta + i k step) / M(theta) - 1 for consecutive k, a new last axis; NaN if lost."""
        excess, mass = self.blocks.total(_part_of_excess, self.at, indices)
        usable = self.resolved & (mass > LEAST)
        excess = excess / jnp.where(usable, mass, jnp.nan)[..., None]
        c, q, theta, step = (v[..., None] for v in (self.at.c, self.q, self.at.theta, self.at.step))
        height = step * indices[(None,) * self.at.c.ndim]
        z = lax.complex(jnp.broadcast_to(theta, height.shape), height)
        always = expm1(_if_always_hit(c, q, z) - _if_always_hit(c, q, theta))
        return jnp.where(q == 1, always, excess)


class _Where(NamedTuple):
    """A line: of the nodes' integrand, but for x."""

    c: Reals
    q: Reals
    theta: Reals
    step: Reals
    y: Reals
    log_scale: Reals
    angle: Angle  # c y


def _part_of_excess(
    x: Reals, index: Index, where: _Where, indices: Indices
) -> tuple[Complexes, Reals]:
    at: _Where = jax.tree.map(lambda part: part[..., None], where)

    def losses() -> tuple[Pair, Pair]:
        ahead = log_mixture(at.c * (x - 0.5 * at.c), at.angle, at.q)
        # Of the conjugate.
        behind = log_mixture(-at.c * (x + 0.5 * at.c), at.angle, at.q)
        return ahead, Pair(behind.real, -behind.imag)

    ahead, behind = kept(losses, index)

    def tilted() -> Pair:
        real, imag = (
            (1.0 + at.theta) * a - at.theta * b for a, b in zip(ahead, behind, strict=True)
        )
        sine, cosine = sine_cosine(imag - x * at.y)
        size = jnp.exp(real - 0.5 * (x * x - at.y * at.y) - at.log_scale)
        return Pair(size * cosine, size * sine)

    weight = kept(tilted, index)
    loss = Pair(ahead.real - behind.real, ahead.imag - behind.imag)
    turned = Turned.of(weight, loss, at.step, index)
    return excess_at(turned, indices), jnp.sum(weight.real, axis=-1)


def _if_always_hit(c: Reals, q: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """2 z (1 + z) c^2 for q = 1, with its derivative in q."""
    square, w = 2.0 * c * c, 1.0 + z
    slope = 1.0 - w * jnp.exp(bounded(-square * z)) + z * jnp.exp(bounded(square * w))
    return square * z * w + (q - lax.stop_gradient(q)) * slope
