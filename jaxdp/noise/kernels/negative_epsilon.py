"""log delta at every real epsilon from its two sides at |epsilon|, with an upper bound's slack."""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import xp
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


def whole_sides(delta: Reals, complement: Reals, exponent: Reals) -> Sides:
    """The sides from delta and 1 - delta; `exponent` multiplies the relative errors of inputs."""
    zero = xp.zeros_like(delta)
    amplification = xp.where(complement < 0.5, exponent * complement, 0.0)
    return Sides(delta >= 0, zero, delta, complement, zero, zero, amplification)


def upper_log_delta(sides: Sides, epsilon: Reals, value_ulps: float, input_ulps: float) -> Reals:
    """log delta, increased by `value_ulps` of itself and `input_ulps` of its amplification."""
    t, size = sides, xp.abs(epsilon)
    backward = epsilon < 0
    decay, tail = xp.exp(-size), xp.exp(-t.decay)
    complement = xp.where(t.below, tail * t.both, 1.0 - tail * t.excess)
    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    mixture = -xp.expm1(-size) + decay * tail * t.excess
    near_one = (t.below & (complement < 0.5)) | (backward & (mixture > 0.5))
    inner = xp.where(backward, mixture, t.excess)
    small = xp.where(backward, 0.0, -t.decay) + xp.log(xp.where(inner <= 0, 1.0, inner))
    large = log1m_near(xp.where(near_one, xp.where(backward, decay, 1.0) * complement, 0.25))
    part = xp.where(near_one & t.below, t.both, t.excess)
    blurred = t.amplification / xp.where(part > 0, part, 1.0)
    # Where backward, all of it counts times e^-|epsilon|, unless that is a factor.
    share = tail * xp.where(near_one, 1.0, decay / xp.where(mixture > 0, mixture, 1.0))
    mirrored = t.amplification * share
    blurred = xp.where(backward & ~(near_one & t.below), mirrored, blurred)
    blurred = xp.where(near_one & (large == 0), 0.0, blurred)
    error = xp.where(near_one, xp.abs(large), 1.0) * input_ulps * blurred
    value = xp.where(near_one, large, small)
    upper = value + ULP * (error + value_ulps * xp.abs(value))
    # A CPU flushes these to zero by itself; where they are kept, their last place is worth more.
    upper = xp.where(upper > -LEAST_NORMAL, 0.0, upper)
    return xp.where(xp.isnan(upper), upper, xp.clip(upper, xp.finfo(xp.float64).min, 0.0))


def with_limits(log_delta: Reals, width: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """`log_delta`, which holds at finite shifts above 0 of noise of a finite `width`, and its ends.

    Without a shift, or with infinitely wide noise at a finite one, the loss is 0 and delta = (1 -
    e^epsilon)_+. An infinite shift of finite noise has delta 1; of infinitely wide noise it is NaN.
    """
    flat, endless = width == xp.inf, shift == xp.inf
    log_delta = xp.where(endless, 0.0, xp.minimum(log_delta, 0.0))
    backward = epsilon < 0
    unmoved = xp.where(backward, log1mexp(xp.where(backward, -epsilon, 1.0)), -xp.inf)
    log_delta = xp.where((shift == 0) | (flat & ~endless), unmoved, log_delta)
    bad = xp.isnan(width) | xp.isnan(shift) | xp.isnan(epsilon) | (flat & endless)
    return xp.where(bad, xp.nan, log_delta)


def inverse_delta(sides: Sides, epsilon: Reals, log_delta: Reals) -> Reals:
    """exp(-decay) / delta, times e^-|epsilon| where epsilon < 0."""
    backward = epsilon < 0
    decay = sides.decay + xp.where(backward, xp.abs(epsilon), 0.0)
    direct = ~backward & ~(sides.below & (log_delta > -LOG_2))
    excess = xp.where(direct, sides.excess, 1.0)
    return xp.where(direct, 1.0 / excess, xp.exp(-decay - log_delta))


def slope_in_epsilon(sides: Sides, epsilon: Reals, log_delta: Reals) -> Reals:
    """d log delta / d epsilon: delta'(e) = -e^e P[T > u + shift], delta'(-e) = -e^-e P[T < u]."""
    forward = inverse_delta(sides, epsilon, log_delta) * sides.far
    tail = xp.exp(-sides.decay) * sides.near
    rest = xp.where(sides.below, tail, 1.0 - tail)
    reverse = xp.exp(-xp.abs(epsilon) - log_delta) * rest
    return -xp.where(epsilon < 0, reverse, forward)
