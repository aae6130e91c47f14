"""The tails of the density proportional to exp(-|t|^p / p), p >= 1, and their inverse."""

from __future__ import annotations

import jax

from jaxdp._core.namespace import custom_jvp, lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import LOG_2, log1m
from jaxdp._numeric.gamma import gamma_excess, gamma_fractions

# Steps for the logarithm of a quantile. chosen: it settles to rounding in fewer
_NEWTON_STEPS = 10


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


def _log_density(t: Reals, power: Reals) -> Reals:
    return xp.log(0.5 * _central_density(power)) - xp.abs(t) ** power / power


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
    density = _log_density(t, power)
    drift = xp.sign(t) * xp.exp(log_tail - density) * by_power
    return t, xp.exp(-density) * tangents[0] + drift
