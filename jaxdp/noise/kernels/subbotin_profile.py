"""log delta of the density proportional to exp(-|t|^p / p), p >= 1, and its derivatives.

With zeta(u) = epsilon >= 0, A = |u|^p / p, s = 1 / p and G the upper incomplete gamma function,
2 Gamma(s) delta = G(s, A) - e^epsilon G(s, A + epsilon), plus 2 gamma(s, A) where u < 0.
"""

from __future__ import annotations

import functools

import jax
from jax.custom_derivatives import SymbolicZero

from jaxdp._core.namespace import custom_jvp, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.gamma import gamma_excess, gamma_pair
from jaxdp.noise.kernels.negative_epsilon import (
    Sides,
    inverse_delta,
    slope_in_epsilon,
    upper_log_delta,
)
from jaxdp.noise.kernels.subbotin_loss import loss_threshold

# Measured for powers to 20: 5.2 ulp of |log delta|, or one ulp of the amplification.
_VALUE_ULPS = 10.0
_INPUT_ULPS = 2.0
# Beyond this shift, in units of the scale, delta is 1 to the last place wherever it is not 0.
_LARGEST = 1e300
# Where A is larger, the amplification is 2 A / (1 - s).
_DEEP = 1e12


def _sides(shift: Reals, epsilon: Reals, power: Reals) -> tuple[Sides, Reals]:
    """The sides, and g(u) exp(decay)."""
    reach = xp.clip(shift, 1e-300, _LARGEST)
    size = xp.minimum(xp.abs(epsilon), _LARGEST)
    at = loss_threshold(reach, size, power)
    below = at.side < 0
    beta = (power - 1.0) / power
    pair = gamma_pair(beta, at.a, at.log_a, size, at.growth)
    unit = 0.5 / (1.0 + gamma_excess(beta))
    middle = xp.where(below, 2.0 * pair.lower, 0.0)
    excess = xp.maximum(unit * (middle + pair.difference), xp.finfo(xp.float64).tiny)
    excess = xp.where(shift == 0, 0.0, excess)
    density = unit * xp.exp(beta * xp.log(power) - xp.where(pair.scaled > 0, 0.0, at.a))
    near, far = unit * pair.upper, unit * pair.far
    amplification = size * far + reach * density + 0.5 * unit * pair.error
    decay = xp.minimum(pair.scaled, 1e305)
    deep = (decay > _DEEP) & ~below
    amplification = xp.where(deep, 2.0 * decay / beta * excess, amplification)
    return Sides(below, decay, excess, near + far, near, far, amplification), density


def _value(shift: Reals, epsilon: Reals, power: Reals) -> Reals:
    sides = _sides(shift, epsilon, power)[0]
    return upper_log_delta(sides, epsilon, _VALUE_ULPS, _INPUT_ULPS)


@custom_jvp
def log_delta(shift: Reals, epsilon: Reals, power: Reals) -> Reals:
    """`Subbotin.log_delta` at scale 1, shift >= 0, for arrays of one shape; power finite."""
    upper = _value(shift, epsilon, power)
    # A delta below exp(-1.8e308) is not zero: only no shift, or epsilon = inf, gives zero.
    zero = ((shift == 0) & (epsilon >= 0)) | (epsilon == xp.inf)
    return xp.where(zero & ~xp.isnan(shift + epsilon + power), -xp.inf, upper)


@functools.partial(log_delta.defjvp, symbolic_zeros=True)
def _log_delta_jvp(primals, tangents):
    """d delta / d shift = g(u), d delta / d epsilon = -e^epsilon P[T > u + shift]."""
    shift, epsilon, power = primals
    out = log_delta(shift, epsilon, power)
    sides, density = _sides(shift, epsilon, power)
    change = xp.zeros_like(out)
    if not isinstance(tangents[0], SymbolicZero):
        change = change + inverse_delta(sides, epsilon, out) * density * tangents[0]
    if not isinstance(tangents[1], SymbolicZero):
        change = change + slope_in_epsilon(sides, epsilon, out) * tangents[1]
    if not isinstance(tangents[2], SymbolicZero):
        one = xp.ones_like(power)
        by_power = jax.jvp(lambda p: _value(shift, epsilon, p), (power,), (one,))[1]
        change = change + xp.where(shift == 0, 0.0, by_power) * tangents[2]
    return out, change
