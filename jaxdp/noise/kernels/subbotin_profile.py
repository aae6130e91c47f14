"""log delta and tails of the density proportional to exp(-|t|^p / p), p >= 1.

With zeta(u) = epsilon >= 0, A = |u|^p / p, s = 1 / p and G the upper incomplete gamma function,
2 Gamma(s) delta = G(s, A) - e^epsilon G(s, A + epsilon), plus 2 gamma(s, A) where u < 0.

zeta(t) = (|t + shift|^p - |t|^p) / p is the loss, which does not fall; it equals epsilon at t = u.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
from jax.custom_derivatives import SymbolicZero

from jaxdp._core.namespace import custom_jvp, lax, xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp._numeric.elementary import LOG_2, log1m, log1mexp
from jaxdp._numeric.gamma import gamma_excess, gamma_fractions, gamma_pair
from jaxdp.noise.kernels.negative_epsilon import (
    Sides,
    inverse_delta,
    slope_in_epsilon,
    upper_log_delta,
)

# Steps for the logarithm of a threshold or a quantile. chosen: it settles to rounding in fewer
_NEWTON_STEPS = 10
# Stands for 0 where a logarithm or a quotient is taken.
_LEAST = 1e-300
# |u| / x is not taken below this: it is less than the rounding of x.
_CLOSEST = 1e-17
# Largest |log threshold|. derived: its exponential and its inverse are finite
_LARGEST_LOG = 690.0


class Threshold(NamedTuple):
    """A, log A, log(B / A), and the sign of u (1 at u = 0)."""

    a: Reals
    log_a: Reals
    growth: Reals
    side: Reals


def _growth_of(kappa: Reals) -> tuple[Reals, Reals, Bools]:
    """m = min(kappa, 1 / kappa), log((1 + m) / (1 - m)), and whether kappa < 1."""
    below = kappa < 1.0
    m = xp.where(below, kappa, 1.0 / xp.where(below, 1.0, kappa))
    return m, xp.log1p(2.0 * m / xp.maximum(1.0 - m, _CLOSEST)), below


def _log_of(value: Reals, epsilon: Reals, log_half: Reals, power: Reals) -> Reals:
    """log value; log of (epsilon / 2) (shift / 2)^-power if the value is not a normal number."""
    normal = (value > _LEAST) & (value < 1e300)
    apart = xp.log(xp.maximum(epsilon, _LEAST)) - LOG_2 - power * log_half
    return xp.where(normal, xp.log(xp.where(normal, value, 1.0)), apart)


@custom_jvp
def loss_threshold(shift: Reals, epsilon: Reals, power: Reals) -> Threshold:
    """Threshold where zeta = epsilon >= 0, for shift > 0; shift and power are finite.

    Newton's method for log x, x = u + shift / 2 > 0 the centred variable. In these logarithms
    zeta is convex (p > 2) or concave (p < 2), with slopes between 1 and p - 1, and lies on the
    same side of both its asymptotes, so the iteration starts beyond the root and is monotone.
    """
    half = 0.5 * shift
    log_half = xp.log(half)
    scaled_up = (epsilon / shift) * xp.power(1.0 / half, power - 1.0)
    in_halves = _log_of(scaled_up, epsilon, log_half, power)
    in_scales = _log_of(epsilon / shift, epsilon, log_half, xp.ones_like(power))
    # The unit of x: a half of the shift or the scale, whichever leaves the smaller logarithm.
    near = xp.where(in_halves < 0, in_halves, in_halves / (power - 1.0))
    halves = (in_halves < 0) | (xp.abs(in_halves) < xp.abs(in_scales))
    unit = xp.where(halves, half, 1.0)
    log_unit = xp.where(halves, log_half, 0.0)
    target = xp.where(halves, in_halves, in_scales)
    start = xp.where(halves, near, in_scales / (power - 1.0))

    def improve(_: Index, log_x: Reals) -> Reals:
        log_x = xp.clip(log_x, -_LARGEST_LOG, _LARGEST_LOG)
        log_kappa = log_x + (log_unit - log_half)
        m, growth, below = _growth_of(xp.exp(log_kappa))
        rest = -xp.expm1(-power * growth)
        scaled = xp.where(m < 1e-100, 1.0, rest / (2.0 * power * xp.maximum(m, 1e-100)))
        curve = power * xp.log1p(m) + xp.log(scaled)
        curve = curve + xp.where(below, (2.0 - power) * log_kappa, 0.0)
        residual = (power - 1.0) * log_x - target + curve
        tip = xp.exp(-(power - 1.0) * growth)
        lift = xp.where(below, m * (1.0 + tip), -xp.expm1(-(power - 1.0) * growth))
        slope = power * lift / ((1.0 + m) * xp.maximum(rest, 1e-300))
        slope = xp.where(m < 1e-100, xp.where(below, 1.0, power - 1.0), slope)
        return log_x - residual / slope

    log_x = lax.fori_loop(0, _NEWTON_STEPS, improve, start)
    log_x = xp.clip(log_x, -_LARGEST_LOG, _LARGEST_LOG)
    kappa = xp.minimum(xp.exp(log_x) * (unit / half), 1e300)
    m, growth, below = _growth_of(kappa)
    growth = power * growth
    # A = epsilon / (B / A - 1), and near the centre, where B / A -> 1, from u itself.
    central = below & (m < 0.5)
    u = half * (1.0 - xp.where(central, m, 0.0))
    direct = power * xp.log(u) - xp.log(power)
    safe = xp.where(central, 1.0, growth)
    log_a = xp.log(xp.maximum(epsilon, _LEAST)) - safe - log1mexp(safe)
    log_a = xp.where(central, direct, log_a)
    a = xp.where(central, xp.power(u, power) / power, epsilon / xp.expm1(safe))
    return Threshold(a, log_a, growth, xp.where(below, -1.0, 1.0))


@loss_threshold.defjvp
def _loss_threshold_jvp(primals, tangents):
    """Derivative rule by the implicit function theorem.

    psi(u) = u^(p-1) and psi(v) are the slopes of A and B.
    """
    _, epsilon, power = primals
    out = loss_threshold(*primals)
    a, log_a, growth, side = out
    order = 1.0 / power
    beta = 1.0 - order
    slope_ratio = side * xp.exp(-beta * growth)  # psi(u) / psi(v)
    rest = xp.where(side > 0, -xp.expm1(-beta * growth), 1.0 - slope_ratio)
    share = slope_ratio / rest
    log_power = xp.log(power)
    log_u = order * (log_power + log_a)
    step = epsilon * (log_u - order) + (a + epsilon) * order * growth
    by_shift = -side * xp.exp(beta * log_power) / rest
    pull = tangents[1] - step * tangents[2]
    turn = (log_u - order) * tangents[2]
    # A may underflow; A^(-1/p) and psi(u) / A do not.
    change = share * pull + a * turn + by_shift * xp.exp(beta * log_a) * tangents[0]
    log_change = side * xp.exp(-beta * growth - log_a) / rest * pull + turn
    log_change = log_change + by_shift * xp.exp(-order * log_a) * tangents[0]
    b = a + epsilon
    spread = (tangents[1] - epsilon * log_change) / xp.maximum(b, _LEAST)
    return out, Threshold(change, log_change, spread, xp.zeros_like(side))


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


def _fractions(log_t: Reals, power: Reals) -> tuple[Reals, Reals]:
    """P[|T| <= t] where it is below about 1/2, and log P[|T| > t]."""
    log_x = power * log_t - xp.log(power)
    x = xp.exp(power * log_t) / power
    return gamma_fractions((power - 1.0) / power, x, log_x)


def log_survival(t: Reals, power: Reals) -> Reals:
    """log P[T > t]."""
    size = xp.abs(t)
    nonzero = size > 0
    safe = xp.where(nonzero, size, 1.0)
    x = xp.where(nonzero, safe**power / power, 0.0)
    small = x < 1.0
    log_x = power * xp.log(safe) - xp.log(power)
    lower, log_upper = gamma_fractions((power - 1.0) / power, xp.where(nonzero, x, 0.5), log_x)
    # Odd and smooth through 0: the two-sided probability carries the sign of t.
    inner = xp.where(nonzero, xp.sign(t) * lower, t * _central_density(power))
    near = log1m(xp.where(small, inner, 0.0)) - LOG_2
    far = xp.where(t > 0, log_upper - LOG_2, log1m(0.5 * xp.exp(log_upper)))
    return xp.where(small, near, far)


def _central_density(power: Reals) -> Reals:
    """2 g(0)."""
    beta = (power - 1.0) / power
    return xp.exp(beta * xp.log(power)) / (1.0 + gamma_excess(beta))


@custom_jvp
def quantile(u: Reals, power: Reals) -> Reals:
    """The t with P[T <= t] = u.

    Newton's method for log t on log(-log P[|T| > t]), whose slope rises from 1 to p: monotone.
    """
    lower = u < 0.5
    half = xp.where(lower, u, 1.0 - u)
    inside = (half > 0) & (half < 0.5)
    half = xp.where(inside, half, 0.25)
    # -log of the two-sided tail, exact near 1/2 as well.
    cost = -xp.where(half < 0.25, xp.log(2.0 * half), log1m(xp.minimum(1.0 - 2.0 * half, 0.5)))
    central = _central_density(power)
    log_t = xp.minimum(xp.log(cost / central), xp.log(power * cost) / power)

    def improve(_: Index, log_t: Reals) -> Reals:
        below, log_tail = _fractions(log_t, power)
        value = xp.where(below > 0, -log1m(below), -log_tail)
        log_hazard = xp.log(central) - xp.exp(power * log_t) / power - log_tail + log_t
        return log_t - xp.log(value / cost) * value / xp.exp(log_hazard)

    log_t = lax.fori_loop(0, _NEWTON_STEPS, improve, log_t)
    t = xp.where(lower, -xp.exp(log_t), xp.exp(log_t))
    end = xp.where(u == 0.5, 0.0, xp.where(lower, -xp.inf, xp.inf))
    return xp.where(inside, t, xp.where(xp.isnan(u + power), xp.nan, end))


@quantile.defjvp
def _quantile_jvp(primals, tangents):
    """dt = (du - (dP[T <= t] / dp) dp) / g(t)."""
    u, power = primals
    t = quantile(u, power)
    size = -xp.abs(t)
    log_tail = log_survival(-size, power)
    by_power = jax.jvp(lambda p: log_survival(-size, p), (power,), (tangents[1],))[1]
    density = xp.log(0.5 * _central_density(power)) - xp.abs(t) ** power / power
    drift = xp.sign(t) * xp.exp(log_tail - density) * by_power
    return t, xp.exp(-density) * tangents[0] + drift
