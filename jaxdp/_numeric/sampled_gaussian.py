"""Moments of the Poisson-sampled Gaussian's likelihood ratio, along a shifted line.

With x standard normal and c = shift / scale the ratio of (1 - q) N(0, 1) + q N(c, 1) to N(0, 1)
is e^L(x), L(x) = log(1 - q + q e^(c x - c^2 / 2)), and both directions of the loss have their
cumulants from G(w) = E e^(w L): log G(1 + z) for P the mixture, log G(-z) for Q the mixture.
The integrand is analytic for |Im x| < pi / c, so the trapezoidal rule converges geometrically; for
complex w = w0 + it, t > 0, it runs along Im x = y, where e^(itL) decays instead of oscillating.
Source: Trefethen & Weideman, SIAM Review 56, 2014 (the rule); the shifted line is ours.
"""

import math

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import LOG_SQRT_2PI, expm1, log1p
from jaxdp._numeric.turning import Nodes
from jaxdp._types import Bools, Reals, RealsOrComplexes

# exp(-9.5^2 / 2) = 2.5e-20: what lies beyond, on either side.
_REACH = 9.5
# exp(-34) = 1.7e-15: the geometric error of the rule.
_DIGITS = 34.0
_LARGEST_SHIFT = 1.5
# (e^t - 1) / t for |t| <= 1/2.
_EXPM1_SERIES = tuple(1.0 / math.factorial(k) for k in range(1, 16))
# x above which little of the mass lies.
_USUAL = 3.0


def _loss(x: RealsOrComplexes, c: Reals, q: Reals) -> RealsOrComplexes:
    exponent = c * (x - 0.5 * c)
    large = jnp.real(exponent) > 30.0
    near = log1p(q * expm1(jnp.where(large, 0.0, exponent)))
    far = exponent + jnp.log(q + (1.0 - q) * jnp.exp(-jnp.where(large, exponent, 1.0)))
    return jnp.where(large, far, near)


def _points(
    c: Reals, q: Reals, w0: Reals, nodes: int, least: Reals | None = None
) -> tuple[Reals, Reals]:
    """Where e^(w0 L) times the normal density lives: nodes along a new last axis; their step.

    With `least` for all w from there to w0. The modes solve x = w L'(x) with 0 < L' < c, and L'
    below its value at 0 for w < 0.
    """
    hit = q * jnp.exp(-0.5 * c * c)
    least = w0 if least is None else least
    low = c * jnp.minimum(least, 0.0) * hit / (1.0 - q + hit) - _REACH
    step = (c * jnp.maximum(w0, 0.0) + _REACH - low) / nodes
    index = jnp.arange(nodes)[(None,) * w0.ndim]
    return low[..., None] + step[..., None] * (index + 0.5), step


def log_moment(c: Reals, q: Reals, w: Reals, nodes: int) -> Reals:
    """log G(w) for real w, arguments of one shape. Error: about 1e-15 (|log G| + sqrt |log G|).

    Where the nodes do not resolve the kink of L (the step, (19 + c w) / nodes, above 0.58 / c):
    an upper bound, by convexity (1 - q + q r)^w <= 1 - q + q r^w, or <= 1 for 0 <= w <= 1.
    """
    x, step = _points(c, q, w, nodes)
    value = _log_mean(c, w, x, step, _loss(x, c[..., None], q[..., None]))
    return _resolved_or_bound(c, q, w, step, value)


