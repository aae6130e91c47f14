"""log delta of the density proportional to exp(-|t|^p / p), p >= 1, and its derivatives.

With zeta(u) = epsilon >= 0, A = |u|^p / p, s = 1 / p and G the upper incomplete gamma function,
Gamma(s) 2 delta = G(s, A) - e^epsilon G(s, A + epsilon), plus 2 gamma(s, A) where u < 0.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from jaxdp._numeric.elementary import LOG_2, ULP, log1m_near
from jaxdp._numeric.gamma import gamma_excess, gamma_pair
from jaxdp._numeric.power_loss import loss_threshold
from jaxdp._types import Bools, Reals

_VALUE_ULPS = 10.0
_INPUT_ULPS = 2.0
# Beyond this shift, in units of the scale, delta is 1 to the last place wherever it is not 0.
_LARGEST = 1e300
_DEEP = 1e12


class _Terms(NamedTuple):
    """At |epsilon|: delta = exp(-decay) excess, and, where u < 0, 1 - delta = exp(-decay) both."""

    size: Reals  # |epsilon|
    below: Bools  # u < 0
    decay: Reals
    excess: Reals
    both: Reals
    near: Reals  # P[T > |u|] exp(decay)
    far: Reals  # e^|epsilon| P[T > u + shift] exp(decay)
    density: Reals  # g(u) exp(decay)
    amplification: Reals  # of a relative error of the shift or of epsilon; times exp(decay)


def _terms(shift: Reals, epsilon: Reals, power: Reals) -> _Terms:
    size = jnp.abs(epsilon)
    reach, gap = jnp.clip(shift, 1e-300, _LARGEST), jnp.minimum(size, _LARGEST)
    at = loss_threshold(reach, gap, power)
    below = at.side < 0
    beta = (power - 1.0) / power
    pair = gamma_pair(beta, at.a, at.log_a, gap, at.growth)
    unit = 0.5 / (1.0 + gamma_excess(beta))
    middle = jnp.where(below, 2.0 * pair.lower, 0.0)
    excess = jnp.maximum(unit * (middle + pair.difference), jnp.finfo(jnp.float64).tiny)
    excess = jnp.where(shift == 0, 0.0, excess)
    density = unit * jnp.exp(beta * jnp.log(power) - jnp.where(pair.scaled > 0, 0.0, at.a))
    amplification = gap * unit * pair.far + reach * density
    amplification += 0.5 * unit * pair.error
    return _Terms(
        size,
        below,
        jnp.minimum(pair.scaled, 1e305),
        excess,
        unit * (pair.upper + pair.far),
        unit * pair.upper,
        unit * pair.far,
        density,
        amplification,
    )


def _value(shift: Reals, epsilon: Reals, power: Reals) -> Reals:
    t = _terms(shift, epsilon, power)
    backward = epsilon < 0
    decay = jnp.exp(-t.size)
    tail = jnp.exp(-t.decay)
    complement = jnp.where(t.below, tail * t.both, 1.0 - tail * t.excess)
    # delta(-e) = 1 - e^-e + e^-e delta(e), and 1 - delta(-e) = e^-e (1 - delta(e)).
    mixture = -jnp.expm1(-t.size) + decay * tail * t.excess
    near_one = (t.below & (complement < 0.5)) | (backward & (mixture > 0.5))
    inner = jnp.where(backward, mixture, t.excess)
    small = jnp.where(backward, 0.0, -t.decay) + jnp.log(jnp.where(inner > 0, inner, 1.0))
    large = log1m_near(jnp.where(near_one, jnp.where(backward, decay, 1.0) * complement, 0.25))
    part = jnp.where(near_one & t.below, t.both, t.excess)
    mirrored = tail * t.amplification * jnp.where(near_one, 1.0, decay / mixture)
    blurred = t.amplification / jnp.where(part > 0, part, 1.0)
    # There delta itself underflows, and the relative change is known.
    blurred = jnp.where(t.decay > _DEEP, 2.0 * t.decay * power / (power - 1.0), blurred)
    blurred = jnp.where(backward & ~(near_one & t.below), mirrored, blurred)
    blurred = jnp.where(near_one & (large == 0), 0.0, blurred)
    error = jnp.where(near_one, jnp.abs(large), 1.0) * _INPUT_ULPS * blurred
    error += _VALUE_ULPS * jnp.abs(jnp.where(near_one, large, small))
    upper = jnp.where(near_one, large, small) + ULP * error
    return upper


@jax.custom_jvp
def log_delta_of_power(shift: Reals, epsilon: Reals, power: Reals) -> Reals:
    """`Subbotin.log_delta` at scale 1, shift >= 0, for arrays of one shape; power finite."""
    upper = _value(shift, epsilon, power)
    # A delta below exp(-1.8e308) is not zero: only no shift, or epsilon = inf, gives zero.
    upper = jnp.where(jnp.isnan(upper), upper, jnp.clip(upper, jnp.finfo(jnp.float64).min, 0.0))
    zero = ((shift == 0) & (epsilon >= 0)) | (epsilon == jnp.inf)
    return jnp.where(zero & ~jnp.isnan(shift + epsilon + power), -jnp.inf, upper)


@functools.partial(log_delta_of_power.defjvp, symbolic_zeros=True)
def _log_delta_of_power_jvp(primals, tangents):
    """d delta / d shift = g(u), d delta / d epsilon = -e^epsilon P[T > u + shift]."""
    shift, epsilon, power = primals
    out = log_delta_of_power(shift, epsilon, power)
    t = _terms(shift, epsilon, power)
    backward = epsilon < 0
    decay = t.decay + jnp.where(backward, t.size, 0.0)
    direct = ~backward & ~(t.below & (out > -LOG_2))
    inverse = jnp.where(direct, 1.0 / jnp.where(direct, t.excess, 1.0), jnp.exp(-decay - out))
    tail = jnp.exp(-t.decay) * t.near
    reverse = jnp.exp(-t.size - out) * jnp.where(t.below, tail, 1.0 - tail)
    slopes = (inverse * t.density, -jnp.where(backward, reverse, inverse * t.far))
    change = jnp.zeros_like(out)
    for slope, tangent in zip(slopes, tangents[:2], strict=True):
        if not isinstance(tangent, SymbolicZero):
            change += slope * tangent
    if not isinstance(tangents[2], SymbolicZero):
        one = jnp.ones_like(power)
        by_power = jax.jvp(lambda p: _value(shift, epsilon, p), (power,), (one,))[1]
        change += jnp.where(shift == 0, 0.0, by_power) * tangents[2]
    return out, change
