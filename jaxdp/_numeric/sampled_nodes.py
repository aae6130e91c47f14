"""Where the nodes for moments of a sampled Gaussian's likelihood ratio must lie, and how near.

With c = shift / scale the loss is L(x) = log(1 - q + q e^(c x - c^2 / 2)), x standard normal, and
the moments are G(w) = E e^(w L): see `sampled_gaussian`, `sampled_rough`, `sampled_line`.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid

from jaxdp._numeric.elementary import ULP, expm1, log1p
from jaxdp._types import Bools, Index, Reals, RealsOrComplexes

# exp(-9.5^2 / 2) = 2.5e-20: what lies beyond, on either side.
_REACH = 9.5
_ITERATIONS, _LOOKS = 6, 16
_NEGLIGIBLE = 50.0
# exp(-34) = 1.7e-15: the geometric error of the rule.
DIGITS = 34.0
# e^exponent that is as good as the whole loss; that does not overflow.
_LARGE, _LARGEST = 30.0, 600.0
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


def log_top(c: Reals, q: Reals, w: Reals) -> Reals:
    """About log G(w), where that is above 0: good enough to keep e^(w L) from overflowing.

    It is w L - x^2 / 2 near its largest value: for w > 0 a hit makes it, with its mode at c w.
    """
    mode = jnp.where(w > 0, c * w, _mode_below(c, q, w))
    exponent = c * (mode - 0.5 * c)
    # What rounds here does not matter.
    loss = jnp.maximum(exponent, 0.0) + jnp.log(
        (1.0 - q) * jnp.exp(-jnp.maximum(exponent, 0.0)) + q * jnp.exp(jnp.minimum(exponent, 0.0))
    )
    return jnp.maximum(w * loss - 0.5 * mode * mode, 0.0)


def _mode_below(c: Reals, q: Reals, w: Reals) -> Reals:
    """Where w L - x^2 / 2 is largest, w < 0: at x = w L', near a value of Lambert's function."""
    negative = jnp.minimum(w, 0.0)
    logit = jnp.log(q) - jnp.log1p(-q) - 0.5 * c * c
    size = jnp.log(1.0 - negative * c * c * sigmoid(logit))
    x = -size * (1.0 - jnp.log(1.0 + size) / (2.0 + size)) / c
    # One step of Newton's method: the logarithms' series is off by a few percent.
    hit = sigmoid(c * x + logit)
    return x - (x - negative * c * hit) / (1.0 - negative * c * c * hit * (1.0 - hit))


def _most_below(q: Reals, w: Reals) -> Reals:
    """The largest w L for w < 0, else 0: L >= log(1 - q)."""
    negative = w < 0
    return jnp.where(negative, jnp.where(negative, w, -1.0) * jnp.log1p(-q), 0.0)


def step_for(digits: float, c: Reals, q: Reals, w: Reals) -> Reals:
    """The longer, of two strips, with which `missed` is e^-digits."""

    def step(y: Reals) -> Reals:
        return 2.0 * jnp.pi * y / (digits + _growth(c, q, w, y))

    highest = jnp.where(w < 0, 0.5 * jnp.pi, jnp.pi) / c
    wide = jnp.sqrt(2.0 * (digits + _most_below(q, w)))
    narrow = jnp.sqrt(2.0 * digits / (1.0 + jnp.abs(w) * q * c * c))
    return jnp.maximum(step(jnp.minimum(highest, wide)), step(jnp.minimum(0.5 * highest, narrow)))


def missed(c: Reals, q: Reals, w: Reals, step: Reals) -> Reals:
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


def bound_of(c: Reals, q: Reals, w: Reals) -> Reals:
    """log G(w), from above where it is not resolved; exact for q = 1.

    The least of 1 - q + q E r^w, by convexity, and, by Minkowski's inequality for w > 1,
    (1 - q + q (E r^w)^(1/w))^w, log E r^w = w (w - 1) c^2 / 2; for w < 0 of the first and
    (1 - q)^w; for 0 <= w <= 1 it is 1.
    """
    steep = 0.5 * (w - 1.0) * c * c
    convex = _log_mixed(q, w * steep)
    norm = jnp.where(w > 1.0, w * _log_mixed(q, jnp.where(w > 1.0, steep, 0.0)), _most_below(q, w))
    bound = jnp.where((w > 1.0) | (w < 0.0), jnp.minimum(convex, norm), 0.0)
    return jnp.where(q == 1, if_always_hit(c, q, w), bound)


def _log_mixed(q: Reals, exponent: Reals) -> Reals:
    """log(1 - q + q e^exponent), exponent >= 0."""
    large = exponent > 1.0
    fall = jnp.exp(-jnp.where(large, exponent, 1.0))
    near = log1p(q * jnp.expm1(jnp.where(large, 0.0, exponent)))
    return jnp.where(large, exponent + jnp.log(q + (1.0 - q) * fall), near)


def if_always_hit(c: Reals, q: Reals, w: RealsOrComplexes) -> RealsOrComplexes:
    """log G(w) = w (w - 1) c^2 / 2 for q = 1, with its derivative w (1 - e^(-c^2 (w - 1))) in q."""
    fall = expm1(bounded(-c * c * (w - 1.0)))
    return 0.5 * w * (w - 1.0) * c * c - (q - lax.stop_gradient(q)) * w * fall


def bounded(exponent: RealsOrComplexes) -> RealsOrComplexes:
    """Whose exponential does not overflow."""
    return exponent - jnp.maximum(jnp.real(exponent) - _LARGEST, 0.0)


def resolved_by(c: Reals, q: Reals, w: Reals, step: Reals) -> Bools:
    """Whether a rule of that step leaves 1.7e-15 of G(w) at most; never at q = 1."""
    return (step <= (1.0 + 8.0 * ULP) * step_for(DIGITS, c, q, w)) & (q < 1)
