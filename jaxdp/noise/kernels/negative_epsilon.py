"""log delta at every real epsilon from its two sides at |epsilon|, with an upper bound's slack."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import LEAST_NORMAL, LOG_2, ULP, log1m_near, log1mexp


class Sides(NamedTuple):
    """Terms times exp(decay), at |epsilon|: delta = P[T > u] - e^|epsilon| P[T > u + shift].

    delta = exp(-decay) excess unless 1 - delta < 1/2; where u < 0 also
    1 - delta = exp(-decay) both.
    """

    below: Bools  # u < 0
    decay: Reals
    excess: Reals
    both: Reals
    near: Reals  # P[T > |u|]
    far: Reals  # e^|epsilon| P[T > u + shift]
    amplification: Reals  # change of the excess, or of `both`, by relative errors of the inputs


def upper_log_delta(sides: Sides, epsilon: Reals, value_ulps: float, input_ulps: float) -> Reals:
    """log delta, increased by `value_ulps` of itself and `input_ulps` of its amplification."""
    t, size = sides, jnp.abs(epsilon)
    backward = epsilon < 0
    decay, tail = jnp.exp(-size), jnp.exp(-t.decay)
    complement = jnp.where(t.below, tail * t.both, 1.0 - tail * t.excess)
    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    mixture = -jnp.expm1(-size) + decay * tail * t.excess
    near_one = (t.below & (complement < 0.5)) | (backward & (mixture > 0.5))
    inner = jnp.where(backward, mixture, t.excess)
    small = jnp.where(backward, 0.0, -t.decay) + jnp.log(jnp.where(inner > 0, inner, 1.0))
    large = log1m_near(jnp.where(near_one, jnp.where(backward, decay, 1.0) * complement, 0.25))
    part = jnp.where(near_one & t.below, t.both, t.excess)
    blurred = t.amplification / jnp.where(part > 0, part, 1.0)
    # Where backward, all of it counts times e^-|epsilon|, unless that is a factor.
    share = tail * jnp.where(near_one, 1.0, decay / jnp.where(mixture > 0, mixture, 1.0))
    mirrored = t.amplification * share
    blurred = jnp.where(backward & ~(near_one & t.below), mirrored, blurred)
    blurred = jnp.where(near_one & (large == 0), 0.0, blurred)
    error = jnp.where(near_one, jnp.abs(large), 1.0) * input_ulps * blurred
    value = jnp.where(near_one, large, small)
    upper = value + ULP * (error + value_ulps * jnp.abs(value))
    # A CPU flushes these to zero by itself; where they are kept, their last place is worth more.
    upper = jnp.where(upper > -LEAST_NORMAL, 0.0, upper)
    return jnp.where(jnp.isnan(upper), upper, jnp.clip(upper, jnp.finfo(jnp.float64).min, 0.0))


def with_limits(log_delta: Reals, width: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """`log_delta`, which holds at finite shifts above 0 of noise of a finite `width`, and its ends.

    No shift is no loss: delta = (1 - e^epsilon)_+. So is a finite one of infinitely wide noise;
    an infinite one of finite noise tells everything, and of the other nothing is known.
    """
    flat, endless = width == jnp.inf, shift == jnp.inf
    log_delta = jnp.where(endless, 0.0, jnp.minimum(log_delta, 0.0))
    backward = epsilon < 0
    unmoved = jnp.where(backward, log1mexp(jnp.where(backward, -epsilon, 1.0)), -jnp.inf)
    log_delta = jnp.where((shift == 0) | (flat & ~endless), unmoved, log_delta)
    bad = jnp.isnan(width) | jnp.isnan(shift) | jnp.isnan(epsilon) | (flat & endless)
    return jnp.where(bad, jnp.nan, log_delta)


def inverse_delta(sides: Sides, epsilon: Reals, log_delta: Reals) -> Reals:
    """exp(-decay) / delta, times e^-|epsilon| where epsilon < 0."""
    backward = epsilon < 0
    decay = sides.decay + jnp.where(backward, jnp.abs(epsilon), 0.0)
    direct = ~backward & ~(sides.below & (log_delta > -LOG_2))
    excess = jnp.where(direct, sides.excess, 1.0)
    return jnp.where(direct, 1.0 / excess, jnp.exp(-decay - log_delta))


def slope_in_epsilon(sides: Sides, epsilon: Reals, log_delta: Reals) -> Reals:
    """d log delta / d epsilon: delta'(e) = -e^e P[T > u + shift], delta'(-e) = -e^-e P[T < u]."""
    forward = inverse_delta(sides, epsilon, log_delta) * sides.far
    tail = jnp.exp(-sides.decay) * sides.near
    rest = jnp.where(sides.below, tail, 1.0 - tail)
    reverse = jnp.exp(-jnp.abs(epsilon) - log_delta) * rest
    return -jnp.where(epsilon < 0, reverse, forward)
