"""Moments of the Poisson-sampled Gaussian's likelihood ratio, along a shifted line.

With x standard normal and c = shift / scale the ratio of (1 - q) N(0, 1) + q N(c, 1) to N(0, 1)
is e^L(x), L(x) = log(1 - q + q e^(c x - c^2 / 2)), and both directions of the loss have their
cumulants from G(w) = E e^(w L): log G(1 + z) for P the mixture, log G(-z) for Q the mixture.
The integrand is analytic for |Im x| < pi / c, so the trapezoidal rule converges geometrically; for
complex w = w0 + it, t > 0, it runs along Im x = y, where e^(itL) decays instead of oscillating.
Source: Trefethen & Weideman, SIAM Review 56, 2014 (the rule); the shifted line is ours.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid

from jaxdp._numeric.circular import angle_of, sine_cosine
from jaxdp._numeric.elementary import LOG_SQRT_2PI, log1p
from jaxdp._numeric.turning import Nodes
from jaxdp._types import Bools, Index, Reals

# exp(-9.5^2 / 2) = 2.5e-20: what lies beyond, on either side.
_REACH = 9.5
_ITERATIONS, _LOOKS = 6, 16
_NEGLIGIBLE = 50.0
# exp(-34) = 1.7e-15: the geometric error of the rule.
_DIGITS = 34.0
# Of a guess.
_LOOSE_REACH, _LOOSE = 6.0, 0.01
_LARGEST_SHIFT = 1.5
# That resolve most laws on the real axis.
_USUAL_NODES = 96
# x above which little of the mass lies.
_USUAL = 3.0
# e^exponent that is as good as the whole loss, and does not overflow.
_LARGE = 30.0


def loss_at(x: Reals, c: Reals, q: Reals) -> Reals:
    """L(x), of arguments of shapes that broadcast: a few ulp of it, and of 1e-16 q near 0."""
    exponent = c * (x - 0.5 * c)
    large = exponent > _LARGE
    near = log1p(q * jnp.expm1(jnp.where(large, 0.0, exponent)))
    far = exponent + jnp.log(q + (1.0 - q) * jnp.exp(-jnp.where(large, exponent, 1.0)))
    return jnp.where(large, far, near)


def _loss_above(x: Reals, angle: Reals, c: Reals, q: Reals) -> tuple[Reals, Reals]:
    """Real and imaginary part of L(x + i angle / c), 0 <= angle <= pi / 2.

    e^(c x) is real and the angle the same for all x: complex functions cost three times as much.
    """
    exponent = c * (x - 0.5 * c)
    large = exponent > _LARGE
    near = jnp.where(large, 0.0, exponent)
    cosine, sine, versine = jnp.cos(angle), jnp.sin(angle), 2.0 * jnp.sin(0.5 * angle) ** 2
    ratio = jnp.exp(jnp.where(large, -exponent, exponent))
    turned = jnp.where(large, q, 1.0 - q) + jnp.where(large, 1.0 - q, q) * ratio * cosine
    height = jnp.where(large, q - 1.0, q) * ratio * sine
    # |.|^2 - 1, without the rounding of the sum, where that is small.
    excess = q * (jnp.expm1(near) * cosine - versine)
    square = excess * (2.0 + excess) + height * height
    small = (jnp.abs(square) <= 0.5) & ~large
    modulus = jnp.log(jnp.where(small, 1.0, jnp.hypot(turned, height)))
    modulus = jnp.where(small, 0.5 * log1p(jnp.where(small, square, 0.0)), modulus)
    phase = angle_of(height, turned)
    return jnp.where(large, exponent, 0.0) + modulus, jnp.where(large, angle, 0.0) + phase


class _Span(NamedTuple):
    """Where e^(w L) - 1 - w (e^L - 1) times the normal density lives."""

    low: Reals
    length: Reals

    @staticmethod
    def of(c: Reals, q: Reals, least: Reals, most: Reals) -> "_Span":
        """For every w from `least` to `most`."""
        hit = q * jnp.exp(-0.5 * c * c)
        # The mode solves x = w L'(x), with L' below its value at 0 for w < 0.
        low = c * jnp.minimum(least, 0.0) * hit / (1.0 - q + hit) - _REACH
        return _Span(low, _highest(c, q, jnp.maximum(most, 0.0)) - low)

    def points(self, nodes: int) -> Reals:
        """The middles of steps of equal length, along a new last axis."""
        index = jnp.arange(nodes)[(None,) * self.low.ndim]
        return self.low[..., None] + (self.length / nodes)[..., None] * (index + 0.5)


def _highest(c: Reals, q: Reals, w: Reals) -> Reals:
    """An x beyond which e^-45 of the integral lies at most, w >= 0.

    The logarithm of e^(w L) - 1 - w (e^L - 1) rises by less than w L' + 2 L' / L, L' / L less than
    c + 1 / (x - c / 2), and L' = c / (1 + e^(c^2 / 2 - c x) (1 - q) / q) rises with x. Hence the
    integrand falls by 45 nats right below any x >= w L'(x) + 2 c + 10. Iterating the right-hand
    side from its largest value falls towards the largest such x, beyond which the integrand falls
    for good; from 0 it rises to the least, which does if nothing in between is high enough.
    """
    steepest, logit = c * w, jnp.log(q) - jnp.log1p(-q) - 0.5 * c * c

    def further(x: Reals) -> Reals:
        return steepest * sigmoid(c * x + logit) + 2.0 * c + _REACH + 1.0

    def both(_: Index | int, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        return further(ends[0]), further(ends[1])

    ends = steepest + 2.0 * c + _REACH + 1.0, jnp.zeros_like(steepest)
    high, low = lax.fori_loop(0, _ITERATIONS, both, ends)
    low = 1.01 * low
    share = (jnp.arange(_LOOKS + 1) / _LOOKS)[(None,) * low.ndim] ** 2
    x = low[..., None] + (high - low)[..., None] * share
    t = (c[..., None] * x + logit[..., None])[..., 1:]
    # L rises: in between it is less than at the farther end.
    loss = jnp.log1p(-q)[..., None] + jnp.maximum(t, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(t)))
    between = jnp.max(w[..., None] * loss - 0.5 * x[..., :-1] ** 2, axis=-1)
    # The integral is at least of the order of (w q c)^2.
    size = jnp.maximum(w, 1.0) * q * jnp.minimum(c, 1.0)
    negligible = 2.0 * jnp.log(jnp.minimum(size, 1.0)) - _NEGLIGIBLE
    enough = (further(low) <= low) & (low < high) & (between <= negligible)
    return jnp.where(enough, low, high)


def log_moment(c: Reals, q: Reals, w: Reals, nodes: int) -> Reals:
    """log G(w) for real w, arguments of one shape. Error: about 1e-15 (|log G| + sqrt |log G|).

    Where the nodes do not resolve the kink of L (the step, (21 + c w) / nodes or less, above
    0.58 / c) an upper bound, by convexity: (1 - q + q r)^w <= 1 - q + q r^w, or <= 1 for
    0 <= w <= 1.
    """
    span = _Span.of(c, q, w, w)

    def on(nodes: int) -> Reals:
        x, step = span.points(nodes), span.length / nodes
        value = _log_mean(c, w, x, step, loss_at(x, c[..., None], q[..., None]))
        return _resolved_or_bound(c, q, w, step, value)

    enough = jnp.all(_resolved(c, span.length / _USUAL_NODES))
    return lax.cond(enough, lambda: on(_USUAL_NODES), lambda: on(nodes))


def log_moments(c: Reals, q: Reals, w: Reals, shared: int, nodes: int) -> Reals:
    """`log_moment` for many w, along the last axis, of one c and q: (..., 1) and (..., m).

    The `shared` points and their losses serve all w where they resolve every one.
    """
    ends = jnp.min(w, -1, keepdims=True), jnp.max(w, -1, keepdims=True)
    span = _Span.of(c, q, *ends)
    x, step = span.points(shared), span.length / shared

    def at_once() -> Reals:
        loss = loss_at(x, c[..., None], q[..., None])
        value = _log_mean(c, w, x, step, loss)
        return _resolved_or_bound(c, q, w, step, value)

    def one_by_one() -> Reals:
        c_each, q_each, w_each = jnp.broadcast_arrays(c, q, w)
        return log_moment(c_each, q_each, w_each, nodes)

    return lax.cond(jnp.all(_resolved(c, step)), at_once, one_by_one)


def _log_mean(c: Reals, w: Reals, x: Reals, step: Reals, loss: Reals) -> Reals:
    """log of the mean of e^(w loss) over points x of a normal density."""
    tilted = w[..., None] * loss
    log_weight = jnp.log(step)[..., None] - 0.5 * x * x - LOG_SQRT_2PI
    top = jnp.max(tilted + log_weight, axis=-1)
    scale = jnp.where(top > 30.0, top, 0.0)
    grown = jnp.exp(tilted + log_weight - scale[..., None])
    # Unless the sum is large it is that of e^(w L) - 1.
    weight = jnp.where((scale == 0)[..., None], jnp.exp(log_weight), 0.0)
    # E(e^L - 1) = 0: without it the terms are of second order, and round as such.
    free = jnp.expm1(jnp.where(((c < 2.0) & (scale == 0))[..., None], loss, 0.0))
    first = jnp.where(jnp.abs(w) > 0.1, w, 0.0)[..., None] * free
    small = (jnp.abs(tilted) < 0.5) & (weight > 0)
    near = jnp.expm1(jnp.where(small, tilted, 0.0))
    rest = jnp.where(small, weight * near, grown - weight) - weight * first
    total = jnp.sum(rest, axis=-1)
    return jnp.where(scale > 0, scale + jnp.log(total), log1p(total))


def rough_log_moment(c: Reals, q: Reals, w: Reals, nodes: int) -> Reals:
    """A bound: `log_moment` to 1e-15 (1 + |w|), absolutely, and what the nodes may miss."""
    span = _Span.of(c, q, w, w)
    value, step = _plain_log_moment(span, c, q, w, nodes), span.length / nodes
    missed = jnp.where(_resolved(c, step), 0.0, _missed(c, q, w, step))
    return jnp.where(q == 0, 0.0, jnp.minimum(value + missed, _bound(c, q, w)))


def loose_log_moment(c: Reals, q: Reals, w: Reals, nodes: int) -> Reals:
    """For guesses: a bound only where the nodes are far too few."""
    hit = q * jnp.exp(-0.5 * c * c)
    low = c * jnp.minimum(w, 0.0) * hit / (1.0 - q + hit) - _LOOSE_REACH
    high = c * jnp.maximum(w, 0.0) + _LOOSE_REACH
    value = _plain_log_moment(_Span(low, high - low), c, q, w, nodes)
    usable = _missed(c, q, jnp.abs(w), (high - low) / nodes) < _LOOSE
    return jnp.where(q == 0, 0.0, jnp.where(usable, value, _bound(c, q, w)))


def _plain_log_moment(span: _Span, c: Reals, q: Reals, w: Reals, nodes: int) -> Reals:
    x, step = span.points(nodes), span.length / nodes
    exponent = c[..., None] * (x - 0.5 * c[..., None])
    large = exponent > _LARGE
    near = jnp.log((1.0 - q)[..., None] + q[..., None] * jnp.exp(jnp.minimum(exponent, _LARGE)))
    loss = jnp.where(large, exponent + jnp.log(q)[..., None], near)
    tilted = lax.optimization_barrier(w[..., None] * loss - 0.5 * x * x)
    top = jnp.max(tilted, axis=-1)
    total = jnp.sum(jnp.exp(tilted - top[..., None]), axis=-1) * step
    return top + jnp.log(total) - LOG_SQRT_2PI


def _missed(c: Reals, q: Reals, w: Reals, step: Reals) -> Reals:
    """Of log G(w), by the rule: 2 e^(y^2 / 2) / (e^(2 pi y / step) - 1) for w >= 0, y <= pi / c.

    Up there |e^L| is no larger than on the real axis. For w < 0 and y <= pi / (2 c) it is at least
    1 - q, and G(w) at least 1: (1 - q)^w times as much. Source: Trefethen & Weideman, theorem 5.1.
    """
    highest = jnp.where(w < 0, 0.5 * jnp.pi, jnp.pi) / c
    y = jnp.minimum(highest, 2.0 * jnp.pi / step)
    digits = 2.0 * jnp.pi * y / step - 0.5 * y * y + jnp.maximum(-w, 0.0) * jnp.log1p(-q)
    return jnp.where(digits > 3.0, 2.2 * jnp.exp(-digits), jnp.inf)


def _bound(c: Reals, q: Reals, w: Reals) -> Reals:
    """See `log_moment`."""
    rate = 0.5 * w * (w - 1.0) * c * c
    steep = rate > 1.0
    fall = jnp.exp(-jnp.where(steep, rate, 1.0))
    bound = jnp.where(
        steep,
        rate + jnp.log(q + (1.0 - q) * fall),
        log1p(q * jnp.expm1(jnp.where(steep, 0.0, rate))),
    )
    return jnp.where((w > 1.0) | (w < 0.0), bound, 0.0)


def _resolved_or_bound(c: Reals, q: Reals, w: Reals, step: Reals, value: Reals) -> Reals:
    return jnp.where(q == 0, 0.0, jnp.where(_resolved(c, step), value, _bound(c, q, w)))


def _resolved(c: Reals, step: Reals) -> Bools:
    return jnp.minimum(2.0 * jnp.pi**2 / c, 2.0 * jnp.pi**2 / step) > _DIGITS * step


def line_nodes(c: Reals, q: Reals, w0: Reals, nodes: int) -> Nodes:
    """For w = w0 + it, t >= 0: `nodes` points along a new last axis."""
    span = _Span.of(c, q, w0, w0)
    x, step = span.points(nodes), span.length / nodes
    y = jnp.minimum(0.5 * jnp.pi / c, _LARGEST_SHIFT)
    # For w0 < 0 the integrand grows away from the real axis, like exp(|w0| L'' y^2 / 2).
    hit = q * jnp.exp(c * (_USUAL - 0.5 * c))
    bend = c * c * hit * (1.0 - q) / (1.0 - q + hit) ** 2
    y = jnp.minimum(y, 2.0 / jnp.sqrt(jnp.maximum(-w0 * bend, 1e-6)))
    angle = (c * y)[..., None]
    real, imaginary = lax.optimization_barrier(_loss_above(x, angle, c[..., None], q[..., None]))
    height, tilt = y[..., None], w0[..., None]
    exponent = tilt * real - 0.5 * (x * x - height * height)
    size = jnp.exp(exponent - jnp.max(exponent, axis=-1, keepdims=True))
    turn = tilt * imaginary - x * height
    sine, cosine = lax.optimization_barrier(sine_cosine(turn))
    total = jnp.sum(size * cosine, axis=-1, keepdims=True)
    weight = lax.complex(size / total * cosine, size / total * sine)
    loss = lax.complex(real, imaginary)
    resolved = 2.0 * jnp.pi * jnp.minimum(y, jnp.pi / c - y) > _DIGITS * step
    return Nodes(weight, loss, jnp.where(resolved, jnp.inf, 0.0))