def log_moments(c: Reals, q: Reals, w: Reals, shared: int, nodes: int) -> Reals:
    """`log_moment` for many w, along the last axis, of one c and q: (..., 1) and (..., m).

    The `shared` points and their losses serve all w where they resolve every one.
    """
    ends = jnp.min(w, -1, keepdims=True), jnp.max(w, -1, keepdims=True)
    x, step = _points(c, q, ends[1], shared, ends[0])

    def at_once() -> Reals:
        loss = _loss(x, c[..., None], q[..., None])
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
    free = jnp.expm1(jnp.where((c < 2.0)[..., None], loss, 0.0))
    first = jnp.where(jnp.abs(w) > 0.1, w, 0.0)[..., None] * free
    small = (jnp.abs(tilted) < 0.5) & (weight > 0)
    t = jnp.where(small, tilted, 0.0)
    series = jnp.full_like(t, _EXPM1_SERIES[-1])
    for coefficient in _EXPM1_SERIES[-2::-1]:
        series = series * t + coefficient
    rest = jnp.where(small, weight * (t * series), grown - weight) - weight * first
    total = jnp.sum(rest, axis=-1)
    return jnp.where(scale > 0, scale + jnp.log(total), log1p(total))


def rough_log_moment(c: Reals, q: Reals, w: Reals, nodes: int) -> Reals:
    """`log_moment` to 1e-15 (1 + |w|), absolutely, at a third of its cost."""
    x, step = _points(c, q, w, nodes)
    exponent = c[..., None] * (x - 0.5 * c[..., None])
    large = exponent > 30.0
    near = jnp.log((1.0 - q)[..., None] + q[..., None] * jnp.exp(jnp.minimum(exponent, 30.0)))
    loss = jnp.where(large, exponent + jnp.log(q)[..., None], near)
    tilted = w[..., None] * loss - 0.5 * x * x
    top = jnp.max(tilted, axis=-1)
    total = jnp.sum(jnp.exp(tilted - top[..., None]), axis=-1) * step
    value = top + jnp.log(total) - LOG_SQRT_2PI
    return _resolved_or_bound(c, q, w, step, value)


def _resolved_or_bound(c: Reals, q: Reals, w: Reals, step: Reals, value: Reals) -> Reals:
    rate = 0.5 * w * (w - 1.0) * c * c
    steep = rate > 1.0
    fall = jnp.exp(-jnp.where(steep, rate, 1.0))
    bound = jnp.where(
        steep,
        rate + jnp.log(q + (1.0 - q) * fall),
        log1p(q * jnp.expm1(jnp.where(steep, 0.0, rate))),
    )
    bound = jnp.where((w > 1.0) | (w < 0.0), bound, 0.0)
    return jnp.where(q == 0, 0.0, jnp.where(_resolved(c, step), value, bound))


def _resolved(c: Reals, step: Reals) -> Bools:
    return jnp.minimum(2.0 * jnp.pi**2 / c, 2.0 * jnp.pi**2 / step) > _DIGITS * step


def line_nodes(c: Reals, q: Reals, w0: Reals, nodes: int) -> Nodes:
    """For w = w0 + it, t >= 0: `nodes` points along a new last axis."""
    x, step = _points(c, q, w0, nodes)
    y = jnp.minimum(0.5 * jnp.pi / c, _LARGEST_SHIFT)
    # For w0 < 0 the integrand grows away from the real axis, like exp(|w0| L'' y^2 / 2).
    hit = q * jnp.exp(c * (_USUAL - 0.5 * c))
    bend = c * c * hit * (1.0 - q) / (1.0 - q + hit) ** 2
    y = jnp.minimum(y, 2.0 / jnp.sqrt(jnp.maximum(-w0 * bend, 1e-6)))
    point = x + 1j * y[..., None]
    loss = _loss(point, c[..., None], q[..., None])
    exponent = w0[..., None] * loss - 0.5 * point * point
    top = jnp.max(jnp.real(exponent), axis=-1, keepdims=True)
    weight = jnp.exp(exponent - top)
    weight = weight / jnp.real(jnp.sum(weight, axis=-1, keepdims=True))
    resolved = 2.0 * jnp.pi * jnp.minimum(y, jnp.pi / c - y) > _DIGITS * step
    return Nodes(weight, loss, jnp.where(resolved, jnp.inf, 0.0))
