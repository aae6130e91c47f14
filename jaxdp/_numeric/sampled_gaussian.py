"""Moments of the Poisson-sampled Gaussian's likelihood ratio, on the real axis.

With x standard normal and c = shift / scale the ratio of (1 - q) N(0, 1) + q N(c, 1) to N(0, 1)
is e^L(x), L(x) = log(1 - q + q e^(c x - c^2 / 2)), and both directions of the loss have their
cumulants from G(w) = E e^(w L): log G(1 + z) for P the mixture, log G(-z) for Q the mixture.
The integrand is analytic for |Im x| < pi / c, so the trapezoidal rule converges geometrically.
Source: Trefethen & Weideman, SIAM Review 56, 2014. Complex w: `sampled_line`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid

from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, log1p
from jaxdp._numeric.node_blocks import Blocks
from jaxdp._types import Bools, Index, Reals

# exp(-9.5^2 / 2) = 2.5e-20: what lies beyond, on either side.
_REACH = 9.5
_ITERATIONS, _LOOKS = 6, 16
_NEWTON_STEPS = 2
_NEGLIGIBLE = 50.0
# exp(-34) = 1.7e-15: the geometric error of the rule.
_DIGITS = 34.0
# Of a guess.
_LOOSE_REACH, _LOOSE = 6.0, 0.01
# Of a rough moment, which its bound on that error makes one again.
_ROUGH_DIGITS = 20.0
# e^exponent that is as good as the whole loss; that does not overflow.
_LARGE, _LARGEST = 30.0, 600.0
# Of q c: below it losses are so small that their absolute error counts.
_SMALL_LOSSES = 1e-7
# Of a sum: below it terms that count may have been lost.
LEAST = 1e-250


def loss_at(x: Reals, c: Reals, q: Reals) -> Reals:
    """L(x), of arguments of shapes that broadcast: a few ulp of it, and of 1e-16 q near 0."""
    exponent = c * (x - 0.5 * c)
    large = exponent > _LARGE
    near = log1p(q * jnp.expm1(jnp.where(large, 0.0, exponent)))
    far = exponent + jnp.log(q + (1.0 - q) * jnp.exp(-jnp.where(large, exponent, 1.0)))
    return jnp.where(large, far, near)


class Span(NamedTuple):
    """Where e^(w L) - 1 - w (e^L - 1) times the normal density lives."""

    low: Reals
    length: Reals

    @staticmethod
    def of(c: Reals, q: Reals, least: Reals, most: Reals) -> "Span":
        """For every w from `least` to `most`."""
        hit = q * jnp.exp(-0.5 * c * c)
        # The mode solves x = w L'(x), with L' below its value at 0 for w < 0.
        low = c * jnp.minimum(least, 0.0) * hit / (1.0 - q + hit) - _REACH
        return Span(low, _highest(c, q, jnp.maximum(most, 0.0)) - low)

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


def log_moment(c: Reals, q: Reals, w: Reals) -> Reals:
    """log G(w) for real w, arguments of one shape. Error: about 1e-15 (|log G| + sqrt |log G|).

    Where it takes more than 4,096 nodes an upper bound, by convexity: (1 - q + q r)^w <= 1 - q +
    q r^w, or <= 1 for 0 <= w <= 1.
    """
    span = Span.of(c, q, w, w)
    blocks = Blocks.of(span.low, span.length, _step_for(_DIGITS, c, q, w))
    scale = lax.stop_gradient(_scale(c, q, w))
    total = blocks.total(_part_of_mean, c, q, w, scale) * blocks.step
    return _resolved_or_bound(c, q, w, blocks.step, _log_of_excess(total, scale))


def log_moments(c: Reals, q: Reals, w: Reals, shared: int) -> Reals:
    """`log_moment` for many w, along the last axis, of one c and q: (..., 1) and (..., m).

    The `shared` points and their losses serve all w where they resolve every one.
    """
    ends = jnp.min(w, -1, keepdims=True), jnp.max(w, -1, keepdims=True)
    span = Span.of(c, q, *ends)
    x, step = span.points(shared), span.length / shared

    def at_once() -> Reals:
        scale = _scale(c, q, w)
        total = _part_of_mean(x, 0, c, q, w, scale) * step
        return _resolved_or_bound(c, q, w, step, _log_of_excess(total, scale))

    def one_by_one() -> Reals:
        return log_moment(*jnp.broadcast_arrays(c, q, w))

    return lax.cond(jnp.all(_resolved(c, q, w, step)), at_once, one_by_one)


def log_top(c: Reals, q: Reals, w: Reals) -> Reals:
    """About log G(w), where that is above 0: good enough to keep e^(w L) from overflowing.

    It is w L - x^2 / 2 near its largest value: for w > 0 a hit makes it, with its mode at c w.
    """
    mode = jnp.where(w > 0, c * w, _mode_below(c, q, w))
    return jnp.maximum(w * _small_loss(mode, c, q) - 0.5 * mode * mode, 0.0)


def _mode_below(c: Reals, q: Reals, w: Reals) -> Reals:
    """Where w L - x^2 / 2 is largest, w < 0: at x = w L', near a value of Lambert's function."""
    negative = jnp.minimum(w, 0.0)
    logit = jnp.log(q) - jnp.log1p(-q) - 0.5 * c * c
    size = jnp.log1p(-negative * c * c * sigmoid(logit))
    x = -size * (1.0 - jnp.log1p(size) / (2.0 + size)) / c
    for _ in range(_NEWTON_STEPS):
        hit = sigmoid(c * x + logit)
        x -= (x - negative * c * hit) / (1.0 - negative * c * c * hit * (1.0 - hit))
    return x


def _most_below(q: Reals, w: Reals) -> Reals:
    """The largest w L for w < 0, else 0: L >= log(1 - q)."""
    negative = w < 0
    return jnp.where(negative, jnp.where(negative, w, -1.0) * jnp.log1p(-q), 0.0)


def _scale(c: Reals, q: Reals, w: Reals) -> Reals:
    top = log_top(c, q, w)
    return jnp.where(top > _LARGE, top, 0.0)


def _part_of_mean(x: Reals, _: Index | int, c: Reals, q: Reals, w: Reals, scale: Reals) -> Reals:
    """The sum of (e^(w L) - 1) times the density; with a scale, of e^(w L - scale)."""
    loss = loss_at(x, c[..., None], q[..., None])
    tilted, log_weight = w[..., None] * loss, -0.5 * x * x - LOG_SQRT_2PI
    grown = jnp.exp(tilted + log_weight - scale[..., None])
    weight = jnp.where((scale == 0)[..., None], jnp.exp(log_weight), 0.0)
    # E(e^L - 1) = 0: without it the terms are of second order, and round as such.
    free = jnp.expm1(jnp.where(((c < 2.0) & (scale == 0))[..., None], loss, 0.0))
    first = jnp.where(jnp.abs(w) > 0.1, w, 0.0)[..., None] * free
    small = (jnp.abs(tilted) < 0.5) & (weight > 0)
    near = jnp.expm1(jnp.where(small, tilted, 0.0))
    rest = jnp.where(small, weight * near, grown - weight) - weight * first
    return jnp.sum(rest, axis=-1)


def _log_of_excess(total: Reals, scale: Reals) -> Reals:
    """log(1 + total), or of what is scaled; infinite where the scale was too far off."""
    far = scale > 0
    usable = (total < jnp.inf) & (total > jnp.where(far, LEAST, -1.0))
    scaled = scale + jnp.log(jnp.where(usable & far, total, 1.0))
    value = jnp.where(far, scaled, log1p(jnp.where(usable & ~far, total, 0.0)))
    return jnp.where(usable, value, jnp.inf)


def rough_log_moment(c: Reals, q: Reals, w: Reals) -> Reals:
    """A bound: `log_moment` and what the nodes may miss, but for `rough_rounding`."""
    span = Span.of(c, q, w, w)
    blocks = Blocks.of(span.low, span.length, _step_for(_ROUGH_DIGITS, c, q, w))
    missed = jnp.where(_resolved(c, q, w, blocks.step), 0.0, _missed(c, q, w, blocks.step))
    value = _plain_log_moment(blocks, c, q, w) + missed
    return jnp.where(q == 0, 0.0, jnp.minimum(value, _bound(c, q, w)))


def rough_rounding(c: Reals, q: Reals, w: Reals) -> Reals:
    """Of `rough_log_moment`, in units of 64 ulp: 1 + E|w L|, or a bound."""
    small = q * c < _SMALL_LOSSES
    below = -jnp.log1p(-jnp.where(small, q, 0.5))
    size = jnp.where(small, jnp.abs(w) * below + 4.0 * log_top(c, q, w), jnp.abs(w))
    return 1.0 + size


def _plain_log_moment(blocks: Blocks, c: Reals, q: Reals, w: Reals) -> Reals:
    top = log_top(c, q, w)

    def add(index: Index, total: Reals) -> Reals:
        return total + _plain_part(blocks.points(index), c, q, w, top)

    total = lax.fori_loop(0, blocks.number, add, jnp.zeros_like(w))
    return _log_of(total * blocks.step, top)


def _plain_part(x: Reals, c: Reals, q: Reals, w: Reals, top: Reals) -> Reals:
    """The sum of e^(w L - x^2 / 2 - top)."""

    def part(loss_of: Callable[[Reals, Reals, Reals], Reals]) -> Reals:
        loss = loss_of(x, c[..., None], q[..., None])
        # No largest term is looked for: that would cost more than all else.
        return jnp.sum(jnp.exp(w[..., None] * loss - 0.5 * x * x - top[..., None]), axis=-1)

    # Three times as dear.
    small = jnp.any((q > 0) & (q * c < _SMALL_LOSSES))
    return lax.cond(small, lambda: part(_small_loss), lambda: part(_plain_loss))


def _log_of(total: Reals, top: Reals) -> Reals:
    """log of the mean; infinite where `top` was too far off."""
    usable = (total > LEAST) & (total < jnp.inf)
    return jnp.where(usable, top + jnp.log(jnp.where(usable, total, 1.0)) - LOG_SQRT_2PI, jnp.inf)


def _plain_loss(x: Reals, c: Reals, q: Reals) -> Reals:
    """L(x), to 1e-16 absolutely."""
    exponent = c * (x - 0.5 * c)
    bounded = jnp.minimum(exponent, _LARGEST)
    return jnp.log((1.0 - q) + q * jnp.exp(bounded)) + (exponent - bounded)


def _small_loss(x: Reals, c: Reals, q: Reals) -> Reals:
    """L(x), to a few ulp."""
    exponent = c * (x - 0.5 * c)
    bounded = jnp.minimum(exponent, _LARGEST)
    excess = q * jnp.expm1(bounded)
    ratio = 1.0 + excess
    rounded = ratio - 1.0
    # log1p by the logarithm alone: what the sum rounded off is in both factors.
    loss = jnp.where(rounded == 0, excess, jnp.log(ratio) * (excess / rounded))
    return loss + (exponent - bounded)


def loose_log_moment(c: Reals, q: Reals, w: Reals, nodes: int) -> Reals:
    """For guesses: a bound only where the nodes are far too few."""
    hit = q * jnp.exp(-0.5 * c * c)
    low = c * jnp.minimum(w, 0.0) * hit / (1.0 - q + hit) - _LOOSE_REACH
    high = c * jnp.maximum(w, 0.0) + _LOOSE_REACH
    span = Span(low, high - low)
    step, top = span.length / nodes, log_top(c, q, w)
    value = _log_of(_plain_part(span.points(nodes), c, q, w, top) * step, top)
    usable = _missed(c, q, jnp.abs(w), step) < _LOOSE
    return jnp.where(q == 0, 0.0, jnp.where(usable, value, _bound(c, q, w)))


def _step_for(digits: float, c: Reals, q: Reals, w: Reals) -> Reals:
    """The longer, of two strips, with which `_missed` is e^-digits."""

    def step(y: Reals) -> Reals:
        return 2.0 * jnp.pi * y / (digits + _growth(c, q, w, y))

    highest = jnp.where(w < 0, 0.5 * jnp.pi, jnp.pi) / c
    wide = jnp.sqrt(2.0 * (digits + _most_below(q, w)))
    narrow = jnp.sqrt(2.0 * digits / (1.0 + jnp.abs(w) * q * c * c))
    return jnp.maximum(step(jnp.minimum(highest, wide)), step(jnp.minimum(0.5 * highest, narrow)))


def _missed(c: Reals, q: Reals, w: Reals, step: Reals) -> Reals:
    """Of log G(w), by the rule: 2 e^growth / (e^(2 pi y / step) - 1), in a strip of half-width y.

    Source: Trefethen & Weideman, theorem 5.1.
    """
    highest = jnp.where(w < 0, 0.5 * jnp.pi, jnp.pi) / c
    y = jnp.minimum(highest, 2.0 * jnp.pi / step)
    digits = 2.0 * jnp.pi * y / step - _growth(c, q, w, y)
    return jnp.where(digits > 3.0, 2.2 * jnp.exp(-digits), jnp.inf)


def _growth(c: Reals, q: Reals, w: Reals, y: Reals) -> Reals:
    """log of a bound on the mean of |e^(wL)| at x + iy over G(w), and of what the density adds.

    Up to y = pi / c |e^L| is no larger than on the real axis. For w < 0 and y < pi / (2 c) it is at
    least 1 - q, and G(w) at least 1: (1 - q)^w times as much. There it is also at least
    1 - q + q r cos(c y), r = e^(c x - c^2 / 2): at least 1 where r cos(c y) is, elsewhere
    e^(-L) times less than on the axis by at most the exponential of q (1 / cos(c y) - 1) / (1 - q).
    """
    negative = w < 0
    cosine = jnp.cos(jnp.where(negative, jnp.minimum(c * y, 1.5), 0.0))
    rise = 2.0 * jnp.sin(0.5 * jnp.minimum(c * y, 1.5)) ** 2 / cosine
    near = jnp.abs(w) * q * rise / (1.0 - q) + math.log(2.0)
    near = jnp.where(negative & (c * y < 1.5), near, jnp.inf)
    return 0.5 * y * y + jnp.where(negative, jnp.minimum(_most_below(q, w), near), 0.0)


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
    usable = _resolved(c, q, w, step) & (value < jnp.inf)
    return jnp.where(q == 0, 0.0, jnp.where(usable, value, _bound(c, q, w)))


def _resolved(c: Reals, q: Reals, w: Reals, step: Reals) -> Bools:
    return step <= (1.0 + 8.0 * ULP) * _step_for(_DIGITS, c, q, w)
