"""Moments of a sampled Gaussian's likelihood ratio, roughly: bounds to choose lines by, guesses.

See `sampled_gaussian`: the same rule with fewer nodes, and without care for small moments.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import LOG_SQRT_2PI
from jaxdp._numeric.node_blocks import Blocks
from jaxdp._numeric.sampled_nodes import (
    LEAST,
    Span,
    bound_of,
    log_top,
    missed,
    resolved_by,
    step_for,
)
from jaxdp._types import Index, Reals

# Of a guess.
_LOOSE_REACH, _LOOSE = 6.0, 0.01
# Of a rough moment, which its bound on that error makes one again.
_ROUGH_STEP = 20.0
# e^exponent that does not overflow.
_LARGEST = 600.0
# Of q c: below it losses are so small that their absolute error counts.
_SMALL_LOSSES = 1e-7


def rough_log_moment(c: Reals, q: Reals, w: Reals) -> Reals:
    """A bound: `log_moment` and what the nodes may miss, but for `rough_rounding`."""
    span = Span.of(c, q, w, w)
    blocks = Blocks.of(span.low, span.length, step_for(_ROUGH_STEP, c, q, w))
    lost = jnp.where(resolved_by(c, q, w, blocks.step), 0.0, missed(c, q, w, blocks.step))
    value = _plain_log_moment(blocks, c, q, w) + lost
    return jnp.where(q == 0, 0.0, jnp.minimum(value, bound_of(c, q, w)))


def rough_rounding(c: Reals, q: Reals, w: Reals) -> Reals:
    """Of `rough_log_moment`, in units of 64 ulp: 1 + E|w L|, or a bound."""
    small = q * c < _SMALL_LOSSES
    below = -jnp.log1p(-jnp.where(small, q, 0.5))

    def some_small() -> Reals:
        return jnp.where(small, jnp.abs(w) * below + 4.0 * log_top(c, q, w), jnp.abs(w))

    return 1.0 + lax.cond(jnp.any(small), some_small, lambda: jnp.abs(w))


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
    usable = missed(c, q, jnp.abs(w), step) < _LOOSE
    return jnp.where(q == 0, 0.0, jnp.where(usable, value, bound_of(c, q, w)))
