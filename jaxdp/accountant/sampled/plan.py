"""Tilt and period of every lane's contour.

Nothing that is bounded elsewhere depends on the choice. A bulk of many hits takes the tilt at which
the saddlepoint approximation of delta meets its target; other lanes take, of many tilts, the one
whose sum needs fewest points and whose terms are least above delta.
Source: Daniels, Annals of Mathematical Statistics 25, 1954, for the approximation.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Index, Reals
from jaxdp.accountant.sampled.cumulant import (
    Bounds,
    Moments,
    chernoff,
    composed,
    log_psi,
    moments,
)
from jaxdp.accountant.sampled.law import Nodes, Releases, Stage

ALIASED = 25.0  # nats below delta of the aliased terms. chosen: 1e-11
TRUNCATED = 22.0  # nats below delta of what is left of the sum. chosen
# Tilts of bounds beside a saddle's: spreads above it, and parts of it below.
ABOVE = np.asarray([0.0, 2.0, 4.0, 6.0, 9.0])[:, None]
BELOW = np.asarray([1e-300, 0.3, 0.65])[:, None]
# Tilts among which the best is taken. chosen: 1e6 releases of all, or one at q = 1e-7
TILTS = np.append(1e-300, np.exp(np.arange(-2.5, 16.1, 0.45)))
NEWTON_STEPS = 14  # measured: from the central limit to the saddle
LARGE_TERMS = 13.0  # nats above delta that cost digits. derived: e^13 40 ULP is 4e-9
LARGEST_TERMS = 26.0  # nats above delta that leave none. derived
NO_EDGE = -14.0  # nats below delta of a law's end. chosen: 1e-6
REACHES = 5  # rounds that find where a transform has fallen. measured
LEAST_UNIT = -700.0  # of the logarithm of a unit: below, Chernoff bounds are all. chosen


class Plan(NamedTuple):
    """A contour of each lane (lanes,)."""

    tilt: Reals
    period: Reals
    epsilon: Reals  # about where it serves
    log_unit: Reals  # about log delta there
    bounds: Bounds  # of the law on its nodes
    spread: Reals  # (phases, lanes), of l at the tilt of a saddle


class _Saddle(NamedTuple):
    """State of a search for a saddle (lanes,)."""

    next: Reals  # log of a tilt
    tilt: Reals
    spread: Reals
    epsilon: Reals
    variance: Reals  # (phases, lanes)


def saddle(releases: Releases, nodes: Nodes, log_delta: Reals) -> Plan:
    """The tilt at which the saddlepoint approximation is log delta, by Newton's method."""

    def newton(_: Index | int, state: _Saddle) -> _Saddle:
        tilt = jnp.exp(state.next)
        found = moments(nodes, releases.power(tilt))
        spread = jnp.sum(releases.number * found.variance, 0) + releases.variance
        spread += 1.0 / tilt**2 + 1.0 / (1.0 + tilt) ** 2
        epsilon = _mean(releases, found, tilt) - 1.0 / tilt - 1.0 / (1.0 + tilt)
        size = composed(releases, found.log_psi, tilt) - tilt * epsilon
        size -= jnp.log(tilt * (1.0 + tilt)) + 0.5 * jnp.log(2.0 * jnp.pi * spread)
        step = jnp.clip((size - log_delta) / (tilt * tilt * spread), -1.5, 1.5)
        next_ = jnp.clip(state.next + step, -12.0, 14.0)
        return _Saddle(next_, tilt, spread, epsilon, found.variance)

    zero = jnp.zeros_like(log_delta)
    each = releases.share**2 * jnp.expm1(jnp.minimum(releases.mean**2, 50.0))
    each = releases.number * jnp.sum(releases.coin * jnp.sum(each, 0), 0)
    spread = jnp.sum(each, 0) + releases.variance + 1e-12
    start = 0.5 * jnp.log(-2.0 * jnp.minimum(log_delta, -0.1) / spread)
    start = _Saddle(jnp.clip(start, -8.0, 9.0), zero, zero, zero, jnp.zeros_like(each))
    found = lax.fori_loop(0, NEWTON_STEPS, newton, start)
    tilt, epsilon = found.tilt, jnp.maximum(found.epsilon, 0.0)
    above = tilt + jnp.asarray(ABOVE) / jnp.sqrt(found.spread)
    bounds = chernoff(releases, nodes, jnp.concatenate([jnp.asarray(BELOW) * tilt, above]))
    log_unit = jnp.clip(log_delta, LEAST_UNIT, 0.0)
    period = _period(bounds, tilt, bounds.log - bounds.tilts * epsilon - log_unit)
    return Plan(tilt, period, epsilon, log_unit, bounds, jnp.sqrt(found.variance))


