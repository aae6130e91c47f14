"""Moments of the Poisson-sampled Gaussian's likelihood ratio, on the real axis.

With x standard normal and c = shift / scale the ratio of (1 - q) N(0, 1) + q N(c, 1) to N(0, 1)
is e^L(x), L(x) = log(1 - q + q e^(c x - c^2 / 2)), and both directions of the loss have their
cumulants from G(w) = E e^(w L): log G(1 + z) for P the mixture, log G(-z) for Q the mixture.
The integrand is analytic for |Im x| < pi / c, so the trapezoidal rule converges geometrically.
Source: Trefethen & Weideman, SIAM Review 56, 2014. Complex w: `sampled_line`; bounds
and guesses: `sampled_rough`.
"""

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import LOG_SQRT_2PI, log1p
from jaxdp._numeric.node_blocks import Blocks
from jaxdp._numeric.sampled_nodes import (
    DIGITS,
    LEAST,
    Span,
    bound_of,
    log_top,
    loss_at,
    resolved_by,
    step_for,
)
from jaxdp._types import Index, Reals

# Nats from which on a scale is taken out.
_LARGE = 30.0


def log_moment(c: Reals, q: Reals, w: Reals) -> Reals:
    """log G(w) for real w, arguments of one shape. Error: about 1e-15 (|log G| + sqrt |log G|).

    Where it takes more than 4,096 nodes an upper bound, by convexity: (1 - q + q r)^w <= 1 - q +
    q r^w, or <= 1 for 0 <= w <= 1.
    """
    span = Span.of(c, q, w, w)
    blocks = Blocks.of(span.low, span.length, step_for(DIGITS, c, q, w))
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

    return lax.cond(jnp.all(resolved_by(c, q, w, step)), at_once, one_by_one)


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


def _resolved_or_bound(c: Reals, q: Reals, w: Reals, step: Reals, value: Reals) -> Reals:
    usable = resolved_by(c, q, w, step) & (value < jnp.inf)
    return jnp.where(q == 0, 0.0, jnp.where(usable, value, bound_of(c, q, w)))
