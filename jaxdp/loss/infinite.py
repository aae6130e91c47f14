"""Infinite losses: what they add to the delta of finite ones, and what they leave of a profile."""

import jax.numpy as jnp

from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._types import Reals
from jaxdp.loss.base import Term, Terms, add_up
from jaxdp.loss.exchange import LogBounds
from jaxdp.noise.base import Loss

# log of the probability of a finite loss where there is none: it rounds to nothing.
LEAST_FINITE = -700.0


def with_infinite(terms: Terms, finite: LogBounds) -> LogBounds:
    """Of log(delta + the probability of an infinite loss), from delta's own."""
    log_finite = add_up(terms, Term.log_finite)
    some = log_finite < 0
    infinite = log1mexp(jnp.where(some, -log_finite, 1.0))
    sides = zip(finite, (-32.0 * ULP, 32.0 * ULP), strict=True)
    return LogBounds(*(jnp.where(some, jnp.logaddexp(x, infinite + u), x) for x, u in sides))


def finite_log_delta(noise: Loss, shift: Reals, epsilon: Reals) -> tuple[Reals, Reals]:
    """log E[(1 - e^(epsilon - L))_+; L < inf], and how many times delta is that: 1 of all losses.

    The relative error is so many times that of delta.
    """
    value = noise.log_delta(shift, epsilon)
    infinite = -jnp.expm1(noise.log_finite(shift))
    some = infinite > 0
    delta = jnp.exp(jnp.where(some, value, 0.0))
    finite = jnp.where(epsilon >= noise.largest_finite(shift), 0.0, delta - infinite)
    # NaN is left.
    left = some & ~(finite <= 0)
    safe = jnp.where(left, finite, 1.0)
    log_finite = jnp.where(left, jnp.log(safe), -jnp.inf)
    return jnp.where(some, log_finite, value), jnp.where(left, delta / safe, 1.0)