def _mean(releases: Releases, found: Moments, tilt: Reals) -> Reals:
    mean = jnp.sum(releases.number * releases.sign * found.mean, 0)
    return mean + releases.variance * (tilt + 0.5)


def _period(bounds: Bounds, tilt: Reals, excess: Reals) -> Reals:
    """The least period at which aliased terms are small enough, on both sides."""
    gap = bounds.tilts - tilt
    reach = (excess + ALIASED) / jnp.where(gap == 0, 1.0, jnp.abs(gap))
    above = jnp.min(jnp.where(gap > 1e-9 * tilt, reach, jnp.inf), 0)
    below = jnp.min(jnp.where(gap < -1e-9 * tilt, reach, jnp.inf), 0)
    return jnp.maximum(jnp.maximum(above, below), 1.0 / tilt)


class Target(NamedTuple):
    """Sum for which a tilt is sought."""

    points: Index | int  # of the sum
    epsilon: Reals  # where it is taken
    log_unit: Reals  # of delta there


def search(stage: Stage, releases: Releases, half: Nodes, bounds: Bounds, target: Target) -> Plan:
    """The best of `TILTS`, by every other node."""
    excess = bounds.log - bounds.tilts * target.epsilon - target.log_unit

    def cost(index: Index) -> tuple[Reals, Reals]:
        tilt, scale = bounds.tilts[index], excess[index]
        power = releases.power(tilt)
        exponent = half.log_weight + power * half.loss
        exponent -= log_psi(half, power)
        last = jnp.max(releases.by_mixture(exponent)[:, -1], 0)
        edge = jnp.max(last + jnp.log(releases.number), 0) + stage.log_rise
        fall = jnp.maximum(scale, 0.0) + TRUNCATED
        height = _height_of_fall(releases, jnp.exp(exponent), half.loss, fall)
        period = _period(bounds, tilt, excess)
        log_points = jnp.log(height * period / (2.0 * jnp.pi))
        found = 10.0 * jnp.maximum(log_points - jnp.log(0.4 * target.points), 0.0)
        found += 0.3 * log_points + jnp.maximum(scale - LARGE_TERMS, 0.0)
        found += jnp.maximum(edge + scale - NO_EDGE, 0.0)
        found += 1e3 * jnp.maximum(scale - LARGEST_TERMS, 0.0)
        return jnp.where(jnp.isnan(found), jnp.inf, found), period

    costs, periods = jax.vmap(cost)(jnp.arange(1, len(TILTS)))
    best = jnp.argmin(costs, 0)[None]
    tilt = jnp.take_along_axis(bounds.tilts[1:], best, 0)[0]
    period = jnp.take_along_axis(periods, best, 0)[0]
    spread = jnp.zeros_like(releases.number)
    return Plan(tilt, period, target.epsilon, target.log_unit, bounds, spread)


def _height_of_fall(releases: Releases, weight: Reals, loss: Reals, fall: Reals) -> Reals:
    """The t at which |phi|^n has fallen by `fall` nats: t^2 E min(l^2, 2 / t^2) / 2 n is that."""
    square = loss * loss

    def narrow(_: Index | int, inverse: Reals) -> Reals:
        inside = jnp.sum(weight * jnp.minimum(square, inverse), 0)
        spread = jnp.sum(releases.number * inside, 0) + releases.variance
        return spread / fall  # 2 / t^2 with t^2 = 2 fall / spread

    inverse = lax.fori_loop(0, REACHES, narrow, jnp.full_like(fall, jnp.inf))
    return jnp.sqrt(2.0 / jnp.maximum(inverse, 1e-300))


def fixed_tilts(lanes: Reals) -> Reals:
    """`TILTS` for every lane."""
    return jnp.broadcast_to(jnp.asarray(TILTS)[:, None], (len(TILTS), *lanes.shape))
