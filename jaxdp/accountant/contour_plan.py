"""Plan of a contour: its tilt, its step, and what the trapezoidal rule aliases there."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Reals
from jaxdp.accountant.factors import Factors, cumulants, over_releases, rounding_of

# log of the tilts that are tried, and of those around the best, as parts of that spacing.
_LOG_TILTS = np.linspace(-16.0, 14.0, 76)
# Spacing of the tilts in their logarithm.
_SPACING = _LOG_TILTS[1] - _LOG_TILTS[0]
# Tilts around the best one, in the logarithm.
_AROUND = np.linspace(-1.0, 1.0, 15) * _SPACING
# -log of the aliased share of delta's saddlepoint estimate.
_ALIASED = 30.0


# Of log M, by which Chernoff's bounds give way. chosen: far above the rounding of few releases
_ROUNDED = 1e-6


class Plan(NamedTuple):
    """A contour through `tilt` with points `step` apart, and what is known at other tilts."""

    tilt: Reals
    step: Reals
    log_scale: Reals  # log of M(tilt) / (tilt (tilt + 1)), tilt held
    others: Reals  # tilts (T,)
    log_moments: Reals  # K there, and log of the largest of e^(-theta y) (1 - e^-y)

    def log_size(self, factors: Factors, epsilon: Reals) -> Reals:
        """log of M(tilt) e^(-tilt epsilon) / (tilt (tilt + 1)), with derivatives."""
        cumulant = cumulants(factors, self.tilt[None])[0]
        return cumulant - self.tilt * epsilon - jnp.log(self.tilt) - jnp.log1p(self.tilt)


def plan_at_epsilon(factors: Factors, epsilon: Reals) -> Plan:
    """Through the saddle of M(z) e^(-z epsilon) / (z (z + 1))."""
    tilts, values = _tilts_around(factors, lambda t, k: k - t * epsilon - jnp.log(t) - jnp.log1p(t))
    return _plan(
        tilts, values, values - tilts * epsilon - jnp.log(tilts) - jnp.log1p(tilts), epsilon
    )


def plan_at_delta(factors: Factors, delta: Reals) -> tuple[Plan, Reals]:
    """Through the tilt of Chernoff's bound on epsilon, and that bound."""
    log_delta = jnp.log(delta)

    def bound(t: Reals, k: Reals) -> Reals:
        return (k + log_most(t) - log_delta) / t

    tilts, values = _tilts_around(factors, bound)
    each = bound(tilts, values)
    best = jnp.nanmin(jnp.where(jnp.isfinite(each), each, jnp.inf))
    epsilon = jnp.maximum(best, 0.0)
    return _plan(tilts, values, each, epsilon), epsilon


def log_chernoff(factors: Factors, plan: Plan, epsilon: Reals) -> Reals:
    """Chernoff's bound on log delta, by the best of all tilts; NaN where nothing is known."""
    each = plan.log_moments - plan.others * epsilon
    best = jnp.argmin(jnp.where(jnp.isfinite(each), each, jnp.inf))
    return each[best] + _doubt(factors, plan.others[best])


def epsilon_chernoff(factors: Factors, plan: Plan, log_delta: Reals) -> Reals:
    """Chernoff's bound on epsilon, by the best of all tilts; NaN where nothing is known."""
    each = (plan.log_moments - log_delta) / plan.others
    best = jnp.argmin(jnp.where(jnp.isfinite(each), each, jnp.inf))
    return each[best] + _doubt(factors, plan.others[best]) / plan.others[best]


def _doubt(factors: Factors, tilt: Reals) -> Reals:
    """Amount by which K may be too low: rounding, and three times the gap to a second rule.

    The rounding of one release counts as often as there are releases.
    """
    loss, log_mass = factors.each.law.check
    law = factors.each.law._replace(loss=loss, log_mass=log_mass)
    other = factors._replace(each=factors.each._replace(law=law))
    values = (cumulants(x, tilt[None])[0] for x in (factors, other))
    rounded = over_releases(factors, jnp.zeros(()), lambda f: f.releases * rounding_of(f.law, tilt))
    return _ROUNDED + rounded + 3.0 * jnp.abs(jnp.subtract(*values))


def log_aliasing(plan: Plan, epsilon: Reals) -> Reals:
    """log of what the rule sums beyond delta, in units of `Plan.log_size`.

    That is delta(epsilon + m P) e^(theta m P) over m >= 1, and over m <= -1; delta(y) is less than
    M(s) e^(-s y) max_x (1 - e^-x) e^(-s x) at any tilt s, here on the right side of theta.
    """
    period = 2.0 * jnp.pi / plan.step
    own = plan.log_scale - plan.tilt * epsilon
    tilts, moments = jnp.append(plan.others, 0.0), jnp.append(plan.log_moments, 0.0)
    way = jnp.abs(tilts - plan.tilt) * period
    each = moments - tilts * epsilon - own - way - jnp.log(-jnp.expm1(-way))
    each = jnp.where(jnp.isfinite(each), each, jnp.inf)
    up = jnp.min(jnp.where(tilts > plan.tilt, each, jnp.inf))
    down = jnp.min(jnp.where(tilts < plan.tilt, each, jnp.inf))
    return jnp.logaddexp(up, down)


def _tilts_around(factors: Factors, height) -> tuple[Reals, Reals]:
    """Tilts and K: over the whole range, and closer around the least `height(tilt, K)`."""
    coarse = jnp.exp(jnp.asarray(_LOG_TILTS))
    values = cumulants(factors, coarse)
    heights = height(coarse, values)
    best = jnp.argmin(jnp.where(jnp.isfinite(heights), heights, jnp.inf))
    fine = coarse[best] * jnp.exp(jnp.asarray(_AROUND))
    return (
        jnp.concatenate([fine, coarse]),
        jnp.concatenate([cumulants(factors, fine), values]),
    )


def _plan(tilts: Reals, values: Reals, heights: Reals, epsilon: Reals) -> Plan:
    best = jnp.argmin(jnp.where(jnp.isfinite(heights), heights, jnp.inf))
    tilt, log_scale = tilts[best], values[best] - jnp.log(tilts[best]) - jnp.log1p(tilts[best])
    moments = values + log_most(tilts)
    own = log_scale - tilt * epsilon
    more = jnp.append(moments - tilts * epsilon, 0.0) - own + _ALIASED
    apart = jnp.append(tilts, 0.0) - tilt
    needed = jnp.where(jnp.isfinite(more), jnp.maximum(more, 1.0) / jnp.abs(apart), jnp.inf)
    up = jnp.min(jnp.where(apart > 0, needed, jnp.inf))
    down = jnp.min(jnp.where(apart < 0, needed, jnp.inf))
    period = jnp.maximum(up, down)
    return lax.stop_gradient(Plan(tilt, 2.0 * jnp.pi / period, log_scale, tilts, moments))


def log_most(tilt: Reals) -> Reals:
    """log of the largest e^(-tilt y) (1 - e^-y)."""
    return -jnp.log1p(tilt) - tilt * jnp.log1p(1.0 / tilt)
